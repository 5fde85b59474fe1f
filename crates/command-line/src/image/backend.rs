//! `--backend` of the commands on images: who executes the appliance.

use blockyard_image::Backend;
use clap::{Args, ValueEnum};

// An option of every command that boots an appliance.
#[allow(missing_docs, reason = "clap would show it instead of the command's documentation")]
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct BackendArgs {
    /// Who executes the appliance.
    #[arg(long, value_enum, default_value_t)]
    backend: BackendArg,
}

impl BackendArgs {
    /// What was asked for.
    pub fn backend(self) -> Backend {
        match self.backend {
            BackendArg::Auto => Backend::Auto,
            BackendArg::Uml => Backend::Uml,
            BackendArg::Kvm => Backend::Kvm,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum BackendArg {
    /// User-Mode Linux where it is installed, otherwise KVM where it executes natively.
    #[default]
    Auto,
    /// User-Mode Linux.
    Uml,
    /// KVM, with the distribution's kernel out of /boot.
    Kvm,
}
