//! What each layer costs: the same job on several disks that lead to the same data.
//!
//! Every round opens and measures each target once with each block size; the order is shuffled, with a block size's
//! targets next to each other, so that whatever the machine does meanwhile hits all of them alike. Medians are shown,
//! and ratios are taken round by round. The layout of the table is that of the system this project follows.

use crate::disk::{self, Report, Start, Workload};
use crate::random::Random;
use crate::statistics::Samples;
use crate::table::Table;
use anyhow::{Context, Result, bail};
use blockyard_block::Disk;
use serde::Serialize;
use std::any::Any;
use std::fmt::Write;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// A disk to measure, and where the data are on it.
pub struct OpenTarget {
    /// The disk. Dropped before what keeps it alive.
    pub disk: Arc<dyn Disk>,
    /// Where the region starts on it.
    pub start_bytes: u64,
    /// What must live as long as the disk: a server's process, say.
    pub keeper: Box<dyn Any>,
}

/// A way to the data.
pub struct Target<'a> {
    /// What heads its column.
    pub name: &'a str,
    /// Opens it, anew for every measurement.
    pub open: Box<dyn Fn() -> Result<OpenTarget> + 'a>,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct LayersBench {
    /// The job; each measurement has its own `size_bytes` and `start`.
    pub workload: Workload,
    /// Bytes in a request, row by row.
    pub block_sizes: Vec<u64>,
    /// How often each is measured.
    pub rounds: u32,
    /// The target that the others are compared with.
    pub base: String,
}

/// Columns of a line where nobody says how many there are.
const COLUMNS: usize = 100;

/// A target with a block size.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The target's name.
    pub target: String,
    /// Bytes in a request.
    pub block_bytes: u64,
    /// Of each round.
    pub mib_per_s: Samples,
    /// Of each round.
    pub iops: Samples,
    /// Of each round: the median latency, in nanoseconds.
    pub latency_p50_ns: Samples,
    /// Of each round: the mean idle share of all CPUs.
    pub cpu_idle_percent: Samples,
    /// Of each round: allocations by the thread that makes the requests; missing where nobody counts.
    pub allocations: Samples,
}

/// A target that could not be measured.
#[derive(Clone, Debug, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub target: String,
    /// Why not.
    pub why: String,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct LayersResults {
    /// Names of the targets, in the order of the columns.
    pub targets: Vec<String>,
    /// The target that the others are compared with.
    pub base: String,
    /// Bytes in a request, row by row.
    pub block_sizes: Vec<u64>,
    /// Row by row.
    pub cells: Vec<Cell>,
    /// Targets that could not be opened.
    pub left_out: Vec<LeftOut>,
    /// Whether somebody stopped it before its end.
    pub interrupted: bool,
}

/// Measures everything. `watch` is called ten times a second with the measurements done and to do, and may break it
/// off.
///
/// # Errors
/// When no target can be opened, the job does not suit a disk, or a disk fails.
pub fn run(
    bench: &LayersBench,
    targets: Vec<Target<'_>>,
    mut watch: impl FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<LayersResults> {
    let (targets, left_out) = that_open(targets);
    if targets.is_empty() {
        let reasons: Vec<_> = left_out.iter().map(|one| format!("{}: {}", one.target, one.why)).collect();
        bail!("there is nothing to measure: {}", reasons.join("; "));
    }
    let cells = |&block_bytes| targets.iter().map(move |target| Cell::new(target.name, block_bytes));
    let mut results = LayersResults {
        targets: targets.iter().map(|target| target.name.to_owned()).collect(),
        base: bench.base.clone(),
        block_sizes: bench.block_sizes.clone(),
        cells: bench.block_sizes.iter().flat_map(cells).collect(),
        left_out,
        interrupted: false,
    };
    let mut random = Random::new(bench.workload.seed, 0);
    let (mut done, count) = (0, bench.rounds as usize * results.cells.len());
    for _ in 0..bench.rounds {
        for row in shuffled(bench.block_sizes.len(), &mut random) {
            for column in shuffled(targets.len(), &mut random) {
                let cell = &mut results.cells[row * targets.len() + column];
                let report = measure(bench, &targets[column], cell.block_bytes, || watch(done, count))
                    .with_context(|| format!("{} with requests of {} bytes", targets[column].name, cell.block_bytes))?;
                if report.interrupted {
                    results.interrupted = true;
                    return Ok(results);
                }
                cell.add(&report);
                done += 1;
            }
        }
    }
    Ok(results)
}

/// Tries each target once.
fn that_open(targets: Vec<Target<'_>>) -> (Vec<Target<'_>>, Vec<LeftOut>) {
    let mut left_out = Vec::new();
    let mut opens = |target: &Target<'_>| match (target.open)() {
        Ok(_) => true,
        Err(error) => {
            left_out.push(LeftOut { target: target.name.to_owned(), why: format!("{error:#}") });
            false
        }
    };
    let targets = targets.into_iter().filter(&mut opens).collect();
    (targets, left_out)
}

/// The numbers below `count`, in any order (Fisher and Yates).
fn shuffled(count: usize, random: &mut Random) -> Vec<usize> {
    let mut numbers: Vec<_> = (0..count).collect();
    for last in (1..count).rev() {
        numbers.swap(last, random.below(last as u64 + 1) as usize);
    }
    numbers
}

fn measure(
    bench: &LayersBench,
    target: &Target<'_>,
    block_bytes: u64,
    mut watch: impl FnMut() -> ControlFlow<()>,
) -> Result<Report> {
    let open = (target.open)()?;
    let workload =
        Workload { size_bytes: Some(block_bytes), start: Start::FromStart(open.start_bytes), ..bench.workload.clone() };
    disk::run(open.disk.as_ref(), &workload, |_| watch())
}

impl Cell {
    fn new(target: &str, block_bytes: u64) -> Self {
        Self {
            target: target.to_owned(),
            block_bytes,
            mib_per_s: Samples::default(),
            iops: Samples::default(),
            latency_p50_ns: Samples::default(),
            cpu_idle_percent: Samples::default(),
            allocations: Samples::default(),
        }
    }

    fn add(&mut self, report: &Report) {
        self.mib_per_s.push(report.mib_per_s);
        self.iops.push(report.iops);
        self.latency_p50_ns.push(report.latency_ns.p50 as f64);
        let idle: Vec<_> = report.cpu_idle_percent.iter().flatten().collect();
        if !idle.is_empty() {
            self.cpu_idle_percent.push(idle.iter().copied().sum::<f64>() / idle.len() as f64);
        }
        if let Some(allocations) = report.allocations {
            self.allocations.push(allocations as f64);
        }
    }
}

impl LayersResults {
    fn rows(&self) -> impl Iterator<Item = (u64, &[Cell])> {
        self.block_sizes.iter().copied().zip(self.cells.chunks(self.targets.len()))
    }

    /// Throughput and idle time in the reference's layout, and what a request costs beside the base target, where that
    /// is there; no wider than so many columns.
    pub fn text(&self, columns: Option<usize>) -> String {
        let mut text = self.legend(columns.unwrap_or(COLUMNS));
        text.push_str("\n\nBS: bytes in a request\nBW: MiB/s\nidle: mean of all CPUs\n\n");
        let targets_a_band = columns.map_or(self.targets.len(), |columns| columns.saturating_sub(4) / 19).max(1);
        let starts = (0..self.targets.len()).step_by(targets_a_band);
        let bands = starts.map(|start| self.throughput(start..(start + targets_a_band).min(self.targets.len())));
        text.push_str(&bands.collect::<Vec<_>>().join("\n"));
        if let Some(base) = self.targets.iter().position(|name| *name == self.base) {
            let _ = write!(text, "\nBeside {} {}:\nthroughput, and µs more a request\n\n", mark(base), self.base);
            text.push_str(&(self.cost(base).render_within(columns) + "\n"));
        }
        for LeftOut { target, why } in &self.left_out {
            let _ = write!(text, "\nLeft out: {target}: {why}");
        }
        text
    }

    /// Which mark stands for which target.
    fn legend(&self, columns: usize) -> String {
        let mut lines = vec![String::new()];
        for (index, name) in self.targets.iter().enumerate() {
            let entry = format!("{} {name}", mark(index));
            match lines.last_mut() {
                Some(line) if line.is_empty() => *line = entry,
                Some(line) if line.chars().count() + 2 + entry.chars().count() <= columns => {
                    *line += &format!("  {entry}")
                }
                _ => lines.push(entry),
            }
        }
        lines.join("\n")
    }

    fn throughput(&self, targets: Range<usize>) -> String {
        let mut text = format!("{:>4}", "");
        targets.clone().for_each(|index| text.push_str(&format!("{:>11}        ", mark(index))));
        text = format!("{}\n{:<4}", text.trim_end(), "BS");
        targets.clone().for_each(|_| text.push_str(&format!("{:>9}  {:<8}", "BW", "(idle %)")));
        for (block_bytes, cells) in self.rows() {
            text = format!("{}\n{:>4}", text.trim_end(), short(block_bytes));
            for cell in &cells[targets.clone()] {
                let figure = |samples: &Samples, digits| {
                    samples.median().map_or_else(|| "-".to_owned(), |median| format!("{median:.digits$}"))
                };
                let idle = format!("({})", figure(&cell.cpu_idle_percent, 2));
                text.push_str(&format!("{:>9}  {idle:<8}", figure(&cell.mib_per_s, 1)));
            }
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    }

    fn cost(&self, base: usize) -> Table {
        let others = || (0..self.targets.len()).filter(move |&index| index != base);
        let headings: Vec<_> = others().map(|index| format!("{} {}", mark(index), self.targets[index])).collect();
        let headings: Vec<_> = std::iter::once("BS").chain(headings.iter().map(String::as_str)).collect();
        let mut table = Table::new(&headings);
        for (block_bytes, cells) in self.rows() {
            let cost = |index: usize| {
                let ratio = cells[index].mib_per_s.ratio_to(&cells[base].mib_per_s)?;
                let (ours, theirs) = (cells[index].iops.median()?, cells[base].iops.median()?);
                Some(format!("×{ratio:.2} ({:+.2})", 1e6 / ours - 1e6 / theirs))
            };
            let cells = others().map(|index| cost(index).unwrap_or_else(|| "-".to_owned()));
            table.row(std::iter::once(short(block_bytes)).chain(cells).collect());
        }
        table
    }
}

/// ①, ②, … as the reference numbers its columns.
fn mark(index: usize) -> char {
    u32::try_from(index)
        .ok()
        .filter(|&index| index < 20)
        .and_then(|index| char::from_u32(0x2460 + index))
        .unwrap_or('*')
}

/// A block size as the reference writes it.
fn short(bytes: u64) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_block::NullDisk;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn bench(block_sizes: &[u64], rounds: u32) -> LayersBench {
        let workload = Workload { length_bytes: Some(1 << 20), ..Workload::default() };
        LayersBench { workload, block_sizes: block_sizes.to_vec(), rounds, base: "plain".into() }
    }

    fn null(start_bytes: u64) -> Result<OpenTarget> {
        let disk = Arc::new(NullDisk::new((1 << 20) + start_bytes, 512)?);
        Ok(OpenTarget { disk, start_bytes, keeper: Box::new(()) })
    }

    fn target<'a>(name: &'a str, open: impl Fn() -> Result<OpenTarget> + 'a) -> Target<'a> {
        Target { name, open: Box::new(open) }
    }

    #[test]
    fn every_target_is_measured_in_every_round_with_every_size() {
        let opened = RefCell::new(Vec::new());
        let targets = ["plain", "moved"].map(|name| {
            let opened = &opened;
            target(name, move || {
                opened.borrow_mut().push(name);
                null(if name == "moved" { 4096 } else { 0 })
            })
        });
        let targets = targets.into_iter().chain([target("absent", || bail!("no such thing"))]).collect();
        let results = run(&bench(&[4096, 65536], 3), targets, |_, _| ControlFlow::Continue(())).unwrap();
        // Once to see whether it opens, then twice in each of three rounds.
        assert_eq!(opened.borrow().iter().filter(|&&name| name == "moved").count(), 7);
        assert_eq!(results.cells.len(), 4);
        assert!(results.cells.iter().all(|cell| cell.mib_per_s.ratio_to(&cell.mib_per_s) == Some(1.0)));
        let text = results.text(None);
        for words in ["① plain  ② moved", "BS", "BW  (idle %)", "\n  4K ", "\n 64K ", "Left out: absent: no such thing"]
        {
            assert!(text.contains(words), "no {words:?} in\n{text}");
        }
        for columns in [40, 60, 80] {
            let text = results.text(Some(columns));
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
            assert!(
                text.contains("② moved") && text.matches("\nBS ").count() == if columns == 40 { 2 } else { 1 },
                "{text}"
            );
        }
        let json = serde_json::to_value(&results).unwrap();
        assert_eq!(json["cells"][0]["mib_per_s"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn nothing_that_opens_is_an_error_and_breaking_off_is_none() {
        let absent = || vec![target("absent", || bail!("no such thing"))];
        let error = run(&bench(&[4096], 1), absent(), |_, _| ControlFlow::Continue(())).unwrap_err().to_string();
        assert!(error.contains("absent: no such thing"), "{error}");
        let stopped =
            run(&bench(&[4096], 9), vec![target("plain", || null(0))], |_, _| ControlFlow::Break(())).unwrap();
        assert!(stopped.interrupted && stopped.text(None).contains('-'));
    }

    #[test]
    fn the_disk_goes_before_what_keeps_it() {
        struct Says(Rc<RefCell<Vec<&'static str>>>, &'static str);
        impl Drop for Says {
            fn drop(&mut self) {
                self.0.borrow_mut().push(self.1);
            }
        }
        let said = Rc::new(RefCell::new(Vec::new()));
        let disk = Arc::new(NullDisk::new(4096, 512).unwrap());
        let watched = Arc::downgrade(&disk);
        let keeper = (watched, Says(Rc::clone(&said), "keeper"));
        let open = OpenTarget { disk, start_bytes: 0, keeper: Box::new(keeper) };
        let weak = open.keeper.downcast_ref::<(std::sync::Weak<NullDisk>, Says)>().unwrap().0.clone();
        assert!(weak.upgrade().is_some());
        drop(open);
        assert!(weak.upgrade().is_none() && *said.borrow() == ["keeper"]);
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut numbers = shuffled(10, &mut Random::new(1, 1));
        assert_ne!(numbers, (0..10).collect::<Vec<_>>());
        numbers.sort_unstable();
        assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    }
}
