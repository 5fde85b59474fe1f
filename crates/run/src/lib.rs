//! A virtual machine that somebody runs Linux in, from its configuration to its end.
//!
//! [`Configuration`] says what the machine is made of: on the command line, in a TOML file, or both. [`run`] starts it
//! on KVM, lends it the terminal ([`console`]), begins anew when the guest reboots, and returns when it is switched
//! off.
//!
//! Deliberately absent: which signals end it ([`Audience`] says so), and what is printed besides the guest's console.
#![forbid(unsafe_code)]

pub mod configuration;
pub mod console;
mod kernel_files;
mod kvm;
mod own_kernel;
mod placement;
pub mod report;
mod shares;
mod uml;
mod walls;

pub use configuration::Configuration;
pub use own_kernel::own_kernel;
pub use report::RunReport;

use anyhow::Result;
use blockyard_hypervisor::kvm::is_native;
use blockyard_image::Watch;
use blockyard_session::open::OpenOptions;
use configuration::Backend;
use std::sync::Arc;

/// Who looks on while a machine runs.
pub trait Audience {
    /// The signal that asks the machine to end, by its name, once one has.
    fn asks_to_end(&self) -> Option<String>;

    /// Who is told and asked while a guest of ours looks for the system in an image.
    fn watch(&self) -> Arc<dyn Watch>;

    /// The argument with which this program calls [`blockyard_image::become_kernel`] before anything else.
    fn kernel_argument(&self) -> &'static str;
}

/// What is wanted of a machine is nothing that who executes it has: a sentence, with what would fit.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DoesNotFit(String);

/// Runs the machine until it is switched off, somebody leaves it, or it fails. Disks are opened with `opening`.
///
/// # Errors
/// A sentence on what cannot be had, on what the guest died of, or the signal that ended it.
pub fn run(configuration: &Configuration, opening: &OpenOptions<'_>, audience: &dyn Audience) -> Result<RunReport> {
    match is_on_kvm(configuration) {
        true => kvm::run(configuration, opening, audience),
        false => uml::run(configuration, opening, audience),
    }
}

/// Whether the machine is one on KVM: only those have a kernel of their own.
pub fn is_on_kvm(configuration: &Configuration) -> bool {
    match configuration.backend {
        Backend::Kvm => true,
        Backend::Auto => is_native(),
        Backend::Uml => false,
    }
}
