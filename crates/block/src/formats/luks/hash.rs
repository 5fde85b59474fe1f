//! Hashes of headers: section 4.4.

use hmac::digest::Digest;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// A hash, as headers call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Ripemd160,
}

impl Hash {
    pub(super) const NAMES: [(&'static str, Self); 6] = [
        ("sha1", Self::Sha1),
        ("sha224", Self::Sha224),
        ("sha256", Self::Sha256),
        ("sha384", Self::Sha384),
        ("sha512", Self::Sha512),
        ("ripemd160", Self::Ripemd160),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, hash)| *hash == self).map_or("", |(name, _)| name)
    }

    /// Bytes that come out.
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Sha1 | Self::Ripemd160 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// The hash of these, one after the other.
    pub(super) fn digest(self, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Sha1 => digest::<Sha1>(parts),
            Self::Sha224 => digest::<Sha224>(parts),
            Self::Sha256 => digest::<Sha256>(parts),
            Self::Sha384 => digest::<Sha384>(parts),
            Self::Sha512 => digest::<Sha512>(parts),
            Self::Ripemd160 => digest::<Ripemd160>(parts),
        }
    }

    /// PBKDF2 (RFC 8018, 5.2), with HMAC.
    pub(super) fn derive(self, passphrase: &[u8], salt: &[u8], iterations: u32, key: &mut [u8]) {
        match self {
            Self::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(passphrase, salt, iterations, key),
            Self::Sha224 => pbkdf2::pbkdf2_hmac::<Sha224>(passphrase, salt, iterations, key),
            Self::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(passphrase, salt, iterations, key),
            Self::Sha384 => pbkdf2::pbkdf2_hmac::<Sha384>(passphrase, salt, iterations, key),
            Self::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(passphrase, salt, iterations, key),
            Self::Ripemd160 => pbkdf2::pbkdf2_hmac::<Ripemd160>(passphrase, salt, iterations, key),
        }
    }

    /// What deriving costs: how often two hashes are computed.
    pub(super) fn rounds(self, iterations: u32, key_bytes: usize) -> u64 {
        u64::from(iterations).saturating_mul(key_bytes.div_ceil(self.bytes()) as u64)
    }
}

fn digest<D: Digest>(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let mut hash = D::new();
    parts.iter().for_each(|part| hash.update(part));
    Zeroizing::new(hash.finalize().to_vec())
}
