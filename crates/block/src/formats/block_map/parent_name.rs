//! The names that an image, mostly of Windows, has for its parent, as files that can be looked for here.
//!
//! A relative path starts from the image's directory. Of an absolute one, which has a drive, a volume or a server that
//! is not here, the end is looked for: the file's name beside the image, and as many directories of the path as match
//! below each allowed directory. All of that goes through [`AllowedDirectories`], so that nothing else is opened.

use crate::AllowedDirectories;

/// Most names of a path that are looked for.
const COMPONENTS_MAX: usize = 16;

/// Paths of Windows, in the order in which they are tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ParentNames {
    /// As files here are named.
    exact: Vec<String>,
    relative: Vec<String>,
    absolute: Vec<String>,
}

impl ParentNames {
    /// One that may be a file's here, or one of Windows.
    pub(super) fn add_any(&mut self, path: String) {
        let begins_with_drive = path.as_bytes().get(1) == Some(&b':');
        if begins_with_drive || path.starts_with(r"\\") {
            return self.add_absolute(Some(path));
        }
        self.exact.push(path.clone());
        match path.starts_with('/') {
            true => self.add_absolute(Some(path)),
            false => self.add_relative(Some(path)),
        }
    }

    pub(super) fn add_relative(&mut self, path: Option<String>) {
        self.relative.extend(path.filter(|path| !path.is_empty()));
    }

    pub(super) fn add_absolute(&mut self, path: Option<String>) {
        self.absolute.extend(path.filter(|path| !path.is_empty()));
    }

    /// The path that says most, for people.
    pub(super) fn shown(&self) -> Option<&str> {
        self.absolute.iter().chain(&self.relative).next().map(String::as_str)
    }

    /// Names to look for, the best first.
    pub(super) fn candidates(&self, allowed: &AllowedDirectories) -> Vec<String> {
        let mut names = Vec::new();
        let mut add = |name: String| {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        };
        self.exact.iter().cloned().for_each(&mut add);
        for path in &self.relative {
            add(components(path).join("/"));
        }
        let absolute = self.absolute.iter().chain(&self.relative).map(|path| below_root(path));
        let absolute: Vec<_> = absolute.collect();
        for path in &absolute {
            add(path.last().map_or_else(String::new, ToString::to_string));
        }
        for path in &absolute {
            for from in 0..path.len() {
                for directory in allowed.paths() {
                    let name = directory.join(path[from..].join("/"));
                    add(name.to_str().map_or_else(String::new, str::to_owned));
                }
            }
        }
        names
    }
}

/// The names of a path, without a drive or another beginning that only Windows knows.
fn components(path: &str) -> Vec<&str> {
    let path = path.trim_end_matches('\0');
    let path = path.strip_prefix("file://").unwrap_or(path);
    let path = path.strip_prefix(r"\\?\").or(path.strip_prefix(r"\\.\")).unwrap_or(path);
    let mut names: Vec<_> = path.split(['\\', '/']).filter(|name| !matches!(*name, "" | ".")).collect();
    let is_drive = |name: &&str| name.len() == 2 && name.ends_with(':');
    let is_volume = |name: &&str| name.starts_with("Volume{") && name.ends_with('}');
    let is_unc = |name: &&str| *name == "UNC";
    if names.first().is_some_and(|name| is_drive(name) || is_volume(name) || is_unc(name)) {
        names.remove(0);
    }
    names
}

/// The same of an absolute path, whose end alone means something here.
fn below_root(path: &str) -> Vec<&str> {
    let names = components(path);
    let down = names.iter().rposition(|name| *name == "..").map_or(0, |up| up + 1);
    let names = names.get(down..).unwrap_or_default();
    names.get(names.len().saturating_sub(COMPONENTS_MAX)..).unwrap_or_default().to_vec()
}

/// Text of 16 bits a letter, up to a zero or the end; `None` for what is no text.
pub(super) fn from_utf16(bytes: &[u8], number: fn([u8; 2]) -> u16) -> Option<String> {
    let units = bytes.as_chunks().0.iter().map(|&unit| number(unit)).take_while(|&unit| unit != 0);
    char::decode_utf16(units).collect::<Result<String, _>>().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_windows_become_names() {
        for (path, wanted) in [
            (r"C:\vm\disks\base.vhd", &["vm", "disks", "base.vhd"][..]),
            (r"\\?\d:\path2\sub3\parent.vhdx", &["path2", "sub3", "parent.vhdx"]),
            (r"\\?\Volume{26A21BDA-A627-11D7-9931-806E6F6E6963}\a\b.vhdx", &["a", "b.vhdx"]),
            (r"\\server\share\b.vhd", &["server", "share", "b.vhd"]),
            (r"\\?\UNC\server\share\b.vhd", &["server", "share", "b.vhd"]),
            (r".\b.vhd", &["b.vhd"]),
            (r"..\..\path2\b.vhd", &["..", "..", "path2", "b.vhd"]),
            ("file://localhost/a/b.vhd", &["localhost", "a", "b.vhd"]),
            ("b.vhd\0\0", &["b.vhd"]),
            ("", &[]),
        ] {
            assert_eq!(components(path), wanted, "{path}");
        }
        assert_eq!(below_root(r"C:\a\..\b\c.vhd"), ["b", "c.vhd"]);
        assert_eq!(below_root(&r"\a".repeat(100)).len(), COMPONENTS_MAX);
    }

    #[test]
    fn candidates_lie_beside_the_image_or_below_what_is_allowed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap();
        let allowed = AllowedDirectories::new(&[&path]).unwrap();
        let mut names = ParentNames::default();
        names.add_absolute(Some(r"C:\vm\base.vhd".into()));
        names.add_relative(Some(r"..\vm\base.vhd".into()));
        let below = |name: &str| path.join(name).to_str().unwrap().to_owned();
        let wanted = ["../vm/base.vhd".to_owned(), "base.vhd".to_owned(), below("vm/base.vhd"), below("base.vhd")];
        assert_eq!(names.candidates(&allowed), wanted);
        assert_eq!(names.shown(), Some(r"C:\vm\base.vhd"));
    }

    #[test]
    fn text_of_16_bits_ends_at_a_zero() {
        assert_eq!(from_utf16(b"a\0b\0\0\0c\0", u16::from_le_bytes).as_deref(), Some("ab"));
        assert_eq!(from_utf16(b"\0a\0b\0", u16::from_be_bytes).as_deref(), Some("ab"));
        assert_eq!(from_utf16(b"\x00\xd8a\0", u16::from_le_bytes), None);
    }
}
