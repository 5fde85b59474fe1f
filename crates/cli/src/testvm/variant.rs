//! What a machine's side of a test can be, and all combinations of that.

use crate::bench::comparison::this_program;
use crate::run::args::{BusArg, EngineArg};
use anyhow::{Context, Result};
use blockyard_bench::serve_process::ServeProcess;
use blockyard_block::private_directory;
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_command_line::usage_error::UsageError;
use blockyard_run::configuration::{DiskBus, EngineName, GuestDisk};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::ffi::OsStr;
use tempfile::TempDir;

/// How the guest's disks are had. What is said several times makes machines to compare.
#[derive(Args)]
pub struct VariantArgs {
    /// What the guest sees the disks as; each of several is tried.
    #[arg(long, value_enum, value_name = "BUS", value_delimiter = ',', default_value = "virtio")]
    bus: Vec<BusArg>,
    /// How the host reads and writes files that do not say engine=; each of several is tried [default: uring where it
    /// is to be had].
    #[arg(long, value_enum, value_name = "ENGINE", value_delimiter = ',')]
    engine: Vec<EngineArg>,
    /// Whether the host does so past its page cache; each of several is tried.
    #[arg(
        long,
        value_enum,
        value_name = "yes|no",
        value_delimiter = ',',
        hide_possible_values = true,
        default_value = "no"
    )]
    direct: Vec<Direct>,
    /// Through which door of `blockyard serve --partition` the machine has its disks, which are partitions of files
    /// then: opened by itself (none), or a session that is mediated or copying; each of several is tried.
    #[arg(long, value_enum, value_name = "DOOR", value_delimiter = ',', default_value = "none")]
    session: Vec<Door>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direct {
    No,
    Yes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Door {
    None,
    Mediated,
    Copying,
}

/// One of the combinations. Its names are an interface: programs read them in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Variant {
    bus: DiskBus,
    engine: Option<EngineName>,
    direct: bool,
    session: Door,
}

/// The disks of a variant, for as long as a machine has them.
pub struct VariantDisks {
    /// What they are called.
    pub disks: Vec<GuestDisk>,
    _servers: Vec<(ServeProcess, TempDir)>,
}

impl VariantArgs {
    /// All combinations, each once.
    pub fn variants(&self) -> Vec<Variant> {
        let engines: Vec<_> = match &self.engine[..] {
            [] => vec![None],
            engines => engines.iter().map(|&engine| Some(engine.into())).collect(),
        };
        let mut variants = Vec::new();
        for &session in &self.session {
            for &bus in &self.bus {
                for &engine in &engines {
                    for &direct in &self.direct {
                        let variant = Variant { bus: bus.into(), engine, direct: direct == Direct::Yes, session };
                        if !variants.contains(&variant) {
                            variants.push(variant);
                        }
                    }
                }
            }
        }
        variants
    }

    /// A disk on each of the buses.
    pub fn sample(&self) -> Vec<GuestDisk> {
        let disk = |bus: &BusArg| GuestDisk { name: DiskSpecification::of_nothing(1 << 20), bus: (*bus).into() };
        self.bus.iter().map(disk).collect()
    }
}

/// What is called how, of those words in which these variants differ: `ahci sync`.
pub fn labels(variants: &[Variant]) -> Vec<String> {
    let words: Vec<_> = variants.iter().map(Variant::words).collect();
    let differ = |at: usize| words.iter().any(|other| other[at] != words[0][at]);
    let label = |words: &[&'static str; 4]| {
        let distinct = words.iter().enumerate().filter(|(at, _)| differ(*at)).map(|(_, word)| *word);
        distinct.collect::<Vec<_>>().join(" ")
    };
    words.iter().map(label).collect()
}

impl Variant {
    /// How the host reads and writes files that do not say it themselves.
    pub fn engine(&self) -> Option<EngineName> {
        self.engine
    }

    fn words(&self) -> [&'static str; 4] {
        let bus = match self.bus {
            DiskBus::Virtio => "virtio",
            DiskBus::VirtioMmio => "virtio-mmio",
            DiskBus::Ahci => "ahci",
        };
        let engine = match self.engine {
            None => "auto",
            Some(EngineName::Sync) => "sync",
            Some(EngineName::Threads) => "threads",
            Some(EngineName::Uring) => "uring",
        };
        let door = match self.session {
            Door::None => "file",
            Door::Mediated => "mediated",
            Door::Copying => "copying",
        };
        [door, bus, engine, if self.direct { "direct" } else { "cached" }]
    }

    /// These disks as this variant has them, with servers started for them if it takes any.
    ///
    /// # Errors
    /// [`UsageError`] when a disk cannot be had so; when it cannot be served.
    pub fn disks(&self, named: &[DiskSpecification]) -> Result<VariantDisks> {
        let (mut disks, mut servers) = (Vec::new(), Vec::new());
        for name in named {
            let name = match self.direct && name.is_buffered() {
                true => name.clone().with_direct()?,
                false => name.clone(),
            };
            let name = match self.session {
                Door::None => name,
                door => {
                    let (name, server) = self.served(name, door == Door::Copying)?;
                    servers.push(server);
                    name
                }
            };
            disks.push(GuestDisk { name, bus: self.bus });
        }
        Ok(VariantDisks { disks, _servers: servers })
    }

    /// The session of a partition.
    fn served(&self, name: DiskSpecification, copying: bool) -> Result<(DiskSpecification, (ServeProcess, TempDir))> {
        let Some(number) = name.partition() else { return Err(no_partition(&name).into()) };
        let rights = if name.is_read_only() { "" } else { ",rw" };
        let whole = name.without_partition();
        let whole = self.engine.map_or(whole.clone(), |engine| whole.or_engine(engine.into()));
        // A disk's name is text, and a socket's is short.
        let directory = private_directory(|place| place.to_str().is_some()).context("making a directory")?;
        let socket = directory.path().join("disk");
        let export = format!("{number}={}{rights}", socket.display());
        let mut arguments = vec![OsStr::new("--partition"), OsStr::new(&export)];
        arguments.extend(copying.then_some(OsStr::new("--copying")));
        let log = directory.path().join("log");
        let server =
            ServeProcess::start(&this_program()?, whole.to_string().as_ref(), &arguments, &log, || socket.exists())?;
        Ok((DiskSpecification::of_session(&socket), (server, directory)))
    }

    /// Refuses disks that this variant cannot have.
    ///
    /// # Errors
    /// [`UsageError`], with what fits.
    pub fn check(&self, named: &[DiskSpecification]) -> Result<(), UsageError> {
        let unserved = named.iter().find(|name| name.partition().is_none()).filter(|_| self.session != Door::None);
        let not_a_file = named.iter().find(|name| name.kind() != Kind::File).filter(|_| self.direct);
        match (unserved, not_a_file) {
            (Some(name), _) => Err(no_partition(name)),
            (None, Some(name)) => Err(UsageError(format!("--direct: {name} is in no file: leave --direct out"))),
            (None, None) => Ok(()),
        }
    }
}

fn no_partition(name: &DiskSpecification) -> UsageError {
    UsageError(format!(
        "--session: {name} is no partition, and only those are served through a door: name one (FILE,partition=1), or leave --disk out"
    ))
}
