//! Handing the guest over to the system in an image: what its root may lie in is opened first.

use super::keys::Keys;
use super::stacks::Asking;
use crate::error::{Context, Result};
use crate::guest::OpenImage;
use blockyard_appliance::System;

impl OpenImage {
    /// Has the system in the image take over, with `modules` of the kernel's loaded. Its root is the file system that
    /// is found to be it, or that `root=` names in what was appended to the kernel's command line; `rootflags=`, `ro`
    /// and `init=` mean there what they mean elsewhere. What else the system mounts, and closes in the end, is its own
    /// business.
    ///
    /// # Errors
    /// When there is no root, or it cannot be opened or mounted, or has no init.
    pub fn hand_over(mut self, modules: &[&str]) -> Result<System> {
        self.begin_hand_over(modules)?;
        Ok(self.into_system())
    }

    /// As [`OpenImage::hand_over`], but that the guest is still to be had with [`OpenImage::into_system`]: nothing else
    /// can be asked of it.
    ///
    /// # Errors
    /// As there.
    pub fn begin_hand_over(&mut self, modules: &[&str]) -> Result<()> {
        let mut response = self.try_hand_over(modules)?;
        let is_lacking = response.closed && !response.failures.is_empty();
        if is_lacking && self.open_stacks(Asking::Somebody).with_context(|| self.name().to_owned())? {
            response = self.try_hand_over(modules)?;
        }
        let response = self.judge(response).with_context(|| self.name().to_owned())?;
        for point in response.mounted.iter().filter(|point| !point.note.is_empty()) {
            self.note(&format!("{}: {}", point.device, point.note));
        }
        Ok(())
    }

    /// The keys that it was given, and those that have opened something.
    pub fn take_keys(&mut self) -> Keys {
        std::mem::take(&mut self.keys)
    }
}
