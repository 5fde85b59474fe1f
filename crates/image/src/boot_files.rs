//! What an image boots: the kernel, initrd and command line that its own boot loader would take.
//!
//! The guest reads the loader's configuration and finds the files; what it sends goes into memory files of this
//! process, which nobody looks into here.

use crate::error::{Context, Error, Result};
use crate::guest::{OpenImage, RecordTaker};
use blockyard_block::{Remedy, printable};
use blockyard_protocol::appliance::{
    BootData, BootEntry as Told, BootLoader, FindBootFiles, INITRD_BYTES_MAX, KERNEL_BYTES_MAX, Operation, Record,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use serde::Serialize;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek, Write};

/// What an image boots.
#[derive(Debug)]
pub struct BootFiles {
    /// Which entry it is of.
    pub entry: BootEntry,
    /// The kernel, at its start: a file in memory that nobody changes any more.
    pub kernel: File,
    /// All the initrds of the entry, one behind the other as Linux wants them, in such a file.
    pub initrd: Option<File>,
}

/// An entry of a boot loader's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BootEntry {
    /// The loader's name, in lower case; `none`: no loader's configuration was found, and the newest kernel was taken.
    pub loader: &'static str,
    /// The file that has the entry.
    pub file: String,
    /// Where in it; nothing: the file is the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// What it is called in a menu.
    pub title: String,
    /// The kernel.
    pub kernel: String,
    /// Bytes of the kernel.
    pub kernel_bytes: u64,
    /// The initrds.
    pub initrds: Vec<String>,
    /// Bytes of all initrds together.
    pub initrd_bytes: u64,
    /// What the kernel is told: without control characters.
    pub command_line: String,
    /// What is worth knowing of it, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl fmt::Display for BootEntry {
    /// Where it was found, as a part of a sentence.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loader, file, title, .. } = self;
        match (*loader, self.line) {
            (NO_LOADER, _) => write!(formatter, "the newest kernel, {file}"),
            (_, Some(line)) => write!(formatter, "{loader}'s entry \"{title}\" ({file}, line {line})"),
            (_, None) => write!(formatter, "{loader}'s entry \"{title}\" ({file})"),
        }
    }
}

const NO_LOADER: &str = "none";

impl TryFrom<Told> for BootEntry {
    type Error = io::Error;

    /// Judges what the guest says.
    fn try_from(told: Told) -> io::Result<Self> {
        if told.command_line.contains(char::is_control) {
            return Err(io::Error::other("the appliance says a command line with control characters"));
        }
        if told.kernel_bytes > KERNEL_BYTES_MAX || told.initrd_bytes > INITRD_BYTES_MAX {
            return Err(io::Error::other("the appliance says that kernel or initrd are longer than they may be"));
        }
        Ok(Self {
            loader: match told.loader {
                BootLoader::SystemdBoot => "systemd-boot",
                BootLoader::BootLoaderSpecification => "loader/entries",
                BootLoader::Grub => "grub",
                BootLoader::Extlinux => "extlinux",
                BootLoader::None => NO_LOADER,
            },
            file: printable(&told.file),
            line: (told.line > 0).then_some(told.line),
            title: printable(&told.title),
            kernel: printable(&told.kernel),
            kernel_bytes: told.kernel_bytes,
            initrds: told.initrds.iter().map(|name| printable(name)).collect(),
            initrd_bytes: told.initrd_bytes,
            command_line: told.command_line,
            notes: told.notes.iter().map(|note| printable(note)).collect(),
        })
    }
}

impl OpenImage {
    /// Takes what the image's boot loader would boot. Its file systems must be mounted ([`OpenImage::mount`]).
    ///
    /// # Errors
    /// When there is no kernel, or the loader's configuration is broken.
    pub fn boot_files(&mut self) -> Result<BootFiles> {
        let found = self.find_boot_files(true)?;
        let [kernel, initrd] = found.files.map(|file| file.map(MemoryFile::sealed).transpose());
        let (kernel, initrd) = (kernel?.ok_or_else(|| Error::refused("the appliance has sent no kernel"))?, initrd?);
        Ok(BootFiles { entry: found.entry.unwrap_or_default(), kernel, initrd })
    }

    /// Says what the image's boot loader would boot, as [`OpenImage::boot_files`] takes it.
    ///
    /// # Errors
    /// As there.
    pub fn boot_entry(&mut self) -> Result<BootEntry> {
        let found = self.find_boot_files(false)?;
        found.entry.ok_or_else(|| Error::refused("the appliance has named no kernel"))
    }

    fn find_boot_files(&mut self, content: bool) -> Result<Found> {
        let request = FindBootFiles { disks: self.disks(), content };
        let found = self.records(Operation::FindBootFiles(request), Found::default()).map_err(|error| match error {
            Error::Refused(said) => Error::Refused(format!("{said}: {}", Remedy::GiveKernel)),
            error => error,
        });
        found.with_context(|| self.name().to_owned())
    }
}

/// What has come.
#[derive(Default)]
struct Found {
    entry: Option<BootEntry>,
    /// Kernel and initrd, as far as they are there.
    files: [Option<MemoryFile>; 2],
}

impl RecordTaker for Found {
    type Output = Self;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::BootEntry(entry) if self.entry.is_none() => self.entry = Some(entry.try_into()?),
            Record::BootData(data) => self.take_data(&data)?,
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self> {
        let Some(entry) = &self.entry else { return Ok(self) };
        let wanted = [entry.kernel_bytes, entry.initrd_bytes];
        let is_cut =
            |(file, wanted): (&Option<MemoryFile>, u64)| file.as_ref().is_some_and(|file| file.bytes != wanted);
        match self.files.iter().zip(wanted).any(is_cut) {
            true => Err(io::Error::other("the appliance has sent a part of the kernel or initrd only")),
            false => Ok(self),
        }
    }
}

impl Found {
    fn take_data(&mut self, data: &BootData) -> io::Result<()> {
        let Some(entry) = &self.entry else {
            return Err(io::Error::other("the appliance sends a file without a name"));
        };
        let (file, name, bytes_max) = match (data.is_initrd, &mut self.files) {
            (false, [kernel, _]) => (kernel, c"kernel", entry.kernel_bytes),
            (true, [_, initrd]) => (initrd, c"initrd", entry.initrd_bytes),
        };
        let file = match file {
            Some(file) => file,
            None => file.insert(MemoryFile::new(name)?),
        };
        file.append(&data.bytes, bytes_max)
    }
}

/// A file in memory that grows.
struct MemoryFile {
    file: File,
    bytes: u64,
}

impl MemoryFile {
    fn new(name: &std::ffi::CStr) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        Ok(Self { file: file.into(), bytes: 0 })
    }

    fn append(&mut self, bytes: &[u8], bytes_max: u64) -> io::Result<()> {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > bytes_max {
            return Err(io::Error::other("the appliance sends more than it has said"));
        }
        self.file.write_all(bytes)
    }

    /// The file, at its start, as it stays.
    fn sealed(mut self) -> Result<File> {
        self.file.rewind()?;
        fcntl_add_seals(&self.file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)
            .map_err(io::Error::from)
            .context("keeping the kernel as it is")?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kernel_bytes: u64) -> Record {
        Record::BootEntry(Told { kernel_bytes, initrd_bytes: 2, file: "a\x1b[31m".into(), ..Told::default() })
    }

    fn data(is_initrd: bool, bytes: &[u8]) -> Record {
        Record::BootData(BootData { is_initrd, bytes: bytes.to_vec() })
    }

    fn taken(records: Vec<Record>) -> io::Result<Found> {
        let mut found = Found::default();
        records.into_iter().try_for_each(|record| found.take(record))?;
        found.finish()
    }

    #[test]
    fn files_are_as_long_as_the_entry_says_and_stay_as_they_are() {
        let whole = vec![told(3), data(false, b"ke"), data(false, b"r"), data(true, b"in")];
        let Found { entry, files: [kernel, _] } = taken(whole.clone()).unwrap();
        assert!(!entry.unwrap().file.contains('\x1b'));
        let kernel = kernel.unwrap().sealed().unwrap();
        assert_eq!(io::read_to_string(&kernel).unwrap(), "ker");
        assert!((&kernel).write_all(b"x").is_err() && kernel.set_len(0).is_err());
        for (records, complaint) in [
            (whole[1..].to_vec(), "without a name"),
            ([&whole[..2], &whole[3..]].concat(), "a part of"),
            ([&whole[..], &[data(true, b"x")]].concat(), "more than it has said"),
            (vec![told(KERNEL_BYTES_MAX + 1)], "longer than they may be"),
            (vec![Record::BootEntry(Told { command_line: "a\nb".into(), ..Told::default() })], "control characters"),
        ] {
            let error = taken(records).map(drop).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }
}
