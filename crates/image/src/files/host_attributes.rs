//! Extended attributes of the host's files (xattr(7)).

use blockyard_archive::attributes;
use blockyard_protocol::appliance::Attribute;
use std::path::Path;

/// What an attribute takes in a message besides its name and value.
pub(super) const OVERHEAD_BYTES: usize = 16;

/// All attributes of the file at `path` that belong to it, if they fit so many bytes and can be read. Those of a link
/// are its own.
pub(super) fn attributes_within(path: &Path, bytes_max: usize) -> Option<Vec<Attribute>> {
    let attributes = attributes(path).ok()?;
    let bytes: usize = attributes.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD_BYTES).sum();
    let attribute = |(name, value)| Attribute { name, value };
    (bytes <= bytes_max).then(|| attributes.into_iter().map(attribute).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{XattrFlags, setxattr};

    #[test]
    fn attributes_come_whole_or_not_at_all() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(attributes_within(file.path(), 1000), Some(Vec::new()));
        let (name, value) = (b"user.name".to_vec(), vec![b'x'; 100]);
        setxattr(file.path(), &name[..], &value, XattrFlags::empty()).unwrap();
        setxattr(file.path(), "user.nothing", b"", XattrFlags::empty()).unwrap();
        let mut found = attributes_within(file.path(), 1000).unwrap();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let nothing = Attribute { name: b"user.nothing".to_vec(), value: Vec::new() };
        assert_eq!(found, [Attribute { name, value }, nothing]);
        let all = "user.nameuser.nothing".len() + 100 + 2 * OVERHEAD_BYTES;
        assert!(attributes_within(file.path(), all).is_some());
        for bytes_max in [0, 1, 10, 30, 100, all - 1] {
            assert_eq!(attributes_within(file.path(), bytes_max), None, "{bytes_max}");
        }
    }
}
