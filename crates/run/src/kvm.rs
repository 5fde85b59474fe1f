//! A machine on KVM.

use crate::configuration::{Configuration, DiskBus};
use crate::console::{Console, ConsoleEvent};
use crate::deadline::Timed;
use crate::kernel_files::KernelFiles;
use crate::placement::placement;
use crate::report::{Exits, RunReport, cpu_seconds};
use crate::shares;
use crate::walls::Walls;
use crate::{Audience, DoesNotFit, LOOK_INTERVAL};
use anyhow::{Context, Result, bail};
use blockyard_block::Disk;
use blockyard_block::specification::DiskSpecification;
use blockyard_confinement::{Inherited, MachineThread};
use blockyard_hypervisor::Hypervisor;
use blockyard_hypervisor::kvm::{KvmHypervisor, emulates_guests};
use blockyard_session::open::{OpenDisk, OpenOptions, open_disk};
use blockyard_share::ShareStarter;
use blockyard_vmm::attached_disk::AttachedDisk;
use blockyard_vmm::event::MachineEvent;
use blockyard_vmm::machine::{MachineError, RunningMachine};
use blockyard_vmm::pc::{Pc, PcMemory, PowerRequest, VirtioTransport};
use blockyard_vmm::placement::Placement;
use blockyard_vmm::threads::Threads;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Instant;

/// Events that may wait to be looked at: more than there are of threads that end.
const EVENTS_MAX: usize = 1024;
/// What of the input a serial port is given at once.
const INPUT_BYTES: usize = 256;

enum Event {
    Machine(MachineEvent),
    Power(PowerRequest),
    Console(ConsoleEvent),
}

/// What outlives a reboot.
struct Machine<'a> {
    configuration: &'a Configuration,
    hypervisor: KvmHypervisor,
    kernel: KernelFiles,
    disks: Vec<(DiskSpecification, OpenDisk)>,
    shares: Vec<ShareStarter>,
    placement: Placement,
    walls: Walls,
    console: Console,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
}

/// A machine from its power-on to its end.
struct Started {
    machine: RunningMachine,
    disks: Vec<AttachedDisk>,
}

/// How the guest wants to go on.
enum Next {
    Ends,
    Reboots,
}

pub(crate) fn run(
    configuration: &Configuration,
    opening: &OpenOptions<'_>,
    audience: &Timed<'_>,
    inherited: Inherited,
    report: &mut RunReport,
) -> Result<()> {
    let shares = shares::open(&configuration.shares)?;
    let hypervisor = KvmHypervisor::open().context("cannot use the backend kvm")?;
    if emulates_guests() {
        audience.watch().note(
            "KVM here is PVM, which emulates guests that are not written for it: Linux boots as User-Mode Linux instead \
             (--backend uml)",
        );
    }
    let vcpus_max = hypervisor.capabilities().vcpus_max;
    if configuration.cpus > vcpus_max {
        let sentence = format!("KVM has {vcpus_max} vCPUs for a machine here, not {}: see --cpus", configuration.cpus);
        return Err(DoesNotFit(sentence).into());
    }
    if configuration.kernel.is_some() && configuration.has_keys() {
        let sentence = "a kernel that is named opens what is encrypted itself: leave --key-file and --key out";
        return Err(DoesNotFit(sentence.into()).into());
    }
    let kernel = KernelFiles::open(configuration, opening, audience)?;
    let names = configuration.disks_to_open()?;
    let opened = names.into_iter().map(|name| open_disk(&name, &opening.gathering()).map(|disk| (name, disk)));
    let disks = opened.collect::<Result<_, _>>()?;
    let placement = placement(configuration).context("finding out which CPUs there are")?;
    let shares = shares::starters(&shares, configuration.cpus)?;
    // Nothing more is opened by its name, and nobody has looked at anything of the guest's.
    inherited.close();
    let walls = Walls::enter(configuration, audience)?;
    let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
    let told = sender.clone();
    // Nobody waits in vain: whoever listens has the console.
    let console =
        Console::open(move |thread| walls.narrow(thread), move |event| _ = told.try_send(Event::Console(event)))?;
    Machine { configuration, hypervisor, kernel, disks, shares, placement, walls, console, sender, events }
        .until_it_ends(audience, report)
}

impl Machine<'_> {
    fn until_it_ends(mut self, audience: &Timed<'_>, report: &mut RunReport) -> Result<()> {
        report.backend = "kvm";
        report.placed(&self.placement);
        let began = Instant::now();
        loop {
            let Started { disks, mut machine } = self.start()?;
            if report.reboots == 0 {
                report.start_cpu_seconds = cpu_seconds();
            }
            let next = self.watch(audience);
            let wants_reboot = matches!(next, Ok(Next::Reboots));
            let reboots = wants_reboot && !self.configuration.no_reboot;
            report.ended_by_reboot = wants_reboot && !reboots;
            if !reboots {
                // What is said next is said on a terminal that is as it was, whatever the machine still waits for.
                self.console.close();
            }
            self.console.input().unlisten();
            self.console.without_waiting(|| machine.stop());
            report.seconds = began.elapsed().as_secs_f64();
            report.cpu_seconds = cpu_seconds();
            report.exits = Exits::from(machine.exits());
            let disks = disks.iter().map(|disk| (disk.counts(), disk.first_error()));
            report.boot_ended(&self.disks, disks);
            next?;
            if !reboots {
                return Ok(());
            }
            report.reboots += 1;
            // What the old machine still said is nothing to the new one; what somebody at the console wants is.
            let said: Vec<_> = self.events.try_iter().filter(|event| matches!(event, Event::Console(_))).collect();
            said.into_iter().for_each(|event| _ = self.sender.try_send(event));
        }
    }

    /// A machine as after power-on.
    fn start(&mut self) -> Result<Started> {
        let power = self.sender.clone();
        let has_asked = AtomicBool::new(false);
        let power = Arc::new(move |request| {
            // The first counts: those that a guest repeats would leave no room for what somebody at the console wants.
            if !has_asked.swap(true, Ordering::Relaxed) {
                let _ = power.try_send(Event::Power(request));
            }
        });
        let sender = self.sender.clone();
        let events = Arc::new(move |event| {
            // A device whose driver breaks the rules has told that driver, which may break them as often as it likes.
            if !matches!(event, MachineEvent::DriverError(_)) {
                let _ = sender.try_send(Event::Machine(event));
            }
        });
        let cpus = self.configuration.cpus;
        let threads = Threads { placement: self.placement.clone(), begin: self.walls.begin() };
        let mut pc = Pc::new(&self.hypervisor, cpus, self.memory(), threads, power, events)?;
        let output = self.console.output();
        let input = Arc::clone(self.console.input());
        let serial = pc.attach_console(
            Box::new(move |bytes: &[u8]| output.write(bytes)),
            Box::new(move |buffer: &mut Vec<u8>| input.take(buffer, INPUT_BYTES)),
        )?;
        let mut disks = Vec::new();
        for ((name, open), described) in self.disks.iter().zip(&self.configuration.disks) {
            let disk = Arc::clone(&open.disk) as Arc<dyn Disk>;
            let attached = attach(&mut pc, disk, described.bus, open.queues_max().min(cpus as usize) as u16);
            disks.push(attached.with_context(|| format!("cannot attach {name}"))?);
        }
        // Beside the disks, so that a guest whose disks are not on PCI need not search for it.
        let without_pci = self.configuration.disks.iter().any(|disk| disk.bus == DiskBus::VirtioMmio);
        pc.attach_entropy(if without_pci { VirtioTransport::Mmio } else { VirtioTransport::Pci })?;
        let sender = self.sender.clone();
        let on_end = move |why| _ = sender.try_send(Event::Machine(MachineEvent::IoFailed(why)));
        let memory = pc.memory().clone();
        shares::serve(self.configuration, &mut self.shares, &memory, on_end, |device| {
            Ok(pc.attach_virtio(device, if without_pci { VirtioTransport::Mmio } else { VirtioTransport::Pci })?)
        })?;
        let names = || format!("cannot boot {}", self.kernel.names());
        let machine = pc.start(&self.kernel.kernel()).with_context(names)?;
        self.tell_of_input(move || {
            if let Ok(mut serial) = serial.lock() {
                serial.0.input_ready();
            }
        })?;
        Ok(Started { machine, disks })
    }

    /// Servers of shares and sessions work in the guest's memory.
    fn memory(&self) -> PcMemory {
        let has_session = self.disks.iter().any(|(_, open)| open.session.is_some());
        PcMemory { bytes: self.configuration.memory, shared: has_session || !self.configuration.shares.is_empty() }
    }

    /// Has a thread tell the guest's port of what is typed, until nobody listens any more: while the guest says
    /// something that nobody reads, the port is not to be had, and keys of the console's are read all the same.
    fn tell_of_input(&self, tell: impl Fn() + Send + 'static) -> Result<()> {
        // One word that waits says as much as many.
        let (sender, news) = mpsc::sync_channel(1);
        let walls = self.walls;
        let told = move || {
            // Where it cannot be had, nothing that is typed is heard, and the console's own keys are all the same.
            if walls.narrow(MachineThread::Typing).is_err() {
                return;
            }
            while news.recv().is_ok() {
                tell();
            }
        };
        thread::Builder::new().name("typing".to_owned()).spawn(told).context("starting the console's threads")?;
        self.console.input().listen(move || _ = sender.try_send(()));
        Ok(())
    }

    /// Waits until the guest switches itself off or reboots, or somebody leaves it.
    fn watch(&self, audience: &Timed<'_>) -> Result<Next> {
        loop {
            let event = match self.events.recv_timeout(LOOK_INTERVAL) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => bail!("the virtual machine is gone"),
            };
            audience.lets_go_on()?;
            match event {
                None => {}
                Some(Event::Power(PowerRequest::Off)) => return Ok(Next::Ends),
                Some(Event::Power(PowerRequest::Reset)) => return Ok(Next::Reboots),
                Some(Event::Console(event)) => return event.ends().map(|()| Next::Ends),
                Some(Event::Machine(MachineEvent::VcpuEnded(end))) => return Err(end.into()),
                Some(Event::Machine(MachineEvent::IoFailed(sentence))) => bail!("{sentence}"),
                Some(Event::Machine(MachineEvent::DriverError(sentence))) => bail!("{sentence}"),
            }
        }
    }
}

/// Attaches a disk, with so many virtqueues where it has any.
fn attach(pc: &mut Pc, disk: Arc<dyn Disk>, bus: DiskBus, queues: u16) -> Result<AttachedDisk, MachineError> {
    let transport = match bus {
        DiskBus::Virtio => VirtioTransport::Pci,
        DiskBus::VirtioMmio => VirtioTransport::Mmio,
        DiskBus::Ahci => return pc.attach_ahci_disk(disk),
    };
    pc.attach_disk(disk, queues, transport)
}
