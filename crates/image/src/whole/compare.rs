//! Comparing two disks.

use super::{Told, WholeDisk, stopped};
use crate::Watch;
use crate::error::{Error, Result};
use blockyard_block::comparison::{Comparing, Comparison as Found, ComparisonError};

/// A comparison of two disks, both open.
pub struct Comparison {
    names: [String; 2],
    disks: [WholeDisk; 2],
    is_strict: bool,
}

/// What it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The disks hold the same. Of disks of different size, the longer one goes on with zeros.
    Same,
    /// Their sizes are different, which a strict comparison does not go beyond.
    Sizes,
    /// This byte is the first that differs.
    Contents(u64),
    /// From this byte on, one has storage and the other has none; only asked for by a strict comparison.
    Allocation(u64),
}

impl Comparison {
    /// Of two disks; `names` is what they are called. `is_strict`: sizes count too, and what has storage.
    pub fn new(names: [&str; 2], disks: [WholeDisk; 2], is_strict: bool) -> Self {
        Self { names: names.map(str::to_owned), disks, is_strict }
    }

    /// The sizes of the disks.
    pub fn sizes(&self) -> [u64; 2] {
        [self.disks[0].capacity_bytes(), self.disks[1].capacity_bytes()]
    }

    /// How many threads it has, each with a queue of either disk.
    pub fn threads(&self) -> usize {
        const THREADS: usize = 4;
        let queues_max = self.disks[0].queues_max.min(self.disks[1].queues_max);
        std::thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(queues_max)
    }

    /// Compares.
    ///
    /// # Errors
    /// When one of them cannot be read, or `watch` ends it.
    pub fn run(&self, watch: &dyn Watch) -> Result<Compared> {
        let [first, second] = self.sizes();
        if self.is_strict && first != second {
            return Ok(Compared::Sizes);
        }
        let told = Told { watch, length_bytes: first.max(second) };
        let comparing = Comparing::new(&*self.disks[0].disk, &*self.disks[1].disk, self.is_strict);
        let found = comparing.run(self.threads(), |done| told.goes_on(done, comparing.data_bytes()));
        match found {
            Ok(Found::Same) => Ok(Compared::Same),
            Ok(Found::Contents { offset_bytes }) => Ok(Compared::Contents(offset_bytes)),
            Ok(Found::Allocation { offset_bytes }) => Ok(Compared::Allocation(offset_bytes)),
            Err(ComparisonError::Stopped) => Err(stopped(watch)),
            Err(error) => {
                let [first, second] = &self.names;
                Err(Error::from(error).context(format!("cannot compare {first} with {second}")))
            }
        }
    }
}
