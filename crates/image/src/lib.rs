//! What is done with disk images, as a library: with the files in them, their volumes and operating systems, and with
//! images as a whole.
//!
//! Nothing here knows a command line, a terminal or a process's exit: whoever calls brings disks, and a [`Watch`] for
//! what people are told and asked.
//!
//! An image's files are a Linux guest's to read and write, which is this very program, started once more: so
//! [`become_kernel`] comes first in it. This puts a file into an image, and removes one:
//!
//! ```no_run
//! use blockyard_block::{FileDisk, FileOptions};
//! use blockyard_image::operations::{Operation, Remove};
//! use blockyard_image::{ImageDisk, ImageOptions, Nobody, PutOptions, Resources, become_kernel};
//! use std::{path::Path, sync::Arc};
//!
//! fn main() -> blockyard_image::Result<()> {
//!     let arguments: Vec<_> = std::env::args_os().skip(1).collect();
//!     if arguments.first().is_some_and(|first| first == "become-kernel") {
//!         match become_kernel(&arguments[1..], "become-kernel")? {}
//!     }
//!     let disk = FileDisk::open(Path::new("disk.img"), &FileOptions::default())?;
//!     let disk = ImageDisk { disk: Arc::new(disk), name: "disk.img".into() };
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
//! The rooms: [`guest`] has the guest and what passes between it and this process, [`files`] what is done with files,
//! [`volumes`] what is done with what they lie on, [`inspection`] says which operating systems there are; [`whole`]
//! works on images as a whole, without a guest. [`guest`] knows nothing of the others but what it keeps for them: keys,
//! and which stacks are open.
#![forbid(unsafe_code)]

pub mod files;
pub mod guest;
pub mod inspection;
pub mod volumes;
pub mod whole;

mod error;
mod needs;
mod watch;

pub use blockyard_appliance::{ApplianceError, ImageDisk};
/// What the guest can be asked for, by [`OpenImage::call`]: to remove files, to link, rename and change them, and so
/// on.
pub use blockyard_protocol::appliance as operations;
pub use error::{Error, Result};
pub use files::{GetOptions, PutOptions, PutSource, WalkOptions};
pub use guest::{Access, ImageOptions, OpenImage, Resources, become_kernel};
pub use needs::Needs;
pub use volumes::keys::{Key, Keys};
pub use watch::{Nobody, Progress, Watch};
