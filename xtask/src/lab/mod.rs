//! `cargo xtask lab`: the tests of the `kvm` backend on a real KVM, wherever this runs.
//!
//! QEMU translates, and so emulates a processor with SVM; a Debian kernel in there loads kvm_amd and offers a real
//! /dev/kvm. [`kernel`] fetches that kernel, [`initramfs`] packs it an init, busybox and our test executables, and
//! [`machine`] boots it and passes on what it says.

mod initramfs;
mod kernel;
mod machine;

use crate::build::{Build, TestExecutable, Workspace, build_tests};
use crate::output;
use anyhow::{Context, bail};
use std::fmt;
use std::process::Command;
use std::time::Instant;

/// Packages with tests for the lab; those that do not exist yet are skipped. Of a test file named `kvm…` all tests go,
/// of any other executable those with `kvm` in their names. What their build scripts and binary targets make goes
/// along.
const PACKAGES: [&str; 3] = ["blockyard-hypervisor", "blockyard-vmm", "blockyard"];
const WORD: &str = "kvm";

/// Tests ran in the lab, and failed.
#[derive(Debug)]
pub(crate) struct TestsFailed {
    /// The lab's exit code.
    pub(crate) code: u8,
}

impl fmt::Display for TestsFailed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the lab's tests failed (exit code {})", self.code)
    }
}

impl std::error::Error for TestsFailed {}

/// A test executable and those of its tests that go.
#[derive(Debug)]
struct Selection {
    executable: TestExecutable,
    tests: Vec<String>,
}

/// Runs the lab's tests whose names contain `filter`.
///
/// # Errors
/// When tests fail ([`TestsFailed`]), or there are none, or the lab cannot be set up.
pub(crate) fn lab(filter: &str) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    let (mut selections, mut builds) = (Vec::new(), Vec::new());
    for package in PACKAGES.into_iter().filter(|package| workspace.has(package)) {
        let mut build = build_tests(package)?;
        let tests = std::mem::take(&mut build.tests);
        let selected = select(tests, filter)?;
        if !selected.is_empty() {
            selections.extend(selected);
            builds.push(build);
        }
    }
    if selections.is_empty() {
        bail!("no test for the lab has {filter:?} in its name");
    }
    let begin = Instant::now();
    let directory = workspace.target_directory.join("lab");
    let kernel = kernel::fetch(&directory)?;
    let initramfs = directory.join("initramfs.cpio");
    initramfs::pack(&initramfs, &kernel, &selections, &builds).context("cannot pack the lab's initramfs")?;
    let count: usize = selections.iter().map(|selection| selection.tests.len()).sum();
    eprintln!("lab: {count} tests under Linux {}, packed in {:.1} s", kernel.version, begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    let code = machine::run(&kernel.image, &initramfs)?;
    eprintln!("lab: {:.1} s from power-on to power-off", begin.elapsed().as_secs_f64());
    if code == 0 { Ok(()) } else { Err(TestsFailed { code }.into()) }
}

fn select(executables: Vec<TestExecutable>, filter: &str) -> anyhow::Result<Vec<Selection>> {
    let mut selections = Vec::new();
    for executable in executables {
        let list = output(Command::new(&executable.executable).args(["--list", "--format", "terse"]))?;
        let whole = executable.name.starts_with(WORD);
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = names.filter(|name| (whole || name.contains(WORD)) && name.contains(filter));
        let tests: Vec<_> = names.map(str::to_owned).collect();
        if !tests.is_empty() {
            selections.push(Selection { executable, tests });
        }
    }
    Ok(selections)
}

/// Files that building a package gave and that its tests expect where they were built: its binaries, and the guests
/// that its build script made (`OUT_DIR/guests/TARGET/release/NAME`).
fn built_files(build: &Build) -> anyhow::Result<Vec<std::path::PathBuf>> {
    let mut files = build.binaries.clone();
    for out_directory in &build.out_directories {
        let guests = out_directory.join("guests/x86_64-unknown-linux-gnu/release");
        let Ok(entries) = guests.read_dir() else { continue };
        for entry in entries {
            let path = entry.context("cannot list a build script's guests")?.path();
            if path.is_file() && path.extension().is_none() {
                files.push(path);
            }
        }
    }
    Ok(files)
}
