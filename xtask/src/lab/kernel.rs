//! Debian's kernels, fetched but not installed.

use crate::packages::Archive;
use crate::run;
use anyhow::Context;
use blockyard_linux_guest::{DebianKernel, only_file};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel of Debian's.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Depends on the package of the current version.
    metapackage: &'static str,
    /// Where it is unpacked.
    directory: &'static str,
    /// Debian's name for the processors that it is for, unless they are this machine's.
    architecture: Option<&'static str>,
    /// Packages of the same architecture that are unpacked with it.
    beside: &'static [&'static str],
}

impl Source {
    const fn of_this_machine(metapackage: &'static str, directory: &'static str) -> Self {
        Self { metapackage, directory, architecture: None, beside: &[] }
    }
}

/// The lab's own, for virtual machines: it knows virtio, and no other disks.
const CLOUD: Source = Source::of_this_machine("linux-image-cloud-amd64", "kernel");
/// The one that Debian installs on a PC.
const GENERIC: Source = Source::of_this_machine("linux-image-amd64", "kernel-generic");
/// The one that Debian installs on a PC of 32 bits, with a user space that it can execute.
const PAE: Source = Source {
    metapackage: "linux-image-686-pae",
    directory: "kernel-686-pae",
    architecture: Some("i386"),
    beside: &["busybox-static"],
};

/// Makes /dev/kvm on a processor with SVM.
const MODULE: &str = "kvm_amd";
/// What the guests of the lab's tests load that boot the same kernel.
const GUEST_MODULES: [&str; 5] = ["virtio_pci", "virtio_mmio", "virtio_blk", "virtio_rng", "virtiofs"];

/// What guests load that boot a PC's kernel: disks of all kinds, and ext4, which has its checksums by another module.
const PC_GUEST_MODULES: [&str; 8] =
    ["virtio_pci", "virtio_mmio", "virtio_blk", "virtiofs", "ahci", "sd_mod", "crc32c_generic", "ext4"];

/// A kernel that guests in the lab boot.
#[derive(Debug)]
pub(super) struct GuestKernel {
    /// Where it lies below the directory that `BLOCKYARD_LAB_GUEST` names.
    pub(super) place: &'static str,
    pub(super) kernel: DebianKernel,
    /// What it can execute, if that is not the lab's own busybox.
    pub(super) busybox: Option<PathBuf>,
}

/// The lab's own kernel under `directory`, fetched once.
///
/// # Errors
/// When apt knows no such package, cannot reach its archive, or the package is not as expected.
pub(super) fn fetch(directory: &Path) -> anyhow::Result<DebianKernel> {
    find(directory, CLOUD, &[MODULE])
}

/// The same kernel with the modules that guests in the lab load, fetched once.
///
/// # Errors
/// As [`fetch`].
pub(super) fn of_cloud_guests(directory: &Path) -> anyhow::Result<DebianKernel> {
    find(directory, CLOUD, &GUEST_MODULES)
}

/// The kernels that guests in the lab boot, with the modules that they load, fetched once.
///
/// # Errors
/// As [`fetch`].
pub(super) fn of_guests(directory: &Path) -> anyhow::Result<Vec<GuestKernel>> {
    let pae = find(directory, PAE, &PC_GUEST_MODULES)?;
    Ok(vec![
        GuestKernel { place: "", kernel: of_cloud_guests(directory)?, busybox: None },
        GuestKernel { place: "generic", kernel: find(directory, GENERIC, &PC_GUEST_MODULES)?, busybox: None },
        GuestKernel { place: "686-pae", kernel: pae, busybox: Some(directory.join(PAE.directory).join("bin/busybox")) },
    ])
}

fn find(directory: &Path, source: Source, modules: &[&str]) -> anyhow::Result<DebianKernel> {
    let kernel_directory = directory.join(source.directory);
    if !kernel_directory.exists() {
        // Beside its name, and renamed when complete: what is there is whole.
        let incomplete = kernel_directory.with_extension("incomplete");
        if incomplete.exists() {
            fs::remove_dir_all(&incomplete).context("cannot remove what an earlier fetch left")?;
        }
        fs::create_dir_all(&incomplete).with_context(|| format!("cannot create {}", incomplete.display()))?;
        unpack(source, &incomplete)?;
        fs::rename(&incomplete, &kernel_directory).context("cannot rename the kernel's directory")?;
    }
    DebianKernel::find(&kernel_directory, modules)
        .with_context(|| format!("{} (remove it to fetch it again)", kernel_directory.display()))
}

fn unpack(source: Source, directory: &Path) -> anyhow::Result<()> {
    let lists = directory.join("apt");
    let archive = match source.architecture {
        None => Archive::of_this_machine(),
        Some(architecture) => Archive::of(architecture, &lists)?,
    };
    let kernel = match kernel_package(&archive, source.metapackage) {
        Ok(package) => package,
        // A machine whose lists were never fetched.
        Err(_) => {
            // One of several sources may be changing just now: what counts is whether the others have it.
            let updated = archive.update();
            let found = kernel_package(&archive, source.metapackage);
            found.map_err(|error| updated.err().unwrap_or(error))?
        }
    };
    eprintln!("lab: fetching {kernel}");
    if archive.download(&kernel, directory).is_err() {
        // The lists name a version that the archive has no longer.
        archive.update()?;
        archive.download(&kernel_package(&archive, source.metapackage)?, directory)?;
    }
    extract(directory)?;
    for package in source.beside {
        archive.download(package, directory)?;
        extract(directory)?;
    }
    if lists.exists() {
        fs::remove_dir_all(&lists).context("cannot remove apt's lists")?;
    }
    Ok(())
}

/// Unpacks the package that was downloaded to `directory`, there.
fn extract(directory: &Path) -> anyhow::Result<()> {
    let package = only_file(directory, |name| name.ends_with(".deb"))?;
    run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(directory))?;
    fs::remove_file(&package).with_context(|| format!("cannot remove {}", package.display()))
}

/// The package that a metapackage stands for.
fn kernel_package(archive: &Archive, metapackage: &str) -> anyhow::Result<String> {
    let depends = archive.depends(metapackage)?;
    let found = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    found.map(|rest| format!("linux-image-{rest}")).with_context(|| format!("{metapackage} depends on no kernel"))
}
