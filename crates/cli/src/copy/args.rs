//! `blockyard copy`: its options, and what they may be.

use anyhow::Result;
use blockyard_block::specification::{DiskSpecification, Format, Unpacking, temporary_directory};
use blockyard_block::{Engine, directory_of, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::time;
use blockyard_command_line::unpacker;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_copy::{CopyPlan, DiskPlan, SECTOR_BYTES_DEFAULT};
use blockyard_protocol::layout;
use blockyard_session::open::{OpenOptions, RECONNECT};
use blockyard_vmm::backend::BackendChoice;
use blockyard_vmm::placement::{CpuList, Placement};
use clap::{Args, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Copy a disk through a tiny virtual machine that sees two virtio disks and nothing else.
///
/// SRC goes byte for byte to DST. Each is a disk specification, [KIND:]PATH[,KEY=VALUE...], such as disk.img, vm.qcow2,
/// /dev/vdb,partition=2, session:vm.sock, mem:1G or null:8G. Holes stay holes.
///
/// A raw file DST is written beside its name and renamed when all is done: after any failure, and after Ctrl-C, DST is
/// what it was. Any other DST (an image such as vm.qcow2, a block device, a partition, a session), and every DST with
/// -n, must be there, be large enough, and is written in place: what lies beyond SRC's length stays, and after a
/// failure DST is incomplete.
///
/// Exit status: 0 when DST is complete and (unless --no-flush) on stable storage, 1 on failure, 2 on wrong usage, 130
/// when Ctrl-C ended it. A second Ctrl-C, at least a second later, ends it at once and without a word.
#[derive(Args, Debug)]
#[command(
    args_override_self = true,
    override_usage = "blockyard copy [OPTIONS] SRC DST\n       blockyard copy [OPTIONS] --input SRC --output DST [GUEST]"
)]
pub struct CopyArgs {
    /// With --input and --output: [GUEST], a flat binary to run instead of the built-in guest. Otherwise: SRC DST
    /// [GUEST].
    #[arg(value_name = "DISK", num_args = 0..=3)]
    disks: Vec<OsString>,
    /// Disk to read. It is opened read-only.
    #[arg(long, short, value_name = "SRC", requires = "output")]
    input: Option<OsString>,
    /// Disk to write: a raw file, replaced when the copy is complete, or any other disk, written in place.
    #[arg(long, short, value_name = "DST", requires = "input")]
    output: Option<OsString>,
    /// Directory that an image's backing and data files may lie in; may be repeated.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Bytes in a sector of the input disk: a power of two from 512 to 65536 [default: the disk's block, 512 for most].
    #[arg(long, value_name = "BYTES", value_parser = sector_size)]
    input_sector_size: Option<u32>,
    /// Bytes in a sector of the output disk: a power of two from 512 to 65536 [default: the disk's block, 512 for
    /// most].
    #[arg(long, value_name = "BYTES", value_parser = sector_size)]
    output_sector_size: Option<u32>,
    /// How often the guest reports: 0 every 10 sectors, 1 to 99 at each such part of the disk, 100 only at the end.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=100))]
    progress_percent: u32,
    /// Largest request: a multiple of both sector sizes [default: 1M].
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    request_size: Option<u64>,
    /// Requests in flight, from 1 to 256 [default: 16, or 8 where memory holds no more].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=layout::QUEUE_DEPTH_MAX as i64))]
    queue_depth: Option<u32>,
    /// Virtqueues of each disk, each served by an I/O thread of its own, from 1 to 4 [default: 2, or 1 at depth 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=layout::QUEUES_MAX as i64))]
    queues: Option<u32>,
    /// Who executes the guest: kvm where it executes guest code natively and user elsewhere (auto), or one of them.
    #[arg(long, value_enum, default_value = "auto")]
    backend: BackendArg,
    /// How the host does the I/O of files that do not say engine=: each I/O thread itself (sync), a pool of threads, or
    /// io_uring [default: sync for raw files and devices in the page cache, otherwise uring].
    #[arg(long, value_enum)]
    engine: Option<EngineArg>,
    /// Guest memory, from 8M to 512M [default: what the requests in flight need].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// CPUs to run on: vcpu=LIST, io=LIST (I/O thread n takes the nth), or LIST for both; a list is like 0,2 or 0-1.
    #[arg(long, value_name = "[ROLE=]LIST", value_parser = affinity)]
    cpu_affinity: Vec<Affinity>,
    /// Give up when the guest has shown no progress for so long; 0 waits for ever.
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = time::seconds)]
    timeout: Duration,
    /// Write into DST as it is, instead of replacing a raw file: into one that is a mount point, such as a container's.
    #[arg(short = 'n', long)]
    no_create: bool,
    /// Leave the result in the page cache, as cp does, instead of waiting until it is on stable storage.
    #[arg(long)]
    no_flush: bool,
    /// With a compressed SRC (disk.raw.xz, or ,format=qcow2.zst): the most that may be in it.
    #[arg(long, value_name = "SIZE", default_value = "1T", value_parser = size::parse)]
    size_max: u64,
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

/// A copy that makes sense, and how it is told of.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// What is to be done.
    pub plan: CopyPlan,
    /// Where images' other files may lie.
    pub allow_dirs: Vec<PathBuf>,
    /// What may be in a compressed source at most, and where an image in one is unpacked.
    size_max: u64,
    scratch: PathBuf,
    /// Whether to print counters.
    pub stats: bool,
    /// Whether to print JSON.
    pub json: bool,
}

/// 1 MiB requests, sixteen in flight: a 16 MiB pool stays in the CPU's cache, smaller requests are clearly slower, and
/// with fewer the I/O threads wait for the guest now and then (0.96 of the time that eight take).
const REQUEST_BYTES_DEFAULT: u64 = 1 << 20;
const QUEUE_DEPTH_DEFAULT: u32 = 16;
/// Where the guest's memory cannot hold so many.
const QUEUE_DEPTH_DEFAULT_MIN: u32 = 8;
const QUEUES_DEFAULT: u32 = 2;

impl CopyOptions {
    /// How to open the disks; `progress` hears how much of a compressed one was read before the copy begins.
    pub fn open_options<'a>(&'a self, progress: &'a dyn Fn(u64, u64)) -> OpenOptions<'a> {
        // Whoever wants to hear of a copy that hangs does not want to wait longer for a server.
        let reconnect = self.plan.timeout.map_or(RECONNECT, |timeout| timeout.min(RECONNECT));
        let unpacking = unpacker::unpacking(self.size_max, &self.scratch, progress);
        let unpacking = Some(Unpacking { patience: self.plan.timeout, ..unpacking });
        OpenOptions { reconnect, unpacking, ..disk::to_write(&self.allow_dirs) }
    }
}

/// Whether a word that names no file is what may be said of a disk, such as `format=raw`.
fn is_key(word: &OsStr) -> bool {
    let is_key = |word: &str| format!("file,{word}").parse::<DiskSpecification>().is_ok();
    !Path::new(word).exists() && word.to_str().is_some_and(is_key)
}

impl CopyArgs {
    /// Checks what clap cannot: that the options fit each other.
    ///
    /// # Errors
    /// [`UsageError`], with a sentence on what does not fit and what would.
    pub fn options(&self) -> Result<CopyOptions> {
        let (input, output, guest) = self.disks()?;
        let input = self.disk(&input, "--input-sector-size", self.input_sector_size)?;
        let output = self.disk(&output, "--output-sector-size", self.output_sector_size)?;
        check_destination(&output.named)?;
        let sector_bytes = input.sector_bytes.max(output.sector_bytes).unwrap_or(SECTOR_BYTES_DEFAULT);
        let sector_bytes = u64::from(sector_bytes);
        let request_bytes = self.request_size.unwrap_or(REQUEST_BYTES_DEFAULT);
        if request_bytes == 0 || !request_bytes.is_multiple_of(sector_bytes) {
            return usage(format!(
                "--request-size {request_bytes} is not a multiple of the larger sector size, {sector_bytes}"
            ));
        }
        let queue_depth = match self.queue_depth {
            Some(depth) => depth,
            None if self.memory_bytes(request_bytes, QUEUE_DEPTH_DEFAULT).is_ok() => QUEUE_DEPTH_DEFAULT,
            None => QUEUE_DEPTH_DEFAULT_MIN,
        };
        let queues = self.queues.unwrap_or(QUEUES_DEFAULT.min(queue_depth));
        if queues > queue_depth {
            return usage(format!("--queues {queues} is more than the {queue_depth} requests in flight"));
        }
        let memory_bytes = self.memory_bytes(request_bytes, queue_depth)?;
        let plan = CopyPlan {
            input,
            output,
            guest,
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
            placement: self.placement(),
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            flush: !self.no_flush,
            in_place: self.no_create,
            detect_zeroes: self.detect_zeroes,
            debug: self.debug,
        };
        let replaced =
            plan.output.named.replaced_file(plan.in_place)?.filter(|_| plan.output.named.raw_file().is_some());
        let scratch = replaced.map_or_else(temporary_directory, |path| directory_of(path).to_owned());
        let (allow_dirs, size_max) = (self.allow_dir.clone(), self.size_max);
        Ok(CopyOptions { plan, allow_dirs, size_max, scratch, stats: self.stats, json: self.json })
    }

    fn disks(&self) -> Result<(OsString, OsString, Option<PathBuf>)> {
        let guest = |guest: &OsString| Some(PathBuf::from(guest));
        match (&self.input, &self.output, self.disks.as_slice()) {
            (Some(input), Some(output), []) => Ok((input.clone(), output.clone(), None)),
            (Some(input), Some(output), [binary]) => Ok((input.clone(), output.clone(), guest(binary))),
            (Some(_), Some(_), _) => usage("with --input and --output there is one more path at most: GUEST"),
            (None, None, [input, output]) => Ok((input.clone(), output.clone(), None)),
            (None, None, [_, output, binary]) if is_key(binary) => usage(format!(
                "{} is no guest but a key, which stands behind a disk's name and a comma: {},{}",
                shown(binary),
                shown(output),
                shown(binary)
            )),
            (None, None, [input, output, binary]) => Ok((input.clone(), output.clone(), guest(binary))),
            _ => usage("say which disk to copy and where to: blockyard copy SRC DST"),
        }
    }

    fn disk(&self, text: &OsStr, option: &str, sector_bytes: Option<u32>) -> Result<DiskPlan> {
        let Some(text) = text.to_str() else {
            return usage(format!("{} is not UTF-8: name the disk by a link that is", shown(text)));
        };
        let named: DiskSpecification = text.parse().map_err(UsageLines::from)?;
        let block_bytes = named.logical_block_bytes();
        if let (Some(sector), Some(block)) = (sector_bytes, block_bytes)
            && sector != block
        {
            return usage(format!(
                "{option} {sector} and block-size={block} contradict each other; leave one of them out"
            ));
        }
        let engine = match self.engine {
            Some(EngineArg::Sync) => Engine::Sync,
            Some(EngineArg::Threads) => Engine::Threads,
            Some(EngineArg::Uring) => Engine::Auto,
            // The page cache is at hand: a thread that copies from it is faster than one that asks somebody to.
            None if named.format() == Some(Format::Raw) && named.is_buffered() => Engine::Sync,
            None => Engine::Auto,
        };
        let specification = named.clone().or_engine(engine);
        Ok(DiskPlan { named, specification, sector_bytes: sector_bytes.or(block_bytes) })
    }

    fn memory_bytes(&self, request_bytes: u64, queue_depth: u32) -> Result<u64> {
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
                Affinity::Vcpu(list) => placement.vcpus = Some(list),
                Affinity::Io(list) => placement.io = Some(list),
                Affinity::Both(list) => placement = Placement { vcpus: Some(list.clone()), io: Some(list) },
            }
        }
        placement
    }
}

/// What no destination can be.
fn check_destination(output: &DiskSpecification) -> Result<()> {
    if output.is_read_only() {
        return usage(format!("{output}: a destination is written to; leave 'ro' out"));
    }
    if output.has_snapshot() {
        return usage(format!("{output}: nothing would be left of the copy; leave 'snapshot' out"));
    }
    Ok(())
}

fn usage<T>(sentence: impl Into<String>) -> Result<T> {
    Err(UsageError(sentence.into()).into())
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

    fn options(arguments: &[&str]) -> Result<CopyPlan, String> {
        let command = Command::try_parse_from([&["copy"], arguments].concat()).map_err(|error| error.to_string())?;
        command.copy.options().map(|options| options.plan).map_err(|error| error.to_string())
    }

    #[test]
    fn takes_both_ways_to_name_the_disks() {
        let short = options(&["a", "b", "g.bin"]).unwrap();
        let long = options(&["--input", "a", "--output", "b", "g.bin"]).unwrap();
        for copy in [short, long] {
            let names = [copy.input, copy.output].map(|disk| disk.named.to_string());
            assert_eq!((names, copy.guest), (["a", "b"].map(String::from), Some("g.bin".into())));
        }
    }

    #[test]
    fn defaults_are_what_measures_best() {
        let copy = options(&["a", "b"]).unwrap();
        assert_eq!((copy.request_bytes, copy.queue_depth, copy.queues, copy.memory_bytes), (1 << 20, 16, 2, 24 << 20));
        for small in [&["--memory", "16M"][..], &["--request-size", "32M"]] {
            assert_eq!(options(&[&["a", "b"], small].concat()).unwrap().queue_depth, 8, "{small:?}");
        }
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
            (&["a,colour=red", "b"], "colour"),
            (&["a", "disc:b"], "no kind 'disc'"),
            (&["a", "b,ro"], "leave 'ro' out"),
            (&["a", "b.qcow2,snapshot"], "leave 'snapshot' out"),
            (&["a,block-size=4K", "b", "--input-sector-size", "512"], "contradict"),
            (&["a,block-size=4K", "b", "--request-size", "512"], "multiple"),
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
        assert_eq!(copy.placement.vcpus.unwrap().cpus(), [1]);
        assert_eq!(copy.placement.io.unwrap().cpus(), [0, 1]);
    }
}
