//! What is on the images' volumes.

use crate::block_devices::{self, Volume};
use crate::directory_walk::write_record;
use crate::mounts::Mounts;
use blockyard_protocol::appliance::{FRAME_BYTES_MAX, ListVolumes, Record, Volume as VolumeRecord};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes a record for each volume to `sink`.
pub(crate) fn list(request: &ListVolumes, mounts: &Mounts, sink: &mut dyn Write) -> io::Result<()> {
    let described = mounts.outside(|| {
        let volumes = block_devices::volumes(request.disks);
        volumes.iter().map(|volume| describe(volume, mounts)).collect::<Vec<_>>()
    });
    let described = described.map_err(|failure| io::Error::other(failure.sentence))?;
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    described.into_iter().try_for_each(|record| write_record(&Record::Volume(record), &mut buffer, sink))
}

fn describe(volume: &Volume, mounts: &Mounts) -> VolumeRecord {
    let mounted = mounts.mounted.iter().find(|mounted| mounted.point.device == volume.name);
    let device = File::open(Path::new("/dev").join(&volume.name));
    let kind = match (volume.content.kind, &device) {
        (Some("ext4"), Ok(device)) => ext_generation(device),
        (kind, _) => kind.unwrap_or_default(),
    };
    VolumeRecord {
        device: volume.name.clone(),
        r#type: kind.to_owned(),
        uuid: volume.content.uuid.clone(),
        label: volume.content.label.clone(),
        size: device.and_then(|mut device| device.seek(SeekFrom::End(0))).unwrap_or_default(),
        directory: mounted.map_or_else(Vec::new, |mounted| mounted.point.directory.clone()),
    }
}

/// Which of ext2, ext3 and ext4 it is: what has a journal is ext3, and what only ext4 knows is ext4 (Linux, Documentation/filesystems/ext4/super.rst;
/// libblkid draws the line in the same place).
fn ext_generation(device: &File) -> &'static str {
    const FEATURES_AT: u64 = 1024 + 0x5c;
    let mut features = [0; 12];
    // What cannot be read any more was ext4 a moment ago.
    if device.read_exact_at(&mut features, FEATURES_AT).is_err() {
        return "ext4";
    }
    let word = |index: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| features[index * 4 + byte]));
    generation_of(word(0), word(1), word(2))
}

fn generation_of(compatible: u32, incompatible: u32, read_only_compatible: u32) -> &'static str {
    const HAS_JOURNAL: u32 = 0x4;
    // filetype, recover, journal_dev, meta_bg; sparse_super, large_file, btree_dir
    let is_older = incompatible & !(0x2 | 0x4 | 0x8 | 0x10) == 0 && read_only_compatible & !0x7 == 0;
    match (is_older, compatible & HAS_JOURNAL != 0) {
        (false, _) => "ext4",
        (true, true) => "ext3",
        (true, false) => "ext2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_of_ext_are_told_by_their_features() {
        // As mke2fs 1.47 makes them.
        assert_eq!(generation_of(0x38, 0x2, 0x3), "ext2");
        assert_eq!(generation_of(0x3c, 0x2, 0x3), "ext3");
        assert_eq!(generation_of(0x3c, 0x2c2, 0x46b), "ext4");
        assert_eq!(generation_of(0x38, 0x2c2, 0x46b), "ext4");
    }
}
