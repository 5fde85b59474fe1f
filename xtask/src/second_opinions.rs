//! `cargo xtask second-opinions`: images that we make, read by a library of PyPI.
//!
//! The readers that Debian has are asked in every run of the tests.

use crate::reliability::ignored_test;
use crate::{packages, root, run};
use std::process::Command;

/// What reads them, and what it needs for zstd.
const REQUIREMENTS: [&str; 2] = ["dissect.hypervisor==3.21", "backports.zstd==1.8.0"];

const BINARY: [&str; 4] = ["--package", "blockyard", "--test", "image_files"];
const TEST: &str = "second_opinions::dissect_reads_what_is_made_here";
/// The variable that names the Python that has it.
const PYTHON: &str = "BLOCKYARD_DISSECT";

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
    run(ignored_test(&BINARY, TEST).env(PYTHON, python))
}

#[cfg(test)]
mod tests {
    use super::{BINARY, PYTHON, TEST};
    use crate::reliability::tests::assert_is_there;

    #[test]
    fn the_test_is_there() {
        assert_is_there(&BINARY, TEST, PYTHON);
    }
}
