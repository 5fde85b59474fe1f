//! What a figure is measured with: a binary, a directory, files to read, servers.

use crate::{describe, fio_engine, output, run};
use anyhow::{Context, bail, ensure};
use serde_json::Value;
use std::cell::OnceCell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Yard {
    binary: PathBuf,
    directory: TempDir,
    data: OnceCell<PathBuf>,
    fio_engine: OnceCell<PathBuf>,
    /// What has `bench disk` write to a disk that holds something: nothing where an older binary does so anyway.
    force: &'static str,
}

impl Yard {
    /// Files go where cargo builds, which is a disk rather than memory.
    pub(super) fn new(binary: PathBuf, target_directory: &Path) -> anyhow::Result<Self> {
        ensure!(binary.is_file(), "there is no {}", binary.display());
        let directory = TempDir::with_prefix_in("figures-", target_directory).context("cannot make a directory")?;
        let help = output(Command::new(&binary).args(["bench", "disk", "--help"]))?;
        let force = if help.contains("--force") { "--force" } else { "" };
        Ok(Self { binary, directory, data: OnceCell::new(), fio_engine: OnceCell::new(), force })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `blockyard` with `words`, separated by spaces, in the yard's directory.
    pub(super) fn blockyard(&self, words: &str) -> Command {
        let mut command = self.program(&self.binary, words);
        command.stderr(Stdio::null());
        command
    }

    /// Another program, as [`Self::blockyard`].
    pub(super) fn program(&self, program: impl AsRef<Path>, words: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command.args(words.split_ascii_whitespace()).current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    /// `blockyard bench disk --json` with `words`, whatever the disk holds.
    pub(super) fn bench_disk(&self, words: &str) -> Command {
        self.blockyard(&format!("bench disk {words} {} --json", self.force))
    }

    /// `data`, a file of 1 GiB of random bytes which are in the page cache.
    pub(super) fn data(&self) -> anyhow::Result<()> {
        if self.data.get().is_none() {
            let path = self.path("data");
            let mut file = File::create(&path)?;
            io::copy(&mut File::open("/dev/urandom")?.take(1 << 30), &mut file)?;
            file.sync_all()?;
            let _ = self.data.set(path);
        }
        Ok(())
    }

    /// The engine for the fio that is installed, built when it is first asked for.
    pub(super) fn fio_engine(&self) -> anyhow::Result<&Path> {
        if self.fio_engine.get().is_none() {
            let _ = self.fio_engine.set(fio_engine::build(None)?.path);
        }
        self.fio_engine.get().map(PathBuf::as_path).context("there is no engine")
    }

    /// A new empty file of so many bytes, holes all of it.
    pub(super) fn sparse(&self, name: &str, bytes: u64) -> anyhow::Result<()> {
        Ok(File::create(self.path(name))?.set_len(bytes)?)
    }

    /// Removes what an earlier round left.
    pub(super) fn remove(&self, name: &str) -> anyhow::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// A server of `disk` at the socket `s`.
    pub(super) fn serve(&self, disk: &str) -> anyhow::Result<Server> {
        self.start(&mut self.blockyard(&format!("serve {disk} --socket s")))
    }

    /// qemu-storage-daemon serving a raw file at the socket `s`.
    pub(super) fn qemu_storage_daemon(&self, file: &str) -> anyhow::Result<Server> {
        let words = format!(
            "--blockdev driver=file,node-name=f,filename={file},aio=io_uring,cache.direct=off \
             --export type=vhost-user-blk,id=e,node-name=f,writable=on,addr.type=unix,addr.path=s"
        );
        self.start(&mut self.program("qemu-storage-daemon", &words))
    }

    fn start(&self, command: &mut Command) -> anyhow::Result<Server> {
        self.remove("s")?;
        let command = command.stdout(Stdio::null());
        let mut server = Server(command.spawn().with_context(|| format!("cannot run {}", describe(command)))?);
        let begin = Instant::now();
        while !self.path("s").exists() {
            if server.0.try_wait()?.is_some() || begin.elapsed() > PATIENCE {
                bail!("{} does not listen", describe(command));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

/// Killed when dropped.
pub(super) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `command` says with `--json`.
pub(super) fn json(command: &mut Command) -> anyhow::Result<Value> {
    serde_json::from_str(&output(command)?).context("it is no JSON")
}

/// Seconds that `command` takes.
pub(super) fn seconds(command: &mut Command) -> anyhow::Result<f64> {
    let command = command.stdout(Stdio::null());
    let begin = Instant::now();
    run(command)?;
    Ok(begin.elapsed().as_secs_f64())
}
