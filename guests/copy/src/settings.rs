//! What the VMM wants: its first frame, judged.

use crate::failure::Failure;
use blockyard_guest_runtime::serial;
use blockyard_guest_runtime::virtio_mmio::VirtioMmio;
use blockyard_protocol::layout::{QUEUE_DEPTH_MAX, QUEUES_MAX, SECTOR_SIZE_MAX, SECTOR_SIZE_MIN, data_buffers};
use blockyard_protocol::messages::{DeviceConfig, VmmConfig};
use blockyard_protocol::plan::LENGTH_BYTES_MAX;

/// One of the two disks.
pub(crate) struct Disk {
    pub(crate) name: &'static str,
    pub(crate) registers: VirtioMmio,
    pub(crate) sector_bytes: u32,
    /// It reads as zeros wherever nothing was written.
    pub(crate) zeroed: bool,
}

/// A configuration that can be carried out.
pub(crate) struct Settings {
    pub(crate) input: Disk,
    pub(crate) output: Disk,
    /// Virtqueues of each disk.
    pub(crate) queues: usize,
    pub(crate) progress_percent: u32,
    pub(crate) length: u64,
    pub(crate) request_bytes: u32,
    /// Requests in flight at most, and data buffers.
    pub(crate) queue_depth: u16,
    /// Where the data buffers start, one after the other.
    pub(crate) buffers: u64,
    pub(crate) flush: bool,
    pub(crate) detect_zeroes: bool,
}

impl Settings {
    /// Receives them.
    pub(crate) fn receive() -> Result<Self, Failure> {
        let mut config = VmmConfig::default();
        serial::receive(&mut config).map_err(|error| Failure::config(format_args!("{error}")))?;
        Self::new(&config)
    }

    fn new(config: &VmmConfig) -> Result<Self, Failure> {
        let refuse = |what: &str, value: u64| Err(Failure::config(format_args!("{what} cannot be {value}")));
        let (input, queues) = disk(config, "input")?;
        let (output, output_queues) = disk(config, "output")?;
        if queues != output_queues || !(1..=QUEUES_MAX).contains(&(queues as usize)) {
            return refuse("the number of virtqueues of the two devices", u64::from(queues));
        }
        if config.progress_percent > 100 {
            return refuse("progress_percent", u64::from(config.progress_percent));
        }
        if config.length > LENGTH_BYTES_MAX {
            return refuse("length", config.length);
        }
        if config.request_size < input.sector_bytes.max(output.sector_bytes) || !config.request_size.is_multiple_of(512)
        {
            return refuse("request_size", u64::from(config.request_size));
        }
        if !(1..=QUEUE_DEPTH_MAX).contains(&(config.queue_depth as usize)) {
            return refuse("queue_depth", u64::from(config.queue_depth));
        }
        let bytes = u64::from(config.request_size);
        let Some(buffers) = data_buffers(config.memory_size, bytes, u64::from(config.queue_depth)) else {
            return refuse("memory_size", config.memory_size);
        };
        Ok(Self {
            input,
            output,
            queues: queues as usize,
            progress_percent: config.progress_percent,
            length: config.length,
            request_bytes: config.request_size,
            queue_depth: config.queue_depth as u16,
            buffers,
            flush: config.flush,
            detect_zeroes: config.detect_zeroes,
        })
    }
}

/// The disk with that name, and its number of virtqueues.
fn disk(config: &VmmConfig, name: &'static str) -> Result<(Disk, u32), Failure> {
    let is_it = |device: &&DeviceConfig| device.name.as_str() == name;
    let Some(device) = config.devices.iter().find(is_it) else {
        return Err(Failure::config(format_args!("there is no device called {name}")));
    };
    let sector_bytes = device.sector_size;
    if !sector_bytes.is_power_of_two() || !(SECTOR_SIZE_MIN..=SECTOR_SIZE_MAX).contains(&sector_bytes) {
        return Err(Failure::config(format_args!("the {name}'s sector size cannot be {sector_bytes}")));
    }
    let Some(registers) = VirtioMmio::new(device.address) else {
        return Err(Failure::config(format_args!("the {name}'s registers cannot be at {:#x}", device.address)));
    };
    Ok((Disk { name, registers, sector_bytes, zeroed: device.zeroed }, device.queues))
}
