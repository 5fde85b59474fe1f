//! The initial file system, and what is appended to it for a kernel and a step: the kernel unpacks one archive after
//! the other.

use anyhow::{Context, Result, anyhow};
use blockyard_appliance::tools::program_with_libraries;
use blockyard_block::RootDirectory;
use blockyard_linux_guest::{Archive, BUSYBOX, Module, modules_in};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

/// What the test VM has besides busybox, and the Debian packages that bring it.
pub const PROGRAMS: [(&str, &str); 2] = [("dd", "coreutils"), ("fio", "fio")];

const INIT: &str = include_str!("init.sh");
/// Where programs and busybox are looked for in a root directory.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
/// Of busybox: those that are there have one or two MiB.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;
/// What an error of writing it says.
const WRITING: &str = "cannot write the initial file system";
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

/// Writes the initial file system of busybox, these programs of `root`'s and what they need; no link in `root` leads
/// out of it. Its init runs a step, or a shell where it is given none.
///
/// # Errors
/// When a program or a library is missing, or it cannot be written.
pub fn write_initramfs(to: impl Write, root: &Path, programs: &[&str]) -> Result<()> {
    let directory = opened(root)?;
    let busybox = found(&directory, "busybox").with_context(|| lacking(root, "busybox"))?;
    if !is_static(&busybox, root) {
        return Err(lacking(root, "static busybox"));
    }
    let busybox = directory.read(&busybox, "the program", PROGRAM_BYTES_MAX)?;
    let mut archive = Archive::new(BufWriter::new(to));
    add_base(&mut archive, &busybox).context(WRITING)?;
    let mut names = HashSet::new();
    for program in programs {
        let path = found(&directory, program).with_context(|| lacking(root, program))?;
        for (name, content) in program_with_libraries(&path, root)? {
            if names.insert(name.clone()) {
                archive.file(&name, &content).context(WRITING)?;
            }
        }
    }
    archive.finish().context(WRITING)?;
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

/// The Debian packages of busybox and of these programs, and of which of them the program is not on this machine.
pub fn packages<'a>(programs: &[&'a str]) -> (Vec<&'a str>, Vec<&'a str>) {
    let here = RootDirectory::of_this_machine();
    let lacking = programs.iter().copied().filter(|program| found(&here, program).is_none());
    let lacking = busybox().is_none().then_some("busybox").into_iter().chain(lacking).map(package).collect();
    (["busybox"].into_iter().chain(programs.iter().copied()).map(package).collect(), lacking)
}

/// This machine's busybox, if it is one for a test VM.
pub(crate) fn busybox() -> Option<PathBuf> {
    let busybox = found(&RootDirectory::of_this_machine(), "busybox")?;
    is_static(&busybox, Path::new("/")).then_some(busybox)
}

/// Whether a program needs nothing but itself.
fn is_static(program: &Path, root: &Path) -> bool {
    program_with_libraries(program, root).is_ok_and(|files| files.len() == 1)
}

/// The Debian package that brings a program.
fn package(program: &str) -> &str {
    let known = [("busybox", "busybox-static"), ("static busybox", "busybox-static")]
        .into_iter()
        .chain(PROGRAMS)
        .find(|(name, _)| *name == program);
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

fn opened(root: &Path) -> Result<RootDirectory> {
    Ok(if root == Path::new("/") { RootDirectory::of_this_machine() } else { RootDirectory::open(root)? })
}

/// A program's path in a root directory.
fn found(root: &RootDirectory, program: &str) -> Option<PathBuf> {
    let mut paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join(program));
    paths.find(|path| root.open_file(path, "the program").is_ok())
}

/// Writes the initial file system `base`, and the kernel's modules after it.
pub(crate) fn write_with_modules(to: &File, base: &File, modules: Option<&Path>) -> Result<()> {
    copy(base, to)?;
    let modules = match modules {
        Some(directory) => modules_in(directory, &MODULES)?,
        None => Vec::new(),
    };
    // By name, they are in the order in which they are loaded.
    let name = |(index, module): (usize, &Module)| format!("/testvm/modules/{index:02}-{}.ko", module.name);
    let names: Vec<_> = modules.iter().enumerate().map(name).collect();
    append(to, names.iter().map(String::as_str).zip(modules.iter().map(|module| &*module.content)))
}

/// Writes the initial file system `base`, and these files, by their absolute paths, after it.
pub(crate) fn write_with_files(to: &File, base: &File, files: &[(&str, &[u8])]) -> Result<()> {
    copy(base, to)?;
    append(to, files.iter().copied())
}

/// From its begin.
fn copy(mut from: &File, mut to: &File) -> Result<()> {
    from.rewind().and_then(|()| io::copy(&mut from, &mut to)).context(WRITING)?;
    Ok(())
}

fn append<'a>(to: &File, files: impl Iterator<Item = (&'a str, &'a [u8])>) -> Result<()> {
    let mut archive = Archive::new(BufWriter::new(to));
    for (name, content) in files {
        archive.file(Path::new(name), content).context(WRITING)?;
    }
    archive.finish().context(WRITING)?;
    Ok(())
}
