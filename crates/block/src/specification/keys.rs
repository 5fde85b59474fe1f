//! Which keys there are, and which kind of disk takes which.

use super::Kind;

/// A key of a specification.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What its value looks like; `None`: it takes none.
    pub(super) value: Option<&'static str>,
    pub(super) kinds: &'static [Kind],
}

const ALL: &[Kind] = &Kind::ALL;
const FILE: &[Kind] = &[Kind::File];
const STORED: &[Kind] = &[Kind::File, Kind::Session];

/// In the order in which they are written.
pub(super) const KEYS: &[Key] = &[
    Key { name: "format", value: Some("raw, qcow2 or vmdk"), kinds: FILE },
    Key { name: "ro", value: None, kinds: ALL },
    Key { name: "direct", value: None, kinds: FILE },
    Key { name: "engine", value: Some("auto, uring, threads or sync"), kinds: FILE },
    Key { name: "cache", value: Some("unsafe"), kinds: FILE },
    Key {
        name: "block-size",
        value: Some("a size such as 4096 or 4K"),
        kinds: &[Kind::File, Kind::Memory, Kind::Null],
    },
    Key { name: "io-buffer", value: Some("a size such as 128K or 4M"), kinds: &[Kind::Session] },
    Key { name: "partition", value: Some("a number from 1"), kinds: STORED },
    Key { name: "table", value: Some("mbr or gpt"), kinds: STORED },
    Key { name: "overlay", value: Some("the path of a qcow2 image"), kinds: STORED },
    Key { name: "snapshot", value: None, kinds: STORED },
    Key { name: "iops", value: Some("a number of requests a second"), kinds: ALL },
    Key { name: "bps", value: Some("a size a second such as 100M"), kinds: ALL },
    Key { name: "burst", value: Some("a time such as 100ms"), kinds: ALL },
    Key { name: "latency", value: Some("a time such as 5ms"), kinds: ALL },
    Key { name: "faults", value: Some("faults such as read-error:0.01+seed:7"), kinds: ALL },
];

/// The names of the keys that a kind takes, as a list.
pub(super) fn names(kind: Kind) -> String {
    let names: Vec<_> = KEYS.iter().filter(|key| key.kinds.contains(&kind)).map(|key| key.name).collect();
    names.join(", ")
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
