//! Debian's kernel for virtual machines, fetched but not installed.

use crate::{output, packages, run};
use anyhow::Context;
use blockyard_linux_guest::{DebianKernel, only_file};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Depends on the package of the current version.
const METAPACKAGE: &str = "linux-image-cloud-amd64";

/// Makes /dev/kvm on a processor with SVM.
const MODULE: &str = "kvm_amd";
/// What the guests of the lab's tests load, that boot the same kernel.
const GUEST_MODULES: [&str; 5] = ["virtio_pci", "virtio_mmio", "virtio_blk", "virtio_rng", "virtiofs"];

/// The kernel under `directory`, fetched once.
///
/// # Errors
/// When apt knows no such package, cannot reach its archive, or the package is not as expected.
pub(super) fn fetch(directory: &Path) -> anyhow::Result<DebianKernel> {
    find(directory, &[MODULE])
}

/// The same kernel with the modules that guests in the lab load, once it is [fetched](fetch).
///
/// # Errors
/// As [`fetch`].
pub(super) fn of_guests(directory: &Path) -> anyhow::Result<DebianKernel> {
    find(directory, &GUEST_MODULES)
}

fn find(directory: &Path, modules: &[&str]) -> anyhow::Result<DebianKernel> {
    let kernel_directory = directory.join("kernel");
    if !kernel_directory.exists() {
        // Beside its name, and renamed when complete: what is there is whole.
        let incomplete = directory.join("kernel.incomplete");
        if incomplete.exists() {
            fs::remove_dir_all(&incomplete).context("cannot remove what an earlier fetch left")?;
        }
        fs::create_dir_all(&incomplete).with_context(|| format!("cannot create {}", incomplete.display()))?;
        unpack(&incomplete)?;
        fs::rename(&incomplete, &kernel_directory).context("cannot rename the kernel's directory")?;
    }
    DebianKernel::find(&kernel_directory, modules)
        .with_context(|| format!("{} (remove it to fetch it again)", kernel_directory.display()))
}

fn unpack(directory: &Path) -> anyhow::Result<()> {
    let package = match package() {
        Ok(package) => package,
        // A machine whose lists were never fetched.
        Err(_) => {
            packages::update()?;
            package()?
        }
    };
    eprintln!("lab: fetching {package}");
    if run(download(&package, directory)?.current_dir(directory)).is_err() {
        // The lists name a version that the archive has no longer.
        packages::update()?;
        run(download(&self::package()?, directory)?.current_dir(directory))?;
    }
    let archive = only_file(directory, |name| name.ends_with(".deb"))?;
    run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(directory))?;
    fs::remove_file(&archive).context("cannot remove the kernel's package")
}

/// The package that the metapackage stands for.
fn package() -> anyhow::Result<String> {
    let depends = output(Command::new("apt-cache").args(["depends", METAPACKAGE]))?;
    let found = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    found.map(|rest| format!("linux-image-{rest}")).with_context(|| format!("{METAPACKAGE} depends on no kernel"))
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
