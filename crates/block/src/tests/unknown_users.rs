//! A user namespace in which no user has a number.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Says that this is the process in the namespace, and where `work` is to be done.
const INSIDE: &str = "BLOCKYARD_TEST_UNKNOWN_USERS";

/// Does `work` in a directory that was prepared, which it returns, in a process of its own where every file is shown as
/// nobody knows whose: `test`, the name of the test that calls this first of all, is executed there once more, and ends
/// here. Does no work where this user may have no such namespace.
pub(crate) fn among_unknown_users(test: &str, prepare: impl FnOnce() -> TempDir, work: impl FnOnce(&Path)) -> TempDir {
    if let Some(directory) = std::env::var_os(INSIDE) {
        work(&PathBuf::from(directory));
        std::process::exit(0);
    }
    let directory = prepare();
    let unshare = |program: &Path| {
        let mut command = Command::new("unshare");
        command.arg("--user").arg(program);
        command
    };
    if !unshare(Path::new("true")).status().is_ok_and(|status| status.success()) {
        eprintln!("no user namespace for this user: not tried");
        return directory;
    }
    let mut inside = unshare(&std::env::current_exe().unwrap());
    let output = inside.args(["--exact", "--nocapture", test]).env(INSIDE, directory.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // It was that test, and it has ended here.
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("test result"),
        "{test} is no test, or does not call this"
    );
    directory
}
