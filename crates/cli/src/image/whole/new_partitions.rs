//! `--table` and `--part`: the partitions of a new image, and the file systems on them.

use anyhow::{Result, bail};
use blockyard_block::partition_table::{NewPartition, PartitionKind, Scheme};
use blockyard_block::size;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::volumes::file_system_kind::FileSystemKind;
use blockyard_image::whole::create::{WantedFileSystem, WantedPartition};
use clap::ValueEnum;

/// A kind of table by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableKind {
    /// A GPT.
    Gpt,
    /// An MBR.
    #[value(alias = "dos", alias = "msdos")]
    Mbr,
}

impl From<TableKind> for Scheme {
    fn from(kind: TableKind) -> Self {
        match kind {
            TableKind::Gpt => Self::Gpt,
            TableKind::Mbr => Self::Mbr,
        }
    }
}

/// Reads what `fs=` and `label=` say.
///
/// # Errors
/// [`UsageError`] for what makes no sense.
pub fn file_system(kind: Option<&str>, label: Option<&str>) -> Result<Option<WantedFileSystem>> {
    let label = label.unwrap_or_default().to_owned();
    let Some(word) = kind else {
        if label.is_empty() {
            return Ok(None);
        }
        bail!(UsageError(format!("the label '{label}' is a file system's: say which kind, such as fs=ext4")));
    };
    let Some(kind) = FileSystemKind::of_word(word) else {
        let kinds: Vec<_> = FileSystemKind::ALL.iter().map(|kind| kind.name()).collect();
        bail!(UsageError(format!("no file system '{word}' can be made: {}", kinds.join(", "))));
    };
    kind.check_label(&label)?;
    Ok(Some(WantedFileSystem { kind, label }))
}

/// What `--help` says of `--part`.
pub fn help() -> String {
    let words = |scheme| PartitionKind::words(scheme).collect::<Vec<_>>().join(", ");
    let kinds: Vec<_> = FileSystemKind::ALL.iter().map(|kind| kind.name()).collect();
    format!(
        "A partition: SIZE or rest, then ,type=TYPE, ,name=NAME, ,bootable, ,fs=KIND, ,label=LABEL; may be given more than once\n\n\
         TYPE in a GPT: {}, or a GUID. In an MBR: {}, or two hexadecimal digits. KIND: {}.",
        words(Scheme::Gpt),
        words(Scheme::Mbr),
        kinds.join(", "),
    )
}

/// What `--help` says of `--fs`.
pub fn file_system_help() -> String {
    format!("Make a file system on the disk, which has no partitions: {}", FileSystemKind::list("or"))
}

/// Reads what each `--part` says: `SIZE|rest[,type=TYPE][,name=NAME][,bootable][,fs=KIND][,label=LABEL]`.
///
/// # Errors
/// [`UsageError`] for what makes no sense.
pub fn parse(texts: &[String], scheme: Scheme) -> Result<Vec<WantedPartition>> {
    texts.iter().map(|text| parse_one(text, scheme)).collect()
}

fn parse_one(text: &str, scheme: Scheme) -> Result<WantedPartition> {
    let wrong = |problem: String| UsageError(format!("--part {text}: {problem}"));
    let mut parts = text.split(',');
    let length_bytes = match parts.next() {
        Some("rest") => None,
        size => Some(size::parse(size.unwrap_or_default()).map_err(wrong)?),
    };
    let (mut kind_word, mut name, mut is_bootable) = (None, String::new(), false);
    let (mut fs, mut label) = (None, None);
    for part in parts {
        match part.split_once('=').unwrap_or((part, "")) {
            ("type", word) => kind_word = Some(word),
            ("name", text) if scheme == Scheme::Gpt => name = text.to_owned(),
            ("name", _) => bail!(wrong("partitions of an MBR have no names".to_owned())),
            ("bootable", "") => is_bootable = true,
            ("fs", word) => fs = Some(word),
            ("label", text) => label = Some(text),
            (key, _) => bail!(wrong(format!(
                "'{key}' is nothing a partition has: type=TYPE, name=NAME, bootable, fs=KIND and label=LABEL are"
            ))),
        }
    }
    let file_system = file_system(fs, label).map_err(|problem| wrong(problem.to_string()))?;
    let usual = match &file_system {
        Some(wanted) if wanted.kind == FileSystemKind::Swap => "swap",
        _ => "linux",
    };
    let kind = kind(kind_word.unwrap_or(usual), scheme).map_err(|problem| wrong(problem.to_string()))?;
    Ok(WantedPartition { partition: NewPartition { length_bytes, kind, name, is_bootable }, file_system })
}

fn kind(word: &str, scheme: Scheme) -> Result<PartitionKind> {
    PartitionKind::of_word(word, scheme).ok_or_else(|| {
        let words: Vec<_> = PartitionKind::words(scheme).collect();
        let own = if scheme == Scheme::Gpt { "a GUID" } else { "two hexadecimal digits" };
        UsageError(format!("no type '{word}': {}, or {own}", words.join(", "))).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_read_as_it_is_written() {
        let parts = ["512M,type=esp,name=boot", "rest,bootable"].map(str::to_owned);
        let parsed = parse(&parts, Scheme::Gpt).unwrap();
        let [boot, root] = [0, 1].map(|index| &parsed[index].partition);
        assert_eq!((boot.length_bytes, boot.name.as_str()), (Some(512 << 20), "boot"));
        assert_eq!(boot.kind.name(), Some("EFI System"));
        assert_eq!((root.length_bytes, root.is_bootable), (None, true));
        assert_eq!(root.kind.name(), Some("Linux filesystem"));
        assert_eq!(parse(&["1G,type=82".to_owned()], Scheme::Mbr).unwrap()[0].partition.kind, PartitionKind::Mbr(0x82));
    }

    #[test]
    fn file_systems_come_with_their_labels() {
        let parts = ["1G,fs=swap", "rest,fs=ext4,label=root", "1G"].map(str::to_owned);
        let parsed = parse(&parts, Scheme::Mbr).unwrap();
        let wanted = |kind, label: &str| Some(WantedFileSystem { kind, label: label.to_owned() });
        assert_eq!(parsed[0].file_system, wanted(FileSystemKind::Swap, ""));
        assert_eq!(parsed[0].partition.kind, PartitionKind::Mbr(0x82));
        assert_eq!(parsed[1].file_system, wanted(FileSystemKind::Ext4, "root"));
        assert_eq!((&parsed[2].file_system, parsed[2].partition.kind), (&None, PartitionKind::Mbr(0x83)));
    }

    #[test]
    fn what_a_partition_has_not_is_refused() {
        for (text, scheme, word) in [
            ("", Scheme::Gpt, "size"),
            ("big", Scheme::Gpt, "size"),
            ("1G,type=moon", Scheme::Gpt, "esp"),
            ("1G,type=luks", Scheme::Mbr, "hexadecimal"),
            ("1G,name=x", Scheme::Mbr, "names"),
            ("1G,colour=red", Scheme::Gpt, "colour"),
            ("1G,fs=ext5", Scheme::Gpt, "btrfs"),
            ("1G,label=root", Scheme::Gpt, "fs=ext4"),
            ("1G,fs=vfat,label=much-too-long", Scheme::Gpt, "11 bytes"),
        ] {
            let error = parse(&[text.to_owned()], scheme).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(word), "{error}");
        }
    }
}
