//! LUKS 1: volumes whose key is kept under passphrases, in a header in front of them or elsewhere.
//!
//! "LUKS1 On-Disk Format Specification", version 1.2.3, is the format; sections are named where they count. What is
//! here knows no image: [`LuksHeader`] is what a header says, [`unlock()`] finds a volume's key, [`NewVolume`] makes
//! one, [`HeaderPlace`] changes who else opens it, and a [`SectorCipher`] is the key at work. [`EncryptedDisk`] is a
//! disk through one, and [`LuksDisk`] the one that lies behind its header in a file. qcow2 images have the same header,
//! and sectors of their own numbers.
//!
//! Passphrases are in memory that is not swapped out and in no core ([`KeyFile`]). What they open, the volume's key, is
//! in ordinary memory. All are wiped when they are not needed any more.

mod chain_keys;
mod cipher;
mod disk;
mod encrypted_disk;
mod encrypted_queue;
mod hash;
mod header;
mod key_file;
mod key_slots;
mod new_volume;
mod secret;
mod stripes;
mod unlock;

pub use chain_keys::ChainKeys;
pub(super) use cipher::{SECTOR_BYTES, SectorCipher};
pub use disk::LuksDisk;
pub(super) use disk::{NO_KEY, change_slots, open_key};
pub(super) use encrypted_disk::EncryptedDisk;
pub(super) use header::HEADER_BYTES;
pub use header::{LuksHeader, LuksSlot};
pub use key_file::{KeyFile, KeyFileError, LineEnd, read_key_file};
pub use key_slots::LuksSlotChange;
pub(super) use key_slots::{HeaderPlace, SlotError};
pub(super) use new_volume::NewVolume;
pub use new_volume::{LuksOptions, NewLuks};
pub use secret::SecretBytes;
pub(super) use unlock::{UnlockError, unlock};
