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

/// What is in a file of these bytes, decompressed in this process.
fn disk(compression: Compression, bytes: &[u8], bytes_max: u64) -> UnpackedDisk {
    let contents = bytes.to_vec();
    let start = move || {
        let mut bytes = Vec::new();
        compression.decoder(Cursor::new(contents.clone()))?.read_to_end(&mut bytes)?;
        Ok(Unpacker { bytes: Box::new(Cursor::new(bytes)) })
    };
    let path = Path::new("disk").with_extension(compression.word());
    UnpackedDisk::new(&path, file(bytes), compression, Box::new(start), bytes_max, false).unwrap()
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
    for compression in Compression::ALL {
        let disk = disk(compression, &compressed(compression, &contents), 1 << 40);
        assert!(disk.is_endless());
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
        assert!(read_bytes(&disk, 0..512).is_err());
        assert!(disk.failure().unwrap().contains("once"));
    }
}

#[test]
fn a_disks_length_is_found_out_before_it_is_read() {
    let contents = contents();
    for compression in Compression::ALL {
        let bytes = compressed(compression, &contents);
        let all = contents.len() as u64;
        let disk = |bytes_max| disk(compression, &bytes, bytes_max);
        let (whole, mut heard) = (disk(all), Vec::new());
        assert_eq!(whole.find_length(&mut |done, of| heard.push((done, of))).unwrap(), all);
        assert_eq!(whole.geometry().capacity_bytes, all.next_multiple_of(512));
        assert!(!whole.is_endless());
        // It is decompressed only where the file does not say it.
        assert_eq!(heard.is_empty(), compression != Compression::Gzip);
        whole.finish().unwrap();
        let refused = disk(all - 1).find_length(&mut |_, _| {}).unwrap_err().to_string();
        assert!(refused.starts_with("disk.") && refused.contains("more than"), "{refused}");
        let small = disk(1 << 40);
        small.limit(all - 1);
        assert!(small.finish().is_err());
        let said = small.failure().unwrap();
        assert!(said.contains("more than") && said.contains("make the image larger"), "{said}");
    }
}

#[test]
fn a_disk_has_what_its_file_said_and_looks_like_no_image() {
    let contents = contents();
    for length in [contents.len() - 1, contents.len() + 1] {
        // It says something else when it is read than when it is asked.
        let all = [&contents[..], &[0]].concat();
        let (said, came) = (compressed(Compression::Xz, &contents), all[..length].to_vec());
        let start = move || Ok(Unpacker { bytes: Box::new(Cursor::new(came.clone())) });
        let path = Path::new("disk.xz");
        let start = Box::new(start);
        let disk = UnpackedDisk::new(path, file(&said), Compression::Xz, start, 1 << 40, false).unwrap();
        disk.find_length(&mut |_, _| {}).unwrap();
        assert!(disk.finish().is_err());
        assert!(disk.failure().unwrap().contains("was changed"), "{:?}", disk.failure());
    }
    let tar = [&[b'x'; 257][..], b"ustar", &contents].concat();
    for (contents, words) in [
        ([b"QFI\xfb\0\0\0\x03", &contents[..]].concat(), ["format=qcow2.gz", "format=raw.gz"]),
        (tar, ["tar", "unpack it"]),
    ] {
        let disk = disk(Compression::Gzip, &compressed(Compression::Gzip, &contents), 1 << 40);
        let mut reader = DiskReader::new(&disk).unwrap();
        assert!(reader.read(0, &mut [0; 512]).is_err());
        let said = disk.failure().unwrap();
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
    }
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
