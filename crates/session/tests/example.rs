//! The example `serve`, with a client.
//!
//! There is no test harness: the server splits off a process, as the example does, before it has threads.

#[path = "../examples/serve.rs"]
mod serve;

use blockyard_block::{Disk, read_bytes, write_bytes};
use blockyard_session::client::{SessionDisk, SessionOptions};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

/// Says that this program is to be the example.
const EXAMPLE: &str = "BLOCKYARD_EXAMPLE";

/// Ends with whoever waits for it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    if std::env::var_os(EXAMPLE).is_some() {
        return serve::main();
    }
    a_client_reads_what_it_has_written();
    println!("test a_client_reads_what_it_has_written ... ok");
    ExitCode::SUCCESS
}

fn a_client_reads_what_it_has_written() {
    let directory = tempfile::tempdir().unwrap();
    let (file, socket) = (directory.path().join("disk.img"), directory.path().join("socket"));
    File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    let server = command.args([&file, &socket]).env(EXAMPLE, "1").stdout(Stdio::piped()).spawn();
    let mut server = Server(server.unwrap());
    let mut said = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("listening at "), "the server has ended");
    // One after the other.
    for number in 1..=2 {
        let disk = SessionDisk::connect(&socket, &SessionOptions::default()).unwrap();
        assert_eq!(disk.geometry().capacity_bytes, 1 << 20);
        write_bytes(&disk, 4096, &[number; 1024]).unwrap();
        assert_eq!(read_bytes(&disk, 4096..5120).unwrap(), [number; 1024]);
    }
    assert_eq!(fs::read(&file).unwrap()[4096..5120], [2; 1024]);
}
