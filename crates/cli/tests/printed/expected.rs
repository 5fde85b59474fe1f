//! What commands print, held as files under tests/data: `UPDATE_EXPECT=1 cargo test` writes what is printed now there.

use std::fs;
use std::path::Path;

/// Fails when `found` is not what the file `tests/data/NAME` holds; with `UPDATE_EXPECT` set, the file holds it
/// afterwards.
#[track_caller]
pub(crate) fn check(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, found).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let lines = || expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    assert!(
        expected == found,
        "{} says otherwise, first here: {:?}. If what is printed now is right, run the test with UPDATE_EXPECT=1",
        path.display(),
        lines().unwrap_or(("the end", "more, or less"))
    );
}
