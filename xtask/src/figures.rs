//! `cargo xtask figures`: what Blockyard promises in numbers, measured, each beside its bar.
//!
//! Figures are no tests: how often a thread is woken, and how long anything takes, depends on who else has the
//! processors. What holds on every machine is a test; what holds on an idle one is here.

mod counts;
mod fio;
mod names;
mod times;
mod yard;

use crate::build::Workspace;
use anyhow::{Context, bail, ensure};
use std::path::PathBuf;
use yard::Yard;

/// How often a figure is measured; its median counts.
const ROUNDS: usize = 5;

struct Figure {
    /// What is measured, its unit included.
    name: &'static str,
    bar: Bar,
    /// Measures once.
    measure: fn(&Yard) -> anyhow::Result<f64>,
}

#[derive(Clone, Copy)]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    fn holds(self, measured: f64) -> bool {
        match self {
            Self::AtMost(bar) => measured <= bar,
            Self::AtLeast(bar) => measured >= bar,
        }
    }

    fn describe(self) -> String {
        match self {
            Self::AtMost(bar) => format!("<= {bar}"),
            Self::AtLeast(bar) => format!(">= {bar}"),
        }
    }
}

/// What the command line asks for.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// Only figures whose name contains it.
    filter: String,
    /// Only what is counted, with the binary that the tests use.
    counts: bool,
    /// Another `blockyard` binary, measured in turn with this one.
    beside: Option<PathBuf>,
}

impl Options {
    /// `[FILTER] [--counts] [--beside BINARY]`, or nothing where it is something else.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--counts" => options.counts = true,
                "--beside" => options.beside = Some(words.next()?.into()),
                filter if !filter.starts_with('-') && options.filter.is_empty() => options.filter = filter.to_owned(),
                _ => return None,
            }
        }
        Some(options)
    }
}

/// What is counted, as `cargo xtask test` shows it: neither a figure beyond its bar nor one that cannot be measured
/// fails the tests.
pub(crate) fn counts_as_information() {
    if let Err(error) = measure(&Options { counts: true, ..Options::default() }) {
        println!("not measured: {error:#}");
    }
}

/// Measures, and prints a table.
///
/// # Errors
/// When something cannot be measured, or a figure is beyond its bar.
pub(crate) fn figures(options: &Options) -> anyhow::Result<()> {
    let missed = measure(options)?;
    ensure!(missed == 0, "{missed} figures are beyond their bars");
    Ok(())
}

/// How many figures are beyond their bars.
fn measure(options: &Options) -> anyhow::Result<usize> {
    let figures = if options.counts { counts::FIGURES.iter().collect() } else { all().collect::<Vec<_>>() };
    let figures: Vec<_> = figures.into_iter().filter(|figure| figure.name.contains(&options.filter)).collect();
    if figures.is_empty() {
        bail!("no figure has {:?} in its name", options.filter);
    }
    let workspace = Workspace::load()?;
    let ours = if options.counts {
        let built = workspace.build_tests("blockyard")?.binaries;
        built.into_iter().next().context("the tests have no blockyard")?
    } else {
        workspace.binary_to_measure(None)?
    };
    let target_directory = workspace.target_directory;
    let yards = [Some(ours), options.beside.clone()].into_iter().flatten();
    let yards = yards.map(|binary| Yard::new(binary, &target_directory)).collect::<anyhow::Result<Vec<_>>>()?;

    println!("{:62} {:>10} {:>10}  {:>10} least to most", "figure", "bar", "measured", "");
    let mut missed = 0;
    for figure in figures {
        let mut measured = vec![Vec::new(); yards.len()];
        for _ in 0..ROUNDS {
            for (yard, measured) in yards.iter().zip(&mut measured) {
                measured.push((figure.measure)(yard).with_context(|| format!("cannot measure {}", figure.name))?);
            }
        }
        let median = sorted_median(&mut measured[0]);
        let verdict = if figure.bar.holds(median) { "ok" } else { "BEYOND" };
        missed += usize::from(!figure.bar.holds(median));
        let [least, most] = [measured[0][0], measured[0][ROUNDS - 1]];
        print!(
            "{:62} {:>10} {median:>10.3}  {verdict:>10} {least:.3} to {most:.3}",
            figure.name,
            figure.bar.describe()
        );
        match &mut measured[1..] {
            [other] => println!("; beside {:.3}", sorted_median(other)),
            _ => println!(),
        }
    }
    Ok(missed)
}

fn all() -> impl Iterator<Item = &'static Figure> {
    counts::FIGURES.iter().chain(times::FIGURES).chain(fio::FIGURES).chain(names::FIGURES)
}

/// The figures and their bars, as docs/specification.md has them.
#[cfg(test)]
pub(crate) fn bars() -> impl Iterator<Item = (&'static str, String)> {
    all().map(|figure| (figure.name, figure.bar.describe()))
}

fn sorted_median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_understood_or_refused() {
        assert_eq!(Options::parse(&[]), Some(Options::default()));
        let all = Options::parse(&["copy", "--counts", "--beside", "/old"]).unwrap();
        assert_eq!(all, Options { filter: "copy".into(), counts: true, beside: Some("/old".into()) });
        assert_eq!(Options::parse(&["--beside"]), None);
        assert_eq!(Options::parse(&["one", "two"]), None);
        assert_eq!(Options::parse(&["--nosuch"]), None);
    }

    #[test]
    fn a_bar_belongs_to_what_it_allows() {
        assert!(Bar::AtMost(0.2).holds(0.2) && !Bar::AtMost(0.2).holds(0.21));
        assert!(Bar::AtLeast(1.0).holds(1.0) && !Bar::AtLeast(1.0).holds(0.99));
        assert_eq!(sorted_median(&mut [3.0, 1.0, 2.0]), 2.0);
    }
}
