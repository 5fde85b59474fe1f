//! gzip's members, one behind the other.

use flate2::bufread::GzDecoder;
use std::io::{self, BufRead, Read};

/// What a member begins with.
const MEMBER: u8 = 0x1f;

/// What the members decompress to, with nothing behind the last one but zeros.
pub(super) struct GzipMembers<R> {
    /// `None` at the end.
    member: Option<GzDecoder<R>>,
    /// There was an error, after which nothing is known of what follows.
    has_failed: bool,
}

impl<R: BufRead> GzipMembers<R> {
    pub(super) fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)), has_failed: false }
    }
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.has_failed {
            return Err(io::Error::other("it could not be read before"));
        }
        // Until it is known to be none.
        self.has_failed = true;
        let count = self.read_members(bytes)?;
        self.has_failed = false;
        Ok(count)
    }
}

impl<R: BufRead> GzipMembers<R> {
    fn read_members(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::GzEncoder;
    use std::io::BufReader;

    /// Fails once, in the middle.
    struct FailsOnce<'a> {
        left: &'a [u8],
        fails_before: usize,
    }

    impl Read for FailsOnce<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            if self.left.len() == self.fails_before {
                self.fails_before = usize::MAX;
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            self.left.read(&mut bytes[..1])
        }
    }

    #[test]
    fn what_could_not_be_read_is_never_its_end() {
        let mut file = Vec::new();
        GzEncoder::new(&[7; 10_000][..], Compression::new(1)).read_to_end(&mut file).unwrap();
        for fails_before in 1..file.len() {
            let mut members = GzipMembers::new(BufReader::new(FailsOnce { left: &file, fails_before }));
            let mut bytes = Vec::new();
            assert_eq!(members.read_to_end(&mut bytes).unwrap_err().raw_os_error(), Some(libc::EIO));
            members.read_to_end(&mut bytes).unwrap_err();
        }
    }
}
