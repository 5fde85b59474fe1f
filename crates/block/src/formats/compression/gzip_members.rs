//! gzip's members, one behind the other.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// What a member begins with.
const MEMBER: u8 = 0x1f;

/// What the members decompress to, with nothing behind the last one but zeros.
pub(super) struct GzipMembers<R> {
    /// `None` at the end, and after an error.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> GzipMembers<R> {
    pub(super) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)) }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while let Some(mut member) = self.member.take() {
            let count = member.read(bytes)?;
            if count > 0 || bytes.is_empty() {
                self.member = Some(member);
                return Ok(count);
            }
            // Its checksum and length were right.
            let mut input = member.into_inner();
            match input.fill_buf()?.first() {
                None => {}
                Some(0) => only_zeros(&mut input)?,
                Some(&MEMBER) => self.member = Some(GzDecoder::new(input)),
                Some(_) => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "there is more behind the last member"));
                }
            }
        }
        Ok(0)
    }
}

/// Reads to the end, as what tapes and blocks fill up with.
fn only_zeros(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.iter().any(|&byte| byte != 0) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there is more than zeros behind the last member"));
        }
        let count = bytes.len();
        input.consume(count);
    }
}
