//! From a passphrase to a volume's key: section 3.

use super::cipher::SectorCipher;
use super::header::{DIGEST_BYTES, LuksHeader, LuksSlot, Scheme};
use super::stripes::{self, STRIPES};
use std::io;
use zeroize::Zeroizing;

/// How often a hash is computed, at most, to try all passphrases of a header: what a header may make us do. These are
/// minutes; writers of headers aim at seconds.
pub(super) const ROUNDS_MAX: u64 = 1 << 29;

/// Why a volume has no key here.
#[derive(Debug)]
pub(in crate::formats) enum UnlockError {
    /// What is wrong, as it goes on after the volume's name.
    Unusable(String),
    /// The key material cannot be read.
    Read(io::Error),
}

/// The key of a volume by this passphrase, whichever of its slots that is for. `read` reads what lies so many bytes
/// behind the header's beginning.
///
/// # Errors
/// When no slot is for it, or the header makes no sense or is not supported.
pub(in crate::formats) fn unlock(
    header: &LuksHeader,
    passphrase: &[u8],
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<SectorCipher, UnlockError> {
    unlock_within(header, passphrase, read, ROUNDS_MAX)
}

/// The same, in so many rounds.
fn unlock_within(
    header: &LuksHeader,
    passphrase: &[u8],
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    rounds_max: u64,
) -> Result<SectorCipher, UnlockError> {
    let scheme = header.scheme().map_err(UnlockError::Unusable)?;
    let (_, key) = first_of(header, slots(header, scheme, passphrase, &read, |_| true, rounds_max)?)?;
    SectorCipher::new(scheme.cipher, scheme.mode, &key)
        .ok_or_else(|| UnlockError::Unusable("has a key that cannot be".to_owned()))
}

/// The first slot that is for this passphrase, and the volume's key.
///
/// # Errors
/// As [`unlock`].
pub(super) fn unlock_slot(
    header: &LuksHeader,
    passphrase: &[u8],
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<(usize, VolumeKey), UnlockError> {
    let scheme = header.scheme().map_err(UnlockError::Unusable)?;
    first_of(header, slots(header, scheme, passphrase, &read, |_| true, ROUNDS_MAX)?)
}

/// All of these slots that are for this passphrase, each of which is tried once.
///
/// # Errors
/// When the header makes no sense, or its key material cannot be read.
pub(super) fn slots_opened_by(
    header: &LuksHeader,
    passphrase: &[u8],
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    among: impl Fn(usize) -> bool,
) -> Result<Vec<usize>, UnlockError> {
    let scheme = header.scheme().map_err(UnlockError::Unusable)?;
    slots(header, scheme, passphrase, &read, among, ROUNDS_MAX)?.map(|opened| Ok(opened?.0)).collect()
}

/// A volume's key.
pub(super) type VolumeKey = Zeroizing<Vec<u8>>;

/// Those `among` the slots that are for a passphrase, one by one, as each takes its time.
fn slots<'a>(
    header: &'a LuksHeader,
    scheme: Scheme,
    passphrase: &'a [u8],
    read: &'a impl Fn(&mut [u8], u64) -> io::Result<()>,
    among: impl Fn(usize) -> bool + 'a,
    rounds_max: u64,
) -> Result<impl Iterator<Item = Result<(usize, VolumeKey), UnlockError>> + 'a, UnlockError> {
    check(header, scheme).map_err(UnlockError::Unusable)?;
    let digest_rounds = scheme.hash.rounds(header.iterations, DIGEST_BYTES);
    let cost =
        move |slot: &LuksSlot| scheme.hash.rounds(slot.iterations, scheme.key_bytes).saturating_add(digest_rounds);
    let tried = move |(index, slot): &(usize, &LuksSlot)| slot.is_active && among(*index);
    let mut tried = header.slots.iter().enumerate().filter(tried);
    let (mut rounds_left, mut left_out) = (rounds_max, None);
    let mut material = vec![0; scheme.material_bytes()];
    // One slot suffices: what others would cost does not matter until none that can be afforded is for the passphrase.
    Ok(std::iter::from_fn(move || {
        for (index, slot) in tried.by_ref() {
            let Some(left) = rounds_left.checked_sub(cost(slot)) else {
                left_out = Some(cost(slot));
                continue;
            };
            rounds_left = left;
            if let Err(error) = read(&mut material, slot.key_offset_bytes) {
                return Some(Err(UnlockError::Read(error)));
            }
            if let Some(key) = try_slot(header, slot, scheme, passphrase, &mut material) {
                return Some(Ok((index, key)));
            }
        }
        let hash = scheme.hash.name();
        left_out.take().map(|rounds| {
            Err(UnlockError::Unusable(format!(
                "would take {rounds} rounds of {hash} to open by one of its key slots, and {rounds_max} are the most that \
                 are computed here for all of them"
            )))
        })
    }))
}

fn first_of(
    header: &LuksHeader,
    mut slots: impl Iterator<Item = Result<(usize, VolumeKey), UnlockError>>,
) -> Result<(usize, VolumeKey), UnlockError> {
    slots.next().unwrap_or_else(|| {
        Err(UnlockError::Unusable(match header.slots.iter().filter(|slot| slot.is_active).count() {
            0 => "is encrypted, and no passphrase opens it any more: all of its key slots are empty".to_owned(),
            count => format!(
                "is encrypted by another passphrase than that of the key file (all that it has, {count}, were tried)"
            ),
        }))
    })
}

/// Makes sure that what derives a key makes sense, and lies where it can.
fn check(header: &LuksHeader, scheme: Scheme) -> Result<(), String> {
    header.check_places(scheme, u64::MAX)?;
    let mut active = header.slots.iter().filter(|slot| slot.is_active);
    if let Some(slot) = active.clone().find(|slot| slot.stripes as usize != STRIPES) {
        return Err(format!("is damaged: a key slot has {} stripes instead of {STRIPES}", slot.stripes));
    }
    if header.iterations == 0 || active.any(|slot| slot.iterations == 0) {
        return Err("is damaged: a key is derived in no iteration".to_owned());
    }
    Ok(())
}

fn try_slot(
    header: &LuksHeader,
    slot: &LuksSlot,
    scheme: Scheme,
    passphrase: &[u8],
    material: &mut [u8],
) -> Option<VolumeKey> {
    let Scheme { cipher, mode, hash, key_bytes } = scheme;
    let mut derived = Zeroizing::new(vec![0; key_bytes]);
    hash.derive(passphrase, &slot.salt, slot.iterations, &mut derived);
    SectorCipher::new(cipher, mode, &derived)?.decrypt(0, material);
    let key = stripes::merge(material, key_bytes, hash);
    zeroize::Zeroize::zeroize(material);
    (digest(header, scheme, &key) == header.digest).then_some(key)
}

/// By what a header knows a volume's key.
pub(super) fn digest(header: &LuksHeader, scheme: Scheme, key: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    scheme.hash.derive(key, &header.salt, header.iterations, &mut digest);
    digest
}

#[cfg(test)]
mod tests {
    use super::super::header::HEADER_BYTES;
    use super::super::{LuksOptions, NewVolume};
    use super::*;

    /// Where a header has its numbers, and its texts begin.
    const FIELDS: [usize; 14] = [4, 8, 40, 72, 104, 108, 112, 132, 164, 168, 208, 212, 248, 252];

    /// A slot that nobody has to try does not keep the others from opening the volume.
    #[test]
    fn slots_are_tried_as_long_as_that_is_affordable() {
        let mut options = LuksOptions::default();
        options.set("iter-time", "1").unwrap();
        let made = NewVolume::make(&options, b"word").unwrap();
        let read = |bytes: &mut [u8], at: u64| {
            let found = made.head.get(at as usize..).and_then(|rest| rest.get(..bytes.len()));
            bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        let mut header = LuksHeader::parse(&made.head[..HEADER_BYTES].try_into().unwrap()).unwrap();
        let scheme = header.scheme().unwrap();
        let hash = scheme.hash;
        let rounds = hash.rounds(header.slots[0].iterations, scheme.key_bytes) + hash.rounds(header.iterations, 20);
        let (dear, other) = (LuksSlot { iterations: u32::MAX, ..header.slots[0] }, header.slots[1].key_offset_bytes);
        header.slots[1] = header.slots[0];
        header.slots[0] = LuksSlot { key_offset_bytes: other, ..dear };
        assert!(unlock_within(&header, b"word", read, rounds).is_ok());
        for (word, rounds) in [(&b"other"[..], rounds), (b"word", rounds - 1)] {
            match unlock_within(&header, word, read, rounds) {
                Err(UnlockError::Unusable(problem)) => assert!(problem.starts_with("would take"), "{problem}"),
                _ => panic!("it opens"),
            }
        }
    }

    /// A header whose numbers were changed, one or several: in its slots, too, and key material anywhere.
    #[test]
    fn fuzz_a_spoiled_header_ends_in_a_sentence_or_a_key() {
        let mut options = LuksOptions::default();
        options.set("iter-time", "1").unwrap();
        let made = NewVolume::make(&options, b"word").unwrap();
        let read = |bytes: &mut [u8], at: u64| {
            let start = usize::try_from(at).map_err(io::Error::other)?;
            let found = start.checked_add(bytes.len()).and_then(|end| made.head.get(start..end));
            bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        // Random salts and keys do not change which numbers are judged how.
        blockyard_fuzz::check!(400).with_type::<Vec<(u8, u8, u8, u32)>>().for_each(|changes| {
            let mut bytes: [u8; HEADER_BYTES] = made.head[..HEADER_BYTES].try_into().unwrap();
            for &(field, slot, how, value) in changes {
                let field = FIELDS[usize::from(field) % FIELDS.len()];
                let at = if field >= 208 { field + usize::from(slot % 8) * 48 } else { field };
                let old = u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
                let new = match how % 8 {
                    0 => 0,
                    1 => 1,
                    2 => u32::MAX,
                    3 => u32::MAX - 1,
                    4 => old.wrapping_add(1),
                    5 => 0x00ac_71f3,
                    6 => 4000,
                    _ => value,
                };
                bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
            }
            let Some(header) = LuksHeader::parse(&bytes) else { return };
            match unlock_within(&header, b"word", read, 20_000) {
                Ok(cipher) => cipher.encrypt(0, &mut [0; 512]),
                Err(UnlockError::Unusable(problem)) => assert!(!problem.is_empty() && !problem.contains('\n')),
                Err(UnlockError::Read(_)) => {}
            }
        });
    }
}
