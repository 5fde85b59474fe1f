//! A guest process's VMM side: waits for traps, judges them, answers.

use super::control::{ControlArea, Snapshot};
use super::decode::{Request, Source, Wish, judge};
use super::doorbells::{Doorbells, Store};
use super::kick::Kicker;
use super::layout::Step;
use super::memory::GuestMemory;
use super::process::{Event, Process};
use super::registers::Registers;
use crate::{Error, Exit, Kick, Vcpu};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a guest that was kicked may take to come back: an honest one does as soon as it gets a CPU. One that has
/// blocked the signal never does, and is ended.
const KICK_PATIENCE: Duration = Duration::from_secs(1);

/// How long the stub may take to set itself up.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// The one vCPU of a `user` VM: a guest process.
#[derive(Debug)]
pub(super) struct UserVcpu {
    process: Process,
    control: Arc<ControlArea>,
    memory: Arc<GuestMemory>,
    doorbells: Arc<Mutex<Doorbells>>,
    kicker: Arc<Kicker>,
    /// What the guest goes on with.
    registers: Registers,
    /// What it asked for last, completed when it goes on.
    pending: Option<Request>,
    /// The exit's data: from the guest, or for it.
    buffer: Vec<u8>,
    /// The selector of 64-bit code.
    code_segment: u16,
    /// Why it cannot go on.
    crash: Option<String>,
}

/// Why the guest is not running.
enum Stop {
    Request(Request),
    Kicked,
    Crashed(String),
}

impl UserVcpu {
    /// Waits until the stub has set itself up. The guest's first instruction is executed in `run`.
    pub(super) fn new(
        mut process: Process,
        control: Arc<ControlArea>,
        memory: Arc<GuestMemory>,
        doorbells: Arc<Mutex<Doorbells>>,
        registers: Registers,
    ) -> Result<Self, Error> {
        let ready = wait_until_ready(&mut process, &control)?;
        let kicker = Kicker::new(process.pidfd())
            .map_err(|source| Error::Os { what: "cannot create the eventfd for kicks", source })?;
        Ok(Self {
            process,
            control,
            memory,
            doorbells,
            kicker: Arc::new(kicker),
            registers,
            pending: None,
            buffer: Vec::new(),
            code_segment: ready.code_segment,
            crash: None,
        })
    }

    /// Runs the guest until it wants something that is the caller's.
    fn advance(&mut self) -> Result<Stop, Error> {
        loop {
            if let Some(crash) = &self.crash {
                return Ok(Stop::Crashed(crash.clone()));
            }
            if self.kicker.take() {
                return Ok(Stop::Kicked);
            }
            self.complete();
            self.control.answer(&self.registers)?;
            let judged = match self.wait_for_trap()? {
                Ok(snapshot) => {
                    self.registers = snapshot.registers;
                    // Either the loop finds the kick that this belongs to, or that one was answered already.
                    if snapshot.signal == libc::SIGUSR1 as u64 {
                        continue;
                    }
                    self.judge(&snapshot)
                }
                Err(crash) => Err(crash),
            };
            match judged {
                Ok(request) => {
                    self.pending = Some(request);
                    if !self.serve(&request) {
                        return Ok(Stop::Request(request));
                    }
                }
                Err(crash) => {
                    self.process.end();
                    self.crash = Some(crash);
                }
            }
        }
    }

    /// The request that the caller has answered takes effect.
    fn complete(&mut self) {
        if let Some(request) = self.pending.take() {
            request.complete(&mut self.registers, &self.memory, &mut self.buffer);
        }
    }

    /// The next trap, or how the guest came to have no more of them.
    fn wait_for_trap(&mut self) -> Result<Result<Snapshot, String>, Error> {
        let mut deadline = None;
        loop {
            // After a kick only the guest matters.
            let kick = deadline.is_none().then(|| self.kicker.event());
            let event = self.process.wait(kick, deadline).map_err(cannot_wait)?;
            return Ok(match event {
                Event::Trap => self.control.snapshot().ok_or_else(forged),
                Event::Noise => Err(forged()),
                Event::Dead => Err(self.process.end().sentence()),
                Event::Late => Err("the guest does not react to signals, so it was ended".to_owned()),
                Event::Other => {
                    self.kicker.quieten();
                    deadline = self.kicker.wanted().then(|| Instant::now() + KICK_PATIENCE);
                    continue;
                }
            });
        }
    }

    fn judge(&self, snapshot: &Snapshot) -> Result<Request, String> {
        if snapshot.code_segment != self.code_segment {
            return Err(format!("the guest left 64-bit mode, at {:#x}", snapshot.registers.rip()));
        }
        judge(snapshot, &self.memory)
    }

    /// Serves what is not the caller's business; otherwise puts the data the caller gets into the buffer.
    fn serve(&mut self, request: &Request) -> bool {
        self.buffer.clear();
        match request.wish {
            Wish::PortIn { size, .. } | Wish::Read { size, .. } => self.buffer.resize(size.into(), 0),
            Wish::PortOut { size, value, .. } => self.buffer.extend(&value.to_le_bytes()[..size.into()]),
            Wish::Write { address, size, value, source } => {
                self.buffer.extend(&value.to_le_bytes()[..size.into()]);
                return size == 4 && self.ring(request, address, value as u32, source);
            }
            Wish::String(transfer) => {
                self.buffer.resize(transfer.length as usize, 0);
                if transfer.output {
                    self.memory.read(transfer.address, &mut self.buffer);
                    transfer.turn(&mut self.buffer);
                }
            }
            Wish::Halt => {}
            Wish::Nothing => return true,
        }
        false
    }

    fn ring(&self, request: &Request, address: u64, value: u32, source: Source) -> bool {
        let rip = self.registers.rip();
        let length = request.next_rip.wrapping_sub(rip) as u32;
        let mut doorbells = self.doorbells.lock().unwrap_or_else(PoisonError::into_inner);
        doorbells.ring(&Store { rip, length, address, value, source })
    }
}

impl Vcpu for UserVcpu {
    fn run(&mut self) -> Result<Exit<'_>, Error> {
        let request = match self.advance()? {
            Stop::Request(request) => request,
            Stop::Kicked => return Ok(Exit::Kicked),
            Stop::Crashed(sentence) => return Ok(Exit::Crashed(sentence)),
        };
        let data = self.buffer.as_mut_slice();
        Ok(match request.wish {
            Wish::PortIn { port, size } => Exit::PortIn { port, size, data },
            Wish::PortOut { port, size, .. } => Exit::PortOut { port, size, data },
            Wish::String(transfer) if transfer.output => {
                Exit::PortOut { port: transfer.port, size: transfer.size, data }
            }
            Wish::String(transfer) => Exit::PortIn { port: transfer.port, size: transfer.size, data },
            Wish::Read { address, .. } => Exit::MmioRead { address, data },
            Wish::Write { address, .. } => Exit::MmioWrite { address, data },
            Wish::Halt | Wish::Nothing => Exit::Halt,
        })
    }

    fn kicker(&self) -> Arc<dyn Kick> {
        Arc::clone(&self.kicker) as Arc<dyn Kick>
    }

    fn process_id(&self) -> Option<u32> {
        Some(self.process.id())
    }
}

fn forged() -> String {
    "the guest wrote to its trap pipe itself".to_owned()
}

fn cannot_wait(source: io::Error) -> Error {
    Error::Os { what: "cannot wait for the guest process", source }
}

/// The stub's first trap.
fn wait_until_ready(process: &mut Process, control: &ControlArea) -> Result<Snapshot, Error> {
    let event = process.wait(None, Some(Instant::now() + START_PATIENCE)).map_err(cannot_wait)?;
    if let (Event::Trap, Some(snapshot)) = (event, control.snapshot()) {
        return Ok(snapshot);
    }
    let ending = process.end();
    let [step, errno] = control.failure();
    match (step_failed(step), i32::try_from(errno)) {
        (Some(what), Ok(errno)) => Err(Error::Os { what, source: io::Error::from_raw_os_error(errno) }),
        _ => Err(Error::Refused(format!("the guest process did not come up: {}", ending.sentence()))),
    }
}

fn step_failed(step: u64) -> Option<&'static str> {
    let steps = [
        (Step::ParentDeath, "the guest process cannot be made to die with the VMM"),
        (Step::Session, "the guest process cannot leave the terminal's session"),
        (Step::CoreLimit, "the guest process cannot forbid core dumps"),
        (Step::Descriptors, "the guest process cannot arrange its descriptors"),
        (Step::Close, "the guest process cannot close descriptors"),
        (Step::Execute, "the guest process cannot execute the trap stub from a memfd"),
        (Step::Capabilities, "the guest process cannot give up its capabilities"),
        (Step::MapControl, "the guest process cannot map its control area"),
        (Step::MapSlot, "the guest process cannot map the guest's memory"),
        (Step::Dumpable, "the guest process cannot become undumpable"),
        (Step::SignalStack, "the guest process cannot set up its signal stack"),
        (Step::SignalHandler, "the guest process cannot set up its signal handlers"),
        (Step::SignalMask, "the guest process cannot unblock signals"),
        (Step::NoNewPrivileges, "the guest process cannot give up new privileges"),
        (Step::Filter, "the guest process cannot install its seccomp filter"),
    ];
    steps.iter().find(|(known, _)| *known as u64 == step).map(|(_, what)| *what)
}
