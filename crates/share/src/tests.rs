//! A guest by hand: it says what no driver would.

use crate::device::Server;
use crate::file_system::FileSystem;
use crate::limits::Limits;
use blockyard_block::{MemoryMap, Segment};
use blockyard_devices::virtio::{Message, MessageHandler};
use bolero::TypeGenerator;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, mknodat, open, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use vm_memory::{Bytes, GuestAddress};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const READLINK: u32 = 5;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const UNLINK: u32 = 10;
const RENAME: u32 = 12;
const LINK: u32 = 13;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const RELEASE: u32 = 18;
const SETXATTR: u32 = 21;
const GETXATTR: u32 = 22;
const LISTXATTR: u32 = 23;
const INIT: u32 = 26;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const CREATE: u32 = 35;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;
const READDIRPLUS: u32 = 44;
const RENAME2: u32 = 45;
const COPY_FILE_RANGE: u32 = 47;

const ROOT: u64 = 1;
const MEMORY_BYTES: usize = 4 << 20;
/// Where the answer goes.
const ANSWER: u64 = 2 << 20;

/// A guest of a directory, with nothing between.
struct Guest {
    outer: tempfile::TempDir,
    memory: MemoryMap,
    file_system: Arc<FileSystem>,
    server: Server,
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn halves(halves: &[u32]) -> Vec<u8> {
    halves.iter().flat_map(|half| half.to_ne_bytes()).collect()
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Guest {
    fn new() -> Self {
        Self::with(false, Limits { nodes: 1000, handles: 100 })
    }

    fn with(read_only: bool, limits: Limits) -> Self {
        Self::limited(read_only, limits, None)
    }

    fn limited(read_only: bool, limits: Limits, limit: Option<u64>) -> Self {
        let outer = tempfile::tempdir().unwrap();
        let shared = outer.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::write(outer.path().join("outside"), "secret").unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(&shared, flags, Mode::empty()).unwrap();
        let file_system = Arc::new(FileSystem::open(&directory, read_only, limits).unwrap().with_limit(limit));
        let memory = MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap();
        let server = Server::new(Arc::clone(&file_system));
        Self { outer, memory, file_system, server }
    }

    fn shared(&self) -> PathBuf {
        self.outer.path().join("shared")
    }

    /// Sends these bytes with room for an answer of so many, and says how many came back.
    fn send(&mut self, bytes: &[u8], room_bytes: u32) -> u32 {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(0)).unwrap();
        // In odd pieces, as a driver may.
        let mut readable = Vec::new();
        let mut at = 0;
        for length in [3, 40, 41, 7, u32::MAX] {
            let length = length.min(bytes.len() as u32 - at);
            readable.extend((length > 0).then_some(Segment {
                region: 0,
                length_bytes: length,
                offset_bytes: at.into(),
            }));
            at += length;
        }
        let writable = [Segment { region: 0, length_bytes: room_bytes, offset_bytes: ANSWER }];
        let writable = if room_bytes > 0 { &writable[..] } else { &[] };
        self.server.handle(&Message { memory: &self.memory, readable: &readable, writable })
    }

    fn bytes(&self, length: u32) -> Vec<u8> {
        let mut bytes = vec![0; length as usize];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(ANSWER)).unwrap();
        bytes
    }

    /// The answer's body.
    fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let length = 40 + body.len() as u32;
        let message = [halves(&[length, opcode]), words(&[77, node, 0, 0]), body.to_vec()].concat();
        let used = self.send(&message, 1 << 20);
        let answer = self.bytes(used);
        assert!(used >= 16 && word(&answer, 8) == 77, "{answer:x?}");
        assert_eq!(word(&answer, 0) as u32, used, "its length");
        match (word(&answer, 0) >> 32) as i32 {
            0 => Ok(answer[16..].to_vec()),
            error => Err(Errno::from_raw_os_error(-error)),
        }
    }

    fn lookup(&mut self, node: u64, name: &str) -> Result<u64, Errno> {
        self.ask(LOOKUP, node, &text(name)).map(|entry| word(&entry, 0))
    }

    fn open(&mut self, node: u64, flags: i32) -> Result<u64, Errno> {
        self.ask(OPEN, node, &halves(&[flags as u32, 0])).map(|opened| word(&opened, 0))
    }

    fn create(&mut self, node: u64, name: &str, flags: i32, mode: u32) -> Result<(u64, u64), Errno> {
        let body = [halves(&[flags as u32, mode, 0, 0]), text(name)].concat();
        self.ask(CREATE, node, &body).map(|made| (word(&made, 0), word(&made, 128)))
    }

    fn read(&mut self, handle: u64, offset: u64, length: u32) -> Result<Vec<u8>, Errno> {
        self.ask(READ, 0, &[words(&[handle, offset]), halves(&[length, 0]), words(&[0, 0])].concat())
    }

    fn write(&mut self, handle: u64, offset: u64, flags: i32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        let sizes = halves(&[data.len() as u32, 0, 0, 0, flags as u32, 0]);
        self.ask(WRITE, 0, &[words(&[handle, offset]), sizes, data.to_vec()].concat())
    }

    /// The names in a directory, read so many bytes at a time.
    fn names(&mut self, node: u64, room_bytes: u32) -> Vec<String> {
        let handle = word(&self.ask(OPENDIR, node, &words(&[0])).unwrap(), 0);
        let (mut names, mut offset) = (Vec::new(), 0);
        loop {
            let body = [words(&[handle, offset]), halves(&[room_bytes, 0]), words(&[0, 0])].concat();
            let entries = self.ask(READDIR, node, &body).unwrap();
            if entries.is_empty() {
                self.ask(RELEASE, node, &words(&[handle, 0, 0])).unwrap();
                return names;
            }
            let mut at = 0;
            while at < entries.len() {
                offset = word(&entries, at + 8);
                let length = word(&entries, at + 16) as u32 as usize;
                names.push(String::from_utf8(entries[at + 24..at + 24 + length].to_vec()).unwrap());
                at += (24 + length).next_multiple_of(8);
            }
        }
    }
}

#[test]
fn files_are_made_written_and_read() {
    let mut guest = Guest::new();
    let (node, handle) = guest.create(ROOT, "file", libc_flags::RDWR, 0o640).unwrap();
    assert_eq!(word(&guest.write(handle, 0, 0, b"0123456789").unwrap(), 0), 10);
    assert_eq!(guest.read(handle, 4, 4096).unwrap(), b"456789");
    // Where it appends is up to the host's file, not to what the guest believes.
    fs::write(guest.shared().join("file"), "longer than it was").unwrap();
    guest.write(handle, 3, libc_flags::APPEND, b"!").unwrap();
    assert_eq!(fs::read_to_string(guest.shared().join("file")).unwrap(), "longer than it was!");
    assert_eq!(guest.lookup(ROOT, "file"), Ok(node), "the same file is the same node");
    guest.ask(RELEASE, node, &words(&[handle, 0, 0])).unwrap();
    assert_eq!(guest.read(handle, 0, 1), Err(Errno::BADF));
    guest.ask(UNLINK, ROOT, &text("file")).unwrap();
    assert_eq!(guest.lookup(ROOT, "file"), Err(Errno::NOENT));
    assert!(guest.ask(GETATTR, node, &words(&[0, 0])).is_ok(), "it is still known");
}

mod libc_flags {
    pub(super) const RDONLY: i32 = 0;
    pub(super) const WRONLY: i32 = 1;
    pub(super) const RDWR: i32 = 2;
    pub(super) const EXCL: i32 = 0o200;
    pub(super) const TRUNC: i32 = 0o1000;
    pub(super) const APPEND: i32 = 0o2000;
}
use libc_flags::*;

#[test]
fn names_that_lead_elsewhere_are_no_names() {
    let mut guest = Guest::new();
    fs::create_dir(guest.shared().join("inner")).unwrap();
    let inner = guest.lookup(ROOT, "inner").unwrap();
    let long = "n".repeat(256);
    let refused = [
        (text(".."), Errno::INVAL),
        (text("."), Errno::INVAL),
        (text(""), Errno::INVAL),
        (text("/"), Errno::INVAL),
        (text("../outside"), Errno::INVAL),
        (text("inner/../../outside"), Errno::INVAL),
        (text("/etc/passwd"), Errno::INVAL),
        (b"no end".to_vec(), Errno::INVAL),
        (b"two\0ends\0".to_vec(), Errno::INVAL),
        (Vec::new(), Errno::INVAL),
        (text(&long), Errno::NAMETOOLONG),
    ];
    for directory in [ROOT, inner] {
        for (name, errno) in &refused {
            for (opcode, before) in [
                (LOOKUP, vec![]),
                (UNLINK, vec![]),
                (MKDIR, halves(&[0o755, 0])),
                (MKNOD, halves(&[0o100_644, 0, 0, 0])),
                (CREATE, halves(&[RDWR as u32, 0o644, 0, 0])),
                (LINK, words(&[inner])),
            ] {
                let body = [&before[..], name].concat();
                assert_eq!(guest.ask(opcode, directory, &body), Err(*errno), "{opcode} {name:?}");
            }
            // Both names of a rename, and a link's own.
            let to = [words(&[ROOT]), text("inner"), name.clone()].concat();
            assert!(guest.ask(RENAME, directory, &to).is_err());
            let from = [words(&[ROOT]), name.clone(), text("inner")].concat();
            assert!(guest.ask(RENAME, directory, &from).is_err());
            assert!(guest.ask(SYMLINK, directory, &[&name[..], &text("target")].concat()).is_err());
        }
    }
    assert_eq!(fs::read_dir(guest.shared()).unwrap().count(), 1, "nothing was made");
    assert_eq!(fs::read_dir(guest.outer.path()).unwrap().count(), 2);
}

#[test]
fn links_are_text_and_lead_nowhere() {
    let mut guest = Guest::new();
    symlink("..", guest.shared().join("up")).unwrap();
    symlink("../outside", guest.shared().join("out")).unwrap();
    symlink("/proc/self/root", guest.shared().join("magic")).unwrap();
    for (name, to) in [("up", ".."), ("out", "../outside"), ("magic", "/proc/self/root")] {
        let link = guest.lookup(ROOT, name).unwrap();
        assert_eq!(guest.ask(READLINK, link, &[]).unwrap(), to.as_bytes());
        assert_eq!(guest.lookup(link, "outside"), Err(Errno::NOTDIR));
        assert_eq!(guest.open(link, RDONLY), Err(Errno::PERM));
        assert!(guest.ask(OPENDIR, link, &words(&[0])).is_err());
        // Neither does creating what a link has the name of.
        assert!(guest.create(ROOT, name, RDWR | TRUNC, 0o644).is_err());
        // Nor its mode or size, nor an attribute of what it leads to.
        let attributes = |valid: u32| [halves(&[valid, 0]), words(&[0; 10])].concat();
        assert_eq!(guest.ask(SETATTR, link, &attributes(1)), Err(Errno::OPNOTSUPP));
        assert_eq!(guest.ask(SETATTR, link, &attributes(8)), Err(Errno::PERM));
        let user = [halves(&[0, 0]), text("user.a")].concat();
        assert_eq!(guest.ask(GETXATTR, link, &user), Err(Errno::OPNOTSUPP));
        // A second name of a link is one of the link.
        guest.ask(LINK, ROOT, &[words(&[link]), text(&format!("{name}2"))].concat()).unwrap();
        assert!(fs::symlink_metadata(guest.shared().join(format!("{name}2"))).unwrap().is_symlink());
    }
    assert_eq!(fs::read_to_string(guest.outer.path().join("outside")).unwrap(), "secret");
    guest.ask(SYMLINK, ROOT, &[text("made"), text("/etc/passwd")].concat()).unwrap();
    assert_eq!(fs::read_link(guest.shared().join("made")).unwrap(), Path::new("/etc/passwd"));
}

/// Between a look-up and what follows it, a name may have come to a link that leads out.
#[test]
fn names_that_change_hands_lead_nowhere_else() {
    let mut guest = Guest::new();
    let shared = guest.shared();
    fs::create_dir(shared.join("inner")).unwrap();
    fs::write(shared.join("inner/outside"), "within").unwrap();
    fs::write(shared.join("file"), "within").unwrap();
    symlink("..", shared.join("up")).unwrap();
    symlink("../outside", shared.join("out")).unwrap();
    let exchange = || {
        for (one, other) in [("inner", "up"), ("file", "out")] {
            renameat_with(CWD, shared.join(one), CWD, shared.join(other), RenameFlags::EXCHANGE).unwrap();
        }
    };

    let (inner, file) = (guest.lookup(ROOT, "inner").unwrap(), guest.lookup(ROOT, "file").unwrap());
    exchange();
    let below = guest.lookup(inner, "outside").unwrap();
    for node in [file, below] {
        let handle = guest.open(node, RDWR).unwrap();
        assert_eq!(guest.read(handle, 0, 100).unwrap(), b"within");
    }
    guest.create(inner, "made", RDWR, 0o644).unwrap();
    assert!(shared.join("up/made").exists());
    exchange();

    // And with somebody who does that all the time.
    thread::scope(|scope| {
        let exchanging = scope.spawn(|| (0..3000).for_each(|_| exchange()));
        while !exchanging.is_finished() {
            let below = guest.lookup(ROOT, "inner").and_then(|inner| guest.lookup(inner, "outside"));
            let opened = below.and_then(|below| guest.open(below, RDWR));
            let created = guest.create(ROOT, "file", RDWR, 0o644).map(|(_, handle)| handle);
            for handle in [opened, created].into_iter().flatten() {
                assert_eq!(guest.read(handle, 0, 100).unwrap(), b"within");
                guest.ask(RELEASE, ROOT, &words(&[handle, 0, 0])).unwrap();
            }
            let _ = guest.ask(MKDIR, ROOT, &[halves(&[0o755, 0]), text("inner")].concat());
        }
    });
    assert_eq!(fs::read_dir(guest.outer.path()).unwrap().count(), 2, "something was made outside");
    assert_eq!(fs::read_to_string(guest.outer.path().join("outside")).unwrap(), "secret");
}

#[test]
fn numbers_that_were_never_given_are_nobodys() {
    let mut guest = Guest::new();
    fs::write(guest.shared().join("file"), "text").unwrap();
    let file = guest.lookup(ROOT, "file").unwrap();
    let handle = guest.open(file, RDONLY).unwrap();
    for node in [0, 3, 99, u64::MAX, 1 << 63] {
        assert_eq!(guest.lookup(node, "file"), Err(Errno::STALE));
        assert_eq!(guest.open(node, RDONLY), Err(Errno::STALE));
        assert_eq!(guest.ask(RENAME, ROOT, &[words(&[node]), text("file"), text("other")].concat()), Err(Errno::STALE));
        assert_eq!(guest.ask(LINK, ROOT, &[words(&[node]), text("other")].concat()), Err(Errno::STALE));
        // Forgetting it is nothing, and has no answer.
        let forget = [halves(&[48, FORGET]), words(&[0, node, 0, 0, u64::MAX])].concat();
        assert_eq!(guest.send(&forget, 0), 0);
    }
    for other in [0, handle + 1, u64::MAX] {
        assert_eq!(guest.read(other, 0, 4), Err(Errno::BADF));
        assert_eq!(guest.write(other, 0, 0, b"x"), Err(Errno::BADF));
        let range = words(&[other, 0, 0, handle, 0, 1, 0]);
        assert_eq!(guest.ask(COPY_FILE_RANGE, file, &range), Err(Errno::BADF));
    }
    assert_eq!(guest.ask(READDIR, ROOT, &words(&[handle, 0, 4096, 0, 0])), Err(Errno::NOTDIR));
    assert_eq!(guest.write(handle, 0, 0, b"x"), Err(Errno::BADF), "it was opened for reading");
    // The directory itself is never forgotten; a file is after as many times as it was told of.
    for (node, counts) in [(ROOT, 9), (file, 1)] {
        let forget = [halves(&[48, FORGET]), words(&[0, node, 0, 0, counts])].concat();
        assert_eq!(guest.send(&forget, 0), 0);
    }
    assert_eq!(guest.open(file, RDONLY), Err(Errno::STALE));
    assert_eq!(guest.read(handle, 0, 4).unwrap(), b"text", "what is open stays open");
    assert_ne!(guest.lookup(ROOT, "file"), Ok(file), "a number is used once");
}

#[test]
fn messages_that_cannot_be() {
    let mut guest = Guest::new();
    // Too short for a header: there is nobody to answer.
    for length in [0, 1, 39] {
        assert_eq!(guest.send(&vec![0; length], 4096), 0);
    }
    // A length of its own that is not how long it is.
    for length in [0, 39, 40, 46, 48, u32::MAX] {
        let message = [halves(&[length, LOOKUP]), words(&[5, ROOT, 0, 0]), text("files!")].concat();
        assert_eq!(guest.send(&message, 4096), 16);
        assert_eq!(word(&guest.bytes(16), 0) >> 32, u64::from(Errno::INVAL.raw_os_error().wrapping_neg() as u32));
    }
    // No room for an answer, or not enough: nothing is done that the guest would not hear of.
    let message = [halves(&[48 + 5, MKDIR]), words(&[5, ROOT, 0, 0]), halves(&[0o755, 0]), text("made")].concat();
    for room in [0, 1, 15] {
        assert_eq!(guest.send(&message, room), 0);
    }
    assert!(!guest.shared().join("made").exists());
    assert_eq!(guest.send(&message, 17), 16, "the error has room");
    // Every request cut short, everywhere.
    for opcode in 0..60 {
        for length in 0..96 {
            let body = vec![0xff; length];
            let message = [halves(&[40 + length as u32, opcode]), words(&[5, ROOT, 0, 0]), body].concat();
            guest.send(&message, 4096);
        }
    }
    let (_, handle) = guest.create(ROOT, "file", RDWR, 0o644).unwrap();
    // Counts of what is not there, and lengths beyond everything.
    let forget =
        |count: u32| [halves(&[56, BATCH_FORGET]), words(&[0, 0, 0, 0]), halves(&[count, 0]), words(&[ROOT])].concat();
    for count in [1, 2, u32::MAX] {
        assert_eq!(guest.send(&forget(count), 4096), 0);
    }
    let write =
        |length: u32, data: &[u8]| [words(&[handle, 0]), halves(&[length, 0, 0, 0, 0, 0]), data.to_vec()].concat();
    for length in [0, 3, 5, 4096, u32::MAX] {
        assert_eq!(guest.ask(WRITE, 0, &write(length, b"four")), Err(Errno::INVAL));
    }
    assert_eq!(guest.read(handle, u64::MAX, u32::MAX), Err(Errno::INVAL));
    assert_eq!(guest.read(handle, 0, u32::MAX).unwrap(), b"");
    for range in [[handle, u64::MAX, u64::MAX, 0], [handle, 0, 0, 0], [handle, 0, 1, 0x40]] {
        assert!(guest.ask(FALLOCATE, 0, &words(&range)).is_err(), "{range:?}");
    }
    let attribute = [halves(&[u32::MAX, 0]), text("user.a"), b"value".to_vec()].concat();
    assert_eq!(guest.ask(SETXATTR, ROOT, &attribute), Err(Errno::INVAL));
    let too_long = [halves(&[70_000, 0]), text("user.a"), vec![b'v'; 70_000]].concat();
    assert_eq!(guest.ask(SETXATTR, ROOT, &too_long), Err(Errno::TOOBIG));
    assert_eq!(guest.ask(INIT, 0, &halves(&[6, 31, 0, 0, 0])), Err(Errno::PROTO));
    assert_eq!(guest.ask(INIT, 0, &halves(&[8, 0, 0, 0, 0])), Err(Errno::PROTO));
    assert_eq!(guest.ask(0x1_0000, ROOT, &[]), Err(Errno::NOSYS));
}

#[test]
fn what_is_no_file_or_directory_is_never_opened() {
    let mut guest = Guest::new();
    let directory = fs::File::open(guest.shared()).unwrap();
    mknodat(&directory, "fifo", FileType::Fifo, Mode::RWXU, 0).unwrap();
    let socket = guest.shared().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut names = vec!["fifo", "socket"];
    // Who may, makes a device.
    if mknodat(&directory, "device", FileType::CharacterDevice, Mode::RWXU, rustix::fs::makedev(1, 5)).is_ok() {
        names.push("device");
    }
    for name in names {
        let node = guest.lookup(ROOT, name).unwrap();
        // None of these waits for anybody at the FIFO's other end.
        for flags in [RDONLY, WRONLY, RDWR, RDONLY | TRUNC] {
            assert_eq!(guest.open(node, flags), Err(Errno::PERM), "{name}");
            assert_eq!(guest.create(ROOT, name, flags, 0o644).err(), Some(Errno::PERM), "{name}");
        }
        let size = [halves(&[8, 0]), words(&[0; 10])].concat();
        assert_eq!(guest.ask(SETATTR, node, &size), Err(Errno::PERM));
        assert_eq!(guest.ask(LISTXATTR, node, &halves(&[0, 0])).unwrap(), words(&[0]));
    }
    // Nor is any such made.
    for kind in [FileType::Fifo, FileType::Socket, FileType::CharacterDevice, FileType::BlockDevice] {
        let body = [halves(&[kind.as_raw_mode() | 0o644, 0x105, 0, 0]), text("made")].concat();
        assert_eq!(guest.ask(MKNOD, ROOT, &body), Err(Errno::PERM));
    }
    assert!(!guest.shared().join("made").exists());
}

#[test]
fn set_id_bits_owners_and_the_kernels_attributes_are_not_for_guests() {
    let mut guest = Guest::new();
    let mode =
        |guest: &Guest, name: &str| fs::metadata(guest.shared().join(name)).unwrap().permissions().mode() & 0o7777;
    let (node, _) = guest.create(ROOT, "file", RDWR | EXCL, 0o106_700).unwrap();
    assert_eq!(mode(&guest, "file"), 0o700);
    guest.ask(MKDIR, ROOT, &[halves(&[0o7700, 0]), text("directory")].concat()).unwrap();
    assert_eq!(mode(&guest, "directory"), 0o1700);
    guest.ask(MKNOD, ROOT, &[halves(&[0o106_500, 0, 0, 0]), text("node")].concat()).unwrap();
    assert_eq!(mode(&guest, "node"), 0o500);
    let attributes = |valid: u32, mode: u32, uid: u32| {
        [halves(&[valid, 0]), words(&[0; 7]), halves(&[0, mode, 0, uid, uid, 0])].concat()
    };
    guest.ask(SETATTR, node, &attributes(1, 0o106_701, 0)).unwrap();
    assert_eq!(mode(&guest, "file"), 0o701);
    let owner = fs::metadata(guest.shared().join("file")).unwrap().uid();
    assert_eq!(guest.ask(SETATTR, node, &attributes(2, 0, owner + 1)), Err(Errno::PERM));
    assert_eq!(guest.ask(SETATTR, node, &attributes(4, 0, owner + 1)), Err(Errno::PERM));
    assert!(guest.ask(SETATTR, node, &attributes(2, 0, owner)).is_ok(), "whose it is already");
    for name in ["security.capability", "trusted.a", "system.posix_acl_access", "user", "", "userx"] {
        let set = [halves(&[1, 0]), text(name), b"v".to_vec()].concat();
        assert_eq!(guest.ask(SETXATTR, node, &set), Err(Errno::OPNOTSUPP), "{name}");
        let get = [halves(&[64, 0]), text(name)].concat();
        assert_eq!(guest.ask(GETXATTR, node, &get), Err(Errno::OPNOTSUPP), "{name}");
    }
    let renamed = |flags: u32| [words(&[ROOT]), halves(&[flags, 0]), text("file"), text("node")].concat();
    assert_eq!(guest.ask(RENAME2, ROOT, &renamed(1)), Err(Errno::EXIST));
    assert_eq!(guest.ask(RENAME2, ROOT, &renamed(4)), Err(Errno::INVAL), "no whiteouts, which are devices");
    guest.ask(RENAME2, ROOT, &renamed(2)).unwrap();
    assert_eq!((mode(&guest, "file"), mode(&guest, "node")), (0o500, 0o701));
}

#[test]
fn a_guest_has_as_many_files_as_it_may() {
    let mut guest = Guest::with(false, Limits { nodes: 8, handles: 3 });
    for number in 0..20 {
        fs::write(guest.shared().join(format!("file{number}")), "").unwrap();
    }
    let nodes: Vec<_> = (0..7).map(|number| guest.lookup(ROOT, &format!("file{number}")).unwrap()).collect();
    assert_eq!(guest.lookup(ROOT, "file7"), Err(Errno::NFILE));
    assert_eq!(guest.lookup(ROOT, "file0"), Ok(nodes[0]), "what it knows it may hear of again");
    // A directory is read all the same, without the entries that there is no room for.
    let handle = word(&guest.ask(OPENDIR, ROOT, &words(&[0])).unwrap(), 0);
    let body = [words(&[handle, 0]), halves(&[65536, 0]), words(&[0, 0])].concat();
    let entries = guest.ask(READDIRPLUS, ROOT, &body).unwrap();
    assert_eq!(entries.len(), 22 * 160);
    assert_eq!(entries.chunks(160).filter(|entry| word(entry, 0) > 0).count(), 7);
    assert_eq!(guest.names(ROOT, 280).len(), 22);
    for node in &nodes[..2] {
        guest.open(*node, RDONLY).unwrap();
    }
    assert_eq!(guest.open(nodes[2], RDONLY), Err(Errno::MFILE));
    assert_eq!(guest.create(ROOT, "new", RDWR, 0o644).err(), Some(Errno::MFILE));
    assert!(!guest.shared().join("new").exists());
    assert_eq!(guest.ask(OPENDIR, ROOT, &words(&[0])), Err(Errno::MFILE));
    // A driver that begins anew has nothing.
    guest.ask(INIT, 0, &[halves(&[7, 38, 0, 0, 0]), vec![0; 44]].concat()).unwrap();
    assert_eq!(guest.file_system.nodes(), 1);
    assert_eq!(guest.open(nodes[0], RDONLY), Err(Errno::STALE));
}

/// A guest that may take so many blocks, and a file that it made: one of them.
fn guest_with(blocks: u64) -> (Guest, u64, u64) {
    let mut guest = Guest::limited(false, Limits { nodes: 1000, handles: 100 }, Some(blocks * 4096 + 4095));
    let (node, file) = guest.create(ROOT, "file", RDWR, 0o644).unwrap();
    (guest, node, file)
}

#[test]
fn a_guest_takes_no_more_storage_than_it_may() {
    let (mut guest, node, file) = guest_with(4);
    guest.ask(MKDIR, ROOT, &[halves(&[0o755, 0]), text("directory")].concat()).unwrap();
    assert_eq!(guest.write(file, 0, 0, &[7; 8193]), Err(Errno::NOSPC));
    guest.write(file, 0, 0, &[7; 8192]).unwrap();
    assert_eq!(guest.ask(FALLOCATE, node, &[words(&[file, 0, 1 << 40]), halves(&[0, 0])].concat()), Err(Errno::NOSPC));
    assert_eq!(guest.create(ROOT, "other", RDWR, 0o644), Err(Errno::NOSPC));
    assert_eq!(guest.ask(COPY_FILE_RANGE, node, &words(&[file, 0, node, file, 8192, 1, 0])), Err(Errno::NOSPC));
    let attribute = [halves(&[0, 0]), text("user.a")].concat();
    assert_eq!(guest.ask(SETXATTR, node, &attribute), Err(Errno::NOSPC), "one without a value");
    // Reading and removing cost nothing, and a hole takes nothing.
    assert_eq!(guest.read(file, 0, 9).unwrap(), [7; 9]);
    let punches = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE).bits();
    guest.ask(FALLOCATE, node, &[words(&[file, 0, 4096]), halves(&[punches, 0])].concat()).unwrap();
    guest.ask(UNLINK, ROOT, &text("file")).unwrap();
    assert_eq!(guest.create(ROOT, "other", RDWR, 0o644), Err(Errno::NOSPC), "what was written counts");
}

#[test]
fn what_a_guest_writes_is_counted_in_blocks() {
    // A byte in each block of a hole takes them all.
    let (mut guest, _, file) = guest_with(4);
    for block in 0..3 {
        guest.write(file, block * 8192, 0, b"x").unwrap();
    }
    assert_eq!(guest.write(file, 3 * 8192, 0, b"x"), Err(Errno::NOSPC));
    assert!(fs::metadata(guest.shared().join("file")).unwrap().blocks() <= 3 * 8);
    // A log that grows by lines takes each block once, wherever the guest says that its end is.
    let (mut guest, _, file) = guest_with(4);
    let lines = (0..).take_while(|line| guest.write(file, line * 1_000_000, APPEND, &[b'x'; 64]).is_ok()).count();
    assert_eq!(lines, 3 * 64);
    // Whoever copies a file asks for all that there might be, and pays for what there is.
    let (mut guest, node, file) = guest_with(4);
    guest.write(file, 0, 0, b"x").unwrap();
    let (other, copy) = guest.create(ROOT, "copy", RDWR, 0o644).unwrap();
    let all = words(&[file, 0, other, copy, 0, u64::from(u32::MAX), 0]);
    guest.ask(COPY_FILE_RANGE, node, &all).unwrap();
    assert_eq!(fs::read(guest.shared().join("copy")).unwrap(), b"x");
}

#[test]
fn directories_of_thousands_of_entries_are_read_in_pieces() {
    let mut guest = Guest::new();
    let mut expected: Vec<String> = (0..3000).map(|number| format!("entry number {number}")).collect();
    expected.iter().for_each(|name| fs::write(guest.shared().join(name), "").unwrap());
    expected.extend([".", ".."].map(str::to_owned));
    expected.sort();
    for room_bytes in [300, 4096, 1 << 20] {
        let mut names = guest.names(ROOT, room_bytes);
        names.sort();
        assert_eq!(names, expected);
    }
    let handle = word(&guest.ask(OPENDIR, ROOT, &words(&[0])).unwrap(), 0);
    // No room for one entry is no end; and a place that never was is no panic.
    for (offset, room_bytes) in [(0, 0), (0, 24), (u64::MAX, 4096), (1 << 62, 4096)] {
        let body = [words(&[handle, offset]), halves(&[room_bytes, 0]), words(&[0, 0])].concat();
        let read = guest.ask(READDIR, ROOT, &body);
        assert!(offset > 0 || read == Err(Errno::INVAL), "{read:?}");
    }
}

#[test]
fn what_is_for_reading_is_not_changed() {
    let mut guest = Guest::with(true, Limits { nodes: 100, handles: 100 });
    fs::write(guest.shared().join("file"), "text").unwrap();
    let node = guest.lookup(ROOT, "file").unwrap();
    let handle = guest.open(node, RDONLY).unwrap();
    assert_eq!(guest.read(handle, 0, 9).unwrap(), b"text");
    for flags in [WRONLY, RDWR, TRUNC] {
        assert_eq!(guest.open(node, flags), Err(Errno::ROFS));
    }
    assert_eq!(guest.create(ROOT, "new", RDONLY, 0o644).err(), Some(Errno::ROFS));
    assert_eq!(guest.ask(MKDIR, ROOT, &[halves(&[0o755, 0]), text("new")].concat()), Err(Errno::ROFS));
    assert_eq!(guest.ask(UNLINK, ROOT, &text("file")), Err(Errno::ROFS));
    assert_eq!(guest.ask(SETATTR, node, &[0; 88]), Err(Errno::ROFS));
    assert_eq!(guest.write(handle, 0, 0, b"x"), Err(Errno::ROFS));
}

/// What is asked, of which node and handle, with which text.
#[derive(Debug, TypeGenerator)]
struct Step {
    opcode: u8,
    node: u8,
    words: Vec<u8>,
    name: u8,
    cut: u8,
    room: u16,
}

/// Whatever a guest says, nothing outside of the directory changes, and it is answered in the room it gave.
#[test]
fn hostile_requests() {
    const NAMES: [&str; 10] = ["a", "b", "up", "fifo", "..", "../outside", ".", "", "user.a", "/"];
    blockyard_fuzz::check!(300).with_type::<Vec<Step>>().for_each(|steps| {
        let mut guest = Guest::with(false, Limits { nodes: 16, handles: 8 });
        symlink("..", guest.shared().join("up")).unwrap();
        mknodat(fs::File::open(guest.shared()).unwrap(), "fifo", FileType::Fifo, Mode::RWXU, 0).unwrap();
        for step in steps.iter().take(64) {
            let mut body: Vec<u8> = step.words.iter().flat_map(|&byte| u64::from(byte).to_ne_bytes()).collect();
            body.truncate(body.len().saturating_sub(usize::from(step.cut % 9)));
            body.extend(text(NAMES[usize::from(step.name) % NAMES.len()]));
            body.extend(text(NAMES[usize::from(step.name / 16) % NAMES.len()]));
            let opcode = u32::from(step.opcode % 54);
            let length = 40 + body.len() as u32;
            let message = [halves(&[length, opcode]), words(&[7, u64::from(step.node % 8), 0, 0]), body].concat();
            let used = guest.send(&message, step.room.into());
            assert!(used <= u32::from(step.room));
            if used > 0 {
                let answer = guest.bytes(used);
                assert_eq!((word(&answer, 0) as u32, word(&answer, 8)), (used, 7));
                let error = (word(&answer, 0) >> 32) as i32;
                assert!((-4095..=0).contains(&error), "{error}");
            }
        }
        let outside: Vec<_> =
            fs::read_dir(guest.outer.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(outside.len(), 2, "{outside:?}");
        assert_eq!(fs::read_to_string(guest.outer.path().join("outside")).unwrap(), "secret");
        assert!(guest.file_system.nodes() <= 16);
    });
}
