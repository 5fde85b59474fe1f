//! What an image's /etc/fstab wants mounted (fstab(5)), and what its /etc/crypttab calls what is encrypted
//! (crypttab(5)).

/// Lines that are looked at: an image may have any number.
const LINES_MAX: usize = 64;

/// File systems that lie on no disk, or on somebody else's.
const ELSEWHERE: [&str; 8] = ["tmpfs", "proc", "sysfs", "devpts", "nfs", "nfs4", "cifs", "9p"];

/// A line that wants something mounted below the root.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// UUID=, LABEL=, a path and so on.
    pub(crate) source: String,
    pub(crate) directory: String,
    /// Which subvolume, as btrfs's mount option.
    pub(crate) subvolume: Option<String>,
    /// Nobody minds when it is not there.
    pub(crate) optional: bool,
}

/// The lines that want something of a disk's mounted below the root, those above others first.
pub(crate) fn lines(fstab: &str) -> Vec<Line> {
    let mut lines: Vec<_> = fstab.lines().filter_map(parse).take(LINES_MAX).collect();
    lines.sort_by_key(|line| line.directory.bytes().filter(|&byte| byte == b'/').count());
    lines
}

fn parse(line: &str) -> Option<Line> {
    let mut fields = fields(line)?;
    let (source, directory, kind) = (unescape(fields.next()?), unescape(fields.next()?), fields.next()?);
    let options: Vec<_> = fields.next().unwrap_or("defaults").split(',').collect();
    let is = |wanted: &str| options.contains(&wanted);
    // The root is there already.
    let wanted = directory.starts_with('/') && !directory.trim_end_matches('/').is_empty() && kind != "swap";
    let on_disk = source.starts_with("/dev/") || source.contains('=');
    if !wanted || !on_disk || ELSEWHERE.contains(&kind) || is("noauto") || is("bind") || is("rbind") {
        return None;
    }
    let option = |name: &str| options.iter().find(|option| option.starts_with(name));
    let subvolume = option("subvol=").or_else(|| option("subvolid=")).map(|&option| unescape(option));
    Some(Line { source, directory, subvolume, optional: is("nofail") })
}

/// What /etc/crypttab opens under the name `name`: a path, UUID= and so on.
pub(crate) fn encrypted_source(crypttab: &str, name: &str) -> Option<String> {
    let lines = crypttab.lines().take(LINES_MAX).filter_map(fields);
    lines
        .filter_map(|mut fields| (unescape(fields.next()?) == name).then(|| fields.next()).flatten().map(unescape))
        .next()
}

fn fields(line: &str) -> Option<std::str::SplitWhitespace<'_>> {
    (!line.trim_start().starts_with('#')).then(|| line.split_whitespace())
}

/// Spaces and the like are a backslash and three octal digits.
fn unescape(field: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        let number = octal.map(|digits| digits.iter().fold(0u32, |number, digit| number * 8 + u32::from(digit - b'0')));
        match number.and_then(|number| u8::try_from(number).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_want_something_of_a_disk_below_the_root() {
        let fstab = "# comment\n\
            UUID=aa / ext4 defaults 0 1\n\
            LABEL=a#b /a/home ext4 defaults 0 2\n\
            /dev/sda3 /boot\\040x vfat ro\n\
            UUID=bb none swap sw\n\
            UUID=bb /later ext4 noauto\n\
            tmpfs /tmp tmpfs defaults\n\
            server:/export /net nfs4 defaults\n\
            /home /also none bind\n\
            UUID=cc /var btrfs compress=zstd,subvol=/@var,nofail\n\
            broken\n";
        let line = |source: &str, directory: &str, subvolume: Option<&str>| Line {
            source: source.into(),
            directory: directory.into(),
            subvolume: subvolume.map(str::to_owned),
            optional: subvolume.is_some(),
        };
        let wanted = [
            line("/dev/sda3", "/boot x", None),
            line("UUID=cc", "/var", Some("subvol=/@var")),
            line("LABEL=a#b", "/a/home", None),
        ];
        assert_eq!(lines(fstab), wanted);
    }

    #[test]
    fn crypttab_gives_names_to_what_is_encrypted() {
        let crypttab = "# name device\nsda3_crypt UUID=1234 none luks\nswap /dev/sda9 /dev/urandom\nbroken\n";
        assert_eq!(encrypted_source(crypttab, "sda3_crypt").as_deref(), Some("UUID=1234"));
        assert_eq!(encrypted_source(crypttab, "broken"), None);
        assert_eq!(encrypted_source(crypttab, "other"), None);
    }

    #[test]
    fn octal_digits_are_bytes() {
        assert_eq!(unescape("a\\040b\\134040\\9\\04\\777"), "a b\\040\\9\\04\\777");
    }
}
