//! Tests of images as a whole: what they cost, and what is left of them by power cuts, damage, and people who mean ill.

mod bounded;
mod cost;
mod crashes;
mod cut_files;
mod cut_short;
mod failures;
mod fuzz;
mod power_cut;
pub(super) mod recorded_file;
mod twins;

use crate::{FileOptions, OpenedFile};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{RwLock, RwLockReadGuard};

/// What is forked has, until it executes its program, what this process closes meanwhile, with its locks: who locks one
/// file again and again forks nothing meanwhile.
static FORKS: RwLock<()> = RwLock::new(());

/// As long as it is held, [`output_of`] starts nothing.
fn without_forks() -> RwLockReadGuard<'static, ()> {
    FORKS.read().unwrap()
}

/// What one of QEMU's tools says.
fn output_of(command: &mut Command) -> Output {
    let started = {
        let _alone = FORKS.write().unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let child = started
        .unwrap_or_else(|error| panic!("cannot run {command:?} ({error}): the Debian package qemu-utils has it"));
    child.wait_with_output().unwrap()
}

/// Opens an image to change it, as `DiskSpecification::open_image` does.
pub(super) fn open_to_change(path: &Path) -> OpenedFile {
    let image = OpenedFile::open(path, false).unwrap();
    image.lock(&FileOptions::default()).unwrap();
    image
}
