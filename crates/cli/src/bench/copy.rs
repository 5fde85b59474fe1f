//! `blockyard bench copy`.

use super::comparison::Progress;
use anyhow::{Context, Result};
use blockyard_bench::copy::CopyBench;
use blockyard_block::size;
use blockyard_command_line::terminal;
use clap::Args;
use std::path::PathBuf;

/// Copy a file in every configuration, beside cp, dd and qemu-img.
///
/// Every way to copy runs once uncounted, then all run in turn, RUNS times over; the page cache is warm, nothing is
/// flushed. "one sector a request" asks for one sector at a time; "default" is what `blockyard copy` does by itself.
#[derive(Args)]
pub struct CopyBenchArgs {
    /// Length of the file.
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size::parse)]
    bytes: u64,
    /// Counted runs of each.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Write the results, every run of them, to a JSON file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Directory for the file and its copies; about twice the file's length is needed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Hypervisor: auto, kvm or user.
    #[arg(long, default_value = "auto", value_parser = ["auto", "kvm", "user"])]
    backend: String,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured.
pub fn run(args: &CopyBenchArgs) -> Result<()> {
    let mut progress = Progress::start()?;
    let bench = CopyBench {
        blockyard: std::env::current_exe().context("finding this program's own file")?,
        directory: args.directory.clone(),
        bytes: args.bytes,
        runs: args.runs,
        backend: args.backend.clone(),
    };
    let results = blockyard_bench::copy::run(&bench, |done, count, next| progress.show(done, count, next))?;
    progress.finish(&results.table().render_within(terminal::output_columns()))?;
    if let Some(path) = &args.json {
        let text = terminal::json_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
