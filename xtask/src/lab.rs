//! `cargo xtask lab`: the tests of the `kvm` backend on a real KVM, wherever this runs.
//!
//! QEMU translates, and so emulates a processor with SVM; a Debian kernel in there loads kvm_amd and offers a real
//! /dev/kvm. [`kernel`] fetches that kernel, [`initramfs`] packs it an init, busybox and our test executables, and
//! [`machine`] boots it and passes on what it says.

mod initramfs;
mod kernel;
mod machine;

use crate::build::{TestExecutable, Workspace, build_tests};
use crate::output;
use anyhow::{Context, bail};
use blockyard_linux_guest::DebianKernel;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Packages with tests for the lab, and the test files of each whose tests all go: because they are about KVM, or
/// because they take the backend that `BLOCKYARD_TEST_KVM` chooses. Of every other executable of these packages, tests
/// with [`WORD`] in their names go. Packages that do not exist yet are skipped.
const PACKAGES: [(&str, &[&str]); 3] = [
    ("blockyard-hypervisor", &["kvm"]),
    ("blockyard-vmm", &["kvm"]),
    ("blockyard", &["bad_input", "copy", "hostile_guests"]),
];
const WORD: &str = "kvm";

/// Guests that go along; `BLOCKYARD_HOSTILE_GUESTS` says where they are.
const HOSTILE_GUESTS: &str = "blockyard-guest-hostile";

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

/// What goes into the lab.
#[derive(Debug, Default)]
struct Load {
    selections: Vec<Selection>,
    /// The packages' commands: test executables know them by the absolute paths in `CARGO_BIN_EXE_…`.
    binaries: Vec<PathBuf>,
    hostile_guests: Vec<PathBuf>,
}

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
    let directory = workspace.target_directory.join("lab");
    let mut load = Load { hostile_guests: hostile_guests(&directory)?, ..Default::default() };
    for (package, whole) in PACKAGES.into_iter().filter(|(package, _)| workspace.has(package)) {
        let build = build_tests(package)?;
        let selections = select(build.tests, whole, filter)?;
        if !selections.is_empty() {
            load.selections.extend(selections);
            load.binaries.extend(build.binaries);
        }
    }
    if load.selections.is_empty() {
        bail!("no test for the lab has {filter:?} in its name");
    }
    let begin = Instant::now();
    let kernel = kernel::fetch(&directory)?;
    let initramfs = directory.join("initramfs.cpio");
    let guests = kernel::of_guests(&directory)?;
    initramfs::pack(&initramfs, &kernel, &guests, &load).context("cannot pack the lab's initramfs")?;
    let count: usize = load.selections.iter().map(|selection| selection.tests.len()).sum();
    eprintln!("lab: {count} tests under Linux {}, packed in {:.1} s", kernel.version, begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    let code = machine::run(&kernel.image, &initramfs)?;
    eprintln!("lab: {:.1} s from power-on to power-off", begin.elapsed().as_secs_f64());
    if code == 0 { Ok(()) } else { Err(TestsFailed { code }.into()) }
}

/// Fetches the kernel that the lab boots, which other tests boot too.
///
/// # Errors
/// As [`kernel::fetch`].
pub(crate) fn fetch_kernel() -> anyhow::Result<DebianKernel> {
    kernel::fetch(&Workspace::load()?.target_directory.join("lab"))
}

fn select(executables: Vec<TestExecutable>, whole: &[&str], filter: &str) -> anyhow::Result<Vec<Selection>> {
    let mut selections = Vec::new();
    for executable in executables {
        let list = output(Command::new(&executable.executable).args(["--list", "--format", "terse"]))?;
        let all = whole.contains(&executable.name.as_str());
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = names.filter(|name| (all || name.contains(WORD)) && name.contains(filter));
        let tests: Vec<_> = names.map(str::to_owned).collect();
        if !tests.is_empty() {
            selections.push(Selection { executable, tests });
        }
    }
    Ok(selections)
}

/// Builds the hostile guests, and lists them.
fn hostile_guests(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let built = blockyard_guest_build::build_all(HOSTILE_GUESTS, &directory.join("guests"))
        .context("cannot build the hostile guests")?;
    let entries = built.read_dir().with_context(|| format!("cannot list {}", built.display()))?;
    let files = entries.map(|entry| entry.map(|entry| entry.path()));
    let files = files.filter(|path| path.as_ref().is_ok_and(|path| path.is_file() && path.extension().is_none()));
    files.collect::<Result<_, _>>().with_context(|| format!("cannot list {}", built.display()))
}
