//! Images on the command line: how they are named, opened and shown, and how something is done on their files.

pub mod at_terminal;
pub mod backend;
pub mod file_command;
mod image_opts;
pub mod listing;
pub mod misplaced;
mod mount_point;
pub mod named_image;
pub mod on_image;
pub mod open_image;
pub mod secrets;
