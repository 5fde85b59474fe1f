//! A directory of the host's that the guest may mount.

use super::text;
use blockyard_block::size;
use blockyard_share::Tag;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::str::FromStr;

/// A directory, and the name by which the guest mounts it: `mount -t virtiofs TAG /mnt`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Share {
    /// The directory.
    pub directory: PathBuf,
    /// Its name in the guest.
    #[serde(with = "text::plain")]
    pub tag: Tag,
    /// Whether the guest cannot change anything in it.
    #[serde(default)]
    pub read_only: bool,
    /// How much the guest may write into it in all, each time that it boots: bytes, and 4096 for each name.
    #[serde(with = "text::optional_bytes", default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// The text is no share.
#[derive(Debug, PartialEq, Eq)]
pub struct BadShare(String);

impl std::fmt::Display for BadShare {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for BadShare {}

impl FromStr for Share {
    type Err = BadShare;

    /// `DIR:TAG[,ro][,limit=SIZE]`.
    fn from_str(text: &str) -> Result<Self, BadShare> {
        let (rest, limit) = match text.rsplit_once(",limit=") {
            Some((rest, limit)) => (rest, Some(size::parse(limit).map_err(BadShare)?)),
            None => (text, None),
        };
        let (rest, read_only) = rest.strip_suffix(",ro").map_or((rest, false), |rest| (rest, true));
        let Some((directory, tag)) = rest.rsplit_once(':') else {
            return Err(BadShare(format!("'{text}' does not say by which name the guest mounts it: DIR:TAG")));
        };
        if directory.is_empty() {
            return Err(BadShare(format!("'{text}' names no directory: DIR:TAG")));
        }
        let tag = tag.parse().map_err(|error: blockyard_share::BadTag| BadShare(error.to_string()))?;
        Ok(Self { directory: directory.into(), tag, read_only, limit })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_directory_and_a_tag() {
        let share = |text: &str| text.parse::<Share>();
        let tag = "work".parse().unwrap();
        let expected = Share { directory: "./a:b".into(), tag, read_only: true, limit: None };
        assert_eq!(share("./a:b:work,ro").unwrap(), expected);
        assert_eq!(share("./a:b:work,ro,limit=1M").unwrap(), Share { limit: Some(1 << 20), ..expected });
        assert!(!share("/srv:work").unwrap().read_only);
        for (text, word) in [
            ("work", "DIR:TAG"),
            (":work", "no directory"),
            ("a:", "no tag"),
            ("a:b c", "no tag"),
            ("a:b,rw", "no tag"),
            ("a:b,limit=1M,ro", "not a size"),
            ("a:..", "no tag"),
            ("a:0123456789012345678901234567890123456", "no tag"),
        ] {
            assert!(share(text).unwrap_err().to_string().contains(word), "{text}");
        }
    }
}
