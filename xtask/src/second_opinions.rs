//! `cargo xtask second-opinions`: images that we make, read by a library of PyPI.
//!
//! The readers that Debian has are asked in every run of the tests.

use crate::{cargo, packages, root, run};
use std::process::Command;

/// What reads them, and what it needs for zstd.
const REQUIREMENTS: [&str; 2] = ["dissect.hypervisor==3.21", "backports.zstd==1.8.0"];

/// Fetches it into target/dissect, and runs the test that uses it.
///
/// # Errors
/// When it cannot be had, or reads something else than what was written.
pub(crate) fn second_opinions() -> anyhow::Result<()> {
    packages::install(&[("python3-venv", "a place for what PyPI has")])?;
    let place = root().join("target/dissect");
    run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    let python = place.join("bin/python3");
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(REQUIREMENTS))?;
    let mut command = cargo();
    command.args(["test", "--locked", "--quiet", "--package", "blockyard", "--test", "image_files", "--"]);
    command.args(["--ignored", "--nocapture", "--exact", "second_opinions::dissect_reads_what_is_made_here"]);
    run(command.env("BLOCKYARD_DISSECT", python))
}
