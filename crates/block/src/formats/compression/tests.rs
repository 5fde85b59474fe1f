//! Compressed disks that are read as conversions and copies do, and damaged files.

use super::*;
use crate::{Disk, DiskReader, MemoryMap, Operation, Request, Segment, read_bytes};
use bolero::TypeGenerator;
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicU64, Ordering};

fn contents() -> Vec<u8> {
    let numbers = (0..300_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes());
    numbers.chain(std::iter::repeat_n(0, 500_000)).chain([7; 100]).collect()
}

fn compressed(compression: Compression, contents: &[u8]) -> Vec<u8> {
    match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(contents).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Xz => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
            encoder.write_all(contents).unwrap();
            encoder.finish().unwrap()
        }
        Compression::Zstd => {
            let mut encoder = zstd::bulk::Compressor::new(1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.compress(contents).unwrap()
        }
    }
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn disk(contents: &[u8], passes: usize, declared_bytes: Option<u64>, bytes_max: u64) -> io::Result<UnpackedDisk> {
    let pass = || Unpacker { bytes: Box::new(Cursor::new(contents.to_vec())) };
    let passes = std::iter::repeat_with(pass).take(passes).collect();
    UnpackedDisk::new(Path::new("disk.xz"), file(b""), passes, declared_bytes, bytes_max, false)
}

#[test]
fn what_a_file_says_of_its_length_is_what_it_has() {
    let contents = contents();
    for compression in Compression::ALL {
        let one = compressed(compression, &contents);
        let other = compressed(compression, &contents[..1000]);
        let declared = |bytes: &[u8]| compression.declared_bytes(&file(bytes));
        let says = |bytes| (compression != Compression::Gzip).then_some(bytes);
        assert_eq!(declared(&one), says(contents.len() as u64), "{compression:?}");
        assert_eq!(declared(&[&one[..], &other, &one].concat()), says(2 * contents.len() as u64 + 1000));
        assert_eq!(declared(&one[..one.len() - 1]), None);
        assert_eq!(declared(b""), None);
        let mut unpacked = Vec::new();
        let decoder = compression.decoder(Cursor::new([&one[..], &other].concat()));
        decoder.unwrap().read_to_end(&mut unpacked).unwrap();
        assert!(unpacked == [&contents[..], &contents[..1000]].concat());
    }
}

#[test]
fn threads_that_overtake_each_other_read_the_same() {
    const PIECE_BYTES: u64 = 64 << 10;
    let contents = contents();
    for declared_bytes in [None, Some(contents.len() as u64)] {
        let disk = disk(&contents, 2, declared_bytes, 1 << 40).unwrap();
        assert_eq!(disk.is_endless(), declared_bytes.is_none());
        for _ in 0..2 {
            let next = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let memory = MemoryMap::allocate(&[(0, PIECE_BYTES as usize)]).unwrap();
                        let (mut queue, mut done) = (disk.open_queue(&memory, 1).unwrap(), Vec::new());
                        loop {
                            let offset_bytes = next.fetch_add(PIECE_BYTES, Ordering::Relaxed);
                            let capacity_bytes = (contents.len() as u64).next_multiple_of(512);
                            if offset_bytes >= capacity_bytes {
                                break;
                            }
                            let length_bytes = PIECE_BYTES.min(capacity_bytes - offset_bytes) as u32;
                            let segments = &[Segment { region: 0, offset_bytes: 0, length_bytes }];
                            let request = Request { operation: Operation::Read, offset_bytes, segments, token: 0 };
                            queue.push(&request).unwrap();
                            queue.drain(&mut done).unwrap();
                            assert_eq!(done.pop().unwrap().result, Ok(()));
                            let mut read = vec![0; length_bytes as usize];
                            vm_memory::Bytes::read_slice(&memory.slice(segments[0]).unwrap(), &mut read, 0).unwrap();
                            let mut wanted = contents[offset_bytes as usize..].to_vec();
                            wanted.resize(wanted.len().max(read.len()), 0);
                            assert!(read == wanted[..read.len()], "{offset_bytes}");
                        }
                    });
                }
            });
            disk.finish().unwrap();
            assert_eq!(disk.geometry().capacity_bytes, (contents.len() as u64).next_multiple_of(512));
            assert_eq!(disk.generation(), 1);
        }
        // There was no third pass to begin.
        assert!(read_bytes(&disk, 0..512).is_err());
        assert!(disk.failure().unwrap().contains("once"));
    }
}

#[test]
fn a_disk_that_is_read_again_ends_where_it_did() {
    for (second, is_same) in [(2000, true), (1000, false), (3000, false)] {
        let passes = [2000, second].map(|bytes| Unpacker { bytes: Box::new(Cursor::new(vec![7; bytes])) });
        let disk = UnpackedDisk::new(Path::new("disk.gz"), file(b""), passes.into(), None, 1 << 40, true).unwrap();
        disk.finish().unwrap();
        assert_eq!(disk.geometry().capacity_bytes, 2048);
        let again = read_bytes(&disk, 0..2048).map(|_| ()).and_then(|()| disk.finish());
        assert_eq!(again.is_ok(), is_same, "{second}");
        assert_eq!(disk.geometry().capacity_bytes, 2048, "{second}");
        assert_eq!(disk.failure().is_some_and(|failure| failure.contains("was changed")), !is_same, "{second}");
    }
}

#[test]
fn a_disk_has_what_it_says_and_no_more_than_it_may() {
    let contents = contents();
    let all = contents.len() as u64;
    assert!(disk(&contents, 1, Some(all), all - 1).is_err());
    for (declared_bytes, bytes_max, word) in
        [(Some(all - 1), all, "damaged"), (Some(all + 1), all + 1, "damaged"), (None, all - 1, "more than")]
    {
        let disk = disk(&contents, 1, declared_bytes, bytes_max).unwrap();
        assert!(disk.finish().is_err());
        assert!(disk.failure().unwrap().contains(word), "{:?}", disk.failure());
    }
    let image = [b"QFI\xfb\0\0\0\x03", &contents[..]].concat();
    let disk = disk(&image, 1, None, 1 << 40).unwrap();
    let mut reader = DiskReader::new(&disk).unwrap();
    assert!(reader.read(0, &mut [0; 512]).is_err());
    assert!(disk.failure().unwrap().contains("qcow2"));
}

#[derive(Debug, TypeGenerator)]
enum Spoil {
    Byte { at: u16, value: u8 },
    Truncate { at: u16 },
    Append { bytes: Vec<u8> },
    Repeat { at: u16, zeros: u8 },
}

#[test]
fn fuzz_a_spoiled_file_neither_panics_nor_hangs() {
    const BYTES_MAX: u64 = 16 << 20;
    let contents = [&contents()[..3000], &[0; 5000]].concat();
    let files = Compression::ALL.map(|compression| compressed(compression, &contents));
    blockyard_fuzz::check!(1000).with_type::<(u8, Vec<Spoil>)>().for_each(|(which, spoils)| {
        let compression = Compression::ALL[usize::from(*which) % 3];
        let mut bytes = files[usize::from(*which) % 3].clone();
        for spoil in spoils.iter().take(8) {
            let place = |at: u16| usize::from(at) % (bytes.len() + 1);
            match spoil {
                Spoil::Byte { at, value } => {
                    let at = place(*at);
                    bytes.get_mut(at).into_iter().for_each(|byte| *byte = *value);
                }
                Spoil::Truncate { at } => bytes.truncate(place(*at)),
                Spoil::Append { bytes: more } => bytes.extend(more.iter().take(512)),
                Spoil::Repeat { at, zeros } => {
                    let again = bytes[place(*at)..].to_vec();
                    bytes.extend(vec![0; usize::from(*zeros)]);
                    bytes.extend(again.iter().take(1 << 16));
                }
            }
        }
        let declared = compression.declared_bytes(&file(&bytes));
        let mut unpacked = Vec::new();
        let decoder = compression.decoder(Cursor::new(bytes)).unwrap();
        let read = decoder.take(BYTES_MAX).read_to_end(&mut unpacked);
        if let (Ok(count), Some(declared)) = (read, declared) {
            // What was declared is compared with what comes: it need not be right, as a frame may lie.
            assert!(count as u64 == BYTES_MAX || count as u64 == declared || compression == Compression::Zstd);
        }
    });
}
