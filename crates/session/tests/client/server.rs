//! Disk servers that the client is tested against.

use blockyard_session::client::{SessionDisk, SessionError, SessionOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A program that serves an image on a socket.
pub(crate) trait Server {
    /// How to start it.
    fn command(&self, image: &Path, socket: &Path, queues: u16) -> Command;
}

/// QEMU's.
pub(crate) struct QemuStorageDaemon;

impl Server for QemuStorageDaemon {
    fn command(&self, image: &Path, socket: &Path, queues: u16) -> Command {
        let mut command = Command::new("qemu-storage-daemon");
        let file = format!("driver=file,node-name=f,discard=unmap,filename={}", image.display());
        let export = format!(
            "type=vhost-user-blk,id=e,node-name=f,writable=on,num-queues={queues},addr.type=unix,addr.path={}",
            socket.display()
        );
        command.args(["--blockdev", &file, "--export", &export]);
        command
    }
}

/// A server that runs. Killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) socket: PathBuf,
}

impl Running {
    pub(crate) fn start(server: &dyn Server, image: &Path, socket: &Path, queues: u16) -> Self {
        let mut command = server.command(image, socket, queues);
        let child = command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| {
            panic!("cannot run {command:?}: {error}; Debian's qemu-system-common brings qemu-storage-daemon")
        });
        Self { child, socket: socket.to_owned() }
    }

    /// Connects, as soon as it listens.
    pub(crate) fn connect(&self, options: &SessionOptions) -> SessionDisk {
        let start = Instant::now();
        loop {
            match SessionDisk::connect(&self.socket, options) {
                Err(SessionError::NobodyListens(_)) if start.elapsed() < Duration::from_secs(20) => {
                    sleep(Duration::from_millis(5));
                }
                result => return result.unwrap(),
            }
        }
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
