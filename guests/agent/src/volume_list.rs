//! What is on the images' volumes.

use crate::block_devices::{self, Volume};
use crate::directory_walk::write_record;
use crate::mounts::Mounts;
use blockyard_protocol::appliance::{FRAME_BYTES_MAX, ListVolumes, Record, Volume as VolumeRecord};
use std::io::{self, Write};

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
    let mounted = mounts.mounted.iter().find(|mounted| mounted.node == volume.node);
    let directory = mounted.map_or_else(Vec::new, |mounted| mounted.point.directory.clone());
    VolumeRecord { directory, ..volume.into() }
}
