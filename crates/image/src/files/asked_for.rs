//! What somebody asked the appliance for, against what it lists: names on the host come from there, and an image may
//! have taken the appliance over.

use blockyard_protocol::pattern::{is_pattern, matches, plain};
use std::collections::HashMap;

/// Paths and patterns, as they were asked for, and what has come of them.
pub(super) struct AskedFor {
    /// Plain paths, and how often each may come.
    plain: HashMap<Vec<u8>, usize>,
    patterns: Vec<Vec<u8>>,
}

impl AskedFor {
    /// Those of a request.
    pub(super) fn new(paths: &[Vec<u8>]) -> Self {
        let (patterns, plains): (Vec<_>, Vec<_>) = paths.iter().cloned().partition(|path| is_pattern(path));
        let mut counted = HashMap::new();
        plains.iter().for_each(|path| *counted.entry(plain(path)).or_default() += 1);
        Self { plain: counted, patterns }
    }

    /// Whether a path that is listed was asked for.
    pub(super) fn takes(&mut self, path: &[u8]) -> bool {
        match self.plain.get_mut(path) {
            Some(left @ 1..) => {
                *left -= 1;
                true
            }
            _ => self.patterns.iter().any(|pattern| stands_for(pattern, path)),
        }
    }
}

/// Whether a pattern may stand for a path: as many names, each of which matches, with a dot at the begin only where one
/// is asked for.
fn stands_for(pattern: &[u8], path: &[u8]) -> bool {
    let Some(path) = path.strip_prefix(b"/") else { return false };
    let mut names = path.split(|&byte| byte == b'/');
    let mut steps = pattern.split(|&byte| byte == b'/').filter(|step| !step.is_empty());
    steps.all(|step| names.next().is_some_and(|name| is_step(step, name))) && names.next().is_none()
}

fn is_step(step: &[u8], name: &[u8]) -> bool {
    if !is_pattern(step) {
        return plain(step) == name;
    }
    let takes_dots = step.starts_with(b".") || step.starts_with(b"\\.");
    !matches!(name, b"" | b"." | b"..") && (takes_dots || !name.starts_with(b".")) && matches(step, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(paths: &[&str]) -> AskedFor {
        AskedFor::new(&paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn a_path_comes_once_and_no_other_does() {
        let mut asked = asked(&["/srv/report", "/a\\*", "/twice", "/twice"]);
        for path in ["/.profile", "/srv/other", "/report", "/a\\*", "/ab"] {
            assert!(!asked.takes(path.as_bytes()), "{path}");
        }
        for path in ["/srv/report", "/a*", "/twice", "/twice"] {
            assert!(asked.takes(path.as_bytes()), "{path}");
            assert!(path == "/twice" || !asked.takes(path.as_bytes()), "{path}");
        }
        assert!(!asked.takes(b"/twice"));
    }

    #[test]
    fn a_pattern_stands_for_names_that_match_and_are_names() {
        let mut asked = asked(&["/srv/*", "//home/?/.s*", "/[a-c]/x/.", "/.*"]);
        for path in ["/srv/a", "/srv/b", "/home/u/.ssh", "/b/x/.", "/.a"] {
            assert!(asked.takes(path.as_bytes()), "{path}");
        }
        for path in
            ["/srv", "/srv/", "/srv/.a", "/srv/a/b", "/home/u/ssh", "/home/./.ssh", "/b/x", "/..", "/.", "srv/a"]
        {
            assert!(!asked.takes(path.as_bytes()), "{path}");
        }
    }
}
