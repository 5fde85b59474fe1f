//! Clusters made smaller.

use crate::{MemoryMap, Qcow2Writer, Segment};
use flate2::{Compress, Compression, FlushCompress, Status};
use std::io;
use vm_memory::Bytes;

/// QEMU inflates with a window of 4 KiB (`qcow2_zlib_decompress`), so nothing may refer back farther.
const WINDOW_BITS: u8 = 12;

/// A run of clusters: its offset in the piece, its length, whether there are data.
type Run = (u64, u64, bool);

/// What compresses the clusters of one thread.
pub(super) struct Compressor {
    deflate: Compress,
    cluster: Vec<u8>,
    /// Compressed clusters, one after the other.
    packed: Vec<u8>,
    /// Of each: its offset on the disk, and its compressed length.
    placed: Vec<(u64, u32)>,
}

impl Compressor {
    pub(super) fn new(cluster_bytes: usize) -> Self {
        // The level that zlib and so QEMU take when nobody says another.
        let deflate = Compress::new_with_window_bits(Compression::new(6), false, WINDOW_BITS);
        Self { deflate, cluster: vec![0; cluster_bytes], packed: Vec::new(), placed: Vec::new() }
    }

    /// Compresses the clusters of `runs`, which lie in memory from `memory_offset` on and on the disk from `disk_offset`, and writes them.
    /// What does not become smaller is left in `runs`.
    pub(super) fn write(
        &mut self,
        writer: &Qcow2Writer,
        memory: &MemoryMap,
        memory_offset: u64,
        disk_offset: u64,
        runs: &mut Vec<Run>,
    ) -> io::Result<()> {
        self.packed.clear();
        self.placed.clear();
        let cluster_bytes = self.cluster.len() as u64;
        let mut left = Vec::new();
        for &(offset, length, _) in runs.iter() {
            for at in (offset..offset + length).step_by(self.cluster.len()) {
                let segment =
                    Segment { region: 0, length_bytes: cluster_bytes as u32, offset_bytes: memory_offset + at };
                let slice =
                    memory.slice(segment).ok_or_else(|| io::Error::other("a piece is larger than its memory"))?;
                slice.read_slice(&mut self.cluster, 0).map_err(io::Error::other)?;
                match self.deflate_cluster()? {
                    Some(compressed_bytes) => self.placed.push((disk_offset + at, compressed_bytes)),
                    None => left.push((at, cluster_bytes, true)),
                }
            }
        }
        if !self.placed.is_empty() {
            let start = writer.place_compressed(&self.placed);
            writer.write_at(&self.packed, start)?;
        }
        *runs = left;
        Ok(())
    }

    /// Appends the cluster, compressed, to what is packed; `None`, and nothing appended, if it does not become smaller.
    fn deflate_cluster(&mut self) -> io::Result<Option<u32>> {
        let before = self.packed.len();
        // The compressor stops when this is full.
        let room = before + self.cluster.len() - 1;
        self.packed.resize(room, 0);
        self.deflate.reset();
        let status = self.deflate.compress(&self.cluster, &mut self.packed[before..], FlushCompress::Finish);
        let status = status.map_err(io::Error::other)?;
        let compressed_bytes = if status == Status::StreamEnd { self.deflate.total_out() as u32 } else { 0 };
        self.packed.truncate(before + compressed_bytes as usize);
        Ok((compressed_bytes > 0).then_some(compressed_bytes))
    }
}
