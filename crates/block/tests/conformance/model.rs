//! Random requests on every engine, compared with a vector of bytes.

use crate::on_every_engine;
use crate::rig::{Rig, WRITE, options, request};
use crate::shared::model::{Action, Model};
use blockyard_block::{Disk, Engine, FileOptions, Operation, RequestError};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;

on_every_engine!(random_requests_do_what_a_vector_does);

const FILE_BYTES: usize = 200_001;
const BLOCK_BYTES: u32 = 4096;

/// The file becomes as long as the disk when there is something to keep behind its end.
fn random_requests_do_what_a_vector_does(engine: Engine) {
    blockyard_fuzz::check!(400).with_type::<Vec<Action>>().for_each(|actions| {
        let file = File::from(memfd_create("model", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(FILE_BYTES as u64).unwrap();
        let options = FileOptions { logical_block_bytes: BLOCK_BYTES, ..options(engine) };
        let model = Model::new(Rig::from_file(file.try_clone().unwrap(), &options).rig);
        let expected = model.run(actions);
        let length = file.metadata().unwrap().len() as usize;
        let mut contents = vec![0; length];
        file.read_exact_at(&mut contents, 0).unwrap();
        assert!(contents == expected[..length]);
        assert!(expected[length..].iter().all(|&byte| byte == 0));
        assert!(length == FILE_BYTES || length == FILE_BYTES.next_multiple_of(BLOCK_BYTES as usize));
    });
}

#[test]
fn the_same_requests_on_a_null_disk_end_the_same_way() {
    let disk = blockyard_block::NullDisk::new(1 << 20, 512).unwrap();
    let rig = Rig::new(Engine::Sync, &[]);
    let mut queue = disk.open_queue(&rig.memory, 2).unwrap();
    rig.poke(0, &[7; 1024]);
    let segments = rig.segments(0, 512);
    queue.push(&request(Operation::Read, 0, &segments, 1)).unwrap();
    queue.push(&request(WRITE, 1 << 20, &segments, 2)).unwrap();
    assert!(queue.push(&request(Operation::Flush, 0, &[], 3)).is_err());
    let mut completions = Vec::new();
    queue.reap(&mut completions);
    assert!(completions.is_empty());
    queue.drain(&mut completions).unwrap();
    assert_eq!(completions[0].result, Ok(()));
    assert_eq!(completions[1].result, Err(RequestError::OutOfRange));
    assert_eq!(rig.peek(0, 1024), [vec![0; 512], vec![7; 512]].concat());
}
