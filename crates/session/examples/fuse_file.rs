//! Mounts a disk over a file until that is unmounted or standard input ends:
//! `cargo run --release -p blockyard-session --example fuse_file -- FILE (IMAGE | mem:BYTES | null:BYTES) [THREADS]`

use blockyard_block::{Disk, FileDisk, FileOptions, MemoryDisk, NullDisk, explain};
use blockyard_session::fuse::{FuseFile, FuseOptions};
use rustix::event::{PollFd, PollFlags, poll};
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, disk, threads @ ..] = &arguments[..] else { return Err("FILE DISK [THREADS]".into()) };
    let disk: Arc<dyn Disk> = match disk.split_once(':') {
        Some(("mem", bytes)) => Arc::new(MemoryDisk::new(bytes.parse()?, 512)?),
        Some(("null", bytes)) => Arc::new(NullDisk::new(bytes.parse()?, 512)?),
        _ => Arc::new(FileDisk::open(Path::new(disk), &FileOptions::default())?),
    };
    let mut options = FuseOptions::default();
    if let Some(threads) = threads.first() {
        options.threads = threads.parse()?;
    }
    let mounted = FuseFile::mount(disk, Path::new(file), &options)?;
    println!("{} is the disk", mounted.path().display());
    let stdin = std::io::stdin();
    let mut events = [PollFd::new(&stdin, PollFlags::IN), PollFd::from_borrowed_fd(mounted.ended(), PollFlags::IN)];
    poll(&mut events, None)?;
    if let Some(reason) = mounted.end_reason() {
        println!("no longer served: {}", explain(reason));
    }
    println!("unmounted: {:?}", mounted.unmount()?);
    Ok(())
}
