//! Finding files, as find(1) does: tests, what joins them, and actions among them, which are the caller's.

use super::file_type::{is_regular, type_letter};
use super::listing::{Place, Visitor, WalkOptions};
use crate::error::{Result, refuse};
use crate::guest::{OpenImage, path_of};
use blockyard_block::shown;
use blockyard_protocol::appliance::Entry;
use blockyard_protocol::pattern::matches;
use std::io;

/// What is looked for, and where. `A` is an action of the caller's.
#[derive(Debug)]
pub struct Search<A> {
    /// Where: paths of the image.
    pub paths: Vec<Vec<u8>>,
    /// What is found less deep than that is not judged.
    pub depth_min: u32,
    /// How deep to look.
    pub depth_max: u32,
    /// What is mounted below is left out.
    pub one_file_system: bool,
    /// The actions want owners' names, or links' targets.
    pub details: bool,
    /// What holds of a file that is found.
    pub expression: Expression<A>,
}

/// Tests, and what is done when those before it hold.
#[derive(Debug)]
pub enum Expression<A> {
    /// Each holds, up to the first that does not.
    All(Vec<Self>),
    /// One holds: those behind it are not looked at.
    Any(Vec<Self>),
    /// It does not hold.
    Not(Box<Self>),
    /// A test.
    Test(Test),
    /// Something is done; that always holds.
    Action(A),
}

/// A test of a file.
#[derive(Debug)]
pub enum Test {
    /// Its name matches a pattern.
    Name(Vec<u8>),
    /// Its path does.
    Path(Vec<u8>),
    /// Its type is one of these letters, `-` for regular files ([`type_letter`]).
    Type(Vec<char>),
    /// Its size, in units of so many bytes, rounded up.
    Size(Count, u64),
    /// It has these permissions, and no others.
    Permissions(u32),
    /// It has all of these permissions.
    AllPermissions(u32),
    /// It has one of these permissions, or they are none.
    AnyPermission(u32),
    /// It belongs to a user, by name or number.
    User(String),
    /// It belongs to a group, by name or number.
    Group(String),
    /// It was modified later than another file.
    Newer {
        /// The other: a path of the image.
        than: Vec<u8>,
        /// When that was modified, in seconds since 1970 and nanoseconds: [`OpenImage::find`] finds it out.
        modified: (i64, u32),
    },
    /// So many whole units ago.
    Age {
        /// What was.
        of: FileTime,
        /// Seconds of a unit.
        unit: i64,
        /// Seconds since 1970.
        now: i64,
        /// How many.
        count: Count,
    },
    /// A regular file of no bytes, or a directory without files.
    Empty,
    /// So many names.
    Links(Count),
}

/// A time that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTime {
    /// When it was read.
    Accessed,
    /// When its data were written.
    Modified,
    /// When its inode was.
    Changed,
}

/// How many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// More than that.
    More(u64),
    /// Less than that.
    Less(u64),
    /// Just as many.
    Exactly(u64),
}

/// A file that was come across.
#[derive(Clone, Copy, Debug)]
pub struct Found<'found> {
    /// From the image's root.
    pub path: &'found [u8],
    /// What was named to look in.
    pub start: &'found [u8],
    /// How deep it lies in that.
    pub depth: u32,
    /// What is known of it.
    pub entry: &'found Entry,
}

/// Whoever does what a search's actions say, in a thread of its own.
pub trait Actions<A>: Send + 'static {
    /// What comes of it.
    type Output: Send + 'static;

    /// Does it.
    ///
    /// # Errors
    /// When nothing more is wanted.
    fn perform(&mut self, action: &A, found: &Found<'_>) -> io::Result<()>;

    /// The whole expression holds of a file.
    ///
    /// # Errors
    /// When nothing more is wanted.
    fn found(&mut self, found: &Found<'_>) -> io::Result<()> {
        let _ = found;
        Ok(())
    }

    /// There are no more.
    ///
    /// # Errors
    /// When its output fails.
    fn finish(self) -> io::Result<Self::Output>;
}

impl OpenImage {
    /// Finds files, in the order in which a walk comes across them.
    ///
    /// # Errors
    /// When a file of [`Test::Newer`] is not there. As [`OpenImage::walk`].
    pub fn find<A: Send + 'static, D: Actions<A>>(&mut self, mut search: Search<A>, actions: D) -> Result<D::Output> {
        search.expression.try_for_each_test(&mut |test| {
            let Test::Newer { than, modified } = test else { return Ok(()) };
            let path = path_of(than.clone());
            match self.entry(&path, false)? {
                Some(entry) => *modified = (entry.modified, entry.modified_ns),
                None => refuse!("-newer {}: there is no such file in the image", shown(&path)),
            }
            Ok(())
        })?;
        let options = WalkOptions {
            depth: search.depth_max,
            one_file_system: search.one_file_system,
            details: search.details
                || search.expression.has_test(|test| matches!(test, Test::User(_) | Test::Group(_))),
            emptiness: search.expression.has_test(|test| matches!(test, Test::Empty)),
            ..WalkOptions::default()
        };
        let paths: Vec<_> = search.paths.iter().cloned().map(path_of).collect();
        self.walk(paths, &options, Finder { search, actions })
    }
}

struct Finder<A, D> {
    search: Search<A>,
    actions: D,
}

impl<A: Send + 'static, D: Actions<A>> Visitor for Finder<A, D> {
    type Output = D::Output;

    fn file(&mut self, place: &Place, entry: Entry) -> io::Result<()> {
        if place.depth < self.search.depth_min {
            return Ok(());
        }
        let path = place.path(&entry);
        let found = Found { path: &path, start: &place.start, depth: place.depth, entry: &entry };
        match self.search.expression.holds(&found, &mut self.actions)? {
            true => self.actions.found(&found),
            false => Ok(()),
        }
    }

    fn finish(self) -> io::Result<Self::Output> {
        self.actions.finish()
    }
}

impl<A> Expression<A> {
    /// Whether it holds of a file; performs its actions up to where that is known.
    fn holds(&self, found: &Found<'_>, actions: &mut impl Actions<A>) -> io::Result<bool> {
        match self {
            Self::All(parts) => {
                for part in parts {
                    if !part.holds(found, actions)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Any(parts) => {
                for part in parts {
                    if part.holds(found, actions)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(part) => Ok(!part.holds(found, actions)?),
            Self::Test(test) => Ok(test.holds(found)),
            Self::Action(action) => actions.perform(action, found).map(|()| true),
        }
    }

    fn try_for_each_test(&mut self, act: &mut impl FnMut(&mut Test) -> Result<()>) -> Result<()> {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter_mut().try_for_each(|part| part.try_for_each_test(act)),
            Self::Not(part) => part.try_for_each_test(act),
            Self::Test(test) => act(test),
            Self::Action(_) => Ok(()),
        }
    }

    fn has_test(&self, is_it: fn(&Test) -> bool) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().any(|part| part.has_test(is_it)),
            Self::Not(part) => part.has_test(is_it),
            Self::Test(test) => is_it(test),
            Self::Action(_) => false,
        }
    }
}

impl Test {
    /// Whether it holds of a file.
    pub fn holds(&self, found: &Found<'_>) -> bool {
        let entry = found.entry;
        match self {
            Self::Name(pattern) => matches(pattern, found.name()),
            Self::Path(pattern) => matches(pattern, found.path),
            Self::Type(letters) => letters.contains(&type_letter(entry.mode)),
            Self::Size(count, unit) => count.holds(entry.size.div_ceil((*unit).max(1))),
            Self::Permissions(bits) => entry.mode & 0o7777 == *bits,
            Self::AllPermissions(bits) => entry.mode & bits == *bits,
            Self::AnyPermission(bits) => *bits == 0 || entry.mode & bits != 0,
            Self::User(name) => is_called(name, &entry.user, entry.user_id),
            Self::Group(name) => is_called(name, &entry.group, entry.group_id),
            Self::Newer { modified, .. } => (entry.modified, entry.modified_ns) > *modified,
            // What is to come is no whole unit ago.
            Self::Age { of, unit, now, count } => {
                count.holds(u64::try_from(now.saturating_sub(of.of(entry)) / (*unit).max(1)).unwrap_or(0))
            }
            Self::Empty => entry.empty || (is_regular(entry.mode) && entry.size == 0),
            Self::Links(count) => count.holds(entry.links),
        }
    }
}

/// By the name that the image has for an owner, or by number.
fn is_called(wanted: &str, name: &str, number: u32) -> bool {
    wanted == name || wanted.parse() == Ok(number)
}

impl FileTime {
    fn of(self, entry: &Entry) -> i64 {
        match self {
            Self::Accessed => entry.accessed,
            Self::Modified => entry.modified,
            Self::Changed => entry.changed,
        }
    }
}

impl Count {
    fn holds(self, value: u64) -> bool {
        match self {
            Self::More(count) => value > count,
            Self::Less(count) => value < count,
            Self::Exactly(count) => value == count,
        }
    }
}

impl Found<'_> {
    /// The last part of its path; of the root, that.
    pub fn name(&self) -> &[u8] {
        let name = self.path.rsplit(|&byte| byte == b'/').next().unwrap_or(self.path);
        if name.is_empty() { b"/" } else { name }
    }

    /// The path from what was named.
    pub fn below(&self) -> &[u8] {
        let rest = self.path.strip_prefix(self.start).unwrap_or(self.path);
        rest.strip_prefix(b"/").unwrap_or(rest)
    }

    /// The path of the directory that it is in; of the root, and what is in it, nothing.
    pub fn directory(&self) -> &[u8] {
        match self.path.iter().rposition(|&byte| byte == b'/') {
            Some(0) | None => b"",
            Some(at) => &self.path[..at],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Expression::{Action, All, Any, Not};

    /// Remembers what was done.
    #[derive(Default)]
    struct Log(Vec<&'static str>);

    impl Actions<&'static str> for Log {
        type Output = Vec<&'static str>;

        fn perform(&mut self, action: &&'static str, _: &Found<'_>) -> io::Result<()> {
            self.0.push(action);
            Ok(())
        }

        fn finish(self) -> io::Result<Self::Output> {
            Ok(self.0)
        }
    }

    #[test]
    fn what_is_known_already_is_not_looked_at() {
        let test = |pattern: &str| Expression::Test(Test::Name(pattern.as_bytes().to_vec()));
        let entry = Entry::default();
        let judged = |expression: &Expression<&'static str>| {
            let found = Found { path: b"/a", start: b"/", depth: 1, entry: &entry };
            let mut log = Log::default();
            let holds = expression.holds(&found, &mut log).unwrap();
            (holds, log.finish().unwrap())
        };
        let first = All(vec![test("a"), Action("one"), test("b"), Action("two")]);
        assert_eq!(judged(&first), (false, vec!["one"]));
        let either = Any(vec![All(vec![test("b"), Action("one")]), Action("two"), Action("three")]);
        assert_eq!(judged(&either), (true, vec!["two"]));
        assert_eq!(judged(&Not(Box::new(test("a")))), (false, vec![]));
        assert!(first.has_test(|test| matches!(test, Test::Name(_))));
        assert!(!first.has_test(|test| matches!(test, Test::Empty)));
    }

    #[test]
    fn a_file_is_called_by_parts_of_its_path() {
        let entry = Entry::default();
        let parts = |path, start| {
            let found = Found { path, start, depth: 0, entry: &entry };
            [found.name(), found.below(), found.directory()].map(|part| String::from_utf8(part.to_vec()).unwrap())
        };
        assert_eq!(parts(b"/usr/lib/x", b"/usr"), ["x", "lib/x", "/usr/lib"]);
        assert_eq!(parts(b"/", b"/"), ["/", "", ""]);
        assert_eq!(parts(b"/etc", b"/"), ["etc", "etc", ""]);
    }
}
