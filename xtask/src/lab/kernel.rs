//! Debian's kernel for virtual machines, fetched but not installed.

use crate::{output, packages, run};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Depends on the package of the current version.
const METAPACKAGE: &str = "linux-image-cloud-amd64";

/// Modules that make /dev/kvm on a processor with SVM, in the order in which they load.
const MODULES: [&str; 4] = ["irqbypass", "ccp", "kvm", "kvm-amd"];

/// A kernel on disk.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) version: String,
    pub(super) image: PathBuf,
    /// Files to load, in this order.
    pub(super) modules: Vec<PathBuf>,
}

/// The kernel under `directory`, fetched once.
///
/// # Errors
/// When apt knows no such package, cannot reach its archive, or the package is not as expected.
pub(super) fn fetch(directory: &Path) -> anyhow::Result<Kernel> {
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
    find(&kernel_directory).with_context(|| format!("{} (remove it to fetch it again)", kernel_directory.display()))
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

fn find(directory: &Path) -> anyhow::Result<Kernel> {
    let image = only_file(&directory.join("boot"), |name| name.starts_with("vmlinuz-"))?;
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    let version = name.trim_start_matches("vmlinuz-").to_owned();
    let tree = directory.join("lib/modules").join(&version);
    let modules = MODULES.into_iter().map(|module| module_file(&tree, module)).collect::<Result<_, _>>()?;
    Ok(Kernel { version, image, modules })
}

/// The file of a module, somewhere in a tree, compressed or not.
fn module_file(tree: &Path, module: &str) -> anyhow::Result<PathBuf> {
    let mut directories = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            } else if name.strip_prefix(module).is_some_and(|rest| [".ko", ".ko.xz"].contains(&rest)) {
                return Ok(entry.path());
            }
        }
    }
    bail!("no module {module} in {}", tree.display())
}

fn only_file(directory: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut found = entries.filter_map(Result::ok).filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry.path()),
        _ => bail!("not exactly one such file in {}", directory.display()),
    }
}
