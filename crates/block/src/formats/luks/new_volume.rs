//! Making volumes: a key out of the kernel's random numbers, and a header with one passphrase.

use super::cipher::{Cipher, Mode, SectorCipher};
use super::hash::Hash;
use super::header::{HEADER_BYTES, LuksHeader, LuksSlot, SALT_BYTES, SLOTS, Scheme};
use super::stripes::{self, STRIPES};
use super::unlock::{ROUNDS_MAX, digest};
use super::{KeyFile, SECTOR_BYTES};
use crate::partition_table::Guid;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// What key material begins with multiples of, in sectors, and data.
const SLOT_ALIGN_SECTORS: u64 = 8;
const PAYLOAD_ALIGN_SECTORS: u64 = LuksOptions::HEADER_BYTES / SECTOR_BYTES as u64;

/// Fewest iterations, however short the time.
const ITERATIONS_MIN: u32 = 1000;

/// How long it is measured how fast a hash is, at most.
const MEASURED: Duration = Duration::from_millis(200);

/// How a new volume is encrypted: what cryptsetup and QEMU take by themselves, if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LuksOptions {
    aes_bytes: usize,
    cipher_mode: String,
    vectors: String,
    vectors_hash: Option<String>,
    hash: Hash,
    time: Duration,
}

impl Default for LuksOptions {
    fn default() -> Self {
        Self {
            aes_bytes: 32,
            cipher_mode: "xts".to_owned(),
            vectors: "plain64".to_owned(),
            vectors_hash: None,
            hash: Hash::Sha256,
            time: Self::TIME,
        }
    }
}

impl LuksOptions {
    /// What a new volume has in front of its data, however it is encrypted.
    pub const HEADER_BYTES: u64 = 2 << 20;

    /// qemu-img's names.
    pub const NAMES: [&'static str; 6] =
        ["cipher-alg", "cipher-mode", "ivgen-alg", "ivgen-hash-alg", "hash-alg", "iter-time"];

    /// How long it takes to derive a key from a passphrase, if nothing else is said.
    pub const TIME: Duration = Duration::from_millis(2000);

    /// Reads how long that is to take, in milliseconds.
    ///
    /// # Errors
    /// When it is no such number.
    pub fn parse_time(text: &str) -> Result<Duration, String> {
        let milliseconds = text.parse().ok().filter(|time| (1..=60_000).contains(time));
        Ok(Duration::from_millis(milliseconds.ok_or("it is a number of milliseconds, at most 60000")?))
    }

    /// Says one of [`LuksOptions::NAMES`].
    ///
    /// # Errors
    /// What there is instead.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let known = |names: &[&'static str]| {
            if names.contains(&value) { Ok(value.to_owned()) } else { Err(format!("it is {}", names.join(", "))) }
        };
        match name {
            "cipher-alg" => {
                self.aes_bytes = match known(&["aes-128", "aes-192", "aes-256"])?.as_str() {
                    "aes-128" => 16,
                    "aes-192" => 24,
                    _ => 32,
                }
            }
            "cipher-mode" => self.cipher_mode = known(&["xts", "cbc"])?,
            "ivgen-alg" => self.vectors = known(&["plain64", "plain", "essiv"])?,
            "ivgen-hash-alg" => self.vectors_hash = Some(known(&["sha256"])?),
            "hash-alg" => {
                known(&Hash::NAMES.map(|(name, _)| name))?;
                self.hash = Hash::NAMES.iter().find(|(name, _)| *name == value).map_or(self.hash, |(_, hash)| *hash);
            }
            "iter-time" => self.time = Self::parse_time(value)?,
            _ => return Err(format!("the options of encryption are {}", Self::NAMES.join(", "))),
        }
        Ok(())
    }

    /// Whether these go together.
    ///
    /// # Errors
    /// When they do not: the name of one of them, and why.
    pub fn check(&self) -> Result<(), String> {
        self.scheme().map(drop)
    }

    fn scheme(&self) -> Result<Scheme, String> {
        let vectors = match self.vectors.as_str() {
            "essiv" => "essiv:sha256",
            _ if self.vectors_hash.is_some() => return Err("ivgen-hash-alg: it is for ivgen-alg=essiv".to_owned()),
            other => other,
        };
        let name = format!("{}-{vectors}", self.cipher_mode);
        let Some(&(_, mode)) = Mode::NAMES.iter().find(|(known, _)| *known == name) else {
            let known = Mode::NAMES.map(|(name, _)| name).join(", ");
            return Err(format!("cipher-mode: with ivgen-alg, it makes {name}, and possible are {known}"));
        };
        Ok(Scheme { cipher: Cipher::Aes, mode, hash: self.hash, key_bytes: mode.key_bytes(self.aes_bytes) })
    }
}

/// How something new is encrypted, and by which passphrase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLuks {
    /// Its passphrase.
    pub key: KeyFile,
    /// How.
    pub options: LuksOptions,
}

/// A volume that is new.
pub(in crate::formats) struct NewVolume {
    /// What lies in front of its data, as far as that is not zeros.
    pub(in crate::formats) head: Vec<u8>,
    /// Where its data begin.
    pub(in crate::formats) payload_offset_bytes: u64,
    /// Its key.
    pub(in crate::formats) cipher: SectorCipher,
}

impl NewVolume {
    /// One that this passphrase opens.
    ///
    /// # Errors
    /// When the options make no sense, or the system gives no random numbers.
    pub(in crate::formats) fn make(options: &LuksOptions, passphrase: &[u8]) -> io::Result<Self> {
        let scheme = options.scheme().map_err(io::Error::other)?;
        let Scheme { cipher, mode, key_bytes, .. } = scheme;
        let key = random(key_bytes)?;
        let cipher = SectorCipher::new(cipher, mode, &key).ok_or(io::ErrorKind::InvalidInput)?;
        let mut header = empty(scheme)?;
        let iterations = iterations(scheme, options.time);
        header.iterations = (iterations / 8).max(ITERATIONS_MIN);
        header.digest = digest(&header, scheme, &key);
        let mut head = Vec::new();
        if let Some(slot) = header.slots.first_mut() {
            let material = fill_slot(slot, scheme, &key, passphrase, iterations)?;
            head.resize(slot.key_offset_bytes as usize, 0);
            head.extend_from_slice(&material);
        }
        head[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        Ok(Self { head, payload_offset_bytes: header.payload_offset_bytes, cipher })
    }
}

/// Puts a passphrase that opens a volume by this key into a slot; what is to lie where the slot says.
pub(super) fn fill_slot(
    slot: &mut LuksSlot,
    scheme: Scheme,
    key: &[u8],
    passphrase: &[u8],
    iterations: u32,
) -> io::Result<Zeroizing<Vec<u8>>> {
    let Scheme { cipher, mode, hash, key_bytes } = scheme;
    let mut material = random(scheme.material_bytes())?;
    stripes::split(key, &mut material, hash);
    slot.salt.copy_from_slice(&random(SALT_BYTES)?);
    (slot.is_active, slot.iterations, slot.stripes) = (true, iterations, STRIPES as u32);
    let mut derived = Zeroizing::new(vec![0; key_bytes]);
    hash.derive(passphrase, &slot.salt, iterations, &mut derived);
    SectorCipher::new(cipher, mode, &derived).ok_or(io::ErrorKind::InvalidInput)?.encrypt(0, &mut material);
    Ok(material)
}

/// A header that nothing opens yet.
fn empty(scheme: Scheme) -> io::Result<LuksHeader> {
    let sector_bytes = SECTOR_BYTES as u64;
    let slot_sectors = (scheme.material_bytes() as u64).div_ceil(sector_bytes).next_multiple_of(SLOT_ALIGN_SECTORS);
    let end_sectors = SLOT_ALIGN_SECTORS + SLOTS as u64 * slot_sectors;
    let slot = |number: u64| LuksSlot {
        is_active: false,
        key_offset_bytes: (SLOT_ALIGN_SECTORS + number * slot_sectors) * sector_bytes,
        iterations: 0,
        stripes: STRIPES as u32,
        salt: [0; SALT_BYTES],
    };
    let mut header = LuksHeader {
        cipher: "aes".to_owned(),
        mode: scheme.mode.name().to_owned(),
        hash: scheme.hash.name().to_owned(),
        uuid: Guid::random()?.to_string().to_lowercase(),
        key_bytes: scheme.key_bytes as u32,
        payload_offset_bytes: end_sectors.next_multiple_of(PAYLOAD_ALIGN_SECTORS) * sector_bytes,
        iterations: 0,
        slots: (0..SLOTS as u64).map(slot).collect(),
        digest: [0; 20],
        salt: [0; SALT_BYTES],
    };
    header.salt.copy_from_slice(&random(SALT_BYTES)?);
    Ok(header)
}

/// How many iterations take about so long, here and now.
pub(super) fn iterations(scheme: Scheme, time: Duration) -> u32 {
    let mut key = Zeroizing::new(vec![0; scheme.key_bytes]);
    let mut iterations = ITERATIONS_MIN;
    let wanted = (time / 4).min(MEASURED);
    let elapsed = loop {
        let started = Instant::now();
        scheme.hash.derive(b"passphrase", &[0; SALT_BYTES], iterations, &mut key);
        let elapsed = started.elapsed();
        if elapsed >= wanted || iterations >= 1 << 26 {
            break elapsed;
        }
        iterations *= 2;
    };
    let most = ROUNDS_MAX / 4 / scheme.hash.rounds(1, scheme.key_bytes);
    let wanted = f64::from(iterations) * time.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
    // A number that is too large becomes the largest.
    (wanted as u64).clamp(u64::from(ITERATIONS_MIN), most) as u32
}

pub(super) fn random(length: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; length]);
    let mut filled = 0;
    while filled < length {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::unlock;
    use super::*;

    fn options(values: &[(&str, &str)]) -> LuksOptions {
        let mut options = LuksOptions::default();
        values.iter().for_each(|(name, value)| options.set(name, value).unwrap());
        options
    }

    #[test]
    fn what_is_made_is_opened_by_its_passphrase_alone() {
        for (_, hash) in Hash::NAMES.map(|(name, hash)| (hash, name)) {
            for (cipher, mode, vectors) in [
                ("aes-256", "xts", "plain64"),
                ("aes-128", "xts", "plain"),
                ("aes-256", "cbc", "essiv"),
                ("aes-192", "cbc", "plain64"),
                ("aes-128", "cbc", "plain"),
                ("aes-192", "xts", "plain64"),
            ] {
                let options = options(&[
                    ("cipher-alg", cipher),
                    ("cipher-mode", mode),
                    ("ivgen-alg", vectors),
                    ("hash-alg", hash),
                    ("iter-time", "1"),
                ]);
                let made = NewVolume::make(&options, b"word").unwrap();
                let header = LuksHeader::parse(made.head[..HEADER_BYTES].try_into().unwrap()).unwrap();
                assert_eq!(header.to_bytes(), made.head[..HEADER_BYTES]);
                assert_eq!(header.payload_offset_bytes, made.payload_offset_bytes);
                assert_eq!(made.payload_offset_bytes, LuksOptions::HEADER_BYTES);
                let open = |passphrase: &[u8]| {
                    unlock(&header, passphrase, |bytes, at| {
                        bytes.copy_from_slice(&made.head[at as usize..][..bytes.len()]);
                        Ok(())
                    })
                };
                let (mut theirs, mut ours) = ([5; 1024], [5; 1024]);
                open(b"word").unwrap().encrypt(3, &mut theirs);
                made.cipher.encrypt(3, &mut ours);
                assert_eq!(ours, theirs);
                assert!(open(b"word\n").is_err());
            }
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for values in [&[("cipher-mode", "cbc"), ("ivgen-hash-alg", "sha256")][..], &[("ivgen-alg", "essiv")]] {
            assert!(options(values).check().is_err(), "{values:?}");
        }
        for (name, value) in [
            ("cipher-alg", "serpent-256"),
            ("cipher-mode", "ecb"),
            ("ivgen-alg", "null"),
            ("ivgen-hash-alg", "sha1"),
            ("hash-alg", "md5"),
            ("iter-time", "0"),
            ("iter-time", "60001"),
            ("iter-time", "x"),
            ("slot", "1"),
        ] {
            assert!(LuksOptions::default().set(name, value).is_err(), "{name}={value}");
        }
    }
}
