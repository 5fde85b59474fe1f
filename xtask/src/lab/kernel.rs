//! Debian's kernels, fetched but not installed.

use crate::{output, packages, run};
use anyhow::Context;
use blockyard_linux_guest::{DebianKernel, only_file};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A kernel of Debian's.
#[derive(Clone, Copy, Debug)]
struct Source {
    /// Depends on the package of the current version.
    metapackage: &'static str,
    /// Where it is unpacked.
    directory: &'static str,
}

/// The lab's own, for virtual machines: it knows virtio, and no other disks.
const CLOUD: Source = Source { metapackage: "linux-image-cloud-amd64", directory: "kernel" };
/// The one that Debian installs on a PC.
const GENERIC: Source = Source { metapackage: "linux-image-amd64", directory: "kernel-generic" };

/// Makes /dev/kvm on a processor with SVM.
const MODULE: &str = "kvm_amd";
/// What the guests of the lab's tests load that boot the same kernel.
const GUEST_MODULES: [&str; 5] = ["virtio_pci", "virtio_mmio", "virtio_blk", "virtio_rng", "virtiofs"];

/// What guests load that boot the generic kernel: disks behind AHCI, and ext4, which has its checksums by another
/// module.
const GENERIC_GUEST_MODULES: [&str; 4] = ["ahci", "sd_mod", "crc32c_generic", "ext4"];

/// A kernel that guests in the lab boot.
#[derive(Debug)]
pub(super) struct GuestKernel {
    /// Where it lies below the directory that `BLOCKYARD_LAB_GUEST` names.
    pub(super) place: &'static str,
    pub(super) kernel: DebianKernel,
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
    Ok(vec![
        GuestKernel { place: "", kernel: of_cloud_guests(directory)? },
        GuestKernel { place: "generic", kernel: find(directory, GENERIC, &GENERIC_GUEST_MODULES)? },
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
        unpack(source.metapackage, &incomplete)?;
        fs::rename(&incomplete, &kernel_directory).context("cannot rename the kernel's directory")?;
    }
    DebianKernel::find(&kernel_directory, modules)
        .with_context(|| format!("{} (remove it to fetch it again)", kernel_directory.display()))
}

fn unpack(metapackage: &str, directory: &Path) -> anyhow::Result<()> {
    let package = match package(metapackage) {
        Ok(package) => package,
        // A machine whose lists were never fetched.
        Err(_) => {
            packages::update()?;
            package(metapackage)?
        }
    };
    eprintln!("lab: fetching {package}");
    if run(download(&package, directory)?.current_dir(directory)).is_err() {
        // The lists name a version that the archive has no longer.
        packages::update()?;
        run(download(&self::package(metapackage)?, directory)?.current_dir(directory))?;
    }
    let archive = only_file(directory, |name| name.ends_with(".deb"))?;
    run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(directory))?;
    fs::remove_file(&archive).context("cannot remove the kernel's package")
}

/// The package that a metapackage stands for.
fn package(metapackage: &str) -> anyhow::Result<String> {
    let depends = output(Command::new("apt-cache").args(["depends", metapackage]))?;
    let found = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    found.map(|rest| format!("linux-image-{rest}")).with_context(|| format!("{metapackage} depends on no kernel"))
}

fn download(package: &str, directory: &Path) -> anyhow::Result<Command> {
    let mut command = packages::apt_get(&["download", package]);
    if packages::is_root()? {
        // Else apt complains that its own user cannot write here.
        command.args(["--option", "APT::Sandbox::User=root"]);
    }
    command.current_dir(directory);
    Ok(command)
}
