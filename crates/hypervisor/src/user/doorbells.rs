//! Doorbells: which stores ring which eventfds, and which of them the stub already rings by itself.

use super::control::ControlArea;
use super::decode::Source;
use super::layout::{DOORBELLS_MAX, Doorbell, EVENT_FD_FIRST, NO_REGISTER};
use super::registers::frame_index;
use crate::Error;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A VM's doorbells.
#[derive(Debug, Default)]
pub(super) struct Doorbells {
    bells: Vec<Bell>,
    /// What is published, entry by entry, once there is a guest process.
    published: Option<Published>,
}

#[derive(Debug)]
struct Bell {
    address: u64,
    value: u32,
    event: OwnedFd,
    /// Its descriptor in the guest process, if it was passed.
    passed: Option<u32>,
}

#[derive(Debug)]
struct Published {
    control: Arc<ControlArea>,
    /// (rip, address, value) of each entry; `None` where one was withdrawn.
    entries: Vec<Option<(u64, u64, u32)>>,
}

/// A store that may ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) rip: u64,
    pub(super) length: u32,
    pub(super) address: u64,
    pub(super) value: u32,
    pub(super) source: Source,
}

impl Doorbells {
    pub(super) fn register(&mut self, address: u64, value: u32, event: BorrowedFd<'_>) -> Result<(), Error> {
        if self.position(address, value).is_some() {
            return Err(Error::Refused(format!("address {address:#x} has a doorbell for {value} already")));
        }
        let event = event
            .try_clone_to_owned()
            .map_err(|source| Error::Os { what: "cannot duplicate a doorbell's eventfd", source })?;
        self.bells.push(Bell { address, value, event, passed: None });
        Ok(())
    }

    pub(super) fn unregister(&mut self, address: u64, value: u32) -> Result<(), Error> {
        let Some(position) = self.position(address, value) else {
            return Err(Error::Refused(format!("address {address:#x} has no doorbell for {value}")));
        };
        self.bells.swap_remove(position);
        if let Some(published) = &mut self.published {
            published.withdraw(address, value);
        }
        Ok(())
    }

    /// Chooses the eventfds that go to the guest process, in the order of their descriptors there.
    pub(super) fn pass(&mut self) -> Vec<BorrowedFd<'_>> {
        let passed = self.bells.iter_mut().take(DOORBELLS_MAX).zip(EVENT_FD_FIRST..);
        passed
            .map(|(bell, descriptor)| {
                bell.passed = Some(descriptor);
                bell.event.as_fd()
            })
            .collect()
    }

    /// From now on stores that ring are published in this control area.
    pub(super) fn publish_in(&mut self, control: Arc<ControlArea>) {
        self.published = Some(Published { control, entries: Vec::new() });
    }

    /// Rings if the store is to a doorbell, and publishes it if the stub can ring it the next time. Only while the
    /// guest is trapped.
    pub(super) fn ring(&mut self, store: &Store) -> bool {
        let Some(position) = self.position(store.address, store.value) else { return false };
        let bell = &self.bells[position];
        // The counter cannot be near its end: the guest can only add ones, and so does this.
        let _ = rustix::io::write(&bell.event, &1u64.to_ne_bytes());
        if let (Some(event), Some(published)) = (bell.passed, &mut self.published) {
            published.publish(store, event);
        }
        true
    }

    fn position(&self, address: u64, value: u32) -> Option<usize> {
        self.bells.iter().position(|bell| bell.address == address && bell.value == value)
    }
}

impl Published {
    fn publish(&mut self, store: &Store, event: u32) {
        let register = match store.source {
            Source::Immediate => NO_REGISTER,
            Source::Register(register) => match frame_index(register) {
                Some(index) => index as u32,
                None => return,
            },
        };
        let key = Some((store.rip, store.address, store.value));
        // The same one again: the guest has spoilt the entry. One that was withdrawn: its place is free.
        let known = self.entries.iter().position(|entry| *entry == key);
        let place = known.or_else(|| self.entries.iter().position(Option::is_none)).unwrap_or(self.entries.len());
        if place >= DOORBELLS_MAX {
            return;
        }
        if place == self.entries.len() {
            self.entries.push(key);
        }
        self.entries[place] = key;
        let (rip, address, value, length) = (store.rip, store.address, store.value, store.length);
        self.control.publish(place, &Doorbell { rip, address, value, register, length, event });
        self.control.set_doorbell_entries(self.entries.len() as u32);
    }

    fn withdraw(&mut self, address: u64, value: u32) {
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.is_some_and(|(_, at, of)| at == address && of == value) {
                *entry = None;
                self.control.withdraw(index);
            }
        }
    }
}
