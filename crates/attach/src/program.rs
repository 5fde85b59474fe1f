//! Which programs take a library.

use blockyard_block::{programs, shown};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be started with a library.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// There is none of this name.
    #[error("there is no program {}", shown(.0))]
    Missing(PathBuf),
    /// It is none that may be executed.
    #[error("{} is no file that may be executed", shown(.0))]
    NotExecutable(PathBuf),
    /// It cannot be read.
    #[error("cannot read the program {}", shown(path))]
    Unreadable {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing is loaded into it.
    #[error("{} is linked statically: what it does on files cannot be seen, and a disk of ours is none to it", shown(.0))]
    Static(PathBuf),
    /// It is for another processor, or one of 32 bits.
    #[error("{} is no program of 64 bits for this processor", shown(.0))]
    Foreign(PathBuf),
    /// Whoever starts it has no say in what is loaded.
    #[error("{} has more rights than who starts it (set-ID bits or capabilities), and takes no library", shown(.0))]
    Privileged(PathBuf),
}

const ELF_MAGIC: &[u8] = b"\x7fELF";
const ELF_CLASS_64: u8 = 2;
const ELF_X86_64: u16 = 62;
/// The program header of a path: that of what loads the libraries.
const PT_INTERP: u32 = 3;
const SET_ID: u32 = 0o6000;
/// The first line of a script that is looked at, as the kernel does (BINPRM_BUF_SIZE).
const HEAD_BYTES: usize = 256;
/// Scripts whose interpreters are scripts, as many as the kernel takes.
const SCRIPTS_MAX: u32 = 5;

/// The program of this name, or at this path.
///
/// # Errors
/// When there is none, or it takes no library.
pub fn find_program(name: &OsStr) -> Result<PathBuf, ProgramError> {
    let path = if name.as_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        let all: Vec<_> = programs::directories().into_iter().map(|directory| directory.join(name)).collect();
        // As shells do, who look for any other before they say that one is none.
        let found =
            all.iter().find(|path| programs::is_program(path)).or_else(|| all.iter().find(|path| path.is_file()));
        found.cloned().ok_or_else(|| ProgramError::Missing(name.into()))?
    };
    if !programs::is_program(&path) {
        let is_there = match fs::metadata(&path) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
        };
        return Err(if is_there { ProgramError::NotExecutable(path) } else { ProgramError::Missing(path) });
    }
    check(&path, SCRIPTS_MAX)?;
    Ok(path)
}

fn check(path: &Path, scripts: u32) -> Result<(), ProgramError> {
    let unreadable = |source| ProgramError::Unreadable { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.mode() & SET_ID != 0 || has_capabilities(&file) {
        return Err(ProgramError::Privileged(path.to_owned()));
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    (&file).take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(unreadable)?;
    if let Some(line) = head.strip_prefix(b"#!") {
        return match interpreter(line) {
            Some(interpreter) if scripts > 0 => check(Path::new(&interpreter), scripts - 1),
            _ => Ok(()),
        };
    }
    // What is neither, a shell takes for a script of its own.
    if !head.starts_with(ELF_MAGIC) {
        return Ok(());
    }
    match loads_libraries(&file, &head).map_err(unreadable)? {
        None => Err(ProgramError::Foreign(path.to_owned())),
        Some(false) => Err(ProgramError::Static(path.to_owned())),
        Some(true) => Ok(()),
    }
}

fn has_capabilities(file: &File) -> bool {
    rustix::fs::fgetxattr(file, "security.capability", &mut [0_u8; 64][..]).is_ok_and(|bytes| bytes > 0)
}

/// The program in a script's first line, behind its `#!`.
fn interpreter(line: &[u8]) -> Option<OsString> {
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let word = line.split(|byte| byte.is_ascii_whitespace()).next().filter(|word| !word.is_empty())?;
    Some(OsStr::from_bytes(word).to_owned())
}

/// Whether an ELF file has somebody load its libraries; `None` if it is not for this processor.
fn loads_libraries(file: &File, head: &[u8]) -> io::Result<Option<bool>> {
    let half = |at: usize| head.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    let long =
        |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if head.get(4) != Some(&ELF_CLASS_64) || half(18) != ELF_X86_64 {
        return Ok(None);
    }
    let (headers, size, count) = (long(32), u64::from(half(54)), u64::from(half(56)));
    for index in 0..count {
        let mut kind = [0; 4];
        let at = headers.saturating_add(index * size);
        file.read_exact_at(&mut kind, at)?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(Some(true));
        }
    }
    Ok(Some(false))
}
