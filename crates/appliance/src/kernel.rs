//! The appliance's kernel, as it is found on the machine.

use blockyard_block::{programs, shown};
use blockyard_confinement::program_filter::Executes;
use rustix::fs::{Access, access};
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Names the kernel where it is not in the usual places.
const VARIABLE: &str = "BLOCKYARD_UML";
const PROGRAM: &str = "linux.uml";
const USUAL_DIRECTORY: &str = "/usr/bin";
/// Where the Debian package has the modules, below its prefix.
const MODULES: &str = "lib/uml/modules";

/// The disks' driver, below the version's `kernel`.
const DRIVER: &str = "drivers/block/virtio_blk.ko";

/// User-Mode Linux, on disk.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What is executed.
    pub program: PathBuf,
    /// The directory `kernel` of its modules, unless what is needed is built in.
    modules: Option<PathBuf>,
    /// Linux's version: its first two numbers.
    version: Option<(u32, u32)>,
    /// BLOCKYARD_UML names it.
    named: bool,
}

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// None was found.
    #[error(
        "there is no User-Mode Linux: run `apt-get install user-mode-linux`, or without root `apt-get download user-mode-linux && \
         dpkg-deb -x user-mode-linux_*.deb uml` and set BLOCKYARD_UML=uml/usr/bin/linux.uml"
    )]
    Missing,
    /// The one that was named is not there.
    #[error("BLOCKYARD_UML names {}, which cannot be used", path.display())]
    Named {
        /// What it names.
        path: PathBuf,
        /// What looking for it met.
        #[source]
        error: io::Error,
    },
    /// It has no modules.
    #[error(
        "{} has no virtio_blk, neither built in nor as a module at {}: the Debian package user-mode-linux has both", program.display(),
        looked.display()
    )]
    Modules {
        /// The kernel that was found.
        program: PathBuf,
        /// Where they should be.
        looked: PathBuf,
    },
}

impl Kernel {
    /// The one that BLOCKYARD_UML names, or the one on PATH, or Debian's.
    ///
    /// # Errors
    /// When there is none, or it has no modules.
    pub fn find() -> Result<Self, KernelError> {
        let name = env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let named = name.is_some();
        let program = match name {
            Some(name) => {
                let path = PathBuf::from(name);
                executable(&path).map_err(|error| KernelError::Named { path, error })?
            }
            None => on_path().ok_or(KernelError::Missing)?,
        };
        let (modules, release) = modules(&program)?;
        let version = release.and_then(|release| version(&release));
        Ok(Self { program, modules, version, named })
    }

    /// What is wrong with it if it is no Linux. Looked at when it does not start: to read all of it takes a while.
    pub(crate) fn is_no_linux(&self) -> Option<String> {
        let is_linux = release(&fs::read(&self.program).ok()?).is_some();
        let program = shown(&self.program);
        let named = if self.named { format!("{program}, which {VARIABLE} names,") } else { program.to_string() };
        (!is_linux).then(|| format!("{named} is no Linux"))
    }

    /// The directory `kernel` of its modules, if it has any.
    pub(crate) fn modules(&self) -> Option<&Path> {
        self.modules.as_deref()
    }

    /// Whether the guest's processes can work with it by signals (Linux 6.16).
    pub fn has_seccomp_mode(&self) -> bool {
        const FIRST: (u32, u32) = (6, 16);
        self.version.is_none_or(|version| version >= FIRST)
    }

    /// What it goes on executing when it has started: since Linux 6.13 a program of its own, which it has open, for
    /// each of the guest's processes.
    pub(crate) fn executes(&self) -> Executes {
        const FIRST: (u32, u32) = (6, 13);
        // Of a version that nobody knows: as the latest ones.
        if self.version.is_none_or(|version| version >= FIRST) { Executes::Descriptors } else { Executes::Nothing }
    }
}

/// A file that this process may execute, by its one name.
fn executable(path: &Path) -> io::Result<PathBuf> {
    let program = path.canonicalize()?;
    access(&program, Access::EXEC_OK)?;
    if program.is_file() { Ok(program) } else { Err(io::Error::other("it is not a file")) }
}

fn on_path() -> Option<PathBuf> {
    let directories = programs::directories().into_iter().chain([PathBuf::from(USUAL_DIRECTORY)]);
    directories.map(|directory| directory.join(PROGRAM)).find(|program| program.is_file())?.canonicalize().ok()
}

/// The directory of a kernel's modules, if it needs one: beside it, wherever its package was unpacked to, or where it
/// is installed. With its release, as `uname -r` says it.
fn modules(program: &Path) -> Result<(Option<PathBuf>, Option<String>), KernelError> {
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let beside = prefix.join(MODULES);
    if let [only] = &releases(&beside)[..] {
        return Ok((Some(modules_of(&beside, only)), Some(only.clone())));
    }
    let bytes = fs::read(program).unwrap_or_default();
    let release = release(&bytes);
    let found = release.as_ref().and_then(|release| {
        let trees = [&beside, &Path::new("/usr").join(MODULES)];
        trees.map(|tree| modules_of(tree, release)).into_iter().find(|modules| modules.join(DRIVER).is_file())
    });
    if found.is_none() && (release.is_none() || position(&bytes, b"virtio_blk\0").is_none()) {
        return Err(KernelError::Modules { program: program.to_owned(), looked: beside });
    }
    Ok((found, release))
}

fn modules_of(tree: &Path, release: &str) -> PathBuf {
    tree.join(release).join("kernel")
}

/// The releases that a tree has usable modules of.
fn releases(tree: &Path) -> Vec<String> {
    let names =
        fs::read_dir(tree).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|release| modules_of(tree, release).join(DRIVER).is_file()).collect()
}

/// What `uname -r` says in a kernel: its banner says so too.
fn release(kernel: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let at = position(kernel, BANNER)?;
    let name = kernel[at + BANNER.len()..].split(|byte| !byte.is_ascii_graphic()).next()?;
    String::from_utf8(name.to_vec()).ok()
}

fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}

/// The first two numbers of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_kernels_go_on_executing() {
        let executes = |release: &str| {
            Kernel { version: version(release), program: PathBuf::new(), modules: None, named: false }.executes()
        };
        assert_eq!(executes("6.1.176"), Executes::Nothing);
        assert_eq!(executes("6.12-own"), Executes::Nothing);
        assert_eq!(executes("6.13.0-rc1"), Executes::Descriptors);
        assert_eq!(executes("7.2.7"), Executes::Descriptors);
        assert_eq!(executes("next"), Executes::Descriptors);
    }
}
