//! A Linux guest used as a tool: it has the kernel that reads file systems, so that neither this process nor the host's
//! kernel has to.
//!
//! An [`Appliance`] is a running guest with the disks of an image and two transfer disks. [`Appliance::call`] asks its
//! agent (`guests/agent`) for something, over a serial line; data go through the transfer disks, which the host binds
//! to a disk or a stream ([`StreamSource`], [`StreamSink`]) for each operation. All disks are served by threads of this
//! process.
//!
//! The kernel is User-Mode Linux ([`Kernel`]), an ordinary program; [`kernel_process`] says how it is shut in. What is
//! in an image may own that kernel: whatever comes from it is judged like what comes from any other guest.
//!
//! What makes, checks and opens file systems are the host's own programs ([`tools`]), which the guest executes.
//!
//! Deliberately absent: formats of listings and names of commands (they are the command's), knowledge of file systems
//! (the guest's), and other kernels, which would meet the same interface.
#![forbid(unsafe_code)]

mod appliance;
mod channel;
mod child_process;
mod confined;
mod directory;
mod error;
mod initramfs;
mod kernel;
mod kernel_command_line;
mod kernel_log;
mod kernel_modules;
pub mod kernel_process;
mod kvm_process;
mod machine;
mod slot;
mod stream;
mod system;
pub mod tools;

pub use appliance::{Appliance, ApplianceOptions, ImageDisk};
pub use confined::Confined;
pub use error::{ApplianceError, Cause};
pub use kernel::{Backend, Kernel, KernelError, are_its_own};
pub use machine::ServedElsewhere;
pub use stream::{StreamSink, StreamSource};
pub use system::{ConsoleSize, ConsoleTaker, Ending, InitramfsOptions, System, SystemOptions};
