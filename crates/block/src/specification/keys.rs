//! Which keys there are, and which of them a kind of disk takes.

use super::hindrances;

/// A key of a specification.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What its value looks like; `None`: it takes none.
    pub(super) value: Option<&'static str>,
}

impl Key {
    /// Whether it may be said more than once: of different images.
    pub(super) fn may_repeat(&self) -> bool {
        self.name == "backing-key-file"
    }
}

/// In the order in which they are written, before those of [`hindrances`].
pub(super) const KEYS: &[Key] = &[
    Key { name: "format", value: Some("raw, qcow2, luks, vmdk, vdi, vpc, vhdx, qed, parallels or ova") },
    Key { name: "snapshot-name", value: Some("the id or the name of a snapshot that a qcow2 image has inside") },
    Key { name: "key-file", value: Some("a file that has the passphrase of an encrypted image, and nothing else") },
    Key { name: "backing-key-file", value: Some("[N:]FILE, the same of the image that is number N behind it, or 1") },
    Key { name: "disk", value: Some("the number of a disk in an OVA, from 1") },
    Key { name: "ro", value: None },
    Key { name: "direct", value: None },
    Key { name: "engine", value: Some("auto, uring, threads or sync") },
    Key { name: "cache", value: Some("unsafe") },
    Key { name: "block-size", value: Some("a size such as 4096 or 4K") },
    Key { name: "io-buffer", value: Some("a size such as 128K or 4M") },
    Key { name: "partition", value: Some("a number from 1") },
    Key { name: "table", value: Some("mbr or gpt") },
    Key { name: "overlay", value: Some("the path of a qcow2 image") },
    Key { name: "snapshot", value: None },
];

/// The keys that a kind of disk takes.
#[derive(Clone, Copy)]
pub(super) struct KeysTaken {
    /// What such a disk is called.
    pub(super) taker: &'static str,
    /// Those that not every kind takes: every kind takes `ro`, and what makes a disk slow or bad.
    pub(super) own: &'static [&'static str],
}

impl KeysTaken {
    fn iter(self) -> impl Iterator<Item = &'static Key> {
        let taken = KEYS.iter().filter(move |key| key.name == "ro" || self.own.contains(&key.name));
        taken.chain(&hindrances::KEYS)
    }

    /// The one of this name.
    pub(super) fn find(self, name: &str) -> Option<&'static Key> {
        self.iter().find(|key| key.name == name)
    }

    /// Why a key that there is cannot be said once more: it has been, or is not for this kind of disk.
    pub(super) fn refused(self, name: &str) -> String {
        match self.find(name) {
            Some(_) => format!("the key '{name}' is there twice; once is enough"),
            None => self.unknown(name),
        }
    }

    /// Why there is no key of this name.
    pub(super) fn unknown(self, name: &str) -> String {
        let taker = self.taker;
        let known = self.iter().map(|key| key.name).collect::<Vec<_>>().join(", ");
        if name.is_empty() {
            return format!("there is nothing between two commas, or after the last; {taker} takes {known}");
        }
        if KEYS.iter().any(|key| key.name == name) {
            return format!("'{name}' is not for {taker}, which takes {known}");
        }
        match nearest(name, self.iter().map(|key| key.name)) {
            Some(nearest) => format!("there is no key '{name}'; did you mean '{nearest}'? {taker} takes {known}"),
            None => format!(
                "there is no key '{name}': {taker} takes {known}; a comma that belongs to the path is written twice"
            ),
        }
    }
}

/// Of `words` the one that `word` most likely stands for; `None` when it is like none of them.
pub(super) fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let distances = words.map(|candidate| (distance(word, candidate), candidate));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1.max(nearest.len() / 3)).then_some(nearest)
}

/// Letters to insert, drop, replace or swap with their neighbour: optimal string alignment. Words much longer than any
/// key are like none.
fn distance(a: &str, b: &str) -> usize {
    const LETTERS_MAX: usize = 32;
    let [a, b] = [a, b].map(|word| word.chars().take(LETTERS_MAX + 1).collect::<Vec<_>>());
    if a.len().max(b.len()) > LETTERS_MAX {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i.max(j)
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let swapped = if swapped { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                replaced.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}
