//! `cargo xtask test`: everything that CI runs.

use crate::{cargo, debian_root, figures, generate, lab, output, packages, root, run};
use anyhow::{Context, bail, ensure};
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use std::{env, thread};

/// The target the guests are built for: always named, so that their compiler flags reach no build script.
const GUEST_TARGET: &str = "x86_64-unknown-linux-gnu";

/// How many tests the test harness has run at a time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";
/// A third of a test's time is waiting: for a guest to boot, for a disk, for a process to end. With one a CPU, those of
/// images take 1.4 times as long on two CPUs.
const TESTS_A_CPU: usize = 2;

type Step = (&'static str, fn() -> anyhow::Result<()>);
type Check = (&'static str, fn() -> Command);

/// Cheap checks first. The first failure ends the run.
const STEPS: [Step; 12] = [
    ("setup", packages::setup),
    ("kernel", || lab::fetch_kernel().map(drop)),
    ("Debian", || debian_root::make().map(drop)),
    ("format", || run(cargo().args(["fmt", "--all", "--check"]))),
    ("format of the guests", || run(guests_cargo().args(["fmt", "--all", "--check"]))),
    ("format of the generator", || run(cargo().current_dir(root().join(generate::GENERATOR)).args(["fmt", "--check"]))),
    ("generated code", generate::check),
    // All packages, so that cargo builds nothing for these that the other tests do not use.
    ("pages, and tests of the tasks", || run(tests().args(["--bin", "xtask"]))),
    ("build of the tests", || run(tests().arg("--no-run"))),
    ("tests, and checks beside them", tests_and_checks),
    ("lab", || lab::lab("")),
    ("figures, as information", || {
        figures::counts_as_information();
        Ok(())
    }),
];

/// What needs both CPUs and says nothing about what runs: done while the tests wait, which is half of their time.
const CHECKS: [Check; 3] = [
    ("clippy", || {
        let mut command = cargo();
        command.args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
        command
    }),
    ("documentation", || {
        let mut command = cargo();
        command.args(["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings");
        take_what_clippy_checked(&mut command);
        command
    }),
    ("clippy of the guests", || {
        // No `--all-targets`: programs without a standard library have no test harness.
        let mut command = guests_cargo();
        command.args(["clippy", "--locked", "--workspace", "--release", "--target", GUEST_TARGET]);
        command.args(["--", "--deny", "warnings"]);
        command
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
        println!("=== {name}");
        timed(name, step).map_err(|error| error.context(format!("step `{name}`")))?;
    }
    let after = changes()?;
    ensure!(
        after == before,
        "the tests have changed the checkout: `git status` said\n{before}before, and now says\n{after}"
    );
    println!("=== all steps: ok ({:.1} s)", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Runs `step` and prints how it ended and what it took.
fn timed(name: &str, step: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let begin = Instant::now();
    let result = step();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!("=== {name}: {verdict} ({:.1} s)", begin.elapsed().as_secs_f64());
    result
}

/// Cargo with the workspace's tests.
fn tests() -> Command {
    // Tests send signals that a shell has what runs in its background ignore.
    let (cargo, mut command) = (cargo(), Command::new("env"));
    command.arg("--default-signal=HUP,INT").arg(cargo.get_program());
    cargo.get_current_dir().map(|directory| command.current_dir(directory));
    command.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["test", "--locked", "--workspace", "--no-fail-fast"]);
    if env::var_os(TEST_THREADS).is_none() {
        let threads = TESTS_A_CPU * thread::available_parallelism().map_or(1, usize::from);
        command.env(TEST_THREADS, threads.to_string());
    }
    command
}

/// Runs the tests, and the checks from their beginning on: earlier, cargo would have both wait for each other.
fn tests_and_checks() -> anyhow::Result<()> {
    let (mut reader, writer) = io::pipe().context("cannot make a pipe")?;
    let mut command = tests();
    if io::stdout().is_terminal() {
        command.args(["--color", "always", "--", "--color", "always"]);
    }
    command.stdout(writer.try_clone().context("cannot make a pipe")?).stderr(writer);
    let mut running = command.spawn().context("cannot run cargo")?;
    // It holds the pipe's other end.
    drop(command);

    let mut first = [0; 4096];
    let length = reader.read(&mut first).context("cannot read what the tests print")?;
    thread::scope(|scope| {
        let checks = scope.spawn(|| CHECKS.iter().try_for_each(|(name, check)| timed(name, || quietly(&check()))));
        let printed = io::copy(&mut first[..length].chain(reader), &mut io::stdout());
        let status = running.wait().context("cannot wait for the tests");
        let checked = checks.join().expect("no check panics");
        printed.context("cannot print what the tests print")?;
        let status = status?;
        ensure!(status.success(), "the tests failed: {status}");
        checked
    })
}

/// Has cargo's `command` do as `cargo clippy` does: then it checks nothing again that clippy has. Where clippy does
/// something else one day, it does.
fn take_what_clippy_checked(command: &mut Command) {
    if let Ok(sysroot) = output(Command::new("rustc").current_dir(root()).args(["--print", "sysroot"])) {
        command.env("RUSTC_WORKSPACE_WRAPPER", Path::new(sysroot.trim_end()).join("bin/clippy-driver"));
        command.env("CLIPPY_ARGS", "--deny__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    }
}

/// Runs `command` when nobody else wants the CPU, and prints in one piece what it has said if it fails.
fn quietly(command: &Command) -> anyhow::Result<()> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    let output = nice.output().context("cannot run cargo")?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("a check failed: {}", output.status);
    }
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
