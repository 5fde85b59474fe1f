//! Patterns in paths, resolved as a shell does: `*`, `?` and `[a-z]` match no slash, and no dot that a name begins
//! with.

use crate::failures::{Failures, refusal};
use crate::interruption;
use blockyard_protocol::appliance::Failure;
use blockyard_protocol::pattern::{is_pattern, matches, plain};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Files that a pattern may stand for, at each step of its way: an image may have any number.
const MATCHES_MAX: usize = 1 << 17;
/// Names of a directory that are looked at.
const NAMES_MAX: usize = 1 << 22;

/// What patterns stand for goes to `act`, in order of name; patterns that stand for nothing are failures.
pub(crate) fn each(patterns: &[Vec<u8>], failures: &mut Failures, mut act: impl FnMut(PathBuf, &mut Failures)) {
    for pattern in patterns {
        match expand(pattern) {
            Ok(paths) => paths.into_iter().for_each(|path| act(path, failures)),
            Err(failure) => failures.add(failure),
        }
    }
}

/// The files that a pattern stands for; a plain path stands for itself, be it there or not.
///
/// # Errors
/// When it stands for none, or for too many.
pub(crate) fn expand(pattern: &[u8]) -> Result<Vec<PathBuf>, Failure> {
    if !is_pattern(pattern) {
        return Ok(vec![OsString::from_vec(plain(pattern)).into()]);
    }
    let bad = |sentence: String| Failure { path: pattern[..pattern.len().min(1024)].to_vec(), ..refusal(sentence) };
    let mut found = walk(pattern).map_err(|error| bad(error.to_string()))?;
    found.sort();
    if found.is_empty() { Err(bad("no file matches".to_owned())) } else { Ok(found) }
}

fn walk(pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::from("/")];
    for step in pattern.split(|&byte| byte == b'/').filter(|step| !step.is_empty()) {
        let mut next = Vec::new();
        for directory in found {
            if is_pattern(step) {
                matching(&directory, step, &mut next)?;
            } else {
                let path = directory.join(OsStr::from_bytes(&plain(step)));
                next.extend(fs::symlink_metadata(&path).is_ok().then_some(path));
            }
        }
        found = next;
    }
    if pattern.ends_with(b"/") {
        found.retain(|path| path.is_dir());
    }
    Ok(found)
}

/// Adds the files of a directory whose names match; what cannot be looked into has none.
fn matching(directory: &PathBuf, step: &[u8], found: &mut Vec<PathBuf>) -> io::Result<()> {
    interruption::check()?;
    let takes_dots = step.starts_with(b".") || step.starts_with(b"\\.");
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries.take(NAMES_MAX).flatten() {
        let name = entry.file_name();
        if (takes_dots || !name.as_bytes().starts_with(b".")) && matches(step, name.as_bytes()) {
            if found.len() == MATCHES_MAX {
                return Err(io::Error::other(format!("more than {MATCHES_MAX} files match")));
            }
            found.push(directory.join(name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_what_a_shell_would_find() {
        let directory = std::env::temp_dir().join(format!("blockyard-glob-{}", std::process::id()));
        for name in ["a/x.conf", "a/.hidden.conf", "b/y.conf", "b/z", "b/*"] {
            let path = directory.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let root = directory.to_str().unwrap().to_owned();
        let found = |pattern: &str| {
            let paths = expand(format!("{root}/{pattern}").as_bytes()).map_err(|failure| failure.sentence)?;
            Ok::<_, String>(
                paths.iter().map(|path| path.to_str().unwrap()[root.len() + 1..].to_owned()).collect::<Vec<_>>(),
            )
        };
        let some = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect());
        assert_eq!(found("*/*.conf"), some(&["a/x.conf", "b/y.conf"]));
        assert_eq!(found("a/.*"), some(&["a/.hidden.conf"]));
        assert_eq!(found("[!a]/?"), some(&["b/*", "b/z"]));
        assert_eq!(found("*/z"), some(&["b/z"]));
        assert_eq!(found("*/"), some(&["a", "b"]));
        assert_eq!(found("b/\\*"), some(&["b/*"]));
        assert_eq!(found("not/there"), some(&["not/there"]));
        assert_eq!(found("*/nothing*"), Err("no file matches".to_owned()));
        assert_eq!(found("b/z/*"), Err("no file matches".to_owned()));
        fs::remove_dir_all(&directory).unwrap();
    }
}
