//! What the commands have in common, and nothing of any one of them.
//!
//! How a disk is opened that somebody names ([`disk`]), and an image whose files are worked on ([`image`], with the
//! options for that); what is printed, shown and asked ([`terminal`], [`progress`]); which signals end a command
//! ([`signals`]); what it fails with, and its exit status ([`usage_error`], [`verdict`], [`failures`]).
//!
//! Which commands there are, only the program knows: it brings what is its own, such as the command that it executes
//! itself with to become an appliance's kernel. Nothing here ends the process.
#![forbid(unsafe_code)]

pub mod clap_error;
pub mod disk;
pub mod failures;
pub mod image;
pub mod progress;
pub mod remedies;
pub mod signals;
pub mod stdin;
pub mod terminal;
pub mod time;
pub mod unpacker;
pub mod usage_error;
pub mod verdict;
