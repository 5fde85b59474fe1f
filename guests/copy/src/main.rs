//! The copy guest: a program without an operating system that sees two virtio disks, and copies one to the other.
//!
//! It reads what to do from COM1 ([`settings`]), brings up both devices, copies with many requests in flight
//! ([`copy`]), flushes, reports, and halts. It says on COM1 what it does, as protocol's messages; COM2 gets a line of
//! text for people now and then.
//!
//! Deliberately absent: trust in the devices. What they do against the specification ends the copy with an Error.
#![no_std]
#![no_main]
// A failure happens once and ends the program: it need not be small.
#![allow(clippy::result_large_err)]

mod copy;
mod failure;
mod settings;

use blockyard_guest_runtime::block::BlockDevice;
use blockyard_guest_runtime::serial;
use blockyard_guest_runtime::text::text;
use blockyard_guest_runtime::{debug, entry};
use blockyard_protocol::layout::{INPUT_VIRTQUEUES, OUTPUT_VIRTQUEUES, Region};
use blockyard_protocol::messages::{Capacity, Complete, GuestMessage, GuestOperation, Init, Stage};
use copy::Copy;
use failure::Failure;
use settings::{Disk, Settings};

entry!(main);

fn main() {
    let message = match run() {
        Ok(complete) => GuestMessage::Complete(complete),
        Err(failure) => GuestMessage::Error(failure.into_message()),
    };
    serial::send(&message);
}

fn run() -> Result<Complete, Failure> {
    reach(Stage::Started);
    let settings = Settings::receive()?;
    reach(Stage::ConfigReceived);
    let input = bring_up(&settings.input, &settings, INPUT_VIRTQUEUES)?;
    reach(Stage::InputReady);
    report_capacity(&settings.input, &input);
    let output = bring_up(&settings.output, &settings, OUTPUT_VIRTQUEUES)?;
    reach(Stage::OutputReady);
    report_capacity(&settings.output, &output);

    reach(Stage::Copying);
    debug!(
        "copying {} bytes in requests of {} bytes, {} at a time, through {} virtqueues",
        settings.length, settings.request_bytes, settings.queue_depth, settings.queues
    );
    let mut copy = Copy::new(&settings, input, output)?;
    copy.run()?;
    if settings.flush {
        reach(Stage::Flushing);
        copy.flush()?;
    }
    debug!("copied {} bytes with {} requests", copy.copied_bytes(), copy.requests());
    Ok(Complete { bytes: copy.copied_bytes(), requests: copy.requests() })
}

/// Brings up a disk, and sees that it is what the VMM said.
fn bring_up(disk: &Disk, settings: &Settings, region: Region) -> Result<BlockDevice, Failure> {
    let failure = |detail| Failure::new(GuestOperation::Probe, disk.name, detail);
    let device = BlockDevice::bring_up(disk.registers, region, settings.queues)
        .map_err(|error| failure(text(format_args!("{error}"))))?;
    if device.block_bytes != disk.sector_bytes {
        let (found, wanted) = (device.block_bytes, disk.sector_bytes);
        return Err(failure(text(format_args!("its block has {found} bytes, not {wanted}"))));
    }
    let needed = settings.length.next_multiple_of(u64::from(disk.sector_bytes));
    if device.capacity_bytes < needed {
        let capacity = device.capacity_bytes;
        return Err(failure(text(format_args!("it has {capacity} bytes, and {needed} are needed"))));
    }
    Ok(device)
}

fn reach(stage: Stage) {
    serial::send(&GuestMessage::Init(Init { stage }));
}

fn report_capacity(disk: &Disk, device: &BlockDevice) {
    serial::send(&GuestMessage::Capacity(Capacity {
        device: text(format_args!("{}", disk.name)),
        bytes: device.capacity_bytes,
        sector_size: device.block_bytes,
    }));
}
