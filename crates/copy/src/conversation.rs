//! What is said over COM1: the VMM's frames, made as the guest asks for them, and the guest's, put together.

use crate::destination::Destination;
use crate::plan::CopyPlan;
use crate::source::Source;
use blockyard_block::{Disk, ExtentKind};
use blockyard_devices::serial::SerialInput;
use blockyard_protocol::frame::{self, FrameError, FrameReader, HOST_FRAME_BYTES_MAX};
use blockyard_protocol::layout::{VIRTIO_MMIO, VIRTIO_MMIO_STRIDE};
use blockyard_protocol::messages::{self, DeviceConfig, Extents, GuestMessage, VmmConfig};
use std::sync::Arc;

/// The devices, by their place on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// The disk that is read.
    Input,
    /// The disk that is written.
    Output,
}

impl Device {
    /// What both sides call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
        }
    }

    /// Guest-physical address of its registers.
    pub(crate) fn address(self) -> u64 {
        VIRTIO_MMIO.start + self as u64 * VIRTIO_MMIO_STRIDE
    }
}

/// The first frame: what the guest shall do.
pub(crate) fn config(plan: &CopyPlan, queues: u32, source: &Source, destination: &Destination) -> VmmConfig {
    let device = |device: Device, sector_size, zeroed| DeviceConfig {
        name: name(device),
        sector_size,
        address: device.address(),
        queues,
        zeroed,
    };
    let devices = [
        device(Device::Input, source.end.sector_bytes, false),
        device(Device::Output, destination.end.sector_bytes, destination.zeroed),
    ];
    VmmConfig {
        devices: devices.into_iter().collect(),
        progress_percent: plan.progress_percent,
        length: source.length_bytes,
        request_size: plan.request_bytes,
        queue_depth: plan.queue_depth,
        memory_size: plan.memory_bytes,
        flush: plan.flush,
        detect_zeroes: source.looks_for_zeros(plan),
    }
}

fn name(device: Device) -> messages::String<32> {
    let mut text = messages::String::new();
    // Both names are far shorter than 32 bytes.
    let _ = text.push_str(device.name());
    text
}

/// COM1's input: the configuration, then the source's extents, a frame at a time as the guest reads on.
pub(crate) struct HostFrames {
    config: Option<VmmConfig>,
    disk: Arc<dyn Disk>,
    position_bytes: u64,
    length_bytes: u64,
    buffer: Box<[u8; HOST_FRAME_BYTES_MAX]>,
}

impl HostFrames {
    /// Frames that tell of `config` and of `disk`'s extents.
    pub(crate) fn new(config: VmmConfig, disk: Arc<dyn Disk>) -> Self {
        let length_bytes = config.length;
        let buffer = Box::new([0; HOST_FRAME_BYTES_MAX]);
        Self { config: Some(config), disk, position_bytes: 0, length_bytes, buffer }
    }

    /// As many of the next extents as a frame holds, neighbours of one kind joined.
    fn next_extents(&mut self) -> Extents {
        let mut frame = Extents::default();
        while self.position_bytes < self.length_bytes {
            let (length, kind) = self.next_extent();
            if let Some(last) = frame.extents.last_mut().filter(|last| last.kind == kind) {
                last.length += length;
            } else if frame.extents.push(messages::Extent { length, kind }).is_err() {
                break;
            }
            self.position_bytes += length;
        }
        frame.last = self.position_bytes == self.length_bytes;
        frame
    }

    fn next_extent(&self) -> (u64, messages::ExtentKind) {
        match self.disk.extents(self.position_bytes..self.length_bytes) {
            Ok(extent) if extent.kind == ExtentKind::Data => (extent.length_bytes, messages::ExtentKind::Data),
            Ok(extent) => (extent.length_bytes, messages::ExtentKind::Zero),
            // A disk that cannot tell is read as a whole: slower, and as right.
            Err(_) => (self.length_bytes - self.position_bytes, messages::ExtentKind::Data),
        }
    }
}

impl SerialInput for HostFrames {
    fn fill(&mut self, buffer: &mut Vec<u8>) {
        let frame = match self.config.take() {
            Some(config) => frame::encode(&config, &mut self.buffer[..]),
            None if self.position_bytes < self.length_bytes => {
                let extents = self.next_extents();
                frame::encode(&extents, &mut self.buffer[..])
            }
            None => return,
        };
        // The protocol asserts that every message fits its buffer.
        buffer.extend_from_slice(frame.unwrap_or_default());
    }
}

/// COM1's output: gives each of the guest's messages, or the error that ends the conversation, to `take`.
pub(crate) fn guest_frames(
    mut take: impl FnMut(Result<GuestMessage, FrameError>) + Send + 'static,
) -> impl FnMut(&[u8]) + Send + 'static {
    let mut reader = FrameReader::new();
    let mut broken = false;
    move |mut bytes| {
        while !broken {
            match reader.read(&mut bytes) {
                Ok(Some(message)) => take(Ok(message)),
                Ok(None) => break,
                Err(error) => {
                    broken = true;
                    take(Err(error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_block::{FileDisk, FileOptions};
    use blockyard_protocol::frame::LENGTH_BYTES;
    use std::os::unix::fs::FileExt;

    fn frames(mut host: HostFrames) -> Vec<Extents> {
        let mut bytes = Vec::new();
        host.fill(&mut bytes);
        let mut config = VmmConfig::default();
        frame::decode(&bytes[LENGTH_BYTES..], &mut config).unwrap();
        assert_eq!(config.length, host.length_bytes);
        let mut frames = Vec::new();
        loop {
            bytes.clear();
            host.fill(&mut bytes);
            if bytes.is_empty() {
                return frames;
            }
            let mut extents = Extents::default();
            frame::decode(&bytes[LENGTH_BYTES..], &mut extents).unwrap();
            frames.push(extents);
        }
    }

    #[test]
    fn tells_every_extent_of_a_file_with_many_holes() {
        let file = tempfile::tempfile().unwrap();
        let (pieces, stride) = (1000_u64, 1 << 16);
        file.set_len(pieces * stride).unwrap();
        for piece in 0..pieces {
            file.write_all_at(&[1; 4096], piece * stride).unwrap();
        }
        let disk = FileDisk::from_file(file, &FileOptions { read_only: true, ..Default::default() });
        let config = VmmConfig { length: pieces * stride, ..Default::default() };
        let frames = frames(HostFrames::new(config, Arc::new(disk.unwrap())));
        let extents: Vec<_> = frames.iter().flat_map(|frame| &frame.extents).collect();
        assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), pieces * stride);
        let data = extents.iter().filter(|extent| extent.kind == messages::ExtentKind::Data);
        assert_eq!(data.map(|extent| extent.length).sum::<u64>(), pieces * 4096);
        assert_eq!(frames.iter().filter(|frame| frame.last).count(), 1);
        assert!(frames.len() > 1 && frames.last().unwrap().last);
    }
}
