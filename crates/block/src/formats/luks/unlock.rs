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
    let scheme = header.scheme().map_err(UnlockError::Unusable)?;
    let active: Vec<_> = header.slots.iter().filter(|slot| slot.is_active).collect();
    check_cost(header, &active, scheme).map_err(UnlockError::Unusable)?;
    let mut material = vec![0; scheme.material_bytes()];
    for slot in &active {
        read(&mut material, slot.key_offset_bytes).map_err(UnlockError::Read)?;
        if let Some(cipher) = try_slot(header, slot, scheme, passphrase, &mut material) {
            return Ok(cipher);
        }
    }
    Err(UnlockError::Unusable(match active.len() {
        0 => "is encrypted, and no passphrase opens it any more: all of its key slots are empty".to_owned(),
        count => format!(
            "is encrypted by another passphrase than that of the key file (all that it has, {count}, were tried)"
        ),
    }))
}

fn check_cost(header: &LuksHeader, active: &[&LuksSlot], scheme: Scheme) -> Result<(), String> {
    let counts = active.iter().map(|slot| slot.iterations).chain([header.iterations]);
    if let Some(slot) = active.iter().find(|slot| slot.stripes as usize != STRIPES) {
        return Err(format!("is damaged: a key slot has {} stripes instead of {STRIPES}", slot.stripes));
    }
    if counts.clone().any(|count| count == 0) {
        return Err("is damaged: a key is derived in no iteration".to_owned());
    }
    let check = scheme.hash.rounds(header.iterations, DIGEST_BYTES);
    let costs = active.iter().map(|slot| scheme.hash.rounds(slot.iterations, scheme.key_bytes).saturating_add(check));
    let cost = costs.fold(0, u64::saturating_add);
    if cost > ROUNDS_MAX {
        return Err(format!(
            "would take {cost} rounds of {} to open, and {ROUNDS_MAX} are the most that are computed here",
            scheme.hash.name()
        ));
    }
    Ok(())
}

fn try_slot(
    header: &LuksHeader,
    slot: &LuksSlot,
    scheme: Scheme,
    passphrase: &[u8],
    material: &mut [u8],
) -> Option<SectorCipher> {
    let Scheme { mode, hash, key_bytes } = scheme;
    let mut derived = Zeroizing::new(vec![0; key_bytes]);
    hash.derive(passphrase, &slot.salt, slot.iterations, &mut derived);
    SectorCipher::new(mode, &derived)?.decrypt(0, material);
    let key = stripes::merge(material, key_bytes, hash);
    zeroize::Zeroize::zeroize(material);
    (digest(header, scheme, &key) == header.digest).then(|| SectorCipher::new(mode, &key)).flatten()
}

/// By what a header knows a volume's key.
pub(super) fn digest(header: &LuksHeader, scheme: Scheme, key: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut digest = [0; DIGEST_BYTES];
    scheme.hash.derive(key, &header.salt, header.iterations, &mut digest);
    digest
}
