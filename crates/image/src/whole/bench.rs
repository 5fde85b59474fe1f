//! Measuring a disk as `qemu-img bench` does: requests of one kind and length, one place after the other.

use super::check;
use crate::Watch;
use crate::error::{Error, Result};
use blockyard_block::{Disk, MemoryMap, Operation, Queue, Request, RequestError, Segment};
use std::time::{Duration, Instant};

/// Memory that all requests may have together.
const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// How long a request is waited for until it is asked whether to go on.
const LOOK: Duration = Duration::from_millis(100);

/// The token of a flush.
const FLUSH: u64 = u64::MAX;

/// What is asked of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchOptions {
    /// Write; else read.
    pub writes: bool,
    /// Each write is to be on stable storage when it is done.
    pub write_through: bool,
    /// So many requests.
    pub count: u64,
    /// So many of them at once.
    pub depth: u32,
    /// Bytes in each.
    pub request_bytes: u32,
    /// From the beginning of one to the beginning of the next.
    pub step_bytes: u64,
    /// Where the first is.
    pub start_bytes: u64,
    /// A flush after so many writes; 0: none.
    pub flush_interval: u64,
    /// Whether nothing else is under way while the disk flushes.
    pub drains: bool,
    /// What is written, byte by byte.
    pub pattern: u8,
}

/// A disk and what is asked of it.
pub struct Bench {
    name: String,
    queue: Box<dyn Queue>,
    memory: MemoryMap,
    options: BenchOptions,
    /// Places from here on have no room for a request.
    places_end: u64,
}

impl Bench {
    /// Opens the queue of the disk called `name`, and has memory for what is asked.
    ///
    /// # Errors
    /// When that makes no sense on this disk.
    pub fn new(name: &str, disk: &dyn Disk, options: BenchOptions) -> Result<Self> {
        let BenchOptions { depth, request_bytes, step_bytes, start_bytes, flush_interval, .. } = options;
        let geometry = disk.geometry();
        let block_bytes = u64::from(geometry.logical_block_bytes);
        if depth == 0 || request_bytes == 0 {
            return Err(Error::usage("a request has bytes, and there is at least one at once"));
        }
        if [request_bytes.into(), step_bytes, start_bytes].iter().any(|bytes: &u64| !bytes.is_multiple_of(block_bytes))
        {
            return Err(Error::usage(format!("requests, steps and the start are whole blocks of {block_bytes} bytes")));
        }
        let Some(places_end) = geometry.capacity_bytes.checked_sub(request_bytes.into()).map(|last| last + 1) else {
            return Err(Error::usage(format!(
                "the disk has {} bytes, too few for a request of {request_bytes}",
                geometry.capacity_bytes
            )));
        };
        if start_bytes >= places_end {
            return Err(Error::usage(format!("there is no room for a request at byte {start_bytes}")));
        }
        if flush_interval > 0 && options.drains && flush_interval < depth.into() {
            return Err(Error::usage(format!(
                "a flush after every {flush_interval} writes, while nothing else is under way, leaves no {depth} at once"
            )));
        }
        let memory_bytes = u64::from(depth) * u64::from(request_bytes);
        if memory_bytes > MEMORY_BYTES_MAX {
            return Err(Error::usage(format!(
                "{depth} requests of {request_bytes} bytes take more than {} MiB of memory",
                MEMORY_BYTES_MAX >> 20
            )));
        }
        let memory = MemoryMap::allocate(&[(0, memory_bytes as usize)]).map_err(Error::other)?;
        for slot in 0..depth {
            let slice =
                memory.slice(segment(&options, slot)).ok_or_else(|| Error::refused("no memory for requests"))?;
            slice.copy_from(&vec![options.pattern; request_bytes as usize]);
        }
        // A flush may be on its way besides.
        let queue = disk.open_queue(&memory, depth as usize + 1)?;
        Ok(Self { name: name.to_owned(), queue, memory, options, places_end })
    }

    /// Does it all; how long that took.
    ///
    /// # Errors
    /// The first request that failed, or that `watch` ends it.
    pub fn run(self, watch: &dyn Watch) -> Result<Duration> {
        let Self { name, mut queue, memory: _memory, options, places_end } = self;
        let mut free: Vec<u32> = (0..options.depth).rev().collect();
        let mut completions = Vec::with_capacity(queue.depth());
        let depth_max = queue.depth();
        let (mut issued, mut done, mut at) = (0, 0, options.start_bytes);
        let (mut since_flush, mut is_flushing) = (0, false);
        let started = Instant::now();
        while done < options.count || is_flushing {
            check(watch)?;
            loop {
                let is_due = options.flush_interval > 0 && since_flush >= options.flush_interval;
                let may_flush = !is_flushing && (!options.drains || queue.in_flight() == 0);
                if queue.in_flight() == depth_max {
                    break;
                }
                if is_due && may_flush {
                    push(&mut *queue, Operation::Flush, 0, &[], FLUSH)?;
                    (since_flush, is_flushing) = (0, true);
                    continue;
                }
                if issued == options.count || options.drains && (is_due || is_flushing) {
                    break;
                }
                let Some(slot) = free.pop() else { break };
                let operation = match options.writes {
                    true => Operation::Write { force_unit_access: options.write_through },
                    false => Operation::Read,
                };
                push(&mut *queue, operation, at, &[segment(&options, slot)], slot.into())?;
                issued += 1;
                since_flush += u64::from(options.writes);
                at =
                    at.checked_add(options.step_bytes).filter(|next| *next < places_end).unwrap_or(options.start_bytes);
            }
            queue.submit()?;
            queue.reap(&mut completions);
            if completions.is_empty() {
                queue.wait(&[], Some(LOOK))?;
            }
            for completion in completions.drain(..) {
                completion.result.map_err(|error: RequestError| {
                    Error::refused(error.with_remedy()).context(format!("cannot bench {name}"))
                })?;
                match u32::try_from(completion.token) {
                    Ok(slot) => {
                        free.push(slot);
                        done += 1;
                    }
                    Err(_) => is_flushing = false,
                }
            }
        }
        Ok(started.elapsed())
    }
}

fn segment(options: &BenchOptions, slot: u32) -> Segment {
    let length_bytes = options.request_bytes;
    Segment { region: 0, length_bytes, offset_bytes: u64::from(slot) * u64::from(length_bytes) }
}

fn push(
    queue: &mut dyn Queue,
    operation: Operation,
    offset_bytes: u64,
    segments: &[Segment],
    token: u64,
) -> Result<()> {
    queue.push(&Request { operation, offset_bytes, segments, token }).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nobody;
    use blockyard_block::{MemoryDisk, read_bytes};

    const OPTIONS: BenchOptions = BenchOptions {
        writes: true,
        write_through: false,
        count: 10,
        depth: 4,
        request_bytes: 1024,
        step_bytes: 4096,
        start_bytes: 512,
        flush_interval: 4,
        drains: true,
        pattern: 7,
    };

    #[test]
    fn requests_are_where_they_are_asked_for_and_begin_again_at_the_end() {
        for drains in [true, false] {
            let disk = MemoryDisk::new(5 * 4096, 512).unwrap();
            Bench::new("a", &disk, BenchOptions { drains, ..OPTIONS }).unwrap().run(&Nobody).unwrap();
            let mut wanted = vec![0; 5 * 4096];
            for place in 0..5 {
                wanted[place * 4096 + 512..][..1024].fill(7);
            }
            assert!(read_bytes(&disk, 0..5 * 4096).unwrap() == wanted);
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let disk = MemoryDisk::new(8192, 512).unwrap();
        for options in [
            BenchOptions { request_bytes: 0, ..OPTIONS },
            BenchOptions { request_bytes: 513, ..OPTIONS },
            BenchOptions { request_bytes: 16384, ..OPTIONS },
            BenchOptions { start_bytes: 8192, ..OPTIONS },
            BenchOptions { step_bytes: 1, ..OPTIONS },
            BenchOptions { depth: 0, ..OPTIONS },
            BenchOptions { flush_interval: 3, ..OPTIONS },
        ] {
            assert!(Bench::new("a", &disk, options).is_err(), "{options:?}");
        }
        assert!(Bench::new("a", &disk, BenchOptions { flush_interval: 3, drains: false, ..OPTIONS }).is_ok());
    }
}
