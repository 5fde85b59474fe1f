//! Numbers of headers, wherever those end.

/// What a header is read from. Asking behind its end is an error, which goes on after the image's path.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes<const N: usize>(self, at: usize) -> Result<[u8; N], String> {
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.copied().ok_or_else(|| "is cut off in its header".to_owned())
    }

    /// The rest, from an offset on.
    pub(super) fn from(self, at: usize) -> Self {
        Self(self.0.get(at..).unwrap_or_default())
    }

    pub(super) fn begins_with(self, bytes: &[u8]) -> bool {
        self.0.starts_with(bytes)
    }

    pub(super) fn le16(self, at: usize) -> Result<u16, String> {
        self.bytes(at).map(u16::from_le_bytes)
    }

    pub(super) fn le32(self, at: usize) -> Result<u32, String> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    pub(super) fn le64(self, at: usize) -> Result<u64, String> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    pub(super) fn be16(self, at: usize) -> Result<u16, String> {
        self.bytes(at).map(u16::from_be_bytes)
    }

    pub(super) fn be32(self, at: usize) -> Result<u32, String> {
        self.bytes(at).map(u32::from_be_bytes)
    }

    pub(super) fn be64(self, at: usize) -> Result<u64, String> {
        self.bytes(at).map(u64::from_be_bytes)
    }
}

/// Whether `length` bytes from `offset` lie within the first `end`.
pub(super) fn lies_within(offset: u64, length: u64, end: u64) -> bool {
    offset.checked_add(length).is_some_and(|last| last <= end)
}
