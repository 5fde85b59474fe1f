//! Fuzz targets that draw the same inputs whenever they are tested.
//!
//! bolero draws from the operating system's random numbers, for as long as a second lasts: an input in 20,000 that
//! shows a defect then fails somebody's test who did not touch what is wrong. A target that [`check!`] makes runs its
//! corpus and then as many inputs as it says, the same on every machine and however busy that is. Where a variable of
//! bolero's is set (`BOLERO_RANDOM_ITERATIONS`, `BOLERO_RANDOM_SEED`, …, as `cargo xtask fuzz` does), and for a fuzzing
//! engine with coverage, bolero runs the target by its own rules, with inputs that nobody saw before.

#![forbid(unsafe_code)]

use bolero::{BorrowedInput, ByteSliceGenerator, TestTarget};
use std::io;
use std::path::Path;

#[doc(hidden)]
pub use bolero::{__item_path__, TargetLocation};

#[cfg(not(fuzzing))]
mod erased;
#[cfg(not(fuzzing))]
mod same_inputs;
#[cfg(test)]
mod tests;

/// A directory in memory, where there is some: what is made stable there a thousand times a second costs nothing.
///
/// # Errors
/// The system's, when no directory can be made.
pub fn memory_directory() -> io::Result<tempfile::TempDir> {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}

/// A fuzz target: `check!(1000)` is `bolero::check!()` with a thousand inputs, the same in every test run.
#[macro_export]
macro_rules! check {
    ($inputs:expr) => {{
        let location = $crate::TargetLocation {
            package_name: env!("CARGO_PKG_NAME"),
            manifest_dir: env!("CARGO_MANIFEST_DIR"),
            module_path: module_path!(),
            file: file!(),
            line: line!(),
            item_path: $crate::__item_path__!(),
            test_name: None,
        };
        // cargo-bolero asks which targets there are.
        if !location.should_run() {
            return;
        }
        $crate::target(location, $inputs)
    }};
}

#[doc(hidden)]
#[cfg(not(fuzzing))]
pub fn target(
    location: TargetLocation,
    inputs: usize,
) -> TestTarget<ByteSliceGenerator, same_inputs::SameInputs, BorrowedInput> {
    TestTarget::new(same_inputs::SameInputs { location, inputs })
}

/// Whoever fuzzes with coverage says how long.
#[doc(hidden)]
#[cfg(fuzzing)]
pub fn target(
    location: TargetLocation,
    _inputs: usize,
) -> TestTarget<ByteSliceGenerator, bolero::DefaultEngine, BorrowedInput> {
    bolero::test(location)
}
