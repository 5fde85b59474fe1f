//! Which key opens which image of a chain.

use super::KeyFile;
use std::collections::BTreeMap;

/// The key files of an image and of those behind it. An image is never tried with a key that is another one's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainKeys {
    own: Option<KeyFile>,
    /// By how many images are in front of the one that it is for, at least 1.
    behind: BTreeMap<usize, KeyFile>,
}

impl ChainKeys {
    /// `own`: the image's key; `behind`: those of the images behind it, each with how many are in front of it. Without
    /// one of these, the image's is that of all.
    pub fn new(own: Option<KeyFile>, behind: BTreeMap<usize, KeyFile>) -> Self {
        Self { own, behind }
    }

    /// The image's own.
    pub fn own(&self) -> Option<&KeyFile> {
        self.own.as_ref()
    }

    /// Those that are for one image behind it alone.
    pub fn behind(&self) -> &BTreeMap<usize, KeyFile> {
        &self.behind
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.own.is_none() && self.behind.is_empty()
    }

    /// The one of the image that so many are in front of.
    pub(in crate::formats) fn of(&self, depth: usize) -> Option<&KeyFile> {
        match depth {
            0 => self.own(),
            _ if self.behind.is_empty() => self.own(),
            depth => self.behind.get(&depth),
        }
    }

    /// One that no image of a chain needs, of which `encrypted` are encrypted: the key it is said by.
    pub(crate) fn needless(&self, encrypted: &[usize]) -> Option<String> {
        let needless = self.behind.keys().find(|depth| !encrypted.contains(depth));
        if let Some(depth) = needless {
            return Some(format!("backing-key-file={depth}:"));
        }
        let is_needed = encrypted.iter().any(|&depth| self.behind.is_empty() || depth == 0);
        (self.own.is_some() && !is_needed).then(|| "key-file=".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_for_one_image_or_the_only_one() {
        let (own, other) = (KeyFile::new("own"), KeyFile::new("other"));
        let only = ChainKeys::new(Some(own.clone()), BTreeMap::new());
        assert_eq!((only.of(0), only.of(3)), (Some(&own), Some(&own)));
        assert_eq!((only.needless(&[2]), only.needless(&[])), (None, Some("key-file=".to_owned())));
        let each = ChainKeys::new(Some(own.clone()), BTreeMap::from([(2, other.clone())]));
        assert_eq!((each.of(0), each.of(1), each.of(2)), (Some(&own), None, Some(&other)));
        assert_eq!(each.needless(&[0, 2]), None);
        assert_eq!(each.needless(&[2]), Some("key-file=".to_owned()));
        assert_eq!(each.needless(&[0, 1]), Some("backing-key-file=2:".to_owned()));
    }
}
