//! Many small operations on one image, one boot: the case with most system calls, which the reference measures with its
//! test suite.
//!
//! Both sides run the same script, in guestfish's words.

use crate::guestfish::{Guestfish, STAMP, quoted};
use crate::startup::make_image;
use crate::statistics::Samples;
use crate::table::Table;
use crate::{timed_command, work_directory};
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ApiBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Where the image goes.
    pub directory: PathBuf,
    /// Rounds of [`OPERATIONS`] operations in a script.
    pub rounds: u32,
    /// Runs of each, in turn; one more of each is not counted.
    pub runs: u32,
    /// To compare with.
    pub guestfish: Option<Guestfish>,
}

/// Operations of one round.
pub const OPERATIONS: u32 = 12;

/// A program, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The program.
    pub name: String,
    /// Seconds of each run, boot included.
    pub seconds: Samples,
    /// Seconds of each run from the first operation on.
    pub without_boot: Samples,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct ApiResults {
    /// Operations of each run.
    pub operations: u32,
    /// Ours first.
    pub measured: Vec<Measured>,
}

/// Measures both; `watch` hears before each run what is done, of how much, and says whether to go on.
///
/// # Errors
/// When the image cannot be made or a program fails.
pub fn run(bench: &ApiBench, mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>) -> Result<ApiResults> {
    let directory = work_directory::make_in(&bench.directory)?;
    let image = directory.path().join("disk.img");
    make_image(&bench.blockyard, &image)?;
    let opening = format!("add {} format:raw\nrun\nmount /dev/sda1 /\n", quoted(&image));
    let script = format!("{opening}{STAMP}{}", operations(bench.rounds));
    let nothing = || Measured { name: String::new(), seconds: Samples::default(), without_boot: Samples::default() };
    let mut measured = vec![Measured { name: "blockyard image script".to_owned(), ..nothing() }];
    if bench.guestfish.is_some() {
        measured.push(Measured { name: "guestfish".to_owned(), ..nothing() });
    }
    let count = measured.len() * (bench.runs as usize + 1);
    'all: for run in 0..=bench.runs as usize {
        for (index, one) in measured.iter_mut().enumerate() {
            if watch(run * count / (bench.runs as usize + 1) + index, count, &one.name).is_break() {
                break 'all;
            }
            let took = match (index, &bench.guestfish) {
                (1, Some(guestfish)) => guestfish.run(&script)?,
                _ => {
                    let mut ours = Command::new(&bench.blockyard);
                    crate::guestfish::times(timed_command::run(ours.args(["image", "script", "-"]), &script)?)?
                }
            };
            if run > 0 {
                one.seconds.push(took.whole);
                one.without_boot.push(took.from_stamp);
            }
        }
    }
    Ok(ApiResults { operations: bench.rounds * OPERATIONS, measured })
}

/// Every round makes a directory with a file, looks at both, changes them and removes them.
fn operations(rounds: u32) -> String {
    let mut script = String::new();
    for round in 0..rounds {
        // Writing to a string cannot fail.
        let _ = write!(
            script,
            "mkdir /d{round}\n\
             touch /d{round}/one\n\
             write /d{round}/two \"some words\"\n\
             ls /d{round}\n\
             cat /d{round}/two\n\
             chmod 0600 /d{round}/two\n\
             ln-s two /d{round}/three\n\
             mv /d{round}/one /d{round}/four\n\
             stat /d{round}/four\n\
             rm /d{round}/four\n\
             ll /d{round}\n\
             rm-rf /d{round}\n"
        );
    }
    script
}

impl ApiResults {
    /// A table for people.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["operations", "median s", "without boot", "ms each", "× ours"]);
        let ours = self.measured.first();
        for one in &self.measured {
            let cell = |value: Option<f64>, digits: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let each = one.without_boot.median().map(|seconds| seconds * 1e3 / f64::from(self.operations));
            table.row(vec![
                format!("{} in {}", self.operations, one.name),
                cell(one.seconds.median(), 2),
                cell(one.without_boot.median(), 2),
                cell(each, 2),
                cell(ours.and_then(|ours| one.seconds.ratio_to(&ours.seconds)), 1),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_as_many_operations_as_is_said() {
        assert_eq!(operations(3).lines().count(), 3 * OPERATIONS as usize);
    }
}
