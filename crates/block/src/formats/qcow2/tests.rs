//! Tests of images as a whole: what they cost, and what is left of them by power cuts, damage, and people who mean ill.

mod bounded;
mod cost;
mod crashes;
mod cut_keys;
mod cut_short;
mod failures;
mod fuzz;
mod fuzz_numbers;
mod many_sharers;
mod missing;
mod mistaken_tables;
mod power_cut;
mod repaired;
mod runs;
mod sparse_parts;
mod twins;
mod windows;

use crate::{FileOptions, OpenedFile};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What one of QEMU's tools says.
///
/// What is forked has, until it executes its program, what this process closes meanwhile, with its locks. Our own are
/// waited for; where QEMU looks at a file that was locked here, it is to take none (`-U`).
fn output_of(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    output.unwrap_or_else(|error| panic!("cannot run {command:?} ({error}): the Debian package qemu-utils has it"))
}

/// Opens an image to change it, as `DiskSpecification::open_image` does.
pub(super) fn open_to_change(path: &Path) -> OpenedFile {
    let image = OpenedFile::open(path, false).unwrap();
    image.lock(&FileOptions::default()).unwrap();
    image
}
