//! A `blockyard serve` for a test: ready when its socket is, gone when the test is.

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A running server.
pub(crate) struct Server(Child);

impl Server {
    /// Starts `blockyard serve` and waits until it listens on `socket`.
    pub(crate) fn start(arguments: &[&OsStr], socket: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        Self::spawn(command.arg("serve").args(arguments), socket)
    }

    /// As [`Server::start`], whatever else the command is to have.
    pub(crate) fn spawn(command: &mut Command, socket: &Path) -> Self {
        command.stdin(Stdio::null());
        let mut server = Self(command.spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !listens(socket) {
            assert!(server.0.try_wait().unwrap().is_none(), "the server has ended");
            assert!(Instant::now() < deadline, "the server does not listen on {}", socket.display());
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// Its process id.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// Stops all of its threads, each of which goes on a moment after the signal was sent.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn suspend(&self) {
        kill_process(self.id(), Signal::STOP).unwrap();
        let tasks = format!("/proc/{}/task", self.id().as_raw_nonzero());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            // One that has ended meanwhile is.
            std::fs::read_to_string(task.unwrap().path().join("stat")).map_or(true, |stat| stat.contains(") T "))
        };
        while !std::fs::read_dir(&tasks).unwrap().all(is_stopped) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Asks it to end, and expects that it does, with success.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn stop(mut self) {
        kill_process(self.id(), Signal::TERM).unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                assert!(status.success(), "the server ended with {status}");
                return;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it without warning.
    #[allow(dead_code, reason = "not every test that includes this needs it")]
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended long ago.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether somebody listens: /proc says so without a connection, which a server would take for its client.
pub(crate) fn listens(socket: &Path) -> bool {
    let path = socket.to_string_lossy();
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    // The flag 10000 is set while a socket accepts connections (`__SO_ACCEPTCON`).
    sockets.lines().any(|line| line.ends_with(path.as_ref()) && line.split_whitespace().nth(3) == Some("00010000"))
}
