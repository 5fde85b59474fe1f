//! Files of an image: what is done with them, between an image and the host and within an image.
//!
//! The functions are [`OpenImage`](crate::OpenImage)'s, a module for each job:
//!
//! - [`put`] and [`get`] copy files and trees between the host and an image, as cp(1) does. A single file is a disk
//!   that the guest reads or writes; a tree is a tar archive that is packed while it is read (`host_tree`). What comes
//!   out of an image goes only where it was asked for (`asked_for`).
//! - [`read`] writes what files hold to a stream.
//! - [`tar`] packs and unpacks archives, in the guest; [`copy_blocks`] does what dd(1) does; [`edit`] copies a file
//!   out, and back when it was changed.
//! - [`execute`] runs a program of the image, in the image.
//! - [`listing`] says what is known of files, [`find`] finds them, [`disk_usage`] says how much space they take, and
//!   [`OpenImage::mounted`](crate::OpenImage::mounted) how much there is.
//!
//! An image's file systems must be mounted ([`OpenImage::mount`](crate::OpenImage::mount)). Paths of the image begin at
//! its root, with a slash or without.

mod asked_for;
pub mod copy_blocks;
mod copy_names;
pub mod disk_usage;
pub mod edit;
pub mod execute;
pub mod file_type;
pub mod find;
pub mod get;
mod host_attributes;
mod host_tree;
pub mod listing;
pub mod put;
pub mod read;
mod space;
pub mod tar;

pub use execute::ProgramEnd;
pub use get::GetOptions;
pub use listing::WalkOptions;
pub use put::{PutOptions, PutSource};

/// What is known of a file, and of a file system that is mounted.
pub use blockyard_protocol::appliance::{Entry, FileSystem};

use crate::guest::image_path;
use std::path::Path;

/// Several paths of the image as the appliance wants them.
fn paths<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Vec<Vec<u8>> {
    paths.into_iter().map(|path| image_path(path.as_ref())).collect()
}
