//! Identifiers of file systems, arrays and partitions (RFC 9562).

/// A UUID as people write it.
pub(crate) fn uuid_text(uuid: &[u8]) -> String {
    let dash = |index: usize| if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
    uuid.iter().enumerate().map(|(index, byte)| format!("{}{byte:02x}", dash(index))).collect()
}
