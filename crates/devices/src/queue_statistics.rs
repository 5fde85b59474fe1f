//! What a queue has done.

use blockyard_block::layers::{LatencyHistogram, OperationKind};
use blockyard_block::{Operation, RequestError};
use std::iter::Sum;
use std::ops::Add;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$documentation:meta])* $name:ident,)*) => {
        /// Counters of one queue: written by the thread that owns the queue, read by anybody.
        #[derive(Debug, Default)]
        pub struct QueueStatistics {
            $(pub(crate) $name: Counter,)*
            pub(crate) in_flight: AtomicU64,
            pub(crate) latencies: [LatencyHistogram; OperationKind::ALL.len()],
            first_fault: OnceLock<String>,
            first_error: OnceLock<RequestError>,
            first_write_error: OnceLock<RequestError>,
        }

        /// A [`QueueStatistics`] at one moment. They add up.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct QueueCounts {
            $($(#[$documentation])* pub $name: u64,)*
        }

        impl QueueStatistics {
            /// The counters now. Each is exact; together they may straddle a request.
            pub fn counts(&self) -> QueueCounts {
                QueueCounts { $($name: self.$name.get(),)* }
            }
        }

        impl QueueCounts {
            /// How many they are.
            pub const COUNT: usize = [$(stringify!($name)),*].len();

            /// All of them, in their order.
            pub fn to_words(self) -> [u64; Self::COUNT] {
                [$(self.$name),*]
            }

            /// What [`QueueCounts::to_words`] was given.
            pub fn from_words(words: [u64; Self::COUNT]) -> Self {
                let [$($name),*] = words;
                Self { $($name),* }
            }
        }

        impl Add for QueueCounts {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name.wrapping_add(other.$name),)* }
            }
        }
    };
}

counters! {
    /// Read requests handed to the disk.
    reads,
    /// Write requests handed to the disk.
    writes,
    /// Flush requests handed to the disk.
    flushes,
    /// Discard requests handed to the disk.
    discards,
    /// Write-zeroes requests handed to the disk.
    write_zeroes,
    /// Requests for what the device is: its serial on virtio-blk, IDENTIFY DEVICE on AHCI.
    get_ids,
    /// Bytes read without error.
    bytes_read,
    /// Bytes written without error.
    bytes_written,
    /// Bytes discarded without error.
    bytes_discarded,
    /// Bytes zeroed without error.
    bytes_zeroed,
    /// Times the doorbell was rung.
    doorbells,
    /// Times requests were found without the driver having rung.
    polls,
    /// Times the driver was interrupted.
    interrupts,
    /// Requests that were answered with an error.
    errors,
    /// Writes that the disk had taken and failed at.
    write_errors,
}

impl Sum for QueueCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Self::add)
    }
}

impl QueueStatistics {
    /// Requests that the disk has now.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// How long requests of this kind took, from when they were taken to when they were answered.
    pub fn latencies(&self, kind: OperationKind) -> &LatencyHistogram {
        &self.latencies[kind.index()]
    }

    /// The first thing a driver did wrong on this queue that was answered with an error, as a sentence.
    pub fn first_fault(&self) -> Option<&str> {
        self.first_fault.get().map(String::as_str)
    }

    /// Why the first request that the disk had taken failed, if one has. The driver hears only that it did.
    pub fn first_error(&self) -> Option<RequestError> {
        self.first_error.get().copied()
    }

    /// Why the first write that the disk had taken failed, if one has.
    pub fn first_write_error(&self) -> Option<RequestError> {
        self.first_write_error.get().copied()
    }

    /// The counters of requests and of bytes that an operation belongs to.
    pub(crate) fn of(&self, operation: Operation) -> (&Counter, Option<&Counter>) {
        match operation {
            Operation::Read => (&self.reads, Some(&self.bytes_read)),
            Operation::Write { .. } => (&self.writes, Some(&self.bytes_written)),
            Operation::Flush => (&self.flushes, None),
            Operation::Discard { .. } => (&self.discards, Some(&self.bytes_discarded)),
            Operation::WriteZeroes { .. } => (&self.write_zeroes, Some(&self.bytes_zeroed)),
        }
    }

    pub(crate) fn record_fault(&self, fault: &dyn std::fmt::Display) {
        self.first_fault.get_or_init(|| fault.to_string());
    }

    pub(crate) fn record_error(&self, operation: Operation, error: RequestError) {
        if matches!(operation, Operation::Write { .. }) {
            self.write_errors.add(1);
            self.first_write_error.get_or_init(|| error);
        }
        // What a disk does not do, it has not failed at.
        if error != RequestError::Unsupported {
            self.first_error.get_or_init(|| error);
        }
    }
}

/// A counter with one writer: plain loads and stores, no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
