//! A small Debian with systemd, which tests boot: made once, and kept below `target/debian-root` as an archive.

use crate::build::Workspace;
use crate::run;
use anyhow::Context;
use blockyard_linux_guest::debian_root;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// What makes it a system that somebody logs in to, with the programs that such a system has for its disks.
const PACKAGES: &str = "--include=systemd-sysv,udev,kmod,lvm2,btrfs-progs";
/// Half of it, and nothing that a test looks at.
const LEFT_OUT: [&str; 4] = ["doc", "locale", "man", "zoneinfo"];
/// Root has no password, and apt no lists.
const CUSTOMIZED: &str = r#"--customize-hook=
    sed -i 's/^root:[^:]*:/root::/' "$1/etc/shadow"
    echo yard > "$1/etc/hostname"
    rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin
"#;

/// Makes it, unless it is there.
///
/// # Errors
/// When mmdebstrap cannot: without its archive, for instance.
pub(crate) fn make() -> anyhow::Result<PathBuf> {
    let archive = debian_root(&Workspace::load()?.target_directory);
    if archive.exists() {
        return Ok(archive);
    }
    let directory = archive.parent().context("an archive without a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    // Beside its name, and renamed when complete.
    let incomplete = directory.join("incomplete.tar");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", PACKAGES, CUSTOMIZED.trim_end()]);
    command.args(LEFT_OUT.map(|directory| format!("--dpkgopt=path-exclude=/usr/share/{directory}/*")));
    run(command.arg(SUITE).arg(&incomplete).arg(MIRROR))?;
    fs::rename(&incomplete, &archive).with_context(|| format!("cannot rename {}", incomplete.display()))?;
    Ok(archive)
}
