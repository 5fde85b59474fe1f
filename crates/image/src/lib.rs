//! What is done with disk images, as a library: with the files in them, their volumes and operating systems, and with images as a whole.
//!
//! Nothing here knows a command line, a terminal or a process's exit: whoever calls brings disks, and a [`Watch`] for what people are told and
//! asked.
#![forbid(unsafe_code)]

pub mod files;
pub mod guest;
pub mod inspection;
pub mod volumes;
pub mod whole;

mod error;
mod watch;

pub use blockyard_appliance::ImageDisk;
pub use error::{Error, Result};
pub use files::{GetOptions, PutOptions, PutSource};
pub use guest::{Access, ImageOptions, OpenImage, Resources};
pub use volumes::keys::{Key, Keys};
pub use watch::{Nobody, Progress, Watch};
