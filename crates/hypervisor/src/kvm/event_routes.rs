//! Doorbells and message-signalled interrupts of a VM that may be running.

use super::vm::{copying_descriptor, duplicate};
use super::{demand, interrupts, os};
use crate::{Error, EventRoutes, MessageInterrupt};
use kvm_bindings::{
    KVM_IRQ_ROUTING_MSI, KVM_MAX_IRQ_ROUTES, KvmIrqRouting, kvm_irq_routing_entry,
    kvm_irq_routing_entry__bindgen_ty_1 as Route, kvm_irq_routing_msi,
};
use kvm_ioctls::{Cap, IoEventAddress, NoDatamatch, VmFd};
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is called without asking again.
const REQUIRED: [(Cap, &str); 2] =
    [(Cap::IrqRouting, "KVM_CAP_IRQ_ROUTING"), (Cap::IoeventfdNoLength, "KVM_CAP_IOEVENTFD_ANY_LENGTH")];

#[derive(Debug)]
pub(super) struct KvmEventRoutes {
    fd: Arc<VmFd>,
    doorbells: Mutex<BTreeMap<u64, OwnedFd>>,
    messages: Arc<MessageRoutes>,
}

impl KvmEventRoutes {
    /// Of a VM with interrupt controllers.
    pub(super) fn new(fd: &Arc<VmFd>) -> Result<Self, Error> {
        demand(&REQUIRED, |capability| fd.check_extension(capability))?;
        let messages = Arc::new(MessageRoutes { fd: Arc::clone(fd), table: Mutex::default() });
        Ok(Self { fd: Arc::clone(fd), doorbells: Mutex::default(), messages })
    }
}

impl EventRoutes for KvmEventRoutes {
    fn add_doorbell(&self, address: u64, event: BorrowedFd<'_>) -> Result<(), Error> {
        let mut doorbells = lock(&self.doorbells);
        let btree_map::Entry::Vacant(place) = doorbells.entry(address) else {
            return Err(Error::Refused(format!("there is a doorbell at {address:#x} already")));
        };
        let kept = event.try_clone_to_owned().map_err(copying_descriptor)?;
        self.fd
            .register_ioevent(&duplicate(event)?, &IoEventAddress::Mmio(address), NoDatamatch)
            .map_err(os("registering a doorbell with KVM"))?;
        place.insert(kept);
        Ok(())
    }

    fn remove_doorbell(&self, address: u64) -> Result<(), Error> {
        let mut doorbells = lock(&self.doorbells);
        let btree_map::Entry::Occupied(doorbell) = doorbells.entry(address) else {
            return Err(Error::Refused(format!("there is no doorbell at {address:#x}")));
        };
        self.fd
            .unregister_ioevent(&duplicate(doorbell.get().as_fd())?, &IoEventAddress::Mmio(address), NoDatamatch)
            .map_err(os("taking a doorbell from KVM"))?;
        doorbell.remove();
        Ok(())
    }

    fn add_message_interrupt(&self, event: BorrowedFd<'_>) -> Result<Box<dyn MessageInterrupt>, Error> {
        let number = self.messages.reserve()?;
        let event = event.try_clone_to_owned().map_err(copying_descriptor)?;
        let routes = Arc::clone(&self.messages);
        Ok(Box::new(KvmMessageInterrupt { routes, number, event, is_attached: Mutex::new(false) }))
    }
}

/// The messages of a VM, by number: KVM takes all routes of a VM at once, those of the lines included.
struct MessageRoutes {
    fd: Arc<VmFd>,
    table: Mutex<BTreeMap<u32, Option<(u64, u32)>>>,
}

impl fmt::Debug for MessageRoutes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("MessageRoutes").field("table", &self.table).finish_non_exhaustive()
    }
}

impl MessageRoutes {
    /// A number that no line and no other message has.
    fn reserve(&self) -> Result<u32, Error> {
        let mut table = lock(&self.table);
        let lines = interrupts::line_routes().len();
        let numbers = crate::INTERRUPT_LINES..(KVM_MAX_IRQ_ROUTES - lines) as u32;
        let free = numbers.into_iter().find(|number| !table.contains_key(number));
        let number = free.ok_or_else(|| Error::Refused("KVM has no more interrupts for the VM".to_owned()))?;
        table.insert(number, None);
        Ok(number)
    }

    /// Has `number` raise this message.
    fn set(&self, number: u32, message: (u64, u32)) -> Result<(), Error> {
        let mut table = lock(&self.table);
        let before = table.insert(number, Some(message)).flatten();
        if before == Some(message) {
            return Ok(());
        }
        let messages = table.iter().filter_map(|(&number, message)| message.map(|message| route(number, message)));
        let all: Vec<_> = interrupts::line_routes().into_iter().chain(messages).collect();
        let routing = KvmIrqRouting::from_entries(&all).map_err(|error| Error::Refused(format!("{error:?}")))?;
        self.fd.set_gsi_routing(&routing).map_err(os("routing an interrupt with KVM")).inspect_err(|_| {
            table.insert(number, before);
        })
    }
}

fn route(number: u32, (address, data): (u64, u32)) -> kvm_irq_routing_entry {
    let (address_lo, address_hi) = (address as u32, (address >> 32) as u32);
    let msi = kvm_irq_routing_msi { address_lo, address_hi, data, ..Default::default() };
    kvm_irq_routing_entry { gsi: number, type_: KVM_IRQ_ROUTING_MSI, u: Route { msi }, ..Default::default() }
}

/// An irqfd that is attached while the interrupt is not masked. Meanwhile the event keeps what is signalled: KVM looks
/// at it when it is attached.
#[derive(Debug)]
struct KvmMessageInterrupt {
    routes: Arc<MessageRoutes>,
    number: u32,
    event: OwnedFd,
    is_attached: Mutex<bool>,
}

impl MessageInterrupt for KvmMessageInterrupt {
    fn unmask(&self, address: u64, data: u32) -> Result<(), Error> {
        let mut is_attached = lock(&self.is_attached);
        self.routes.set(self.number, (address, data))?;
        if !*is_attached {
            self.routes
                .fd
                .register_irqfd(&duplicate(self.event.as_fd())?, self.number)
                .map_err(os("registering an interrupt with KVM"))?;
            *is_attached = true;
            // KVM has raised what the event had kept, and left it there; what comes from now on it takes.
            let _ = rustix::io::retry_on_intr(|| rustix::io::read(&self.event, &mut [0; 8]));
        }
        Ok(())
    }

    fn mask(&self) -> Result<(), Error> {
        let mut is_attached = lock(&self.is_attached);
        if *is_attached {
            self.routes
                .fd
                .unregister_irqfd(&duplicate(self.event.as_fd())?, self.number)
                .map_err(os("taking an interrupt from KVM"))?;
            *is_attached = false;
        }
        Ok(())
    }
}

impl Drop for KvmMessageInterrupt {
    fn drop(&mut self) {
        // Its route stays until the next change: nothing raises it.
        let _ = self.mask();
        lock(&self.routes.table).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
