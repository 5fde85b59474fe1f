//! Debian's kernel for virtual machines, fetched but not installed.

use crate::{output, packages, run};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Depends on the package of the current version.
const METAPACKAGE: &str = "linux-image-cloud-amd64";

/// Makes /dev/kvm on a processor with SVM.
const MODULE: &str = "kvm_amd";

/// A kernel on disk.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) version: String,
    pub(super) image: PathBuf,
    /// To load, in this order.
    pub(super) modules: Vec<Module>,
}

/// A module of the kernel.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) content: Vec<u8>,
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
    let mut modules = Vec::new();
    add_module(&module_files(&tree)?, MODULE, &mut modules)?;
    Ok(Kernel { version, image, modules })
}

/// Adds a module after those it depends on, which differ from one kernel to the next.
fn add_module(files: &BTreeMap<String, PathBuf>, name: &str, modules: &mut Vec<Module>) -> anyhow::Result<()> {
    if modules.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let file = files.get(name).with_context(|| format!("the kernel has no module {name}"))?;
    let content = module_content(file)?;
    for dependency in dependencies(&content) {
        add_module(files, &dependency, modules)?;
    }
    modules.push(Module { name: name.to_owned(), content });
    Ok(())
}

/// What a module says it depends on: `depends=a,b` and a zero byte, in its section .modinfo.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn module_content(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    }
    let output = Command::new("xz").args(["--decompress", "--stdout"]).arg(file).output().context("cannot run xz")?;
    if !output.status.success() {
        bail!("xz cannot decompress {}", file.display());
    }
    Ok(output.stdout)
}

/// The modules in a tree, compressed or not, by name.
fn module_files(tree: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let (mut directories, mut files) = (vec![tree.to_owned()], BTreeMap::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            } else if let Some(name) = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz")) {
                files.insert(name.replace('-', "_"), entry.path());
            }
        }
    }
    Ok(files)
}

fn only_file(directory: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut found = entries.filter_map(Result::ok).filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry.path()),
        _ => bail!("not exactly one such file in {}", directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(dependencies(b"\x7fELF..\0license=GPL\0depends=kvm,irq-bypass\0name=x\0"), ["kvm", "irq_bypass"]);
        assert!(dependencies(b"\0depends=\0").is_empty());
        assert!(dependencies(b"nothing").is_empty());
    }
}
