//! What is done with disk images, as a library: with the files in them, their volumes and operating systems, and with
//! images as a whole.
//!
//! Nothing here knows a command line, a terminal or a process's exit: whoever calls brings disks, and a [`Watch`] for
//! what people are told and asked. What would help against an error is said plainly; a program that has options or
//! buttons for it names those ([`Remedy`](blockyard_block::Remedy)).
//!
//! An image's files are a Linux guest's to read and write, which is this very program, started once more with the
//! argument that [`Resources::find`] is given: so `main` looks for that first, and calls [`become_kernel`]. A program
//! that does not is refused its guest, with an error that says so. Disks come from
//! [`open_disk`](blockyard_session::open::open_disk), which knows formats, or are any other
//! [`Disk`](blockyard_block::Disk). This puts a file into a qcow2 image, and removes one:
//!
//! ```no_run
//! use blockyard_block::specification::DiskSpecification;
//! use blockyard_image::operations::{Operation, Remove};
//! use blockyard_image::{ImageDisk, ImageOptions, Nobody, PutOptions, Resources, Result, become_kernel};
//! use blockyard_session::open::{OpenOptions, open_disk};
//! use std::{path::Path, process::ExitCode, sync::Arc};
//!
//! fn main() -> ExitCode {
//!     let arguments: Vec<_> = std::env::args_os().skip(1).collect();
//!     let result = match arguments.split_first() {
//!         Some((first, rest)) if first == "become-kernel" => {
//!             become_kernel(rest, "become-kernel").map(|never| match never {})
//!         }
//!         _ => change_files(),
//!     };
//!     let Err(error) = result else { return ExitCode::SUCCESS };
//!     // The whole sentence: an error as text is its own part only.
//!     eprintln!("{}", error.in_one_line());
//!     ExitCode::FAILURE
//! }
//!
//! fn change_files() -> Result<()> {
//!     let disk = open_disk(&DiskSpecification::of_file("vm.qcow2"), &OpenOptions::default())?.disk;
//!     let disk = ImageDisk { disk, name: "vm.qcow2".into() };
//!     let resources = Resources::find("become-kernel")?;
//!     let mut image = ImageOptions::new(vec![disk]).boot(resources, Arc::new(Nobody))?;
//!     image.mount()?;
//!     image.put(["hosts"], Path::new("/etc"), &PutOptions::default())?;
//!     let paths = vec![b"/etc/machine-id".to_vec()];
//!     image.call(Operation::Remove(Remove { paths, force: true, ..Remove::default() }))?;
//!     image.close()
//! }
//! ```
//!
//! Errors are [`Error`]s, one part of a sentence each, with the rest as their sources.
//!
//! The rooms: [`guest`] has the guest and what passes between it and this process, [`files`] what is done with files,
//! [`volumes`] what is done with what they lie on, [`inspection`] says which operating systems there are,
//! [`boot_files`] what they boot; [`whole`] works on images as a whole, without a guest. [`guest`] knows nothing of the
//! others but what it keeps for them: keys, and which stacks are open.
#![forbid(unsafe_code)]

pub mod boot_files;
pub mod files;
pub mod guest;
pub mod inspection;
pub mod volumes;
pub mod whole;

mod error;
mod needs;
mod watch;

pub use blockyard_appliance::{ApplianceError, Backend, ConsoleSize, Ending, ImageDisk, System, SystemOptions};
/// What the guest can be asked for, by [`OpenImage::call`]: to remove files, to link, rename and change them, and so
/// on.
pub use blockyard_protocol::appliance as operations;
pub use error::{Error, Result, is_storage_full};
pub use files::{GetOptions, PutOptions, PutSource, WalkOptions};
pub use guest::{Access, ImageOptions, OpenImage, Resources, become_kernel};
pub use needs::Needs;
pub use volumes::keys::{Key, Keys};
pub use watch::{Nobody, Progress, Watch};
