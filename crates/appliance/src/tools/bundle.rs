//! A tool with all that it needs, as an archive for the appliance's root.

use super::error::ToolError;
use super::library_search::{Found, LibrarySearch, OwnDirectories};
use super::tool::Tool;
use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use tar::{Builder, Header};

/// Most files that a tool may take along: what needs more is broken.
const FILES_MAX: usize = 256;
/// Longest data file.
const DATA_BYTES_MAX: u64 = 1 << 20;

/// Names of files in the appliance, without their leading slash.
pub(super) type Installed = HashSet<PathBuf>;

/// A file for the appliance.
struct BundleFile {
    name: PathBuf,
    content: Vec<u8>,
}

/// The archive of what `tool` needs and is not in `installed`, and the names of what is in it. Nobody is executed: what
/// it needs is read in the headers.
pub(super) fn bundle(tool: &Tool, installed: &Installed) -> Result<(Vec<u8>, Installed), ToolError> {
    let files = files(tool, &LibrarySearch::of_this_machine(), installed)?;
    let names = files.iter().map(|file| file.name.clone()).collect();
    let packed = pack(&files).map_err(|error| ToolError::Unreadable { path: tool.program.into(), error })?;
    Ok((packed, names))
}

impl Tool {
    /// Whether it, and all that it needs, is on this machine; where it is.
    ///
    /// # Errors
    /// What is missing or broken.
    pub fn usable(&self) -> Result<PathBuf, ToolError> {
        files(self, &LibrarySearch::of_this_machine(), &Installed::new())?;
        self.find().ok_or(ToolError::Missing { program: self.program, package: self.package })
    }
}

fn files(tool: &Tool, search: &LibrarySearch, installed: &Installed) -> Result<Vec<BundleFile>, ToolError> {
    let path = tool.find().ok_or(ToolError::Missing { program: tool.program, package: tool.package })?;
    let program = search.read(&path).map_err(|error| unreadable(&path, error))?;
    let mut files = Vec::new();
    if let Some(interpreter) = &program.needs.interpreter {
        let content = fs::read(interpreter).map_err(|error| unreadable(interpreter, error))?;
        files.push(BundleFile { name: relative(interpreter), content });
    }
    add_with_libraries(program, tool.program, tool.libraries, search, &mut files)?;
    files.extend(tool.files.iter().filter_map(|path| data(Path::new(path))));
    files.retain(|file| !installed.contains(&file.name));
    Ok(files)
}

/// Adds a program, called so, with the libraries that it needs, and these.
fn add_with_libraries(
    program: Found,
    name: &str,
    also: &[&str],
    search: &LibrarySearch,
    files: &mut Vec<BundleFile>,
) -> Result<(), ToolError> {
    let path = program.path.clone();
    let mut wanted: VecDeque<(String, String, OwnDirectories)> = VecDeque::new();
    let mut seen = HashSet::new();
    let mut need = |of: &Found, above: &[PathBuf], wanted: &mut VecDeque<_>, also: &[&str]| {
        let own = of.own_directories(above);
        let names = of.needs.libraries.iter().cloned().chain(also.iter().map(|&name| name.to_owned()));
        let new = names.filter(|name| seen.insert(name.clone()));
        wanted.extend(new.map(|name| (name, of.path.display().to_string(), own.clone())));
    };
    need(&program, &[], &mut wanted, also);
    files.push(BundleFile { name: Path::new("tools/bin").join(name), content: program.content });
    while let Some((name, needed_by, own)) = wanted.pop_front() {
        let found = search.find(&name, &own);
        let found = found.ok_or_else(|| ToolError::Library { name: name.clone(), needed_by: needed_by.clone() })?;
        need(&found, &own.rpath, &mut wanted, &[]);
        files.push(BundleFile { name: Path::new("tools/lib").join(&name), content: found.content });
        if files.len() > FILES_MAX {
            return Err(unreadable(&path, io::Error::other("it needs too many libraries")));
        }
    }
    Ok(())
}

/// The program at the absolute path `program` in the root directory `root`, with its loader and the libraries that it
/// needs, for a guest's initial file system: names, such as `tools/bin/dd` and `tools/lib/libc.so.6`, and contents.
/// Nobody is executed, and no link leads out of `root`.
///
/// # Errors
/// When one of them is missing or broken.
pub fn program_with_libraries(program: &Path, root: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, ToolError> {
    let search = LibrarySearch::of_root(root).map_err(|error| unreadable(root, io::Error::other(error)))?;
    let found = search.read(program).map_err(|error| unreadable(program, error))?;
    let mut files = Vec::new();
    if let Some(interpreter) = &found.needs.interpreter {
        // By its name: where packages are only unpacked, the links may be missing by which its path leads to it.
        let name = interpreter.file_name().unwrap_or_default().to_string_lossy();
        let needed_by = program.display().to_string();
        let loader = search.find(&name, &OwnDirectories::default());
        let loader = loader.ok_or_else(|| ToolError::Library { name: name.clone().into_owned(), needed_by })?;
        files.push(BundleFile { name: relative(interpreter), content: loader.content });
    }
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    add_with_libraries(found, &name, &[], &search, &mut files)?;
    Ok(files.into_iter().map(|BundleFile { name, content }| (name, content)).collect())
}

fn unreadable(path: &Path, error: io::Error) -> ToolError {
    ToolError::Unreadable { path: path.to_owned(), error }
}

fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

/// A data file, if it is there: a program that lacks it does without, or says so.
fn data(path: &Path) -> Option<BundleFile> {
    let mut content = Vec::new();
    File::open(path).ok()?.take(DATA_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(BundleFile { name: relative(path), content })
}

fn pack(files: &[BundleFile]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for file in files {
        let mut header = Header::new_gnu();
        header.set_size(file.content.len() as u64);
        header.set_mode(0o755);
        header.set_mtime(0);
        archive.append_data(&mut header, &file.name, &file.content[..])?;
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::super::tool::{E2FSCK, MKE2FS};
    use super::*;

    #[test]
    fn a_tool_comes_with_its_interpreter_its_libraries_and_its_configuration() {
        let (archive, names) = bundle(&MKE2FS, &Installed::new()).unwrap();
        let has = |name: &str| names.contains(Path::new(name));
        assert!(has("tools/bin/mke2fs") && has("tools/lib/libc.so.6") && has("tools/lib/libext2fs.so.2"), "{names:?}");
        assert!(has("lib64/ld-linux-x86-64.so.2") && has("etc/mke2fs.conf"), "{names:?}");
        let mut archive = tar::Archive::new(&archive[..]);
        let entries: Installed =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into()).collect();
        assert_eq!(entries, names);
        // The next one of the same package brings hardly more than itself.
        let (_, more) = bundle(&E2FSCK, &names).unwrap();
        assert!(more.contains(Path::new("tools/bin/e2fsck")) && more.is_disjoint(&names), "{more:?}");
    }

    #[test]
    fn what_is_missing_is_said_with_the_package_that_brings_it() {
        static NONE: Tool = Tool { program: "no-such-tool", package: "toolbox", libraries: &[], files: &[] };
        let error = bundle(&NONE, &Installed::new()).unwrap_err().to_string();
        assert_eq!(error, "there is no no-such-tool on this machine: run `apt-get install toolbox`");
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let search = LibrarySearch::of_this_machine();
        static LONELY: Tool =
            Tool { libraries: &["libnowhere.so.1"], program: "mke2fs", package: "e2fsprogs", files: &[] };
        let error = files(&LONELY, &search, &Installed::new()).map(drop).unwrap_err().to_string();
        assert!(error.contains("libnowhere.so.1") && error.contains("mke2fs"), "{error}");
    }
}
