//! Programs that were never changed, on disks by `blockyard attach` and on a file of the host's: dd and fio.
//!
//! dd says how long it took; fio, how many requests it made. All places are measured in turn, round by round. What
//! they have lies in the page cache: a file of the host's; and an image, which is all of the disks (`yard.rs`).
//! Programs and options are in `task.rs`, what comes of them in `results.rs`.

mod place;
mod results;
mod task;
mod yard;

use anyhow::{Context, Result};
use blockyard_block::programs;
pub use place::Place;
pub use results::{Figures, Measured, PosixResults};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;
pub use task::Program;
use yard::Yard;

/// What [`PosixBench::bytes`] is a multiple of.
pub const LENGTH_MULTIPLE_BYTES: u64 = task::LENGTH_MULTIPLE_BYTES;

/// What to measure.
#[derive(Clone, Debug)]
pub struct PosixBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Where the files go.
    pub directory: PathBuf,
    /// Bytes of the data.
    pub bytes: u64,
    /// Where programs are run.
    pub over: Vec<Place>,
    /// Times each is run.
    pub rounds: u32,
    /// How long fio goes on.
    pub runtime: Duration,
    /// Only what has this in its name.
    pub filter: String,
}

/// Measures everything; `watch` hears, again and again, what is done, of how much, and what is next, and says whether
/// to go on.
///
/// # Errors
/// When a file cannot be made, a server does not serve, or a program fails.
pub fn run(bench: &PosixBench, mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>) -> Result<PosixResults> {
    let yard = Yard::create(&bench.blockyard, &bench.directory, bench.bytes, bench.runtime)?;
    let mut results = PosixResults {
        bytes: bench.bytes,
        rounds: bench.rounds,
        runtime_seconds: bench.runtime.as_secs_f64(),
        places: Place::ALL.into_iter().filter(|place| bench.over.contains(place)).collect(),
        measured: Vec::new(),
        without_fio: programs::find("fio").is_none(),
        without_direct: !yard.has_direct(),
    };
    let mut tasks = task::all();
    tasks.retain(|task| {
        let is_wanted = format!("{} {}", task.program().name(), task.name()).contains(&bench.filter);
        let can_run = match task.program() {
            Program::Dd => true,
            Program::Fio => !results.without_fio,
        };
        let has_place = results.places.iter().any(|&place| task.may_be_at(place));
        is_wanted && has_place && can_run && !(task.is_direct() && results.without_direct)
    });
    let mut measured: Vec<_> = tasks.iter().map(|task| Measured::new(task, &results.places)).collect();
    let count = measured.iter().map(|one| one.figures.len() * bench.rounds as usize).sum();
    let mut done = 0;
    'all: for (task, measured) in tasks.iter().zip(&mut measured) {
        yard.warm()?;
        let places = measured.figures.len();
        for round in 0..bench.rounds as usize {
            for step in 0..places {
                // Each is the first now and then: what came before leaves the machine different.
                let figures = &mut measured.figures[(round + step) % places];
                let what = format!("{} {}, {}", measured.program.name(), measured.name, figures.place.name());
                let mut look = || watch(done, count, &what);
                if look().is_break() {
                    break 'all;
                }
                let Some(run) = yard.run(task, figures.place, &mut look).with_context(|| what.clone())? else {
                    break 'all;
                };
                figures.add(&run);
                done += 1;
            }
        }
    }
    measured.iter_mut().for_each(Measured::finish);
    let is_measured = |one: &Measured| one.figures.iter().any(|figures| figures.rates.median().is_some());
    results.measured = measured.into_iter().filter(is_measured).collect();
    Ok(results)
}
