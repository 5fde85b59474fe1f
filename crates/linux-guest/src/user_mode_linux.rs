//! Linux as an ordinary program.

use crate::{Guest, write_initramfs};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// From the Debian package user-mode-linux.
const PROGRAM: &str = "/usr/bin/linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";

/// The shared library that User-Mode Linux is started with (`LD_PRELOAD`): `guests/preload` says what for.
pub const PRELOAD: &[u8] = include_bytes!(env!("BLOCKYARD_PRELOAD"));

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

    /// Boots it with `memory_mib` of memory and the disk that is served on `socket`, /dev/vda, to run the lines of
    /// `script`, for no longer than `timeout`. The files that it takes are made in `directory`.
    ///
    /// # Errors
    /// When one of them cannot be made, or it cannot be started.
    pub fn boot(
        &self,
        memory_mib: u32,
        directory: &Path,
        socket: &Path,
        script: &str,
        timeout: Duration,
    ) -> anyhow::Result<Guest> {
        let module = self.modules.join("kernel/drivers/block/virtio_blk.ko");
        let module = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
        let initramfs = directory.join("uml.cpio");
        write_initramfs(&initramfs, &[("virtio_blk.ko", &module)], script)?;
        let library = directory.join("preload.so");
        fs::write(&library, PRELOAD).with_context(|| format!("cannot write {}", library.display()))?;
        let mut command = self.command(memory_mib, &initramfs);
        command.env("LD_PRELOAD", library);
        command.arg(format!("virtio_uml.device={}:2", socket.display())).env("TMPDIR", directory);
        Guest::start(command, timeout)
    }

    /// A command that boots `initramfs` with `memory_mib` of memory, its console on stdin and stdout; it lacks its
    /// disks. Without the self-tests that make up nine tenths of a boot.
    fn command(&self, memory_mib: u32, initramfs: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(format!("mem={memory_mib}M"))
            .arg(format!("initrd={}", initramfs.display()))
            .args(["rdinit=/init", "con=null", "con0=fd:0,fd:1", "quiet"])
            .args(["initcall_blacklist=raid6_select_algo,calibrate_xor_blocks", "cryptomgr.notests"]);
        command
    }
}
