//! Functions on a bus, found by configuration and memory addresses.

use super::config_space::{BARS_MAX, ConfigSpace};
use super::decoder::{Decoder, Placed};
use super::msi::Msi;
use super::msix::{self, MsiX};
use super::{Bar, BarDoorbell, DEVICES_MAX, FUNCTION_CONFIG_BYTES, MessageVector, PciFunction, Signalling};
use blockyard_block::EventFd;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// The VMM's side of doorbells in BARs: what writes at an address do for the hypervisor. A doorbell that cannot be
/// registered is none the less rung, by the function that its write comes to.
pub trait DoorbellRegistry: Send + Sync {
    /// From now on a write at `address`, whatever its width and value, rings `event`.
    fn register(&self, address: u64, event: &EventFd);

    /// No longer.
    fn unregister(&self, address: u64);
}

/// Why a function cannot be on a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PciBusError {
    /// All device numbers are taken.
    #[error("a PCI bus has room for {DEVICES_MAX} devices")]
    Devices,
    /// A BAR's size or index is none, or two have one index, or there is none left for MSI-X.
    #[error("base address register {index} of {bytes} bytes is none that a function can have")]
    Bar {
        /// Its index.
        index: u8,
        /// Its size.
        bytes: u32,
    },
    /// The BARs are larger than the bus's window.
    #[error("the PCI bus has no room for {bytes} bytes of registers: its window is used up")]
    Window {
        /// What did not fit.
        bytes: u32,
    },
    /// More or fewer vectors than the function's kind of signalling has.
    #[error("a PCI function that signals as {signalling:?} does not have {vectors} vectors")]
    Vectors {
        /// How it signals.
        signalling: Signalling,
        /// What it was given.
        vectors: usize,
    },
    /// The capabilities are longer than a configuration space.
    #[error("a PCI function's configuration space has no room for its capabilities")]
    Capabilities,
}

/// A bus, number 0. Put together, then shared: each function locks for itself, so that one that waits holds up nobody
/// else.
pub struct PciBus {
    window: Range<u64>,
    /// Where the next BAR may go.
    free: u64,
    devices: Vec<Device>,
    registry: Box<dyn DoorbellRegistry>,
    decoder: RwLock<Decoder>,
    /// Doorbells that are registered now. Locked for as long as BARs move.
    registered: Mutex<Vec<(u64, Arc<EventFd>)>>,
}

/// A device with one function.
struct Device {
    config: Mutex<ConfigSpace>,
    messages: Mutex<Messages>,
    /// The BAR of the MSI-X table.
    table_bar: Option<u8>,
    doorbells: Vec<BarDoorbell>,
    function: Mutex<Box<dyn PciFunction>>,
}

enum Messages {
    None,
    Msi(Msi),
    MsiX(MsiX),
}

impl Device {
    /// What answers in a BAR: the function, or the MSI-X table.
    fn read(&self, bar: u8, offset: u64, data: &mut [u8]) {
        if self.table_bar != Some(bar) {
            lock(&self.function).read(bar, offset, data);
        } else if let Messages::MsiX(msix) = &*lock(&self.messages) {
            msix.read(offset, data);
        }
    }

    /// Likewise.
    fn write(&self, bar: u8, offset: u64, data: &[u8]) {
        if self.table_bar != Some(bar) {
            lock(&self.function).write(bar, offset, data);
        } else if let Messages::MsiX(msix) = &mut *lock(&self.messages) {
            msix.write(offset, data);
        }
    }
}

impl Messages {
    fn follow(&mut self, config: &ConfigSpace) {
        match self {
            Self::None => {}
            Self::Msi(msi) => msi.follow(config),
            Self::MsiX(msix) => msix.follow(config),
        }
    }
}

impl PciBus {
    /// An empty bus whose BARs lie in `window`, below 4 GiB.
    pub fn new(window: Range<u64>, registry: Box<dyn DoorbellRegistry>) -> Self {
        Self {
            free: window.start,
            window,
            devices: Vec::new(),
            registry,
            decoder: RwLock::default(),
            registered: Mutex::default(),
        }
    }

    /// Makes `function` the next device, which interrupts by `vectors`; its number. Its BARs are given addresses, at
    /// which they answer once the guest has switched them on.
    ///
    /// # Errors
    /// When there is no room for it, or it is none.
    pub fn attach(
        &mut self,
        function: Box<dyn PciFunction>,
        vectors: Vec<Arc<dyn MessageVector>>,
    ) -> Result<usize, PciBusError> {
        let number = self.devices.len();
        if number == DEVICES_MAX {
            return Err(PciBusError::Devices);
        }
        let (mut config, mut free) = (ConfigSpace::new(&function.identity()), self.free);
        let bars = function.bars();
        for &bar in bars {
            free = self.place(&mut config, bar, free)?;
        }
        let signalling = function.signalling();
        let messages = match (signalling, vectors.len()) {
            (Signalling::None, 0) => Messages::None,
            (Signalling::Msi, 1) => {
                let capability = config.add_capability(&Msi::capability()).ok_or(PciBusError::Capabilities)?;
                Messages::Msi(Msi::new(Arc::clone(&vectors[0]), capability))
            }
            (Signalling::MsiX, count @ 1..=msix::VECTORS_MAX) => {
                let is_free = |index: &u8| bars.iter().all(|bar| bar.index != *index);
                let bar = MsiX::bar((0..BARS_MAX).find(is_free).unwrap_or(BARS_MAX), count);
                free = self.place(&mut config, bar, free)?;
                let capability = config.add_capability(&MsiX::capability(bar, count));
                Messages::MsiX(MsiX::new(bar, vectors, capability.ok_or(PciBusError::Capabilities)?))
            }
            (_, vectors) => return Err(PciBusError::Vectors { signalling, vectors }),
        };
        for capability in function.capabilities() {
            config.add_capability(&capability).ok_or(PciBusError::Capabilities)?;
        }
        self.free = free;
        let table_bar = if let Messages::MsiX(msix) = &messages { Some(msix.bar_index()) } else { None };
        self.devices.push(Device {
            config: Mutex::new(config),
            messages: Mutex::new(messages),
            table_bar,
            doorbells: function.doorbells(),
            function: Mutex::new(function),
        });
        Ok(number)
    }

    /// Adds a BAR at the first place from `free` on; where the next may go.
    fn place(&self, config: &mut ConfigSpace, bar: Bar, free: u64) -> Result<u64, PciBusError> {
        let Bar { index, bytes } = bar;
        let is_possible = bytes.is_power_of_two() && (16..=1 << 30).contains(&bytes) && index < BARS_MAX;
        if !is_possible || config.bars().iter().any(|other| other.index == index) {
            return Err(PciBusError::Bar { index, bytes });
        }
        let address = free.next_multiple_of(bytes.into());
        let end = address + u64::from(bytes);
        let fits = end <= self.window.end;
        let address = u32::try_from(address).ok().filter(|_| fits).ok_or(PciBusError::Window { bytes })?;
        config.add_bar(bar);
        config.set_bar_address(index, address);
        Ok(end)
    }

    /// The guest reads `data` at `offset` of the bus's configuration addresses, of which each function has 4 KiB. Where
    /// no function is, ones.
    pub fn read_config(&self, offset: u64, data: &mut [u8]) {
        data.fill(0xff);
        let Some((device, offset)) = self.function_at(offset) else { return };
        let config = lock(&device.config);
        if let Some(window) = config.bar_window(offset, data.len()) {
            drop(config);
            let mut value = [0; 4];
            device.read(window.bar, window.offset.into(), &mut value[..window.length]);
            let mut config = lock(&device.config);
            config.put(window.data, &value);
            config.read(offset, data);
        } else {
            config.read(offset, data);
        }
    }

    /// The guest writes `data`, likewise. Returns when BARs that it moved are where they are now.
    pub fn write_config(&self, offset: u64, data: &[u8]) {
        let Some((device, offset)) = self.function_at(offset) else { return };
        let mut config = lock(&device.config);
        let before: Vec<_> = config.wanted().collect();
        config.write(offset, data);
        lock(&device.messages).follow(&config);
        let moved = !config.wanted().eq(before);
        let window = config.bar_window(offset, data.len());
        let value = window.map(|window| config.get32(window.data).to_le_bytes());
        drop(config);
        if moved {
            self.decode();
        }
        if let (Some(window), Some(value)) = (window, value) {
            device.write(window.bar, window.offset.into(), &value[..window.length]);
        }
    }

    /// The guest reads `data` at a memory address. Where no BAR answers, ones.
    pub fn read_memory(&self, address: u64, data: &mut [u8]) {
        match self.find(address, data.len()) {
            None => data.fill(0xff),
            Some((device, bar, offset)) => device.read(bar, offset, data),
        }
    }

    /// The guest writes `data` at a memory address.
    pub fn write_memory(&self, address: u64, data: &[u8]) {
        if let Some((device, bar, offset)) = self.find(address, data.len()) {
            device.write(bar, offset, data);
        }
    }

    fn find(&self, address: u64, length: usize) -> Option<(&Device, u8, u64)> {
        let decoder = self.decoder.read().unwrap_or_else(PoisonError::into_inner);
        decoder.find(address, length).map(|(device, bar, offset)| (&self.devices[device], bar, offset))
    }

    /// The device at a configuration address, whose functions other than the first are absent, and the offset in it.
    fn function_at(&self, offset: u64) -> Option<(&Device, usize)> {
        let function = offset / FUNCTION_CONFIG_BYTES;
        let device = self.devices.get(usize::try_from(function / 8).ok()?)?;
        function.is_multiple_of(8).then_some((device, (offset % FUNCTION_CONFIG_BYTES) as usize))
    }

    /// Finds out which BARs answer where now, and has the doorbells follow.
    fn decode(&self) {
        // Held throughout: of two guests' processors that move BARs, the second sees what the first did.
        let mut registered = lock(&self.registered);
        let wanted = self.devices.iter().enumerate().flat_map(|(device, all)| {
            let wanted: Vec<_> = lock(&all.config).wanted().collect();
            wanted.into_iter().map(move |(bar, addresses)| Placed { device, bar, addresses })
        });
        let decoder = Decoder::new(&self.window, wanted);
        let doorbells = self.devices.iter().enumerate().flat_map(|(device, all)| {
            let decoder = &decoder;
            all.doorbells.iter().filter_map(move |BarDoorbell { bar, offset, event }| {
                decoder.place_of(device, *bar).map(|start| (start + offset, Arc::clone(event)))
            })
        });
        let doorbells: Vec<_> = doorbells.collect();
        let has = |all: &[(u64, Arc<EventFd>)], (address, event): &(u64, Arc<EventFd>)| {
            all.iter().any(|(other, other_event)| other == address && Arc::ptr_eq(event, other_event))
        };
        registered
            .iter()
            .filter(|one| !has(&doorbells, one))
            .for_each(|(address, _)| self.registry.unregister(*address));
        let new = doorbells.iter().filter(|one| !has(&registered, one));
        new.for_each(|(address, event)| self.registry.register(*address, event));
        *registered = doorbells;
        *self.decoder.write().unwrap_or_else(PoisonError::into_inner) = decoder;
    }
}

/// What a thread that panicked leaves behind is still only registers.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
