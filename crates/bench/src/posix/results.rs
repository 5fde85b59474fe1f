//! What was measured, as tables and as JSON.

use super::place::Place;
use super::task::{Program, Task};
use super::yard::Run;
use crate::cpu_idle::{IdleTime, percent_text};
use crate::statistics::Samples;
use crate::table::Table;
use serde::Serialize;

/// What a program did at one place.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Where.
    pub place: Place,
    /// One of each round.
    pub rates: Samples,
    /// Each CPU's idle share meanwhile, in percent.
    pub idle_percent: Vec<Option<f64>>,
    /// What it is compared with.
    pub beside: Option<Place>,
    /// Median of the ratios to that, round by round.
    pub ratio: Option<f64>,
    #[serde(skip)]
    idle: IdleTime,
}

/// One program with its options.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The program.
    pub program: Program,
    /// What it did.
    pub name: String,
    /// What its figures are of.
    pub unit: &'static str,
    /// Place by place; the host alone of what cannot be on a disk (io_uring, libaio).
    pub figures: Vec<Figures>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct PosixResults {
    /// Bytes of the data.
    pub bytes: u64,
    /// Times each was run.
    pub rounds: u32,
    /// Seconds that fio went on each time.
    pub runtime_seconds: f64,
    /// Where, in the order of the columns.
    pub places: Vec<Place>,
    /// One entry a row.
    pub measured: Vec<Measured>,
    /// There is no fio.
    pub without_fio: bool,
    /// The file system has no transfers past the page cache.
    pub without_direct: bool,
}

impl Figures {
    fn new(place: Place, all: &[Place]) -> Self {
        Self {
            place,
            rates: Samples::default(),
            idle_percent: Vec::new(),
            beside: place.beside(all),
            ratio: None,
            idle: IdleTime::default(),
        }
    }

    pub(super) fn add(&mut self, run: &Run) {
        self.rates.push(run.rate);
        self.idle.add(&run.before, &run.after);
        self.idle_percent = self.idle.percent();
    }

    /// The median, and how it compares.
    fn rate_text(&self) -> String {
        let rate = self.rates.median().map_or_else(|| "-".to_owned(), |median| format!("{median:.0}"));
        rate + &self.ratio.map_or_else(String::new, |ratio| format!(" ×{ratio:.2}"))
    }

    fn idle_text(&self) -> String {
        if self.idle_percent.is_empty() { "-".to_owned() } else { percent_text(&self.idle_percent) }
    }
}

impl Measured {
    pub(super) fn new(task: &Task, places: &[Place]) -> Self {
        let program = task.program();
        let figures =
            places.iter().filter(|&&place| task.may_be_at(place)).map(|&place| Figures::new(place, places)).collect();
        Self { program, name: task.name(), unit: program.unit(), figures }
    }

    /// Compares what was measured.
    pub(super) fn finish(&mut self) {
        let ratio = |figures: &Figures| {
            let beside = self.figures.iter().find(|other| Some(other.place) == figures.beside)?;
            figures.rates.ratio_to(&beside.rates)
        };
        let ratios: Vec<_> = self.figures.iter().map(ratio).collect();
        self.figures.iter_mut().zip(ratios).for_each(|(figures, ratio)| figures.ratio = ratio);
    }

    fn cell(&self, place: Place, text: impl Fn(&Figures) -> String) -> String {
        self.figures.iter().find(|figures| figures.place == place).map_or_else(|| "-".to_owned(), text)
    }
}

impl PosixResults {
    /// What people are told beside the tables.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let fio = self.without_fio.then_some("there is no fio here: apt-get install fio");
        let direct = self.without_direct.then_some("the directory's file system has no O_DIRECT: --directory");
        fio.into_iter().chain(direct).map(str::to_owned)
    }

    /// Tables for people, no wider than so many columns.
    pub fn text(&self, columns: Option<usize>) -> String {
        if self.measured.is_empty() {
            return "nothing was measured".to_owned();
        }
        let mut parts: Vec<_> = self.legend().into_iter().collect();
        let tables = Program::ALL.into_iter().flat_map(|program| {
            let heading = |what: &str| format!("{}, {what}", program.name());
            [
                self.table(program, &heading(program.unit()), Figures::rate_text),
                self.table(program, &heading("idle %"), Figures::idle_text),
            ]
        });
        parts.extend(tables.flatten().map(|table| table.render_within(columns)));
        parts.join("\n\n")
    }

    /// What the ratios are to.
    fn legend(&self) -> Option<String> {
        let to = |beside: Place| {
            let compared = self.places.iter().filter(|place| place.beside(&self.places) == Some(beside));
            let names: Vec<_> = compared.map(|place| place.name()).collect();
            (!names.is_empty()).then(|| format!("of {} to {}", names.join(" and "), beside.name()))
        };
        let ratios: Vec<_> = [Place::Host, Place::Direct].into_iter().filter_map(to).collect();
        (!ratios.is_empty()).then(|| format!("×: {}", ratios.join(", ")))
    }

    fn table(&self, program: Program, heading: &str, text: impl Fn(&Figures) -> String) -> Option<Table> {
        let headings: Vec<_> = std::iter::once(heading).chain(self.places.iter().map(|place| place.name())).collect();
        let mut table = Table::new(&headings);
        let mut rows = self.measured.iter().filter(|one| one.program == program).peekable();
        rows.peek()?;
        for one in rows {
            let cells = self.places.iter().map(|&place| one.cell(place, &text));
            table.row(std::iter::once(one.name.clone()).chain(cells).collect());
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_idle::CpuTimes;
    use crate::posix::task;

    fn measured(name: &str, rates: &[f64]) -> Measured {
        let task = task::all().into_iter().find(|task| task.name() == name).unwrap();
        let mut measured = Measured::new(&task, &Place::ALL);
        for (figures, &rate) in measured.figures.iter_mut().zip(rates) {
            // The machine got twice as slow half-way.
            for rate in [rate, rate / 2.0, rate / 2.0] {
                let now = || CpuTimes::now().unwrap();
                figures.add(&Run { rate, before: now(), after: now() });
            }
        }
        measured.finish();
        measured
    }

    #[test]
    fn a_partition_is_compared_with_the_whole_disk_and_that_with_the_host() {
        let results = PosixResults {
            bytes: 1 << 24,
            rounds: 3,
            runtime_seconds: 1.0,
            places: Place::ALL.to_vec(),
            measured: vec![
                measured("copy direct 128K", &[9999.0, 9999.0, 5000.0, 4900.0, 2500.0]),
                measured("randwrite posixaio", &[100.0, 400.0, 200.0, 198.0, 50.0]),
                measured("randwrite libaio", &[100.0]),
            ],
            without_fio: false,
            without_direct: false,
        };
        let text = results.text(Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for line in [
            "×: of own and direct to host, of mediated and copying to direct",
            "| copy direct 128K | 5000 | 5000 ×1.00 | 2500 ×0.50 | 2450 ×0.98 | 1250 ×0.50 |",
            "| randwrite posixaio |   50 | 200 ×4.00 | 100 ×2.00 | 99 ×0.99 | 25 ×0.25 |",
            "| randwrite libaio   |   50 |         - |         - |        - |        - |",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line}\n{text}");
        }
        let json = serde_json::to_value(&results).unwrap();
        let mediated = &json["measured"][0]["figures"][3];
        assert_eq!((&mediated["place"], &mediated["beside"]), (&"mediated".into(), &"direct".into()), "{json}");
        assert_eq!(mediated["ratio"], 0.98);
    }

    #[test]
    fn without_the_whole_disk_a_partition_is_compared_with_the_host() {
        let all = [Place::Host, Place::Own, Place::Copying];
        assert_eq!(all.map(|place| place.beside(&all)), [None, Some(Place::Host), Some(Place::Host)]);
        assert_eq!(Place::Copying.beside(&[Place::Own, Place::Copying]), None);
    }
}
