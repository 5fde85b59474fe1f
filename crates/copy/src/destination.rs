//! The disk that a copy writes: a file that takes its name when all is there, or a disk written in place.

use crate::disk_end::DiskEnd;
use crate::plan::{CopyPlan, SECTOR_BYTES_DEFAULT};
use crate::source::Source;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{
    BlockMapFormat, Disk, ReplacementFile, flush, reads_as_zeros, refuse_missing_device, shell_word, shown,
};
use blockyard_session::open::{OpenOptions, open_disk};
use std::path::Path;

/// The disk that is written.
pub(crate) struct Destination {
    /// The disk as the guest sees it.
    pub(crate) end: DiskEnd,
    /// Whether it reads as zeros wherever nothing was written.
    pub(crate) zeroed: bool,
    /// Bytes that a guest has to write or zero at least: the others read as zeros already.
    pub(crate) must_write_bytes: u64,
    named: DiskSpecification,
    /// The file that takes its name at the end; `None` for a disk that is written in place.
    replacement: Option<ReplacementFile>,
}

impl Destination {
    /// Opens the output for `source`'s bytes.
    ///
    /// # Errors
    /// When it is the input, is not there, cannot be written, or has too little room.
    pub(crate) fn open(plan: &CopyPlan, source: &Source, options: &OpenOptions<'_>) -> Result<Self> {
        let (input, output) = (&plan.input.named, &plan.output.named);
        input.differs_from(output)?;
        // Of images, only the data can be copied into one that is there.
        match output.replaced_file(plan.in_place)?.filter(|_| output.raw_file().is_some()) {
            Some(path) => Self::replacement(plan, source, path),
            None => Self::in_place(plan, source, options),
        }
    }

    /// Storage for the data is had beforehand, holes stay holes.
    fn replacement(plan: &CopyPlan, source: &Source, path: &Path) -> Result<Self> {
        let output = &plan.output;
        let replacement = ReplacementFile::create_like(path, source.permissions)?;
        replacement.set_length(source.length_bytes)?;
        // Where zeros are looked for, what is not written stays a hole.
        let must_write_bytes = match source.looks_for_zeros(plan) {
            true => 0,
            false => source.for_data(|range| preallocate(&replacement, range))?,
        };
        let file = replacement.file().try_clone().context("duplicating a file descriptor")?;
        let sector_bytes = output.sector_bytes.unwrap_or(SECTOR_BYTES_DEFAULT);
        let opened = output.specification.clone().or_logical_block(sector_bytes).open_file(file)?;
        Ok(Self {
            end: DiskEnd::new(opened.disk, None, output, plan.request_bytes)?,
            zeroed: true,
            must_write_bytes,
            named: output.named.clone(),
            replacement: Some(replacement),
        })
    }

    fn in_place(plan: &CopyPlan, source: &Source, options: &OpenOptions<'_>) -> Result<Self> {
        let (output, needed) = (&plan.output, source.length_bytes);
        refuse_missing_image(&output.named, needed)?;
        if let (true, Some(path)) = (plan.in_place, output.named.image_file().filter(|path| !path.exists())) {
            refuse_missing_device(path)?;
            bail!("there is no {} to write into: leave out -n", shown(path));
        }
        let mut specification = output.specification.clone();
        if specification.raw_file().is_some() {
            specification = specification.or_logical_block(output.sector_bytes.unwrap_or(SECTOR_BYTES_DEFAULT));
        }
        let opened = open_disk(&specification, &OpenOptions { unpacking: None, ..*options })?;
        let room = opened.length_bytes;
        let end = DiskEnd::new(opened.disk, opened.session, output, plan.request_bytes)?;
        let geometry = end.disk.geometry();
        if geometry.read_only {
            bail!("{} is read-only: nothing can be copied there", output.named);
        }
        let (named, input) = (&output.named, &plan.input.named);
        if room < needed {
            bail!("{named} has {room} bytes, too few for the {needed} bytes of {input}");
        }
        if geometry.capacity_bytes < needed.next_multiple_of(end.sector_bytes.into()) {
            let sector_bytes = end.sector_bytes;
            bail!("{named} has {room} bytes, too few for the {needed} bytes of {input} in sectors of {sector_bytes}");
        }
        let zeroed = reads_as_zeros(&*end.disk, needed).with_context(|| format!("cannot tell what is on {named}"))?;
        let must_write_bytes = match (zeroed, source.looks_for_zeros(plan)) {
            (false, _) => needed,
            (true, true) => 0,
            (true, false) => source.for_data(|_| Ok(()))?,
        };
        Ok(Self { end, zeroed, must_write_bytes, named: named.clone(), replacement: None })
    }

    /// A copy that failed: says what has become of a destination that was written in place.
    pub(crate) fn failed(&self, error: anyhow::Error) -> anyhow::Error {
        let touched = self.replacement.is_none() && self.end.disk.work().bytes_taken > 0;
        if touched { error.context(format!("{} is incomplete", self.named)) } else { error }
    }

    /// Gives a file its name. `durable`: its data and name are on stable storage afterwards.
    ///
    /// # Errors
    /// When the operating system refuses; the old file is still there then.
    pub(crate) fn finish(self, durable: bool) -> Result<()> {
        let durable = durable && !self.named.is_cache_unsafe();
        match self.replacement {
            Some(replacement) => Ok(replacement.commit(durable)?),
            // The guest has flushed it, if it was the built-in one.
            None if durable => {
                flush(&*self.end.disk).with_context(|| format!("cannot flush {}", self.named)).map_err(|error| {
                    error.context(format!("{} has everything, but maybe not on stable storage", self.named))
                })
            }
            None => Ok(()),
        }
    }
}

/// An image that is not there would need a size and a kind that nobody has said.
fn refuse_missing_image(output: &DiskSpecification, needed: u64) -> Result<()> {
    let make = match output.format() {
        Some(Format::Qcow2) => "blockyard image create -f qcow2",
        Some(Format::Luks) => "blockyard image create -f luks",
        Some(Format::BlockMap(BlockMapFormat::Vmdk)) => "blockyard image create -f vmdk",
        Some(format @ (Format::BlockMap(_) | Format::Ova)) => {
            let name = format.name();
            return Err(anyhow!(
                "{output} is {name} by its name, and {name} images are only read, or made by `blockyard image convert`: choose \
                 another name, or add ,format=raw if a raw disk may be called so"
            ));
        }
        Some(Format::Raw) | None => return Ok(()),
    };
    let Some(path) = output.path() else { return Ok(()) };
    if path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let (name, size) = (shell_word(&path.to_string_lossy()), needed.next_multiple_of(SECTOR_BYTES_DEFAULT.into()));
    Err(anyhow!(
        "there is no image {} to copy to: make it first ({make} {name} {size}), or add ,format=raw \
         for a raw file of that name",
        shown(path)
    ))
}

/// Pieces of data smaller than this are not worth a system call of their own.
const PREALLOCATE_MIN_BYTES: u64 = 1 << 20;

/// Allocates storage for data, which makes the writes a third faster on ext4 and finds a full disk early.
fn preallocate(replacement: &ReplacementFile, range: std::ops::Range<u64>) -> Result<()> {
    if range.end - range.start >= PREALLOCATE_MIN_BYTES {
        replacement.preallocate(range)?;
    }
    Ok(())
}
