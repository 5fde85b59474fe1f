//! The running guest that has an image's disks: an appliance, booted with them, in which file systems are mounted and
//! things are asked for.
//!
//! [`OpenImage`] is that guest. [`OpenImage::call`] has it do something, [`OpenImage::records`] has it list something,
//! the functions of [`streams`] move bytes, and [`OpenImage::run_tool`] has it run a program of this machine's. What it
//! answers is judged here ([`failures`], [`records`]): an image may have taken the guest over. Requests that are too
//! long for a message go in parts ([`requests`]).

pub mod failures;
mod open_image;
mod options;
pub mod records;
pub mod requests;
pub mod streams;
mod tools;

pub use failures::{errno, error_text, sentences};
pub use open_image::OpenImage;
pub use options::{Access, DISKS_MAX, ImageOptions, Resources, Trial, become_kernel, try_appliance};
pub use records::RecordTaker;
pub use streams::{read_in, write_out, write_out_into};

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a program of the image finds in its environment.
pub const ENVIRONMENT: [&str; 4] =
    ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", "TERM=dumb"];

/// A path of the image as the appliance wants it: from its root.
pub fn image_path(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"/") { bytes.to_vec() } else { [b"/", bytes].concat() }
}

/// Several.
pub fn image_paths(paths: &[PathBuf]) -> Vec<Vec<u8>> {
    paths.iter().map(|path| image_path(path)).collect()
}

/// Bytes of a path as a path.
pub fn path_of(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
