//! Further connections of a client's: what is the same at both ends.
//!
//! One client at a time has a disk, which may be several processes that share it, as those of `blockyard attach` do. So
//! that none of them stands between another and the server, the client asks on its first connection for further ones
//! ([`ADD_CONNECTION`](code::ADD_CONNECTION), with one end of a stream), and gives the other ends away. They serve the
//! same disk with the same rights, share the first one's part of an I/O thread, cannot ask for more, and end with it.
//!
//! A process may go on before what it wrote is carried out, and be killed. What comes of it the client hears on another
//! stream ([`SETTLE_CONNECTIONS`](code::SETTLE_CONNECTIONS)): once all is done that was available on these connections
//! then, the server sends a [`FurtherReport`] there, and closes it.

#[cfg(doc)]
use crate::vhost_user::code;
use blockyard_devices::virtio::QueueCounts;

/// What all further connections of a client have had so far, those that are over included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FurtherReport {
    /// Requests, bytes, kicks, notifications and errors.
    pub counts: QueueCounts,
    /// Why the first write that the disk had taken failed: an errno.
    pub first_write_errno: Option<i32>,
}

/// Of a report: the counts, then the errno or zero, each in 64 bits as the machine has them.
pub(crate) const REPORT_BYTES: usize = 8 * (QueueCounts::COUNT + 1);

impl FurtherReport {
    pub(crate) fn to_bytes(self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0; REPORT_BYTES];
        let errno = self.first_write_errno.map_or(0, |errno| u64::from(errno.unsigned_abs()));
        let words = self.counts.to_words().into_iter().chain([errno]);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; REPORT_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |&word| u64::from_ne_bytes(word));
        let counts = QueueCounts::from_words(std::array::from_fn(word));
        let first_write_errno = i32::try_from(word(QueueCounts::COUNT)).ok().filter(|&errno| errno > 0);
        Self { counts, first_write_errno }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let counts = QueueCounts::from_words(std::array::from_fn(|index| u64::MAX - index as u64));
        for first_write_errno in [None, Some(libc::ENOSPC)] {
            let report = FurtherReport { counts, first_write_errno };
            assert_eq!(FurtherReport::from_bytes(&report.to_bytes()), report);
        }
        assert_eq!(FurtherReport::from_bytes(&[0xff; REPORT_BYTES]).first_write_errno, None);
    }
}
