//! `blockyard bench layers`: the same job on every layer that a request can go through.
//!
//! [`targets`] has the list of them, [`super::yard`] the data.

mod targets;

use super::disk::{Copying, explain};
use super::yard::{LENGTH_BYTES_MAX, Yard};
use anyhow::{Result, bail};
use blockyard_bench::disk::{AccessOrder, Operations, Workload};
use blockyard_bench::layer_costs::{self, LayersBench};
use blockyard_block::size;
use blockyard_command_line::progress::Line;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::terminal::{self, print};
use blockyard_command_line::time;
use blockyard_command_line::usage_error::UsageError;
use clap::Args;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;
use targets::{BASE, TARGETS};

/// Measure what each layer of the block path costs.
///
/// The same job runs on a null disk, a file, the file under layers, sessions with `blockyard serve`, partitions of it
/// (mediated and copying) and FUSE, for each block size, ROUNDS times over in shuffled order. The data are a file of
/// our own, in the page cache. A way that this machine does not offer is left out, and why is said.
#[derive(Args)]
#[command(args_override_self = true)]
pub struct LayersBenchArgs {
    /// Whole requests anywhere instead of one after the other.
    #[arg(long)]
    random: bool,
    /// Write instead of reading.
    #[arg(long)]
    write: bool,
    /// Bytes in a request, row by row.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size::parse,
          default_value = "4K,8K,32K,128K,512K,2M,8M")]
    sizes: Vec<u64>,
    /// Measurements of each, from 1 to 1000.
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// How long each measurement takes.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = time::seconds)]
    runtime: Duration,
    /// Requests in flight, from 1 to 1024.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,
    /// Copy the data between the memory shared with the disk and memory of our own, as most clients have to.
    #[arg(long, value_name = "WHETHER", default_value = "no")]
    copy: Copying,
    /// Length of the data.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    length: u64,
    /// Directory for the file with the data.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Measure only these; one that this machine does not offer is an error then.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = TARGETS.map(|target| target.name))]
    target: Vec<String>,
    /// Print one JSON object, every measurement in it, instead of tables.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, or a signal came.
pub fn run(args: &LayersBenchArgs) -> Result<()> {
    let bench = args.bench()?;
    let signals = EndSignals::catch()?;
    let yard = Yard::create(&args.directory, args.length, args.write)?;
    let chosen =
        TARGETS.iter().filter(|target| args.target.is_empty() || args.target.iter().any(|name| name == target.name));
    let targets = chosen.map(|target| target.on(&yard)).collect();
    let line = Line::hidden();
    line.show();
    let watch = |done: usize, count: usize| {
        line.set_count(done, count, "");
        if signals.name().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let results = layer_costs::run(&bench, targets, watch).map_err(|error| explain(error, "bench layers"))?;
    line.clear();
    let text = if args.json { terminal::json(&results)? } else { results.text(terminal::output_columns()) };
    print(text.trim_end())?;
    if let Some(name) = signals.name() {
        bail!("stopped by {name}");
    }
    match results.left_out.first() {
        Some(one) if !args.target.is_empty() => bail!("{}: {}", one.target, one.why),
        _ => Ok(()),
    }
}

impl LayersBenchArgs {
    fn bench(&self) -> Result<LayersBench> {
        const BLOCK_BYTES: u64 = 512;
        let whole_blocks = |bytes: u64| bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES);
        if let Some(size) = self.sizes.iter().find(|&&size| !whole_blocks(size) || size > self.length) {
            let sentence = format!("--sizes {size}: it is a multiple of {BLOCK_BYTES} up to --length, {}", self.length);
            return Err(UsageError(sentence).into());
        }
        if !whole_blocks(self.length) || self.length > LENGTH_BYTES_MAX {
            let sentence =
                format!("--length {}: it is a multiple of {BLOCK_BYTES} up to {}", self.length, LENGTH_BYTES_MAX);
            return Err(UsageError(sentence).into());
        }
        let workload = Workload {
            access: if self.random { AccessOrder::Random } else { AccessOrder::Sequential },
            operations: if self.write { Operations::Write } else { Operations::Read },
            length_bytes: Some(self.length),
            batch: self.batch as usize,
            copy: matches!(self.copy, Copying::Yes),
            runtime: Some(self.runtime),
            ..Workload::default()
        };
        Ok(LayersBench { workload, block_sizes: self.sizes.clone(), rounds: self.rounds, base: BASE.to_owned() })
    }
}
