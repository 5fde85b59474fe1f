//! `cargo xtask fio-engine`: an engine by which fio asks our disks, and its own numbers are of them.
//!
//! What an engine and fio have in common is what fio's headers say for one build of it, so it is built for one fio: the
//! installed one, from Debian's source of exactly that version. The engine is xtask/fio/blockyard_fio.c, under fio's
//! licence, and a file of its own: nothing of it is in what Blockyard ships.

use crate::build::Workspace;
use crate::packages::{self, Archive};
use crate::{output, root, run};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What it takes to unpack and compile: package, and what for.
const BUILD: [(&str, &str); 3] =
    [("dpkg-dev", "unpacking Debian's sources"), ("gcc", "compiling the engine"), ("libc6-dev", "the same")];
const ENGINE: &str = "libblockyard_fio.so";
const LIBRARY: &str = "libblockyard_posix.so";
/// What a source says of itself, by the script that it has for that.
const VERSION_SCRIPT: &str = "FIO-VERSION-GEN";
const VERSION_FILE: &str = "FIO-VERSION-FILE";

/// An engine that was built.
pub(crate) struct Engine {
    pub(crate) path: PathBuf,
    /// What `fio --version` says of the fio that it is for, and the version of Debian's package.
    fio: String,
    package: String,
}

/// Builds it for the installed fio, puts it into `directory`, and says how it is used.
///
/// # Errors
/// As [`build`].
pub(crate) fn fio_engine(directory: Option<&Path>) -> anyhow::Result<()> {
    let Engine { path, fio, package } = build(directory)?;
    println!(
        "An engine for {fio} (Debian's {package}). To read a disk that is served on vm.sock:\n\n    \
         fio --ioengine=external:{} --blockyard_disk=session:vm.sock \\\n        \
         --name=x --rw=randread --bs=4k --iodepth=64 --iodepth_batch=16 --iodepth_batch_complete_max=16",
        path.display()
    );
    Ok(())
}

/// Builds it for the installed fio, and puts it into `directory`.
///
/// # Errors
/// When fio is not installed, or not by Debian's package; when its source cannot be had, or does not compile.
pub(crate) fn build(directory: Option<&Path>) -> anyhow::Result<Engine> {
    let version = installed_version()?;
    let said = output(Command::new("fio").arg("--version")).context("fio's package is there, and fio is not")?;
    let said = said.trim();
    if !is_of_package(said, &version) {
        bail!(
            "the fio at hand is {said}, which is not that of Debian's package (fio {version}): an engine is built for Debian's alone"
        );
    }
    packages::install(&BUILD)?;
    let target = Workspace::load()?.target_directory;
    let work = target.join("fio-engine");
    let directory = std::path::absolute(directory.unwrap_or(&work))?;
    let source = source(&work, &version)?;
    configure(&source)?;
    let of_source = version_of_source(&source)?;
    if of_source != said {
        bail!("Debian's source of fio {version} is of {of_source}, and the fio at hand is {said}");
    }
    let library = blockyard_guest_build::build_posix("posix", &target.join("x86_64-unknown-linux-gnu/release/posix"))
        .context("cannot build the library that the engine uses")?;
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    replace(&directory.join(LIBRARY), |new| Ok(fs::copy(&library, new).map(drop)?))?;
    replace(&directory.join(ENGINE), |new| compile(&source, &directory, said, new))?;
    Ok(Engine { path: directory.join(ENGINE), fio: said.to_owned(), package: version })
}

/// The version of the source that the installed package was built from.
fn installed_version() -> anyhow::Result<String> {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status} ${source:Version}", "fio"]);
    let said = output(&mut query).unwrap_or_default();
    match said.split_once(' ') {
        Some(("installed", version)) => Ok(version.to_owned()),
        _ => bail!("fio is not installed, and an engine is for one fio: apt-get install fio"),
    }
}

/// Whether a fio that says this of itself is of the package of that version: `fio-3.33`, and `3.33-3`.
fn is_of_package(said: &str, version: &str) -> bool {
    let upstream = version.rsplit_once('-').map_or(version, |(upstream, _)| upstream);
    let upstream = upstream.split_once(':').map_or(upstream, |(_, rest)| rest);
    said.strip_prefix("fio-") == Some(upstream)
}

/// Debian's source of that version, fetched once.
fn source(work: &Path, version: &str) -> anyhow::Result<PathBuf> {
    let source = work.join(format!("source-{version}"));
    if !source.exists() {
        // Beside its name, and renamed when complete.
        let incomplete = work.join("incomplete");
        if incomplete.exists() {
            fs::remove_dir_all(&incomplete).context("cannot remove what an earlier fetch left")?;
        }
        fs::create_dir_all(&incomplete).with_context(|| format!("cannot make {}", incomplete.display()))?;
        let archive = Archive::of_sources(&work.join("apt"))?;
        // One of several sources may be changing just now: what counts is whether the others have it.
        let updated = archive.update();
        let fetched = archive.source("fio", version, &incomplete);
        fetched
            .map_err(|error| updated.err().unwrap_or(error))
            .with_context(|| format!("the source of fio {version} is not to be had, and another does not do"))?;
        fs::rename(unpacked(&incomplete)?, &source).context("cannot rename the source's directory")?;
        fs::remove_dir_all(&incomplete).context("cannot remove the source's archive")?;
    }
    Ok(source)
}

/// The one directory there.
fn unpacked(directory: &Path) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut directories = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_dir());
    directories.next().context("nothing was unpacked")
}

/// Has the source look at this machine, for its headers. It looks for no processor, as Debian's build does not.
fn configure(source: &Path) -> anyhow::Result<()> {
    if !source.join("config-host.h").exists() {
        output(Command::new("./configure").arg("--disable-native").current_dir(source))?;
    }
    Ok(())
}

/// What the fio would say of itself that is built from a source.
fn version_of_source(source: &Path) -> anyhow::Result<String> {
    output(Command::new("sh").arg(VERSION_SCRIPT).current_dir(source))?;
    let said = fs::read_to_string(source.join(VERSION_FILE)).context("the source says no version")?;
    Ok(said.split_once('=').map_or(said.trim(), |(_, version)| version.trim()).to_owned())
}

fn compile(source: &Path, directory: &Path, version: &str, output: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("cc");
    command.args(["-std=gnu99", "-O2", "-Wall", "-Werror=implicit-function-declaration", "-D_GNU_SOURCE", "-fPIC"]);
    command.arg("-include").arg(source.join("config-host.h")).arg("-I").arg(source);
    command.arg("-I").arg(root().join("crates/posix"));
    command.arg(format!("-DBLOCKYARD_FIO_VERSION=\"{version}\""));
    // fio unloads an engine while threads of the library's may still be about to end.
    command.args(["-shared", "-Wl,-z,nodelete"]);
    command.arg("-Wl,-rpath,$ORIGIN").arg("-o").arg(output);
    command.arg(root().join("xtask/fio/blockyard_fio.c")).arg("-L").arg(directory).arg("-lblockyard_posix");
    run(&mut command)
}

/// Has `make` make a file beside `path`, and puts it in its place: a fio that runs goes on with what it has.
fn replace(path: &Path, make: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    make(&new)?;
    fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fio_is_of_its_package_or_of_another() {
        for (said, version) in [("fio-3.33", "3.33-3"), ("fio-3.39", "3.39-1+deb13u1"), ("fio-3.39", "1:3.39-1")] {
            assert!(is_of_package(said, version), "{said} {version}");
        }
        for said in ["fio-3.36", "fio-3.3", "fio-3.33-12-g1234", "3.33"] {
            assert!(!is_of_package(said, "3.33-3"), "{said}");
        }
    }
}
