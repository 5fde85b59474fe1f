//! Where a library is found: as the dynamic linker does it (ld.so(8)), but for its cache, which it is not read from but
//! what it is made of: /etc/ld.so.conf.

use super::elf::{self, Needs};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Directories that are searched last: ld.so's own, on distributions of every kind.
const USUAL: [&str; 6] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"];
const CONFIGURATION: &str = "/etc/ld.so.conf";
/// Bytes of a configuration file, depth of inclusion, and directories in all that are looked at.
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
}

impl Found {
    /// Reads a program or library.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut content = Vec::new();
        let length = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut content)? as u64;
        if length > FILE_BYTES_MAX {
            return Err(io::Error::other("it is too large"));
        }
        let needs = elf::needs(&content).map_err(io::Error::other)?;
        Ok(Self { path: path.to_owned(), content, needs })
    }

    /// The directories that its libraries are searched in first: before those that the environment names, and after.
    /// `above` are the former of what needs it, which count for it too unless it has its own.
    pub(crate) fn own_directories(&self, above: &[PathBuf]) -> OwnDirectories {
        let origin = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let origin = origin.parent().unwrap_or(Path::new("/"));
        let runpath = directories(&self.needs.runpath, origin);
        // DT_RPATH is nothing where there is a DT_RUNPATH.
        let rpath = if self.needs.runpath.is_empty() {
            directories(&self.needs.rpath, origin)
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

/// The directories of this machine.
pub(crate) struct LibrarySearch {
    environment: Vec<PathBuf>,
    usual: Vec<PathBuf>,
}

impl LibrarySearch {
    /// As the environment and the configuration say.
    pub(crate) fn of_this_machine() -> Self {
        let environment = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        let mut usual = Vec::new();
        configured(Path::new(CONFIGURATION), INCLUSION_DEPTH_MAX, &mut usual);
        usual.extend(USUAL.map(PathBuf::from));
        Self { environment: directories(&environment, Path::new("/")), usual }
    }

    /// The usual directories of the machine whose root directory this is; of another machine's, its configuration is
    /// not looked at.
    pub(crate) fn of_root(root: &Path) -> Self {
        if root == Path::new("/") {
            return Self::of_this_machine();
        }
        let below = |directory: &str| root.join(directory.trim_start_matches('/'));
        Self { environment: Vec::new(), usual: USUAL.into_iter().map(below).collect() }
    }

    /// The library `name`, for somebody with these directories. What has the name and is none, or another machine's, is
    /// passed over.
    pub(crate) fn find(&self, name: &str, own: &OwnDirectories) -> Option<Found> {
        if name.contains('/') || name.is_empty() {
            return None;
        }
        let all = own.rpath.iter().chain(&self.environment).chain(&own.runpath).chain(&self.usual);
        all.map(|directory| directory.join(name)).find_map(|path| Found::read(&path).ok())
    }
}

/// Adds the directories that a configuration file names, and those that it includes.
fn configured(file: &Path, depth: u32, into: &mut Vec<PathBuf>) {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(CONFIGURATION_BYTES_MAX).read_to_end(&mut bytes));
    if read.is_err() {
        // Many machines have none.
        return;
    }
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
        let search = LibrarySearch { environment: vec![first], usual: vec![second.clone()] };
        let found = search.find("lib.so", &OwnDirectories::default()).unwrap();
        assert_eq!(found.path, second.join("lib.so"));
        assert!(search.find("other.so", &OwnDirectories::default()).is_none());
        assert!(search.find("../2/lib.so", &OwnDirectories::default()).is_none());
    }
}
