//! Changing what an image's header says of it: its version, how wide its refcounts are and whether they may be behind,
//! and where its data are.
//!
//! Refcounts of another width are written anew behind the file's end, and what version 2 cannot say is taken out of the
//! tables before, each step by itself; then one sector puts all of it in force.

use super::bitmaps;
use super::create::check_data_file_name;
use super::encryption::DataCipher;
use super::header::{Header, INCOMPATIBLE_MARKS};
use super::header_change::{FirstCluster, REFCOUNT_ORDER_V2};
use super::own_file::{header_to_change, image_file, read_header, writable};
use super::references;
use super::repair::Qcow2Check;
use super::{snapshots, version_2};
use crate::formats::luks::NO_KEY;
use crate::formats::{AllowedDirectories, ImageError, WritableFile};
use crate::{OpenedFile, Remedy, Repair};
use std::io;
use std::sync::Arc;

/// What an image's header is to say from now on; `None`: what it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qcow2Amendment {
    /// Version 2 or 3. One of version 3 becomes one of version 2 if it has nothing that version 2 has not.
    pub version: Option<u32>,
    /// Refcounts may be written late by whoever writes to it: the dirty mark says so then.
    pub has_lazy_refcounts: Option<bool>,
    /// Refcounts have two to the power of this, in bits: 0 to 6; of version 2, 4.
    pub refcount_order: Option<u32>,
    /// The name of the file that has its data, of an image whose data are in one. It is not looked at.
    pub data_file: Option<String>,
    /// Whether that is a raw image of the disk, which it cannot become.
    pub is_data_file_raw: Option<bool>,
}

impl Qcow2Amendment {
    /// Whether there can be such an image, for who does more to it: nothing is changed.
    ///
    /// # Errors
    /// When the image cannot be read or written, or when there is no such image.
    pub fn check(&self, image: &OpenedFile) -> Result<(), ImageError> {
        self.change(image)?.check()
    }

    fn change<'a>(&'a self, image: &'a OpenedFile) -> Result<Change<'a>, ImageError> {
        Ok(Change { image, header: header_to_change(image.file(), image.path())?, amendment: self })
    }

    /// Changes the header of an image that is open for writing, and locked: all of it, by one sector, or nothing. What
    /// is marked dirty is repaired before. A key in `allowed` is for what is encrypted, and shows zeros over a backing
    /// file that version 2 has to have as data.
    ///
    /// # Errors
    /// When the image is damaged or cannot be written, when there is no such image, or no room in its header.
    pub fn apply(&self, image: &OpenedFile, allowed: &AllowedDirectories) -> Result<(), ImageError> {
        let change = self.change(image)?;
        change.check()?;
        let version = self.version.unwrap_or(change.header.version);
        let order = self.refcount_order.unwrap_or(change.header.refcount_order);
        if version < change.header.version {
            // It is one of version 3 with these refcounts before.
            if order != change.header.refcount_order {
                change.put(3, order)?;
            }
            let header = read_header(image.file(), image.path())?;
            let change = Change { header, ..change };
            change.expand_zeros(allowed)?;
            return change.put(version, order);
        }
        change.put(version, order)
    }
}

struct Change<'a> {
    image: &'a OpenedFile,
    header: Header,
    amendment: &'a Qcow2Amendment,
}

impl Change<'_> {
    fn failed(&self, source: io::Error) -> ImageError {
        ImageError::System { action: "change the header of", path: self.image.path().to_owned(), source }
    }

    fn refused(&self, problem: impl Into<String>) -> ImageError {
        ImageError::Unusable { path: self.image.path().to_owned(), problem: problem.into() }
    }

    /// Whether there can be such an image, before anything is written.
    fn check(&self) -> Result<(), ImageError> {
        let Qcow2Amendment { version, has_lazy_refcounts, refcount_order, data_file, is_data_file_raw } =
            self.amendment;
        let version = version.unwrap_or(self.header.version);
        let order = refcount_order.unwrap_or(self.header.refcount_order);
        if version < 3 && order != REFCOUNT_ORDER_V2 {
            let word = if self.header.version < 3 { "compat=1.1" } else { "refcount_bits=16" };
            let problem = format!("would be of version 2 (compat=0.10), which has refcounts of 16 bits: add {word}");
            return Err(self.refused(problem));
        }
        if version < 3 && *has_lazy_refcounts == Some(true) {
            return Err(
                self.refused("would be of version 2 (compat=0.10), which has no lazy refcounts: add compat=1.1")
            );
        }
        if self.header.data_file.is_none() && (data_file.is_some() || *is_data_file_raw == Some(true)) {
            return Err(self.refused("has its data in itself, and not in a data file: `image convert` puts them there"));
        }
        if let Some(name) = data_file {
            check_data_file_name(name).map_err(|problem| ImageError::Invalid(problem.into()))?;
        }
        if *is_data_file_raw == Some(true) && !self.header.is_data_file_raw {
            return Err(self.refused(
                "has a data file that may be no raw image of the disk, and does not become one by saying so: convert \
                 it (image convert -o data_file_raw=on)",
            ));
        }
        match version {
            version if version < self.header.version => self.check_version_2(),
            version if version > self.header.version => {
                let file = image_file(self.image.file()).map_err(|error| self.failed(error))?;
                let found = snapshots::found(&file, &self.header).map_err(|error| self.failed(error))?;
                match found.iter().all(|snapshot| snapshot.own_size_bytes.is_some()) {
                    true => Ok(()),
                    false => Err(self.refused(
                        "has snapshots that do not say which size they have, as those of version 3 must: remove them \
                         first (image snapshot -d)",
                    )),
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether it has nothing that version 2 could not say.
    fn check_version_2(&self) -> Result<(), ImageError> {
        let header = &self.header;
        let remedy = "and cannot be of version 2 (compat=0.10): convert it (image convert -o compat=0.10)";
        let file = image_file(self.image.file()).map_err(|error| self.failed(error))?;
        let has = match () {
            () if header.data_file.is_some() => "has a data file",
            () if header.has_extended_l2() => "has extended L2 entries",
            () if self.has_zstd(&file)? => "has clusters that are compressed by zstd",
            () => "",
        };
        if !has.is_empty() {
            return Err(self.refused(format!("{has}, {remedy}")));
        }
        if !bitmaps::bitmaps(&file, header).map_err(|error| self.failed(error))?.is_empty() {
            let problem =
                "has bitmaps, which version 2 (compat=0.10) has not: remove them first (image bitmap --remove)";
            return Err(self.refused(problem));
        }
        let found = snapshots::found(&file, header).map_err(|error| self.failed(error))?;
        let has_same = |snapshot: &snapshots::FoundSnapshot| {
            snapshot.size_bytes == header.size_bytes && snapshot.described.vm_state_bytes == 0
        };
        match found.iter().all(has_same) {
            true => Ok(()),
            false => Err(self.refused(
                "has snapshots of another size or with a machine's state, which version 2 (compat=0.10) need not know: \
                 remove them first (image snapshot -d)",
            )),
        }
    }

    /// Whether something in `file` is compressed so. That new clusters would be is nothing that is lost.
    fn has_zstd(&self, file: &WritableFile) -> Result<bool, ImageError> {
        if self.header.incompatible & !INCOMPATIBLE_MARKS == 0 {
            return Ok(false);
        }
        self.check_in_order()?;
        version_2::has_compressed_clusters(file, &self.header).map_err(|error| self.failed(error))
    }

    /// Takes clusters that read as zeros by what their entries say out of the tables.
    fn expand_zeros(&self, allowed: &AllowedDirectories) -> Result<(), ImageError> {
        self.check_in_order()?;
        let file = writable(self.image.file()).map_err(|error| self.failed(error))?;
        let path = self.image.path();
        let advice = "make a new image of it with `blockyard image convert`";
        let cipher = DataCipher::open(&file, &self.header, path, allowed.keys().own(), Some(advice))?;
        if matches!(cipher, DataCipher::Locked) && self.header.backing.is_some() {
            return Err(self.refused(NO_KEY));
        }
        let file = Arc::new(file.encrypted(cipher));
        version_2::expand_zeros(&file, &self.header).map_err(|error| self.failed(error))
    }

    /// Puts version, refcounts and all else in force by one sector.
    fn put(&self, version: u32, order: u32) -> Result<(), ImageError> {
        let failed = |error| self.failed(error);
        let file = writable(self.image.file()).map_err(failed)?;
        let mut first = FirstCluster::read(&file, &self.header).map_err(failed)?;
        match version {
            version if version < self.header.version => first.become_version_2(),
            version if version > self.header.version => first.become_version_3(),
            _ => {}
        }
        if let Some(is_lazy) = self.amendment.has_lazy_refcounts {
            first.set_lazy_refcounts(is_lazy);
        }
        if self.header.data_file.is_some() {
            let is_raw = self.amendment.is_data_file_raw.unwrap_or(self.header.is_data_file_raw);
            first.set_data_file(&self.header, self.amendment.data_file.as_deref(), is_raw);
        }
        if order == self.header.refcount_order {
            return first.write(&file).map_err(failed);
        }
        // Marks would say less than the new ones.
        if self.check_in_order()? > 0 {
            Qcow2Check::open(self.image, true)?.run_without_copies(Repair::Leaks, &mut |_| ())?;
        }
        let old = references::in_refcount_table(&file, &self.header).collect::<io::Result<Vec<_>>>().map_err(failed)?;
        let check = Qcow2Check::open(self.image, true)?;
        let table = check.write_refcounts(order)?;
        first.set_refcounts(table.map_err(|_| self.refused(damaged()))?, order);
        first.write(&file).map_err(failed)?;
        // Nobody uses those any more. Where their storage cannot be given back, it stays theirs.
        let table = self.header.refcounts;
        let blocks = old.iter().map(|block| (block.offset_bytes, block.length_bytes));
        for (offset_bytes, length_bytes) in blocks.chain([(table.offset_bytes, table.length_bytes)]) {
            let _ = file.punch_hole(offset_bytes, length_bytes);
        }
        Ok(())
    }

    /// Whether the tables can be relied on; how many clusters have refcounts that are too high.
    fn check_in_order(&self) -> Result<u64, ImageError> {
        let report = Qcow2Check::open(self.image, false)?.run(Repair::None, &mut |_| ())?;
        if report.corruptions > 0 { Err(self.refused(damaged())) } else { Ok(report.leaks) }
    }
}

fn damaged() -> String {
    format!("is damaged: repair it with {}", Remedy::RepairImage)
}
