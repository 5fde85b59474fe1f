//! Whose a file is, as far as numbers tell.
//!
//! In a user namespace, all users who have no number there are shown as one (Linux,
//! Documentation/admin-guide/sysctl/kernel.rst, `overflowuid`), which may be a user's number there as well. So two
//! files that show that number may be two users', and one that shows the number of this process may be somebody else's.

use rustix::process::geteuid;
use std::fs;

/// What users without a number are shown as.
const UNKNOWN: u32 = 65534;

/// Users that there are: all numbers of 32 bits but the last, which means none.
const USERS: u64 = u32::MAX as u64;

/// Whether a number that the system has shown is one user's, and nobody else's.
pub fn is_one_user(user: u32) -> bool {
    user != unknown() || has_all_users(&uid_map())
}

/// Whether a file of this owner is certainly this process's user's.
pub(crate) fn is_own(owner: u32) -> bool {
    is_same_user(owner, geteuid().as_raw())
}

/// Whether files of these two owners are certainly one user's.
pub(crate) fn is_same_user(one: u32, other: u32) -> bool {
    one == other && is_one_user(one)
}

/// Whether a number may be that of users outside of this user namespace, and is at most this process's own besides.
pub(crate) fn is_nobody_elses_here(user: u32) -> bool {
    !is_one_user(user) && (geteuid().as_raw() == user || !has(&uid_map(), user))
}

fn unknown() -> u32 {
    let said = fs::read_to_string("/proc/sys/kernel/overflowuid");
    said.ok().and_then(|said| said.trim().parse().ok()).unwrap_or(UNKNOWN)
}

/// As it is told of this process; nothing where nobody tells.
fn uid_map() -> String {
    fs::read_to_string("/proc/self/uid_map").unwrap_or_default()
}

/// The first number of each range, and how many there are.
fn ranges(map: &str) -> impl Iterator<Item = (u64, u64)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_ascii_whitespace().map(|number| number.parse().ok());
        let (first, _, count) = (numbers.next()??, numbers.next()?, numbers.next()??);
        Some((first, count))
    })
}

fn has_all_users(map: &str) -> bool {
    ranges(map).map(|(_, count)| count).fold(0, u64::saturating_add) >= USERS
}

fn has(map: &str, user: u32) -> bool {
    ranges(map).any(|(first, count)| (first..first.saturating_add(count)).contains(&user.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_of_all_users_leaves_nobody_without_a_number() {
        for (map, all, nobody) in [
            ("         0          0 4294967295\n", true, true),
            ("0 0 65534\n65534 70000 4294901761\n", true, true),
            ("0 100000 65536\n", false, true),
            ("0 1000 1\n1 100000 65533\n", false, false),
            ("65534 1001 1\n", false, true),
            ("", false, false),
            ("x 0 1\n18446744073709551615 0 18446744073709551615\n", true, false),
        ] {
            assert_eq!((has_all_users(map), has(map, 65534)), (all, nobody), "{map}");
        }
    }
}
