//! A running appliance.

use crate::channel::Channel;
use crate::confined::Confined;
use crate::error::{ApplianceError, Cause};
use crate::initramfs;
use crate::kernel::Kernel;
use crate::kernel_command_line;
use crate::kernel_modules;
use crate::kernel_process;
use crate::machine::{self, ENDING, Lines, Machine, MachineParts, Patience, TICK, export};
use crate::slot::{Slot, SlotDisk};
use crate::stream::{Outside, StreamSink, StreamSource};
use crate::system::{Console, Hearing, System, SystemOptions};
use crate::tools::{Tool, ToolCall, ToolEnd, ToolError, Tools, judged};
use blockyard_block::{Disk, printable, wait_ready};
use blockyard_protocol::appliance::{HandOver, MORE, Operation, PIECE_BYTES, Ready, Request, Response, VERSION};
use blockyard_protocol::stream::TRANSFER_DISK_BYTES;
use blockyard_session::server::Session;
use rustix::event::{PollFd, PollFlags};
use serde::de::DeserializeOwned;
use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// For how many times the timeout an appliance may go on reading and writing its disks while the host gets and gives
/// nothing new: it may have much to remove or to check, but it may also go round in circles.
const TIMEOUTS_WITHOUT_RESULT: u32 = 30;

/// A disk of an image.
#[derive(Clone)]
pub struct ImageDisk {
    /// The disk. One that is for reading says so itself.
    pub disk: Arc<dyn Disk>,
    /// What it is called in messages.
    pub name: Arc<str>,
}

impl fmt::Debug for ImageDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ImageDisk({})", self.name)
    }
}

/// What an appliance is made of.
pub struct ApplianceOptions {
    /// What boots.
    pub kernel: Kernel,
    /// PID 1: a static program (`guests/agent`).
    pub agent: &'static [u8],
    /// A program, and its first arguments, that calls [`crate::kernel_process::run`] with those that follow.
    pub launcher: (PathBuf, Vec<&'static str>),
    /// The guest's memory.
    pub memory_bytes: u64,
    /// Whether its kernel measures how to compute the second parity of RAID 6, without which it has none: that takes it
    /// a second.
    pub raid6: bool,
    /// How long it may do nothing while it is asked for something.
    pub timeout: Duration,
    /// Where its console goes too, as text that cannot command a terminal; the kernel says more there than it does
    /// otherwise.
    pub console: Option<Box<dyn io::Write + Send>>,
    /// Asked now and then: the signal that wants it to end.
    pub interrupted: Box<dyn Fn() -> Option<String>>,
    /// That it shall be handed over to the system in its images ([`Appliance::hand_over`]), and what that is told.
    pub system: Option<SystemOptions>,
    /// What such a signal ends is the operation that is under way, if the guest gives it up in time, and not the guest.
    pub lives_on: bool,
}

/// How often modules are sent for one request, as each may want others; and how many at a time.
const MODULE_ROUNDS_MAX: u32 = 8;
const MODULES_MAX: usize = 16;

/// How long the guest may take to give up an operation.
const GIVING_UP: Duration = Duration::from_secs(6);
/// How long its streams stay open meanwhile.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A guest with the disks of an image. It ends when it is dropped: what was not synced is lost.
pub struct Appliance {
    machine: Machine,
    channel: Channel,
    console: UnixStream,
    /// How many of these are images, which come first.
    images: usize,
    source: Arc<SlotDisk>,
    sink: Arc<SlotDisk>,
    /// What has been counted of the source and of the sink when something was bound to them, and how much of it can be
    /// new.
    fresh: [Fresh; 2],
    /// Streams that may be waiting for somebody who is not the guest.
    streams: Vec<Weak<dyn Outside>>,
    hearing: Hearing,
    options: ApplianceOptions,
    kernel_release: String,
    requests: u32,
    supplied: bool,
    tools: Tools,
}

impl Appliance {
    /// Boots it, with `disks` as /dev/vda, /dev/vdb and so on.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(options: ApplianceOptions, disks: &[ImageDisk]) -> Result<Self, ApplianceError> {
        kernel_process::refuse_in_kernels().map_err(without_log)?;
        let mut appliance = Self::start(options, disks).map_err(without_log)?;
        appliance.come_up().map_err(|cause| appliance.not_started(cause))?;
        Ok(appliance)
    }

    /// Asks for `operation` and waits until it is done or has failed: both are in the response. Where its kernel lacks
    /// a module for mounting that the host has, it gets that and is asked again.
    ///
    /// # Errors
    /// When the appliance is of no more use.
    pub fn call(&mut self, operation: Operation) -> Result<Response, ApplianceError> {
        let again = matches!(operation, Operation::Mount(_) | Operation::HandOver(_)).then(|| operation.clone());
        let inspects = matches!(operation, Operation::Inspect(_));
        let mut response = self.call_logged(operation)?;
        for _ in 0..MODULE_ROUNDS_MAX {
            if response.modules.is_empty() || (again.is_none() && !inspects) || !self.supply(&response.modules) {
                break;
            }
            match &again {
                Some(operation) => response = self.call_logged(operation.clone())?,
                None => {
                    self.supplied = true;
                    break;
                }
            }
        }
        Ok(response)
    }

    /// Whether an inspection has shown that its kernel lacked modules, which it has got since: then another shows more.
    pub fn take_supplied(&mut self) -> bool {
        std::mem::take(&mut self.supplied)
    }

    /// Sends in modules; whether there was something to send. What is lacking its kernel says when it is asked again.
    fn supply(&mut self, modules: &[String]) -> bool {
        let names: Vec<_> = modules.iter().take(MODULES_MAX).cloned().collect();
        self.supply_modules(&names).unwrap_or(false)
    }

    fn call_logged(&mut self, operation: Operation) -> Result<Response, ApplianceError> {
        // Complaints about what was done before say nothing about this.
        self.hearing.console.forget();
        self.call_once(operation).map_err(|cause| self.failed(cause))
    }

    fn call_once(&mut self, operation: Operation) -> Result<Response, Cause> {
        self.requests = self.requests.wrapping_add(1);
        let frame = Channel::encode(&Request { number: self.requests, operation })?;
        let mut watch = Watch::new(self);
        for (number, mut left) in frame.chunks(PIECE_BYTES).enumerate() {
            if number > 0 && self.receive::<Response>(&mut watch)?.number != MORE {
                return Err(Cause::Protocol("a response to a part of a request".to_owned()));
            }
            while !left.is_empty() {
                left = self.channel.send(left)?;
                if !left.is_empty() {
                    self.wait(PollFlags::OUT, &mut watch)?;
                }
            }
        }
        watch.is_asked = true;
        let response: Response = self.receive(&mut watch)?;
        if response.number != self.requests {
            return Err(Cause::Protocol(format!("response {} to request {}", response.number, self.requests)));
        }
        watch.given_up.map_or(Ok(response), |(_, signal)| Err(Cause::GivenUp(signal)))
    }

    fn receive<M: DeserializeOwned>(&mut self, watch: &mut Watch) -> Result<M, Cause> {
        loop {
            if let Some(message) = self.channel.receive()? {
                return Ok(message);
            }
            self.wait(PollFlags::IN, watch)?;
        }
    }

    /// Waits until the channel is ready, or it is time to look again.
    fn wait(&mut self, flags: PollFlags, watch: &mut Watch) -> Result<(), Cause> {
        let mut descriptors =
            vec![PollFd::new(&self.channel, flags), PollFd::new(&self.machine.process.descriptor, PollFlags::IN)];
        let ended = self.machine.sessions.iter().map(Session::ended);
        descriptors.extend(ended.map(|event| PollFd::from_borrowed_fd(event, PollFlags::IN)));
        wait_ready(&mut descriptors, Some(TICK)).map_err(|error| Cause::Start("waiting for it", error))?;
        let (is_ready, has_ended) = (
            descriptors[0].revents().intersects(PollFlags::IN | PollFlags::OUT),
            descriptors[1].revents().intersects(PollFlags::IN),
        );
        if let Some(signal) = (self.options.interrupted)() {
            self.interrupt(signal, watch)?;
        }
        if is_ready {
            return Ok(());
        }
        if has_ended {
            return Err(Cause::Ended);
        }
        if let Some(reason) = self.machine.sessions.iter().find_map(Session::end_reason) {
            // Mostly because it is about to be gone altogether.
            return Err(if self.machine.process.ends_within(ENDING) {
                Cause::Ended
            } else {
                Cause::Disk(reason.to_string())
            });
        }
        watch.check(self)
    }

    /// Somebody wants the end: of the operation, if the guest lives on.
    fn interrupt(&mut self, signal: String, watch: &mut Watch) -> Result<(), Cause> {
        match &watch.given_up {
            Some((since, _)) if since.elapsed() < GIVING_UP => {
                if since.elapsed() > LAST_WORDS {
                    // Whoever reads or writes the other end of a stream may never do so.
                    self.streams.iter().filter_map(Weak::upgrade).for_each(|stream| stream.give_up());
                }
                return Ok(());
            }
            None if self.options.lives_on && watch.is_asked => {}
            _ => return Err(Cause::Interrupted(signal)),
        }
        // It fits the line, on which nothing else is under way.
        let frame = Channel::encode(&Request { number: self.requests, operation: Operation::Interrupt })?;
        if !self.channel.send(&frame)?.is_empty() {
            return Err(Cause::Interrupted(signal));
        }
        watch.given_up = Some((Instant::now(), signal));
        Ok(())
    }

    /// What the guest has read and written so far.
    fn bytes_moved(&self) -> u64 {
        let counts = self.machine.sessions.iter().map(|session| session.statistics().counts);
        counts.map(|counts| counts.bytes_read + counts.bytes_written + counts.flushes).sum()
    }

    /// What the guest has read of the host's data, and written of its own for the host, that was not there before. It
    /// cannot make this grow for ever: a stream goes by once, and of a disk no more counts than it has.
    fn fresh_bytes(&self) -> u64 {
        (0..2).map(|slot| self.fresh[slot].bytes(self.slot_bytes(slot))).sum()
    }

    /// What the guest has read of the source (0) or written to the sink (1).
    fn slot_bytes(&self, slot: usize) -> u64 {
        let counts = self.machine.sessions.get(self.images + slot).map(|session| session.statistics().counts);
        counts.map_or(0, |counts| if slot == SOURCE { counts.bytes_read } else { counts.bytes_written })
    }

    fn expect(&mut self, slot: usize, bytes_max: u64) {
        let counted = self.slot_bytes(slot);
        self.fresh[slot] = Fresh { before: self.fresh[slot].bytes(counted), since: counted, bytes_max };
    }

    /// How far it is shut in.
    pub fn confined(&self) -> Confined {
        self.machine.confined()
    }

    /// The guest reads `disk` as the source from now on: up to the next binding.
    pub fn bind_source(&mut self, disk: Arc<dyn Disk>) {
        self.expect(SOURCE, disk.geometry().capacity_bytes);
        self.source.bind(disk);
    }

    /// The guest reads a stream as the source.
    pub fn bind_source_stream(&mut self, stream: &Arc<StreamSource>) {
        self.expect(SOURCE, u64::MAX);
        self.streams.push(Arc::downgrade(&stream.outside()));
        self.source.bind(Arc::clone(stream) as Arc<dyn Disk>);
    }

    /// The guest writes to `disk` as the sink from now on.
    pub fn bind_sink(&mut self, disk: Arc<dyn Disk>) {
        self.expect(SINK, disk.geometry().capacity_bytes);
        self.sink.bind(disk);
    }

    /// The guest writes a stream as the sink.
    pub fn bind_sink_stream<W: io::Write + Send + 'static>(&mut self, stream: &Arc<StreamSink<W>>) {
        self.expect(SINK, u64::MAX);
        self.streams.push(Arc::downgrade(&stream.outside()));
        self.sink.bind(Arc::clone(stream) as Arc<dyn Disk>);
    }

    /// Empties both transfer disks.
    pub fn release(&mut self) {
        self.expect(SOURCE, 0);
        self.expect(SINK, 0);
        self.source.release();
        self.sink.release();
        self.streams.clear();
    }

    /// What the guest's kernel has complained about, the last lines. For when something failed: what it said on its
    /// console may come a moment after its agent's response.
    pub fn kernel_log(&self) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_millis(50);
        loop {
            let complaints = self.hearing.console.complaints();
            if !complaints.is_empty() || Instant::now() > deadline {
                return complaints;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends it, as dropping it does: its disks are let go of when this returns, for whoever wants them next.
    pub fn end(&mut self) {
        self.machine.end();
        self.release();
    }

    /// How long it may do nothing from now on, while it is asked for something; how long it might before.
    pub fn set_timeout(&mut self, timeout: Duration) -> Duration {
        std::mem::replace(&mut self.options.timeout, timeout)
    }

    /// What its kernel says that it is, as `uname -r` has it.
    pub fn kernel_release(&self) -> &str {
        &self.kernel_release
    }

    /// What it was made of.
    pub fn options(&self) -> &ApplianceOptions {
        &self.options
    }

    /// How many of the guest's disks are images.
    fn image_count(&self) -> u32 {
        u32::try_from(self.images).unwrap_or(u32::MAX)
    }

    /// Process id of the guest's first process.
    pub fn process_id(&self) -> u32 {
        self.machine.process.child.id()
    }

    /// Before it is ready, whatever is said may be the reason.
    fn not_started(&mut self, cause: Cause) -> ApplianceError {
        let has_ended = matches!(cause, Cause::Ended);
        let mut error = self.failed(cause);
        if let Some(status) = self.machine.process.status.filter(|_| has_ended) {
            let not_linux = self.options.kernel.is_no_linux().map(Cause::NotLinux);
            error.cause = not_linux.unwrap_or_else(|| Cause::NotStarted(status.to_string()));
            if error.kernel_log.is_empty() {
                self.hearing.hear_last();
                error.kernel_log = self.hearing.last_words();
            }
        }
        error
    }

    fn failed(&mut self, cause: Cause) -> ApplianceError {
        if matches!(cause, Cause::GivenUp(_) | Cause::TooLong) {
            return without_log(cause);
        }
        if matches!(cause, Cause::Ended) {
            // Its last words are on their way.
            std::thread::sleep(Duration::from_millis(20));
        }
        self.machine.process.kill();
        ApplianceError { cause, kernel_log: self.hearing.console.complaints() }
    }
}

impl Appliance {
    /// Runs a tool, which is sent in before if it is not there, and waits for its end: whatever its exit status is,
    /// that is for the caller to judge. The source disk is taken meanwhile.
    ///
    /// # Errors
    /// When it cannot be found, sent or executed, or the appliance is of no more use.
    pub fn run_tool(&mut self, tool: &'static Tool, call: ToolCall) -> Result<ToolEnd, ToolError> {
        self.install_tool(tool)?;
        let request = call.request(tool, self.image_count());
        let response = self.call(Operation::RunTool(request))?;
        Ok(judged(tool.program, response)?.program.unwrap_or_default().into())
    }

    /// Sends a tool in, if it is not there.
    ///
    /// # Errors
    /// As [`Appliance::run_tool`].
    pub fn install_tool(&mut self, tool: &'static Tool) -> Result<(), ToolError> {
        let Some((archive, names)) = self.tools.lacking(tool)? else { return Ok(()) };
        self.install(tool.program, archive)?;
        self.tools.note_installed(names);
        Ok(())
    }

    /// Sends in what the kernel needs for arrays, logical volumes and encrypted volumes.
    ///
    /// # Errors
    /// As [`Appliance::run_tool`].
    pub fn install_modules(&mut self) -> Result<(), ToolError> {
        self.supply_modules(&kernel_modules::LATER.map(str::to_owned)).map(drop)
    }

    /// Sends in the modules that are called so, and says whether there are any that it had not got yet.
    fn supply_modules(&mut self, names: &[String]) -> Result<bool, ToolError> {
        let Some(archive) = self.tools.lacking_modules(&self.options.kernel, names)? else { return Ok(false) };
        self.install("the kernel's modules", archive)?;
        self.tools.note_modules(names);
        Ok(true)
    }

    fn install(&mut self, what: &'static str, archive: Vec<u8>) -> Result<(), ToolError> {
        let start = |error| ToolError::Unreadable { path: what.into(), error };
        let stream = StreamSource::new(io::Cursor::new(archive)).map_err(start)?;
        self.bind_source_stream(&stream);
        let response = self.call(Operation::InstallTools);
        self.release();
        judged(what, response?).map(drop)
    }
}

fn without_log(cause: Cause) -> ApplianceError {
    ApplianceError { cause, kernel_log: Vec::new() }
}

/// Places of the transfer disks behind the images.
const SOURCE: usize = 0;
const SINK: usize = 1;

/// How much of what is counted for a transfer disk is new to whoever waits for it.
#[derive(Clone, Copy, Debug, Default)]
struct Fresh {
    /// With what was bound before.
    before: u64,
    /// The count when this was bound.
    since: u64,
    bytes_max: u64,
}

impl Fresh {
    fn bytes(&self, counted: u64) -> u64 {
        self.before.saturating_add(counted.saturating_sub(self.since).min(self.bytes_max))
    }
}

/// Since when nothing moved, and since when nothing new did.
struct Watch {
    quiet_since: Instant,
    moved: u64,
    fruitless_since: Instant,
    fresh: u64,
    /// All of the request is on its way.
    is_asked: bool,
    /// Since when the guest is to give it up, and the signal that wants it.
    given_up: Option<(Instant, String)>,
}

impl Watch {
    fn new(appliance: &Appliance) -> Self {
        let now = Instant::now();
        Self {
            quiet_since: now,
            moved: appliance.bytes_moved(),
            fruitless_since: now,
            fresh: appliance.fresh_bytes(),
            is_asked: false,
            given_up: None,
        }
    }

    fn check(&mut self, appliance: &Appliance) -> Result<(), Cause> {
        let (now, timeout) = (Instant::now(), appliance.options.timeout);
        let (moved, fresh) = (appliance.bytes_moved(), appliance.fresh_bytes());
        let outside = appliance.streams.iter().filter_map(Weak::upgrade).any(|stream| stream.waits_outside());
        if moved != self.moved || outside {
            (self.quiet_since, self.moved) = (now, moved);
        }
        if fresh != self.fresh || outside {
            (self.fruitless_since, self.fresh) = (now, fresh);
        }
        let fruitless = timeout.saturating_mul(TIMEOUTS_WITHOUT_RESULT);
        match (now - self.quiet_since > timeout, now - self.fruitless_since > fruitless) {
            (true, _) => Err(Cause::Hung(timeout)),
            (_, true) => Err(Cause::Fruitless(fruitless)),
            _ => Ok(()),
        }
    }
}

impl Appliance {
    /// Has the system in its images take over, with `modules` of the kernel's loaded that it does not have built in,
    /// and waits until it is about to, or cannot: that is in the response, as of [`Appliance::call`]. Of the first,
    /// [`Appliance::into_system`] is what is left.
    ///
    /// # Errors
    /// As [`Appliance::call`].
    pub fn hand_over(&mut self, modules: &[&str]) -> Result<Response, ApplianceError> {
        let modules: Vec<_> = modules.iter().map(|&module| module.to_owned()).collect();
        self.supply(&modules);
        let module_share = self.options.system.as_ref().and_then(|system| system.module_share.clone());
        let module_share = module_share.unwrap_or_default();
        self.call(Operation::HandOver(HandOver { disks: self.image_count(), modules, module_share }))
    }

    /// The guest, once it was handed over well.
    pub fn into_system(mut self) -> System {
        self.machine.keep_disks(self.images);
        System::new(self.machine, self.hearing, self.console)
    }

    fn start(mut options: ApplianceOptions, disks: &[ImageDisk]) -> Result<Self, Cause> {
        let start = |what| move |error| Cause::Start(what, error);
        let (control, serial) = UnixStream::pair().map_err(start("making its serial line"))?;
        let console = if options.system.is_some() { Console::for_people() } else { Console::to_read() };
        let (ends, console) = console.map_err(start("making its console"))?;
        let source = SlotDisk::new(TRANSFER_DISK_BYTES, true).map_err(start("making a disk"))?;
        let sink = SlotDisk::new(TRANSFER_DISK_BYTES, false).map_err(start("making a disk"))?;
        let mut exports: Vec<_> =
            disks.iter().map(|image| export(Arc::clone(&image.name), Arc::clone(&image.disk))).collect();
        exports.push(export("source".into(), Arc::new(Slot(Arc::clone(&source)))));
        exports.push(export("sink".into(), Arc::new(Slot(Arc::clone(&sink)))));
        let slots = vec![Arc::clone(&source), Arc::clone(&sink)];
        let arguments = arguments(&options);
        let ApplianceOptions { kernel, launcher, memory_bytes, agent, .. } = &options;
        let others = options.system.as_ref().map(|system| system.devices.clone()).unwrap_or_default();
        let console_size = options.system.as_ref().map(|system| system.console_size).unwrap_or_default();
        let memory_bytes = *memory_bytes;
        let images_count = disks.len();
        let (disks, disk_type) = (exports, machine::DISKS);
        let parts =
            MachineParts { kernel, launcher, memory_bytes, disks, disk_type, slots, others, arguments, console_size };
        let lines = Lines { serial, console: ends.console, words: ends.words };
        let shares: &[&str] = if options.system.is_some() { &["virtiofs"] } else { &[] };
        let machine = Machine::start(parts, lines, |file| initramfs::write(file, kernel, shares, agent))?;
        let followed = match &options.system {
            Some(system) => console.listen(Arc::clone(&system.console)),
            None => console.follow(options.console.take()),
        };
        let hearing = followed.map_err(start("following its console"))?;
        let channel = Channel::new(control).map_err(start("opening its serial line"))?;
        Ok(Self {
            machine,
            channel,
            console: console.stream,
            images: images_count,
            source,
            sink,
            fresh: [Fresh::default(); 2],
            streams: Vec::new(),
            hearing,
            options,
            kernel_release: String::new(),
            requests: 0,
            supplied: false,
            tools: Tools::with_modules(shares),
        })
    }

    /// Lets it come up.
    fn come_up(&mut self) -> Result<(), Cause> {
        let patience = Patience::new(self.options.timeout, &*self.options.interrupted);
        self.machine.attach(&self.channel, &patience)?;
        self.await_ready()
    }

    fn await_ready(&mut self) -> Result<(), Cause> {
        let mut watch = Watch::new(self);
        let ready: Ready = self.receive(&mut watch)?;
        match ready.version {
            VERSION => {
                self.kernel_release = printable(&ready.kernel);
                self.hearing.console.forget();
                Ok(())
            }
            other => Err(Cause::Protocol(format!("its agent speaks version {other}, not {VERSION}"))),
        }
    }
}

/// Says to the agent that it is to hand over.
const HANDS_OVER: &str = "blockyard.hand_over ";

/// The kernel's arguments.
fn arguments(options: &ApplianceOptions) -> Vec<String> {
    let mut arguments = match options.kernel.is_for_kvm() {
        true => kernel_command_line::on_kvm(),
        false => kernel_command_line::of_user_mode_linux(options.memory_bytes, options.raid6),
    };
    if !options.kernel.is_for_kvm() {
        // The last of its consoles.
        arguments.push("con15=fd:0,fd:0".to_owned());
    }
    if let Some(system) = &options.system {
        arguments.extend(kernel_command_line::of_a_system(&options.kernel, system, HANDS_OVER));
        return arguments;
    }
    if !options.kernel.is_for_kvm() {
        // Processes that work with the kernel by signals instead of being traced cost a third, where it has them
        // (Linux 6.16) and the host lets it. They can then reach all of the guest's memory, which is no more than its
        // root can.
        arguments.push("seccomp=auto".to_owned());
    }
    arguments.push("printk.time=1".to_owned());
    // It ends when it panics, and it panics when it is damaged.
    arguments.push("oops=panic".to_owned());
    if options.console.is_none() {
        arguments.push("quiet".to_owned());
    }
    arguments
}
