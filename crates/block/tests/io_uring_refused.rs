//! Where io_uring is refused, threads take over.

use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap, Operation, Request, Segment};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Refuses io_uring_setup to the calling thread with `errno`, as container runtimes do.
fn refuse_io_uring(errno: i32) {
    let rules = [(libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
    let refuse = SeccompAction::Errno(errno as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

fn read_with(engine: Engine) -> std::io::Result<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    std::fs::write(&path, [3; 4096]).unwrap();
    let disk = FileDisk::open(&path, &FileOptions { engine, ..FileOptions::default() }).unwrap();
    let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
    let segment = Segment { region: 0, length_bytes: 4096, offset_bytes: 0 };
    let mut queue = disk.open_queue(&memory, 8)?;
    let request = Request { operation: Operation::Read, offset_bytes: 0, segments: &[segment], token: 1 };
    queue.push(&request).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions)?;
    assert_eq!(completions[0].result, Ok(()));
    let mut read = vec![0u8; 4096];
    memory.slice(segment).unwrap().copy_to(&mut read);
    Ok(read)
}

#[test]
fn auto_falls_back_to_threads() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
        std::thread::spawn(move || {
            refuse_io_uring(errno);
            let refused = read_with(Engine::Uring).expect_err("io_uring is refused");
            assert_eq!(refused.raw_os_error(), Some(errno));
            assert_eq!(read_with(Engine::Auto).unwrap(), [3; 4096]);
        })
        .join()
        .unwrap();
    }
}

#[test]
fn other_errors_of_io_uring_are_told() {
    std::thread::spawn(|| {
        refuse_io_uring(libc::EMFILE);
        assert_eq!(read_with(Engine::Auto).unwrap_err().raw_os_error(), Some(libc::EMFILE));
    })
    .join()
    .unwrap();
}
