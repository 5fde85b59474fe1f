//! User-Mode Linux: a Linux kernel that is a program, which `blockyard image` works through.

use super::facility::{Facility, Lack};
use super::program::{self, Asked};
use crate::image::try_appliance;
use blockyard_appliance::{Backend, Confined, Kernel};
use blockyard_command_line::failures;
use std::path::PathBuf;

const REMEDY: &str = "apt-get install user-mode-linux; or, without being root, apt-get download user-mode-linux, dpkg-deb -x \
                      user-mode-linux_*.deb DIR and BLOCKYARD_UML=DIR/usr/bin/linux.uml";

/// The kernel that `image` takes, asked for its version.
pub struct Found(Result<(Kernel, Asked), Lack>);

/// Looks for it.
pub fn find() -> Found {
    let lack = |error| Lack::new(blockyard_block::explain(&error), REMEDY);
    Found(Kernel::find(Backend::Uml).map_err(lack).map(|kernel| {
        let asked = program::ask(&kernel.file);
        (kernel, asked)
    }))
}

impl Found {
    /// What there is of it, and what shuts it in if it boots, which it does here: no look tells what only shows then.
    pub fn facility(self) -> (Facility, Option<Confined>) {
        let found = self.boots();
        let confined = found.as_ref().ok().map(|(_, confined)| *confined);
        let facility =
            Facility::new("uml", "`blockyard image`: Linux guests without KVM", found.map(|(reason, _)| reason));
        (facility, confined)
    }

    fn boots(self) -> Result<(String, Confined), Lack> {
        let (kernel, asked) = self.0?;
        let shown = kernel.file.display();
        let version = asked.answer().map_err(|why| Lack::new(format!("{shown}: {why}"), REMEDY))?;
        match try_appliance(kernel.clone()) {
            Ok(confined) => {
                let walls = walls(confined);
                Ok((format!("{shown}, version {version}; it boots, and what shuts it in is {walls}"), confined))
            }
            Err(error) => Err(lack(kernel.file.clone(), &error)),
        }
    }
}

/// What `image` says when it cannot boot it.
fn lack(program: PathBuf, error: &anyhow::Error) -> Lack {
    let shown = program.display();
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
