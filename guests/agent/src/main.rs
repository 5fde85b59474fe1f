//! PID 1 of the appliance: does on the files of an image what the host asks for, one request after another.
//!
//! It says so over the serial line ([`channel`]) and moves data through two transfer disks ([`stream`]). While an image
//! is mounted it lives in it (`chroot`): every path is the image's, and no link leads out. It trusts the host, and
//! nothing in the image; whatever an image does to it or to its kernel stays in the appliance.
//!
//! Programs that make, check and open file systems come from the host when they are needed ([`tools`]).
//!
//! Deliberately absent: a shell, a network, a clock of its own.

mod attributes;
mod block_copy;
mod block_devices;
mod boot_files;
mod channel;
mod command_line;
mod content;
mod directory_walk;
mod execution;
mod failures;
mod file_changes;
mod file_copy;
mod file_making;
mod file_queries;
mod fstab;
mod glob;
mod hand_over;
mod inspect;
mod interruption;
mod loop_device;
mod module_share;
mod modules;
mod mount_options;
mod mounts;
mod named_files;
mod operations;
mod owner_names;
mod partition_table;
mod program;
mod removal;
mod replacing;
mod ring;
mod roots;
mod seen_directories;
mod stream;
mod sysfs;
mod system;
mod tar_in;
mod tar_out;
mod tools;
mod tree;
mod trim;
mod uuid;
mod volume_list;

use blockyard_protocol::appliance::{Operation, Ready, Request, VERSION};
use channel::Channel;
use mounts::Mounts;
use std::io;
use stream::TransferDisks;

fn main() {
    if let Some(status) = modules::asked_by_kernel().or_else(trim::asked_by_agent) {
        std::process::exit(status);
    }
    if let Err(error) = serve() {
        eprintln!("agent: {error}");
    }
    system::power_off();
}

/// Serves until the host hangs up.
fn serve() -> io::Result<()> {
    system::set_up()?;
    let mut channel = Channel::open()?;
    interruption::watch(channel.line()?);
    let disks = TransferDisks::open()?;
    let mut mounts = Mounts::new()?;
    channel.send(&Ready { version: VERSION, kernel: system::kernel_version() })?;
    while let Some(request) = channel.receive::<Request>()? {
        // It came too late: the request that it is about is done.
        if matches!(request.operation, Operation::Interrupt) {
            continue;
        }
        if let Operation::HandOver(wish) = &request.operation {
            let (response, successor) = operations::prepare_hand_over(request.number, wish, &disks);
            channel.send(&response)?;
            if let Some(successor) = successor {
                return Err(successor.take_over());
            }
            continue;
        }
        let response = operations::perform(request, &mut mounts, &disks);
        if let Err(error) = channel.send(&response) {
            // What is named in it is the image's, and may be too much.
            channel.send(&operations::without_names(&response, &error))?;
        }
    }
    Ok(())
}
