//! The project's own tasks, as Rust instead of shell: `cargo xtask --help`.

mod attach_killed;
mod build;
mod debian_root;
mod figures;
mod fio_engine;
mod fuzz;
mod generate;
mod grounds;
mod lab;
mod packages;
#[cfg(test)]
mod pages;
mod peers;
mod reliability;
mod second_opinions;
mod test;

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::LazyLock;
use std::{env, fs};

const HELP: &str = "\
The tasks of the Blockyard project

Usage: cargo xtask COMMAND

Commands:
  setup               Install the Debian packages that the tests need, as far as they are missing (as root), and
                      fetch the kernel and make the Debian that they boot
  test                Run everything that CI runs: setup, formatting, clippy, documentation, generated code, all tests, the lab
  lab [-- FILTER]     Run the tests of the `kvm` backend on a real KVM: a Debian kernel in a QEMU that emulates a
                      processor with SVM. With FILTER, only tests whose name contains it
  lab-figures [BINARY [BUS]]
                      Measure in such a machine what a Linux guest and its disks cost, beside QEMU on the same KVM, and
                      print a table; with BINARY, that `blockyard` instead of one that is built; with BUS,
                      only on buses whose name contains it
  lab-appliances [BINARY]
                      Measure in such a machine what the appliance of `blockyard image` takes on KVM and on User-Mode
                      Linux, and print it; with BINARY, by that `blockyard` instead of one that is built
  fuzz [FILTER] [--seconds N | --inputs N]
                      Run every fuzz target with random inputs for N seconds (60), or with N inputs, until one fails.
                      With FILTER, only targets whose name contains it
  figures [FILTER] [--counts] [--beside BINARY]
                      Measure what is promised in numbers, on a machine that does nothing else, and print each figure
                      beside its bar: system calls, exits, times beside qemu-img, qemu-storage-daemon and cp. With
                      FILTER, only figures whose name contains it; with --counts, only what is counted; with --beside,
                      another `blockyard` binary in turn with this one
  fio-engine [DIRECTORY]
                      Build libblockyard_fio.so, an engine for the fio that is installed, from Debian's source of exactly
                      that fio, and put it into DIRECTORY (target/fio-engine) with the library that it uses
  peers               Install guestfish (as root), and compare: it reads what we write into images, and we what it writes
  attach-killed [ROUNDS]
                      Let fio write and verify 1 GiB of a served disk, by `blockyard attach`, while the server is killed
                      and started again ROUNDS times (50), and verify the file, too
  reliability [PART [COUNT]]
                      Do with images all that the tests do a sample of, up to COUNT of what is counted: `crashes`, all
                      crashes of short histories; `twins`, scripts that we and QEMU carry out; and print what was done,
                      and at which rate
  second-opinions     Let dissect.hypervisor, which pip fetches from PyPI, read what we make of disks
  grounds [FILTER]    Run the tests of images and of User-Mode Linux on Debian 12, 13 and the next one, each with its own C library
                      and tools (as root: mmdebstrap makes small root directories below target/grounds, which are
                      kept), and print a table. With FILTER, only tests whose name contains it
  generate            Write crates/protocol/src/messages.rs from messages.proto
  generate --check    Say whether that file is up to date

Options:
  -h, --help          Print this

Exit codes: 0 all is well, 1 something failed, 2 usage; `lab` passes on what the tests returned.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        [] | ["-h" | "--help" | "help"] | [_, "-h" | "--help"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        ["setup"] => packages::setup().and_then(|()| lab::fetch_kernel()).and_then(|_| debian_root::make().map(drop)),
        ["peers"] => peers::peers(),
        ["attach-killed"] => attach_killed::attach_killed(attach_killed::ROUNDS),
        ["attach-killed", rounds] if let Ok(rounds) = rounds.parse() => attach_killed::attach_killed(rounds),
        ["test"] => test::test(),
        ["lab-figures"] => packages::setup().and_then(|()| lab::figures(None, "")),
        ["lab-figures", binary] if !binary.starts_with('-') => lab::figures(Some(Path::new(binary)), ""),
        ["lab-figures", binary, bus] if !binary.starts_with('-') => lab::figures(Some(Path::new(binary)), bus),
        ["lab-appliances"] => packages::setup().and_then(|()| lab::appliances(None)),
        ["lab-appliances", binary] if !binary.starts_with('-') => lab::appliances(Some(Path::new(binary))),
        ["lab"] => lab::lab(""),
        ["lab", "--", filter] | ["lab", filter] if !filter.starts_with('-') => lab::lab(filter),
        ["fuzz", ref options @ ..] if let Some(fuzz) = fuzz::Fuzz::parse(options) => fuzz.run(),
        ["figures", ref options @ ..] if let Some(options) = figures::Options::parse(options) => {
            packages::setup().and_then(|()| figures::figures(&options))
        }
        ["fio-engine"] => fio_engine::fio_engine(None),
        ["fio-engine", directory] if !directory.starts_with('-') => fio_engine::fio_engine(Some(Path::new(directory))),
        ["reliability"] => reliability::reliability(None, None),
        ["reliability", part] if !part.starts_with('-') => reliability::reliability(Some(part), None),
        ["reliability", part, count] if let Ok(count) = count.parse() => {
            reliability::reliability(Some(part), Some(count))
        }
        ["second-opinions"] => second_opinions::second_opinions(),
        ["grounds"] => grounds::grounds(""),
        ["grounds", filter] if !filter.starts_with('-') => grounds::grounds(filter),
        ["generate"] => generate::generate(),
        ["generate", "--check"] => generate::check(),
        _ => {
            eprintln!("error: no such task: {}\n\n{HELP}", words.join(" "));
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            error.downcast_ref::<lab::TestsFailed>().map_or(ExitCode::FAILURE, |failed| ExitCode::from(failed.code))
        }
    }
}

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ lies in the repository").to_owned()
}

/// The cargo that runs this task.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    if env::var_os(INCREMENTAL).is_none() && *IS_COMPILED_ONCE {
        command.env(INCREMENTAL, "0");
    }
    command
}

/// Whether cargo keeps what makes compiling again faster.
const INCREMENTAL: &str = "CARGO_INCREMENTAL";

/// Whether this checkout was never compiled but by these tasks, as in CI: what only helps to compile it again takes a
/// quarter of the time, and whoever works on it has it as soon as cargo was run once without them.
static IS_COMPILED_ONCE: LazyLock<bool> = LazyLock::new(|| {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let kept = target.join(build::TARGET).join("debug/incremental");
    let mut entries = fs::read_dir(kept).into_iter().flatten().flatten();
    !entries.any(|entry| entry.file_name().to_string_lossy().starts_with("blockyard_block-"))
});

/// Runs `command` with the terminal as it is; an error when it fails.
fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", describe(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", describe(command));
    }
    Ok(())
}

/// What `command` prints; an error when it fails.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", describe(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}\n{}", describe(command), output.status, errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
