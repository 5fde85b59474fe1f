//! Mounting an image's file systems. Where some are missing, what they may lie in is opened first.

use super::stacks::Asking;
use crate::error::{Context, Result};
use crate::guest::OpenImage;
use blockyard_protocol::appliance::{Mount, MountPoint, Operation, Response};

impl OpenImage {
    /// Sets what shall be mounted; nothing: what is found.
    pub fn set_points(&mut self, points: Vec<MountPoint>) {
        self.points = points;
    }

    /// Mounts what was set, or what is found if that is nothing, instead of all that is mounted; says what is mounted
    /// then.
    ///
    /// # Errors
    /// When one of them cannot be: then nothing is mounted.
    pub fn mount(&mut self) -> Result<Vec<MountPoint>> {
        if self.points.iter().any(|point| point.device.starts_with("loop:")) {
            self.install_modules()?;
        }
        let mut response = self.try_mount()?;
        // Other failures have an error's number.
        let fails = response.failures.first().is_some_and(|failure| failure.errno == 0);
        // Stacks are opened when something is missing without them.
        if response.closed && (fails || !response.notes.is_empty()) {
            let asking = if fails { Asking::Somebody } else { Asking::Nobody };
            if self.open_stacks(asking).with_context(|| self.name().to_owned())? {
                response = self.try_mount()?;
            }
        }
        let response = self.judge(response).with_context(|| self.name().to_owned())?;
        for point in response.mounted.iter().filter(|point| !point.note.is_empty()) {
            self.note(&format!("{}: {}", point.device, point.note));
        }
        response.notes.iter().for_each(|note| self.note(note));
        Ok(response.mounted)
    }

    fn try_mount(&mut self) -> Result<Response> {
        let (read_only, synchronous, points) = (self.reads_only(), self.synchronous, self.points.clone());
        self.try_call(Operation::Mount(Mount { read_only, synchronous, disks: self.disks(), points }))
    }
}
