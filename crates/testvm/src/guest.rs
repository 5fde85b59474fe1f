//! What boots.

use anyhow::Result;
use blockyard_appliance::{Backend, Kernel, are_its_own};
use blockyard_run::{Configuration, is_on_kvm};
use std::path::{Path, PathBuf};

/// A kernel, and where its modules are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// What is booted.
    pub kernel: PathBuf,
    /// The directory below which its modules are, if it has any.
    pub modules: Option<PathBuf>,
}

impl Guest {
    /// What this machine boots: its kernel, or the one that the host has for its backend. Modules of a kernel that is
    /// called as distributions call theirs lie where distributions have them, unless `modules` says where.
    ///
    /// # Errors
    /// When there is none, with what to install.
    pub fn of(machine: &Configuration, modules: Option<PathBuf>) -> Result<Self> {
        let guest = match &machine.kernel {
            Some(kernel) if is_on_kvm(machine) => Self::at(kernel),
            Some(kernel) => Self::from(Kernel::user_mode_linux_at(kernel)?),
            None if is_on_kvm(machine) => Self::from(Kernel::find(Backend::Kvm)?),
            None => Self::from(Kernel::find(Backend::Uml)?),
        };
        Ok(Self { modules: modules.or(guest.modules), ..guest })
    }

    /// A kernel for a PC, with its modules where distributions have them.
    pub fn at(kernel: &Path) -> Self {
        Self { kernel: kernel.to_owned(), modules: usual_modules(kernel) }
    }
}

impl From<Kernel> for Guest {
    fn from(kernel: Kernel) -> Self {
        Self { modules: kernel.modules().map(Path::to_owned), kernel: kernel.file }
    }
}

/// Of `…/boot/vmlinuz-VERSION`: `…/lib/modules/VERSION`, if it is there.
fn usual_modules(kernel: &Path) -> Option<PathBuf> {
    let version = kernel.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    let modules = kernel.parent()?.parent()?.join("lib/modules").join(version);
    are_its_own(kernel, &modules).then_some(modules)
}
