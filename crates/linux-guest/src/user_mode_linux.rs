//! Linux as an ordinary program.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From the Debian package user-mode-linux.
const PROGRAM: &str = "/usr/bin/linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";

/// Debian's User-Mode Linux.
#[derive(Clone, Debug)]
pub struct UserModeLinux {
    program: PathBuf,
    modules: PathBuf,
}

impl UserModeLinux {
    /// The installed one.
    ///
    /// # Errors
    /// When the package is not installed.
    pub fn find() -> anyhow::Result<Self> {
        let missing = "User-Mode Linux is not installed: run `apt-get install user-mode-linux`";
        if !Path::new(PROGRAM).exists() {
            bail!(missing);
        }
        let mut versions = fs::read_dir(MODULES).context(missing)?;
        let version = versions.next().context(missing)?.with_context(|| format!("cannot list {MODULES}"))?;
        Ok(Self { program: PROGRAM.into(), modules: version.path() })
    }

    /// The file of a module, by its path below the kernel's tree: `drivers/block/virtio_blk.ko`.
    pub fn module(&self, path: &str) -> PathBuf {
        self.modules.join("kernel").join(path)
    }

    /// A command that boots `initramfs` with `memory_mib` of memory, its console on stdin and stdout; it lacks what the guest
    /// boots into and its disks. Without the self-tests that make up nine tenths of a boot.
    pub fn command(&self, memory_mib: u32, initramfs: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("mem={memory_mib}M"))
            .arg(format!("initrd={}", initramfs.display()))
            .args(["rdinit=/init", "con=null", "con0=fd:0,fd:1", "quiet"])
            .args(["initcall_blacklist=raid6_select_algo,calibrate_xor_blocks", "cryptomgr.notests"]);
        command
    }

    /// The argument that attaches the disk served on `socket`: the first is /dev/vda.
    pub fn disk(socket: &Path) -> String {
        format!("virtio_uml.device={}:2", socket.display())
    }
}
