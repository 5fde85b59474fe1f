//! Archives as the kernel wants an initramfs: cpio's "newc" format (Linux, Documentation/driver-api/early-userspace/
//! buffer-format.rst).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Component, Path};

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;
const TRAILER: &str = "TRAILER!!!";

/// Writes an archive, with all files owned by root. Missing parent directories are added.
#[derive(Debug)]
pub struct Archive<W> {
    writer: W,
    directories: BTreeSet<String>,
    entries: u32,
}

impl<W: Write> Archive<W> {
    /// An archive without entries.
    pub fn new(writer: W) -> Self {
        Self { writer, directories: BTreeSet::new(), entries: 0 }
    }

    /// Adds a directory and those above it.
    pub fn directory(&mut self, path: &Path) -> io::Result<()> {
        let mut name = String::new();
        for component in path.components() {
            let Component::Normal(part) = component else { continue };
            if !name.is_empty() {
                name.push('/');
            }
            name.push_str(part.to_str().ok_or_else(|| io::Error::other("a path that is no text"))?);
            if self.directories.insert(name.clone()) {
                self.entry(&name, DIRECTORY, (0, 0), &[])?;
            }
        }
        Ok(())
    }

    /// Adds an executable file.
    pub fn file(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let name = self.name_below_directories(path)?;
        self.entry(&name, EXECUTABLE, (0, 0), content)
    }

    /// Adds a character device.
    pub fn character_device(&mut self, path: &Path, major: u32, minor: u32) -> io::Result<()> {
        let name = self.name_below_directories(path)?;
        self.entry(&name, CHARACTER_DEVICE, (major, minor), &[])
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, (0, 0), &[])?;
        self.writer.flush()?;
        Ok(self.writer)
    }

    fn name_below_directories(&mut self, path: &Path) -> io::Result<String> {
        self.directory(path.parent().unwrap_or(Path::new("")))?;
        let name = path.to_str().ok_or_else(|| io::Error::other("a path that is no text"))?;
        Ok(name.trim_start_matches('/').to_owned())
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let too_long = |_| io::Error::other(format!("{name} is too long for a cpio archive"));
        let content_bytes = u32::try_from(content.len()).map_err(too_long)?;
        let name_bytes = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.entries += 1;
        // Inode, mode, user, group, links, time, size, device of the file, device it is, name's size, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, content_bytes, 0, 0, device.0, device.1, name_bytes, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.padded(&[header.as_bytes(), name.as_bytes(), &[0]])?;
        self.padded(&[content])
    }

    /// Writes `parts`, and zeros up to a multiple of 4 bytes.
    fn padded(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        for part in parts {
            self.writer.write_all(part)?;
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.writer.write_all(&[0; 3][..length.next_multiple_of(4) - length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_named_and_below_their_directories() {
        let mut archive = Archive::new(Vec::new());
        archive.file(Path::new("/a/b/c"), b"hello").unwrap();
        archive.file(Path::new("/a/d"), b"").unwrap();
        archive.character_device(Path::new("/dev/console"), 5, 1).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let text: Vec<_> = String::from_utf8_lossy(&bytes).split("070701").map(str::to_owned).collect();
        let names: Vec<_> = text[1..].iter().map(|entry| entry[104..].split('\0').next().unwrap()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/d", "dev", "dev/console", TRAILER]);
        assert!(text[3].contains("hello"));
        assert!(text[6].contains("0000000500000001"));
    }
}
