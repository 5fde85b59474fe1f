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

/// A device that another process serves over vhost-user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// virtio-blk.
    Disk,
    /// virtio-fs, to be mounted by its tag.
    Share,
}

impl Device {
    /// As in virtio 1.2 §5.
    fn number(self) -> u32 {
        match self {
            Self::Disk => 2,
            Self::Share => 26,
        }
    }

    /// What drives it, in the order in which that is loaded.
    fn modules(self) -> &'static [&'static str] {
        match self {
            Self::Disk => &["drivers/block/virtio_blk.ko"],
            Self::Share => &["fs/fuse/fuse.ko", "fs/fuse/virtiofs.ko"],
        }
    }
}

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
        self.boot_with(memory_mib, directory, &[(Device::Disk, socket)], script, timeout)
    }

    /// As [`UserModeLinux::boot`], with devices that are served on these sockets.
    ///
    /// # Errors
    /// As there.
    pub fn boot_with(
        &self,
        memory_mib: u32,
        directory: &Path,
        devices: &[(Device, &Path)],
        script: &str,
        timeout: Duration,
    ) -> anyhow::Result<Guest> {
        let mut names: Vec<_> = devices.iter().flat_map(|(device, _)| device.modules()).copied().collect();
        names.dedup();
        let modules = names.iter().map(|name| {
            let module = self.modules.join("kernel").join(name);
            fs::read(&module).with_context(|| format!("cannot read {}", module.display()))
        });
        let modules = modules.collect::<anyhow::Result<Vec<_>>>()?;
        let modules = names.iter().zip(&modules).map(|(name, module)| {
            let (_, name) = name.rsplit_once('/').unwrap_or_default();
            (name, &module[..])
        });
        let initramfs = directory.join("uml.cpio");
        write_initramfs(&initramfs, &modules.collect::<Vec<_>>(), script)?;
        let library = directory.join("preload.so");
        fs::write(&library, PRELOAD).with_context(|| format!("cannot write {}", library.display()))?;
        let mut command = self.command(memory_mib, &initramfs);
        command.env("LD_PRELOAD", library).env("TMPDIR", directory);
        for (device, socket) in devices {
            command.arg(format!("virtio_uml.device={}:{}", socket.display(), device.number()));
        }
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
