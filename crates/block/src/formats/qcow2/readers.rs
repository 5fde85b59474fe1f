//! Reading compressed clusters, in the threads of [`Readers`](crate::formats::readers::Readers).
//!
//! A cluster that a request is on its way to is not freed ([`super::grace`]), so what its entry said goes on being
//! true.

use super::image::{CompressedCluster, Image, Reader};
use crate::formats::readers;
use crate::formats::scatter::{Returns, copy_to, errno_of};
use crate::{MemoryMap, RequestError, Segment};
use std::sync::Arc;

/// A part of a compressed cluster, for somebody's memory.
pub(super) struct ReadJob {
    pub(super) cluster: CompressedCluster,
    pub(super) skip_bytes: u64,
    pub(super) segments: Vec<Segment>,
    pub(super) slot: u16,
    pub(super) memory: Arc<MemoryMap>,
    pub(super) returns: Arc<Returns>,
}

impl readers::ReadJob for ReadJob {
    type Image = Image;
    type Reader = Reader;

    fn perform(&self, image: &Image, reader: &mut Reader) {
        self.returns.post(self.slot, self.read(image, reader));
    }
}

impl ReadJob {
    fn read(&self, image: &Image, reader: &mut Reader) -> Result<(), RequestError> {
        let contents = image.compressed_cluster(self.cluster, reader).map_err(|error| errno_of(&error))?;
        copy_to(&self.memory, &self.segments, contents.get(self.skip_bytes as usize..).unwrap_or_default())
    }
}
