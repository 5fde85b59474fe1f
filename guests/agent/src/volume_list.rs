//! What is on the images' volumes.

use crate::block_devices::{self, Volume};
use crate::directory_walk::write_record;
use crate::mounts::Mounts;
use blockyard_protocol::appliance::{FRAME_BYTES_MAX, Failure, ListVolumes, Record, Volume as VolumeRecord};
use std::io::{self, Write};

/// What is on the volumes that are asked for.
pub(crate) fn describe_all(request: &ListVolumes, mounts: &Mounts) -> Result<Vec<VolumeRecord>, Failure> {
    mounts.outside(|| {
        let volumes = block_devices::volumes(request.disks);
        if request.device.is_empty() {
            return Ok(volumes.iter().map(|volume| describe(volume, mounts)).collect());
        }
        Ok(vec![describe(block_devices::find(&volumes, &request.device)?, mounts)])
    })?
}

/// Writes a record for each to `sink`.
pub(crate) fn write(volumes: &[VolumeRecord], sink: &mut dyn Write) -> io::Result<()> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    volumes.iter().try_for_each(|volume| write_record(&Record::Volume(volume.clone()), &mut buffer, sink))
}

fn describe(volume: &Volume, mounts: &Mounts) -> VolumeRecord {
    let mounted = mounts.mounted.iter().find(|mounted| mounted.node == volume.node);
    let directory = mounted.map_or_else(Vec::new, |mounted| mounted.point.directory.clone());
    VolumeRecord { directory, ..volume.into() }
}
