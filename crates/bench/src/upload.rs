//! Data into disk images: every way the reference has, ours beside guestfish.
//!
//! A case is an image of some format with some file system, and a way to get data into a file on it (`case`). Each run
//! starts with a fresh image, and both sides run the same script; ours on each backend. Ours is timed from start to
//! end: boot, mount, data, unmount and flush; of guestfish, the same and without its boot.

mod case;

use crate::backend::{Appliances, Backend};
use crate::guestfish::Guestfish;
use crate::statistics::Samples;
use crate::table::Table;
use crate::{random_file, timed_command, work_directory};
use anyhow::{Context, Result};
use blockyard_block::programs;
use case::{Case, Method, Yard};
use serde::Serialize;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct UploadBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Where images and data go.
    pub directory: PathBuf,
    /// Bytes of data: whole sectors.
    pub bytes: u64,
    /// Upload zeros, as the reference did, instead of random data.
    pub zeros: bool,
    /// Runs of each.
    pub runs: u32,
    /// How many of them count: the last ones.
    pub counted: u32,
    /// A few of the cases instead of all.
    pub quick: bool,
    /// Only cases whose name has this in it.
    pub filter: String,
    /// Ours, of each backend.
    pub appliances: Vec<Appliances>,
    /// To compare with.
    pub guestfish: Option<Guestfish>,
}

/// One case on one backend, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Format of the image, way, file system.
    pub name: String,
    /// Who executed our appliance; of the host's own copy, nobody.
    pub backend: Option<Backend>,
    /// Our seconds, of the runs that count; none where that backend has no appliance here.
    pub seconds: Samples,
    /// guestfish's, from start to end.
    pub guestfish_seconds: Option<Samples>,
    /// guestfish's without its boot, as the reference measured.
    pub guestfish_upload_seconds: Option<Samples>,
    /// Mean of guestfish's times by mean of ours.
    pub times_faster: Option<f64>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct UploadResults {
    /// Bytes of data.
    pub bytes: u64,
    /// Runs of each.
    pub runs: u32,
    /// How many of them count.
    pub counted: u32,
    /// One entry a case and backend.
    pub measured: Vec<Measured>,
    /// Ours that were to be measured.
    pub appliances: Vec<Appliances>,
}

/// Measures everything; `watch` hears before each run what is done, of how much, and says whether to go on.
///
/// # Errors
/// When a file cannot be made or a program fails.
pub fn run(bench: &UploadBench, mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>) -> Result<UploadResults> {
    let directory = work_directory::make_in(&bench.directory)?;
    let yard = Yard::new(&bench.blockyard, directory.path(), bench.bytes);
    write_data(bench, &yard)?;
    let cases = case::matrix(bench.quick).into_iter().filter(|case| case.name().contains(&bench.filter));
    let cases: Vec<_> = cases.collect();
    let count = (cases.len() + 1) * bench.runs as usize;
    let mut results = UploadResults::new(bench);
    let mut done = 0;
    let names = std::iter::once("cp and sync, on the host".to_owned()).chain(cases.iter().map(|case| case.name()));
    for (index, name) in names.enumerate() {
        let case = index.checked_sub(1).map(|index| cases[index]);
        let mut rows = rows(bench, &name, case.is_some());
        for run in 0..bench.runs {
            if watch(done, count, &name).is_break() {
                results.measured.append(&mut rows);
                return Ok(results);
            }
            let took = match case {
                None => Took { ours: vec![Some(copy_on_the_host(&yard)?)], guestfish: None },
                Some(case) => measure(bench, &yard, case)?,
            };
            if run + bench.counted >= bench.runs {
                rows.iter_mut().zip(&took.ours).for_each(|(row, ours)| row.add(*ours, took.guestfish));
            }
            done += 1;
        }
        results.measured.append(&mut rows);
    }
    Ok(results)
}

/// One for each backend, of what appliances do.
fn rows(bench: &UploadBench, name: &str, by_appliances: bool) -> Vec<Measured> {
    match by_appliances {
        true => bench.appliances.iter().map(|ours| Measured::new(name, Some(ours.backend))).collect(),
        false => vec![Measured::new(name, None)],
    }
}

/// What all took in one run.
struct Took {
    /// By backends; nothing where there is no appliance.
    ours: Vec<Option<f64>>,
    /// The whole, and without the boot.
    guestfish: Option<(f64, f64)>,
}

impl Measured {
    fn new(name: &str, backend: Option<Backend>) -> Self {
        let empty = None;
        Self {
            name: name.to_owned(),
            backend,
            seconds: Samples::default(),
            guestfish_seconds: empty.clone(),
            guestfish_upload_seconds: empty,
            times_faster: None,
        }
    }

    fn add(&mut self, ours: Option<f64>, guestfish: Option<(f64, f64)>) {
        if let Some(ours) = ours {
            self.seconds.push(ours);
        }
        if let Some((whole, upload)) = guestfish {
            self.guestfish_seconds.get_or_insert_default().push(whole);
            self.guestfish_upload_seconds.get_or_insert_default().push(upload);
        }
        self.times_faster =
            self.guestfish_seconds.as_ref().and_then(|theirs| Some(theirs.mean()? / self.seconds.mean()?));
    }
}

fn write_data(bench: &UploadBench, yard: &Yard) -> Result<()> {
    let writing = || format!("writing {}", yard.data.display());
    if bench.zeros {
        // With blocks of its own: holes would not be uploaded.
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), bench.bytes), &mut File::create(&yard.data)?)
            .with_context(writing)?;
    } else {
        random_file::write(&yard.data, 0, bench.bytes).with_context(writing)?;
    }
    yard.write_archive().with_context(|| format!("writing {}", yard.archive.display()))
}

fn copy_on_the_host(yard: &Yard) -> Result<f64> {
    let copy = yard.directory.join("copy");
    let start = Instant::now();
    timed_command::run(programs::command("cp").arg("--reflink=never").arg(&yard.data).arg(&copy), "")?;
    sync(&copy)?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&copy).context("removing the copy")?;
    Ok(seconds)
}

fn measure(bench: &UploadBench, yard: &Yard, case: Case) -> Result<Took> {
    let ours = |appliances: &Appliances| match appliances.missing {
        None => measure_ours(yard, case, appliances).map(Some),
        Some(_) => Ok(None),
    };
    let ours = bench.appliances.iter().map(ours).collect::<Result<_>>()?;
    let Some(guestfish) = &bench.guestfish else { return Ok(Took { ours, guestfish: None }) };
    yard.make_image(case)?;
    let took = guestfish.run(&yard.script(case)).with_context(|| case.name())?;
    let start = Instant::now();
    sync(&yard.image(case))?;
    let synced = start.elapsed().as_secs_f64();
    Ok(Took { ours, guestfish: Some((took.whole + synced, took.from_stamp + synced)) })
}

fn measure_ours(yard: &Yard, case: Case, appliances: &Appliances) -> Result<f64> {
    yard.make_image(case)?;
    let (mut command, script) = match case.method {
        Method::UploadNoWrite => (yard.read_in(case), String::new()),
        _ => (yard.our_shell(), yard.script(case)),
    };
    appliances.choose(&mut command);
    let start = Instant::now();
    timed_command::run(&mut command, &script)?;
    sync(&yard.image(case))?;
    Ok(start.elapsed().as_secs_f64())
}

/// What was written is on stable storage: for both sides alike, whatever they did themselves.
fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|file| file.sync_all()).with_context(|| format!("flushing {}", path.display()))
}

impl UploadResults {
    fn new(bench: &UploadBench) -> Self {
        let UploadBench { bytes, runs, counted, .. } = *bench;
        Self { bytes, runs, counted, measured: Vec::new(), appliances: bench.appliances.clone() }
    }

    /// What people are told beside the table.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.appliances.iter().filter_map(Appliances::note)
    }

    /// A table for people.
    pub fn table(&self) -> Table {
        let mut table =
            Table::new(&["upload", "on", "s", "MB/s", "× cp", "guestfish s", "without boot", "times faster"]);
        let copy = self.measured.first().and_then(|copy| copy.seconds.mean());
        let cell = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        for one in &self.measured {
            let mean = one.seconds.mean();
            let of = |samples: &Option<Samples>| samples.as_ref().and_then(Samples::mean);
            table.row(vec![
                one.name.clone(),
                one.backend.map_or("-", Backend::name).to_owned(),
                cell(mean, 2),
                cell(mean.map(|seconds| self.bytes as f64 / 1e6 / seconds), 0),
                cell(mean.zip(copy).map(|(seconds, copy)| seconds / copy), 2),
                cell(of(&one.guestfish_seconds), 1),
                cell(of(&one.guestfish_upload_seconds), 1),
                cell(one.times_faster, 1),
            ]);
        }
        table
    }
}
