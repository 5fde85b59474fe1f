//! The anti-forensic splitter, section 2.4: of a key that is spread so, a disk that kept a few of its sectors keeps
//! nothing.

use super::hash::Hash;
use zeroize::Zeroizing;

/// Pieces that a key is spread over: what every writer of LUKS 1 takes.
pub(super) const STRIPES: usize = 4000;

/// The key that is spread over `material`.
pub(super) fn merge(material: &[u8], key_bytes: usize, hash: Hash) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; key_bytes]);
    let mut stripes = material.chunks_exact(key_bytes.max(1)).take(STRIPES).peekable();
    while let Some(stripe) = stripes.next() {
        xor(&mut key, stripe);
        if stripes.peek().is_some() {
            diffuse(&mut key, hash);
        }
    }
    key
}

/// Spreads `key` over `material`, which is random and as long as all stripes.
pub(super) fn split(key: &[u8], material: &mut [u8], hash: Hash) {
    let mut sum = Zeroizing::new(vec![0; key.len()]);
    let mut stripes = material.chunks_exact_mut(key.len().max(1)).take(STRIPES).peekable();
    while let Some(stripe) = stripes.next() {
        if stripes.peek().is_none() {
            stripe.copy_from_slice(key);
            return xor(stripe, &sum);
        }
        xor(&mut sum, stripe);
        diffuse(&mut sum, hash);
    }
}

fn xor(into: &mut [u8], with: &[u8]) {
    into.iter_mut().zip(with).for_each(|(into, with)| *into ^= with);
}

/// Each piece of the hash's length becomes the hash of its number and itself.
fn diffuse(bytes: &mut [u8], hash: Hash) {
    for (number, piece) in (0_u32..).zip(bytes.chunks_mut(hash.bytes())) {
        let hashed = hash.digest(&[&number.to_be_bytes(), piece]);
        piece.iter_mut().zip(&*hashed).for_each(|(byte, hashed)| *byte = *hashed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_split_is_merged() {
        for (_, hash) in Hash::NAMES {
            for key_bytes in [16, 24, 32, 48, 64] {
                let key: Vec<u8> = (1..=key_bytes as u8).collect();
                let mut material: Vec<u8> = (0..key_bytes * STRIPES).map(|n| (n * n / 3) as u8).collect();
                split(&key, &mut material, hash);
                assert_eq!(*merge(&material, key_bytes, hash), key);
                material[key_bytes + 1] ^= 1;
                assert_ne!(*merge(&material, key_bytes, hash), key);
            }
        }
    }
}
