//! What was measured, as the table that compares it.

use super::{Backend, KbuildBench, Placement, Run};
use crate::statistics::Samples;
use crate::table::Table;
use serde::Serialize;
use std::fmt::Write as _;

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct KbuildResults {
    /// Runs of each machine.
    pub rounds: u32,
    /// Most vCPUs.
    pub vcpus: u32,
    /// How they are placed.
    pub placements: Vec<Placement>,
    /// CPUs of the host.
    pub host_cpus: usize,
    /// What percentages are of.
    pub base: Option<Base>,
    /// One entry a backend.
    pub rows: Vec<Row>,
}

/// The machine that the others are compared with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Base {
    /// Who executes it.
    pub backend: Backend,
    /// How it is placed.
    pub placement: Placement,
    /// Median of its runs.
    pub seconds: f64,
}

/// What was measured on a backend.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Who executes the guests.
    pub backend: Backend,
    /// Why nothing is measured there.
    pub cannot: Option<String>,
    /// One entry a machine that it has.
    pub cells: Vec<Cell>,
}

/// What was measured of a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// Its vCPUs.
    pub vcpus: u32,
    /// Where they run.
    pub placement: Placement,
    /// Whether each vCPU has a CPU of the host, and what else is to have one of its own: seconds mean little otherwise.
    pub comparable: bool,
    /// Those that succeeded.
    pub runs: Vec<Run>,
    /// What the last one met that did not.
    pub failed: Option<String>,
}

impl Cell {
    fn seconds(&self) -> Samples {
        self.runs.iter().map(|run| run.seconds).collect()
    }

    /// As the table has it, with a percentage of `base` seconds.
    fn text(&self, base: Option<f64>) -> String {
        let seconds = self.seconds();
        let (Some(median), Some(min), Some(max)) = (seconds.median(), seconds.min(), seconds.max()) else {
            return "-".to_owned();
        };
        let star = if self.runs.iter().any(|run| run.drifted) { "*" } else { "" };
        if !self.comparable {
            let cpu: Samples = self.runs.iter().map(|run| run.cpu_seconds).collect();
            let exits: Samples = self.runs.iter().filter_map(|run| run.exits.map(|exits| exits as f64)).collect();
            let exits = exits.median().map_or_else(String::new, |exits| format!(" {exits:.0} exits,"));
            return format!("not comparable:{exits} {} s CPU{star}", digits(cpu.median().unwrap_or_default()));
        }
        let mut text = format!("{}s{star}", digits(median));
        if self.runs.len() > 1 {
            // A String takes whatever it is given.
            _ = write!(text, " [{}-{}]", digits(min), digits(max));
        }
        if let Some(base) = base {
            _ = write!(text, " ({})", percent(median, base));
        }
        text
    }
}

/// Seconds, as precise as they are worth.
fn digits(seconds: f64) -> String {
    if seconds < 100.0 { format!("{seconds:.1}") } else { format!("{seconds:.0}") }
}

/// How much longer than `base`: negative for what is faster.
fn percent(seconds: f64, base: f64) -> String {
    let percent = ((seconds / base - 1.0) * 100.0).round();
    // What is rounded to nothing has no sign of its own.
    format!("{:+}%", percent as i64)
}

/// Numbers of vCPUs with the ways to place them, as the table has its columns.
fn machines(vcpus: u32, placements: &[Placement]) -> impl Iterator<Item = (u32, Placement)> {
    (1..=vcpus).flat_map(|vcpus| placements.iter().map(move |placement| (vcpus, *placement)))
}

impl KbuildResults {
    /// Nothing measured yet.
    pub(super) fn new(bench: &KbuildBench) -> Self {
        let KbuildBench { rounds, vcpus, host_cpus, .. } = *bench;
        let row = |(backend, guest): &(Backend, Result<_, String>)| {
            let had = machines(vcpus, &bench.placements)
                .filter(|&(vcpus, placement)| guest.is_ok() && backend.has(vcpus, placement));
            let cell = |(vcpus, placement): (u32, Placement)| {
                let comparable = placement.fits(vcpus, host_cpus);
                Cell { vcpus, placement, comparable, runs: Vec::new(), failed: None }
            };
            Row { backend: *backend, cannot: guest.as_ref().err().cloned(), cells: had.map(cell).collect() }
        };
        let placements = bench.placements.clone();
        Self { rounds, vcpus, placements, host_cpus, base: None, rows: bench.backends.iter().map(row).collect() }
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|row| &row.cells)
    }

    /// Whether anything was measured.
    pub fn are_empty(&self) -> bool {
        self.cells().all(|cell| cell.runs.is_empty())
    }

    /// What runs met that failed.
    pub fn failures(&self) -> Vec<&str> {
        self.cells().filter_map(|cell| cell.failed.as_deref()).collect()
    }

    /// The first disjoint machine with one vCPU, or where none is comparable, the first shared one.
    pub(super) fn find_base(&self) -> Option<Base> {
        let of = |placement: Placement| {
            self.rows.iter().find_map(|row| {
                let is_it = |cell: &&Cell| (cell.vcpus, cell.placement) == (1, placement) && cell.comparable;
                let seconds = row.cells.iter().find(is_it)?.seconds().median()?;
                Some(Base { backend: row.backend, placement, seconds })
            })
        };
        of(Placement::Disjoint).or_else(|| of(Placement::Shared))
    }

    /// A table for people.
    pub fn table(&self) -> Table {
        let machines: Vec<_> = machines(self.vcpus, &self.placements).collect();
        let headings = machines.iter().map(|(vcpus, placement)| match placement {
            Placement::Shared => format!("{vcpus} (s)"),
            Placement::Disjoint => format!("{vcpus} (d)"),
        });
        let headings: Vec<_> = ["backend/vcpu".to_owned()].into_iter().chain(headings).collect();
        let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        let base = self.base.as_ref().map(|base| base.seconds);
        for row in &self.rows {
            let cell = |&(vcpus, placement): &(u32, Placement)| {
                let found = row.cells.iter().find(|cell| (cell.vcpus, cell.placement) == (vcpus, placement));
                found.map_or_else(|| "-".to_owned(), |cell| cell.text(base))
            };
            table.row([row.backend.name().to_owned()].into_iter().chain(machines.iter().map(cell)).collect());
        }
        table
    }

    /// What the table does not say by itself.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "(s): the first vCPU shares its CPU with the VMM's I/O threads; (d): these have CPUs of their own; seconds of \
             the host's clock, median [min-max]."
                .to_owned(),
        ];
        if let Some(Base { backend, placement, seconds }) = &self.base {
            let (backend, placement) = (backend.name(), placement.name());
            notes.push(format!("Percentages: against {backend}, 1 vCPU {placement}, {} s.", digits(*seconds)));
        }
        // What is rounded to nothing has no sign of its own.
        let drift = |run: &Run| ((run.guest_seconds - run.seconds) * 100.0).round() / 100.0 + 0.0;
        let runs = self.cells().flat_map(|cell| &cell.runs);
        if let Some(worst) = runs.max_by(|one, other| drift(one).abs().total_cmp(&drift(other).abs())) {
            let bound = format!("{} % and {} s", Run::DRIFT_MAX * 100.0, Run::DRIFT_SECONDS);
            notes.push(format!(
                "Clocks: at most {:+.2} s of a guest's clock against the host's, in {}; *: a run drifted by more than {bound}.",
                drift(worst),
                worst.log
            ));
        }
        notes.extend(self.rows.iter().filter_map(|row| {
            let why = row.cannot.as_ref()?;
            Some(format!("{}: {why}", row.backend.name()))
        }));
        notes.extend(self.failures().iter().map(|why| format!("failed: {why}")));
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Guest, Tree};
    use super::*;
    use std::time::Duration;

    fn results(vcpus: u32, host_cpus: usize, has_kvm: bool) -> KbuildResults {
        let guest = Guest { kernel: "kernel".into(), modules: None };
        let kvm = if has_kvm { Ok(guest.clone()) } else { Err("no /dev/kvm".to_owned()) };
        KbuildResults::new(&KbuildBench {
            blockyard: "blockyard".into(),
            backends: vec![(Backend::Kvm, kvm), (Backend::Uml, Ok(guest))],
            vcpus,
            placements: vec![Placement::Shared, Placement::Disjoint],
            host_cpus,
            rounds: 2,
            tree: Tree::Small,
            config: Config::Target("tinyconfig".into()),
            targets: vec!["vmlinux".into()],
            root: "/".into(),
            memory_bytes: 1 << 30,
            logs: "logs".into(),
            directory: ".".into(),
            timeout: Duration::from_secs(1),
        })
    }

    fn run(seconds: f64, guest_seconds: f64) -> Run {
        let drifted = Run::has_drifted(seconds, guest_seconds);
        Run { seconds, guest_seconds, drifted, exits: Some(1234), cpu_seconds: seconds * 2.0, log: "log".into() }
    }

    /// A row of the table, without its frame.
    fn row(results: &KbuildResults, name: &str) -> Vec<String> {
        let text = results.table().render();
        let line = text.lines().find(|line| line.starts_with(&format!("| {name} "))).unwrap();
        line.trim_matches('|').split('|').skip(1).map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn percentages_are_against_the_disjoint_run_with_one_vcpu() {
        let mut results = results(2, 4, true);
        for (cell, seconds) in results.rows[0].cells.iter_mut().zip([754.0, 719.0, 399.0, 719.4]) {
            cell.runs.push(run(seconds, seconds));
        }
        results.rows[1].cells[0].runs = vec![run(9.0, 9.0), run(10.0, 12.0)];
        results.base = results.find_base();
        assert_eq!(row(&results, "kvm"), ["754s (+5%)", "719s (+0%)", "399s (-45%)", "719s (+0%)"]);
        assert_eq!(row(&results, "uml"), ["9.5s* [9.0-10.0] (-99%)", "-", "-", "-"]);
        let notes = results.notes().join("\n");
        assert!(notes.contains("against kvm, 1 vCPU disjoint, 719 s"), "{notes}");
        assert!(notes.contains("at most +2.00 s of a guest's clock"), "{notes}");
    }

    #[test]
    fn what_has_not_cpus_enough_is_not_compared() {
        let mut results = results(2, 2, true);
        results.rows[0].cells.iter_mut().for_each(|cell| cell.runs.push(run(4.0, 4.0)));
        results.base = results.find_base();
        let crowded = "not comparable: 1234 exits, 8.0 s CPU";
        assert_eq!(row(&results, "kvm"), ["4.0s (+0%)", "4.0s (+0%)", "4.0s (+0%)", crowded]);
        let mut alone = self::results(1, 1, false);
        alone.rows[1].cells[0].runs.push(run(4.0, 3.0));
        alone.base = alone.find_base();
        assert_eq!(alone.base, Some(Base { backend: Backend::Uml, placement: Placement::Shared, seconds: 4.0 }));
        assert_eq!(
            (row(&alone, "kvm"), row(&alone, "uml")),
            (vec!["-".into(), "-".into()], vec!["4.0s* (+0%)".into(), "-".into()])
        );
        assert!(alone.notes().contains(&"kvm: no /dev/kvm".to_owned()));
    }

    #[test]
    fn a_clock_may_drift_by_a_hundredth_and_what_hearing_takes() {
        assert!(!Run::has_drifted(100.0, 101.1) && !Run::has_drifted(1.0, 0.85));
        assert!(Run::has_drifted(100.0, 101.3) && Run::has_drifted(1.0, 0.7));
    }

    #[test]
    fn what_failed_is_a_dash_and_a_sentence() {
        let mut results = results(1, 2, true);
        results.rows[0].cells[0].failed = Some("kvm-1-shared-1: the build".into());
        assert_eq!(row(&results, "kvm"), ["-", "-"]);
        assert!(results.notes().contains(&"failed: kvm-1-shared-1: the build".to_owned()));
    }
}
