//! `cargo xtask grounds`: the image commands, and systems that run, on other Debians, each with its own User-Mode
//! Linux, C library and tools.
//!
//! A ground is a small root directory that mmdebstrap makes and that is kept below `target/grounds`. The tests are
//! built here and run there, as they are static programs; the machine's own packages and sources stay as they are.

use crate::build::Workspace;
use crate::{output, packages, root, run};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SUITES: [&str; 3] = ["bookworm", "trixie", "sid"];
const MIRROR: &str = "http://deb.debian.org/debian";
/// How often each suite is measured, in turn with the others.
const ROUNDS: usize = 9;
/// The test programs that are run.
const TESTS: [&str; 2] = ["image", "run_uml"];
/// Packages that no test of images executes, and those that every Debian but the smallest has.
const LEFT_OUT: [&str; 3] = ["fio", "mmdebstrap", "qemu-system-x86"];
const MORE: [&str; 7] = ["bzip2", "cpio", "diffutils", "kmod", "procps", "util-linux-extra", "zstd"];

/// Makes `$1` the root directory of this process and what it executes, with the directories that follow from outside,
/// up to `--`. Not chroot(8), as who is in one may make no user namespaces.
const ENTER: &str = r#"
set -e
ground=$1 here=$PWD; shift
mount --make-rprivate /
mount --bind "$ground" "$ground"
for directory in /dev /proc /sys; do mount --rbind "$directory" "$ground$directory"; done
while [ "$1" != -- ]; do mkdir -p "$ground$1"; mount --bind "$1" "$ground$1"; shift; done
shift
mount -t tmpfs -o mode=1777 tmp "$ground/tmp"
cd "$ground"
pivot_root . mnt
umount -l /mnt
cd "$here"
exec "$@"
"#;

/// What is measured, each in nanoseconds: a boot with a look at the disk, `ls`, `put` of 200 MB, `run`, and what a
/// process costs in the guest.
const MEASURE: &str = r#"
set -e
blockyard=$1
mkdir /tmp/root && cp /bin/busybox /tmp/root
truncate -s 320M /tmp/disk.img && mke2fs -q -t ext4 -d /tmp/root /tmp/disk.img
head -c 200000000 /dev/urandom > /tmp/data
now() { date +%s%N; }
timed() { begin=$(now); "$blockyard" image "$@" > /tmp/out; end=$(now); echo $((end - begin)); }
processes() { timed run /tmp/disk.img /busybox sh -c "i=0; while [ \$i -lt $1 ]; do /busybox true; i=\$((i+1)); done"; }
"$blockyard" image ls /tmp/disk.img > /tmp/out
timed filesystems /tmp/disk.img
timed ls /tmp/disk.img
timed put /tmp/disk.img /tmp/data /
none=$(processes 0); echo $none
echo $((($(processes 200) - none) / 200))
"#;
const FIGURES: [&str; 5] = ["boot", "`ls`", "`put` of 200 MB", "`run`", "fork and exec in the guest"];

/// Runs the tests of images, and of systems on User-Mode Linux, whose names contain `filter` in each suite, and prints
/// a table.
///
/// # Errors
/// When a root cannot be made, or a test fails.
pub(crate) fn grounds(filter: &str) -> anyhow::Result<()> {
    if !packages::is_root()? {
        bail!("a root directory is made and entered by root: run `sudo cargo xtask grounds`");
    }
    packages::install(&[("mmdebstrap", "root directories of other Debians")])?;
    let workspace = Workspace::load()?;
    let built = workspace.build_tests("blockyard")?;
    let tests: Vec<_> = built.tests.iter().filter(|test| TESTS.contains(&&test.name[..])).collect();
    let blockyard = built.binaries.first().context("cargo built no blockyard")?;
    let mut grounds = Vec::new();
    for suite in SUITES {
        let directory = make(suite, &workspace.target_directory.join("grounds"))?;
        let ground = Ground { suite, directory, shared: [root(), workspace.target_directory.clone()] };
        let kernel = ground.kernel()?;
        eprintln!("grounds: {suite}, User-Mode Linux {kernel}");
        let mut summaries = Vec::new();
        for test in &tests {
            let mut command = ground.command(&test.package_directory, &test.executable);
            summaries.push(summary(command.args(["--test-threads", "2", filter]))?);
        }
        grounds.push((ground, kernel, summaries));
    }
    let mut samples = vec![vec![Vec::new(); FIGURES.len()]; grounds.len()];
    for _ in 0..ROUNDS {
        for ((ground, ..), samples) in grounds.iter().zip(&mut samples) {
            let mut command = ground.command(Path::new("/"), Path::new("/bin/sh"));
            let measured = output(command.args(["-c", MEASURE, "measure"]).arg(blockyard))?;
            let numbers = measured.lines().map(str::parse::<i64>).collect::<Result<Vec<_>, _>>();
            samples
                .iter_mut()
                .zip(numbers.context("a figure is no number")?)
                .for_each(|(samples, one)| samples.push(one));
        }
    }
    println!(
        "| suite | User-Mode Linux | tests | {} |\n|---|---|---|{}",
        FIGURES.join(" | "),
        "---|".repeat(FIGURES.len())
    );
    for ((ground, kernel, summaries), samples) in grounds.iter().zip(&mut samples) {
        let figures: Vec<_> =
            samples.iter_mut().map(|samples| format!("{:.1} ms", median(samples) as f64 / 1e6)).collect();
        let texts: Vec<_> = summaries.iter().map(|summary| &summary.text[..]).collect();
        println!("| {} | {kernel} | {} | {} |", ground.suite, texts.join("; "), figures.join(" | "));
    }
    let passed = |summaries: &[Summary]| summaries.iter().all(|summary| summary.passed);
    let failed = grounds.iter().filter(|(.., summaries)| !passed(summaries)).map(|(ground, ..)| ground.suite);
    let failed: Vec<_> = failed.collect();
    if failed.is_empty() { Ok(()) } else { bail!("tests failed in {}", failed.join(", ")) }
}

struct Ground {
    suite: &'static str,
    directory: PathBuf,
    /// Directories of this machine's that are there too: sources, and what was built.
    shared: [PathBuf; 2],
}

impl Ground {
    /// A program to be executed there, in `directory`.
    fn command(&self, directory: &Path, program: &Path) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", ENTER, "enter"]).arg(&self.directory).args(&self.shared).arg("--");
        command.arg(program).current_dir(directory).env_remove("TMPDIR");
        command
    }

    /// The version of its kernel.
    fn kernel(&self) -> anyhow::Result<String> {
        let modules = self.directory.join("usr/lib/uml/modules");
        let mut names = fs::read_dir(&modules).with_context(|| format!("cannot look into {}", modules.display()))?;
        let name = names.next().context("no modules")??.file_name();
        Ok(name.to_string_lossy().into_owned())
    }
}

/// The root directory of a suite, which is made unless it is there, with the packages that are wanted.
fn make(suite: &str, grounds: &Path) -> anyhow::Result<PathBuf> {
    let (directory, unfinished) = (grounds.join(suite), grounds.join(format!("{suite}.new")));
    let tested = packages::PACKAGES.iter().map(|(name, _)| *name).filter(|name| !LEFT_OUT.contains(name));
    let wanted = tested.chain(MORE).collect::<Vec<_>>().join(",");
    let list = directory.join("packages");
    if fs::read_to_string(list).is_ok_and(|there| there == wanted) {
        return Ok(directory);
    }
    fs::create_dir_all(grounds).with_context(|| format!("cannot make {}", grounds.display()))?;
    for old in [&directory, &unfinished].into_iter().filter(|old| old.exists()) {
        fs::remove_dir_all(old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    let mut command = Command::new("mmdebstrap");
    // What a mirror has of an unreleased suite may be past its date.
    command.args(["--quiet", "--variant=minbase", "--aptopt=Acquire::Check-Valid-Until \"false\""]);
    command.arg(format!("--include={wanted}")).arg(suite).arg(&unfinished).arg(MIRROR);
    run(&mut command)?;
    let named = fs::write(unfinished.join("packages"), wanted).and_then(|()| fs::rename(&unfinished, &directory));
    named.with_context(|| format!("cannot make {}", directory.display()))?;
    Ok(directory)
}

/// What became of a test program.
struct Summary {
    passed: bool,
    text: String,
}

/// Runs a test program, whose words are passed on.
fn summary(command: &mut Command) -> anyhow::Result<Summary> {
    let output = command.stderr(Stdio::inherit()).output().context("cannot run unshare (util-linux)")?;
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    let result = said.lines().find_map(|line| line.strip_prefix("test result: ")).unwrap_or("ended before its end");
    let text = result.split("; ").take(2).collect::<Vec<_>>().join(", ");
    Ok(Summary { passed: output.status.success(), text })
}

fn median(samples: &mut [i64]) -> i64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}
