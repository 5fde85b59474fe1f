//! How long it takes until something can be done with an image: one look into it, ours beside guestfish's boot.

use crate::guestfish::{Guestfish, quoted};
use crate::statistics::Samples;
use crate::table::Table;
use crate::{timed_command, work_directory};
use anyhow::{Context, Result};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to measure.
#[derive(Clone, Debug)]
pub struct StartupBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Where the image goes.
    pub directory: PathBuf,
    /// Runs of each, in turn; one more of each is not counted.
    pub runs: u32,
    /// To compare with.
    pub guestfish: Option<Guestfish>,
}

/// One way to start, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What was run.
    pub name: String,
    /// Seconds of each run.
    pub seconds: Samples,
    /// Median of the ratio to our `ls`, run by run.
    pub times_ls: Option<f64>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct StartupResults {
    /// Runs of each.
    pub runs: u32,
    /// One entry a way.
    pub measured: Vec<Measured>,
}

/// Bytes of the image: it makes no difference.
const IMAGE_BYTES: u64 = 256 << 20;

#[derive(Clone, Copy)]
enum Way {
    Ls,
    GuestfishRun,
    GuestfishLs,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Ls => "blockyard image ls IMAGE /",
            Self::GuestfishRun => "guestfish: run",
            Self::GuestfishLs => "guestfish: run, mount, ls",
        }
    }
}

/// Measures everything; `watch` hears before each run what is done, of how much, and says whether to go on.
///
/// # Errors
/// When the image cannot be made or a program fails.
pub fn run(
    bench: &StartupBench,
    mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>,
) -> Result<StartupResults> {
    let directory = work_directory::make_in(&bench.directory)?;
    let image = directory.path().join("disk.img");
    make_image(&bench.blockyard, &image)?;
    let mut ways = vec![Way::Ls];
    if bench.guestfish.is_some() {
        ways.extend([Way::GuestfishRun, Way::GuestfishLs]);
    }
    let mut seconds = vec![Samples::default(); ways.len()];
    let count = ways.len() * (bench.runs as usize + 1);
    // The first of each makes guestfish's appliance, and fills caches.
    'all: for run in 0..=bench.runs as usize {
        for (index, &way) in ways.iter().enumerate() {
            if watch(run * ways.len() + index, count, way.name()).is_break() {
                break 'all;
            }
            let took = once(bench, way, &image)?;
            if run > 0 {
                seconds[index].push(took);
            }
        }
    }
    let ls = seconds[0].clone();
    let measured = ways.iter().zip(seconds).map(|(way, seconds)| {
        let times_ls = seconds.ratio_to(&ls);
        Measured { name: way.name().to_owned(), seconds, times_ls }
    });
    Ok(StartupResults { runs: bench.runs, measured: measured.collect() })
}

/// An image with one partition and ext4 on it.
pub(crate) fn make_image(blockyard: &Path, image: &Path) -> Result<()> {
    let mut create = Command::new(blockyard);
    create.args(["image", "create", "--quiet", "--table", "mbr", "--part", "rest,fs=ext4"]);
    timed_command::run(create.arg(image).arg(IMAGE_BYTES.to_string()), "").context("making an image").map(drop)
}

fn once(bench: &StartupBench, way: Way, image: &Path) -> Result<f64> {
    let quoted = quoted(image);
    let script = match way {
        Way::Ls => {
            let mut ls = Command::new(&bench.blockyard);
            return Ok(timed_command::run(ls.args(["image", "ls"]).arg(image).arg("/"), "")?.seconds);
        }
        Way::GuestfishRun => format!("add {quoted} readonly:true format:raw\nrun\n"),
        Way::GuestfishLs => format!("add {quoted} readonly:true format:raw\nrun\nmount-ro /dev/sda1 /\nls /\n"),
    };
    let guestfish = bench.guestfish.as_ref().context("guestfish is gone")?;
    Ok(guestfish.run(&script)?.whole)
}

impl StartupResults {
    /// A table for people.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["start", "median s", "min", "max", "× ours"]);
        for one in &self.measured {
            let cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
            let ratio = one.times_ls.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"));
            let seconds = &one.seconds;
            let cells = [seconds.median(), seconds.min(), seconds.max()].map(cell);
            table.row([one.name.clone()].into_iter().chain(cells).chain([ratio]).collect());
        }
        table
    }
}
