//! One copy from beginning to end.

use crate::conversation::{self, Device, HostFrames};
use crate::destination::Destination;
use crate::plan::{Audience, CopyPlan};
use crate::report::{CopyReport, Exits, Phases};
use crate::source::Source;
use crate::watch::{Event, Watch};
use anyhow::{Context, Result, bail};
use blockyard_block::{Disk, MemoryMap, shown};
use blockyard_devices::serial::{LineBuffer, NoInput, SerialInput, SerialOutput, SerialPort};
use blockyard_hypervisor::{Entry, Hypervisor};
use blockyard_protocol::layout;
use blockyard_session::open::OpenOptions;
use blockyard_vmm::attached_disk::{AttachedDisk, DiskCounts};
use blockyard_vmm::backend;
use blockyard_vmm::event::EventSink;
use blockyard_vmm::interrupt_latch::LatchBit;
use blockyard_vmm::machine::Machine;
use blockyard_vmm::virtio_disk;
use rustix::fs::{Mode, OFlags};
use std::borrow::Cow;
use std::fs;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The built-in guest.
static COPY_GUEST: &[u8] = include_bytes!(env!("BLOCKYARD_COPY_GUEST"));

/// Events that may wait to be looked at. A guest that sends more waits too: it cannot fill our memory.
const EVENTS_MAX: usize = 256;

/// Copies as planned; both ends are opened with `options`, and the source for reading only.
///
/// # Errors
/// A sentence on what went wrong, or the signal that ended it. A destination that is a raw file is what it was then;
/// one that is written in place is incomplete, and the sentence says so.
pub fn copy(plan: &CopyPlan, options: &OpenOptions<'_>, audience: &dyn Audience) -> Result<CopyReport> {
    let started = Instant::now();
    let (sender, events) = mpsc::sync_channel(EVENTS_MAX);
    let source = Source::open(plan, options)?;
    let destination = Destination::open(plan, &source, options)?;
    let mut report = if source.length_bytes == 0 {
        CopyReport::default()
    } else {
        let channel = (sender, events);
        run_guest(plan, &source, &destination, audience, channel, started).map_err(|error| destination.failed(error))?
    };
    let stopping = Instant::now();
    source.finish().map_err(|error| destination.failed(error))?;
    destination.finish(plan.flush)?;
    report.phases.finish_seconds += stopping.elapsed().as_secs_f64();
    report.bytes = source.length_bytes;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

fn run_guest(
    plan: &CopyPlan,
    source: &Source,
    destination: &Destination,
    audience: &dyn Audience,
    (sender, events): (SyncSender<Event>, Receiver<Event>),
    started: Instant,
) -> Result<CopyReport> {
    let hypervisor = backend::open(plan.backend).context("cannot use this backend")?;
    let (machine, disks) = build(hypervisor.as_ref(), plan, source, destination, sender)?;
    let entry = Entry::Flat64 {
        entry: layout::CODE.start,
        stack_top: layout::STACK_TOP,
        gdt: layout::GDT.start,
        page_tables: layout::PAGE_TABLES.start,
    };
    let running = Instant::now();
    let mut machine = machine.start(&[entry]).context("cannot start the guest")?;
    // Dropped before the machine, and the events with it: nobody waits to send one while the machine stops.
    let sectors = [source.end.sector_bytes, destination.end.sector_bytes];
    let mut watch = Watch::new(plan, events, audience, source.length_bytes, sectors);
    let [input, output] = &disks;
    watch.until_done(
        // Neither number grows for ever: reading or writing more than there is counts for nothing.
        || input.counts().bytes_read.min(source.length_bytes) + written(&output.counts()).min(source.length_bytes),
        || input.counts().bytes_read,
        || [source.end.disk.work(), destination.end.disk.work()],
        |device, offset| match device {
            Device::Input => source.first_error().map(|why| (source.first_failure(offset, plan.request_bytes), why)),
            Device::Output => destination.end.first_error().map(|why| (offset, why)),
        },
    )?;
    let done = Instant::now();
    let (copying, flushing, frames) = (watch.copying.unwrap_or(running), watch.flushing.unwrap_or(done), watch.frames);
    drop(watch);
    machine.stop();
    if let Some(why) = destination.end.first_error() {
        bail!("cannot write {}: {why}, and the guest took no notice", plan.output.named);
    }
    let wrote = written(&output.counts());
    if wrote < destination.must_write_bytes {
        bail!("the guest reported Complete, but wrote only {wrote} of {} bytes", destination.must_write_bytes);
    }
    let both = input.counts() + output.counts();
    Ok(CopyReport {
        backend: hypervisor.name(),
        requests: both.reads + both.writes + both.flushes + both.discards + both.write_zeroes + both.get_ids,
        doorbells: both.doorbells,
        interrupts: both.interrupts,
        bytes_read: input.counts().bytes_read,
        bytes_written: output.counts().bytes_written,
        bytes_zeroed: output.counts().bytes_zeroed,
        frames,
        exits: Exits::from(machine.exits()),
        phases: Phases {
            prepare_seconds: (running - started).as_secs_f64(),
            boot_seconds: (copying - running).as_secs_f64(),
            copy_seconds: (flushing - copying).as_secs_f64(),
            flush_seconds: (done - flushing).as_secs_f64(),
            finish_seconds: done.elapsed().as_secs_f64(),
        },
        ..CopyReport::default()
    })
}

/// No more queues than the copy has requests, as each costs some twenty register accesses, nor more than both disks
/// have.
fn queues(plan: &CopyPlan, source: &Source, destination: &Destination) -> u16 {
    let requests = source.length_bytes.div_ceil(plan.request_bytes.into()).max(1);
    let in_order = if source.unpacked.is_some() { 1 } else { usize::MAX };
    let possible = source.end.queues_max().min(destination.end.queues_max()).min(in_order);
    (plan.queues as u64).min(possible as u64).min(requests) as u16
}

fn written(counts: &DiskCounts) -> u64 {
    counts.bytes_written + counts.bytes_zeroed
}

/// Puts the machine together: memory with the guest in it, two serial ports, two disks, a port to wait at.
fn build(
    hypervisor: &dyn Hypervisor,
    plan: &CopyPlan,
    source: &Source,
    destination: &Destination,
    sender: SyncSender<Event>,
) -> Result<(Machine, [AttachedDisk; 2])> {
    let queues = queues(plan, source, destination);
    let memory = MemoryMap::allocate(&[(0, plan.memory_bytes as usize)])?;
    let machine_sender = sender.clone();
    // A receiver that is gone has stopped caring.
    let events: EventSink = Arc::new(move |event| _ = machine_sender.send(Event::Machine(event)));
    let mut machine = Machine::new(hypervisor, memory, queues.into(), plan.placement.clone(), events)?;
    load_guest(&machine, plan)?;

    let config = conversation::config(plan, queues.into(), source, destination);
    let frames = HostFrames::new(config, Arc::clone(&source.end.disk) as Arc<dyn Disk>);
    let guest_sender = sender.clone();
    let take = conversation::guest_frames(move |message| _ = guest_sender.send(Event::Guest(message)));
    attach_serial(&mut machine, layout::COM1_PORT, Box::new(take), Box::new(frames))?;
    let mut lines = LineBuffer::default();
    let debug = plan.debug;
    let print = move |bytes: &[u8]| {
        if debug {
            lines.push(bytes, |line| _ = sender.send(Event::Debug(line.to_owned())));
        }
    };
    attach_serial(&mut machine, layout::COM2_PORT, Box::new(print), Box::new(NoInput))?;
    machine.attach_wait_port(layout::WAIT_PORT)?;

    let mut attach = |device: Device, disk: Arc<dyn Disk>| {
        let interrupt = Arc::new(LatchBit { latch: Arc::clone(machine.interrupts()), device: device as u32 });
        virtio_disk::attach(&mut machine, device.name(), interrupt, device.address(), disk, queues)
            .with_context(|| format!("cannot attach the {} disk", device.name()))
    };
    let input = attach(Device::Input, Arc::clone(&source.end.disk) as Arc<dyn Disk>)?;
    let output = attach(Device::Output, Arc::clone(&destination.end.disk) as Arc<dyn Disk>)?;
    Ok((machine, [input, output]))
}

fn attach_serial(machine: &mut Machine, port: u16, output: SerialOutput, input: Box<dyn SerialInput>) -> Result<()> {
    const PORTS: u16 = 8;
    let serial = SerialPort::new(output, input, None);
    Ok(machine.attach_port_device(port, PORTS, Arc::new(Mutex::new(blockyard_vmm::serial::SerialWindow(serial))))?)
}

fn load_guest(machine: &Machine, plan: &CopyPlan) -> Result<()> {
    let (image, name) = match &plan.guest {
        None => (Cow::Borrowed(COPY_GUEST), "the built-in guest".to_owned()),
        Some(path) => {
            let name = format!("guest {}", shown(path));
            (Cow::Owned(read_guest(path).with_context(|| format!("cannot read {name}"))?), name)
        }
    };
    machine.load(&image, layout::CODE.start, layout::CODE.end).map_err(|error| anyhow::anyhow!("{name} {error}"))
}

/// Reads no more of the file than tells that it is too large. A FIFO that nobody writes is empty.
fn read_guest(path: &std::path::Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let file =
        fs::File::from(rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?);
    rustix::fs::fcntl_setfl(&file, OFlags::RDONLY)?;
    let mut image = Vec::new();
    file.take(layout::CODE.length() + 1).read_to_end(&mut image)?;
    Ok(image)
}
