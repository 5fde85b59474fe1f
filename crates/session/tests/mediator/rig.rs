//! A partitioned disk, and a driver that greets its clients.

use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryDisk};
use blockyard_session::mediator::{Driver, Grant, Grantor, MediatorNews, PartitionExport, control_pair};
use blockyard_session::server::ClientStream;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const DISK_BYTES: u64 = 16 << 20;
/// Longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Partitions 1 and 2, 5 and 6 in 3.
pub(crate) const TABLE: &str = "label: dos
start=2048, size=4096, type=83
start=6144, size=2048, type=83
start=8192, size=16384, type=5
disk5 : start=10240, size=2048, type=83
disk6 : start=14336, size=2048, type=83
";

/// A directory that every user may look into, with a disk.
pub(crate) struct Yard {
    directory: tempfile::TempDir,
}

impl Yard {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let yard = Self { directory };
        File::create(yard.image()).unwrap().set_len(DISK_BYTES).unwrap();
        yard.partition(TABLE);
        yard
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.path("disk.img")
    }

    /// Writes a table with sfdisk.
    pub(crate) fn partition(&self, script: &str) {
        let mut sfdisk = Command::new("sfdisk");
        sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(self.image()).stdin(Stdio::piped());
        let mut sfdisk = sfdisk.spawn().expect("sfdisk comes with the package `fdisk`");
        sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(sfdisk.wait().unwrap().success());
    }

    pub(crate) fn disk(&self) -> Arc<dyn Disk> {
        open(&self.image())
    }

    /// `N=SOCKET` with the socket `N.sock` here, and what is said after that.
    pub(crate) fn export(&self, number: u32, words: &str) -> PartitionExport {
        format!("{number}={}{words}", self.socket(number).display()).parse().unwrap()
    }

    pub(crate) fn socket(&self, number: u32) -> PathBuf {
        self.path(&format!("{number}.sock"))
    }

    pub(crate) fn has_socket(&self, number: u32) -> bool {
        fs::symlink_metadata(self.socket(number)).is_ok()
    }

    /// Connects, and reads until the end or for as long as something comes: who greets, or nothing.
    pub(crate) fn connect(&self, number: u32) -> Client {
        Client(UnixStream::connect(self.socket(number)).unwrap())
    }
}

pub(crate) fn open(image: &Path) -> Arc<dyn Disk> {
    let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
    Arc::new(FileDisk::open(image, &options).unwrap())
}

pub(crate) struct Client(UnixStream);

impl Client {
    /// What the driver greets with; empty when this client is turned away.
    pub(crate) fn greeting(&mut self) -> String {
        self.0.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while self.0.read(&mut byte).is_ok_and(|count| count == 1) && byte != *b"\n" {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Whether somebody answers.
    pub(crate) fn is_served(&mut self) -> bool {
        self.0.write_all(b"?").is_ok() && self.greeting() == "!"
    }
}

/// Greets clients with what they are granted, and answers `?` with `!`.
pub(crate) struct Greeter {
    clients: BTreeMap<u64, UnixStream>,
    news: Sender<MediatorNews>,
    grants: Sender<Grant>,
}

impl Grantor for Greeter {
    fn grant(&mut self, grant: &Grant, stream: ClientStream) -> Result<(), String> {
        let mut stream = stream.into_inner();
        let Grant { range_bytes, read_only, weight, name, .. } = grant;
        let _ = writeln!(stream, "{name} {range_bytes:?} {} {weight}", if *read_only { "ro" } else { "rw" });
        stream.set_nonblocking(true).unwrap();
        self.clients.insert(grant.session, stream);
        let _ = self.grants.send(grant.clone());
        Ok(())
    }

    fn revoke(&mut self, session: u64) {
        self.clients[&session].shutdown(std::net::Shutdown::Both).unwrap();
    }

    fn events<'a>(&'a self, events: &mut Vec<BorrowedFd<'a>>) {
        events.extend(self.clients.values().map(AsFd::as_fd));
    }

    fn ended(&mut self) -> Vec<(u64, String)> {
        let mut ended = Vec::new();
        self.clients.retain(|&session, stream| {
            let stays = answer(stream);
            if !stays {
                ended.push((session, "the client has left".into()));
            }
            stays
        });
        ended
    }

    fn mediator_says(&mut self, news: MediatorNews) {
        let _ = self.news.send(news);
    }
}

/// Answers what a client asks; false when it has left.
fn answer(stream: &mut UnixStream) -> bool {
    let mut byte = [0];
    loop {
        match stream.read(&mut byte) {
            Ok(1) => drop(stream.write_all(b"!\n")),
            Ok(_) => return false,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// A driver on a thread. Dropped: it ends, and the mediator with it.
pub(crate) struct Serving {
    pub(crate) news: Receiver<MediatorNews>,
    pub(crate) grants: Receiver<Grant>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Starts the driver, and gives the mediator's end of the control socket to whoever runs that.
    pub(crate) fn start() -> (Self, OwnedFd) {
        // Nobody serves this: the mediator reads the image itself.
        let (_ours, session) = UnixStream::pair().unwrap();
        Self::start_with(&session)
    }

    /// The same, with a connection that the mediator can use.
    pub(crate) fn start_with(session: &UnixStream) -> (Self, OwnedFd) {
        // As large as the image, which is the mediator's to open here: nothing is read of this one.
        let disk = Arc::new(MemoryDisk::new(DISK_BYTES, 512).unwrap());
        let (ours, theirs) = control_pair().unwrap();
        let (news_sender, news) = channel();
        let (grants_sender, grants) = channel();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let mut driver = Driver::new(ours, disk);
        driver.start(session).unwrap();
        let thread = std::thread::spawn(move || {
            let mut greeter = Greeter { clients: BTreeMap::new(), news: news_sender, grants: grants_sender };
            driver.run(&mut greeter, stopped.as_fd()).unwrap();
        });
        (Self { news, grants, stop: Some(stop), thread: Some(thread) }, theirs)
    }

    pub(crate) fn hear(&self) -> MediatorNews {
        self.news.recv_timeout(PATIENCE).expect("the mediator says nothing")
    }

    /// Whether there was a notice with these words by now.
    pub(crate) fn has_heard_notice(&self, words: &str) -> bool {
        self.news.try_iter().any(|news| matches!(news, MediatorNews::Notice(what) if what.contains(words)))
    }

    /// Waits for a notice with these words; others may come before it.
    #[track_caller]
    pub(crate) fn hears_notice(&self, words: &[&str]) {
        loop {
            let MediatorNews::Notice(what) = self.hear() else { panic!("no notice") };
            if words.iter().all(|word| what.contains(word)) {
                return;
            }
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
