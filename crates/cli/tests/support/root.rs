//! Tests that make what only root can: files of others, devices, capabilities, mounts.

/// Whether this is root; a word if not.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not root: this test makes what only root can");
    }
    is_root
}
