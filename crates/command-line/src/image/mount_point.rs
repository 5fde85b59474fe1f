//! `-m PART[:DIR[:OPTIONS[:TYPE]]]`, as guestfish has it.

use crate::usage_error::UsageError;
use anyhow::Result;
use blockyard_protocol::appliance::MountPoint;

/// A subvolume's name begins with this, and so has a colon of its own.
const SUBVOLUME: &str = "btrfsvol:";

/// What shall be mounted where, and how.
///
/// # Errors
/// [`UsageError`] when it is none.
pub(super) fn parse(text: &str) -> Result<MountPoint> {
    let bad =
        || UsageError(format!("-m {text}: it is PART[:DIR[:OPTIONS[:TYPE]]], such as sda1 or sda2:/boot:noatime"));
    let (prefix, rest) = match text.strip_prefix(SUBVOLUME) {
        Some(rest) => (SUBVOLUME, rest),
        None => ("", text),
    };
    let mut fields = rest.splitn(4, ':');
    let mut field = || fields.next().unwrap_or_default();
    let (device, directory, options, kind) = (field(), field(), field(), field());
    let directory = if directory.is_empty() { "/" } else { directory };
    if device.is_empty() || !directory.starts_with('/') || kind.contains(':') {
        return Err(bad().into());
    }
    Ok(MountPoint {
        device: format!("{prefix}{device}"),
        directory: directory.as_bytes().to_vec(),
        options: options.as_bytes().to_vec(),
        r#type: kind.to_owned(),
        note: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_what_guestfish_takes() {
        let parsed = |text: &str| {
            let point = parse(text).ok()?;
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            Some((point.device, text(point.directory), text(point.options), point.r#type))
        };
        let point = |device: &str, directory: &str, options: &str, kind: &str| {
            Some((device.to_owned(), directory.to_owned(), options.to_owned(), kind.to_owned()))
        };
        assert_eq!(parsed("sda1"), point("sda1", "/", "", ""));
        assert_eq!(parsed("/dev/vg/root:/"), point("/dev/vg/root", "/", "", ""));
        assert_eq!(parsed("sda1:/:subvol=@:btrfs"), point("sda1", "/", "subvol=@", "btrfs"));
        assert_eq!(parsed("sda2::ro"), point("sda2", "/", "ro", ""));
        assert_eq!(parsed("btrfsvol:/dev/sda2/@home:/home"), point("btrfsvol:/dev/sda2/@home", "/home", "", ""));
        for bad in ["", ":/", "sda1:home", "sda1:/:ro:ext4:more", "btrfsvol:"] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
