//! On a file past the page cache, whose file system wants transfers aligned.

use crate::aligned;
use crate::rig::model::{Action, DISK_BYTES, run};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions};
use std::sync::Arc;

fn random_requests_past_the_page_cache(engine: Engine) {
    blockyard_fuzz::check!(25).with_type::<Vec<Action>>().for_each(|actions| {
        let file = tempfile::tempfile().unwrap();
        file.set_len(DISK_BYTES as u64).unwrap();
        // As if the file wanted transfers of 4096 bytes, where it takes smaller ones.
        let options = FileOptions { engine, direct: true, logical_block_bytes: 4096, ..FileOptions::default() };
        let disk = FileDisk::from_file(file, &options).unwrap();
        assert!(disk.geometry().memory_align_bytes >= 512);
        run(aligned(Arc::new(disk), 16), actions);
    });
}

mod uring {
    #[test]
    fn random_requests_past_the_page_cache() {
        super::random_requests_past_the_page_cache(super::Engine::Auto);
    }
}

mod threads {
    #[test]
    fn random_requests_past_the_page_cache() {
        super::random_requests_past_the_page_cache(super::Engine::Threads);
    }
}
