//! Executing a program of the image in the image.
//!
//! Its outputs go to the host as they come, as records on the sink disk; its input is the stream on the source disk.
//! What it has started and left behind is killed when it ends, so that the image can be unmounted.

use crate::failures::{failure, refusal};
use crate::interruption;
use crate::mounts::Mounts;
use crate::stream::{SinkStream, SourceStream, TransferDisks};
use crate::system;
use blockyard_protocol::appliance::{self, Execute, FRAME_BYTES_MAX, Failure, Output, ProgramEnd, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What programs expect, where the image has a directory for it.
const SYSTEMS: [(&str, &str); 3] = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")];
/// How often to look whether the host still wants it, and whether it has ended.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How often the host hears that we are there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// How long a program may take to end when it is interrupted.
const GRACE: Duration = Duration::from_secs(3);

/// Executes a program, and waits for its end.
pub(crate) fn execute(request: Execute, mounts: &Mounts, disks: &TransferDisks) -> Result<ProgramEnd, Failure> {
    let killed_before = mounts.outside(system::killed_for_memory)?;
    let mounted = mount_systems();
    let mut sink = SinkStream::open(&disks.sink);
    // It is the program that is interrupted, and it may have last words.
    sink.heeds_interruption = false;
    let executed = start(&request).and_then(|child| {
        let status = follow(child, disks, &mut sink);
        status.map_err(|error| failure(Path::new(""), "cannot follow the program", &error))
    });
    // Nobody is left who has a file of the image open.
    let killed = mounts.outside(kill_all);
    for directory in mounted.into_iter().rev() {
        // At the latest when the image is unmounted, somebody says so.
        let _ = unmount(directory, UnmountFlags::DETACH);
    }
    let finished = sink.finish();
    killed?;
    let out_of_memory = mounts.outside(system::killed_for_memory)? != killed_before;
    let status = executed?;
    finished.map_err(|error| failure(Path::new(""), "cannot send the program's output", &error))?;
    Ok(ProgramEnd {
        status: status.code().unwrap_or_default().unsigned_abs(),
        signal: status.signal().unwrap_or_default().unsigned_abs(),
        out_of_memory,
        ..ProgramEnd::default()
    })
}

fn mount_systems() -> Vec<&'static str> {
    let mounted = SYSTEMS.iter().filter(|(kind, directory)| {
        // A link is not followed to where it may lead.
        let is_directory = fs::symlink_metadata(directory).is_ok_and(|metadata| metadata.is_dir());
        is_directory && mount(*kind, *directory, *kind, MountFlags::NOSUID, None).is_ok()
    });
    mounted.map(|&(_, directory)| directory).collect()
}

fn start(request: &Execute) -> Result<Child, Failure> {
    let Some((program, arguments)) = request.arguments.split_first() else {
        return Err(refusal("there is no program to execute"));
    };
    let program = OsStr::from_bytes(program);
    let mut command = Command::new(program);
    command
        .args(arguments.iter().map(|argument| OsStr::from_bytes(argument)))
        .env_clear()
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for variable in &request.environment {
        if let Some(at) = variable.iter().position(|&byte| byte == b'=') {
            command.env(OsStr::from_bytes(&variable[..at]), OsStr::from_bytes(&variable[at + 1..]));
        }
    }
    command.spawn().map_err(|error| failure(Path::new(program), "cannot execute", &error))
}

/// Passes on what goes in and comes out until the program ends.
fn follow(mut child: Child, disks: &TransferDisks, sink: &mut SinkStream) -> io::Result<ExitStatus> {
    let (mut input, source) = (child.stdin.take(), SourceStream::open(&disks.source)?);
    let feeder = thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let mut source = source;
        let mut buffer = vec![0; 64 << 10];
        // Ends with the input, or when nobody takes it any more, be it the program or the host.
        while let (Ok(bytes @ 1..), Some(input)) = (source.read(&mut buffer), &mut input) {
            if input.write_all(&buffer[..bytes]).is_err() {
                break;
            }
        }
        drop(input);
    })?;
    let mut outputs = Outputs::new(&mut child, sink)?;
    let status = outputs.pass_on(&mut child);
    // The program's last words, and that there are no more: then the host gives it no input either.
    let ended = status.and_then(|status| outputs.end().map(|()| status));
    let _ = feeder.join();
    ended
}

struct Outputs<'sink> {
    /// With whether it is stderr.
    open: Vec<(fs::File, bool)>,
    sink: &'sink mut SinkStream,
    frame: Vec<u8>,
    told: Instant,
}

impl<'sink> Outputs<'sink> {
    fn new(child: &mut Child, sink: &'sink mut SinkStream) -> io::Result<Self> {
        let out = child.stdout.take().map(std::os::fd::OwnedFd::from);
        let err = child.stderr.take().map(std::os::fd::OwnedFd::from);
        let open: Vec<_> = [(out, false), (err, true)]
            .into_iter()
            .filter_map(|(pipe, is_error)| Some((fs::File::from(pipe?), is_error)))
            .collect();
        for (pipe, _) in &open {
            rustix::fs::fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        Ok(Self { open, sink, frame: vec![0; FRAME_BYTES_MAX], told: Instant::now() })
    }

    fn pass_on(&mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let group = Pid::from_child(child);
        let mut interrupted: Option<Instant> = None;
        loop {
            let mut descriptors: Vec<_> =
                self.open.iter().map(|(pipe, _)| PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)).collect();
            let _ = poll(&mut descriptors, Some(&TICK));
            self.read()?;
            if let Some(status) = child.try_wait()? {
                self.read()?;
                return Ok(status);
            }
            match interrupted {
                None if interruption::check().is_err() => {
                    // As if Ctrl-C had been typed where it runs.
                    let _ = kill_process_group(group, Signal::INT);
                    interrupted = Some(Instant::now());
                }
                Some(since) if since.elapsed() > GRACE => _ = kill_process_group(group, Signal::KILL),
                _ => {}
            }
            if self.told.elapsed() > SIGN_OF_LIFE {
                self.tell(Output::default())?;
            }
        }
    }

    /// Passes on what is there.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 32 << 10];
        let mut index = 0;
        while let Some((pipe, is_error)) = self.open.get_mut(index) {
            match pipe.read(&mut buffer) {
                Ok(0) => _ = self.open.remove(index),
                Ok(bytes) => {
                    let output = Output { is_error: *is_error, bytes: buffer[..bytes].to_vec() };
                    self.tell(output)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => index += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell(&mut self, output: Output) -> io::Result<()> {
        let frame = appliance::encode(&Record::Output(output), &mut self.frame).map_err(io::Error::other)?;
        self.sink.write_all(frame)?;
        self.told = Instant::now();
        self.sink.send_now()
    }

    /// Says that nothing more comes.
    fn end(&mut self) -> io::Result<()> {
        self.sink.end()
    }
}

/// Kills every process but this one and the kernel's own.
fn kill_all() {
    // A process that forks while we look is found the next time.
    for _ in 0..16 {
        let others = others();
        if others.is_empty() {
            return;
        }
        for pid in &others {
            let _ = kill_process(*pid, Signal::KILL);
        }
        // This process is everybody's parent in the end.
        while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
        thread::sleep(Duration::from_millis(2));
    }
}

/// Processes that execute something.
fn others() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let executing = numbers.filter(|&number| number > 1 && fs::read_link(format!("/proc/{number}/exe")).is_ok());
    executing.filter_map(Pid::from_raw).collect()
}
