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
mod deadline;
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

use anyhow::{Error, Result, anyhow};
use blockyard_appliance::KernelError;
use blockyard_confinement::Inherited;
use blockyard_hypervisor::kvm::{Probe, is_native, probe};
use blockyard_image::Watch;
use blockyard_session::open::OpenOptions;
use configuration::Backend;
use deadline::Timed;
use std::sync::Arc;
use std::time::Duration;

/// How often to look whether somebody asks for an end.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

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
/// `report` is filled in as far as the machine comes; what the host failed at of the guest's requests, is noted. On
/// KVM, what this process has inherited is closed once all is open, whose names may say one of those: no guest has it.
///
/// # Errors
/// A sentence on what cannot be had, on what the guest died of, or the signal that ended it.
pub fn run(
    configuration: &Configuration,
    opening: &OpenOptions<'_>,
    audience: &dyn Audience,
    inherited: Inherited,
    report: &mut RunReport,
) -> Result<()> {
    let audience = Timed::new(audience, configuration.timeout);
    let ran = match configuration.backend {
        Backend::Kvm => kvm::run(configuration, opening, &audience, inherited, report),
        Backend::Uml => uml::run(configuration, opening, &audience, report),
        Backend::Auto => match probe() {
            kvm if kvm.native => kvm::run(configuration, opening, &audience, inherited, report),
            kvm => uml::run(configuration, opening, &audience, report).map_err(|error| nor_on_kvm(error, &kvm)),
        },
    };
    let watch = audience.watch();
    report.disk_failures().for_each(|sentence| watch.note(&sentence));
    ran.map_err(|error| audience.explained(error))
}

/// What keeps a machine from being User-Mode Linux, where that was taken as there is no KVM: both, and what helps.
fn nor_on_kvm(error: Error, kvm: &Probe) -> Error {
    use KernelError::{ForMachines, Missing, Other};
    let is_none = matches!(error.downcast_ref(), Some(Missing | Other { .. } | ForMachines { .. }));
    let both = |sentence: String| format!("{sentence}; and KVM is not taken: {}", kvm.in_words());
    match error.downcast::<DoesNotFit>() {
        Ok(DoesNotFit(sentence)) => DoesNotFit(both(sentence)).into(),
        Err(error) if is_none => anyhow!(both(format!("{error:#}"))),
        Err(error) => error,
    }
}

/// Refuses what who executes the machine does not have, before anything of it is there.
///
/// # Errors
/// A sentence on what does not fit.
pub fn check_fit(configuration: &Configuration) -> Result<(), DoesNotFit> {
    if is_on_kvm(configuration) { Ok(()) } else { uml::refuse_what_it_has_not(configuration) }
}

/// Whether the machine is one on KVM: only those have a kernel of their own.
pub fn is_on_kvm(configuration: &Configuration) -> bool {
    match configuration.backend {
        Backend::Kvm => true,
        Backend::Auto => is_native(),
        Backend::Uml => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_for_neither_backend_is_told_both_reasons_and_remedies() {
        let kvm = Probe {
            usable: false,
            native: false,
            reason: "no permission".into(),
            remedy: Some("join the group kvm".into()),
            measured: None,
        };
        let said = nor_on_kvm(KernelError::Missing.into(), &kvm).to_string();
        assert!(said.contains("apt-get install user-mode-linux"), "{said}");
        assert!(said.ends_with("; and KVM is not taken: no permission (join the group kvm)"), "{said}");
        let misfit = nor_on_kvm(DoesNotFit("one processor".into()).into(), &kvm);
        assert_eq!(
            misfit.downcast::<DoesNotFit>().unwrap().0,
            "one processor; and KVM is not taken: no permission (join the group kvm)"
        );
        assert_eq!(nor_on_kvm(anyhow!("a disk is in use"), &kvm).to_string(), "a disk is in use");
    }
}
