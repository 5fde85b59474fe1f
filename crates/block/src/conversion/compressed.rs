//! Clusters made smaller.

use super::deflate::Deflate;
use super::output::Run;
use crate::{MemoryMap, Qcow2Writer, Segment};
use std::io;
use vm_memory::Bytes;

/// QEMU inflates with a window of 4 KiB (`qcow2_zlib_decompress`), so nothing may refer back farther.
const WINDOW_BITS: u8 = 12;

/// What compressed data may have more, beside an eighth, than what they were made of.
const SLACK_BYTES: usize = 1024;

/// zstd's own, and so QEMU's, where nobody says another.
const ZSTD_LEVEL: i32 = 3;

/// What compresses the clusters of one thread.
pub(super) struct Compressor {
    method: Method,
    cluster: Vec<u8>,
    /// Compressed clusters, one after the other.
    packed: Vec<u8>,
    /// Of each: its offset on the disk, and its compressed length.
    placed: Vec<(u64, u32)>,
}

enum Method {
    Zlib(Deflate),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Compressor {
    /// For the clusters of an image.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(writer: &Qcow2Writer) -> io::Result<Self> {
        Self::of(writer.cluster_bytes() as usize, writer.is_zstd())
    }

    fn of(cluster_bytes: usize, is_zstd: bool) -> io::Result<Self> {
        let method = match is_zstd {
            true => Method::Zstd(zstd::bulk::Compressor::new(ZSTD_LEVEL)?),
            false => Method::Zlib(Deflate::new(WINDOW_BITS)?),
        };
        Ok(Self { method, cluster: vec![0; cluster_bytes], packed: Vec::new(), placed: Vec::new() })
    }

    /// Compresses the clusters of `runs`, which lie in memory from `memory_offset` on and on the disk from
    /// `disk_offset`, and writes them. What does not become smaller is left in `runs`.
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
                match self.compress_cluster()? {
                    Some(compressed_bytes) => self.placed.push((disk_offset + at, compressed_bytes)),
                    None => left.push((at, cluster_bytes, true)),
                }
            }
        }
        let (mut packed, mut placed) = (&self.packed[..], &self.placed[..]);
        while !placed.is_empty() {
            let (start, count) = writer.place_compressed(placed)?;
            let length: u64 = placed[..count].iter().map(|&(_, length)| u64::from(length)).sum();
            let (now, later) = packed.split_at(length as usize);
            writer.write_at(now, start)?;
            (packed, placed) = (later, &placed[count..]);
        }
        *runs = left;
        Ok(())
    }

    /// Appends the cluster, compressed, to what is packed; `None`, and nothing appended, if it does not become smaller.
    fn compress_cluster(&mut self) -> io::Result<Option<u32>> {
        let before = self.packed.len();
        // Room for whatever comes out: a compressor that runs out of it is one that keeps what it has for the next
        // cluster.
        let cluster_bytes = self.cluster.len();
        self.packed.resize(before + cluster_bytes + cluster_bytes / 8 + SLACK_BYTES, 0);
        let room = &mut self.packed[before..];
        let compressed_bytes = match &mut self.method {
            Method::Zlib(deflate) => deflate.compress(&self.cluster, room),
            Method::Zstd(compressor) => Some(compressor.compress_to_buffer(&self.cluster, room)?),
        };
        let compressed_bytes = compressed_bytes.filter(|&bytes| bytes < cluster_bytes);
        self.packed.truncate(before + compressed_bytes.unwrap_or(0));
        Ok(compressed_bytes.map(|bytes| bytes as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Decompress, FlushDecompress};

    /// Inflates with QEMU's window.
    fn inflate(packed: &[u8], cluster_bytes: usize) -> Vec<u8> {
        let mut cluster = vec![0; cluster_bytes];
        let mut inflate = Decompress::new_with_window_bits(false, WINDOW_BITS);
        inflate.decompress(packed, &mut cluster, FlushDecompress::Finish).unwrap();
        assert_eq!(inflate.total_out(), cluster_bytes as u64);
        cluster
    }

    #[test]
    fn clusters_of_any_contents_come_back() {
        for cluster_bytes in [512, 4096, 65536, 2 << 20] {
            let mut compressor = Compressor::of(cluster_bytes, false).unwrap();
            let mut state = 1_u64;
            for turn in 0..if cluster_bytes > 65536 { 20 } else { 300 } {
                // From text to noise, and back in the same compressor.
                let noisy_in_256 = [0, 256, 40, 3, 20, 256][turn % 6];
                compressor.cluster.iter_mut().enumerate().for_each(|(index, byte)| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let is_noise = (state >> 40) % 256 < noisy_in_256;
                    *byte = if is_noise { (state >> 56) as u8 } else { (index % 23) as u8 };
                });
                compressor.packed.clear();
                let length = compressor.compress_cluster().unwrap();
                assert_eq!(compressor.packed.len(), length.unwrap_or(0) as usize);
                assert_eq!(length.is_some(), noisy_in_256 < 200, "{cluster_bytes} bytes, {noisy_in_256} of 256 noise");
                if length.is_some() {
                    assert!(inflate(&compressor.packed, cluster_bytes) == compressor.cluster);
                }
            }
        }
    }
}
