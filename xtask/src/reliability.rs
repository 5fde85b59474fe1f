//! `cargo xtask reliability`: what the tests do a sample of, as a whole.
//!
//! Each part is an ignored test, which says what it has done in a line, beside the test that every run has.

use crate::{cargo, packages, run};
use anyhow::bail;
use std::process::Command;

struct Part {
    name: &'static str,
    /// What makes cargo build the test binary that it is in, and no other.
    binary: &'static [&'static str],
    /// Its whole name in there.
    test: &'static str,
    /// The variable that says how far to go.
    count: &'static str,
}

const PARTS: &[Part] = &[
    Part {
        name: "crashes",
        binary: &["--package", "blockyard-block", "--lib"],
        test: "formats::qcow2::tests::crashes::no_crash_of_any_short_history_loses_what_was_flushed",
        count: "BLOCKYARD_CRASH_STATES",
    },
    Part {
        name: "twins",
        binary: &["--package", "blockyard-block", "--lib"],
        test: "formats::qcow2::tests::twins::twins_of_which_qemu_has_one_stay_twins_for_long",
        count: "BLOCKYARD_TWINS",
    },
    Part {
        name: "kills",
        binary: &["--package", "blockyard", "--test", "image_files"],
        test: "kills::what_is_killed_often_leaves_images_whole",
        count: "BLOCKYARD_KILLS",
    },
];

/// Runs the part of that name, or all; with `count`, up to so many of what it counts.
///
/// # Errors
/// When there is none of that name, or one fails.
pub(crate) fn reliability(name: Option<&str>, count: Option<u64>) -> anyhow::Result<()> {
    packages::install(&[("qemu-utils", "qemu-img, to compare with")])?;
    let parts: Vec<_> = PARTS.iter().filter(|part| name.is_none_or(|name| name == part.name)).collect();
    if parts.is_empty() {
        let names: Vec<_> = PARTS.iter().map(|part| part.name).collect();
        bail!("there is no such part: {}", names.join(", "));
    }
    for part in parts {
        let mut command = ignored_test(part.binary, part.test);
        command.envs(count.map(|count| (part.count, count.to_string())));
        run(&mut command)?;
    }
    Ok(())
}

/// Runs an ignored test of a binary, by its whole name there.
pub(crate) fn ignored_test(binary: &[&str], test: &str) -> Command {
    let mut command = cargo();
    command.args(["test", "--locked", "--quiet"]).args(binary);
    command.args(["--", "--ignored", "--nocapture", "--exact", test]);
    command
}

#[cfg(test)]
pub(crate) mod tests {
    use super::PARTS;
    use crate::root;
    use std::fs;

    /// Asserts that there is such a test in a binary, and that its file names a variable: else nothing would be run.
    pub(crate) fn assert_is_there(binary: &[&str], test: &str, variable: &str) {
        let (module, name) = test.rsplit_once("::").unwrap();
        let directory = if binary.contains(&"--lib") { "src" } else { "tests" };
        let target = binary.last().filter(|_| directory == "tests").map_or("", |target| *target);
        let package = binary[1].replace("blockyard-", "").replace("blockyard", "cli");
        let path = root().join("crates").join(package).join(directory).join(target);
        let path = path.join(module.replace("::", "/")).with_extension("rs");
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(source.contains(&format!("fn {name}(")) && source.contains(variable), "{test}");
    }

    /// A name that no test has would be a part that does nothing.
    #[test]
    fn each_part_has_a_test() {
        PARTS.iter().for_each(|part| assert_is_there(part.binary, part.test, part.count));
    }
}
