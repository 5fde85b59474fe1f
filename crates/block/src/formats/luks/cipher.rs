//! Sectors, encrypted and decrypted: each by itself, by its number.

use aes::cipher::consts::U16;
use aes::cipher::{
    Array, BlockCipherDecrypt, BlockCipherEncrypt, BlockModeDecrypt, BlockModeEncrypt, BlockSizeUser, InnerIvInit,
    KeyInit,
};
use aes::{Aes128, Aes192, Aes256};
use serpent::Serpent;
use std::fmt;
use twofish::Twofish;

/// The unit of encryption.
pub(in crate::formats) const SECTOR_BYTES: usize = 512;

/// Sectors whose tweaks are computed together.
const TWEAKS: usize = 8;

const SECTOR_BLOCKS: usize = SECTOR_BYTES / 16;

type Block = Array<u8, U16>;

/// What encrypts blocks of 16 bytes, as headers call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cipher {
    Aes,
    Serpent,
    Twofish,
}

impl Cipher {
    /// Its name in headers.
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("aes", Self::Aes), ("serpent", Self::Serpent), ("twofish", Self::Twofish)];
}

/// A way to encrypt sectors, as headers call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// `xts-plain64`. IEEE 1619: half of the key is for the sectors' numbers.
    XtsPlain64,
    /// `xts-plain`: of the number, 32 bits count.
    XtsPlain,
    /// `cbc-plain64`.
    CbcPlain64,
    /// `cbc-plain`.
    CbcPlain,
    /// `cbc-essiv:sha256`: sectors' numbers are encrypted by a hash of the key.
    CbcEssiv,
}

impl Mode {
    /// Its name in headers.
    pub(super) const NAMES: [(&'static str, Self); 5] = [
        ("xts-plain64", Self::XtsPlain64),
        ("xts-plain", Self::XtsPlain),
        ("cbc-plain64", Self::CbcPlain64),
        ("cbc-plain", Self::CbcPlain),
        ("cbc-essiv:sha256", Self::CbcEssiv),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }

    /// Bytes of a volume's key, for a cipher with keys of `cipher_bytes`.
    pub(super) fn key_bytes(self, cipher_bytes: usize) -> usize {
        match self {
            Self::XtsPlain64 | Self::XtsPlain => 2 * cipher_bytes,
            Self::CbcPlain64 | Self::CbcPlain | Self::CbcEssiv => cipher_bytes,
        }
    }
}

/// A key, ready to encrypt and to decrypt. It is wiped when it is dropped.
pub(in crate::formats) struct SectorCipher(Box<dyn Sectors>);

trait Sectors: Send + Sync {
    /// Whole sectors, the first of which has this number.
    fn encrypt(&self, first_sector: u64, bytes: &mut [u8]);
    fn decrypt(&self, first_sector: u64, bytes: &mut [u8]);
}

impl SectorCipher {
    /// A cipher in a mode. `None` for a key of another length than it takes.
    pub(super) fn new(cipher: Cipher, mode: Mode, key: &[u8]) -> Option<Self> {
        let cipher_bytes = key.len() / mode.key_bytes(1);
        let sectors = match (cipher, cipher_bytes) {
            (Cipher::Aes, 16) => of::<Aes128, Aes256>(mode, key),
            (Cipher::Aes, 24) => of::<Aes192, Aes256>(mode, key),
            (Cipher::Aes, 32) => of::<Aes256, Aes256>(mode, key),
            (Cipher::Serpent, 16 | 24 | 32) => of::<Serpent, Serpent>(mode, key),
            (Cipher::Twofish, 16 | 24 | 32) => of::<Twofish, Twofish>(mode, key),
            _ => None,
        };
        sectors.map(Self)
    }

    /// What QEMU had before LUKS: AES-128 in CBC mode, and the passphrase itself is the key.
    pub(in crate::formats) fn legacy(passphrase: &[u8]) -> Option<Self> {
        let mut key = zeroize::Zeroizing::new([0; 16]);
        let length = passphrase.len().min(key.len());
        key[..length].copy_from_slice(&passphrase[..length]);
        Self::new(Cipher::Aes, Mode::CbcPlain64, &*key)
    }

    /// Encrypts whole sectors, the first of which has this number. Bytes behind the last whole one stay as they are.
    pub(in crate::formats) fn encrypt(&self, first_sector: u64, bytes: &mut [u8]) {
        self.0.encrypt(first_sector, bytes);
    }

    /// Decrypts them.
    pub(in crate::formats) fn decrypt(&self, first_sector: u64, bytes: &mut [u8]) {
        self.0.decrypt(first_sector, bytes);
    }
}

impl fmt::Debug for SectorCipher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SectorCipher(secret)")
    }
}

/// By a cipher; `E`: the one that takes a hash of the key.
fn of<C, E>(mode: Mode, key: &[u8]) -> Option<Box<dyn Sectors>>
where
    C: BlockCipher + 'static,
    E: BlockCipher + 'static,
{
    Some(match mode {
        Mode::XtsPlain64 | Mode::XtsPlain => {
            let (data, tweaks) = key.split_at_checked(key.len() / 2)?;
            let number = if mode == Mode::XtsPlain { plain } else { plain64 };
            Box::new(Xts { data: C::new_from_slice(data).ok()?, tweaks: C::new_from_slice(tweaks).ok()?, number })
        }
        Mode::CbcPlain64 | Mode::CbcPlain => {
            let number = if mode == Mode::CbcPlain { plain } else { plain64 };
            Box::new(Cbc::<C, E> { data: C::new_from_slice(key).ok()?, number, essiv: None })
        }
        Mode::CbcEssiv => {
            let salt = super::hash::Hash::Sha256.digest(&[key]);
            let essiv = Some(E::new_from_slice(salt.as_slice()).ok()?);
            Box::new(Cbc { data: C::new_from_slice(key).ok()?, number: plain64, essiv })
        }
    })
}

trait BlockCipher:
    BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + KeyInit + Send + Sync
{
}

impl<C: BlockCipherEncrypt + BlockCipherDecrypt + BlockSizeUser<BlockSize = U16> + KeyInit + Send + Sync> BlockCipher
    for C
{
}

fn plain64(sector: u64) -> Block {
    Array(u128::from(sector).to_le_bytes())
}

fn plain(sector: u64) -> Block {
    plain64(sector & u64::from(u32::MAX))
}

struct Xts<C> {
    data: C,
    tweaks: C,
    number: fn(u64) -> Block,
}

impl<C: BlockCipher> Xts<C> {
    /// IEEE 1619, 5.3 and 5.4, for sectors of whole blocks: as many as are computed at once.
    fn each_sector(&self, first_sector: u64, bytes: &mut [u8], work: impl Fn(&C, &mut [Block])) {
        let (mut sector, mut tweaks) = (first_sector, [Block::default(); TWEAKS]);
        for group in bytes.chunks_mut(TWEAKS * SECTOR_BYTES) {
            for (n, tweak) in (0..).zip(&mut tweaks) {
                *tweak = (self.number)(sector.wrapping_add(n));
            }
            self.tweaks.encrypt_blocks(&mut tweaks);
            for (bytes, tweak) in group.chunks_exact_mut(SECTOR_BYTES).zip(&tweaks) {
                let mut all = [Block::default(); SECTOR_BLOCKS];
                let mut tweak = u128::from_le_bytes(tweak.0);
                for block in &mut all {
                    block.0 = tweak.to_le_bytes();
                    // Times x, in the field of 2^128 elements.
                    tweak = tweak << 1 ^ if tweak >> 127 != 0 { 0x87 } else { 0 };
                }
                let (blocks, _) = Array::slice_as_chunks_mut(bytes);
                xor(blocks, &all);
                work(&self.data, blocks);
                xor(blocks, &all);
            }
            sector = sector.wrapping_add(TWEAKS as u64);
        }
    }
}

fn xor(blocks: &mut [Block], with: &[Block]) {
    for (block, with) in blocks.iter_mut().zip(with) {
        block.0 = (u128::from_ne_bytes(block.0) ^ u128::from_ne_bytes(with.0)).to_ne_bytes();
    }
}

impl<C: BlockCipher> Sectors for Xts<C> {
    fn encrypt(&self, first_sector: u64, bytes: &mut [u8]) {
        self.each_sector(first_sector, bytes, |cipher, blocks| cipher.encrypt_blocks(blocks));
    }

    fn decrypt(&self, first_sector: u64, bytes: &mut [u8]) {
        self.each_sector(first_sector, bytes, |cipher, blocks| cipher.decrypt_blocks(blocks));
    }
}

struct Cbc<C, E> {
    data: C,
    number: fn(u64) -> Block,
    essiv: Option<E>,
}

impl<C: BlockCipher, E: BlockCipher> Cbc<C, E> {
    fn each_sector(&self, first_sector: u64, bytes: &mut [u8], work: impl Fn(&C, &Block, &mut [Block])) {
        for (n, bytes) in (0..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
            let mut vector = (self.number)(first_sector.wrapping_add(n));
            if let Some(essiv) = &self.essiv {
                essiv.encrypt_block(&mut vector);
            }
            work(&self.data, &vector, Array::slice_as_chunks_mut(bytes).0);
        }
    }
}

impl<C: BlockCipher, E: BlockCipher> Sectors for Cbc<C, E> {
    fn encrypt(&self, first_sector: u64, bytes: &mut [u8]) {
        self.each_sector(first_sector, bytes, |cipher, vector, blocks| {
            cbc::Encryptor::inner_iv_init(cipher, vector).encrypt_blocks(blocks);
        });
    }

    fn decrypt(&self, first_sector: u64, bytes: &mut [u8]) {
        self.each_sector(first_sector, bytes, |cipher, vector, blocks| {
            cbc::Decryptor::inner_iv_init(cipher, vector).decrypt_blocks(blocks);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IEEE 1619-2007, annex B, vector 10: AES-256, data unit 0xff, the first 32 bytes of 512 that count up.
    #[test]
    fn xts_is_that_of_the_standard() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        let key = hex(
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592",
        );
        let cipher = SectorCipher::new(Cipher::Aes, Mode::XtsPlain64, &key).unwrap();
        let plain: Vec<u8> = (0..512).map(|n| n as u8).collect();
        let mut bytes = plain.clone();
        cipher.encrypt(0xff, &mut bytes);
        assert_eq!(bytes[..32], hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b"));
        cipher.decrypt(0xff, &mut bytes);
        assert_eq!(bytes, plain);
    }

    #[test]
    fn a_sector_is_the_same_wherever_it_stands_in_a_run() {
        for (_, mode) in Mode::NAMES {
            let ciphers = Cipher::NAMES.into_iter().flat_map(|(_, which)| [16, 24, 32].map(|bytes| (which, bytes)));
            for (which, cipher_bytes) in ciphers {
                let key: Vec<u8> = (0..mode.key_bytes(cipher_bytes)).map(|n| n as u8).collect();
                let cipher = SectorCipher::new(which, mode, &key).unwrap();
                let plain: Vec<u8> = (0..19 * SECTOR_BYTES).map(|n| (n * 7 + n / 512) as u8).collect();
                let mut run = plain.clone();
                cipher.encrypt(u64::from(u32::MAX) - 9, &mut run);
                for (n, sector) in plain.chunks(SECTOR_BYTES).enumerate() {
                    let mut alone = sector.to_vec();
                    cipher.encrypt(u64::from(u32::MAX) - 9 + n as u64, &mut alone);
                    assert_eq!(alone, run[n * SECTOR_BYTES..][..SECTOR_BYTES], "{which:?} {mode:?} {cipher_bytes}");
                }
                cipher.decrypt(u64::from(u32::MAX) - 9, &mut run);
                assert_eq!(run, plain);
                assert!(SectorCipher::new(which, mode, &key[1..]).is_none());
            }
        }
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", SectorCipher::legacy(b"hush").unwrap()), "SectorCipher(secret)");
    }
}
