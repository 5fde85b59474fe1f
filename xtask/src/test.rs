//! `cargo xtask test`: everything that CI runs.

use crate::{cargo, generate, lab, packages, root, run};
use std::process::Command;
use std::time::Instant;

/// The target the guests are built for: always named, so that their compiler flags reach no build script.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";

type Step = (&'static str, fn() -> anyhow::Result<()>);

/// Cheap checks first. The first failure ends the run.
const STEPS: [Step; 9] = [
    ("setup", packages::setup),
    ("kernel", || lab::fetch_kernel().map(drop)),
    ("format", || run(cargo().args(["fmt", "--all", "--check"]))),
    ("format of the guests", || run(guests_cargo().args(["fmt", "--all", "--check"]))),
    ("clippy", || {
        run(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    }),
    ("clippy of the guests", || {
        // No `--all-targets`: programs without a standard library have no test harness.
        run(guests_cargo()
            .args(["clippy", "--locked", "--workspace", "--release", "--target", GUEST_TARGET])
            .args(["--", "--deny", "warnings"]))
    }),
    ("generated code", || generate::generate(true)),
    ("tests", || run(cargo().args(["test", "--locked", "--workspace", "--no-fail-fast"]))),
    ("lab", || lab::lab("")),
];

/// Runs all steps.
///
/// # Errors
/// The first step's that fails.
pub(crate) fn test() -> anyhow::Result<()> {
    let begin = Instant::now();
    for (name, step) in STEPS {
        let begin = Instant::now();
        println!("=== {name}");
        let result = step();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
        result.map_err(|error| error.context(format!("step `{name}`")))?;
    }
    println!("=== all steps: ok ({:.1} s)", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Cargo in the guests' workspace, with a target directory that does not collide with the host's.
fn guests_cargo() -> Command {
    let mut command = cargo();
    command.current_dir(root().join("guests")).env_remove("CARGO_TARGET_DIR");
    command
}
