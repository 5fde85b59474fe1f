//! Packing.

use crate::{Report, XATTR};
use rustix::fs::{lgetxattr, llistxattr};
use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// Files with several names that are remembered.
const LINKS_MAX: usize = 1 << 20;
/// Longest value of an extended attribute, and longest list of their names (xattr(7)).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// A file, or a directory with all below it.
#[derive(Clone, Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// What it is called in the archive.
    pub name: PathBuf,
}

/// Writes an archive of `sources` to `output`: owners, permissions, times, extended attributes, hard links, holes and devices are kept.
/// Sockets are left out. What cannot be read is reported and left out.
///
/// # Errors
/// When `output` takes no more, or a file changed while it was read.
pub fn pack<W: Write>(sources: &[Source], output: W, report: &mut Report<'_>) -> io::Result<W> {
    let mut builder = Builder::new(output);
    builder.follow_symlinks(false);
    let mut packer = Packer { builder, links: HashMap::new(), report };
    sources.iter().try_for_each(|source| packer.tree(source))?;
    packer.builder.into_inner()
}

struct Packer<'report, 'r, W: Write> {
    builder: Builder<W>,
    /// The first name of files that have several.
    links: HashMap<(u64, u64), PathBuf>,
    report: &'report mut Report<'r>,
}

impl<W: Write> Packer<'_, '_, W> {
    fn tree(&mut self, source: &Source) -> io::Result<()> {
        let mut pending = vec![source.clone()];
        while let Some(Source { path, name }) = pending.pop() {
            let metadata = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata,
                Err(error) => {
                    (self.report)(&path, "cannot access", error);
                    continue;
                }
            };
            self.file(&path, &name, &metadata)?;
            if !metadata.is_dir() {
                continue;
            }
            match fs::read_dir(&path) {
                Ok(entries) => {
                    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
                    names.sort();
                    let below = |file: &std::ffi::OsString| Source { path: path.join(file), name: name.join(file) };
                    pending.extend(names.iter().rev().map(below));
                }
                Err(error) => (self.report)(&path, "cannot list", error),
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, name: &Path, metadata: &Metadata) -> io::Result<()> {
        if metadata.file_type().is_socket() {
            return Ok(());
        }
        if let Some(first) = self.first_name(name, metadata) {
            let mut header = Header::new_gnu();
            header.set_metadata(metadata);
            header.set_entry_type(EntryType::Link);
            header.set_size(0);
            return self.builder.append_link(&mut header, name, first);
        }
        // It must be readable before its header is written, which cannot be taken back.
        if metadata.is_file()
            && let Err(error) = File::open(path)
        {
            (self.report)(path, "cannot open", error);
            return Ok(());
        }
        let attributes = extended_attributes(path);
        if !attributes.is_empty() {
            let pairs = attributes.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            self.builder.append_pax_extensions(pairs)?;
        }
        let kind = metadata.file_type();
        if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() {
            return self.special(name, metadata);
        }
        self.builder.append_path_with_name(path, name)
    }

    /// A device or a fifo.
    fn special(&mut self, name: &Path, metadata: &Metadata) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_metadata(metadata);
        header.set_size(0);
        header.set_device_major(rustix::fs::major(metadata.rdev()))?;
        header.set_device_minor(rustix::fs::minor(metadata.rdev()))?;
        self.builder.append_data(&mut header, name, io::empty())
    }

    /// Another name of the same file, that is in the archive already.
    fn first_name(&mut self, name: &Path, metadata: &Metadata) -> Option<PathBuf> {
        if metadata.nlink() < 2 || metadata.is_dir() {
            return None;
        }
        let known = self.links.get(&(metadata.dev(), metadata.ino())).cloned();
        if known.is_none() && self.links.len() < LINKS_MAX {
            self.links.insert((metadata.dev(), metadata.ino()), name.to_owned());
        }
        known
    }
}

/// As pax names and holds them. Those that cannot be read, or have odd names, are left out.
fn extended_attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    // Mostly there are none, and then this is one system call.
    let Ok(1..) = llistxattr(path, &mut [0u8; 0][..]) else { return Vec::new() };
    let mut names = vec![0; XATTR_BYTES_MAX];
    let Ok(length) = llistxattr(path, &mut names[..]) else { return Vec::new() };
    let names = names[..length].split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    let mut value = vec![0; XATTR_BYTES_MAX];
    let mut read = |name: &str| {
        let length = lgetxattr(path, name, &mut value[..]).ok()?;
        Some((format!("{XATTR}{name}"), value[..length].to_vec()))
    };
    names.filter(|name| !name.is_empty()).filter_map(&mut read).collect()
}
