//! Serves one disk to one client at a time, for measuring: a disk that holds nothing, or a file.
//!
//! `cargo run --release -p blockyard-session --example serve_one -- SOCKET [FILE]`

use blockyard_block::{Disk, FileDisk, FileOptions, NullDisk};
use blockyard_session::server::{Export, Listener, Server, ServerOptions};
use rustix::event::{PollFd, PollFlags, poll};
use std::error::Error;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let socket = arguments.next().ok_or("which socket?")?;
    let disk: Arc<dyn Disk> = match arguments.next() {
        Some(file) => Arc::new(FileDisk::open(Path::new(&file), &FileOptions::default())?),
        None => Arc::new(NullDisk::new(8 << 30, 512)?),
    };
    let server = Server::start(&ServerOptions::default())?;
    let listener = Listener::bind(Path::new(&socket), &[])?;
    loop {
        poll(&mut [PollFd::new(&listener, PollFlags::IN)], None)?;
        let Some(stream) = listener.accept()? else { continue };
        let export = Export { name: "disk".into(), disk: disk.clone(), queues: 4, weight: NonZeroU32::MIN };
        let session = server.attach(stream, export)?;
        println!("the session is over: {}", session.wait());
        let statistics = session.statistics();
        println!("{:?}, waits {:?}", statistics.counts, server.waits());
        for (what, latencies) in [("reads", &statistics.reads), ("writes", &statistics.writes)] {
            if let (Some(p50), Some(p99)) = (latencies.percentile_ns(0.5), latencies.percentile_ns(0.99)) {
                println!("{what}: p50 {p50} ns, p99 {p99} ns");
            }
        }
    }
}
