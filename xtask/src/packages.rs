//! `cargo xtask setup`: Debian packages that the tests use.

use crate::{output, run};
use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where apt is told where its packages come from.
const APT: &str = "/etc/apt";

/// Package, and what for.
pub(crate) const PACKAGES: &[(&str, &str)] = &[
    ("acl", "setfacl"),
    ("attr", "setfattr"),
    ("bsdextrautils", "hexdump"),
    ("btrfs-progs", "Btrfs in images"),
    ("busybox-static", "user space of the lab"),
    ("cryptsetup-bin", "encrypted volumes (LUKS)"),
    ("dosfstools", "FAT in images"),
    ("e2fsprogs", "file systems that copies are checked with"),
    ("f2fs-tools", "F2FS in images"),
    ("fdisk", "sfdisk: partition tables"),
    ("fio", "workloads on what we serve"),
    ("fuse3", "fusermount3"),
    ("gcc", "programs in the place of the appliance's kernel"),
    ("genisoimage", "ISO 9660 images"),
    ("grub-efi-amd64-bin", "CDs that start by UEFI"),
    ("grub-pc-bin", "CDs that start by BIOS, and grub-mkrescue"),
    ("gzip", "compressed disks"),
    ("kmod", "tables of a kernel's modules in the lab"),
    ("libc6-dev", "the same, linked statically"),
    ("libcap2-bin", "setcap"),
    ("libqcow-utils", "qcow2, as somebody else reads it"),
    ("libvhdi-utils", "VHD and VHDX, as somebody else reads them"),
    ("libvmdk-utils", "VMDK, as somebody else reads it"),
    ("libarchive-tools", "bsdtar"),
    ("lvm2", "logical volumes"),
    ("lz4", "kernels as their packages compress them"),
    ("make", "trees that guests build"),
    ("mdadm", "RAIDs"),
    ("mmdebstrap", "a Debian that guests boot, and root directories of other Debians"),
    ("mtools", "what grub-mkrescue needs for UEFI"),
    ("python3", "a program on a disk"),
    ("python3-libluksde", "encrypted volumes, as somebody else reads them"),
    ("qemu-system-x86", "the lab's machine"),
    ("qemu-utils", "qemu-img, to compare with"),
    ("sqlite3", "a database on a disk"),
    ("squashfs-tools", "mksquashfs"),
    ("strace", "what a command executes"),
    ("user-mode-linux", "a Linux guest that needs no hypervisor"),
    ("util-linux", "losetup, unshare"),
    ("xfsprogs", "XFS in images"),
    ("xorriso", "grub-mkrescue's CDs"),
    ("xz-utils", "compressing kernel modules as distributions do, and disks"),
    ("zstd", "the same"),
];

/// Installs what is missing.
///
/// # Errors
/// When something is missing and this is not root, or apt-get fails.
pub(crate) fn setup() -> anyhow::Result<()> {
    install(PACKAGES)
}

/// Installs what of these packages is missing: name, and what for.
///
/// # Errors
/// As [`setup`].
pub(crate) fn install(packages: &[(&'static str, &'static str)]) -> anyhow::Result<()> {
    // One of another release may be taken away by what it does not go with, and is missing then.
    for _ in 0..2 {
        let missing = missing(packages);
        if missing.is_empty() {
            return Ok(());
        }
        for (name, purpose) in &missing {
            eprintln!("missing: {name} ({purpose})");
        }
        let names = names(&missing);
        if !is_root()? {
            bail!(
                "installing packages takes root: run `sudo apt-get update && sudo apt-get install --no-install-recommends {}`",
                names.join(" ")
            );
        }
        Archive::of_this_machine().update()?;
        run(apt_get(&["install", "--yes", "--no-install-recommends"]).args(names))?;
    }
    match &missing(packages)[..] {
        [] => Ok(()),
        missing => bail!("apt-get does not install these together with the others: {}", names(missing).join(" ")),
    }
}

fn missing(packages: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    packages.iter().filter(|(name, _)| !is_installed(name)).copied().collect()
}

fn names(packages: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    packages.iter().map(|(name, _)| *name).collect()
}

/// Where apt fetches packages from, without installing them.
#[derive(Debug)]
pub(crate) struct Archive {
    /// What apt's programs are told, besides what is in its configuration.
    options: Vec<String>,
}

impl Archive {
    /// This machine's, by the lists that it has.
    pub(crate) fn of_this_machine() -> Self {
        Self { options: Vec::new() }
    }

    /// The same sources for processors of another `architecture`, with lists of its own in `directory`, so that this
    /// machine's stay as they are.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn of(architecture: &str, directory: &Path) -> anyhow::Result<Self> {
        let (lists, cache, status) = (directory.join("lists"), directory.join("cache"), directory.join("status"));
        for needed in [lists.join("partial"), cache.join("archives/partial")] {
            fs::create_dir_all(&needed).with_context(|| format!("cannot make {}", needed.display()))?;
        }
        // Nothing is installed there.
        fs::write(&status, "").with_context(|| format!("cannot write {}", status.display()))?;
        Ok(Self {
            options: vec![
                format!("APT::Architecture={architecture}"),
                format!("APT::Architectures={architecture}"),
                format!("Dir::State::lists={}", lists.display()),
                format!("Dir::State::status={}", status.display()),
                format!("Dir::Cache={}", cache.display()),
            ],
        })
    }

    /// The packages' sources from where this machine has its packages, whether or not it is told to look for sources
    /// there, with lists of its own in `directory`.
    ///
    /// # Errors
    /// When apt's configuration cannot be read, or the directory not be made.
    pub(crate) fn of_sources(directory: &Path) -> anyhow::Result<Self> {
        let (lists, cache, parts) = (directory.join("lists"), directory.join("cache"), directory.join("sources"));
        for needed in [lists.join("partial"), cache.join("archives/partial"), parts.clone()] {
            fs::create_dir_all(&needed).with_context(|| format!("cannot make {}", needed.display()))?;
        }
        let mut files = vec![PathBuf::from(APT).join("sources.list")];
        // There may be none.
        let more = fs::read_dir(Path::new(APT).join("sources.list.d")).into_iter().flatten();
        files.extend(more.filter_map(|entry| Some(entry.ok()?.path())));
        for file in files.iter().filter(|file| file.exists()) {
            let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
            let name = file.file_name().context("a file without a name")?;
            let sources = match file.extension().and_then(OsStr::to_str) {
                Some("list") => sources_of_lines(&text),
                Some("sources") => sources_of_paragraphs(&text),
                _ => continue,
            };
            let part = parts.join(name);
            fs::write(&part, sources).with_context(|| format!("cannot write {}", part.display()))?;
        }
        Ok(Self {
            options: vec![
                format!("Dir::State::lists={}", lists.display()),
                format!("Dir::Cache={}", cache.display()),
                "Dir::Etc::sourcelist=/dev/null".to_owned(),
                format!("Dir::Etc::sourceparts={}", parts.display()),
            ],
        })
    }

    /// Brings the lists of packages up to date.
    ///
    /// # Errors
    /// When apt-get fails: without root where they are this machine's, for instance.
    pub(crate) fn update(&self) -> anyhow::Result<()> {
        run(&mut self.told(apt_get(&["update"]))?)
    }

    /// What `apt-cache depends` says of a package.
    ///
    /// # Errors
    /// When the lists do not have it.
    pub(crate) fn depends(&self, package: &str) -> anyhow::Result<String> {
        let mut command = Command::new("apt-cache");
        command.args(["depends", package]);
        output(&mut self.told(command)?)
    }

    /// Fetches a package's file to `directory`.
    ///
    /// # Errors
    /// When apt-get cannot reach it.
    pub(crate) fn download(&self, package: &str, directory: &Path) -> anyhow::Result<()> {
        run(self.told(apt_get(&["download", package]))?.current_dir(directory))
    }

    /// Fetches a package's source of exactly this version, and unpacks it in `directory`.
    ///
    /// # Errors
    /// When apt-get does not find that version, or cannot reach it.
    pub(crate) fn source(&self, package: &str, version: &str, directory: &Path) -> anyhow::Result<()> {
        run(self.told(apt_get(&["source", &format!("{package}={version}")]))?.current_dir(directory))
    }

    fn told(&self, mut command: Command) -> anyhow::Result<Command> {
        for option in &self.options {
            command.args(["--option", option]);
        }
        if is_root()? {
            // Else apt complains that its own user cannot write there.
            command.args(["--option", "APT::Sandbox::User=root"]);
        }
        Ok(command)
    }
}

/// What sources.list(5) says of sources, where it says the same of packages: in lines.
fn sources_of_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim_start);
    lines
        .filter_map(|line| Some(format!("deb-src{}\n", line.strip_prefix("deb").filter(|rest| is_apart(rest))?)))
        .collect()
}

fn is_apart(rest: &str) -> bool {
    rest.starts_with([' ', '\t', '['])
}

/// The same in paragraphs.
fn sources_of_paragraphs(text: &str) -> String {
    let is_types = |line: &str| line.split_once(':').is_some_and(|(field, _)| field.eq_ignore_ascii_case("types"));
    text.lines().map(|line| if is_types(line) { "Types: deb-src\n".to_owned() } else { format!("{line}\n") }).collect()
}

/// An `apt-get` that asks nothing and says little.
pub(crate) fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.arg("--quiet=2").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query.args(["--show", "--showformat=${db:Status-Status}", package]);
    output(&mut query).is_ok_and(|status| status == "installed")
}

/// Whether this process is root: without `unsafe`, `id` has to say.
pub(crate) fn is_root() -> anyhow::Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_come_from_where_packages_do() {
        let lines =
            "# deb http://a b c\ndeb [signed-by=/k] http://a b main\ndeb-src http://a b main\n\ndeb\thttp://c d/\n";
        assert_eq!(sources_of_lines(lines), "deb-src [signed-by=/k] http://a b main\ndeb-src\thttp://c d/\n");
        let paragraphs = "types: deb deb-src\nURIs: http://a\nSigned-By: /k\n\nTypes: deb\nURIs: http://b\n";
        let expected = "Types: deb-src\nURIs: http://a\nSigned-By: /k\n\nTypes: deb-src\nURIs: http://b\n";
        assert_eq!(sources_of_paragraphs(paragraphs), expected);
    }
}
