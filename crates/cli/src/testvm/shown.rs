//! What people see of a test's steps.

use super::run::Outcome;
use super::summary::Summary;
use blockyard_bench::cpu_idle::percent_text;
use blockyard_bench::table::Table;
use blockyard_block::printable;
use blockyard_command_line::terminal;
use blockyard_testvm::Shipped;

/// Columns of a table that is not for a terminal.
const COLUMNS: usize = 100;

/// The scripts that come with the program, a line each.
pub fn scripts() -> String {
    Shipped::all().map(|shipped| shipped.about()).collect::<Vec<_>>().join("\n")
}

/// A row for each step of one machine.
pub fn steps(summaries: &[Summary<'_>]) -> String {
    let mut table = Table::new(&["step", "result", "s", "boot s", "idle %", "MHz", "figures"]);
    for summary in summaries {
        let megahertz: Vec<_> = summary.megahertz().iter().map(|megahertz| format!("{megahertz:.0}")).collect();
        let figures: Vec<_> = summary.figures().iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row(vec![
            summary.step().to_owned(),
            summary.failed().unwrap_or("ok").to_owned(),
            seconds(summary.seconds()),
            seconds(summary.boot_seconds()),
            percent_text(&summary.idle_percent()),
            megahertz.join(" "),
            figures.join(" "),
        ]);
    }
    table.render_within(terminal::output_columns())
}

/// A row for each step, a column for each machine: the step's figures, or else its seconds, and how idle the host's
/// CPUs were.
pub fn matrix(summaries: &[Summary<'_>], machines: &[String]) -> String {
    let headings: Vec<_> = ["step"].into_iter().chain(machines.iter().map(String::as_str)).collect();
    let mut table = Table::new(&headings);
    for row in summaries.chunk_by(|a, b| a.step() == b.step()) {
        let unit = |summary: &Summary<'_>| summary.figures().first().map(|(name, _)| (*name).to_owned());
        let unit = row.iter().find_map(unit).unwrap_or_else(|| "s".to_owned());
        let mut cells = vec![String::new(); machines.len()];
        row.iter().for_each(|summary| cells[summary.machine()] = cell(summary));
        let name = row.first().map_or("", |summary| summary.step());
        table.row([format!("{name}, {unit}")].into_iter().chain(cells).collect());
    }
    let columns = terminal::output_columns().unwrap_or(COLUMNS);
    let table = table.render_within(Some(columns));
    table + "\n\nIn brackets: how idle each of the host's CPUs was meanwhile, in percent."
}

/// What the table does not say: why runs failed, with the last lines of each, and what of their results was left out.
pub fn notes(outcomes: &[Outcome], machines: &[String], rounds: u32) -> String {
    let mut notes = String::new();
    for Outcome { result, machine, round, .. } in outcomes {
        let mut place = result.step.clone();
        if machines.len() > 1 {
            place += &format!(", {}", machines[*machine]);
        }
        if rounds > 1 {
            place += &format!(", round {round}");
        }
        if let Some(why) = &result.failed {
            notes += &format!("\n{place}: {}", printable(why));
            result.last_lines.iter().for_each(|line| notes += &format!("\n    {}", printable(line)));
        }
        if !result.left_out.is_empty() {
            notes += &format!("\n{place}: left out: {}", result.left_out.join("; "));
        }
    }
    notes
}

fn cell(summary: &Summary<'_>) -> String {
    if summary.failed().is_some() {
        return "failed".to_owned();
    }
    let figures: Vec<_> = summary.figures().into_iter().map(|(_, value)| value).collect();
    let value = if figures.is_empty() { seconds(summary.seconds()) } else { figures.join(" ") };
    format!("{value} ({})", percent_text(&summary.idle_percent()))
}

fn seconds(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"))
}
