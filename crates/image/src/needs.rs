//! What an appliance has to have before it can do what it was asked.

use std::fmt;

/// The appliance has to be another one, so that something can be opened in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of memory, at least.
    pub memory_bytes: u64,
    /// Whether its kernel finds out how to compute the second parity of RAID 6, which takes it a while.
    pub raid6: bool,
}

impl fmt::Display for Needs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "it needs an appliance with {} MiB", self.memory_bytes >> 20)
    }
}

impl std::error::Error for Needs {}
