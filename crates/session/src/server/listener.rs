//! Where clients connect.

use super::client_stream::{ClientStream, Departures};
use blockyard_block::{FileIdentity, descriptor_path, directory_of, is_one_user, shown};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, chmodat, chownat, fchmod, fstat, linkat, mkdirat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use rustix::process::{Uid, geteuid};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The modes of a socket. Who connects must be able to write to it.
const OWNERS: Mode = Mode::from_raw_mode(0o600);
const EVERYBODYS: Mode = Mode::from_raw_mode(0o666);

/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;

/// Why there is no socket, or no client.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    /// The path ends in no name, or its directory cannot be opened.
    #[error("no socket can be at {}", shown(.path))]
    Directory {
        /// Where the socket was to be.
        path: PathBuf,
        /// What opening the directory met, or that the path does not end in a name.
        #[source]
        error: io::Error,
    },
    /// Something that is no socket is at the path.
    #[error("{} exists and is not a socket: remove it or choose another path", shown(.0))]
    NotASocket(PathBuf),
    /// Another process listens there.
    #[error("{} is in use by another process", shown(.0))]
    InUse(PathBuf),
    /// A socket of another user is there, or one that cannot be asked whether somebody listens.
    #[error("{} is a socket that is not ours to replace", shown(.0))]
    NotOurs(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {}", shown(.path))]
    Io {
        /// Where the socket is, or was to be.
        path: PathBuf,
        /// What the system said, or that too many clients that were turned away are not closed yet.
        #[source]
        error: io::Error,
    },
    /// A client of a user who is not allowed; it was disconnected.
    #[error("a process of user {uid} has tried to connect to {}, who is not allowed to", shown(.path))]
    Peer {
        /// The socket's path.
        path: PathBuf,
        /// The user's number, as the kernel knows it of the connection (SO_PEERCRED).
        uid: u32,
    },
}

/// A listening socket in the file system, for its owner alone (mode 0600), or for everybody where others are allowed
/// whose it cannot be: then who connects is turned away all the same if that user is not. It does not make anybody
/// wait; poll it for reading. Dropped, it removes the socket, if that is still the one it made.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    directory: OwnedFd,
    name: OsString,
    identity: FileIdentity,
    allowed_uids: Vec<u32>,
    /// Those of them that are maybe not one user's numbers.
    several_users: Vec<u32>,
    departures: Departures,
}

impl Listener {
    /// Listens at `path` for clients of `allowed_uids`, or of this process's own user if there are none. A socket that
    /// a dead process has left there is replaced, and nothing else. If this is root and one other user is allowed, the
    /// socket is theirs; if others are allowed otherwise, anybody may connect to it.
    ///
    /// # Errors
    /// When something is there, or the system refuses.
    pub fn bind(path: &Path, allowed_uids: &[u32]) -> Result<Self, ListenerError> {
        let io = |error: Errno| ListenerError::Io { path: path.to_owned(), error: error.into() };
        let (directory, name) = open_directory(path)?;
        // In an address, the path is shown to who asks which sockets there are; one that is longer than an address has
        // room for is not.
        let address = SocketAddrUnix::new(path).or_else(|_| address_in(&directory, &name)).map_err(io)?;
        let user = its_user(allowed_uids);
        remove_stale(path, &directory, &name, &address, user)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, socket_flags(), None).map_err(io)?;
        // The file that bind makes has this mode from its first moment (Linux, net/unix/af_unix.c, unix_bind_bsd).
        fchmod(&socket, OWNERS).map_err(io)?;
        let everybody = user.is_none() && allowed_uids.iter().any(|&uid| uid != geteuid().as_raw());
        let made = match user.is_some() || everybody {
            false => bind(&socket, &address).and_then(|()| statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW)),
            true => bind_for(&socket, &directory, &name, user, if everybody { EVERYBODYS } else { OWNERS }),
        };
        let stat = made.map_err(|errno| match errno {
            Errno::ADDRINUSE | Errno::EXIST => ListenerError::InUse(path.to_owned()),
            errno => io(errno),
        })?;
        let own = [geteuid().as_raw()];
        let allowed_uids = if allowed_uids.is_empty() { own.to_vec() } else { allowed_uids.to_vec() };
        // Asked now, as nothing else is opened once this process has shut itself in.
        let several_users = allowed_uids.iter().copied().filter(|&uid| !is_one_user(uid)).collect();
        let listener = UnixListener::from(socket);
        let (path, identity, departures) = (path.to_owned(), FileIdentity::of(&stat), Departures::default());
        let this = Self { listener, path, directory, name, identity, allowed_uids, several_users, departures };
        listen(&this.listener, BACKLOG).map_err(io)?;
        Ok(this)
    }

    /// Where it listens, as it was told.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next client, if one has connected.
    ///
    /// # Errors
    /// [`ListenerError::Peer`] for a client that is not allowed, [`ListenerError::Io`] when the system refuses, or too
    /// many that came before and that nobody served cannot be closed; the listener goes on.
    pub fn accept(&self) -> Result<Option<ClientStream>, ListenerError> {
        let io = |error: io::Error| ListenerError::Io { path: self.path.clone(), error };
        if self.departures.are_too_many() {
            return Err(io(io::Error::other("the connections of clients that were turned away are not closed yet")));
        }
        let stream = match self.listener.accept() {
            Ok((stream, _)) => self.departures.arrival(stream),
            Err(error) => {
                return match error.kind() {
                    // Also one that has gone again.
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {
                        Ok(None)
                    }
                    _ => Err(io(error)),
                };
            }
        };
        let uid = socket_peercred(&stream).map_err(|errno| io(errno.into()))?.uid.as_raw();
        // Of a number that stands for several users, only the file's mode, which the kernel goes by, tells whose it is.
        let may_be_anybody = || self.several_users.contains(&uid) && !self.is_for_its_owner_alone();
        if !self.allowed_uids.contains(&uid) || may_be_anybody() {
            return Err(ListenerError::Peer { path: self.path.clone(), uid });
        }
        Ok(Some(stream))
    }

    fn is_for_its_owner_alone(&self) -> bool {
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| !Mode::from_raw_mode(found.st_mode).intersects(Mode::WGRP | Mode::WOTH))
    }
}

/// The user whose the socket is to be: a socket of root's is of no use to one who may connect but not open it.
fn its_user(allowed_uids: &[u32]) -> Option<Uid> {
    let mut others = allowed_uids.iter().filter(|&&uid| uid != 0);
    match (others.next(), others.next()) {
        (Some(&uid), None) if geteuid().is_root() => Some(Uid::from_raw(uid)),
        _ => None,
    }
}

/// Makes the socket's file, and gives it to `user` if there is one, and this mode: in a directory of ours, where nobody
/// can put another file in its place before that is done; then it gets its name. The kernel makes such a file only by a
/// path, less the umask, and it belongs to whom the process does.
fn bind_for(socket: &OwnedFd, directory: &OwnedFd, name: &OsStr, user: Option<Uid>, mode: Mode) -> Result<Stat, Errno> {
    const OWN: &str = "socket";
    let (private_name, private) = private_directory(directory)?;
    let made = address_in(&private, OWN.as_ref()).and_then(|address| bind(socket, &address)).and_then(|()| {
        let named = statat(&private, OWN, AtFlags::SYMLINK_NOFOLLOW).and_then(|stat| {
            // Before it has its name: who cannot be given it leaves nothing.
            chmodat(&private, OWN, mode, AtFlags::empty())?;
            if user.is_some() {
                chownat(&private, OWN, user, None, AtFlags::SYMLINK_NOFOLLOW)?;
            }
            linkat(&private, OWN, directory, name, AtFlags::empty())?;
            Ok(stat)
        });
        unlinkat(&private, OWN, AtFlags::empty())?;
        named
    });
    // Somebody may have moved it; it is empty.
    let _ = unlinkat(directory, &private_name, AtFlags::REMOVEDIR);
    made
}

/// A directory in another one, for this user alone.
fn private_directory(directory: &OwnedFd) -> Result<(OsString, OwnedFd), Errno> {
    const ATTEMPTS_MAX: u32 = 100;
    for attempt in 0..ATTEMPTS_MAX {
        let name = OsString::from(format!(".blockyard-{}-{attempt}", std::process::id()));
        match mkdirat(directory, &name, Mode::RWXU) {
            Err(Errno::EXIST) => continue,
            made => made?,
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private = openat(directory, &name, flags, Mode::empty())?;
        let stat = fstat(&private)?;
        let is_ours =
            stat.st_uid == geteuid().as_raw() && !Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO);
        return if is_ours { Ok((name, private)) } else { Err(Errno::ACCESS) };
    }
    Err(Errno::EXIST)
}

/// The address of a socket in a directory that is open, wherever the path to it leads by now.
fn address_in(directory: &OwnedFd, name: &OsStr) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(descriptor_path(directory).join(name))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let found = statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileIdentity::of(&found) == self.identity) {
            let _ = unlinkat(&self.directory, &self.name, AtFlags::empty());
        }
    }
}

fn socket_flags() -> SocketFlags {
    SocketFlags::CLOEXEC | SocketFlags::NONBLOCK
}

/// The directory that the socket is to be in, and its name there.
fn open_directory(path: &Path) -> Result<(OwnedFd, OsString), ListenerError> {
    let failed = |error: io::Error| ListenerError::Directory { path: path.to_owned(), error };
    let no_name = || failed(io::Error::new(io::ErrorKind::InvalidInput, "the path does not end in a name"));
    let name = path.file_name().ok_or_else(no_name)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        openat(rustix::fs::CWD, directory_of(path), flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    Ok((directory, name.to_owned()))
}

/// Removes the socket at the path if it is ours, or of `user`, whose ours is to be, and nobody listens on it any more.
fn remove_stale(
    path: &Path,
    directory: &OwnedFd,
    name: &OsStr,
    address: &SocketAddrUnix,
    user: Option<Uid>,
) -> Result<(), ListenerError> {
    let io = |error: Errno| ListenerError::Io { path: path.to_owned(), error: error.into() };
    let stat = || statat(directory, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
    let found = match stat() {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(io(errno)),
    };
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(ListenerError::NotASocket(path.to_owned()));
    }
    if found.st_uid != geteuid().as_raw() && user.is_none_or(|user| found.st_uid != user.as_raw()) {
        return Err(ListenerError::NotOurs(path.to_owned()));
    }
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, socket_flags(), None).map_err(io)?;
    // Where there is no /proc, by the path.
    let connected =
        address_in(directory, name).and_then(|address| connect(&probe, &address)).or_else(|errno| match errno {
            Errno::NOENT => connect(&probe, address),
            errno => Err(errno),
        });
    match connected {
        // Also one whose backlog is full.
        Ok(()) | Err(Errno::AGAIN) => Err(ListenerError::InUse(path.to_owned())),
        Err(Errno::CONNREFUSED) => {
            let still = stat().is_ok_and(|now| FileIdentity::of(&now) == FileIdentity::of(&found));
            if still { unlinkat(directory, name, AtFlags::empty()).map_err(io) } else { Ok(()) }
        }
        Err(Errno::NOENT) => Ok(()),
        Err(_) => Err(ListenerError::NotOurs(path.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_block::explain;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_socket_is_for_its_owner_and_goes_with_the_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.sock");
        let listener = Listener::bind(&path, &[]).unwrap();
        assert_eq!(mode(&path), 0o600);
        assert!(listener.accept().unwrap().is_none(), "nobody yet, and no waiting");
        let _client = UnixStream::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn nobody_is_let_in_while_too_many_cannot_be_closed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.sock");
        let listener = Listener::bind(&path, &[]).unwrap();
        let _client = UnixStream::connect(&path).unwrap();
        let leaving = listener.departures.too_many();
        let refused = explain(&listener.accept().unwrap_err());
        assert!(refused.contains("are not closed yet"), "{refused}");
        drop(leaving);
        // It has waited.
        assert!(listener.accept().unwrap().is_some());
    }

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.sock");
        let refused = || explain(&Listener::bind(&path, &[]).unwrap_err());
        std::fs::write(&path, "precious").unwrap();
        assert!(refused().contains("is not a socket"));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(refused().contains("is not a socket"));
        std::fs::remove_file(&path).unwrap();
        let live = UnixListener::bind(&path).unwrap();
        assert!(refused().contains("in use"));
        drop(live);
        assert!(path.exists(), "a socket that nobody listens on");
        let listener = Listener::bind(&path, &[]).unwrap();
        assert!(refused().contains("in use"));
        // Somebody else's by now: not ours to remove.
        std::fs::remove_file(&path).unwrap();
        let other = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
        drop(other);
        let dgram = std::os::unix::net::UnixDatagram::bind(directory.path().join("other")).unwrap();
        let refused = explain(&Listener::bind(&directory.path().join("other"), &[]).unwrap_err());
        assert!(refused.contains("not ours"), "{refused}");
        drop(dgram);
    }

    /// The owner of the directory puts another file of root's in the socket's place as soon as it appears.
    #[test]
    fn a_socket_is_its_users_and_nothing_else_is() {
        if !geteuid().is_root() {
            eprintln!("not root: sockets cannot be given away");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("victim"), "root's").unwrap();
        let owner = |path: &Path| std::os::unix::fs::MetadataExt::uid(&std::fs::symlink_metadata(path).unwrap());
        let listener = Listener::bind(&at("disk.sock"), &[1234]).unwrap();
        assert_eq!((owner(&at("disk.sock")), mode(&at("disk.sock"))), (1234, 0o600));
        let refused = explain(&Listener::bind(&at("disk.sock"), &[1234]).unwrap_err());
        assert!(refused.contains("in use"), "{refused}");
        // What a server that was killed leaves there.
        std::fs::hard_link(at("disk.sock"), at("left")).unwrap();
        drop(listener);
        std::fs::rename(at("left"), at("disk.sock")).unwrap();
        for others in [&[][..], &[1235], &[1234, 1235]] {
            let refused = explain(&Listener::bind(&at("disk.sock"), others).unwrap_err());
            assert!(refused.contains("not ours"), "{refused}");
        }
        drop(Listener::bind(&at("disk.sock"), &[1234]).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = std::fs::rename(at("disk.sock"), at("aside"));
                    let _ = std::fs::hard_link(at("victim"), at("disk.sock"));
                    let _ = std::fs::remove_file(at("aside"));
                }
            });
            for _ in 0..300 {
                let _ = std::fs::remove_file(at("disk.sock"));
                // Most find the file that was put there, and refuse.
                drop(Listener::bind(&at("disk.sock"), &[1234]));
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(owner(&at("victim")), 0);
    }

    /// Whoever is allowed can connect, and nobody else is let in.
    #[test]
    fn a_socket_of_several_users_is_everybodys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.sock");
        let own = geteuid().as_raw();
        for (allowed, wanted) in [(&[own][..], 0o600), (&[1234, 1235], 0o666), (&[own, 1234, 1235], 0o666)] {
            let listener = Listener::bind(&path, allowed).unwrap();
            assert_eq!(mode(&path), wanted, "{allowed:?}");
            let _client = UnixStream::connect(&path).unwrap();
            assert_eq!(listener.accept().is_ok(), allowed.contains(&own), "{allowed:?}");
        }
    }

    #[test]
    fn a_path_may_be_longer_than_an_address() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let path = deep.join("disk.sock");
        let _listener = Listener::bind(&path, &[]).unwrap();
        assert_eq!(mode(&path), 0o600);
        let refused = explain(&Listener::bind(&deep.join("n".repeat(100)), &[]).unwrap_err());
        assert!(refused.contains("cannot listen on"), "{refused}");
        assert!(explain(&Listener::bind(Path::new("/"), &[]).unwrap_err()).contains("does not end in a name"));
        assert!(explain(&Listener::bind(Path::new("/nowhere/x"), &[]).unwrap_err()).contains("no socket can be at"));
    }
}
