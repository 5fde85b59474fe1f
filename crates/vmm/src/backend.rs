//! Who executes the guest's code: the choice, and why.

use blockyard_hypervisor::kvm::{self, KvmHypervisor};
use blockyard_hypervisor::user::{self, UserHypervisor};
use blockyard_hypervisor::{Error, Hypervisor};

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendChoice {
    /// KVM where it executes guest code natively, `user` elsewhere.
    Auto,
    /// /dev/kvm, whatever it is worth.
    Kvm,
    /// No hypervisor: a confined process.
    User,
}

/// What a backend is worth here.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendReport {
    /// Its name.
    pub name: &'static str,
    /// Whether it can be asked for.
    pub usable: bool,
    /// Whether `auto` takes it.
    pub chosen: bool,
    /// Why, as a sentence.
    pub reason: String,
    /// What would make it (more) usable.
    pub remedy: Option<String>,
}

/// The hypervisor for `choice`.
///
/// # Errors
/// When the one that was asked for cannot be used.
pub fn open(choice: BackendChoice) -> Result<Box<dyn Hypervisor>, Error> {
    match choice {
        BackendChoice::Kvm => Ok(Box::new(KvmHypervisor::open()?)),
        BackendChoice::User => Ok(Box::new(UserHypervisor)),
        BackendChoice::Auto if kvm::is_native() => Ok(Box::new(KvmHypervisor::open()?)),
        BackendChoice::Auto => Ok(Box::new(UserHypervisor)),
    }
}

/// What each backend is worth on this machine, tried out.
pub fn report() -> [BackendReport; 2] {
    let kvm = kvm::examine();
    let (usable, reason) = match user::availability() {
        Ok(reason) => (true, reason),
        Err(reason) => (false, reason),
    };
    [
        BackendReport { name: "kvm", usable: kvm.usable, chosen: kvm.native, reason: kvm.reason, remedy: kvm.remedy },
        BackendReport { name: "user", usable, chosen: usable && !kvm.native, reason, remedy: None },
    ]
}
