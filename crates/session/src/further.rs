//! Further connections of a client's: what is the same at both ends.
//!
//! One client at a time has a disk, which may be several processes that share it, as those of `blockyard attach` do. So
//! that none of them stands between another and the server, the client asks on its first connection for further ones
//! ([`ADD_CONNECTION`](code::ADD_CONNECTION), with one end of a stream), and gives the other ends away. They serve the
//! same disk with the same rights, share the first one's part of an I/O thread, cannot ask for more, and end with it.
//! What all of them have had, the first one may ask ([`GET_CONNECTION_COUNTS`](code::GET_CONNECTION_COUNTS)), and
//! whether all is done that they had made available ([`SETTLE_CONNECTIONS`](code::SETTLE_CONNECTIONS)).

#[cfg(doc)]
use crate::vhost_user::code;
use blockyard_devices::virtio::QueueCounts;

/// Of an answer: requests, bytes, kicks, notifications and errors, each in 64 bits as the machine has them.
pub(crate) const COUNTS_BYTES: usize = 8 * QueueCounts::COUNT;

pub(crate) fn to_bytes(counts: QueueCounts) -> [u8; COUNTS_BYTES] {
    let mut bytes = [0; COUNTS_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(counts.to_words()) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

pub(crate) fn from_bytes(bytes: &[u8; COUNTS_BYTES]) -> QueueCounts {
    let (words, _) = bytes.as_chunks();
    QueueCounts::from_words(std::array::from_fn(|index| words.get(index).map_or(0, |&word| u64::from_ne_bytes(word))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        let counts = QueueCounts::from_words(std::array::from_fn(|index| u64::MAX - index as u64));
        assert_eq!(from_bytes(&to_bytes(counts)), counts);
    }
}
