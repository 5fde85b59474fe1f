//! What is built: a tree that is made here, a directory, or an archive.

use anyhow::{Context, Result, bail};
use blockyard_block::OpenedFile;
use serde::Serialize;
use std::fs;
use std::io::Read;
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
    /// /source, where they have it. A tree that is made is made in `directory`.
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
                let (Some(directory), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str()))
                else {
                    bail!("{} is no archive whose name is text", file.display());
                };
                let name = quoted(&format!("/source/{name}"));
                Ok((directory.to_owned(), format!("tar -xf {name} --strip-components=1")))
            }
        }
    }
}

/// What is in a file, unless that is more than any .config has.
fn content(path: &Path) -> Result<Vec<u8>> {
    let file = OpenedFile::open(path, true)?;
    let mut content = Vec::new();
    file.file().take(CONFIG_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > CONFIG_BYTES_MAX {
        bail!("it has more than {} MiB", CONFIG_BYTES_MAX >> 20);
    }
    Ok(content)
}

impl Config {
    /// A line of the shell that configures the tree, and the file that guests have for it.
    pub(super) fn applied(&self) -> Result<(String, Option<Vec<u8>>)> {
        match self {
            Self::Target(target) => Ok((format!("make {}", quoted(target)), None)),
            Self::File(file) => {
                let content = content(file).with_context(|| format!("cannot read the config {}", file.display()))?;
                Ok(("cp /tmp/config .config && make olddefconfig".to_owned(), Some(content)))
            }
        }
    }
}

/// A word of the shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
