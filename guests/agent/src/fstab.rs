//! What an image's /etc/fstab wants mounted (fstab(5)).

use crate::block_devices::{Volume, kernel_name};

/// Lines that are looked at: an image may have any number.
const LINES_MAX: usize = 64;

/// A line that names one of the image's own volumes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) volume: String,
    pub(crate) directory: String,
}

/// The lines that want one of `volumes` mounted below the root, those above others first.
pub(crate) fn lines(fstab: &str, volumes: &[Volume]) -> Vec<Line> {
    let mut lines: Vec<_> = fstab.lines().filter_map(|line| parse(line, volumes)).take(LINES_MAX).collect();
    lines.sort_by_key(|line| line.directory.bytes().filter(|&byte| byte == b'/').count());
    lines
}

fn parse(line: &str, volumes: &[Volume]) -> Option<Line> {
    let mut fields = line.split('#').next()?.split_whitespace();
    let (source, directory, kind) = (unescape(fields.next()?), unescape(fields.next()?), fields.next()?);
    let options = fields.next().unwrap_or("defaults");
    let wanted = directory.starts_with('/') && directory != "/" && kind != "swap";
    if !wanted || options.split(',').any(|option| option == "noauto" || option == "bind") {
        return None;
    }
    let unquoted = |text: &str| text.trim_matches('"').to_owned();
    let volume = match source.split_once('=') {
        Some(("UUID", uuid)) => {
            let uuid = unquoted(uuid);
            volumes.iter().find(|volume| volume.content.uuid.eq_ignore_ascii_case(&uuid))
        }
        Some(("LABEL", label)) => {
            let label = unquoted(label);
            volumes.iter().find(|volume| volume.content.label == label && !label.is_empty())
        }
        Some(_) => None,
        None => by_path(&source, volumes),
    }?;
    Some(Line { volume: volume.name.clone(), directory })
}

fn by_path<'volumes>(source: &str, volumes: &'volumes [Volume]) -> Option<&'volumes Volume> {
    if let Some(uuid) = source.strip_prefix("/dev/disk/by-uuid/") {
        return volumes.iter().find(|volume| volume.content.uuid.eq_ignore_ascii_case(uuid));
    }
    if let Some(label) = source.strip_prefix("/dev/disk/by-label/") {
        return volumes.iter().find(|volume| volume.content.label == label);
    }
    source.strip_prefix("/dev/")?;
    let name = kernel_name(source);
    volumes.iter().find(|volume| volume.name == name)
}

/// Spaces and the like are octal numbers in fstab.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_devices::Content;

    #[test]
    fn lines_name_volumes_by_uuid_label_and_path() {
        let volume = |name: &str, uuid: &str, label: &str| Volume {
            name: name.into(),
            content: Content { kind: Some("ext4"), uuid: uuid.into(), label: label.into() },
        };
        let volumes = [volume("vda1", "aa", ""), volume("vda2", "bb", "home"), volume("vda3", "cc", "")];
        let fstab = "# comment\n\
            UUID=aa / ext4 defaults 0 1\n\
            LABEL=home /a/home ext4 defaults 0 2\n\
            /dev/sda3 /boot\\040x vfat ro\n\
            UUID=bb none swap sw\n\
            UUID=bb /later ext4 noauto\n\
            tmpfs /tmp tmpfs defaults\n\
            UUID=dd /elsewhere ext4\n\
            broken\n";
        let line = |volume: &str, directory: &str| Line { volume: volume.into(), directory: directory.into() };
        assert_eq!(lines(fstab, &volumes), [line("vda3", "/boot x"), line("vda2", "/a/home")]);
    }
}
