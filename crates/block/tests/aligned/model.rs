//! Random requests on disks with random demands, compared with a vector of bytes.

use crate::aligned;
use crate::rig::demanding_disk::{DemandingDisk, Demands};
use crate::rig::model::{Action, DISK_BYTES, run};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryDisk};
use bolero::TypeGenerator;
use std::sync::Arc;

#[derive(Clone, Debug, TypeGenerator)]
struct RandomDemands {
    block: u8,
    transfer: u8,
    segments: u8,
    memory: u8,
    depth: u8,
    seed: u64,
}

impl RandomDemands {
    fn demands(&self) -> Demands {
        let block_bytes = 512 << (self.block % 6);
        let blocks = [u64::MAX / u64::from(block_bytes), 1, 2, 3, 16, 100][usize::from(self.transfer % 6)];
        Demands {
            block_bytes,
            transfer_bytes_max: blocks * u64::from(block_bytes),
            segments_max: [32768, 1, 2, 3][usize::from(self.segments % 4)],
            memory_align_bytes: [1, 4, 512, 4096][usize::from(self.memory % 4)].min(block_bytes.max(512)),
            depth: [1, 2, 8, 16][usize::from(self.depth % 4)],
        }
    }
}

#[test]
fn random_requests_do_what_a_vector_does_whatever_the_disk_demands() {
    blockyard_fuzz::check!(1500).with_type::<(RandomDemands, Vec<Action>)>().for_each(|(random, actions)| {
        let memory: Arc<dyn Disk> = Arc::new(MemoryDisk::new(DISK_BYTES as u64, 512).unwrap());
        let disk = DemandingDisk::new(memory, random.demands(), random.seed);
        run(aligned(Arc::new(disk), 16), actions);
    });
}

/// A disk whose queue does everything inside `submit`.
#[test]
fn random_requests_do_what_a_vector_does_on_the_callers_thread() {
    blockyard_fuzz::check!(30).with_type::<Vec<Action>>().for_each(|actions| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(DISK_BYTES as u64).unwrap();
        let options = FileOptions { engine: Engine::Sync, direct: true, ..FileOptions::default() };
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::from_file(file, &options).unwrap());
        let rig = aligned(disk, 16);
        assert!(rig.queue.completion_event().is_none());
        run(rig, actions);
    });
}
