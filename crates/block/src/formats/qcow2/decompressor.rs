//! Compressed clusters, made whole again.

use super::entries::Compressed;
use super::image::{CompressedCluster, Image, Reader};
use super::image_tables::ImageTables;
use crate::formats::WritableFile;
use crate::formats::inflate;
use crate::formats::readers::PackedImage;
use flate2::Decompress;
use std::io;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// Bytes of clusters that are kept, but one at least: who reads one in small pieces has it decompressed once.
const KEPT_BYTES: usize = 1 << 20;

/// What decompresses the clusters of one thread.
#[derive(Default)]
pub(super) struct Decompressor {
    whole_inflate: Option<libdeflater::Decompressor>,
    inflate: Option<Decompress>,
    unzstd: Option<Decoder<'static>>,
    packed: Vec<u8>,
    /// Clusters that were asked for lately, the last one first: of which image, from where, and what they hold.
    kept: Vec<(usize, Compressed, Vec<u8>)>,
}

impl Decompressor {
    /// The contents of a compressed cluster of the image `number` of a chain.
    ///
    /// # Errors
    /// When it cannot be read, or does not become a whole cluster.
    pub(super) fn cluster(&mut self, number: usize, tables: &ImageTables, compressed: Compressed) -> io::Result<&[u8]> {
        let known = self.kept.iter().position(|(image, place, _)| (*image, *place) == (number, compressed));
        let cluster = match known {
            Some(index) => self.kept.remove(index).2,
            None => {
                let cluster_bytes = tables.layout.cluster_bytes() as usize;
                let is_full = (self.kept.len() + 1) * cluster_bytes > KEPT_BYTES;
                let mut bytes = if is_full { self.kept.pop().map(|kept| kept.2) } else { None }.unwrap_or_default();
                bytes.resize(cluster_bytes, 0);
                self.decompress(tables.file(), tables.is_zstd, compressed, &mut bytes)?;
                bytes
            }
        };
        self.kept.insert(0, (number, compressed, cluster));
        Ok(self.kept.first().map_or(&[][..], |(.., cluster)| cluster))
    }

    /// Makes a whole cluster of what lies there in a file.
    ///
    /// # Errors
    /// As [`Decompressor::cluster`].
    pub(super) fn decompress(
        &mut self,
        file: &WritableFile,
        is_zstd: bool,
        compressed: Compressed,
        cluster: &mut [u8],
    ) -> io::Result<()> {
        let Compressed { offset_bytes, length_bytes } = compressed;
        // Its last unit may be cut off by the file's end.
        let length_bytes = length_bytes.min(file.length_bytes().saturating_sub(offset_bytes));
        // At most two clusters: an entry has no room for more.
        self.packed.resize(length_bytes as usize, 0);
        file.read(&mut self.packed, offset_bytes)?;
        let done = if is_zstd { self.unzstd(cluster) } else { self.inflate(cluster) };
        if done {
            return Ok(());
        }
        let message = format!("the compressed cluster at {offset_bytes} of the file does not become a whole one");
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }

    /// Whether what is packed becomes the whole `cluster`. What follows it does not matter.
    fn inflate(&mut self, cluster: &mut [u8]) -> bool {
        // Twice as fast, of a stream that has an end and becomes no more than the cluster.
        let whole_inflate = self.whole_inflate.get_or_insert_with(libdeflater::Decompressor::new);
        if whole_inflate.deflate_decompress(&self.packed, cluster) == Ok(cluster.len()) {
            return true;
        }
        // What is missing behind the cluster's bytes does not matter.
        // QEMU's have a window of 4 KiB, others' may have the largest.
        let inflate = self.inflate.get_or_insert_with(|| Decompress::new(false));
        inflate.reset(false);
        inflate::inflate(inflate, &self.packed, cluster).0 == cluster.len()
    }

    /// The same of zstd's.
    fn unzstd(&mut self, cluster: &mut [u8]) -> bool {
        if self.unzstd.is_none() {
            self.unzstd = Decoder::new().ok();
        }
        let Some(decoder) = self.unzstd.as_mut() else { return false };
        if decoder.reinit().is_err() {
            return false;
        }
        let (mut input, mut output) = (InBuffer::around(&self.packed), OutBuffer::around(cluster));
        loop {
            let before = (input.pos(), output.pos());
            if decoder.run(&mut input, &mut output).is_err() {
                return false;
            }
            if output.pos() == output.capacity() {
                return true;
            }
            if (input.pos(), output.pos()) == before {
                return false;
            }
        }
    }
}

impl PackedImage for Image {
    type Block = CompressedCluster;
    type Reader = Reader;

    fn unpacked<'r>(&self, cluster: CompressedCluster, reader: &'r mut Reader) -> io::Result<&'r [u8]> {
        self.compressed_cluster(cluster, reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};

    fn packed(contents: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; contents.len() + 1024];
        let mut deflate = Compress::new(Compression::default(), false);
        deflate.compress(contents, &mut packed, FlushCompress::Finish).unwrap();
        packed.truncate(deflate.total_out() as usize);
        packed
    }

    /// As QEMU has it: a cluster is there once its bytes are.
    #[test]
    fn what_follows_a_cluster_does_not_matter_nor_what_is_missing_there() {
        let contents: Vec<u8> = (0..8192_u32).map(|at| (at * at / 251) as u8).collect();
        let (cluster, half) = contents.split_at(4096);
        let stored = |contents: &[u8]| [&[0, 0, 16, 255, 239], contents].concat();
        let cases = [
            (packed(cluster), true),
            ([packed(cluster), vec![0x55; 700]].concat(), true),
            // A stream that goes on, and one without its end.
            (packed(&contents), true),
            (stored(cluster), true),
            (packed(half), false),
            (packed(&cluster[..4095]), false),
            (packed(cluster)[..1000].to_vec(), false),
            (Vec::new(), false),
        ];
        let mut decompressor = Decompressor::default();
        for (index, (packed, is_whole)) in cases.into_iter().enumerate() {
            let mut unpacked = vec![0; 4096];
            decompressor.packed = packed;
            let found = decompressor.inflate(&mut unpacked) && unpacked == cluster;
            assert_eq!(found, is_whole, "case {index}");
        }
    }
}
