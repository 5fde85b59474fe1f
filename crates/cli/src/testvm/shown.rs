//! What people see of a test's steps.

use super::run::Outcome;
use blockyard_bench::cpu_idle::percent_text;
use blockyard_bench::table::Table;
use blockyard_block::printable;
use blockyard_command_line::terminal;
use blockyard_testvm::{Shipped, StepResult};

/// Columns of a table that is not for a terminal.
const COLUMNS: usize = 100;

/// The scripts that come with the program, a line each.
pub fn scripts() -> String {
    Shipped::all().map(|shipped| shipped.about()).collect::<Vec<_>>().join("\n")
}

/// A row for each step of one machine.
pub fn steps(outcomes: &[Outcome]) -> String {
    let mut table = Table::new(&["step", "result", "s", "boot s", "idle %", "MHz", "figures"]);
    for Outcome { result, .. } in outcomes {
        let megahertz: Vec<_> = result.cpu_mhz.iter().map(|megahertz| format!("{megahertz:.0}")).collect();
        table.row(vec![
            result.step.clone(),
            result.failed.clone().unwrap_or_else(|| "ok".to_owned()),
            seconds(result.seconds),
            seconds(result.boot_seconds),
            percent_text(&result.cpu_idle_percent),
            megahertz.join(" "),
            result.figures.join(" "),
        ]);
    }
    table.render_within(terminal::output_columns())
}

/// A row for each step, a column for each machine: the step's figures, or else its seconds, and how idle the host's
/// CPUs were. Below it, why steps failed.
pub fn matrix(outcomes: &[Outcome], machines: &[String]) -> String {
    let headings: Vec<_> = ["step"].into_iter().chain(machines.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    let mut failures = String::new();
    let of_a_step = |a: &Outcome, b: &Outcome| a.result.step == b.result.step;
    for row in outcomes.chunk_by(of_a_step) {
        let unit = row.iter().find_map(|outcome| unit(&outcome.result)).unwrap_or("s");
        let mut cells = vec![String::new(); machines.len()];
        for Outcome { result, machine, .. } in row {
            cells[*machine] = cell(result);
            if let Some(why) = &result.failed {
                failures += &format!("\n{}, {}: {}", result.step, machines[*machine], printable(why));
            }
        }
        let name = row.first().map_or("", |outcome| outcome.result.step.as_str());
        table.row([format!("{name}, {unit}")].into_iter().chain(cells).collect());
    }
    let columns = terminal::output_columns().unwrap_or(COLUMNS);
    let table = table.render_within(Some(columns));
    let note = "\n\nIn brackets: how idle each of the host's CPUs was meanwhile, in percent.";
    table + note + &failures
}

/// What a step's first figure is of.
fn unit(result: &StepResult) -> Option<&str> {
    Some(result.figures.first()?.split_once('=')?.0)
}

fn cell(result: &StepResult) -> String {
    if result.failed.is_some() {
        return "failed".to_owned();
    }
    let figure = |figure: &String| figure.split_once('=').map(|(_, value)| value.to_owned());
    let figures: Vec<_> = result.figures.iter().filter_map(figure).collect();
    let value = if figures.is_empty() { seconds(result.seconds) } else { figures.join(" ") };
    format!("{value} ({})", percent_text(&result.cpu_idle_percent))
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"))
}
