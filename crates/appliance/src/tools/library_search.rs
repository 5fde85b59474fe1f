//! Where a library is found: as the dynamic linker does it (ld.so(8)), but for its cache, which it is not read from but
//! what it is made of: /etc/ld.so.conf.

use super::elf::{self, Needs};
use blockyard_block::{NamedFileError, RootDirectory, read_named};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that are searched last: ld.so's own, on distributions of every kind.
const USUAL: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// Bytes of a configuration file that is looked at, depth of inclusion, and directories in all.
const CONFIGURATION_BYTES_MAX: u64 = 64 << 10;
const INCLUSION_DEPTH_MAX: u32 = 4;
const DIRECTORIES_MAX: usize = 256;
/// Longest file that is taken for a program or library.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A program or library that was found.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) content: Vec<u8>,
    pub(crate) needs: Needs,
    /// Where it lies: the directory, without links.
    origin: PathBuf,
}

impl Found {
    /// Reads a program or library of a root directory's, as its paths are there.
    pub(crate) fn read(root: &RootDirectory, path: &Path) -> io::Result<Self> {
        let content = root.read(path, "the program", FILE_BYTES_MAX).map_err(|error| match error {
            NamedFileError::Unreadable { source, .. } => source,
            error => io::Error::other(error),
        })?;
        let needs = elf::needs(&content).map_err(io::Error::other)?;
        let file = root.resolve(path).unwrap_or_else(|_| path.to_owned());
        let origin = file.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { path: path.to_owned(), content, needs, origin })
    }

    /// The directories that its libraries are searched in first: before those that the environment names, and after.
    /// `above` are the former of what needs it, which count for it too unless it has its own.
    pub(crate) fn own_directories(&self, above: &[PathBuf]) -> OwnDirectories {
        let runpath = directories(&self.needs.runpath, &self.origin);
        // DT_RPATH is nothing where there is a DT_RUNPATH.
        let rpath = if self.needs.runpath.is_empty() {
            directories(&self.needs.rpath, &self.origin)
                .into_iter()
                .chain(above.iter().cloned())
                .take(DIRECTORIES_MAX)
                .collect()
        } else {
            Vec::new()
        };
        OwnDirectories { rpath, runpath }
    }
}

/// Directories that a program or library names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnDirectories {
    pub(crate) rpath: Vec<PathBuf>,
    pub(crate) runpath: Vec<PathBuf>,
}

/// The directories of a list with colons, with $ORIGIN replaced. Those that depend on the processor are left out, and
/// so are those that depend on where one stands.
fn directories(list: &str, origin: &Path) -> Vec<PathBuf> {
    let origin = origin.to_string_lossy();
    let each = list.split(':').map(|text| text.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin));
    each.filter(|text| text.starts_with('/') && !text.contains('$')).take(DIRECTORIES_MAX).map(PathBuf::from).collect()
}

/// Where a machine has its libraries.
pub(crate) struct LibrarySearch {
    root: RootDirectory,
    environment: Vec<PathBuf>,
    usual: Vec<PathBuf>,
}

impl LibrarySearch {
    /// Of this machine, as the environment and the configuration say.
    pub(crate) fn of_this_machine() -> Self {
        let environment = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let mut usual = Vec::new();
        configured(Path::new(CONFIGURATION), INCLUSION_DEPTH_MAX, &mut usual);
        usual.extend(USUAL.map(PathBuf::from));
        let environment = directories(&environment, Path::new("/"));
        Self { root: RootDirectory::of_this_machine(), environment, usual }
    }

    /// The usual directories of the machine whose root directory this is; of another machine's, its configuration is
    /// not looked at.
    pub(crate) fn of_root(root: &Path) -> Result<Self, NamedFileError> {
        if root == Path::new("/") {
            return Ok(Self::of_this_machine());
        }
        let usual = USUAL.map(PathBuf::from).into();
        Ok(Self { root: RootDirectory::open(root)?, environment: Vec::new(), usual })
    }

    /// Reads a program or library of that machine's.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Found> {
        Found::read(&self.root, path)
    }

    /// The library `name`, for somebody with these directories. What has the name and is none, or another machine's, is
    /// passed over.
    pub(crate) fn find(&self, name: &str, own: &OwnDirectories) -> Option<Found> {
        if name.contains('/') || name.is_empty() {
            return None;
        }
        let all = own.rpath.iter().chain(&self.environment).chain(&own.runpath).chain(&self.usual);
        all.map(|directory| directory.join(name)).find_map(|path| self.read(&path).ok())
    }
}

/// Adds the directories that a configuration file names, and those that it includes.
fn configured(file: &Path, depth: u32, into: &mut Vec<PathBuf>) {
    // Many machines have none.
    let Ok(bytes) = read_named(file, "the configuration", CONFIGURATION_BYTES_MAX) else { return };
    let text = String::from_utf8_lossy(&bytes);
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(pattern) = line.strip_prefix("include ") {
            if depth > 0 {
                let pattern = file.parent().unwrap_or(Path::new("/")).join(pattern.trim());
                included(&pattern).iter().for_each(|file| configured(file, depth - 1, into));
            }
        } else if line.starts_with('/') && into.len() < DIRECTORIES_MAX {
            into.push(line.into());
        }
    }
}

/// The files that a pattern names, in order: one star at most, in the last part, as everybody has it.
fn included(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let Some((before, after)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let entries = pattern.parent().map(fs::read_dir).and_then(Result::ok).into_iter().flatten();
    let names = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
    };
    let mut files: Vec<_> = names.filter(fits).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn configuration_files_include_others() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("more")).unwrap();
        fs::write(at("ld.so.conf"), "# comment\ninclude more/*.conf\n/last # here\nrelative\n").unwrap();
        fs::write(at("more/b.conf"), "/b\n").unwrap();
        fs::write(at("more/a.conf"), "/a\ninclude *.conf\n").unwrap();
        fs::write(at("more/c.other"), "/c\n").unwrap();
        let mut found = Vec::new();
        configured(&at("ld.so.conf"), 1, &mut found);
        assert_eq!(found, ["/a", "/b", "/last"].map(PathBuf::from));
        // One that includes itself ends.
        found.clear();
        configured(&at("more/a.conf"), INCLUSION_DEPTH_MAX, &mut found);
        assert!(found.len() <= DIRECTORIES_MAX && found.contains(&"/b".into()));
    }

    #[test]
    fn origin_is_where_the_file_is() {
        let found = directories("$ORIGIN/../lib:${ORIGIN}:/opt:relative:/$LIB:", Path::new("/x/bin"));
        assert_eq!(found, ["/x/bin/../lib", "/x/bin", "/opt"].map(PathBuf::from));
    }

    #[test]
    fn a_file_of_the_name_that_is_no_library_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("1"), directory.path().join("2"));
        [&first, &second].iter().for_each(|path| fs::create_dir(path).unwrap());
        fs::write(first.join("lib.so"), "GROUP ( libc.so.6 )").unwrap();
        fs::copy("/proc/self/exe", second.join("lib.so")).unwrap();
        // Whoever writes into it is not waited for.
        mknodat(CWD, first.join("other.so"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let usual = vec![second.clone()];
        let search = LibrarySearch { environment: vec![first], usual, ..LibrarySearch::of_this_machine() };
        let found = search.find("lib.so", &OwnDirectories::default()).unwrap();
        assert_eq!(found.path, second.join("lib.so"));
        assert!(search.find("other.so", &OwnDirectories::default()).is_none());
        assert!(search.find("../2/lib.so", &OwnDirectories::default()).is_none());
    }
}
