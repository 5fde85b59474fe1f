//! Making a new, empty image: with a partition table and file systems, if they are wanted.

use super::{NewImage, check};
use crate::error::{Context, Result};
use crate::guest::{ImageOptions, Resources};
use crate::volumes::file_system_kind::{FileSystemKind, NewFileSystem};
use crate::{ImageDisk, Watch};
use blockyard_block::partition_table::{self, NewPartition, PartitionTable, Scheme};
use blockyard_block::{Disk, Preallocation, flush};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// A file system that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedFileSystem {
    /// Of which kind.
    pub kind: FileSystemKind,
    /// Its label; empty: none.
    pub label: String,
}

/// A partition that is wanted, and what is wanted on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedPartition {
    /// The partition.
    pub partition: NewPartition,
    /// Its file system.
    pub file_system: Option<WantedFileSystem>,
}

/// A new image, and what is on its disk.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The image.
    pub image: NewImage,
    /// Its partition table.
    pub table: Option<Scheme>,
    /// The table's partitions.
    pub partitions: Vec<WantedPartition>,
    /// The file system on a disk without a table.
    pub file_system: Option<WantedFileSystem>,
}

impl Creation {
    /// Where the partitions are.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn ranges(&self) -> Result<Vec<Range<u64>>> {
        match self.table {
            Some(scheme) => Ok(partition_table::lay_out(scheme, &self.new_partitions(), self.image.size_bytes, 512)?),
            None => Ok(Vec::new()),
        }
    }

    /// Makes it, under its name when all is there. Files behind it lie in `allow_dirs`; `resources` are what the guest
    /// is made of that makes file systems.
    ///
    /// # Errors
    /// When the partitions do not fit, the image cannot be written, or there is no guest. Then nothing has changed.
    pub fn run(
        &self,
        allow_dirs: &[PathBuf],
        resources: impl FnOnce() -> Result<Resources>,
        watch: &Arc<dyn Watch>,
    ) -> Result<()> {
        self.make(allow_dirs, resources, watch).map_err(|error| error.or_no_space(&self.image.path))
    }

    fn make(
        &self,
        allow_dirs: &[PathBuf],
        resources: impl FnOnce() -> Result<Resources>,
        watch: &Arc<dyn Watch>,
    ) -> Result<()> {
        // Before anything is written.
        self.ranges()?;
        let file = self.image.make(&**watch)?;
        let file_systems = self.file_systems();
        if self.table.is_some() || !file_systems.is_empty() {
            let new = self.image.open(&file, allow_dirs)?;
            if let Some(scheme) = self.table {
                PartitionTable::create(&*new.disk, scheme, &self.new_partitions())?;
            }
            if !file_systems.is_empty() {
                self.make_file_systems(&file_systems, &new.disk, resources()?, watch)?;
            }
            flush(&*new.disk).context("cannot write the partition table")?;
            new.close()?;
        }
        check(&**watch)?;
        Ok(file.commit(true)?)
    }

    fn new_partitions(&self) -> Vec<NewPartition> {
        self.partitions.iter().map(|wanted| wanted.partition.clone()).collect()
    }

    /// The file systems, with the numbers of their partitions; none for the disk.
    fn file_systems(&self) -> Vec<(Option<usize>, &WantedFileSystem)> {
        let numbered = self.partitions.iter().zip(1..).map(|(wanted, number)| (Some(number), &wanted.file_system));
        let all = numbered.chain([(None, &self.file_system)]);
        all.filter_map(|(number, wanted)| Some((number, wanted.as_ref()?))).collect()
    }

    /// Makes them in an appliance. What zeros are written takes no storage in a sparse image; one without a backing
    /// file shows nothing but zeros.
    fn make_file_systems(
        &self,
        file_systems: &[(Option<usize>, &WantedFileSystem)],
        disk: &Arc<dyn Disk>,
        resources: Resources,
        watch: &Arc<dyn Watch>,
    ) -> Result<()> {
        let name = self.image.path.display().to_string();
        let disk = ImageDisk { disk: Arc::clone(disk), name: name.as_str().into() };
        let mut image = ImageOptions::new(vec![disk]).boot(resources, Arc::clone(watch))?;
        image.zeros_as_holes(self.image.preallocation == Preallocation::Off);
        for (number, WantedFileSystem { kind, label }) in file_systems {
            let device = number.map_or_else(|| "vda".to_owned(), |number| format!("vda{number}"));
            let is_zeros = self.image.backing.is_none();
            image.make_file_system(*kind, &device, NewFileSystem { label, is_zeros, ..NewFileSystem::default() })?;
        }
        image.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nobody;
    use blockyard_block::specification::Format;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Ends what has asked so often.
    struct Impatient(AtomicUsize);

    impl Watch for Impatient {
        fn ends(&self) -> Option<String> {
            let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.is_err().then(|| "impatience".to_owned())
        }
    }

    #[test]
    fn an_image_appears_when_it_is_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.img");
        let image = NewImage { preallocation: Preallocation::Full, ..NewImage::new(&path, Format::Raw, 4 << 20) };
        let creation = Creation { image, table: Some(Scheme::Gpt), partitions: Vec::new(), file_system: None };
        let run = |watch: Arc<dyn Watch>| creation.run(&[], || unreachable!("there is no file system"), &watch);
        let stopped = run(Arc::new(Impatient(0.into()))).unwrap_err();
        assert!(stopped.in_one_line().ends_with("stopped by impatience"), "{stopped:?}");
        assert!(directory.path().read_dir().unwrap().next().is_none());
        run(Arc::new(Nobody)).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 4 << 20);
    }

    #[test]
    fn what_takes_long_is_stopped_in_the_middle_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        for format in Format::ALL.into_iter().filter(|format| format.is_made() && *format != Format::Luks) {
            let image = NewImage { preallocation: Preallocation::Full, ..NewImage::new(&path, format, 64 << 20) };
            // More often than there are tables, or headers of blocks.
            let stopped = image.make(&Impatient(40.into())).unwrap_err();
            assert!(stopped.in_one_line().ends_with("stopped by impatience"), "{format:?}: {stopped:?}");
        }
    }
}
