//! What a lab has of a distribution, for appliances: a kernel in /boot with its modules, and the programs that
//! appliances and their tests execute.

use super::initramfs::{libraries, stripped};
use crate::run;
use anyhow::{Context, bail};
use blockyard_linux_guest::{Archive, DebianKernel};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the kernel's modules, those that file systems and volumes may need, below `kernel`.
const MODULES: [&str; 8] =
    ["arch/x86/crypto", "crypto", "drivers/block", "drivers/md", "drivers/virtio", "fs", "lib", "security"];
const TABLES: [&str; 2] = ["modules.dep", "modules.alias"];

/// Those of the table of tools in crates/appliance/src/tools/tool.rs, and what their tests execute besides.
const PROGRAMS: [&str; 35] = [
    "blkid",
    "btrfs",
    "cp",
    "cryptsetup",
    "debugfs",
    "diff",
    "dumpe2fs",
    "e2fsck",
    "e2label",
    "fatlabel",
    "fsck.vfat",
    "lvm",
    "mdadm",
    "mke2fs",
    "mkfs.btrfs",
    "mkfs.vfat",
    "mkfs.xfs",
    "mknod",
    "mkswap",
    "qemu-img",
    "resize2fs",
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
    "getfattr",
];
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Files that they read.
const FILES: [&str; 1] = ["/etc/mke2fs.conf"];

/// Adds it to `archive`.
///
/// # Errors
/// When something of it cannot be read, or depmod is not installed.
pub(super) fn pack(archive: &mut Archive<impl Write>, kernel: &DebianKernel) -> anyhow::Result<()> {
    let image = fs::read(&kernel.image).with_context(|| format!("cannot read {}", kernel.image.display()))?;
    archive.file(&Path::new("/boot").join(format!("vmlinuz-{}", kernel.version)), &image)?;
    let root = kernel.image.parent().and_then(Path::parent).context("a kernel that lies nowhere")?;
    pack_modules(archive, root, &kernel.version)?;
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
fn pack_modules(archive: &mut Archive<impl Write>, root: &Path, version: &str) -> anyhow::Result<()> {
    let modules = root.join("lib/modules").join(version);
    let lab = Path::new("/lib/modules").join(version);
    let depmod = find("depmod").context("there is no depmod here: run `cargo xtask setup`")?;
    run(Command::new(depmod).arg("--basedir").arg(root).arg(version).env_remove("PATH"))?;
    for table in TABLES {
        archive.file(&lab.join(table), &fs::read(modules.join(table)).context("depmod has written no tables")?)?;
    }
    for directory in MODULES {
        pack_tree(archive, &modules.join("kernel").join(directory), &lab.join("kernel").join(directory))?;
    }
    Ok(())
}

fn pack_tree(archive: &mut Archive<impl Write>, from: &Path, to: &Path) -> anyhow::Result<()> {
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
