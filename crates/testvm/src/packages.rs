//! Debian's packages, unpacked without being installed: apt and dpkg-deb are asked as any user may, and what the
//! machine has installed is neither looked at nor changed.

use anyhow::{Context, Result, bail};
use blockyard_block::private_directory;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Of what apt or dpkg-deb say when they fail, an error repeats so much.
const WORDS_MAX: usize = 600;
/// What is one directory with its namesake below /usr, by a package that is not among those unpacked.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// A root directory of these packages and all that they depend on, without anything being set up in it. It is gone when
/// it is dropped.
///
/// # Errors
/// When apt is not there, knows no such package, or cannot reach its archive.
pub fn unpacked(packages: &[&str]) -> Result<TempDir> {
    let directory = private_directory(|_| true).context("making a directory")?;
    let downloads = private_directory(|_| true).context("making a directory")?;
    let status = downloads.path().join("status");
    fs::write(&status, "").with_context(|| format!("cannot write {}", status.display()))?;
    let apt = |arguments: &[&str], names: &[String]| {
        let mut command = Command::new("apt-get");
        command.current_dir(downloads.path()).env("LC_ALL", "C").arg("--quiet=2");
        // Nothing counts as installed, and nobody else's cache is written.
        let status = format!("Dir::State::status={}", status.display());
        for option in [&*status, "Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=", "Debug::NoLocking=true"] {
            command.args(["-o", option]);
        }
        done(command.args(["-o", "APT::Install-Recommends=false"]).args(arguments).args(names))
    };
    let wanted: Vec<_> = packages.iter().map(ToString::to_string).collect();
    let plan = apt(&["--simulate", "install"], &wanted)?;
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    let names: Vec<_> = plan.lines().filter_map(installed).map(str::to_owned).collect();
    apt(&["download"], &names)?;
    for entry in fs::read_dir(downloads.path()).context("reading a directory")? {
        let file = entry.context("reading a directory")?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            done(Command::new("dpkg-deb").arg("--extract").arg(&file).arg(directory.path()))?;
        }
    }
    for name in MERGED {
        let (link, target) = (directory.path().join(name), Path::new("usr").join(name));
        if !link.exists() && directory.path().join(&target).exists() {
            symlink(&target, &link).with_context(|| format!("cannot make {}", link.display()))?;
        }
    }
    Ok(directory)
}

/// The package of a line `Inst NAME (VERSION …)` of apt's plan.
fn installed(line: &str) -> Option<&str> {
    line.strip_prefix("Inst ")?.split(' ').next()
}

/// Runs a program of Debian's to its end.
fn done(command: &mut Command) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!(
            "there is no {program} here: on Debian packages are fetched with it; elsewhere install a static busybox, \
             coreutils and fio, or name a root directory that has them with --root"
        ),
        _ => anyhow::Error::new(error).context(format!("cannot run {program}")),
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let words: String = words.trim().chars().take(WORDS_MAX).collect();
        bail!("{program} does not fetch the packages ({words}): `apt-get update`, as root, may help");
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_those_that_would_be_installed() {
        assert_eq!(installed("Inst libc6 (2.36-9 Debian:12.15/oldstable [amd64]) [libgcc-s1:amd64 ]"), Some("libc6"));
        assert_eq!(installed("Conf libc6 (2.36-9)"), None);
    }
}
