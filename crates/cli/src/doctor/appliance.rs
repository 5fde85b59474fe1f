//! The appliance that `blockyard image` works through, on each backend: a Linux kernel that is a program, or one that
//! boots on KVM.

use super::facility::{Facility, Lack};
use super::program::{self, Asked};
use crate::image::try_appliance;
use blockyard_appliance::{Backend, Confined, Kernel, KernelError};
use blockyard_command_line::failures;
use blockyard_image::guest::Trial;
use std::error::Error;

/// User-Mode Linux, asked for its version.
pub struct UserModeLinux(Result<(Kernel, Asked), Lack>);

/// Looks for it.
pub fn find_user_mode_linux() -> UserModeLinux {
    // Whatever is wrong with one that was found, the package's helps.
    let lack = |error: KernelError| {
        let Lack { reason, remedy } = not_found(&error);
        Lack { reason, remedy: remedy.or_else(|| KernelError::Missing.remedy()) }
    };
    UserModeLinux(Kernel::find(Backend::Uml).map_err(lack).map(|kernel| {
        let asked = program::ask(&kernel.file);
        (kernel, asked)
    }))
}

impl UserModeLinux {
    /// What there is of it, and what shuts it in if it boots, which it does here: no look tells what only shows then.
    pub fn facility(self) -> (Facility, Option<Confined>) {
        let found = self.boots();
        let confined = found.as_ref().ok().map(|(_, confined)| *confined);
        let facility = Facility::new(
            "uml",
            "`blockyard image` and `run`: Linux guests without KVM",
            found.map(|(reason, _)| reason),
        );
        (facility, confined)
    }

    fn boots(self) -> Result<(String, Confined), Lack> {
        let (kernel, asked) = self.0?;
        let shown = kernel.file.display();
        let other = |why| Lack { reason: format!("{shown}: {why}"), remedy: KernelError::Missing.remedy() };
        asked.answer().map_err(other)?;
        boots(&kernel)
    }
}

/// A distribution's kernel, which boots here if KVM is for that: without, `image` takes User-Mode Linux.
pub fn on_kvm() -> Facility {
    let found = Kernel::find(Backend::Kvm).map_err(|error| not_found(&error)).and_then(|kernel| boots(&kernel));
    Facility::new("kvm image", "`blockyard image` without User-Mode Linux", found.map(|(reason, _)| reason))
}

/// What `image` says where there is no kernel.
fn not_found(error: &KernelError) -> Lack {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Lack { reason: error.reason() + &cause, remedy: error.remedy() }
}

/// Boots it: what was seen.
fn boots(kernel: &Kernel) -> Result<(String, Confined), Lack> {
    match try_appliance(kernel.clone()) {
        Ok(Trial { confined, kernel_release, boot }) => {
            let (shown, seconds, walls) = (kernel.file.display(), boot.as_secs_f64(), walls(confined));
            let seen = format!("{shown}, version {kernel_release}; it boots in {seconds:.2} s");
            Ok((format!("{seen}, and what shuts it in is {walls}"), confined))
        }
        Err(error) => Err(lack(kernel, &error)),
    }
}

/// What `image` says when it cannot boot it.
fn lack(kernel: &Kernel, error: &anyhow::Error) -> Lack {
    let shown = kernel.file.display();
    match failures::appliance(error) {
        Some(error) => {
            Lack { reason: format!("{shown}: {}", error.reason()), remedy: error.remedy().map(str::to_owned) }
        }
        None => Lack::for_good(format!("{shown}: {error:#}")),
    }
}

/// The walls that there are, in the words of docs/threat-model.md.
fn walls(confined: Confined) -> String {
    let Confined { namespaces, landlock, filtered, sealed, .. } = confined;
    let walls = [(namespaces, "namespaces"), (landlock, "Landlock"), (filtered, "system calls"), (sealed, "the seal")];
    let there: Vec<_> = walls.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name).collect();
    if there.is_empty() { "nothing".to_owned() } else { there.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walls_are_named() {
        assert_eq!(walls(Confined::default()), "nothing");
        let some = Confined { landlock: true, sealed: true, ..Confined::default() };
        assert_eq!(walls(some), "Landlock, the seal");
    }
}
