//! A virtual machine on KVM.

use super::cpuid::cpuid;
use super::event_routes::KvmEventRoutes;
use super::interrupts::{self, Interrupts};
use super::start::Start;
use super::vcpu::KvmVcpu;
use super::{KvmHypervisor, os};
use crate::{Entry, Error, EventRoutes, Vcpu, Vm};
use blockyard_block::MemoryMap;
use kvm_bindings::{CpuId, kvm_userspace_memory_region};
use kvm_ioctls::{IoEventAddress, VmFd};
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

/// Three pages that Intel processors without unrestricted guests need somewhere, and one page before them
/// (KVM_SET_TSS_ADDR, KVM_SET_IDENTITY_MAP_ADDR): below the firmware's place, where no PC has memory.
const TSS_ADDRESS: u64 = 0xfffb_d000;
const IDENTITY_MAP_ADDRESS: u64 = TSS_ADDRESS - 0x1000;

/// KVM_CREATE_VM gives up when a signal is pending; signals do not go on for ever.
const CREATE_TRIES: u32 = 100;

const NO_CONTROLLERS: &str = "the VM has no interrupt controllers";

#[derive(Debug)]
pub(super) struct KvmVm {
    fd: Arc<VmFd>,
    slots: BTreeMap<u32, Slot>,
    doorbells: BTreeMap<(u64, u32), OwnedFd>,
    interrupts: Option<Interrupts>,
    event_routes: Option<Arc<KvmEventRoutes>>,
    vcpus: BTreeSet<u32>,
    vcpus_max: u32,
    memory_slots_max: u32,
    cpuid: CpuId,
    run_area_bytes: usize,
}

#[derive(Debug)]
struct Slot {
    address: u64,
    length_bytes: u64,
    memory: MemoryMap,
}

impl Slot {
    fn contains(&self, address: u64, length_bytes: u64) -> bool {
        let Some(offset) = address.checked_sub(self.address) else { return false };
        offset.checked_add(length_bytes).is_some_and(|end| end <= self.length_bytes)
    }

    fn overlaps(&self, address: u64, length_bytes: u64) -> bool {
        // Neither range wraps around: both are regions of a memory map.
        address < self.address + self.length_bytes && self.address < address + length_bytes
    }
}

impl KvmVm {
    pub(super) fn new(hypervisor: &KvmHypervisor) -> Result<Self, Error> {
        let fd = create_vm_fd(hypervisor)?;
        fd.set_identity_map_address(IDENTITY_MAP_ADDRESS).map_err(os("telling KVM where its identity map goes"))?;
        fd.set_tss_address(TSS_ADDRESS as usize).map_err(os("telling KVM where its TSS goes"))?;
        Ok(Self {
            fd: Arc::new(fd),
            slots: BTreeMap::new(),
            doorbells: BTreeMap::new(),
            interrupts: None,
            event_routes: None,
            vcpus: BTreeSet::new(),
            vcpus_max: hypervisor.vcpus_max(),
            memory_slots_max: hypervisor.memory_slots_max(),
            cpuid: hypervisor.cpuid.clone(),
            run_area_bytes: hypervisor.run_area_bytes,
        })
    }

    fn slot_of(&self, address: u64, length_bytes: u64) -> Option<&Slot> {
        self.slots.values().find(|slot| slot.contains(address, length_bytes))
    }

    fn check_new_slot(&self, slot: u32, address: u64, length_bytes: u64) -> Result<(), Error> {
        if !self.vcpus.is_empty() {
            return Err(Error::Refused("memory is mapped before the first vCPU is created".to_owned()));
        }
        if slot >= self.memory_slots_max {
            return Err(Error::Refused(format!("memory slot {slot}: KVM has {} here", self.memory_slots_max)));
        }
        if self.slots.contains_key(&slot) {
            return Err(Error::Refused(format!("memory slot {slot} is taken")));
        }
        if let Some((other, _)) = self.slots.iter().find(|(_, other)| other.overlaps(address, length_bytes)) {
            return Err(Error::Refused(format!("memory at {address:#x} overlaps slot {other}")));
        }
        Ok(())
    }

    fn write_tables(&self, start: &Start) -> Result<(), Error> {
        for (address, bytes) in start.tables() {
            let slot = self.slot_of(address, bytes.len() as u64);
            let written = slot.map(|slot| slot.memory.guest_memory().write_slice(&bytes, GuestAddress(address)));
            if !matches!(written, Some(Ok(()))) {
                return Err(Error::Refused(format!("no guest memory for start-up tables at {address:#x}")));
            }
        }
        Ok(())
    }
}

impl Vm for KvmVm {
    fn map_memory(&mut self, slot: u32, memory: &MemoryMap, region: usize) -> Result<(), Error> {
        let Some(found) = memory.guest_memory().iter().nth(region) else {
            return Err(Error::Refused(format!("the memory map has no region {region}")));
        };
        let (address, length_bytes) = (found.start_addr().0, found.len());
        self.check_new_slot(slot, address, length_bytes)?;
        let description = kvm_userspace_memory_region {
            slot,
            flags: 0,
            guest_phys_addr: address,
            memory_size: length_bytes,
            userspace_addr: found.as_ptr() as u64,
        };
        // SAFETY: the range is a mapping of its own, and lives as long as the guest can run: this VM and each of its
        // vCPUs hold a clone of the memory map.
        unsafe { self.fd.set_user_memory_region(description) }.map_err(os("mapping guest memory into the VM"))?;
        self.slots.insert(slot, Slot { address, length_bytes, memory: memory.clone() });
        Ok(())
    }

    fn register_doorbell(&mut self, address: u64, value: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        let btree_map::Entry::Vacant(place) = self.doorbells.entry((address, value)) else {
            return Err(Error::Refused(format!("there is a doorbell at {address:#x} for {value} already")));
        };
        let kept = event.try_clone_to_owned().map_err(copying_descriptor)?;
        self.fd
            .register_ioevent(&duplicate(event)?, &IoEventAddress::Mmio(address), value)
            .map_err(os("registering a doorbell with KVM"))?;
        place.insert(kept);
        Ok(())
    }

    fn unregister_doorbell(&mut self, address: u64, value: u32) -> Result<(), Error> {
        let btree_map::Entry::Occupied(doorbell) = self.doorbells.entry((address, value)) else {
            return Err(Error::Refused(format!("there is no doorbell at {address:#x} for {value}")));
        };
        self.fd
            .unregister_ioevent(&duplicate(doorbell.get().as_fd())?, &IoEventAddress::Mmio(address), value)
            .map_err(os("taking a doorbell from KVM"))?;
        doorbell.remove();
        Ok(())
    }

    fn create_interrupt_controllers(&mut self, vcpus: u32) -> Result<(), Error> {
        if self.interrupts.is_some() || !self.vcpus.is_empty() {
            return Err(Error::Refused("a VM gets interrupt controllers once, before its first vCPU".to_owned()));
        }
        // An APIC's number has eight bits, of which 255 stands for all.
        let vcpus_max = self.vcpus_max.min(255);
        if vcpus == 0 || vcpus > vcpus_max {
            return Err(Error::Refused(format!("{vcpus} vCPUs: KVM has 1 to {vcpus_max} here")));
        }
        self.interrupts = Some(Interrupts::create(&self.fd, vcpus)?);
        Ok(())
    }

    fn register_interrupt(&mut self, line: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        interrupts::check_line(line)?;
        if self.interrupts.is_none() {
            return Err(Error::Refused(NO_CONTROLLERS.to_owned()));
        }
        self.fd.register_irqfd(&duplicate(event)?, line).map_err(os("registering an interrupt with KVM"))
    }

    fn event_routes(&mut self) -> Result<Arc<dyn EventRoutes>, Error> {
        if self.interrupts.is_none() {
            return Err(Error::Refused(NO_CONTROLLERS.to_owned()));
        }
        let routes = match self.event_routes.take() {
            Some(routes) => routes,
            None => Arc::new(KvmEventRoutes::new(&self.fd)?),
        };
        self.event_routes = Some(Arc::clone(&routes));
        Ok(routes)
    }

    fn create_vcpu(&mut self, index: u32, entry: &Entry) -> Result<Box<dyn Vcpu>, Error> {
        let vcpus_max = self.interrupts.map_or(self.vcpus_max, |interrupts| interrupts.vcpus);
        if index >= vcpus_max {
            return Err(Error::Refused(format!("vCPU {index}: KVM has {vcpus_max} here")));
        }
        if self.vcpus.contains(&index) {
            return Err(Error::Refused(format!("vCPU {index} is there already")));
        }
        let is_memory = |address, length| self.slot_of(address, length).is_some();
        let start = Start::new(entry, is_memory)?;
        if start.is_none() && (self.interrupts.is_none() || index == 0) {
            return Err(Error::Refused(format!("vCPU {index}: nobody would start it")));
        }
        if let Some(start) = &start {
            self.write_tables(start)?;
        }

        let fd = self.fd.create_vcpu(u64::from(index)).map_err(os("creating a vCPU"))?;
        // Even if what follows fails: KVM keeps the index.
        self.vcpus.insert(index);
        let (vcpus, tsc_deadline) =
            self.interrupts.map_or((1, false), |interrupts| (interrupts.vcpus, interrupts.tsc_deadline));
        fd.set_cpuid2(&cpuid(&self.cpuid, index, vcpus, tsc_deadline)).map_err(os("setting a vCPU's CPUID"))?;
        if let Some(interrupts) = &self.interrupts {
            interrupts.wire(&fd)?;
        }
        if let Some(start) = start {
            let mut system_registers = fd.get_sregs().map_err(os("reading a vCPU's system registers"))?;
            start.set_system_registers(&mut system_registers);
            fd.set_sregs(&system_registers).map_err(os("setting a vCPU's system registers"))?;
            fd.set_regs(&start.registers()).map_err(os("setting a vCPU's registers"))?;
        }
        let memory = self.slots.values().map(|slot| slot.memory.clone()).collect();
        Ok(Box::new(KvmVcpu::new(fd, self.run_area_bytes, memory)?))
    }
}

fn create_vm_fd(hypervisor: &KvmHypervisor) -> Result<VmFd, Error> {
    let mut tries = 1;
    loop {
        match hypervisor.kvm.create_vm() {
            Err(error) if error.errno() == libc::EINTR && tries < CREATE_TRIES => tries += 1,
            result => return result.map_err(os("creating a VM")),
        }
    }
}

/// A descriptor of its own in whatever type the callee wants: kvm-ioctls takes vmm-sys-util's `EventFd`.
pub(super) fn duplicate<T: FromRawFd>(fd: BorrowedFd<'_>) -> Result<T, Error> {
    let owned = fd.try_clone_to_owned().map_err(copying_descriptor)?;
    // SAFETY: a descriptor that nobody else owns.
    Ok(unsafe { T::from_raw_fd(owned.into_raw_fd()) })
}

pub(super) fn copying_descriptor(source: io::Error) -> Error {
    Error::Os { what: "copying an event's descriptor", source }
}
