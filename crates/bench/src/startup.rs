//! How long it takes until something can be done with an image: one look into it, ours beside guestfish's boot.

use crate::backend::Appliances;
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
    /// Ours, of each backend.
    pub appliances: Vec<Appliances>,
    /// To compare with.
    pub guestfish: Option<Guestfish>,
}

/// One way to start, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What was run.
    pub name: String,
    /// Seconds of each run; none where that backend has no appliance here.
    pub seconds: Samples,
    /// Median of the ratio to our first `ls`, run by run.
    pub times_ls: Option<f64>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct StartupResults {
    /// Runs of each.
    pub runs: u32,
    /// One entry a way.
    pub measured: Vec<Measured>,
    /// Ours that were to be measured.
    pub appliances: Vec<Appliances>,
}

/// Bytes of the image: it makes no difference.
const IMAGE_BYTES: u64 = 256 << 20;

#[derive(Clone, Copy)]
enum Way<'a> {
    Ls(&'a Appliances),
    GuestfishRun,
    GuestfishLs,
}

impl Way<'_> {
    fn name(self) -> String {
        match self {
            Self::Ls(appliances) => format!("blockyard image ls IMAGE /, {}", appliances.backend.name()),
            Self::GuestfishRun => "guestfish: run".to_owned(),
            Self::GuestfishLs => "guestfish: run, mount, ls".to_owned(),
        }
    }

    fn is_possible(self) -> bool {
        !matches!(self, Self::Ls(Appliances { missing: Some(_), .. }))
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
    let mut ways: Vec<_> = bench.appliances.iter().map(Way::Ls).collect();
    if bench.guestfish.is_some() {
        ways.extend([Way::GuestfishRun, Way::GuestfishLs]);
    }
    let mut seconds = vec![Samples::default(); ways.len()];
    let count = ways.len() * (bench.runs as usize + 1);
    // The first of each makes guestfish's appliance, and fills caches.
    'all: for run in 0..=bench.runs as usize {
        for (index, &way) in ways.iter().enumerate().filter(|(_, way)| way.is_possible()) {
            if watch(run * ways.len() + index, count, &way.name()).is_break() {
                break 'all;
            }
            let took = once(bench, way, &image)?;
            if run > 0 {
                seconds[index].push(took);
            }
        }
    }
    let ours = bench.appliances.iter().zip(&seconds).find(|(appliances, _)| appliances.missing.is_none());
    let ls = ours.map(|(_, seconds)| seconds.clone()).unwrap_or_default();
    let measured = ways.iter().zip(seconds).map(|(way, seconds)| {
        let times_ls = seconds.ratio_to(&ls);
        Measured { name: way.name(), seconds, times_ls }
    });
    Ok(StartupResults { runs: bench.runs, measured: measured.collect(), appliances: bench.appliances.clone() })
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
        Way::Ls(appliances) => {
            let mut ls = Command::new(&bench.blockyard);
            appliances.choose(ls.args(["image", "ls"]).arg(image).arg("/"));
            return Ok(timed_command::run(&mut ls, "")?.seconds);
        }
        Way::GuestfishRun => format!("add {quoted} readonly:true format:raw\nrun\n"),
        Way::GuestfishLs => format!("add {quoted} readonly:true format:raw\nrun\nmount-ro /dev/sda1 /\nls /\n"),
    };
    let guestfish = bench.guestfish.as_ref().context("guestfish is gone")?;
    Ok(guestfish.run(&script)?.whole)
}

impl StartupResults {
    /// What people are told beside the table.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.appliances.iter().filter_map(Appliances::note)
    }

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
