//! What commands print: for people on terminals of any width, for programs, and whatever somebody else has written into
//! an image.

mod closed;
mod expected;
mod foreign;
mod help;
mod messages;
mod partitions;
mod pty;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
