//! The host's programs that the appliance can run.

use blockyard_block::programs;
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

/// Which tools there are.
macro_rules! tools {
    ($($(#[$documentation:meta])* $name:ident = $tool:expr;)+) => {
        $($(#[$documentation])* pub static $name: Tool = $tool;)+

        /// All of them.
        pub static ALL: &[&Tool] = &[$(&$name),+];
    };
}

tools! {
    /// Makes ext2, ext3 and ext4.
    MKE2FS = Tool { files: &["/etc/mke2fs.conf"], ..tool("mke2fs", "e2fsprogs") };
    /// Checks them.
    E2FSCK = Tool { files: &["/etc/e2fsck.conf"], ..tool("e2fsck", "e2fsprogs") };
    /// Labels them, among much else.
    TUNE2FS = tool("tune2fs", "e2fsprogs");
    /// Makes them larger or smaller.
    RESIZE2FS = tool("resize2fs", "e2fsprogs");
    /// Makes XFS.
    MKFS_XFS = tool("mkfs.xfs", "xfsprogs");
    /// Checks it.
    XFS_REPAIR = tool("xfs_repair", "xfsprogs");
    /// Labels it; xfs_admin is a shell script around it.
    XFS_DB = tool("xfs_db", "xfsprogs");
    /// Makes Btrfs.
    MKFS_BTRFS = tool("mkfs.btrfs", "btrfs-progs");
    /// Checks and labels it.
    BTRFS = tool("btrfs", "btrfs-progs");
    /// Makes FAT.
    MKFS_VFAT = tool("mkfs.vfat", "dosfstools");
    /// Checks it.
    FSCK_VFAT = tool("fsck.vfat", "dosfstools");
    /// Labels it.
    FATLABEL = tool("fatlabel", "dosfstools");
    /// Makes swap space.
    MKSWAP = tool("mkswap", "util-linux");
    /// Labels it.
    SWAPLABEL = tool("swaplabel", "util-linux");
    /// Says what is on a device.
    BLKID = tool("blkid", "util-linux");
    /// Removes what says that.
    WIPEFS = tool("wipefs", "util-linux");
    /// Logical volumes.
    LVM = tool("lvm", "lvm2");
    /// RAIDs.
    MDADM = tool("mdadm", "mdadm");
    /// Encrypted volumes. Ending a thread, as Argon2 does, loads libgcc_s.
    CRYPTSETUP = Tool { libraries: &["libgcc_s.so.1"], ..tool("cryptsetup", "cryptsetup-bin") };
}

/// Debian's packages that they are in, and what is lacking without each.
pub const PACKAGES: [(&str, &str); 8] = [
    ("e2fsprogs", "making, checking and labelling ext2, ext3 and ext4 in images"),
    ("xfsprogs", "making, checking and labelling XFS in images"),
    ("btrfs-progs", "making, checking and labelling Btrfs in images"),
    ("dosfstools", "making, checking and labelling FAT in images"),
    ("util-linux", "making and labelling swap space in images"),
    ("lvm2", "logical volumes in images"),
    ("mdadm", "RAIDs in images"),
    ("cryptsetup-bin", "encrypted volumes in images"),
];

/// Where programs for root are, which not everybody's PATH has.
const USUAL_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

impl Tool {
    /// Where it is: in one of PATH's directories, or where such programs are.
    pub fn find(&self) -> Option<PathBuf> {
        let directories = programs::directories().into_iter().chain(USUAL_DIRECTORIES.map(PathBuf::from));
        directories.map(|directory| directory.join(self.program)).find(|program| program.is_file())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_in_a_package_that_is_told() {
        for tool in ALL {
            assert!(PACKAGES.iter().any(|(package, _)| *package == tool.package), "{}", tool.program);
        }
    }
}
