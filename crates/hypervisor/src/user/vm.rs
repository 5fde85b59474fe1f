//! A VM whose guest is a process.

use super::control::ControlArea;
use super::doorbells::Doorbells;
use super::filter::filter;
use super::memory::GuestMemory;
use super::process::Process;
use super::registers::Registers;
use super::vcpu::UserVcpu;
use crate::{Entry, Error, EventRoutes, Vcpu, Vm};
use blockyard_block::MemoryMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// Memory and doorbells until the vCPU comes; then the doorbells only.
#[derive(Debug)]
pub(super) struct UserVm {
    memory: Arc<GuestMemory>,
    doorbells: Arc<Mutex<Doorbells>>,
    has_vcpu: bool,
}

impl UserVm {
    pub(super) fn new(lowest_address: u64) -> Self {
        Self { memory: Arc::new(GuestMemory::new(lowest_address)), doorbells: Arc::default(), has_vcpu: false }
    }

    fn check_entry(&self, entry: u64, stack_top: u64) -> Result<(), Error> {
        if !self.memory.contains(entry, 1) {
            return Err(Error::Refused(format!("the guest's entry {entry:#x} is not in memory it can reach")));
        }
        if !stack_top.checked_sub(1).is_some_and(|top| self.memory.contains(top, 1)) {
            return Err(Error::Refused(format!(
                "the guest's stack below {stack_top:#x} is not in memory it can reach"
            )));
        }
        Ok(())
    }

    fn start(&self, registers: Registers) -> Result<UserVcpu, Error> {
        let control = Arc::new(ControlArea::new()?);
        let slots: Vec<_> = self.memory.mappings().map(|mapping| mapping.file.as_fd()).collect();
        let process = {
            let mut doorbells = self.doorbells.lock().unwrap_or_else(PoisonError::into_inner);
            doorbells.publish_in(Arc::clone(&control));
            let events = doorbells.pass();
            control.describe(&self.memory, events.len() as u32, &filter(events.len() as u32)?);
            Process::spawn(&control, &events, &slots)?
        };
        super::decode::prepare();
        UserVcpu::new(process, control, Arc::clone(&self.memory), Arc::clone(&self.doorbells), registers)
    }
}

const NO_KERNELS: &str = "a `user` VM runs flat guests, which take no interrupts, and no kernels";

impl Vm for UserVm {
    fn map_memory(&mut self, slot: u32, memory: &MemoryMap, region: usize) -> Result<(), Error> {
        match Arc::get_mut(&mut self.memory) {
            Some(slots) if !self.has_vcpu => slots.add(slot, memory, region),
            _ => Err(Error::Refused("memory is mapped before the first vCPU is created".to_owned())),
        }
    }

    fn register_doorbell(&mut self, address: u64, value: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        self.doorbells.lock().unwrap_or_else(PoisonError::into_inner).register(address, value, event)
    }

    fn unregister_doorbell(&mut self, address: u64, value: u32) -> Result<(), Error> {
        self.doorbells.lock().unwrap_or_else(PoisonError::into_inner).unregister(address, value)
    }

    fn create_interrupt_controllers(&mut self, _vcpus: u32) -> Result<(), Error> {
        Err(Error::Refused(NO_KERNELS.to_owned()))
    }

    fn register_interrupt(&mut self, _line: u32, _event: BorrowedFd<'_>) -> Result<(), Error> {
        Err(Error::Refused(NO_KERNELS.to_owned()))
    }

    fn event_routes(&mut self) -> Result<Arc<dyn EventRoutes>, Error> {
        Err(Error::Refused(NO_KERNELS.to_owned()))
    }

    fn create_vcpu(&mut self, index: u32, entry: &Entry) -> Result<Box<dyn Vcpu>, Error> {
        if index != 0 || self.has_vcpu {
            return Err(Error::Refused(format!("vCPU {index}: a `user` VM has exactly one, number 0")));
        }
        let Entry::Flat64 { entry, stack_top, .. } = *entry else {
            return Err(Error::Refused(NO_KERNELS.to_owned()));
        };
        self.check_entry(entry, stack_top)?;
        let vcpu = self.start(Registers::entry(entry, stack_top))?;
        self.has_vcpu = true;
        Ok(Box::new(vcpu))
    }
}
