//! A virtual machine put together: memory, buses, devices, vCPU threads and I/O threads.

use crate::bus::{Bus, MmioRange, PortDevice, RangeTaken, lock};
use crate::event::{EventSink, LastState, MachineEvent, VcpuEnd};
use crate::interrupt_latch::{InterruptLatch, WaitPort};
use crate::io_thread::IoThreads;
use crate::placement::SideBySide;
use crate::threads::{ThreadKind, Threads};
use blockyard_block::MemoryMap;
use blockyard_hypervisor::{self as hypervisor, Entry, Exit, Hypervisor, Kick, Vcpu, Vm};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::{io, thread};
use vm_memory::{Bytes, GuestAddress};

/// Why a machine could not be put together or started.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The hypervisor refused.
    #[error(transparent)]
    Hypervisor(#[from] hypervisor::Error),
    /// Two devices at one address.
    #[error(transparent)]
    RangeTaken(#[from] RangeTaken),
    /// The operating system refused a thread or an event.
    #[error("{what}")]
    Os {
        /// What was wanted.
        what: &'static str,
        /// The answer.
        source: io::Error,
    },
    /// What it was to have or to run does not fit it: a sentence.
    #[error("{0}")]
    Refused(String),
}

/// How often the guest came out to the VMM, by kind. Doorbells are not exits.
#[derive(Debug, Default)]
pub struct ExitCounters {
    /// Port input other than waits.
    pub port_in: AtomicU64,
    /// Port output.
    pub port_out: AtomicU64,
    /// Device register reads.
    pub mmio_read: AtomicU64,
    /// Device register writes.
    pub mmio_write: AtomicU64,
    /// `hlt`.
    pub halts: AtomicU64,
    /// Reads of the wait port: a guest that has nothing to do until a device interrupts.
    pub waits: AtomicU64,
}

/// A machine that is being put together.
pub struct Machine {
    memory: MemoryMap,
    vm: Box<dyn Vm>,
    ports: Bus<Mutex<dyn PortDevice>>,
    mmio: Bus<dyn MmioRange>,
    latch: Arc<InterruptLatch>,
    wait_port: Option<u16>,
    absent: Absent,
    io: IoThreads,
    threads: Threads,
    events: EventSink,
}

/// What becomes of accesses to memory addresses where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// They end the guest, which knows what it has.
    Crashes,
    /// As on a PC, where kernels look for what there may be: reads give ones, and writes go nowhere.
    ReadsAsOnes,
}

impl Machine {
    /// A machine with memory and `io_threads` I/O threads, and no devices yet.
    ///
    /// # Errors
    /// When the hypervisor or the operating system refuses.
    pub fn new(
        hypervisor: &dyn Hypervisor,
        memory: MemoryMap,
        io_threads: usize,
        threads: impl Into<Threads>,
        events: EventSink,
    ) -> Result<Self, MachineError> {
        let mut vm = hypervisor.create_vm()?;
        for region in 0..memory.regions().count() {
            vm.map_memory(region as u32, &memory, region)?;
        }
        let threads = threads.into();
        let io = IoThreads::start(io_threads, &threads, &events)
            .map_err(|source| MachineError::Os { what: "starting I/O threads", source })?;
        Ok(Self {
            memory,
            vm,
            ports: Bus::default(),
            mmio: Bus::default(),
            latch: Arc::default(),
            wait_port: None,
            absent: Absent::Crashes,
            io,
            threads,
            events,
        })
    }

    /// The machine's memory.
    pub fn memory(&self) -> &MemoryMap {
        &self.memory
    }

    /// The I/O threads, to which devices hand their queues.
    pub fn io_threads(&self) -> &IoThreads {
        &self.io
    }

    /// Where devices of a guest without interrupt handlers signal.
    pub fn interrupts(&self) -> &Arc<InterruptLatch> {
        &self.latch
    }

    /// Where device models report drivers that break the rules.
    pub fn events(&self) -> &EventSink {
        &self.events
    }

    /// Lets the guest wait for interrupts by reading `port`.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn attach_wait_port(&mut self, port: u16) -> Result<(), MachineError> {
        self.attach_port_device(port, 4, Arc::new(Mutex::new(WaitPort(Arc::clone(&self.latch)))))?;
        self.wait_port = Some(port);
        Ok(())
    }

    /// Attaches a device at `count` ports from `port`.
    ///
    /// # Errors
    /// When a port is taken.
    pub fn attach_port_device(
        &mut self,
        port: u16,
        count: u16,
        device: Arc<Mutex<dyn PortDevice>>,
    ) -> Result<(), MachineError> {
        Ok(self.ports.attach(u64::from(port), u64::from(count), device)?)
    }

    /// Attaches a device at `length` addresses from `address`.
    ///
    /// # Errors
    /// When an address is taken.
    pub fn attach_mmio_device(
        &mut self,
        address: u64,
        length: u64,
        device: Arc<dyn MmioRange>,
    ) -> Result<(), MachineError> {
        Ok(self.mmio.attach(address, length, device)?)
    }

    /// Says what becomes of accesses to memory addresses where nothing is: [`Absent::Crashes`] unless this is called.
    pub fn set_absent(&mut self, absent: Absent) {
        self.absent = absent;
    }

    /// The VM, for its doorbells and interrupts.
    pub fn vm(&mut self) -> &mut dyn Vm {
        self.vm.as_mut()
    }

    /// Puts an image into guest memory.
    ///
    /// # Errors
    /// When it is empty or does not fit between `start` and `end`.
    pub fn load(&self, image: &[u8], start: u64, end: u64) -> Result<(), MachineError> {
        let room = end - start;
        if image.is_empty() {
            return Err(MachineError::Refused("is empty".into()));
        }
        if image.len() as u64 > room {
            return Err(MachineError::Refused(format!("has {} bytes, but a guest has at most {room}", image.len())));
        }
        let loaded = self.memory.guest_memory().write_slice(image, GuestAddress(start));
        loaded.map_err(|error| MachineError::Refused(format!("cannot be put at {start:#x}: {error}")))
    }

    /// Starts a vCPU for each of `entries`, on a thread of its own.
    ///
    /// # Errors
    /// When the hypervisor or the operating system refuses.
    pub fn start(mut self, entries: &[Entry]) -> Result<RunningMachine, MachineError> {
        let vcpus: Vec<_> =
            (0..).zip(entries).map(|(index, entry)| self.vm.create_vcpu(index, entry)).collect::<Result<_, _>>()?;
        let counters = Arc::new(ExitCounters::default());
        let stopping = Arc::new(AtomicBool::new(false));
        let buses =
            Arc::new(Buses { ports: self.ports, mmio: self.mmio, wait_port: self.wait_port, absent: self.absent });
        let mut running = RunningMachine {
            threads: Vec::new(),
            kickers: vcpus.iter().map(|vcpu| vcpu.kicker()).collect(),
            stopping: Arc::clone(&stopping),
            latch: self.latch,
            io: Some(self.io),
            counters: Arc::clone(&counters),
            _vm: self.vm,
        };
        for (index, vcpu) in vcpus.into_iter().enumerate() {
            let cpus = self.threads.placement.vcpus.as_ref().map(|cpus| cpus.nth(index));
            if let (Some(cpus), Some(process)) = (&cpus, vcpu.process_id()) {
                cpus.pin(Some(process)).map_err(|source| MachineError::Os { what: "placing the guest", source })?;
            }
            let mut runner = VcpuRunner {
                index,
                vcpu,
                buses: Arc::clone(&buses),
                counters: Arc::clone(&counters),
                stopping: Arc::clone(&stopping),
                placed: cpus.is_some(),
            };
            let (events, begin) = (Arc::clone(&self.events), Arc::clone(&self.threads.begin));
            let thread = thread::Builder::new().name(format!("vcpu{index}")).spawn(move || {
                let failed = |what| move |source| hypervisor::Error::Os { what, source };
                let placed = cpus.map_or(Ok(()), |cpus| cpus.pin(None)).map_err(failed("placing the vCPU"));
                let begun = placed.and_then(|()| begin(ThreadKind::Vcpu).map_err(failed("beginning a vCPU's thread")));
                if let Err(error) = begun {
                    return events(MachineEvent::VcpuEnded(VcpuEnd::Failed(error)));
                }
                events(MachineEvent::VcpuEnded(runner.run()));
                // Only now is the vCPU dropped: a guest process takes a while to end, and nobody has to wait for that.
                drop(runner);
            });
            let thread = thread.map_err(|source| MachineError::Os { what: "starting a vCPU's thread", source })?;
            running.threads.push(thread);
        }
        Ok(running)
    }
}

/// What answers to accesses of the guest's.
struct Buses {
    ports: Bus<Mutex<dyn PortDevice>>,
    mmio: Bus<dyn MmioRange>,
    wait_port: Option<u16>,
    absent: Absent,
}

struct VcpuRunner {
    index: usize,
    vcpu: Box<dyn Vcpu>,
    buses: Arc<Buses>,
    counters: Arc<ExitCounters>,
    stopping: Arc<AtomicBool>,
    /// Whether somebody said where it runs.
    placed: bool,
}

impl VcpuRunner {
    fn run(&mut self) -> VcpuEnd {
        // Until it first waits for a disk, a guest does nothing but talk to us.
        let process = self.vcpu.process_id().filter(|_| !self.placed);
        let mut side_by_side = process.and_then(SideBySide::keep);
        loop {
            if self.stopping.load(Ordering::Acquire) {
                return VcpuEnd::Stopped;
            }
            let (counters, buses) = (&*self.counters, &*self.buses);
            let read_as_ones = buses.absent == Absent::ReadsAsOnes;
            let count = |counter: &AtomicU64| _ = counter.fetch_add(1, Ordering::Relaxed);
            match self.vcpu.run() {
                Ok(Exit::PortIn { port, size, data }) => {
                    if Some(port) == buses.wait_port {
                        count(&counters.waits);
                        drop(side_by_side.take());
                    } else {
                        count(&counters.port_in);
                    }
                    match buses.ports.at(u64::from(port)) {
                        Some((device, offset)) => lock(device).read(offset as u16, size, data),
                        None => data.fill(0xff),
                    }
                }
                Ok(Exit::PortOut { port, size, data }) => {
                    count(&counters.port_out);
                    if let Some((device, offset)) = buses.ports.at(u64::from(port)) {
                        lock(device).write(offset as u16, size, data);
                    }
                }
                Ok(Exit::MmioRead { address, data }) => {
                    count(&counters.mmio_read);
                    match buses.mmio.at(address) {
                        Some((device, offset)) => device.read(offset, data),
                        None if read_as_ones => data.fill(0xff),
                        None => {
                            let sentence = format!("it read address {address:#x}, where nothing is");
                            return VcpuEnd::Crashed(sentence, self.last_state());
                        }
                    }
                }
                Ok(Exit::MmioWrite { address, data }) => {
                    count(&counters.mmio_write);
                    match buses.mmio.at(address) {
                        Some((device, offset)) => device.write(offset, data),
                        None if read_as_ones => {}
                        None => {
                            let sentence = format!("it wrote to address {address:#x}, where nothing is");
                            return VcpuEnd::Crashed(sentence, self.last_state());
                        }
                    }
                }
                Ok(Exit::Halt) => {
                    count(&counters.halts);
                    return VcpuEnd::Halted;
                }
                Ok(Exit::Shutdown) => return VcpuEnd::Shutdown(self.last_state()),
                // The loop looks whether to stop.
                Ok(Exit::Kicked) => {}
                Ok(Exit::Crashed(sentence)) => return VcpuEnd::Crashed(sentence, self.last_state()),
                Err(error) => return VcpuEnd::Failed(error),
            }
        }
    }

    fn last_state(&self) -> LastState {
        LastState { vcpu: self.index, registers: self.vcpu.registers().map(Box::new) }
    }
}

/// A machine that runs. Dropping it stops it.
pub struct RunningMachine {
    threads: Vec<JoinHandle<()>>,
    kickers: Vec<Arc<dyn Kick>>,
    stopping: Arc<AtomicBool>,
    latch: Arc<InterruptLatch>,
    io: Option<IoThreads>,
    counters: Arc<ExitCounters>,
    // The vCPUs are gone before their VM.
    _vm: Box<dyn Vm>,
}

impl RunningMachine {
    /// The guest's exits so far.
    pub fn exits(&self) -> &ExitCounters {
        &self.counters
    }

    /// Stops the vCPUs, then the I/O threads, once what they have in flight is done. Nothing touches guest memory
    /// afterwards.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        self.latch.stop();
        for kicker in &self.kickers {
            kicker.kick();
        }
        for thread in self.threads.drain(..) {
            // A vCPU thread that panicked has said so on stderr; there is nothing left of it to stop.
            let _ = thread.join();
        }
        if let Some(mut io) = self.io.take() {
            io.stop();
        }
    }
}

impl Drop for RunningMachine {
    fn drop(&mut self) {
        self.stop();
    }
}
