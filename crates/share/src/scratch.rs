//! The memory that a queue's requests take, kept from one to the next.

use crate::message::REQUEST_BYTES_MAX;
use crate::reply::Reply;
use std::mem::MaybeUninit;

/// Bytes of the longest reply but for data that are read: entries of directories, and attributes' names and values.
const REPLY_BYTES_MAX: usize = 64 << 10;

/// As much as any request takes.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// What the guest asks, copied.
    pub(crate) request: Box<[u8]>,
    /// What it is answered.
    pub(crate) reply: Reply,
    /// What the answer may have: what the guest has room for, if that is less.
    pub(crate) room_bytes: usize,
    /// What the kernel tells of directories and attributes.
    pub(crate) space: Box<[MaybeUninit<u8>]>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let space = vec![MaybeUninit::uninit(); REPLY_BYTES_MAX].into_boxed_slice();
        let request = vec![0; REQUEST_BYTES_MAX].into_boxed_slice();
        Self { request, reply: Reply::default(), room_bytes: 0, space }
    }

    /// For another request, whose answer may have so many bytes.
    pub(crate) fn begin(&mut self, room_bytes: u64) {
        self.reply.clear();
        self.room_bytes = usize::try_from(room_bytes).unwrap_or(usize::MAX).min(REPLY_BYTES_MAX);
    }
}
