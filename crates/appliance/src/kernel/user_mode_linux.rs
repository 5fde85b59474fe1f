//! User-Mode Linux, which is a program.

use super::{Kernel, KernelError, Kind, are_its_own, distribution, names_in};
use blockyard_block::{descriptor_path, programs, shown, size};
use blockyard_confinement::program_filter::Executes;
use rustix::fs::{Access, Mode, OFlags, access, open};
use rustix::io::Errno;
use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Names the kernel where it is not in the usual places.
const VARIABLE: &str = "BLOCKYARD_UML";
const PROGRAM: &str = "linux.uml";
const USUAL_DIRECTORY: &str = "/usr/bin";
/// Where the Debian package has the modules, below its prefix.
const MODULES: &str = "lib/uml/modules";

/// The parameter that names disks: no other program than such a kernel has it.
const DISKS: &[u8] = b"virtio_uml.device";
/// No Linux is longer.
const PROGRAM_BYTES_MAX: u64 = 256 << 20;
/// The disks' driver, below the version's directory.
const DRIVER: &str = "kernel/drivers/block/virtio_blk.ko";

/// The one that BLOCKYARD_UML names, or the one on PATH, or Debian's.
pub(super) fn find() -> Result<Kernel, KernelError> {
    let name = env::var_os(VARIABLE).filter(|name| !name.is_empty());
    let named = name.is_some();
    let program = match name {
        Some(name) => {
            let path = PathBuf::from(name);
            Program::executable(&path).map_err(|error| KernelError::Named { variable: VARIABLE, path, error })?
        }
        None => {
            let path = on_path().ok_or(KernelError::Missing)?;
            Program::executable(&path).map_err(|error| KernelError::Unusable { path, error })?
        }
    };
    of(program, named)
}

/// The one at `path`.
pub(super) fn at(path: &Path) -> Result<Kernel, KernelError> {
    let unusable = |error| KernelError::Unusable { path: path.to_owned(), error };
    let program = Program::open(path).map_err(unusable)?;
    // What is another kernel is told so, whether or not anybody may execute it.
    if distribution::is_bzimage(&program.opened) {
        return Err(KernelError::ForMachines { path: path.to_owned() });
    }
    if position(&contents(&program.opened).map_err(unusable)?, DISKS).is_none() {
        return Err(KernelError::Other { path: path.to_owned() });
    }
    program.check_executable().map_err(unusable)?;
    of(program, false)
}

fn of(Program { file, opened }: Program, named: bool) -> Result<Kernel, KernelError> {
    let (modules, release) = modules(&file, &opened)?;
    let version = release.and_then(|release| version(&release));
    Ok(Kernel { file, modules, kind: Kind::Program { opened: Arc::new(opened), version, named } })
}

/// What is wrong with a program if it is no Linux.
pub(super) fn is_no_linux(opened: &File, program: &Path, named: bool) -> Option<String> {
    let is_linux = release(&contents(opened).ok()?).is_some();
    let program = shown(program);
    let named = if named { format!("{program}, which {VARIABLE} names,") } else { program.to_string() };
    (!is_linux).then(|| format!("{named} is no Linux"))
}

/// What one of this version goes on executing when it has started: since Linux 6.13 a program of its own, which it has
/// open, for each of the guest's processes.
pub(super) fn executes(version: Option<(u32, u32)>) -> Executes {
    const FIRST: (u32, u32) = (6, 13);
    // Of a version that nobody knows: as the latest ones.
    if version.is_none_or(|version| version >= FIRST) { Executes::Descriptors } else { Executes::Nothing }
}

/// A file, with its one name.
struct Program {
    file: PathBuf,
    opened: File,
}

impl Program {
    fn open(path: &Path) -> io::Result<Self> {
        // Whoever writes into a FIFO is not waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = File::from(open(path, flags, Mode::empty())?);
        if !opened.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        // Of what was opened, its one name: where its modules are. Where /proc is not mounted, what needs it says so.
        let file = fs::read_link(descriptor_path(&opened)).or_else(|_| path.canonicalize())?;
        Ok(Self { file, opened })
    }

    /// One that this process may execute.
    fn executable(path: &Path) -> io::Result<Self> {
        let program = Self::open(path)?;
        if distribution::is_bzimage(&program.opened) {
            let variable = distribution::VARIABLE;
            return Err(io::Error::other(format!("it is a kernel for machines (a bzImage): {variable} takes those")));
        }
        program.check_executable().map(|()| program)
    }

    fn check_executable(&self) -> io::Result<()> {
        // What is open may have no other name any more.
        match access(descriptor_path(&self.opened), Access::EXEC_OK) {
            Err(Errno::NOENT) => Ok(access(&self.file, Access::EXEC_OK)?),
            checked => Ok(checked?),
        }
    }
}

fn contents(opened: &File) -> io::Result<Vec<u8>> {
    let bytes = opened.metadata()?.len();
    if bytes > PROGRAM_BYTES_MAX {
        return Err(io::Error::other(format!("it is no Linux: it has {}", size::human(bytes))));
    }
    let mut contents = vec![0; bytes as usize];
    opened.read_exact_at(&mut contents, 0)?;
    Ok(contents)
}

fn on_path() -> Option<PathBuf> {
    let directories = programs::directories().into_iter().chain([PathBuf::from(USUAL_DIRECTORY)]);
    directories.map(|directory| directory.join(PROGRAM)).find(|program| program.is_file())
}

/// The directory of a kernel's modules, if it needs one: beside it, wherever its package was unpacked to, or where it
/// is installed. With its release, as `uname -r` says it.
fn modules(program: &Path, opened: &File) -> Result<(Option<PathBuf>, Option<String>), KernelError> {
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    let beside = prefix.join(MODULES);
    if let [only] = &releases(&beside)[..]
        && are_its_own(program, &beside.join(only))
    {
        return Ok((Some(beside.join(only)), Some(only.clone())));
    }
    let bytes = contents(opened).unwrap_or_default();
    let release = release(&bytes);
    let found = release.as_ref().and_then(|release| {
        let trees = [&beside, &Path::new("/usr").join(MODULES)];
        let mut trees = trees.map(|tree| tree.join(release)).into_iter();
        trees.find(|modules| modules.join(DRIVER).is_file() && are_its_own(program, modules))
    });
    if found.is_none() && (release.is_none() || position(&bytes, b"virtio_blk\0").is_none()) {
        return Err(KernelError::Modules { program: program.to_owned(), looked: beside });
    }
    Ok((found, release))
}

/// The releases that a tree has usable modules of.
fn releases(tree: &Path) -> Vec<String> {
    names_in(tree).filter(|release| tree.join(release).join(DRIVER).is_file()).collect()
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
        let executes = |release: &str| executes(version(release));
        assert_eq!(executes("6.1.176"), Executes::Nothing);
        assert_eq!(executes("6.12-own"), Executes::Nothing);
        assert_eq!(executes("6.13.0-rc1"), Executes::Descriptors);
        assert_eq!(executes("7.2.7"), Executes::Descriptors);
        assert_eq!(executes("next"), Executes::Descriptors);
    }

    #[test]
    fn what_is_longer_than_any_linux_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let error = at(file.path()).unwrap_err();
        assert!(error.to_string().ends_with("cannot be used"), "{error}");
        let KernelError::Unusable { error, .. } = error else { panic!("{error}") };
        assert_eq!(error.to_string(), "it is no Linux: it has 1.00 TiB");
    }
}
