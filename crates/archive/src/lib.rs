//! Trees of files as tar archives.
//!
//! [`pack()`] is for whoever has the files: the host that puts a tree into an image, the appliance that gives one back.
//! [`unpack()`] is for the host, which takes an archive from an appliance that it does not trust: it makes files below
//! one directory and nowhere else. (The appliance unpacks by itself, in an image's own root.) Both read archives with
//! [`ArchiveReader`].
#![forbid(unsafe_code)]

mod access_control_list;
mod extended_attributes;
mod extended_header;
mod fields;
mod file_data;
mod new_file;
mod pack;
mod reader;
mod sparse_map;
mod status;
mod time;
mod unpack;

pub use access_control_list::{ACCESS_LIST, AccessControlList, DEFAULT_LIST, NameOf};
pub use extended_attributes::{attributes, is_user_attribute, remove_lists, set_user_attribute};
pub use new_file::make;
pub use pack::{OPEN_FLAGS, Opener, Seen, Sockets, Source, pack, pack_with};
pub use reader::{ArchiveReader, Member, MemberKind};
pub use status::Status;
pub use time::Time;
pub use unpack::{UnpackOptions, unpack};

use std::path::Path;

/// Hears of a file that could not be packed or unpacked, and why. The rest goes on.
pub type Report<'report> = dyn FnMut(&Path, &str, std::io::Error) + 'report;
