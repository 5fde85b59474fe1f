//! Writers of neighbouring bytes: what a disk does by blocks must lose none of them.

use crate::rig::{MIB, Mounted, RecordingDisk, run};
use blockyard_block::MemoryDisk;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::thread;

/// On which whoever does it wrong is found out: there is time for a neighbour between the read and the write of a
/// block.
fn slow_to_change(block_bytes: u32) -> Mounted {
    Mounted::new(RecordingDisk::with_slow_reads(MemoryDisk::new(MIB, block_bytes).expect("a disk")))
}

/// Each writes its own bytes of the same blocks, again and again, past the cache.
#[test]
fn writers_of_every_third_byte_and_of_whole_blocks_lose_nothing() {
    const WRITERS: usize = 3;
    const ROUNDS: u8 = 20;
    for block_bytes in [512_usize, 4096] {
        let mounted = slow_to_change(block_bytes as u32);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let file = mounted.open(libc::O_DIRECT);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        for offset in (writer..96).step_by(WRITERS) {
                            file.write_all_at(&[round], offset as u64).expect("written");
                        }
                    }
                });
            }
            let file = mounted.open(libc::O_DIRECT);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    // Whole blocks and parts of the next ones, right behind the others' bytes.
                    file.write_all_at(&vec![round; 3 * block_bytes], 96).expect("written");
                    file.write_all_at(&vec![round; block_bytes], 4 * block_bytes as u64).expect("written");
                }
            });
        });
        let now = fs::read(mounted.path()).expect("read");
        assert!(now[..96 + 3 * block_bytes].iter().all(|&byte| byte == ROUNDS), "{block_bytes}: {:?}", &now[..96]);
        assert!(now[4 * block_bytes..5 * block_bytes].iter().all(|&byte| byte == ROUNDS));
    }
}

#[test]
fn two_processes_that_write_bytes_by_turns_lose_nothing() {
    let mounted = slow_to_change(512);
    let writer = |letter: &str, first: usize| {
        let write = format!("printf {letter} | dd of=$0 bs=1 seek=$i oflag=direct conv=notrunc status=none");
        let script = format!("for i in $(seq {first} 2 159); do {write} || exit 1; done");
        Command::new("timeout")
            .args(["60", "sh", "-c", &script])
            .arg(mounted.path())
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell")
    };
    let writers = [writer("a", 0), writer("b", 1)];
    for mut child in writers {
        assert!(child.wait().expect("ended").success());
    }
    let now = fs::read(mounted.path()).expect("read");
    assert_eq!(String::from_utf8_lossy(&now[..160]), "ab".repeat(80));
    run("coreutils", "cmp", "-n 1000000 -i 160:0 {} /dev/zero", mounted.path());
}
