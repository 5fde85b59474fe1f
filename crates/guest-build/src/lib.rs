//! Builds the freestanding programs under `guests/`, for build scripts that embed them and tests that run them.
//!
//! `guests/` is a cargo workspace of its own: its programs have no standard library and need compiler flags that must
//! not reach host code (`guests/.cargo/config.toml`). They are built for the host's own target, so the toolchain
//! that builds Blockyard builds them too.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{env, io};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Where the sources are: in the checkout that cargo works in, which need not be the one that this was compiled in.
pub fn guests_directory() -> PathBuf {
    let package = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    let mut above = package.ancestors().map(|directory| directory.join("guests"));
    above.find(|guests| guests.join("Cargo.toml").is_file()).expect("packages lie below the directory of guests/")
}

/// Builds binary `binary` of package `package`, with cargo's intermediate files under `target_directory`, and returns
/// the linker's output: whatever format the package's linker arguments say.
///
/// # Errors
/// When cargo cannot be started, or fails: its messages went to stderr.
pub fn build(package: &str, binary: &str, target_directory: &Path) -> io::Result<PathBuf> {
    run_cargo(package, &["--bin", binary], target_directory)?;
    Ok(output_directory(target_directory).join(binary))
}

/// Builds every binary of package `package`, as [`build`] does, and returns the directory that they are in. For tests,
/// which may call it as often as they like: a process builds a package once.
///
/// # Errors
/// When cargo cannot be started, or fails: its messages went to stderr.
pub fn build_all(package: &str, target_directory: &Path) -> io::Result<PathBuf> {
    static BUILT: Mutex<BTreeSet<(String, PathBuf)>> = Mutex::new(BTreeSet::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (package.to_owned(), target_directory.to_owned());
    if !built.contains(&key) {
        run_cargo(package, &["--bins"], target_directory)?;
        built.insert(key);
    }
    Ok(output_directory(target_directory))
}

/// Compiler flags of a shared library, instead of those that programs under `guests/` have.
const LIBRARY_FLAGS: [&str; 4] =
    ["-Crelocation-model=pic", "-Clink-arg=-nostdlib", "-Clink-arg=-nostartfiles", "-Clink-arg=-Wl,--build-id=none"];

fn run_cargo(package: &str, selection: &[&str], target_directory: &Path) -> io::Result<()> {
    let flags: &[&str] = if selection.contains(&"--lib") { &LIBRARY_FLAGS } else { &[] };
    let mut arguments = vec!["build", "--release", "--locked", "--target", TARGET, "--package", package];
    arguments.extend(selection);
    run(&guests_directory(), &arguments, flags, target_directory)
        .map_err(|error| io::Error::other(format!("building guest {package} {} failed: {error}", selection.join(" "))))
}

/// Runs cargo in the workspace at `root`, with these compiler flags instead of the configured ones if there are any.
fn run(root: &Path, arguments: &[&str], flags: &[&str], target_directory: &Path) -> io::Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root).args(arguments).arg("--target-dir").arg(std::path::absolute(target_directory)?);
    // What cargo tells a build script or a test about the host's build must not steer the guest's.
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let about_flags = name_text.contains("RUSTFLAGS") || name_text.starts_with("CARGO_PROFILE_");
        let about_wrappers = name_text.contains("RUSTC_W") || name_text.contains("RUSTC_LINKER");
        let about_build = name_text.starts_with("CARGO_BUILD_") || name_text == "CARGO_MAKEFLAGS";
        if about_flags || about_wrappers || about_build {
            command.env_remove(&name);
        }
    }
    if !flags.is_empty() {
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
    }
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("cargo ended with {status}"))) }
}

fn output_directory(target_directory: &Path) -> PathBuf {
    target_directory.join(TARGET).join("release")
}

/// Builds a guest from a build script, which is run again when anything under `guests/` or the crates that guests share
/// with the host changes.
///
/// # Panics
/// When the build fails: a build script has no better way to say so.
pub fn build_from_build_script(package: &str, binary: &str) -> PathBuf {
    rerun_if_guest_changes(package);
    built(build(package, binary, &directory_of_build_scripts("guests")))
}

/// Builds a guest that is a shared library, named `library`, as [`build_from_build_script`] builds programs.
///
/// # Panics
/// When the build fails.
pub fn build_library_from_build_script(package: &str, library: &str) -> PathBuf {
    rerun_if_guest_changes(package);
    let target_directory = directory_of_build_scripts("guests");
    let library = output_directory(&target_directory).join(format!("lib{library}.so"));
    built(run_cargo(package, &["--lib"], &target_directory).map(|()| library))
}

/// Where build scripts have cargo build: one directory a profile, beside those that hold an `OUT_DIR` each. A build and
/// clippy run the same script with two `OUT_DIR`s, and the second finds here what the first has built.
fn directory_of_build_scripts(name: &str) -> PathBuf {
    let out_directory = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let build = out_directory.ancestors().find(|directory| directory.ends_with("build"));
    build.and_then(Path::parent).unwrap_or(&out_directory).join(name)
}

fn built(path: io::Result<PathBuf>) -> PathBuf {
    match path {
        Ok(path) => path,
        Err(error) => panic!("{error}"),
    }
}

fn rerun_if_guest_changes(package: &str) {
    let guests = guests_directory();
    for directory in [package_directory(&guests, package), guests.join("runtime")] {
        println!("cargo::rerun-if-changed={}", directory.display());
    }
    for file in [".cargo/config.toml", "Cargo.toml", "Cargo.lock", "flat.ld"] {
        println!("cargo::rerun-if-changed={}", guests.join(file).display());
    }
    for shared in ["protocol", "virtqueue"] {
        println!("cargo::rerun-if-changed={}", guests.join("../crates").join(shared).join("src").display());
    }
}

/// Builds the appliance's agent from a build script, as [`build_from_build_script`] builds guests. It is a Linux
/// program of the host's own workspace, with a profile that makes it small, or in a debug build one that is built soon.
///
/// # Panics
/// When the build fails.
pub fn build_agent_from_build_script() -> PathBuf {
    let guests = guests_directory();
    let root = guests.join("..");
    for path in
        ["guests/agent", "crates/archive/src", "crates/protocol/src", ".cargo/config.toml", "Cargo.toml", "Cargo.lock"]
    {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    let profile = if env::var_os("PROFILE").is_some_and(|profile| profile == "debug") { "agent-dev" } else { "agent" };
    let target_directory = directory_of_build_scripts("agent");
    // Not to be moved about: User-Mode Linux fails to run a static program that is.
    let fixed = format!("target.{TARGET}.rustflags=[\"-Crelocation-model=static\"]");
    let arguments = [
        "build",
        "--config",
        &fixed,
        "--profile",
        profile,
        "--locked",
        "--target",
        TARGET,
        "--package",
        "blockyard-agent",
    ];
    match run(&root, &arguments, &[], &target_directory) {
        Ok(()) => target_directory.join(TARGET).join(profile).join("blockyard-agent"),
        Err(error) => panic!("building the agent: {error}"),
    }
}

/// Builds the library that programs are started with from a build script, as [`build_agent_from_build_script`] builds
/// the agent. It goes into programs of libc's, so it is not linked statically.
///
/// # Panics
/// When the build fails.
pub fn build_posix_from_build_script() -> PathBuf {
    let root = guests_directory().join("..");
    for path in ["posix", "block", "session", "confinement", "devices", "virtqueue"] {
        println!("cargo::rerun-if-changed={}", root.join("crates").join(path).join("src").display());
    }
    for file in [".cargo/config.toml", "Cargo.toml", "Cargo.lock", "crates/posix/Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }
    let profile = if env::var_os("PROFILE").is_some_and(|profile| profile == "debug") { "posix-dev" } else { "posix" };
    match build_posix(profile, &directory_of_build_scripts("posix")) {
        Ok(library) => library,
        Err(error) => panic!("building the library for programs: {error}"),
    }
}

/// Builds the same by a profile, with cargo's intermediate files under `target_directory`.
///
/// # Errors
/// When cargo cannot be started, or fails: its messages went to stderr.
pub fn build_posix(profile: &str, target_directory: &Path) -> io::Result<PathBuf> {
    let root = guests_directory().join("..");
    let mut arguments = vec!["rustc", "--lib", "--crate-type", "cdylib", "--profile", profile];
    arguments.extend(["--locked", "--target", TARGET, "--package", "blockyard-posix"]);
    run(&root, &arguments, &["-Ctarget-feature=-crt-static"], target_directory)?;
    Ok(target_directory.join(TARGET).join(profile).join("libblockyard_posix.so"))
}

fn package_directory(guests: &Path, package: &str) -> PathBuf {
    guests.join(package.strip_prefix("blockyard-guest-").unwrap_or(package))
}
