//! Users and groups by name, as the image's own /etc/passwd and /etc/group have them (passwd(5), group(5)).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

/// Bytes that are looked at.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longest name that is one: twice as long as useradd(8) has them.
const NAME_BYTES_MAX: usize = 64;

/// Names by number and numbers by name.
#[derive(Default)]
pub(crate) struct OwnerNames {
    names: HashMap<u32, String>,
    numbers: HashMap<String, u32>,
}

impl OwnerNames {
    pub(crate) fn users() -> Self {
        Self::parse(&read("/etc/passwd"))
    }

    pub(crate) fn groups() -> Self {
        Self::parse(&read("/etc/group"))
    }

    fn parse(text: &str) -> Self {
        let mut owners = Self::default();
        for line in text.lines() {
            let mut fields = line.split(':');
            if let (Some(name), Some(_), Some(Ok(number))) =
                (fields.next(), fields.next(), fields.next().map(str::parse::<u32>))
                && name.len() <= NAME_BYTES_MAX
            {
                owners.names.entry(number).or_insert_with(|| name.to_owned());
                owners.numbers.entry(name.to_owned()).or_insert(number);
            }
        }
        owners
    }

    /// Empty when there is none.
    pub(crate) fn name(&self, number: u32) -> String {
        self.names.get(&number).cloned().unwrap_or_default()
    }

    /// A name's number, or a number's own.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let number = self.numbers.get(name).copied().or_else(|| name.parse().ok());
        // For the kernel it means that the owner stays.
        number.filter(|&number| number != u32::MAX)
    }
}

fn read(path: &str) -> String {
    let mut text = Vec::new();
    let not_waiting = File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32).open(path);
    if let Ok(file) = not_waiting {
        // As far as it can be read: without names there are numbers.
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut text);
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts_and_odd_ones_do_not() {
        let owners = OwnerNames::parse("root:x:0:0::/root:/bin/sh\nnonsense\ntoor:x:0:\nme:x:1000\nbad:x:-1\n");
        assert_eq!(OwnerNames::parse(&format!("{}:x:7\n", "x".repeat(1000))).name(7), "");
        assert_eq!(owners.name(0), "root");
        assert_eq!((owners.number("toor"), owners.number("me"), owners.number("77")), (Some(0), Some(1000), Some(77)));
        assert_eq!(owners.number("4294967295"), None);
        assert_eq!((owners.number("bad"), owners.name(5).as_str()), (None, ""));
    }
}
