//! Manifests: `SHA256(name)= digest` in each line.

use super::members::Member;
use crate::formats::block_map::ImageFile;
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use std::collections::BTreeSet;
use std::io;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// Most digests.
const DIGESTS_MAX: usize = 4096;

/// A member, and what its bytes come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    algorithm: Algorithm,
    name: String,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    Sha1,
    Sha256,
    Sha512,
}

/// Reads the whole text. The error goes on after the archive's path.
pub(super) fn parse(text: &str) -> Result<Vec<Digest>, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let digests = lines.take(DIGESTS_MAX + 1).map(|line| {
        let shown: String = line.chars().take(100).flat_map(char::escape_debug).collect();
        Digest::parse(line).ok_or_else(|| format!("has a manifest with a line that cannot be understood: `{shown}`"))
    });
    let digests = digests.collect::<Result<Vec<_>, _>>()?;
    if digests.len() > DIGESTS_MAX {
        return Err(format!("has a manifest of more than {DIGESTS_MAX} lines"));
    }
    // Each member is read once.
    let mut names = BTreeSet::new();
    if let Some(twice) = digests.iter().find(|digest| !names.insert(digest.name.as_str())) {
        return Err(format!("has a manifest with two digests of {:?}", twice.name));
    }
    Ok(digests)
}

impl Digest {
    fn parse(line: &str) -> Option<Self> {
        let (algorithm, rest) = line.split_once('(')?;
        let algorithm = match algorithm.trim().to_ascii_uppercase().as_str() {
            "SHA1" => Algorithm::Sha1,
            "SHA256" => Algorithm::Sha256,
            "SHA512" => Algorithm::Sha512,
            _ => return None,
        };
        // A name may have such signs itself.
        let (name, digest) = rest.rsplit_once('=')?;
        let name = name.trim_end().strip_suffix(')')?.to_owned();
        let (pairs, odd) = digest.trim().as_bytes().as_chunks::<2>();
        let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let is_hexadecimal = digest.trim().bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes = pairs.iter().map(byte).collect::<Option<Vec<_>>>()?;
        let is_whole = odd.is_empty() && bytes.len() == algorithm.length();
        (is_hexadecimal && is_whole).then_some(Self { algorithm, name, bytes })
    }

    /// The member that it is of.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the member, and says whether it is this one's.
    pub(super) fn is_of(&self, file: &ImageFile, member: &Member) -> io::Result<bool> {
        Ok(match self.algorithm {
            Algorithm::Sha1 => digest::<Sha1>(file, member)? == self.bytes,
            Algorithm::Sha256 => digest::<Sha256>(file, member)? == self.bytes,
            Algorithm::Sha512 => digest::<Sha512>(file, member)? == self.bytes,
        })
    }
}

impl Algorithm {
    fn length(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

fn digest<D: sha2::Digest>(file: &ImageFile, member: &Member) -> io::Result<Vec<u8>> {
    let (mut digest, mut buffer) = (D::new(), vec![0; BUFFER_BYTES]);
    let (mut at, mut left) = (member.offset_bytes, member.length_bytes);
    while left > 0 {
        let (bytes, _) = buffer.split_at_mut(left.min(BUFFER_BYTES as u64) as usize);
        file.read(bytes, at)?;
        digest.update(&*bytes);
        at += bytes.len() as u64;
        left -= bytes.len() as u64;
    }
    Ok(digest.finalize().to_vec())
}
