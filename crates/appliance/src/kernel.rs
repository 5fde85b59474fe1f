//! The appliance's kernel, as it is found on the machine.

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

/// Modules that are taken along, below the version's `kernel`: the disks' driver, which must be there, then those of file systems that
/// are not built in.
const WANTED: [&str; 8] = [
    "drivers/block/virtio_blk.ko",
    "fs/fat/fat.ko",
    "fs/fat/vfat.ko",
    "fs/nls/nls_cp437.ko",
    "fs/nls/nls_iso8859-1.ko",
    "fs/nls/nls_utf8.ko",
    "fs/isofs/isofs.ko",
    "fs/squashfs/squashfs.ko",
];

/// User-Mode Linux, on disk.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What is executed.
    pub program: PathBuf,
    /// The directory `kernel` of its modules.
    modules: PathBuf,
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
    #[error("BLOCKYARD_UML names {}, which cannot be used: {error}", path.display())]
    Named {
        /// What it names.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// It has no modules.
    #[error("{} has no module virtio_blk.ko at {}: both are in the Debian package user-mode-linux", program.display(), looked.display())]
    Modules {
        /// The kernel.
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
        let program = match env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
            Some(name) => {
                let path = PathBuf::from(name);
                path.canonicalize().map_err(|error| KernelError::Named { path, error })?
            }
            None => on_path().ok_or(KernelError::Missing)?,
        };
        let modules = modules(&program)?;
        Ok(Self { program, modules })
    }

    /// The directory `kernel` of its modules.
    pub(crate) fn modules(&self) -> &Path {
        &self.modules
    }

    /// The modules to take along: name and content. Only the first must be there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn read_modules(&self) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
        let mut modules = Vec::new();
        for (index, path) in WANTED.iter().enumerate() {
            let name = path.rsplit('/').next().unwrap_or(path);
            match fs::read(self.modules.join(path)) {
                Ok(content) => modules.push((name, content)),
                Err(error) if index == 0 => return Err(error),
                Err(_) => {}
            }
        }
        Ok(modules)
    }
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from(USUAL_DIRECTORY)]);
    directories.map(|directory| directory.join(PROGRAM)).find(|program| program.is_file())?.canonicalize().ok()
}

/// The directory of a kernel's modules: beside it, wherever its package was unpacked to, or where it is installed.
fn modules(program: &Path) -> Result<PathBuf, KernelError> {
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let trees = [prefix.join(MODULES), Path::new("/usr").join(MODULES)];
    let found = trees.iter().find_map(|tree| modules_in(tree, program));
    found.ok_or_else(|| KernelError::Modules { program: program.to_owned(), looked: trees[0].clone() })
}

/// The modules in a tree of them: the only version's, or the kernel's own.
fn modules_in(tree: &Path, program: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(tree).ok()?.flatten().map(|entry| entry.path().join("kernel"));
    let mut usable = versions.filter(|modules| modules.join(WANTED[0]).is_file());
    match (usable.next()?, usable.next()) {
        (only, None) => Some(only),
        _ => Some(tree.join(version(program)?).join("kernel")).filter(|modules| modules.join(WANTED[0]).is_file()),
    }
}

/// What `uname -r` says in a kernel: its banner says so too.
fn version(program: &Path) -> Option<String> {
    const BANNER: &[u8] = b"Linux version ";
    let bytes = fs::read(program).ok()?;
    let at = bytes.windows(BANNER.len()).position(|window| window == BANNER)?;
    let name = bytes[at + BANNER.len()..].split(|byte| !byte.is_ascii_graphic()).next()?;
    String::from_utf8(name.to_vec()).ok()
}
