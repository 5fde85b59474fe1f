//! `cargo xtask test`: everything that CI runs.

use crate::{cargo, figures, generate, lab, output, packages, root, run};
use anyhow::ensure;
use std::env;
use std::process::Command;
use std::time::Instant;

/// The target the guests are built for: always named, so that their compiler flags reach no build script.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// How many tests the test harness has run at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// A third of a test's time is waiting: for a guest to boot, for a disk, for a process to end. With one a CPU, those of
/// images take 1.4 times as long on two CPUs.
const TESTS_A_CPU: usize = 2;

type Step = (&'static str, fn() -> anyhow::Result<()>);

/// Cheap checks first. The first failure ends the run.
const STEPS: [Step; 11] = [
    ("setup", packages::setup),
    ("kernel", || lab::fetch_kernel().map(drop)),
    ("format", || run(cargo().args(["fmt", "--all", "--check"]))),
    ("format of the guests", || run(guests_cargo().args(["fmt", "--all", "--check"]))),
    ("clippy", || {
        run(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    }),
    ("documentation", || {
        run(cargo().args(["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
    }),
    ("clippy of the guests", || {
        // No `--all-targets`: programs without a standard library have no test harness.
        run(guests_cargo()
            .args(["clippy", "--locked", "--workspace", "--release", "--target", GUEST_TARGET])
            .args(["--", "--deny", "warnings"]))
    }),
    ("generated code", || generate::generate(true)),
    ("tests", || {
        let threads = TESTS_A_CPU * std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = cargo();
        command.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
        if env::var_os(TEST_THREADS).is_none() {
            command.env(TEST_THREADS, threads.to_string());
        }
        run(&mut command)
    }),
    ("lab", || lab::lab("")),
    ("figures, as information", || {
        figures::counts_as_information();
        Ok(())
    }),
];

/// Runs all steps.
///
/// # Errors
/// The first step's that fails; when the checkout is not what it was.
pub(crate) fn test() -> anyhow::Result<()> {
    let begin = Instant::now();
    let before = changes()?;
    for (name, step) in STEPS {
        let begin = Instant::now();
        println!("=== {name}");
        let result = step();
        let verdict = if result.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
        result.map_err(|error| error.context(format!("step `{name}`")))?;
    }
    let after = changes()?;
    ensure!(
        after == before,
        "the tests have changed the checkout: `git status` said\n{before}before, and now says\n{after}"
    );
    println!("=== all steps: ok ({:.1} s)", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Cargo in the guests' workspace, with a target directory that does not collide with the host's.
fn guests_cargo() -> Command {
    let mut command = cargo();
    command.current_dir(root().join("guests")).env_remove("CARGO_TARGET_DIR");
    command
}

/// What differs from what is committed, as git tells it; nothing where this is no checkout.
fn changes() -> anyhow::Result<String> {
    if !root().join(".git").exists() {
        return Ok(String::new());
    }
    output(Command::new("git").current_dir(root()).args(["status", "--porcelain", "--untracked-files=all"]))
}
