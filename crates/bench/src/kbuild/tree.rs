//! What is built: a tree that is made here, a directory, or an archive.

use anyhow::{Context, Result};
use blockyard_block::{descriptor_path, open_named, read_named, shown};
use rustix::fs::{AtFlags, CWD, linkat};
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Names and contents of the small tree's files.
const SMALL: [(&str, &str); 2] = [("Makefile", include_str!("tree/Makefile")), ("unit.c", include_str!("tree/unit.c"))];

/// A kernel's .config with everything in it has a third of a MiB.
const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// What is built.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tree {
    /// A small one that this program brings.
    #[default]
    Small,
    /// A kernel's, in a directory.
    Directory(PathBuf),
    /// A kernel's, in a tar archive, below one directory in it.
    Archive(PathBuf),
}

/// How the tree is configured.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Config {
    /// By `make` of this.
    Target(String),
    /// By this file as its .config, and `make olddefconfig`.
    File(PathBuf),
}

impl Tree {
    /// The tree at `path`.
    ///
    /// # Errors
    /// When nothing is there.
    pub fn at(path: &Path) -> Result<Self> {
        let absolute = fs::canonicalize(path).with_context(|| format!("cannot read the tree {}", path.display()))?;
        Ok(if absolute.is_dir() { Self::Directory(absolute) } else { Self::Archive(absolute) })
    }

    /// The directory that guests are given, and a line of the shell that puts the tree into the current directory from
    /// /source, where they have it. That of a tree which is made, or an archive, is `directory`.
    pub(super) fn given(&self, directory: &Path) -> Result<(PathBuf, String)> {
        const COPY: &str = "cp -a /source/. .";
        match self {
            Self::Small => {
                for (name, content) in SMALL {
                    fs::write(directory.join(name), content).context("cannot make the small tree")?;
                }
                Ok((directory.to_owned(), COPY.to_owned()))
            }
            Self::Directory(directory) => Ok((directory.clone(), COPY.to_owned())),
            Self::Archive(file) => {
                // Guests see no more of the host's directory than the archive.
                let opened = open_named(file, "the tree")?;
                let own = directory.join("archive");
                let linked = linkat(CWD, descriptor_path(&opened), CWD, &own, AtFlags::SYMLINK_FOLLOW);
                if linked.is_err() {
                    // It lies in another file system, or is somebody else's.
                    let copied = File::create_new(&own).and_then(|mut copy| io::copy(&mut &opened, &mut copy));
                    copied.with_context(|| format!("cannot copy the tree {}", shown(file)))?;
                }
                Ok((directory.to_owned(), "tar -xf /source/archive --strip-components=1".to_owned()))
            }
        }
    }
}

impl Config {
    /// A line of the shell that configures the tree, and the file that guests have for it.
    pub(super) fn applied(&self) -> Result<(String, Option<Vec<u8>>)> {
        match self {
            Self::Target(target) => Ok((format!("make {}", quoted(target)), None)),
            Self::File(file) => {
                let content = read_named(file, "the config", CONFIG_BYTES_MAX)?;
                Ok(("cp /tmp/config .config && make olddefconfig".to_owned(), Some(content)))
            }
        }
    }
}

/// A word of the shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_archive_guests_see_nothing_that_lies_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("tree.tar"), "the tree").unwrap();
        fs::write(at("secret"), "").unwrap();
        fs::create_dir(at("own")).unwrap();
        let (directory, line) = Tree::at(&at("tree.tar")).unwrap().given(&at("own")).unwrap();
        assert!(line.contains("/source/archive "), "{line}");
        let names: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["archive"]);
        assert_eq!(fs::read(directory.join("archive")).unwrap(), b"the tree");
        assert!(Tree::Archive("/dev/null".into()).given(&at("own")).unwrap_err().to_string().contains("is a device"));
    }
}
