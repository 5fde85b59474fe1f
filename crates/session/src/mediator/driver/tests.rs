//! A driver and a mediator that says what it likes, over real sockets.

use super::*;
use crate::mediator::control_pair;
use blockyard_block::MemoryDisk;
use bolero::TypeGenerator;
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

const DISK_BYTES: u64 = 1 << 20;

/// Serves nothing, but keeps connections and greets clients, so that they can see who they are connected to.
#[derive(Default)]
struct Greeter {
    clients: BTreeMap<u64, (Grant, UnixStream)>,
    revoked: Vec<u64>,
    news: Vec<MediatorNews>,
    refuses: bool,
}

impl Grantor for Greeter {
    fn grant(&mut self, grant: &Grant, stream: ClientStream) -> Result<(), String> {
        if self.refuses {
            return Err("no more threads".into());
        }
        let mut stream = stream.into_inner();
        // A client that has left already is found out about below.
        let _ = stream.write_all(grant.name.as_bytes());
        assert!(self.clients.insert(grant.session, (grant.clone(), stream)).is_none(), "a session twice");
        Ok(())
    }

    fn revoke(&mut self, session: u64) {
        assert!(self.clients.contains_key(&session), "a session that is not there is revoked");
        self.revoked.push(session);
    }

    fn events<'a>(&'a self, events: &mut Vec<BorrowedFd<'a>>) {
        events.extend(self.clients.values().map(|(_, stream)| stream.as_fd()));
    }

    fn ended(&mut self) -> Vec<(u64, String)> {
        let revoked = std::mem::take(&mut self.revoked);
        revoked
            .into_iter()
            .filter(|session| self.clients.remove(session).is_some())
            .map(|session| (session, "revoked".into()))
            .collect()
    }

    fn mediator_says(&mut self, news: MediatorNews) {
        self.news.push(news);
    }
}

struct Rig {
    driver: Driver,
    grantor: Greeter,
    mediator: ControlSocket,
}

impl Rig {
    /// With a mediator that has not greeted yet.
    fn silent() -> Self {
        let (driver, mediator) = control_pair().unwrap();
        let disk = Arc::new(MemoryDisk::new(DISK_BYTES, 4096).unwrap());
        let driver = Driver::new(driver, disk);
        Self { driver, grantor: Greeter::default(), mediator: ControlSocket::new(mediator) }
    }

    fn new() -> Self {
        let mut rig = Self::silent();
        rig.say(&ToDriver::Ready { version: VERSION }, None);
        assert_eq!(std::mem::take(&mut rig.grantor.news), [MediatorNews::Ready]);
        rig
    }

    fn say(&mut self, message: &ToDriver, client: Option<&UnixStream>) {
        self.say_bytes(&serde_json::to_vec(message).unwrap(), client);
    }

    fn say_bytes(&mut self, bytes: &[u8], client: Option<&UnixStream>) {
        // Those that were refused are closed by threads, which a busy machine runs late.
        while self.driver.departures.are_too_many() {
            std::thread::yield_now();
        }
        let _ = self.mediator.send(bytes, client.map(AsFd::as_fd), Patience::Never);
        self.driver.turn(&mut self.grantor);
    }

    fn grant(&mut self, grant: Grant) -> UnixStream {
        let (client, server) = UnixStream::pair().unwrap();
        self.say(&ToDriver::Grant(grant), Some(&server));
        client
    }

    /// The next thing that the driver says.
    fn heard(&self) -> Option<ToMediator> {
        match self.mediator.receive(Patience::Never).unwrap() {
            Received::NoRoom => panic!("no descriptor to be had"),
            Received::Datagram(datagram) => Some(decode(&datagram.bytes).unwrap()),
            Received::Nothing => None,
            Received::End => panic!("the driver has disconnected the mediator: {:?}", self.grantor.news),
        }
    }

    #[track_caller]
    fn refused(&mut self, grant: Grant, word: &str) {
        let (session, before) = (grant.session, self.grantor.clients.len());
        let mut client = self.grant(grant);
        let Some(ToMediator::Refused { session: refused, reason }) = self.heard() else { panic!("it was not refused") };
        assert!(refused == session && reason.contains(word), "{reason}");
        assert_eq!(self.grantor.clients.len(), before);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the client is still connected");
    }

    #[track_caller]
    fn disconnected(&self, word: &str) {
        let Some(MediatorNews::Gone(why)) = self.grantor.news.last() else { panic!("{:?}", self.grantor.news) };
        assert!(why.contains(word), "{why}");
        assert!(self.driver.event().is_none());
        assert!(matches!(self.mediator.receive(Patience::Never).unwrap(), Received::End));
    }
}

fn grant(session: u64, range_bytes: Range<u64>, read_only: bool) -> Grant {
    Grant { session, range_bytes, read_only, weight: NonZeroU32::MIN, name: format!("partition {session}") }
}

#[test]
fn a_client_is_connected_straight_to_the_driver() {
    let mut rig = Rig::new();
    let wanted = grant(1, 4096..8192, false);
    let mut client = rig.grant(wanted.clone());
    let mut greeting = [0; 11];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting, b"partition 1");
    assert_eq!(rig.grantor.clients[&1].0, wanted);
    assert_eq!(rig.heard(), None);
}

#[test]
fn what_is_no_unix_stream_socket_is_no_client() {
    let datagrams = || OwnedFd::from(UnixDatagram::pair().unwrap().0);
    let tcp = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    for descriptor in [&datagrams as &dyn Fn() -> OwnedFd, &tcp, &file] {
        let mut rig = Rig::new();
        let message = serde_json::to_vec(&ToDriver::Grant(grant(1, 0..4096, true))).unwrap();
        let sent = rig.mediator.send(&message, Some(descriptor().as_fd()), Patience::Never);
        assert!(sent.unwrap());
        rig.driver.turn(&mut rig.grantor);
        rig.disconnected("other descriptors than one unix stream socket");
        assert_eq!(rig.grantor.clients.len(), 0);
    }
}

/// A descriptor whose closing takes as long as it likes holds nobody up: this one lingers for a minute.
#[test]
fn what_the_mediator_sent_that_does_not_belong_is_closed_elsewhere() {
    let mut rig = Rig::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let _peer_that_does_not_read = listener.accept().unwrap();
    set_socket_linger(&lingering, Some(Duration::from_secs(60))).unwrap();
    lingering.set_nonblocking(true).unwrap();
    while lingering.write(&[0; 1 << 16]).is_ok() {}
    let message = serde_json::to_vec(&ToDriver::Grant(grant(1, 0..4096, true))).unwrap();
    assert!(rig.mediator.send(&message, Some(lingering.as_fd()), Patience::Never).unwrap());
    // The message has the last one, whose closing waits.
    drop(lingering);
    let start = Instant::now();
    rig.driver.turn(&mut rig.grantor);
    assert!(start.elapsed() < Duration::from_secs(30));
    rig.disconnected("other descriptors than one unix stream socket");
}

#[test]
fn a_range_that_is_no_part_of_the_disk_is_refused() {
    let mut rig = Rig::new();
    let end = DISK_BYTES;
    let ranges = [(0, end + 4096), (end, end + 4096), (0, u64::MAX), (4096, 4096), (8192, 4096), (u64::MAX - 4095, 0)];
    for (session, (start, end)) in (1..).zip(ranges) {
        rig.refused(grant(session, start..end, true), "is no part of a disk of 1048576 bytes");
    }
    for (session, range) in (10..).zip([512..4096, 0..512]) {
        rig.refused(grant(session, range, true), "not made of blocks of 4096 bytes");
    }
    assert_eq!(rig.grantor.news, []);
}

#[test]
fn what_is_written_is_shared_with_nobody() {
    let mut rig = Rig::new();
    let _writer = rig.grant(grant(1, 8192..16384, false));
    for (session, range) in (2..).zip([8192..16384, 0..12288, 12288..20480, 0..DISK_BYTES]) {
        rig.refused(grant(session, range, true), "partition 1");
    }
    let _before = rig.grant(grant(10, 0..8192, true));
    let _too = rig.grant(grant(11, 0..4096, true));
    rig.refused(grant(12, 4096..8192, false), "partition 10");
    let _behind = rig.grant(grant(13, 16384..DISK_BYTES, false));
    assert_eq!(rig.grantor.clients.keys().copied().collect::<Vec<_>>(), [1, 10, 11, 13]);
}

#[test]
fn a_range_is_free_again_when_its_session_has_ended_and_not_before() {
    let mut rig = Rig::new();
    let _first = rig.grant(grant(1, 0..4096, false));
    rig.say(&ToDriver::Revoke { session: 1 }, None);
    assert_eq!(rig.grantor.revoked, [1]);
    // In the same turn the greeter says that it has ended, and only then another may have it.
    let _second = rig.grant(grant(2, 0..4096, false));
    assert_eq!(rig.heard(), Some(ToMediator::Ended { session: 1, reason: "revoked".into() }));
    assert!(rig.grantor.clients.contains_key(&2));
}

#[test]
fn a_session_that_has_ended_meanwhile_is_not_revoked() {
    let mut rig = Rig::new();
    rig.say(&ToDriver::Revoke { session: 7 }, None);
    assert_eq!((rig.grantor.revoked.len(), rig.grantor.news.len()), (0, 0));
}

#[test]
fn a_name_or_a_weight_out_of_bounds_is_refused() {
    let mut rig = Rig::new();
    for (session, name) in (1..).zip(["x".repeat(65), "\u{1b}[2J".into()]) {
        rig.refused(Grant { name, ..grant(session, 0..4096, true) }, "out of bounds");
    }
    let weight = NonZeroU32::new(WEIGHT_MAX + 1).unwrap();
    rig.refused(Grant { weight, ..grant(9, 0..4096, true) }, "out of bounds");
}

#[test]
fn sessions_are_counted() {
    let mut rig = Rig::new();
    let clients: Vec<_> = (1..=EXPORTS_MAX as u64).map(|session| rig.grant(grant(session, 0..4096, true))).collect();
    assert_eq!(rig.grantor.clients.len(), clients.len());
    rig.refused(grant(1000, 4096..8192, true), "128 sessions are the most");
}

#[test]
fn what_the_server_refuses_is_told() {
    let mut rig = Rig::new();
    rig.grantor.refuses = true;
    rig.refused(grant(1, 0..4096, true), "no more threads");
    rig.grantor.refuses = false;
    let _client = rig.grant(grant(2, 0..4096, false));
    assert!(rig.grantor.clients.contains_key(&2));
}

/// What disconnects the mediator leaves running sessions alone.
#[track_caller]
fn disconnects(word: &str, act: impl FnOnce(&mut Rig)) {
    let mut rig = Rig::new();
    let mut client = rig.grant(grant(5, 0..4096, false));
    act(&mut rig);
    rig.disconnected(word);
    let (_, stream) = rig.grantor.clients.get_mut(&5).expect("the session goes on");
    stream.write_all(b"!").unwrap();
    let mut heard = [0; 12];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"partition 5!");
    // And the driver goes on without a mediator.
    rig.grantor.revoked.push(5);
    rig.driver.turn(&mut rig.grantor);
    assert!(rig.grantor.clients.is_empty());
}

#[test]
fn nonsense_disconnects_the_mediator_and_nobody_else() {
    for bytes in
        [&b"{"[..], b"null", b"[]", b"\"Ready\"", b"\xff\xfe", b"{\"Grant\":{}}", b"{\"Revoke\":{\"session\":-1}}"]
    {
        disconnects("not understood", |rig| rig.say_bytes(bytes, None));
    }
    let deep = "[".repeat(4000);
    disconnects("not understood", |rig| rig.say_bytes(deep.as_bytes(), None));
    disconnects("too long", |rig| rig.say_bytes(&[b' '; 5000], None));
    let unknown = br#"{"Revoke":{"session":5,"by":"me"}}"#;
    disconnects("not understood", |rig| rig.say_bytes(unknown, None));
}

#[test]
fn what_is_said_at_the_wrong_time_disconnects_the_mediator() {
    disconnects("a second greeting", |rig| rig.say(&ToDriver::Ready { version: VERSION }, None));
    disconnects("without a client", |rig| rig.say(&ToDriver::Grant(grant(6, 4096..8192, true)), None));
    for used in [5, 4, 0] {
        disconnects("a session that has been", |rig| drop(rig.grant(grant(used, 4096..8192, true))));
    }
    disconnects("does not belong", |rig| {
        let (_client, server) = UnixStream::pair().unwrap();
        rig.say(&ToDriver::Revoke { session: 5 }, Some(&server));
    });
}

#[test]
fn nothing_is_granted_before_the_greeting() {
    let mut rig = Rig::silent();
    let _client = rig.grant(grant(1, 0..4096, true));
    rig.disconnected("grant");
    assert!(rig.grantor.clients.is_empty());
    let mut rig = Rig::silent();
    rig.say(&ToDriver::Ready { version: VERSION + 1 }, None);
    rig.disconnected("another version");
}

#[test]
fn too_many_descriptors_are_closed_and_disconnect() {
    disconnects("more or other descriptors", |rig| {
        let (client, server) = UnixStream::pair().unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        let descriptors = [server.as_fd(); 3];
        assert!(ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&descriptors)));
        let message = encode(&ToDriver::Grant(grant(6, 4096..8192, true))).unwrap();
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&rig.mediator, &[io::IoSlice::new(&message)], &mut ancillary, flags).unwrap();
        rig.driver.turn(&mut rig.grantor);
        drop(server);
        assert_eq!((&client).read(&mut [0]).unwrap(), 0, "a descriptor is left open");
    });
}

#[test]
fn a_mediator_that_ends_or_fails_is_told_once() {
    disconnects("has ended", |rig| {
        let (_, other) = control_pair().unwrap();
        // Its end is closed; `disconnected` looks at one whose other end is closed too.
        rig.mediator = ControlSocket::new(other);
        rig.driver.turn(&mut rig.grantor);
        rig.driver.turn(&mut rig.grantor);
    });
    let mut rig = Rig::new();
    rig.say(&ToDriver::Failed { reason: "no partition 9".into() }, None);
    assert_eq!(rig.grantor.news, [MediatorNews::Failed("no partition 9".into())]);
}

#[test]
fn a_mediator_that_does_not_read_neither_blocks_the_driver_nor_fills_its_memory() {
    let mut rig = Rig::new();
    for session in 1..10_000 {
        let _client = rig.grant(grant(session, 0..1, true));
        assert!(rig.driver.notices.len() <= NOTICES_MAX + DATAGRAMS_AT_ONCE);
        if rig.driver.event().is_none() {
            let Some(MediatorNews::Gone(why)) = rig.grantor.news.last() else { panic!("{:?}", rig.grantor.news) };
            assert!(why.contains("does not read"), "{why}");
            return;
        }
    }
    panic!("the driver keeps writing to a mediator that does not read");
}

#[test]
fn a_client_waits_while_too_many_connections_are_not_closed() {
    let mut rig = Rig::new();
    let leaving = rig.driver.departures.too_many();
    let (_client, server) = UnixStream::pair().unwrap();
    let message = encode(&ToDriver::Grant(grant(1, 0..4096, true))).unwrap();
    rig.mediator.send(&message, Some(server.as_fd()), Patience::Never).unwrap();
    rig.driver.turn(&mut rig.grantor);
    assert!(rig.grantor.clients.is_empty() && rig.grantor.news.is_empty(), "{:?}", rig.grantor.news);
    drop(leaving);
    rig.driver.turn(&mut rig.grantor);
    assert!(rig.grantor.clients.contains_key(&1), "{:?}", rig.grantor.news);
}

#[test]
fn the_loop_ends_when_it_is_told_to() {
    let Rig { mut driver, mut grantor, mediator } = Rig::new();
    let (stop, stopper) = UnixStream::pair().unwrap();
    let (client, server) = UnixStream::pair().unwrap();
    let running = std::thread::spawn(move || {
        driver.run(&mut grantor, stop.as_fd()).unwrap();
        grantor
    });
    let message = encode(&ToDriver::Grant(grant(1, 0..4096, false))).unwrap();
    mediator.send(&message, Some(server.as_fd()), Patience::Wait).unwrap();
    let mut greeting = [0; 11];
    (&client).read_exact(&mut greeting).unwrap();
    // Dead, the mediator does not end it.
    drop(mediator);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert!(!running.is_finished());
    drop(stopper);
    let grantor = running.join().unwrap();
    assert!(matches!(grantor.news[..], [MediatorNews::Gone(_)]), "{:?}", grantor.news);
    assert_eq!(grantor.clients.len(), 1);
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Grant { step: u8, start: u8, length: u8, read_only: bool, weight: u8, with_client: bool },
    AnyGrant { session: u64, start: u64, end: u64, read_only: bool },
    Revoke(u8),
    Notice(String),
    Bytes(Vec<u8>),
    Ready,
    Read,
}

/// Whatever a mediator says: what is served lies within the disk, and what is written has one client.
#[test]
fn fuzz_a_mediator_cannot_grant_what_it_must_not() {
    blockyard_fuzz::check!(500).with_type::<Vec<Step>>().for_each(|steps| {
        let mut rig = Rig::new();
        let (_client, server) = UnixStream::pair().unwrap();
        let mut session = 0u64;
        for step in steps {
            let connection = Some(&server);
            match step {
                Step::Grant { step, start, length, read_only, weight, with_client } => {
                    session = session.saturating_add(u64::from(*step % 8 + 1).min(u64::from(*step)));
                    let start = u64::from(*start) * 4096;
                    let range = start..start + u64::from(length % 16) * 4096;
                    let weight = NonZeroU32::new(u32::from(*weight)).unwrap_or(NonZeroU32::MAX);
                    let grant = Grant { weight, ..grant(session, range, *read_only) };
                    rig.say(&ToDriver::Grant(grant), connection.filter(|_| *with_client));
                }
                Step::AnyGrant { session, start, end, read_only } => {
                    rig.say(&ToDriver::Grant(grant(*session, *start..*end, *read_only)), connection);
                }
                Step::Revoke(session) => rig.say(&ToDriver::Revoke { session: u64::from(*session) }, None),
                Step::Notice(what) => rig.say(&ToDriver::Notice { what: what.clone() }, None),
                Step::Bytes(bytes) => rig.say_bytes(bytes, None),
                Step::Ready => rig.say(&ToDriver::Ready { version: VERSION }, None),
                Step::Read => drop(rig.mediator.receive(Patience::Never)),
            }
            check(&rig.grantor);
        }
    });
}

fn check(grantor: &Greeter) {
    let grants: Vec<_> = grantor.clients.values().map(|(grant, _)| grant).collect();
    assert!(grants.len() <= EXPORTS_MAX);
    for (index, grant) in grants.iter().enumerate() {
        let range = &grant.range_bytes;
        assert!(range.start < range.end && range.end <= DISK_BYTES, "{grant:?}");
        assert!(range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096), "{grant:?}");
        for other in &grants[..index] {
            let shares = other.range_bytes.start < range.end && range.start < other.range_bytes.end;
            assert!(!shares || (other.read_only && grant.read_only), "{grant:?} {other:?}");
        }
    }
}
