//! `blockyard copy`: its options, and what they may be.

use crate::{UsageError, size, time};
use blockyard_block::Engine;
use blockyard_protocol::layout;
use blockyard_vmm::backend::BackendChoice;
use blockyard_vmm::placement::{CpuList, Placement};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Copy a disk through a tiny virtual machine that sees two virtio disks and nothing else.
///
/// SRC goes byte for byte to DST: a file or a block device each. A file DST is written beside its name and renamed when all
/// is done: after any failure, and after Ctrl-C, DST is what it was. Holes stay holes.
///
/// Exit status: 0 when DST is complete and (unless --no-flush) on stable storage, 1 on failure, 2 on wrong usage.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    override_usage = "blockyard copy [OPTIONS] SRC DST\n       blockyard copy [OPTIONS] --input SRC --output DST [GUEST]"
)]
pub struct CopyArgs {
    /// With --input and --output: [GUEST], a flat binary to run instead of the built-in guest. Otherwise: SRC DST [GUEST].
    #[arg(value_name = "PATH", num_args = 0..=3)]
    paths: Vec<PathBuf>,
    /// Disk to read: a file or a block device.
    #[arg(long, short, value_name = "SRC", requires = "output")]
    input: Option<PathBuf>,
    /// Disk to write: a file, replaced when the copy is complete, or a block device, written in place.
    #[arg(long, short, value_name = "DST", requires = "input")]
    output: Option<PathBuf>,
    /// Bytes in a sector of the input disk: a power of two from 512 to 65536.
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = sector_size)]
    input_sector_size: u32,
    /// Bytes in a sector of the output disk: a power of two from 512 to 65536.
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = sector_size)]
    output_sector_size: u32,
    /// How often the guest reports: 0 every 10 sectors, 1 to 99 at each such part of the disk, 100 only at the end.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=100))]
    progress_percent: u32,
    /// Largest request: a multiple of both sector sizes [default: 1M].
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    request_size: Option<u64>,
    /// Requests in flight, from 1 to 256 [default: 8].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=layout::QUEUE_DEPTH_MAX as i64))]
    queue_depth: Option<u32>,
    /// Virtqueues of each disk, each served by an I/O thread of its own, from 1 to 4 [default: 2, or 1 at depth 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=layout::QUEUES_MAX as i64))]
    queues: Option<u32>,
    /// Who executes the guest: kvm where it executes guest code natively and user elsewhere (auto), or one of them.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArg,
    /// How the host does the I/O: each I/O thread itself (sync), a pool of threads, or io_uring.
    #[arg(long, value_enum, default_value = "sync")]
    engine: EngineArg,
    /// Guest memory, from 8M to 512M [default: what the requests in flight need].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// CPUs to run on: vcpu=LIST, io=LIST (I/O thread n takes the nth), or LIST for both; a list is like 0,2 or 0-1.
    #[arg(long, value_name = "[ROLE=]LIST", value_parser = affinity)]
    cpu_affinity: Vec<Affinity>,
    /// Give up when the guest has shown no progress for so long; 0 waits for ever.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = time::seconds)]
    timeout: Duration,
    /// Leave the result in the page cache, as cp does, instead of waiting until it is on stable storage.
    #[arg(long)]
    no_flush: bool,
    /// Look for zeros in what is read and make holes of them.
    #[arg(long)]
    detect_zeroes: bool,
    /// Print what the copy cost: exits, doorbells, requests, time by phase.
    #[arg(long)]
    stats: bool,
    /// Print one JSON object on stdout instead of the summary.
    #[arg(long)]
    json: bool,
    /// Show the guest's debug text and its reports on stderr.
    #[arg(long)]
    debug: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum BackendArg {
    Auto,
    Kvm,
    User,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineArg {
    Sync,
    Threads,
    Uring,
}

#[derive(Clone, Debug)]
enum Affinity {
    Both(CpuList),
    Vcpu(CpuList),
    Io(CpuList),
}

/// A copy that makes sense.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// Disk to read.
    pub input: PathBuf,
    /// Disk to write.
    pub output: PathBuf,
    /// Flat binary to run instead of the built-in guest.
    pub guest: Option<PathBuf>,
    /// Bytes in an input sector.
    pub input_sector_bytes: u32,
    /// Bytes in an output sector.
    pub output_sector_bytes: u32,
    /// As the protocol has it.
    pub progress_percent: u32,
    /// Bytes in the largest request.
    pub request_bytes: u32,
    /// Requests in flight.
    pub queue_depth: u32,
    /// Virtqueues a disk, and I/O threads.
    pub queues: u32,
    /// Guest memory.
    pub memory_bytes: u64,
    /// Which hypervisor.
    pub backend: BackendChoice,
    /// How the host does the I/O.
    pub engine: Engine,
    /// Where threads run.
    pub placement: Placement,
    /// Longest time without progress; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// Whether the result must be on stable storage.
    pub flush: bool,
    /// Whether the guest looks for zeros.
    pub detect_zeroes: bool,
    /// Whether to print counters.
    pub stats: bool,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to show debug text.
    pub debug: bool,
}

/// 1 MiB requests, eight in flight: an 8 MiB pool stays in the CPU's cache, and smaller requests are clearly slower.
const REQUEST_BYTES_DEFAULT: u64 = 1 << 20;
const QUEUE_DEPTH_DEFAULT: u32 = 8;
const QUEUES_DEFAULT: u32 = 2;

impl CopyOptions {
    /// Asks for no more queues than a copy of `length_bytes` has requests: each costs some twenty register accesses.
    pub fn fit_to(&mut self, length_bytes: u64) {
        let requests = length_bytes.div_ceil(u64::from(self.request_bytes)).max(1);
        self.queues = u64::from(self.queues).min(requests) as u32;
    }
}

impl CopyArgs {
    /// Checks what clap cannot: that the options fit each other.
    ///
    /// # Errors
    /// [`UsageError`], with a sentence on what does not fit and what would.
    pub fn options(&self) -> Result<CopyOptions, UsageError> {
        let (input, output, guest) = self.paths()?;
        let sector_bytes = u64::from(self.input_sector_size.max(self.output_sector_size));
        let request_bytes = self.request_size.unwrap_or(REQUEST_BYTES_DEFAULT);
        if request_bytes == 0 || !request_bytes.is_multiple_of(sector_bytes) {
            return usage(format!(
                "--request-size {request_bytes} is not a multiple of the larger sector size, {sector_bytes}"
            ));
        }
        let queue_depth = self.queue_depth.unwrap_or(QUEUE_DEPTH_DEFAULT);
        let queues = self.queues.unwrap_or(QUEUES_DEFAULT.min(queue_depth));
        if queues > queue_depth {
            return usage(format!("--queues {queues} is more than the {queue_depth} requests in flight"));
        }
        let memory_bytes = self.memory_bytes(request_bytes, queue_depth)?;
        Ok(CopyOptions {
            input,
            output,
            guest,
            input_sector_bytes: self.input_sector_size,
            output_sector_bytes: self.output_sector_size,
            progress_percent: self.progress_percent,
            // It fits guest memory, so it fits 32 bits.
            request_bytes: request_bytes as u32,
            queue_depth,
            queues,
            memory_bytes,
            backend: match self.backend {
                BackendArg::Auto => BackendChoice::Auto,
                BackendArg::Kvm => BackendChoice::Kvm,
                BackendArg::User => BackendChoice::User,
            },
            engine: match self.engine {
                EngineArg::Sync => Engine::Sync,
                EngineArg::Threads => Engine::Threads,
                EngineArg::Uring => Engine::Auto,
            },
            placement: self.placement(),
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            flush: !self.no_flush,
            detect_zeroes: self.detect_zeroes,
            stats: self.stats,
            json: self.json,
            debug: self.debug,
        })
    }

    fn paths(&self) -> Result<(PathBuf, PathBuf, Option<PathBuf>), UsageError> {
        match (&self.input, &self.output, self.paths.as_slice()) {
            (Some(input), Some(output), []) => Ok((input.clone(), output.clone(), None)),
            (Some(input), Some(output), [guest]) => Ok((input.clone(), output.clone(), Some(guest.clone()))),
            (Some(_), Some(_), _) => usage("with --input and --output there is one more path at most: GUEST"),
            (None, None, [input, output]) => Ok((input.clone(), output.clone(), None)),
            (None, None, [input, output, guest]) => Ok((input.clone(), output.clone(), Some(guest.clone()))),
            _ => usage("say which disk to copy and where to: blockyard copy SRC DST"),
        }
    }

    fn memory_bytes(&self, request_bytes: u64, queue_depth: u32) -> Result<u64, UsageError> {
        let needed = layout::memory_bytes(request_bytes, u64::from(queue_depth));
        let Some(needed) = needed else {
            return usage(format!(
                "{queue_depth} requests of {} are more than a guest of at most {} can hold",
                size::human(request_bytes),
                size::human(layout::MEMORY_MAX_BYTES),
            ));
        };
        let memory = self.memory.unwrap_or(needed);
        if !(layout::MEMORY_MIN_BYTES..=layout::MEMORY_MAX_BYTES).contains(&memory) || !memory.is_multiple_of(1 << 20) {
            return usage(format!("--memory {memory}: whole MiB from 8M to 512M are possible"));
        }
        if memory < needed {
            return usage(format!(
                "--memory {} is too little for {queue_depth} requests of {}: they need {}",
                size::human(memory),
                size::human(request_bytes),
                size::human(needed),
            ));
        }
        Ok(memory)
    }

    fn placement(&self) -> Placement {
        let mut placement = Placement::default();
        for affinity in &self.cpu_affinity {
            match affinity.clone() {
                Affinity::Vcpu(list) => placement.vcpu = Some(list),
                Affinity::Io(list) => placement.io = Some(list),
                Affinity::Both(list) => placement = Placement { vcpu: Some(list.clone()), io: Some(list) },
            }
        }
        placement
    }
}

fn usage<T>(sentence: impl Into<String>) -> Result<T, UsageError> {
    Err(UsageError(sentence.into()))
}

fn sector_size(text: &str) -> Result<u32, String> {
    let range = layout::SECTOR_SIZE_MIN..=layout::SECTOR_SIZE_MAX;
    let bytes = size::parse(text).ok().and_then(|bytes| u32::try_from(bytes).ok());
    bytes.filter(|bytes| range.contains(bytes) && bytes.is_power_of_two()).ok_or_else(|| {
        format!("a sector size is a power of two from {} to {}", layout::SECTOR_SIZE_MIN, layout::SECTOR_SIZE_MAX)
    })
}

fn affinity(text: &str) -> Result<Affinity, String> {
    let list = |list: &str| list.parse::<CpuList>().map_err(|error| error.to_string());
    match text.split_once('=') {
        None => list(text).map(Affinity::Both),
        Some(("vcpu", rest)) => list(rest).map(Affinity::Vcpu),
        Some(("io", rest)) => list(rest).map(Affinity::Io),
        Some((role, _)) => Err(format!("'{role}' is not a role: vcpu or io")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        copy: CopyArgs,
    }

    fn options(arguments: &[&str]) -> Result<CopyOptions, String> {
        let command = Command::try_parse_from([&["copy"], arguments].concat()).map_err(|error| error.to_string())?;
        command.copy.options().map_err(|error| error.to_string())
    }

    #[test]
    fn takes_both_ways_to_name_the_disks() {
        let short = options(&["a", "b", "g.bin"]).unwrap();
        let long = options(&["--input", "a", "--output", "b", "g.bin"]).unwrap();
        for copy in [short, long] {
            assert_eq!((copy.input, copy.output, copy.guest), ("a".into(), "b".into(), Some("g.bin".into())));
        }
    }

    #[test]
    fn defaults_are_what_measures_best() {
        let copy = options(&["a", "b"]).unwrap();
        assert_eq!((copy.request_bytes, copy.queue_depth, copy.queues, copy.memory_bytes), (1 << 20, 8, 2, 16 << 20));
        assert!(copy.flush && !copy.detect_zeroes);
    }

    #[test]
    fn refuses_options_that_do_not_fit() {
        for (arguments, word) in [
            (&["a"][..], "SRC DST"),
            (&["a", "b", "c", "d"], "unexpected"),
            (&["--input", "a"], "--output"),
            (&["--input", "a", "--output", "b", "c", "d"], "GUEST"),
            (&["a", "b", "--input-sector-size", "1000"], "power of two"),
            (&["a", "b", "--input-sector-size", "256"], "power of two"),
            (&["a", "b", "--output-sector-size", "131072"], "power of two"),
            (&["a", "b", "--progress-percent", "101"], "101"),
            (&["a", "b", "--progress-percent", "-1"], "-1"),
            (&["a", "b", "--request-size", "4K", "--input-sector-size", "8192"], "multiple"),
            (&["a", "b", "--request-size", "0"], "multiple"),
            (&["a", "b", "--request-size", "512M"], "hold"),
            (&["a", "b", "--queue-depth", "0"], "0"),
            (&["a", "b", "--queue-depth", "257"], "257"),
            (&["a", "b", "--queues", "2", "--queue-depth", "1"], "--queues"),
            (&["a", "b", "--memory", "8M"], "16.00 MiB"),
            (&["a", "b", "--memory", "1G"], "512M"),
            (&["a", "b", "--timeout", "-1"], "-1"),
            (&["a", "b", "--timeout", "soon"], "seconds"),
            (&["a", "b", "--cpu-affinity", "gpu=1"], "role"),
            (&["a", "b", "--cpu-affinity", "x"], "list"),
            (&["a", "b", "--backend", "xen"], "kvm"),
        ] {
            let message = options(arguments).unwrap_err();
            assert!(message.contains(word), "{arguments:?}: {message}");
        }
    }

    #[test]
    fn one_request_at_a_time_takes_one_queue_and_the_least_memory() {
        let copy = options(&["a", "b", "--request-size", "512", "--queue-depth", "1"]).unwrap();
        assert_eq!((copy.queues, copy.memory_bytes), (1, 8 << 20));
    }

    #[test]
    fn places_threads_by_role() {
        let copy = options(&["a", "b", "--cpu-affinity", "0-1", "--cpu-affinity", "vcpu=1"]).unwrap();
        assert_eq!(copy.placement.vcpu.unwrap().cpus(), [1]);
        assert_eq!(copy.placement.io.unwrap().cpus(), [0, 1]);
    }
}
