//! A machine that is User-Mode Linux: Linux as an ordinary program, where there is no KVM.
//!
//! It boots the system in the first disk, which the appliance's agent finds, mounts and hands the guest over to; or an
//! initial file system, where one is given. What a machine of our own has besides (vCPUs, AHCI, other kernels), it has
//! not: that is refused.

mod typing;

use crate::configuration::{Configuration, DiskBus, Share};
use crate::console::{Console, ConsoleEvent, ConsoleOutput};
use crate::deadline::Timed;
use crate::report::{RunReport, cpu_seconds};
use crate::shares::{self, Servers};
use crate::{Audience, DoesNotFit, LOOK_INTERVAL};
use anyhow::{Context, Result, bail};
use blockyard_appliance::{Backend, Ending, ImageDisk, InitramfsOptions, Kernel, System, SystemOptions};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{open_named, shown, size};
use blockyard_image::{ConsoleSize, ImageOptions, Keys, Resources, Watch};
use blockyard_session::open::{OpenDisk, OpenOptions, open_disk};
use blockyard_share::OpenShare;
use blockyard_vmm::pc::kernel::check_initrd;
use rustix::system::sysinfo;
use rustix::termios::tcgetwinsize;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the kernel may take to come up, and what the agent does meanwhile may do nothing.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Events of the console's that may wait to be looked at: of each kind the first counts.
const EVENTS_MAX: usize = 16;
/// What a guest may say before the terminal is its own.
const EARLY_BYTES_MAX: usize = 1 << 16;
/// How long a guest may take to be gone whose devices are let go of.
const ENDING: Duration = Duration::from_secs(5);
/// What the kernel's modules are shared as.
const MODULE_SHARE: &str = "blockyard.modules";
/// The least memory that such a kernel comes up with, and a system.
const MEMORY_BYTES_MIN: u64 = 64 << 20;
/// Disks and shares: beside the appliance's own, no kernel has refused as many.
const DEVICES_MAX: usize = 32;
/// What somebody may add to its command line, which has room for 4095 bytes (Linux, arch/um, COMMAND_LINE_SIZE) and
/// more than a thousand of ours. As much as on a PC.
const APPEND_BYTES_MAX: usize = 2047;

pub(crate) fn run(
    configuration: &Configuration,
    opening: &OpenOptions<'_>,
    audience: &Timed<'_>,
    report: &mut RunReport,
) -> Result<()> {
    refuse_what_it_has_not(configuration)?;
    let keys = configuration.read_keys(&*audience.watch())?;
    let mut shares = shares::open(&configuration.shares)?;
    let kernel = match &configuration.kernel {
        Some(kernel) => Kernel::user_mode_linux_at(kernel)?,
        None => Kernel::find(Backend::Uml)?,
    };
    if configuration.uml_seccomp && !kernel.has_seccomp_mode() {
        bail!("{} has no seccomp mode: that came with Linux 6.16", shown(&kernel.file));
    }
    let initrd = configuration.initrd.as_deref().map(|path| opened(path, configuration.memory)).transpose()?;
    // For a system that looks for them in a directory: an initial file system has those that it wants.
    let modules = kernel.modules().filter(|_| initrd.is_none()).map(Path::to_owned);
    let module_share = modules.is_some().then(|| MODULE_SHARE.to_owned());
    if let Some(directory) = modules {
        shares.extend(shares::open([&Share { directory, tag: MODULE_SHARE.parse()?, read_only: true, limit: None }])?);
    }
    let names = configuration.disks_to_open()?;
    // Passphrases, and what is on its other disks. A copy is little beside what User-Mode Linux does for a request.
    let opening = &OpenOptions { has_secrets: true, ..*opening };
    let opened = names.into_iter().map(|name| open_disk(&name, &opening.gathering()).map(|disk| (name, disk)));
    let disks = opened.collect::<Result<_, _>>()?;
    let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
    let resources = Resources::with_kernel(kernel, audience.kernel_argument());
    let mouth = Arc::new(Mouth::default());
    let servers = Servers::default();
    Machine { configuration, resources, initrd, disks, shares, module_share, mouth, sender, events, keys, servers }
        .until_it_ends(audience, report)
}

pub(crate) fn refuse_what_it_has_not(configuration: &Configuration) -> Result<(), DoesNotFit> {
    let Configuration { cpus, memory, disks, place, io_cpus, shares, append, .. } = configuration;
    let (devices, append) = (disks.len() + shares.len(), append.as_ref().map_or(0, String::len));
    let host_bytes = host_memory_bytes();
    let has_another_bus = disks.iter().any(|disk| disk.bus != DiskBus::default());
    let sentence = if *cpus > 1 {
        format!("User-Mode Linux has one processor, not {cpus}: leave --cpus out, or take --backend kvm")
    } else if has_another_bus {
        "User-Mode Linux has virtio disks of its own kind only: leave --bus out, or take --backend kvm".into()
    } else if place.is_some() || io_cpus.is_some() {
        "User-Mode Linux keeps to one CPU by itself: leave --place and --io-cpus out, or take --backend kvm".into()
    } else if configuration.initrd.is_some() && configuration.has_keys() {
        "an initial file system opens what is encrypted itself: leave --key-file and --key out".into()
    } else if shares.iter().any(|share| share.tag.to_string() == MODULE_SHARE) {
        format!("the tag {MODULE_SHARE} is taken, by the kernel's own modules: name that --share otherwise")
    } else if *memory < MEMORY_BYTES_MIN {
        format!("User-Mode Linux takes {} MiB of memory at least: see --memory", MEMORY_BYTES_MIN >> 20)
    } else if *memory > host_bytes {
        let (wanted, there) = (size::human(*memory), size::human(host_bytes));
        format!("a guest cannot have {wanted} of memory where there are {there}: see --memory")
    } else if devices > DEVICES_MAX {
        format!("User-Mode Linux has room for {DEVICES_MAX} disks and shares, not {devices}")
    } else if append > APPEND_BYTES_MAX {
        format!("the command line has {append} bytes, and User-Mode Linux takes {APPEND_BYTES_MAX}: see --append")
    } else {
        return Ok(());
    };
    Err(DoesNotFit(sentence))
}

/// Its kernel's memory is a file in memory, and whoever touches more of it than there is dies of that.
fn host_memory_bytes() -> u64 {
    let info = sysinfo();
    (info.totalram + info.totalswap).saturating_mul(info.mem_unit.into())
}

/// The initrd of a guest with so much memory.
fn opened(path: &Path, memory_bytes: u64) -> Result<File> {
    let cannot_boot = || format!("cannot boot with the initrd {}", shown(path));
    let initrd = open_named(path, "the initrd")?;
    check_initrd(&initrd).with_context(cannot_boot)?;
    let bytes = initrd.metadata().with_context(cannot_boot)?.len();
    if bytes > memory_bytes / 2 {
        let (bytes, memory) = (size::human(bytes), size::human(memory_bytes));
        let sentence = format!(
            "the initrd {} has {bytes}, and beside what is unpacked of it there is no room in {memory}: see --memory",
            shown(path)
        );
        return Err(DoesNotFit(sentence).into());
    }
    Ok(initrd)
}

/// What outlives a reboot.
struct Machine<'a> {
    configuration: &'a Configuration,
    resources: Resources,
    initrd: Option<File>,
    disks: Vec<(DiskSpecification, OpenDisk)>,
    shares: Vec<OpenShare>,
    /// What the kernel's modules are shared as, if they are.
    module_share: Option<String>,
    mouth: Arc<Mouth>,
    sender: SyncSender<ConsoleEvent>,
    events: Receiver<ConsoleEvent>,
    /// Those that have opened the system's root.
    keys: Keys,
    /// Those of the shares, of the guest that runs.
    servers: Servers,
}

impl Machine<'_> {
    fn until_it_ends(mut self, audience: &Timed<'_>, report: &mut RunReport) -> Result<()> {
        report.backend = "uml";
        let began = Instant::now();
        let mut console = None;
        loop {
            let mut system = self.start(audience)?;
            if report.reboots == 0 {
                report.start_cpu_seconds = cpu_seconds();
            }
            // Until now, the terminal was for questions about passphrases.
            let console = match &mut console {
                Some(console) => console,
                empty => empty.insert(self.open_console()?),
            };
            typing::start(console.input(), system.keyboard()?).context("starting the console's threads")?;
            let ending = self.watch(&mut system, audience);
            let counts = system.disk_statistics();
            let wants_reboot = matches!(ending, Ok(Ending::Reboots));
            let reboots = wants_reboot && !self.configuration.no_reboot;
            report.ended_by_reboot = wants_reboot && !reboots;
            if !reboots {
                console.close();
            }
            console.input().unlisten();
            // They and the guest's memory are let go of at the same time.
            self.servers.kill();
            console.without_waiting(|| system.end());
            drop(system);
            self.servers.end();
            report.seconds = began.elapsed().as_secs_f64();
            report.cpu_seconds = cpu_seconds();
            report.boot_ended(&self.disks, counts.iter().map(|disk| (disk.counts, disk.first_error)));
            match ending? {
                Ending::Reboots if reboots => report.reboots += 1,
                Ending::PoweredOff | Ending::Reboots => return Ok(()),
                Ending::Died(why) => bail!("the guest's kernel has died: {why}"),
                Ending::LostDisk(why) => bail!("the guest has lost a disk: {why}"),
            }
        }
    }

    fn open_console(&self) -> Result<Console> {
        let sender = self.sender.clone();
        // Nobody waits in vain: whoever listens has the console.
        let console = Console::open(|_| Ok(()), move |event| _ = sender.try_send(event))?;
        self.mouth.open(console.output());
        Ok(console)
    }

    /// A system as after power-on.
    fn start(&mut self, audience: &Timed<'_>) -> Result<System> {
        let mouth = Arc::clone(&self.mouth);
        let system = SystemOptions {
            append: self.configuration.append.clone().unwrap_or_default(),
            console: Arc::new(move |bytes| mouth.say(bytes)),
            seccomp: self.configuration.uml_seccomp,
            devices: self.servers.devices(&self.shares),
            module_share: self.module_share.clone(),
            console_size: terminal_size(),
        };
        let disk = |(name, open): &(DiskSpecification, OpenDisk)| ImageDisk {
            disk: Arc::clone(&open.disk),
            name: name.to_string().into(),
        };
        let disks: Vec<_> = self.disks.iter().map(disk).collect();
        let watch = audience.watch();
        if self.initrd.is_some() {
            return self.boot_initrd(system, &disks, &*watch);
        }
        if disks.is_empty() {
            bail!("there is nothing to boot: name an IMAGE with a system, or an --initrd");
        }
        let modules: &[&str] = if self.configuration.shares.is_empty() { &[] } else { &["virtiofs"] };
        let options = ImageOptions::new(disks).memory_bytes(self.configuration.memory).timeout(START_TIMEOUT);
        let mut image =
            options.keys(std::mem::take(&mut self.keys)).system(system).boot(self.resources.clone(), watch)?;
        let begun = image.begin_hand_over(modules);
        self.keys = image.take_keys();
        begun?;
        Ok(image.into_system())
    }

    fn boot_initrd(&self, system: SystemOptions, disks: &[ImageDisk], watch: &dyn Watch) -> Result<System> {
        let Some(initrd) = &self.initrd else { bail!("there is no initrd") };
        let mut initramfs = initrd.try_clone().context("cannot read the initrd")?;
        initramfs.seek(SeekFrom::Start(0)).context("cannot read the initrd")?;
        let Resources { kernel, launcher, launcher_arguments } = self.resources.clone();
        let options = InitramfsOptions {
            kernel: &kernel,
            initramfs,
            launcher: &(launcher, launcher_arguments),
            memory_bytes: self.configuration.memory,
            timeout: START_TIMEOUT,
            interrupted: &|| watch.ends(),
            system,
        };
        Ok(System::boot(options, disks)?)
    }

    /// Waits until the guest switches itself off or reboots, or somebody leaves it.
    fn watch(&self, system: &mut System, audience: &Timed<'_>) -> Result<Ending> {
        loop {
            // Before the guest's end, which may always be near: one that reboots again and again is left all the same.
            if let Ok(event) = self.events.try_recv() {
                return event.ends().map(|()| Ending::PoweredOff);
            }
            if let Some(ending) = system.wait(LOOK_INTERVAL).context("waiting for the guest")? {
                return Ok(ending);
            }
            if let Some(tag) = self.servers.ended() {
                // Mostly because the guest is about to be gone, which takes its processes a moment.
                let ending = system.wait(ENDING).context("waiting for the guest")?;
                return ending.with_context(|| format!("the process that serves the share {tag} has ended"));
            }
            audience.lets_go_on()?;
        }
    }
}

/// How large the terminal is, if there is one.
fn terminal_size() -> ConsoleSize {
    let size = tcgetwinsize(rustix::stdio::stdout());
    size.map(|size| ConsoleSize { rows: size.ws_row, columns: size.ws_col }).unwrap_or_default()
}

/// What the guest says: kept, as far as there is room, until there is a console that takes it.
#[derive(Default)]
struct Mouth(Mutex<Said>);

#[derive(Default)]
struct Said {
    output: Option<ConsoleOutput>,
    early: Vec<u8>,
}

impl Mouth {
    fn say(&self, bytes: &[u8]) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(output) = said.output.clone() else {
            let room = EARLY_BYTES_MAX - said.early.len();
            said.early.extend(&bytes[..bytes.len().min(room)]);
            return;
        };
        drop(said);
        output.write(bytes);
    }

    fn open(&self, output: ConsoleOutput) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        output.write(&std::mem::take(&mut said.early));
        said.output = Some(output);
    }
}
