//! The appliance that `blockyard image` works through, on each backend: a Linux kernel that is a program, or one that
//! boots on KVM.

use super::facility::{Facility, Lack};
use super::program::{self, Asked};
use crate::image::try_appliance;
use blockyard_appliance::{Backend, Confined, Kernel, KernelError};
use blockyard_block::explain;
use blockyard_command_line::failures;
use blockyard_image::guest::Trial;

const UML_REMEDY: &str = "apt-get install user-mode-linux; or, without being root, apt-get download user-mode-linux, dpkg-deb -x \
                          user-mode-linux_*.deb DIR and BLOCKYARD_UML=DIR/usr/bin/linux.uml";

/// User-Mode Linux, asked for its version.
pub struct UserModeLinux(Result<(Kernel, Asked), Lack>);

/// Looks for it.
pub fn find_user_mode_linux() -> UserModeLinux {
    let lack = |error| Lack::new(explain(&error), UML_REMEDY);
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
        asked.answer().map_err(|why| Lack::new(format!("{shown}: {why}"), UML_REMEDY))?;
        boots(&kernel)
    }
}

/// A distribution's kernel, which boots here if KVM is for that: without, `image` takes User-Mode Linux.
pub fn on_kvm() -> Facility {
    let lack = |error: KernelError| {
        let remedy = match &error {
            KernelError::Kvm { remedy, .. } => remedy.clone(),
            _ => None,
        };
        match error {
            KernelError::Kvm { reason, .. } => Lack { reason, remedy },
            error => Lack { reason: explain(&error), remedy },
        }
    };
    let found = Kernel::find(Backend::Kvm).map_err(lack).and_then(|kernel| boots(&kernel));
    Facility::new("kvm image", "`blockyard image` without User-Mode Linux", found.map(|(reason, _)| reason))
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
