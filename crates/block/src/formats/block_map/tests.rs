//! Tests of what the formats share, and images with spoiled headers and tables.

mod commit;
mod fuzz;
mod power_cut;
pub(in crate::formats) mod samples;

use super::image::{Image, Place};
use super::image_file::ImageFile;
use super::layer::{BlockMap, Layer, Meaning, SLICE_WORDS, Shape, SliceBuffer};
use super::level::{Level, Storage};
use super::queue::BlockMapSplit;
use super::worker::Worker;
use super::{BlockMapDisk, BlockMapFormat};
use crate::specification::{DiskSpecification, OpenContext};
use crate::{
    AllowedDirectories, Completion, Disk, Engine, Extent, FileDisk, FileOptions, Geometry, MemoryMap, Operation,
    Qcow2MappingKind, Queue, Request, SEGMENTS_MAX, Segment,
};
use samples::vhdx_image::VhdxImage;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const BLOCK_BYTES: u64 = 4096;

/// Each block lies where its number says, in the file from its beginning on; those of the third slice only when the
/// gate is open.
#[derive(Debug)]
struct Identity {
    blocks: u64,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl BlockMap for Identity {
    fn shape(&self) -> Shape {
        Shape { size_bytes: self.blocks * BLOCK_BYTES, block_bytes: BLOCK_BYTES, sector_bytes: 512, align_bytes: 512 }
    }

    fn load(&self, _: &ImageFile, first: u64, entries: &mut [u64]) -> io::Result<bool> {
        if first / SLICE_WORDS as u64 == 2 {
            drop(self.gate.changed.wait_while(self.gate.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        entries.iter_mut().zip(first..).for_each(|(entry, block)| *entry = block);
        Ok(true)
    }

    fn meaning(&self, _: u64, entry: u64) -> Meaning {
        Meaning::There { offset_bytes: entry * BLOCK_BYTES }
    }
}

/// Opens it, so that a test that fails ends.
struct Opener(Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn identity(file: File, blocks: u64) -> (Image, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let length_bytes = file.metadata().unwrap().len();
    let map = Box::new(Identity { blocks, gate: Arc::clone(&gate) });
    let layer = Layer::new(ImageFile::new(file.try_clone().unwrap(), Path::new("image"), length_bytes), map, 0);
    let options = FileOptions { read_only: true, engine: Engine::Threads, ..FileOptions::default() };
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::from_file(file, &options).unwrap());
    let geometry = Geometry { capacity_bytes: blocks * BLOCK_BYTES, segments_max: SEGMENTS_MAX, ..disk.geometry() };
    let level = Level::new([(blocks * BLOCK_BYTES, Storage::Mapped { layer: 0 }, false)]);
    (Image::new((vec![level], vec![layer]), (vec![disk], vec!["image".into()]), None, geometry, 0), gate)
}

fn push(queue: &mut dyn Queue, offset_bytes: u64) {
    let segments = [Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }];
    queue
        .push(&Request { operation: Operation::Read, offset_bytes, segments: &segments, token: offset_bytes })
        .unwrap();
}

#[test]
fn requests_go_on_while_others_wait_for_a_table() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 * SLICE_WORDS as u64 * BLOCK_BYTES).unwrap();
    let (image, gate) = identity(file, 4 * SLICE_WORDS as u64);
    let worker = Arc::new(Worker::start(image, None).unwrap());
    let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
    let mut queue = BlockMapSplit::boxed(&worker, &memory, 16).unwrap();
    let _opener = Opener(Arc::clone(&gate));
    let mut completions = Vec::new();
    // Known from now on.
    push(&mut *queue, 0);
    queue.drain(&mut completions).unwrap();
    completions.clear();
    let slow = 2 * SLICE_WORDS as u64 * BLOCK_BYTES;
    push(&mut *queue, slow);
    for _ in 0..1000 {
        push(&mut *queue, 0);
        while queue.in_flight() > 1 {
            queue.submit().unwrap();
            queue.wait(&[], Some(Duration::from_secs(10))).unwrap();
            queue.reap(&mut completions);
        }
    }
    assert_eq!(completions.len(), 1000);
    assert!(completions.iter().all(|completion| *completion == Completion { token: 0, result: Ok(()) }));
    gate.open();
    completions.clear();
    queue.drain(&mut completions).unwrap();
    assert_eq!(completions, [Completion { token: slow, result: Ok(()) }]);
}

#[test]
fn a_queue_that_is_dropped_carries_out_what_waits_for_a_table() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4 * SLICE_WORDS as u64 * BLOCK_BYTES).unwrap();
    let (image, gate) = identity(file, 4 * SLICE_WORDS as u64);
    let worker = Arc::new(Worker::start(image, None).unwrap());
    let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
    memory.slice(Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }).unwrap().copy_from(&[7_u8; 4096]);
    let mut queue = BlockMapSplit::boxed(&worker, &memory, 16).unwrap();
    push(&mut *queue, 2 * SLICE_WORDS as u64 * BLOCK_BYTES);
    gate.open();
    drop(queue);
    let mut bytes = [1_u8; 4096];
    memory.slice(Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }).unwrap().copy_to(&mut bytes);
    assert_eq!(bytes, [0; 4096]);
}

/// What is looked up again and again: 2^44 blocks, of which the tables would take 128 TiB.
#[test]
fn tables_of_a_vast_disk_are_looked_up_one_after_another() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let (image, gate) = identity(file, 1 << 44);
    gate.open();
    let mut buffer = SliceBuffer::new();
    for n in 0..20_000 {
        let offset = n << 40;
        assert_eq!(image.find(offset, 512), (Place::Unknown, 512));
        image.look_up(offset..offset + 512, &mut buffer).unwrap_or_else(|error| panic!("{error}"));
        let (place, length_bytes) = image.find(offset, 512);
        assert_eq!(length_bytes, 512);
        assert_eq!(place == Place::There { index: 0, offset_bytes: 0 }, n == 0);
    }
}

/// Zeros behind the end of the file, which is not where a block ends.
#[test]
fn what_the_end_of_the_file_cuts_off_is_damage() {
    for (cut_bytes, is_whole) in [(0, true), (1, false), (511, false), (512, false), (BLOCK_BYTES - 1, false)] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * BLOCK_BYTES - cut_bytes).unwrap();
        let (image, _) = identity(file, 2);
        image.look_up(0..2 * BLOCK_BYTES, &mut SliceBuffer::new()).unwrap();
        let wanted = match is_whole {
            true => (Place::There { index: 0, offset_bytes: BLOCK_BYTES }, BLOCK_BYTES),
            false => (Place::Nowhere, BLOCK_BYTES),
        };
        assert_eq!(image.find(BLOCK_BYTES, BLOCK_BYTES), wanted, "{cut_bytes} bytes less");
        assert_eq!(image.extents(BLOCK_BYTES..2 * BLOCK_BYTES).is_ok(), is_whole, "{cut_bytes} bytes less");
        assert_eq!(image.check(&mut |_| ()).unwrap().corruptions, u64::from(!is_whole));
    }
}

#[test]
fn presence_bits_are_counted_in_words() {
    #[derive(Debug)]
    struct Large;
    impl BlockMap for Large {
        fn shape(&self) -> Shape {
            let (size_bytes, block_bytes) = (1 << 30, 1 << 20);
            Shape { size_bytes, block_bytes, sector_bytes: 512, align_bytes: 512 }
        }

        fn load(&self, _: &ImageFile, _: u64, _: &mut [u64]) -> io::Result<bool> {
            Ok(false)
        }

        fn meaning(&self, _: u64, _: u64) -> Meaning {
            Meaning::Nothing
        }
    }
    let file = ImageFile::new(tempfile::tempfile().unwrap(), Path::new("image"), 0);
    let layer = Layer::new(file, Box::new(Large), 0);
    // 2048 sectors of a block, of which 3 to 199 and 2047 are there.
    let bits: Vec<u64> = (0..32)
        .map(|word| (0..64).filter(|bit| matches!(word * 64 + bit, 3..=199 | 2047)).map(|bit| 1 << bit).sum())
        .collect();
    let presence = |sector: u64, sectors: u64| {
        let (is_there, bytes) = layer.presence((1 << 20) + sector * 512, sectors * 512, |index| bits[index]);
        (is_there, bytes / 512)
    };
    for (sector, sectors, wanted) in [
        (0, 2048, (false, 3)),
        (0, 2, (false, 2)),
        (3, 2045, (true, 197)),
        (64, 1984, (true, 136)),
        (199, 1849, (true, 1)),
        (200, 1848, (false, 1847)),
        (2046, 2, (false, 1)),
        (2047, 1, (true, 1)),
    ] {
        assert_eq!(presence(sector, sectors), wanted, "{sectors} from {sector}");
    }
}

#[test]
fn an_image_says_what_its_disks_blocks_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.vhdx");
    let image = VhdxImage { sector_bytes: 4096, ..VhdxImage::new(4 << 20, 1 << 20) };
    fs::write(&path, image.bytes()).unwrap();
    let context = OpenContext { read_only: true, ..OpenContext::default() };
    let blocks = |keys: &str| {
        let named: DiskSpecification = format!("{}{keys}", path.display()).parse().unwrap();
        named.open(&context).unwrap().disk.geometry().logical_block_bytes
    };
    assert_eq!((blocks(""), blocks(",block-size=512"), blocks(",block-size=8192")), (4096, 512, 8192));
}
