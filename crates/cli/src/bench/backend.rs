//! `--backend` of the measurements: which backends are measured beside each other.

use blockyard_appliance::{Backend as Executed, Kernel};
use blockyard_bench::backend::{Appliances, Backend};
use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    Kvm,
    Uml,
}

/// Which appliances are measured.
#[derive(Args, Debug)]
pub struct AppliancesArgs {
    /// Who executes the appliance; where a backend cannot, its figures are '-'.
    #[arg(long, value_enum, value_name = "BACKEND", value_delimiter = ',', default_value = "uml,kvm")]
    backend: Vec<BackendArg>,
}

impl AppliancesArgs {
    /// Those that were asked for, each once.
    pub fn appliances(&self) -> Vec<Appliances> {
        let mut all: Vec<Appliances> = Vec::new();
        for arg in &self.backend {
            let (backend, executed) = match arg {
                BackendArg::Kvm => (Backend::Kvm, Executed::Kvm),
                BackendArg::Uml => (Backend::Uml, Executed::Uml),
            };
            if !all.iter().any(|other| other.backend == backend) {
                let missing = Kernel::find(executed).err().map(|error| blockyard_block::explain(&error));
                all.push(Appliances { backend, missing });
            }
        }
        all
    }
}

/// A table, and below it what is to be known of it.
pub fn with_notes(table: String, notes: impl Iterator<Item = String>) -> String {
    notes.fold(table, |text, note| text + "\n" + &blockyard_block::printable(&note))
}
