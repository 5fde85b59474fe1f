//! The initial file system, and what is appended to it for a kernel and a step: the kernel unpacks one archive after
//! the other.

use crate::guest::Guest;
use anyhow::{Context, Result, anyhow};
use blockyard_appliance::tools::program_with_libraries;
use blockyard_linux_guest::{Archive, BUSYBOX, modules_in};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What the test VM has besides busybox, and the Debian packages that bring it.
pub const PROGRAMS: [(&str, &str); 2] = [("dd", "coreutils"), ("fio", "fio")];

const INIT: &str = include_str!("init.sh");
/// Where programs and busybox are looked for in a root directory.
const DIRECTORIES: [&str; 4] = ["usr/bin", "bin", "usr/sbin", "sbin"];
/// What drives disks and shares. What of it a kernel has no module of, it has built in or does without.
const MODULES: [&str; 10] = [
    "virtio_pci",
    "virtio_mmio",
    "virtio_blk",
    "virtiofs",
    "ahci",
    "sd_mod",
    "virtio_rng",
    // ext4's checksums, which it asks for when it mounts.
    "crc32c_generic",
    "ext4",
    "ext2",
];

/// Writes the initial file system of busybox, these programs of `root`'s and what they need. Its init runs a step, or a
/// shell where it is given none.
///
/// # Errors
/// When a program or a library is missing, or the archive cannot be written.
pub fn write_initramfs(path: &Path, root: &Path, programs: &[&str]) -> Result<()> {
    let busybox = found(root, "busybox").and_then(|path| fs::read(path).ok());
    let busybox = busybox.with_context(|| lacking(root, "busybox"))?;
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    let written = add_base(&mut archive, &busybox);
    written.with_context(|| format!("cannot write {}", path.display()))?;
    let mut names = HashSet::new();
    for program in programs {
        let file = found(root, program).with_context(|| lacking(root, program))?;
        for (name, content) in program_with_libraries(&file, root)? {
            if names.insert(name.clone()) {
                archive.file(&name, &content).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
    }
    archive.finish().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(())
}

fn add_base<W: Write>(archive: &mut Archive<W>, busybox: &[u8]) -> io::Result<()> {
    for directory in ["/dev", "/proc", "/sys", "/tmp", "/mnt", "/results", "/testvm", "/sbin", "/usr/bin", "/usr/sbin"]
    {
        archive.directory(Path::new(directory))?;
    }
    archive.character_device(Path::new("/dev/console"), 5, 1)?;
    archive.file(Path::new(BUSYBOX), busybox)?;
    archive.file(Path::new("/init"), INIT.as_bytes())
}

/// The Debian packages of busybox and of these programs, and which of them are not below `root`.
pub fn missing<'a>(root: &Path, programs: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let wanted = ["busybox"].into_iter().chain(programs.iter().copied());
    let lacks = wanted.clone().filter(|program| found(root, program).is_none()).collect();
    (wanted.map(package).collect(), lacks)
}

/// The Debian package that brings a program.
fn package(program: &str) -> &str {
    let known = [("busybox", "busybox-static")].into_iter().chain(PROGRAMS).find(|(name, _)| *name == program);
    known.map_or(program, |(_, package)| package)
}

fn lacking(root: &Path, program: &str) -> anyhow::Error {
    anyhow!(
        "there is no {program} below {}: run `apt-get install {}`, leave --root out so that the package is fetched, or \
         name a directory with --root that has it",
        root.display(),
        package(program)
    )
}

fn found(root: &Path, program: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| root.join(directory).join(program)).find(|path| path.is_file())
}

/// Writes the initial file system `base` with the kernel's modules and these files, by their absolute paths, after it.
pub(crate) fn write_with(path: &Path, base: &Path, guest: &Guest, files: &[(&str, &[u8])]) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(context)?);
    let mut base_file = File::open(base).with_context(|| format!("cannot read {}", base.display()))?;
    io::copy(&mut base_file, &mut file).with_context(context)?;
    let modules = match &guest.modules {
        Some(directory) => modules_in(directory, &MODULES)?,
        None => Vec::new(),
    };
    let mut archive = Archive::new(file);
    for (index, module) in modules.iter().enumerate() {
        // By name, they are in the order in which they are loaded.
        let name = format!("/testvm/modules/{index:02}-{}.ko", module.name);
        archive.file(Path::new(&name), &module.content).with_context(context)?;
    }
    for (name, content) in files {
        archive.file(Path::new(name), content).with_context(context)?;
    }
    archive.finish().with_context(context)?;
    Ok(())
}
