//! Whose a file is, as far as numbers tell.
//!
//! All users whom a user namespace, an idmapped mount or a network file system has no number for are shown as one
//! (Linux, Documentation/admin-guide/sysctl/kernel.rst, `overflowuid` and `overflowgid`), which may be the number of a
//! user as well. So two files that show that number may be two users', and one that shows the number of this process
//! may be somebody else's.

use std::fs;
use std::sync::LazyLock;

/// What users and groups without a number are shown as, unless the system says otherwise.
const UNKNOWN: u32 = 65534;

/// Users and groups that there are: all numbers of 32 bits but the last, which means none.
const ALL: u64 = u32::MAX as u64;

/// Whether a number that the system has shown is certainly one user's, and nobody else's: what depends on whose a file
/// is goes by this.
pub fn is_one_user(user: u32) -> bool {
    static UNKNOWN_USER: LazyLock<u32> = LazyLock::new(|| number("/proc/sys/kernel/overflowuid"));
    user != *UNKNOWN_USER
}

/// Whether no user of this user namespace is without a number, if this is the one that those are shown as: then a file
/// can be given to whom it shows.
pub(crate) fn has_number(user: u32) -> bool {
    is_one_user(user) || has_all(&map("/proc/self/uid_map"))
}

/// The same of a group.
pub(crate) fn group_has_number(group: u32) -> bool {
    static UNKNOWN_GROUP: LazyLock<u32> = LazyLock::new(|| number("/proc/sys/kernel/overflowgid"));
    group != *UNKNOWN_GROUP || has_all(&map("/proc/self/gid_map"))
}

fn number(said_in: &str) -> u32 {
    fs::read_to_string(said_in).ok().and_then(|said| said.trim().parse().ok()).unwrap_or(UNKNOWN)
}

/// As it is told of this process; nothing where nobody tells.
fn map(said_in: &str) -> String {
    fs::read_to_string(said_in).unwrap_or_default()
}

fn has_all(map: &str) -> bool {
    let count = |line: &str| line.split_ascii_whitespace().nth(2).and_then(|count| count.parse().ok()).unwrap_or(0);
    map.lines().map(count).fold(0, u64::saturating_add) >= ALL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_all_users_leaves_nobody_without_a_number() {
        for (map, all) in [
            ("         0          0 4294967295\n", true),
            ("0 0 65534\n65534 70000 4294901761\n", true),
            ("0 100000 65536\n", false),
            ("65534 1001 1\n", false),
            ("", false),
            ("0 1\n", false),
            ("x 0 18446744073709551615\n0 0 18446744073709551615\n", true),
        ] {
            assert_eq!(has_all(map), all, "{map}");
        }
    }
}
