//! What a lab has of a distribution, for appliances: a kernel in /boot with its modules, and the programs that
//! appliances and their tests execute.

use super::initramfs::{libraries, stripped};
use crate::run;
use anyhow::{Context, bail};
use blockyard_linux_guest::{Archive, DebianKernel};
use liblzma::read::XzEncoder;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the kernel's modules, those that file systems and volumes may need, below `kernel`, and how they are compressed:
/// in every way that distributions have, as appliances read all of them.
const MODULES: [(&str, Compression); 8] = [
    ("arch/x86/crypto", Compression::None),
    ("crypto", Compression::None),
    ("drivers/block", Compression::Xz),
    ("drivers/md", Compression::Xz),
    ("drivers/virtio", Compression::Zstd),
    ("fs", Compression::Zstd),
    ("lib", Compression::Xz),
    ("security", Compression::None),
];

/// How the modules lie there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Modules {
    /// As Debian's package has them.
    AsTheyAre,
    Compressed,
}

#[derive(Clone, Copy)]
enum Compression {
    None,
    Xz,
    Zstd,
}

/// What depmod(8) reads besides modules.
const LISTS: [&str; 3] = ["modules.builtin", "modules.builtin.modinfo", "modules.order"];

/// Those of the table of tools in crates/appliance/src/tools/tool.rs, and what their tests execute besides.
const PROGRAMS: [&str; 46] = [
    "bash",
    "blkid",
    "btrfs",
    "cksum",
    "cp",
    "cryptsetup",
    "debugfs",
    "diff",
    "dumpe2fs",
    "e2fsck",
    "e2label",
    "fatlabel",
    "fsck.vfat",
    "genisoimage",
    "getfacl",
    "getfattr",
    "lvm",
    "mdadm",
    "mke2fs",
    "mkfs.btrfs",
    "mkfs.f2fs",
    "mkfs.minix",
    "mkfs.vfat",
    "mkfs.xfs",
    "mksquashfs",
    "mknod",
    "mkswap",
    "qemu-img",
    "qemu-io",
    "resize2fs",
    "script",
    "setcap",
    "setfacl",
    "setfattr",
    "setpriv",
    "setsid",
    "sfdisk",
    "strace",
    "swaplabel",
    "tar",
    "tune2fs",
    "unshare",
    "wipefs",
    "xfs_db",
    "xfs_io",
    "xfs_repair",
];
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Files that they read; cryptsetup's threads want the library when they end.
const FILES: [&str; 2] = ["/etc/mke2fs.conf", "/lib/x86_64-linux-gnu/libgcc_s.so.1"];

/// Adds it to `archive`.
///
/// # Errors
/// When something of it cannot be read, or depmod is not installed.
pub(super) fn pack(archive: &mut Archive<impl Write>, kernel: &DebianKernel, modules: Modules) -> anyhow::Result<()> {
    let image = fs::read(&kernel.image).with_context(|| format!("cannot read {}", kernel.image.display()))?;
    archive.file(&Path::new("/boot").join(format!("vmlinuz-{}", kernel.version)), &image)?;
    let root = kernel.image.parent().and_then(Path::parent).context("a kernel that lies nowhere")?;
    pack_modules(archive, root, &kernel.version, modules)?;
    let mut files: BTreeSet<_> = FILES.iter().map(PathBuf::from).filter(|file| file.is_file()).collect();
    for program in PROGRAMS {
        let Some(path) = find(program) else { bail!("there is no {program} here: run `cargo xtask setup`") };
        files.extend(libraries(&path)?);
        files.insert(path);
    }
    for file in files {
        archive.file(&file, &stripped(&file)?)?;
    }
    Ok(())
}

fn find(program: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(program)).find(|path| path.is_file())
}

/// The modules, and the tables that installing the kernel would have written.
fn pack_modules(archive: &mut Archive<impl Write>, root: &Path, version: &str, modules: Modules) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir().context("cannot create a temporary directory")?;
    let tree = Path::new("lib/modules").join(version);
    let (from, to) = (root.join(&tree), temporary.path().join(&tree));
    for (directory, compression) in MODULES {
        let directory = Path::new("kernel").join(directory);
        let compression = if modules == Modules::Compressed { compression } else { Compression::None };
        copy_modules(&from.join(&directory), &to.join(&directory), compression)?;
    }
    for list in LISTS {
        fs::copy(from.join(list), to.join(list)).with_context(|| format!("the kernel has no {list}"))?;
    }
    let depmod = find("depmod").context("there is no depmod here: run `cargo xtask setup`")?;
    run(Command::new(depmod).arg("--basedir").arg(temporary.path()).arg(version).env_remove("PATH"))?;
    pack_tree(archive, &to, &Path::new("/").join(tree))
}

/// Copies the modules in a tree, if it is there.
fn copy_modules(from: &Path, to: &Path, compression: Compression) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_modules(&path, &copy, compression)?;
            continue;
        }
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let (ending, content) = compressed(content, compression)?;
        let copy = PathBuf::from(copy.into_os_string().into_string().unwrap_or_default() + ending);
        fs::write(&copy, content).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    Ok(())
}

/// What the name of such a module has at its end, and the module.
fn compressed(module: Vec<u8>, compression: Compression) -> anyhow::Result<(&'static str, Vec<u8>)> {
    Ok(match compression {
        Compression::None => ("", module),
        Compression::Xz => {
            let mut encoded = Vec::new();
            XzEncoder::new(&module[..], 0).read_to_end(&mut encoded).context("cannot compress a module by xz")?;
            (".xz", encoded)
        }
        Compression::Zstd => (".zst", zstd::encode_all(&module[..], 1).context("cannot compress a module by zstd")?),
    })
}

/// Adds the files below `from`, if there are any, as those below `to`.
///
/// # Errors
/// When one cannot be read.
pub(super) fn pack_tree(archive: &mut Archive<impl Write>, from: &Path, to: &Path) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
        let (path, name) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            pack_tree(archive, &path, &name)?;
        } else {
            archive.file(&name, &fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?)?;
        }
    }
    Ok(())
}
