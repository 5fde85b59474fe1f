//! Why a program of the host's does not run in the appliance.

use crate::error::ApplianceError;
use blockyard_protocol::appliance::Failure;
use std::io;
use std::path::PathBuf;

/// Why a tool did not run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The host has none.
    #[error("there is no {program} on this machine: run `apt-get install {package}`")]
    Missing {
        /// What its file is called.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// It, or something that it needs, cannot be read.
    #[error("cannot take {} into the appliance", path.display())]
    Unreadable {
        /// The file that cannot be read, or what was to be sent.
        path: PathBuf,
        /// How reading, packing or sending it failed.
        #[source]
        error: io::Error,
    },
    /// A library is not there.
    #[error("there is no library {name} on this machine, which {needed_by} needs")]
    Library {
        /// Its name, as `needed_by` has it.
        name: String,
        /// Who needs it.
        needed_by: String,
    },
    /// The agent did not execute it.
    #[error("the appliance cannot run {0}")]
    Refused(&'static str, Vec<Failure>),
    /// The appliance is of no more use.
    #[error(transparent)]
    Appliance(#[from] ApplianceError),
}
