//! The host's programs that the appliance can run.

use std::env;
use std::path::PathBuf;

/// A program of the host's. Nothing of it is executed on the host.
#[derive(Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
    /// Libraries that it loads without saying so in its header.
    pub(crate) libraries: &'static [&'static str],
    /// Files that it reads: they are taken along where they are there.
    pub(crate) files: &'static [&'static str],
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package, libraries: &[], files: &[] }
}

/// Makes ext2, ext3 and ext4.
pub static MKE2FS: Tool = Tool { files: &["/etc/mke2fs.conf"], ..tool("mke2fs", "e2fsprogs") };
/// Checks them.
pub static E2FSCK: Tool = Tool { files: &["/etc/e2fsck.conf"], ..tool("e2fsck", "e2fsprogs") };
/// Labels them, among much else.
pub static TUNE2FS: Tool = tool("tune2fs", "e2fsprogs");
/// Makes them larger or smaller.
pub static RESIZE2FS: Tool = tool("resize2fs", "e2fsprogs");
/// Makes XFS.
pub static MKFS_XFS: Tool = tool("mkfs.xfs", "xfsprogs");
/// Checks it.
pub static XFS_REPAIR: Tool = tool("xfs_repair", "xfsprogs");
/// Labels it; xfs_admin is a shell script around it.
pub static XFS_DB: Tool = tool("xfs_db", "xfsprogs");
/// Makes Btrfs.
pub static MKFS_BTRFS: Tool = tool("mkfs.btrfs", "btrfs-progs");
/// Checks and labels it.
pub static BTRFS: Tool = tool("btrfs", "btrfs-progs");
/// Makes FAT.
pub static MKFS_VFAT: Tool = tool("mkfs.vfat", "dosfstools");
/// Checks it.
pub static FSCK_VFAT: Tool = tool("fsck.vfat", "dosfstools");
/// Labels it.
pub static FATLABEL: Tool = tool("fatlabel", "dosfstools");
/// Makes swap space.
pub static MKSWAP: Tool = tool("mkswap", "util-linux");
/// Labels it.
pub static SWAPLABEL: Tool = tool("swaplabel", "util-linux");
/// Says what is on a device.
pub static BLKID: Tool = tool("blkid", "util-linux");
/// Removes what says that.
pub static WIPEFS: Tool = tool("wipefs", "util-linux");
/// Logical volumes.
pub static LVM: Tool = tool("lvm", "lvm2");
/// RAIDs.
pub static MDADM: Tool = tool("mdadm", "mdadm");
/// Encrypted volumes. Ending a thread, as Argon2 does, loads libgcc_s.
pub static CRYPTSETUP: Tool = Tool { libraries: &["libgcc_s.so.1"], ..tool("cryptsetup", "cryptsetup-bin") };

/// All of them.
pub static ALL: [&Tool; 19] = [
    &MKE2FS,
    &E2FSCK,
    &TUNE2FS,
    &RESIZE2FS,
    &MKFS_XFS,
    &XFS_REPAIR,
    &XFS_DB,
    &MKFS_BTRFS,
    &BTRFS,
    &MKFS_VFAT,
    &FSCK_VFAT,
    &FATLABEL,
    &MKSWAP,
    &SWAPLABEL,
    &BLKID,
    &WIPEFS,
    &LVM,
    &MDADM,
    &CRYPTSETUP,
];

/// Where programs for root are, which not everybody's PATH has.
const USUAL_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

impl Tool {
    /// Where it is: in one of PATH's directories, or where such programs are.
    pub fn find(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = env::split_paths(&path).chain(USUAL_DIRECTORIES.map(PathBuf::from));
        directories.map(|directory| directory.join(self.program)).find(|program| program.is_file())
    }
}
