//! The process that becomes a virtual machine, where the appliance's kernel boots on KVM.
//!
//! Kernel, initramfs, /dev/kvm and the disks' sockets are opened first. Then come the walls: a root directory with
//! nothing in it, where this user may have one, Landlock without a file, no capabilities; then the machine is put
//! together, with all the memory and descriptors that it will have, and its kernel; and then the system calls that a
//! running machine needs are all that is left ([`blockyard_confinement::machine_filter`]). All that is before the
//! guest's first instruction, and so before it has looked at a disk. What the process has become it says on the serial
//! line, as that of User-Mode Linux does.
//!
//! The guest's first serial port is the serial line (standard input), where its agent looks for it; the second is its
//! console (standard output). Its disks are sessions with whoever started this, as those of User-Mode Linux are.

mod ready_disk;
mod serial_line;

use crate::confined::{Confined, LineStart};
use crate::kernel_process::{KernelArguments, drop_capabilities, enter_root, new_root, restrict_files};
use crate::machine::INITRAMFS_NAME;
use blockyard_block::explain;
use blockyard_confinement::Inherited;
use blockyard_confinement::machine_filter::filter_machine;
use blockyard_devices::serial::NoInput;
use blockyard_hypervisor::kvm::KvmHypervisor;
use blockyard_session::client::{SessionDisk, SessionOptions};
use blockyard_vmm::event::{EventSink, MachineEvent};
use blockyard_vmm::pc::kernel::Kernel;
use blockyard_vmm::pc::{LoadedPc, Pc, PcMemory, PowerRequest, PowerSink, VirtioTransport};
use blockyard_vmm::placement::Placement;
use ready_disk::ReadyDisk;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use serial_line::SerialLine;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::exit;
use std::sync::Arc;
use std::time::Duration;

/// What a virtual machine is told as its kernel's arguments: how many disks there are, and the command line.
pub(crate) fn arguments(disks: usize, command_line: &str) -> Vec<OsString> {
    vec![disks.to_string().into(), command_line.into()]
}

/// Becomes the machine. The current directory has the sockets and the initramfs.
pub(crate) fn run(arguments: &KernelArguments, isolated: bool) -> io::Result<Infallible> {
    Inherited::take()?.close();
    let opened = Opened::new(arguments)?;
    let (namespaces, landlock) = shut_in(isolated)?;
    let (pc, serial) = opened.put_together(arguments.memory_bytes)?;
    let filtered = filter_machine();
    if let Err(error) = &filtered {
        let _ = writeln!(io::stderr(), "no filter of system calls for the appliance: {error}");
    }
    // Nothing else could send signals to others than the process, nor open anything.
    let filtered = filtered.is_ok();
    let confined = Confined { namespaces, landlock, filtered, quiet: filtered, sealed: filtered };
    LineStart { confined, listener: None }.send()?;
    let _machine = pc.start().map_err(in_words)?;
    serial.line.carry(&serial.port)
}

/// What has a name.
struct Opened {
    hypervisor: KvmHypervisor,
    sockets: Vec<UnixStream>,
    parts: Parts,
}

/// What is put into the guest's memory.
struct Parts {
    kernel: File,
    initrd: File,
    command_line: String,
}

impl Opened {
    fn new(arguments: &KernelArguments) -> io::Result<Self> {
        let [disks, command_line] = &arguments.arguments[..] else { return Err(io::Error::other("not for people")) };
        let text = |argument: &OsString| argument.to_str().map(str::to_owned);
        let (disks, command_line) = text(disks).zip(text(command_line)).unwrap_or_default();
        let hypervisor = KvmHypervisor::open().map_err(in_words)?;
        let named =
            |path: &Path| File::open(path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())));
        let parts =
            Parts { kernel: named(&arguments.kernel)?, initrd: named(Path::new(INITRAMFS_NAME))?, command_line };
        let disks = 0..disks.parse::<usize>().map_err(io::Error::other)?;
        let sockets = disks.map(|disk| UnixStream::connect(disk.to_string())).collect::<io::Result<_>>()?;
        Ok(Self { hypervisor, sockets, parts })
    }

    fn put_together(self, memory_bytes: u64) -> io::Result<(LoadedPc, Serial)> {
        let Machine { pc, serial } = Machine::new(&self.hypervisor, memory_bytes, self.sockets)?;
        Ok((self.parts.load(pc)?, serial))
    }
}

/// Takes all that has a name from this process; whether it has namespaces of its own, and Landlock.
fn shut_in(isolated: bool) -> io::Result<(bool, bool)> {
    let namespaces = isolated && has_empty_root();
    let landlock = restrict_files(std::iter::empty(), None)?;
    // The root directory took some.
    drop_capabilities()?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok((namespaces, landlock))
}

/// Makes a root directory with nothing in it, where this user may mount.
fn has_empty_root() -> bool {
    let made = std::env::current_dir().and_then(|directory| enter_root(&new_root(&directory)?));
    let Err(error) = made.and_then(|()| std::env::set_current_dir("/")) else { return true };
    let _ = writeln!(io::stderr(), "no root directory of its own for the appliance: {error}");
    false
}

/// A machine without a kernel.
struct Machine {
    pc: Pc,
    serial: Serial,
}

/// The serial line, and the port that is its end in the machine.
struct Serial {
    line: SerialLine,
    port: serial_line::Port,
}

impl Machine {
    fn new(hypervisor: &KvmHypervisor, memory_bytes: u64, sockets: Vec<UnixStream>) -> io::Result<Self> {
        // The disks are sessions, whose servers reach it.
        let memory = PcMemory { bytes: memory_bytes, shared: true };
        let mut pc = Pc::new(hypervisor, 1, memory, Placement::default(), power(), events()).map_err(in_words)?;
        let line = SerialLine::new()?;
        let port = pc.attach_console(line.output(), line.input()).map_err(in_words)?;
        let console = Box::new(|bytes: &[u8]| _ = io::stdout().write_all(bytes).and_then(|()| io::stdout().flush()));
        pc.attach_second_serial_port(console, Box::new(NoInput)).map_err(in_words)?;
        for (number, socket) in sockets.into_iter().enumerate() {
            // Whoever looks instead of sleeping takes the guest's only processor from it.
            let options = SessionOptions { poll: Duration::ZERO, ..SessionOptions::default() };
            let session = SessionDisk::from_stream(socket, &format!("disk {number}"), &options).map_err(in_words)?;
            let disk = ReadyDisk::new(session, pc.memory())?;
            pc.attach_disk(Arc::new(disk), 1, VirtioTransport::Mmio).map_err(in_words)?;
        }
        Ok(Self { pc, serial: Serial { line, port } })
    }
}

impl Parts {
    fn load(self, pc: Pc) -> io::Result<LoadedPc> {
        pc.load(&Kernel { image: &self.kernel, initrd: Some(&self.initrd), command_line: &self.command_line })
            .map_err(in_words)
    }
}

/// A guest that switches itself off has done what it was for. One that resets itself has panicked.
fn power() -> PowerSink {
    Arc::new(|request| exit(if request == PowerRequest::Off { 0 } else { 1 }))
}

fn events() -> EventSink {
    Arc::new(|event| {
        let said = match &event {
            MachineEvent::VcpuEnded(end) => explain(end),
            MachineEvent::DriverError(sentence) | MachineEvent::IoFailed(sentence) => sentence.clone(),
        };
        let _ = writeln!(io::stderr(), "blockyard: {said}");
        if !matches!(event, MachineEvent::DriverError(_)) {
            exit(1);
        }
    })
}

fn in_words(error: impl std::error::Error + 'static) -> io::Error {
    io::Error::other(explain(&error))
}
