//! Who executes the guests that are measured.

use serde::Serialize;
use std::process::Command;

/// Who executes a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// KVM.
    Kvm,
    /// User-Mode Linux, which has one processor and keeps to one CPU by itself.
    Uml,
}

impl Backend {
    /// As `--backend` of the program's commands has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Uml => "uml",
        }
    }
}

/// The appliance of `blockyard image` on a backend.
#[derive(Clone, Debug, Serialize)]
pub struct Appliances {
    /// Who executes them.
    pub backend: Backend,
    /// Why there are none here: then it has no figures.
    pub missing: Option<String>,
}

impl Appliances {
    /// Has `command`, of `blockyard image`, take one of these.
    pub(crate) fn choose(&self, command: &mut Command) {
        command.args(["--backend", self.backend.name()]);
    }

    /// For people, if there are none.
    pub(crate) fn note(&self) -> Option<String> {
        Some(format!("{}: {}", self.backend.name(), self.missing.as_deref()?))
    }
}
