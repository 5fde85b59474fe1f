//! `cargo xtask lab`: the tests of the `kvm` backend on a real KVM, wherever this runs.
//!
//! QEMU translates, and so emulates a processor with SVM; a Debian kernel in there loads kvm_amd and offers a real
//! /dev/kvm. [`kernel`] fetches that kernel, [`initramfs`] packs it an init, busybox and our test executables, and
//! [`machine`] boots it and passes on what it says.

mod appliances;
mod distribution;
mod figures;
mod initramfs;
mod kernel;
mod machine;

use crate::build::{TestExecutable, Workspace};
use crate::output;
use anyhow::{Context, bail};
use blockyard_linux_guest::DebianKernel;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

pub(crate) use appliances::appliances;
pub(crate) use figures::figures;

/// Packages with tests for the lab, and the test files of each whose tests all go: because they are about KVM, or
/// because they take the backend that `BLOCKYARD_TEST_KVM` chooses. Of every other executable of these packages, tests
/// with [`WORD`] in their names go. Packages that do not exist yet are skipped.
const PACKAGES: [(&str, &[&str]); 3] = [
    ("blockyard-hypervisor", &["kvm"]),
    ("blockyard-vmm", &["kvm"]),
    ("blockyard", &["bad_input", "copy", "hostile_guests"]),
];
const WORD: &str = "kvm";

/// The test file whose tests boot appliances. Of those, this sample goes: each of their commands boots a kernel. With a
/// filter that is not the file's name, all that match go.
const APPLIANCES: &str = "image";
const SAMPLE: [&str; 4] = [
    "data::files_of_odd_lengths_go_in_and_come_out",
    "drivers::btrfs_over_two_disks_is_mounted",
    "filesystems::a_damaged_ext4_is_told_and_repaired",
    "volumes::a_file_system_is_made_checked_and_labelled_on_a_logical_volume_by_commands_of_their_own",
];

/// Tests of other files that boot one too have this in their names.
const APPLIANCE_WORD: &str = "its_own_kernel";

/// About how many seconds a test takes there, by its name or else by its file's: machines are to end together.
const SECONDS: [(&str, u32); 13] = [
    ("disks::kvm_ext4_of_every_format_is_written_through_every_bus", 96),
    ("disks::kvm_a_kernel_of_32_bits_uses_disks_shares_and_all_memory", 61),
    ("every_pair_of_sector_sizes", 60),
    ("boots::two_processors_have_a_queue_and_an_interrupt_each_of_disks_that_are_pci_functions", 35),
    ("ahci::a_stock_kernel_uses_two_disks_through_ahci", 25),
    ("boots::disks_are_written_and_read_through_virtio_mmio", 13),
    (APPLIANCES, 56),
    ("testvm", 33),
    ("bench_kbuild", 23),
    ("run", 17),
    ("copy", 14),
    ("hostile_guests", 10),
    ("bad_input", 7),
];
const SECONDS_OTHERWISE: u32 = 1;

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

/// What goes into a machine of the lab.
#[derive(Clone, Debug, Default)]
struct Load {
    selections: Vec<Selection>,
    /// The packages' commands: test executables know them by the absolute paths in `CARGO_BIN_EXE_…`.
    binaries: Vec<PathBuf>,
    hostile_guests: Vec<PathBuf>,
}

impl Load {
    fn boots_appliances(&self) -> bool {
        self.selections.iter().any(|Selection { executable, tests }| {
            executable.name == APPLIANCES || tests.iter().any(|test| test.contains(APPLIANCE_WORD))
        })
    }
}

/// A test executable and those of its tests that go.
#[derive(Clone, Debug)]
struct Selection {
    executable: TestExecutable,
    tests: Vec<String>,
}

/// Runs the lab's tests whose names contain `filter`, or whose file is called so.
///
/// # Errors
/// When tests fail ([`TestsFailed`]), or there are none, or the lab cannot be set up.
pub(crate) fn lab(filter: &str) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    let directory = workspace.target_directory.join("lab");
    let mut load = Load { hostile_guests: hostile_guests(&directory)?, ..Default::default() };
    for (package, whole) in PACKAGES.into_iter().filter(|(package, _)| workspace.has(package)) {
        let build = workspace.build_tests(package)?;
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
    let guests = kernel::of_guests(&directory)?;
    let count: usize = load.selections.iter().map(|selection| selection.tests.len()).sum();
    let loads = load.split(thread::available_parallelism().map_or(1, usize::from).min(count));
    let archive = |index: usize| directory.join(format!("initramfs{index}.cpio"));
    for (index, load) in loads.iter().enumerate() {
        initramfs::pack(&archive(index), &kernel, &guests, load).context("cannot pack the lab's initramfs")?;
    }
    let (packed, machines) = (begin.elapsed().as_secs_f64(), loads.len());
    eprintln!("lab: {count} tests under Linux {} in {machines} machines, packed in {packed:.1} s", kernel.version);
    let begin = Instant::now();
    let code = run_side_by_side(&kernel.image, (0..machines).map(archive).collect())?;
    eprintln!("lab: {:.1} s from power-on to power-off", begin.elapsed().as_secs_f64());
    if code == 0 { Ok(()) } else { Err(TestsFailed { code }.into()) }
}

/// Boots a machine with each of `archives`: the worst of their exit codes. The first says what it does as it does it,
/// the others when they are done.
fn run_side_by_side(kernel: &Path, archives: Vec<PathBuf>) -> anyhow::Result<u8> {
    thread::scope(|scope| {
        let mut archives = archives.iter();
        let first = archives.next().context("no machine for the lab")?;
        let others: Vec<_> = archives
            .map(|archive| {
                scope.spawn(move || {
                    let said = RefCell::new(Vec::new());
                    let code = machine::run(kernel, archive, &|line| said.borrow_mut().push(line.to_owned()));
                    (code, said.into_inner())
                })
            })
            .collect();
        let first = machine::run(kernel, first, &machine::print_line);
        let mut codes = vec![first];
        for other in others {
            let (code, said) = other.join().map_err(|_| anyhow::anyhow!("a thread of the lab's panicked"))?;
            said.iter().for_each(|line| machine::print_line(line));
            codes.push(code);
        }
        codes.into_iter().try_fold(0, |worst: u8, code| Ok(worst.max(code?)))
    })
}

impl Load {
    /// The same for so many machines, each with its part of the tests: those that take longest first, the next one goes
    /// where there is least to do.
    fn split(&self, machines: usize) -> Vec<Self> {
        let all = self.selections.iter().enumerate().flat_map(|(index, selection)| {
            let tests = selection.tests.iter();
            tests.map(move |test| (seconds_of(&selection.executable.name, test), index, test))
        });
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|&(seconds, ..)| Reverse(seconds));
        let mut parts = vec![vec![Vec::new(); self.selections.len()]; machines];
        let mut planned = vec![0; machines];
        for (seconds, index, test) in all {
            let next = (0..machines).min_by_key(|&machine| planned[machine]).unwrap_or_default();
            planned[next] += seconds;
            parts[next][index].push(test.clone());
        }
        let load = |parts: Vec<Vec<String>>| {
            let with_tests = self.selections.iter().zip(parts).filter(|(_, tests)| !tests.is_empty());
            let selection = |(of, tests): (&Selection, _)| Selection { executable: of.executable.clone(), tests };
            Self { selections: with_tests.map(selection).collect(), ..self.clone() }
        };
        parts.into_iter().map(load).collect()
    }
}

fn seconds_of(executable: &str, test: &str) -> u32 {
    let of = |named: &str| SECONDS.iter().find(|(name, _)| *name == named).map(|&(_, seconds)| seconds);
    of(test).or_else(|| of(executable)).unwrap_or(SECONDS_OTHERWISE)
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
        let filter = if executable.name == filter { "" } else { filter };
        let any = all || executable.name == APPLIANCES && !filter.is_empty();
        let goes = |name: &str| any || name.contains(WORD) || SAMPLE.contains(&name);
        let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let names = names.filter(|name| goes(name) && name.contains(filter));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every test goes once, and no machine has much more to do than another.
    #[test]
    fn machines_share_the_tests() {
        let selection = |name: &str, tests: &[&str]| Selection {
            executable: TestExecutable {
                name: name.to_owned(),
                executable: PathBuf::from(name),
                package_directory: PathBuf::new(),
            },
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
        };
        let long = "disks::kvm_ext4_of_every_format_is_written_through_every_bus";
        let load = Load {
            selections: vec![
                selection("kvm", &["a", "b"]),
                selection("run", &["c", long, "d"]),
                selection("image", &["e"]),
            ],
            ..Load::default()
        };
        let parts = load.split(2);
        let names = |part: &Load| -> Vec<_> {
            let selections = part.selections.iter();
            let all = selections.flat_map(|of| of.tests.iter().map(|test| (of.executable.name.clone(), test.clone())));
            all.collect()
        };
        let all: Vec<_> = parts.iter().flat_map(names).collect();
        assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (6, 6), "{all:?}");
        let seconds = |part: &Load| names(part).iter().map(|(name, test)| seconds_of(name, test)).sum::<u32>();
        let [one, other] = [seconds(&parts[0]), seconds(&parts[1])];
        assert!(one.abs_diff(other) <= 4, "{one} and {other} seconds");
    }
}
