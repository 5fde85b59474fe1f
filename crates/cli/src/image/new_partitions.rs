//! `--table` and `--part`: the partitions of a new image.

use crate::{UsageError, size};
use anyhow::{Result, bail};
use blockyard_block::partition_table::{NewPartition, PartitionKind, Scheme};
use clap::ValueEnum;

/// A kind of table by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableKind {
    /// A GPT.
    Gpt,
    /// An MBR.
    #[value(alias = "mbr", alias = "msdos")]
    Dos,
}

impl From<TableKind> for Scheme {
    fn from(kind: TableKind) -> Self {
        match kind {
            TableKind::Gpt => Self::Gpt,
            TableKind::Dos => Self::Mbr,
        }
    }
}

/// Reads what each `--part` says: `SIZE|rest[,type=TYPE][,name=NAME][,bootable]`.
///
/// # Errors
/// [`UsageError`] for what makes no sense.
pub fn parse(texts: &[String], scheme: Scheme) -> Result<Vec<NewPartition>> {
    texts.iter().map(|text| parse_one(text, scheme)).collect()
}

fn parse_one(text: &str, scheme: Scheme) -> Result<NewPartition> {
    let wrong = |problem: String| UsageError(format!("--part {text}: {problem}"));
    let mut parts = text.split(',');
    let length_bytes = match parts.next() {
        Some("rest") => None,
        size => Some(size::parse(size.unwrap_or_default()).map_err(wrong)?),
    };
    let mut new = NewPartition { length_bytes, kind: kind("linux", scheme)?, name: String::new(), is_bootable: false };
    for part in parts {
        match part.split_once('=').unwrap_or((part, "")) {
            ("type", word) => new.kind = kind(word, scheme).map_err(|problem| wrong(problem.to_string()))?,
            ("name", name) if scheme == Scheme::Gpt => new.name = name.to_owned(),
            ("name", _) => bail!(wrong("partitions of an MBR have no names".to_owned())),
            ("bootable", "") => new.is_bootable = true,
            ("fs" | "label", _) => bail!(wrong(
                "file systems cannot be made yet: make the partition without fs= and label=, and the file system in a virtual machine"
                    .to_owned()
            )),
            (key, _) => {
                bail!(wrong(format!("'{key}' is nothing a partition has: type=TYPE, name=NAME and bootable are")));
            }
        }
    }
    Ok(new)
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
        let [boot, root]: [NewPartition; 2] = parse(&parts, Scheme::Gpt).unwrap().try_into().unwrap();
        assert_eq!((boot.length_bytes, boot.name.as_str()), (Some(512 << 20), "boot"));
        assert_eq!(boot.kind.name(), Some("EFI System"));
        assert_eq!((root.length_bytes, root.is_bootable), (None, true));
        assert_eq!(root.kind.name(), Some("Linux filesystem"));
        assert_eq!(parse(&["1G,type=82".to_owned()], Scheme::Mbr).unwrap()[0].kind, PartitionKind::Mbr(0x82));
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
            ("1G,fs=ext4", Scheme::Gpt, "file systems"),
            ("1G,label=root", Scheme::Gpt, "file systems"),
        ] {
            let error = parse(&[text.to_owned()], scheme).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(word), "{error}");
        }
    }
}
