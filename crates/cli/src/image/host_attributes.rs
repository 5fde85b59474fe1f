//! Extended attributes of the host's files (xattr(7)).

use blockyard_protocol::appliance::Attribute;
use rustix::fs::{lgetxattr, llistxattr};
use rustix::io::Errno;
use std::path::Path;

/// What an attribute takes in a message besides its name and value.
pub const OVERHEAD_BYTES: usize = 16;

/// All attributes of the file at `path` that belong to it, if they fit so many bytes and can be read. Those of a link are its own.
pub fn attributes_within(path: &Path, bytes_max: usize) -> Option<Vec<Attribute>> {
    // A buffer without bytes asks for the length instead.
    let mut names = vec![0; bytes_max.max(1)];
    let length = match llistxattr(path, &mut names[..]) {
        // Some file systems have none at all.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        length => length.ok()?,
    };
    let (mut attributes, mut left) = (Vec::new(), bytes_max);
    for name in names[..length].split(|&byte| byte == 0).filter(|name| is_kept(name)) {
        left = left.checked_sub(name.len() + OVERHEAD_BYTES)?;
        let mut value = vec![0; left.max(1)];
        let length = match lgetxattr(path, name, &mut value[..]) {
            // Somebody has removed it.
            Err(Errno::NODATA) => continue,
            length => length.ok()?,
        };
        left = left.checked_sub(length)?;
        value.truncate(length);
        attributes.push(Attribute { name: name.to_vec(), value });
    }
    Some(attributes)
}

/// What belongs to a file, and not to the file system or the machine that it is on (attr's xattr.conf), as in archives.
fn is_kept(name: &[u8]) -> bool {
    let is_machines = name.starts_with(b"system.") && !name.starts_with(b"system.posix_acl_");
    !name.is_empty() && !is_machines && name != b"security.evm"
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
