//! Power cuts while passphrases of an image are added and taken away: whoever is to open it does, at each of them.

use super::super::{Qcow2CreateOptions, Qcow2Disk};
use super::cut_short::{at_each_cut, recorded};
use super::open_to_change;
use crate::{AllowedDirectories, FileOptions, KeyFile, LuksOptions, LuksSlotChange, NewLuks, read_bytes, write_bytes};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const DISK_BYTES: u64 = 64 << 10;

fn key(directory: &Path, word: &str) -> KeyFile {
    let path = directory.join(word);
    fs::write(&path, word).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    KeyFile::new(path)
}

/// What the image holds for whom this passphrase is given.
fn held(path: &Path, key: &KeyFile) -> Option<Vec<u8>> {
    let allowed = AllowedDirectories::none().with_key(Some(key.clone()));
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let disk = Qcow2Disk::open(path, &options, &allowed).ok()?;
    Some(read_bytes(&disk, 0..DISK_BYTES).unwrap())
}

#[test]
fn passphrases_open_an_image_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let keys = ["first", "second", "third"].map(|word| key(directory.path(), word));
    let path = directory.path().join("image.qcow2");
    let mut luks = LuksOptions::default();
    luks.set("iter-time", "1").unwrap();
    let encryption = Some(NewLuks { key: keys[0].clone(), options: luks });
    let options = Qcow2CreateOptions { encryption, ..Qcow2CreateOptions::new(DISK_BYTES) };
    Qcow2Disk::create(&path, &options).unwrap();
    let allowed = AllowedDirectories::none().with_key(Some(keys[0].clone()));
    let disk = Qcow2Disk::open(&path, &FileOptions::default(), &allowed).unwrap();
    write_bytes(&disk, 0, &[7; DISK_BYTES as usize]).unwrap();
    drop(disk);
    let wanted = Some(vec![7; DISK_BYTES as usize]);
    // What a slot says of itself lies in two sectors where it is the seventh.
    let activate = |key: &KeyFile, slot: Option<usize>| LuksSlotChange::Activate {
        key: key.clone(),
        slot,
        time: Duration::from_millis(1),
    };
    let erase = |slot, key: Option<&KeyFile>| LuksSlotChange::Erase { slot, key: key.cloned(), may_be_last: false };
    for (change, opened_before, opened_after) in [
        (activate(&keys[1], Some(6)), [true, false, false], [true, true, false]),
        (activate(&keys[2], None), [true, true, false], [true, true, true]),
        (erase(Some(6), None), [true, true, true], [true, false, true]),
        (erase(None, Some(&keys[2])), [true, false, true], [true, false, false]),
    ] {
        assert_eq!(keys.each_ref().map(|key| held(&path, key).is_some()), opened_before);
        let recording =
            recorded(&path, || Qcow2Disk::change_slots(&open_to_change(&path), Some(&keys[0]), &change).unwrap());
        let events = recording.recording.event_count();
        at_each_cut(&path, &recording, |cut| {
            for (key, (before, after)) in keys.iter().zip(opened_before.into_iter().zip(opened_after)) {
                let held = held(&path, key);
                assert!(held.is_none() || held == wanted, "{change:?}, cut behind {cut}");
                let must = if cut == events { after } else { before && after };
                let may = if cut == events { after } else { before || after };
                assert!(held.is_some() >= must && held.is_some() <= may, "{change:?}, cut behind {cut}");
            }
        });
    }
}
