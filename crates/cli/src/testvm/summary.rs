//! What all runs of a step on a machine come to.

use super::run::Outcome;
use super::variant::Variant;
use blockyard_bench::statistics::Samples;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The runs of a step on a machine, at least one.
pub struct Summary<'a> {
    runs: Vec<&'a Outcome>,
}

/// All of them, in the order of their first runs.
pub fn summaries(outcomes: &[Outcome]) -> Vec<Summary<'_>> {
    let mut summaries: Vec<Summary<'_>> = Vec::new();
    for outcome in outcomes {
        let is_its = |summary: &&mut Summary<'_>| {
            (summary.machine(), summary.step()) == (outcome.machine, outcome.result.step.as_str())
        };
        match summaries.iter_mut().find(is_its) {
            Some(summary) => summary.runs.push(outcome),
            None => summaries.push(Summary { runs: vec![outcome] }),
        }
    }
    summaries
}

impl Summary<'_> {
    /// The step's name.
    pub fn step(&self) -> &str {
        &self.runs[0].result.step
    }

    /// Which machine.
    pub fn machine(&self) -> usize {
        self.runs[0].machine
    }

    /// Why a run failed, the first that did.
    pub fn failed(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.result.failed.as_deref())
    }

    /// Median of its seconds.
    pub fn seconds(&self) -> Option<f64> {
        self.samples(|run| run.result.seconds).median()
    }

    /// Median of the seconds until it began.
    pub fn boot_seconds(&self) -> Option<f64> {
        self.samples(|run| run.result.boot_seconds).median()
    }

    /// Its figures: each name, and its value, of several the median. A value that is no number is the first run's.
    pub fn figures(&self) -> Vec<(&str, String)> {
        let value = |name: &str, first: &str| match (self.runs.len(), self.figure(name).median()) {
            (1, _) | (_, None) => first.to_owned(),
            (_, Some(median)) => format!("{median:.*}", first.split_once('.').map_or(0, |(_, digits)| digits.len())),
        };
        self.names().map(|(name, first)| (name, value(name, first))).collect()
    }

    /// Each CPU's mean.
    pub fn idle_percent(&self) -> Vec<Option<f64>> {
        let cpus = self.runs.iter().map(|run| run.result.cpu_idle_percent.len()).max().unwrap_or(0);
        let mean = |cpu: usize| self.samples(|run| run.result.cpu_idle_percent.get(cpu).copied().flatten()).mean();
        (0..cpus).map(mean).collect()
    }

    /// Each CPU's mean.
    pub fn megahertz(&self) -> Vec<f64> {
        let cpus = self.runs.iter().map(|run| run.result.cpu_mhz.len()).max().unwrap_or(0);
        (0..cpus).filter_map(|cpu| self.samples(|run| run.result.cpu_mhz.get(cpu).copied()).mean()).collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        #[derive(Serialize)]
        struct Measured<'a> {
            step: &'a str,
            #[serde(flatten)]
            variant: Variant,
            runs: usize,
            failed: usize,
            seconds: Value,
            figures: Map<String, Value>,
            cpu_idle_percent: Vec<Option<f64>>,
        }
        let figures = self.names().map(|(name, _)| (name.to_owned(), spread(&self.figure(name))));
        json!(Measured {
            step: self.step(),
            variant: self.runs[0].variant,
            runs: self.runs.len(),
            failed: self.runs.iter().filter(|run| run.result.failed.is_some()).count(),
            seconds: spread(&self.samples(|run| run.result.seconds)),
            figures: figures.collect(),
            cpu_idle_percent: self.idle_percent(),
        })
    }

    /// The figures of the first run that has any.
    fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let first = self.runs.iter().map(|run| &run.result.figures).find(|figures| !figures.is_empty());
        first.into_iter().flatten().filter_map(|figure| figure.split_once('='))
    }

    fn figure(&self, name: &str) -> Samples {
        self.samples(|run| {
            let mut figures = run.result.figures.iter().filter_map(|figure| figure.split_once('='));
            figures.find(|(its, _)| *its == name)?.1.parse().ok().filter(|value: &f64| value.is_finite())
        })
    }

    fn samples(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Samples {
        self.runs.iter().filter_map(|run| of(run)).collect()
    }
}

fn spread(samples: &Samples) -> Value {
    json!({ "median": samples.median(), "min": samples.min(), "max": samples.max() })
}
