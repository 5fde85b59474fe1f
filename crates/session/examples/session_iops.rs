//! How many requests go through a session with a null disk: `cargo run --release -p blockyard-session --example
//! session_iops [DEPTH [BYTES]]`. Server and client are threads of one process here; what passes between them is what
//! passes between two.

use blockyard_block::{Disk, MemoryMap, NullDisk, Operation, Request, Segment};
use blockyard_session::client::{SessionDisk, SessionOptions};
use blockyard_session::server::{Export, Server, ServerOptions};
use std::num::NonZeroU32;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u32>());
    let depth = numbers.next().transpose()?.unwrap_or(64);
    let bytes = numbers.next().transpose()?.unwrap_or(4096);
    let server = Server::start(&ServerOptions::default())?;
    let (ours, theirs) = UnixStream::pair()?;
    let export = Export {
        name: "null".into(),
        disk: Arc::new(NullDisk::new(8 << 30, 512)?),
        queues: 1,
        weight: NonZeroU32::MIN,
        is_alone: false,
    };
    let _session = server.attach(theirs, export)?;
    let disk = SessionDisk::from_stream(ours, "null", &SessionOptions::default())?;
    let memory = MemoryMap::allocate(&[(0, (depth * bytes) as usize)])?;
    let mut queue = disk.open_queue(&memory, depth as usize)?;
    let mut idle: Vec<u32> = (0..depth).collect();
    let mut completions = Vec::with_capacity(depth as usize);
    let (start, mut done, mut reaps) = (Instant::now(), 0_u64, 0_u64);
    while start.elapsed() < Duration::from_secs(3) {
        while let Some(slot) = idle.pop() {
            let offset_bytes = u64::from(slot) * u64::from(bytes);
            let segments = [Segment { region: 0, length_bytes: bytes, offset_bytes }];
            let operation = Operation::Write { force_unit_access: false };
            queue.push(&Request { operation, offset_bytes, segments: &segments, token: slot.into() })?;
        }
        queue.submit()?;
        queue.wait(&[], None)?;
        queue.reap(&mut completions);
        reaps += 1;
        done += completions.len() as u64;
        idle.extend(completions.drain(..).map(|completion| completion.token as u32));
    }
    let thousands = done as f64 / start.elapsed().as_secs_f64() / 1000.0;
    println!("depth {depth}, {bytes} bytes: {thousands:.0} k requests/s, {:.1} a reap", done as f64 / reaps as f64);
    Ok(())
}
