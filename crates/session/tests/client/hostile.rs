//! Servers with few features, and servers that lie.

use crate::rig::{Client, WRITE, pattern};
use crate::scripted::{self, Contents, Say, Script, Use, contents, serve};
use blockyard_block::{Disk, EventFd, MemoryMap, Operation, Request, RequestError, explain};
use blockyard_session::client::{SessionDisk, SessionError, SessionOptions};
use blockyard_session::open::{OpenOptions, open_disk};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 4 << 20;
const LOST: Result<(), RequestError> = Err(RequestError::Os(libc::ENOTCONN));

/// How long whoever says nothing is waited for; others, on a busy machine, may need a while to say what they say.
const SHORT: Duration = Duration::from_millis(200);

/// Longest that anything here may take, on a machine with much else to do.
const LONG: Duration = Duration::from_secs(60);

/// For a server that answers, if not always at once.
fn options() -> SessionOptions {
    SessionOptions { patience: Duration::from_secs(30), ..SessionOptions::default() }
}

/// Starts a scripted server and connects to it.
fn try_connect(
    script: Script,
    options: &SessionOptions,
) -> (Result<SessionDisk, SessionError>, JoinHandle<()>, Contents) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let disk = contents(DISK_BYTES);
    let shared = Arc::clone(&disk);
    let server = std::thread::spawn(move || serve(theirs, script, &shared));
    (SessionDisk::from_stream(ours, "scripted", options), server, disk)
}

fn connect(script: Script) -> (SessionDisk, JoinHandle<()>, Contents) {
    let (disk, server, contents) = try_connect(script, &options());
    (disk.unwrap(), server, contents)
}

/// A disk whose server answers at first: it is waited for as short as this machine lets it answer in.
fn connect_impatiently(script: impl Fn() -> Script) -> (SessionDisk, JoinHandle<()>) {
    let tries = [3, 12, 48].map(Duration::from_secs);
    let connected = tries.into_iter().find_map(|patience| {
        let (disk, server, _) = try_connect(script(), &SessionOptions { patience, ..options() });
        Some((disk.inspect_err(|error| eprintln!("within {patience:?}: {}", explain(error))).ok()?, server))
    });
    connected.expect("it does not even answer at first")
}

fn refusal(script: Script, patience: Duration) -> String {
    let (disk, ..) = try_connect(script, &SessionOptions { patience, ..options() });
    explain(&disk.expect_err("such a server is refused"))
}

#[test]
fn a_server_with_any_set_of_features_works() {
    use scripted::{
        CONFIG, EVENT_IDX, FLUSH, INDIRECT, MEM_SLOTS, PROTOCOL_FEATURES, REPLY_ACK, SEG_MAX, SIZE_MAX, VERSION_1,
    };
    let least = VERSION_1 | PROTOCOL_FEATURES;
    for features in [0, INDIRECT, EVENT_IDX, SEG_MAX, SEG_MAX | INDIRECT | SIZE_MAX, EVENT_IDX | SEG_MAX | FLUSH] {
        for protocol in [CONFIG, CONFIG | MEM_SLOTS, CONFIG | REPLY_ACK, CONFIG | MEM_SLOTS | REPLY_ACK | 1] {
            let mut script = Script { features: least | features, protocol, ..Script::good(DISK_BYTES) };
            // Segments of 1000 bytes, if that is said.
            script.config[8..12].copy_from_slice(&1000_u32.to_le_bytes());
            let (disk, server, contents) = connect(script);
            let geometry = disk.geometry();
            assert!(!geometry.discard && !geometry.write_zeroes);
            let mut client = Client::new(&disk, 8);
            let data = pattern(200_000 / 512 * 512, features + protocol);
            client.write(512, &data);
            assert!(client.read(512, data.len()) == data, "{features:#x} {protocol:#x}");
            client.perform(Operation::WriteZeroes { length_bytes: 140 << 10, may_unmap: true }, 4096, &[]).unwrap();
            client.perform(Operation::Discard { length_bytes: 4096 }, 0, &[]).unwrap();
            client.perform(Operation::Flush, 0, &[]).unwrap();
            let contents = contents.lock().unwrap();
            assert!(contents[512..4096] == data[..3584]);
            assert!(contents[4096..4096 + (140 << 10)].iter().all(|&byte| byte == 0));
            assert!(contents[4096 + (140 << 10)..512 + data.len()] == data[(144 << 10) - 512..]);
            drop((client, disk));
            server.join().unwrap();
        }
    }
}

/// A server that takes its memory table as a whole has its other queues stopped and started while a queue comes or
/// goes.
#[test]
fn queues_come_and_go_under_load_with_a_server_that_takes_whole_tables() {
    let script = Script { protocol: scripted::CONFIG | 1, queues: 3, ..Script::good(DISK_BYTES) };
    let mut script = script;
    script.features |= 1 << 12;
    script.config[34] = 3;
    let (disk, server, _) = connect(script);
    let stop = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut client = Client::new(&disk, 16);
            let mut rounds = 0;
            while stop.load(Ordering::Relaxed) == 0 || rounds == 0 {
                let data = pattern(65536, rounds);
                client.write(0, &data);
                assert!(client.read(0, data.len()) == data);
                rounds += 1;
            }
        });
        for round in 0..20 {
            let mut client = Client::new(&disk, 4);
            client.write(1 << 20, &[round; 4096]);
            assert_eq!(client.read(1 << 20, 4096), [round; 4096]);
        }
        stop.store(1, Ordering::Relaxed);
        busy.join().unwrap();
    });
    drop(disk);
    server.join().unwrap();
}

#[test]
fn memory_that_the_server_does_not_take_is_copied() {
    let few = Script { memory_slots: 2, ..Script::good(DISK_BYTES) };
    // The first region is the queue's own.
    let refusing = Script::good(DISK_BYTES).on_message(|request, count| match request {
        scripted::ADD_MEM_REG if count == 2 => Say::Refuse,
        _ => Say::Properly,
    });
    for script in [few, refusing] {
        let (disk, server, contents) = connect(script);
        let mut client = Client::new(&disk, 4);
        let data = pattern(3 << 20, 9);
        client.write(512, &data);
        assert!(contents.lock().unwrap()[512..512 + data.len()] == data);
        assert!(client.read(512, data.len()) == data);
        drop((client, disk));
        server.join().unwrap();
    }
}

#[test]
fn a_server_with_too_few_memory_slots_says_so() {
    let script = Script { memory_slots: 0, ..Script::good(DISK_BYTES) };
    let (disk, ..) = connect(script);
    let error = disk.open_queue(&crate::rig::memory(), 1).err().unwrap().to_string();
    assert!(error.contains("maps 0 memory regions"), "{error}");
}

#[test]
fn whoever_is_no_disk_server_is_refused_with_a_reason() {
    let good = || Script::good(DISK_BYTES);
    let raw = |request, bytes: &[u8]| good().saying(request, Say::Raw(bytes.to_vec()));
    let reply = |request: u32, flags: u32, size: u32, body: &[u8]| {
        [&request.to_ne_bytes()[..], &flags.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
    };
    let with_config = |place: usize, bytes: &[u8], features: u64| {
        let mut script = Script { features: scripted::FEATURES | features, ..good() };
        script.config[place..place + bytes.len()].copy_from_slice(bytes);
        script
    };
    use scripted::{BLK_SIZE, CONFIG, GET_CONFIG, GET_FEATURES, PROTOCOL, SIZE_MAX, VERSION_1};
    let protocol = "does not speak vhost-user as it should";
    let unusable = "serves no usable block device";
    let silent = "does not answer";
    for (script, wanted) in [
        (good().saying(GET_FEATURES, Say::Close), "closed the connection"),
        (good().saying(GET_FEATURES, Say::Nothing), silent),
        (good().saying(GET_CONFIG, Say::Nothing), silent),
        (raw(GET_FEATURES, b"HTTP/1.1 400 Bad Request\r\n\r\n"), protocol),
        (raw(GET_FEATURES, &[0; 20]), protocol),
        // Not a reply, a reply to something else, one of no and one of many bytes, one that is cut off.
        (raw(GET_FEATURES, &reply(GET_FEATURES, 1, 8, &[0; 8])), protocol),
        (raw(GET_FEATURES, &reply(GET_CONFIG, 5, 8, &[0; 8])), protocol),
        (raw(GET_FEATURES, &reply(GET_FEATURES, 5, 0, &[])), protocol),
        (raw(GET_FEATURES, &reply(GET_FEATURES, 5, u32::MAX, &[0; 64])), protocol),
        (raw(GET_FEATURES, &reply(GET_FEATURES, 5, 8, &[0; 3])), silent),
        (raw(GET_CONFIG, &reply(GET_CONFIG, 5, 0, &[])), unusable),
        (raw(GET_CONFIG, &reply(GET_CONFIG, 5, 72, &[0; 72])), unusable),
        (raw(GET_CONFIG, &reply(GET_CONFIG, 5, 300, &[0; 300])), protocol),
        (good().saying(GET_CONFIG, Say::Refuse), unusable),
        (Script { features: 0, ..good() }, unusable),
        (Script { features: scripted::FEATURES & !VERSION_1, ..good() }, "legacy"),
        (Script { protocol: PROTOCOL & !CONFIG, ..good() }, "no configuration"),
        (with_config(0, &[0; 8], 0), "holds no block"),
        (with_config(0, &[0xff; 8], 0), "more than a disk can have"),
        (with_config(20, &513_u32.to_le_bytes(), BLK_SIZE), "not a power of two"),
        (with_config(8, &1_u32.to_le_bytes(), SIZE_MAX), "less than a block"),
    ] {
        let error = refusal(script, if wanted == silent { SHORT } else { options().patience });
        assert!(error.contains(wanted) && error.contains("scripted"), "{error:?} is not about {wanted:?}");
    }
}

#[test]
fn what_a_server_exaggerates_does_no_harm() {
    // Queue counts of 0 and of far too many, and descriptors that nobody asked for.
    for (queues, config_queues) in [(0, 0), (u64::MAX, u16::MAX), (3, 2)] {
        let mut script = Script { queues, ..Script::good(DISK_BYTES) }.on_message(|_, _| Say::WithDescriptors);
        script.features |= 1 << 12;
        script.config[34..36].copy_from_slice(&config_queues.to_le_bytes());
        let (ours, theirs) = UnixStream::pair().unwrap();
        // What it sends are duplicates of its own end.
        let sent = rustix::fs::fstat(&theirs).unwrap().st_ino;
        let contents = contents(DISK_BYTES);
        let server = std::thread::spawn(move || serve(theirs, script, &contents));
        let disk = SessionDisk::from_stream(ours, "scripted", &options()).unwrap();
        assert!((1..=256).contains(&disk.queue_count()));
        let mut client = Client::new(&disk, 4);
        client.write(0, &[1; 4096]);
        drop((client, disk));
        server.join().unwrap();
        assert_eq!(descriptors_of_socket(sent), 0);
    }
}

fn descriptors_of_socket(inode: u64) -> usize {
    let socket = std::path::PathBuf::from(format!("socket:[{inode}]"));
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
    // Other tests close theirs meanwhile.
    descriptors
        .filter(|entry| std::fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|link| link == socket))
        .count()
}

#[test]
fn lies_in_the_used_ring_end_the_session() {
    for (lie, wanted) in [
        (Use::Index(1000), "the device used 100"),
        (Use::Index(0x8000), "requests of"),
        (Use::Id(u32::MAX), "which does not exist"),
        (Use::Id(7), "which is not in flight"),
        (Use::Twice, "broke a virtqueue"),
    ] {
        let script = Script::good(DISK_BYTES).on_request(move |count| if count == 4 { lie } else { Use::Properly });
        let (disk, server, _) = connect(script);
        let mut client = Client::new(&disk, 4);
        let segments = client.segments(0, 4096);
        for token in 0..4 {
            client.push(Operation::Read, 0, &segments, token);
        }
        assert!(client.drain().iter().all(|completion| completion.result.is_ok()));
        client.push(Operation::Read, 0, &segments, 4);
        client.push(Operation::Read, 0, &segments, 5);
        let mut completions = client.drain();
        completions.extend(
            client
                .queue
                .push(&Request { operation: WRITE, offset_bytes: 0, segments: &segments, token: 6 })
                .map(|()| client.drain())
                .unwrap(),
        );
        let mut tokens: Vec<_> = completions.iter().map(|completion| completion.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [4, 5, 6], "each completes once");
        assert_eq!(completions.iter().find(|completion| completion.token == 6).unwrap().result, LOST);
        let failure = disk.failure().unwrap();
        assert!(failure.contains(wanted) && failure.contains("not to be trusted"), "{failure}");
        drop((client, disk));
        server.join().unwrap();
    }
}

#[test]
fn a_disk_that_is_resized_says_so() {
    const NEW_BYTES: u64 = DISK_BYTES as u64 / 2;
    // What cannot be is not believed.
    let deeds = [Use::Properly, Use::Resize(NEW_BYTES / 512), Use::Resize(0), Use::Resize(u64::MAX), Use::Properly];
    let (disk, ..) = connect(Script::good(DISK_BYTES).on_request(move |count| deeds[count]));
    let mut client = Client::new(&disk, 4);
    client.write(NEW_BYTES, &[1; 512]);
    assert_eq!(disk.generation(), 0);
    client.write(0, &[1; 512]);
    let event = disk.change_event().unwrap();
    let mut fds = [PollFd::new(&event, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })).unwrap();
    assert_eq!((disk.generation(), disk.geometry().capacity_bytes), (1, NEW_BYTES));
    for _ in 0..3 {
        client.write(NEW_BYTES - 512, &[2; 512]);
    }
    let segments = client.segments(0, 512);
    assert_eq!(client.perform(WRITE, NEW_BYTES, &segments), Err(RequestError::OutOfRange));
    assert_eq!(disk.generation(), 1);
}

#[test]
fn any_status_is_an_answer() {
    let statuses = [0, 1, 2, 3, 0x80, 0xff];
    let script = Script::good(DISK_BYTES).on_request(move |count| Use::Status(statuses[count]));
    let (disk, ..) = connect(script);
    let mut client = Client::new(&disk, 1);
    let segments = client.segments(0, 512);
    let results: Vec<_> = statuses.iter().map(|_| client.perform(Operation::Read, 0, &segments)).collect();
    let failed = Err(RequestError::Os(libc::EIO));
    assert_eq!(results, [Ok(()), failed, Err(RequestError::Unsupported), failed, failed, failed]);
}

#[test]
fn a_request_that_fails_in_part_fails_once() {
    let script = Script::good(DISK_BYTES).on_request(|count| if count == 3 { Use::Status(1) } else { Use::Properly });
    let (disk, ..) = try_connect(script, &SessionOptions { io_buffer_bytes: Some(64 << 10), ..options() });
    let mut client = Client::new(&disk.unwrap(), 2);
    let segments = client.segments(0, 1 << 20);
    assert_eq!(client.perform(WRITE, 0, &segments), Err(RequestError::Os(libc::EIO)));
    assert_eq!(client.perform(WRITE, 0, &segments), Ok(()), "nothing is left over");
}

#[test]
fn a_server_that_never_completes_holds_no_queue() {
    let (disk, server) = connect_impatiently(|| Script::good(DISK_BYTES).on_request(|_| Use::Never));
    let mut client = Client::new(&disk, 4);
    let segments = client.segments(0, 4096);
    client.push(WRITE, 0, &segments, 1);
    client.queue.submit().unwrap();
    client.queue.wait(&[], Some(Duration::from_millis(20))).unwrap();
    // This comes back, whenever that is.
    drop(client);
    // The connection goes with it: its memory must not stay with the server.
    server.join().unwrap();
    assert!(disk.open_queue(&crate::rig::memory(), 1).is_err());
}

#[test]
fn whoever_is_asked_to_end_waits_for_no_server_that_gets_nowhere() {
    let good = || Script::good(DISK_BYTES);
    let never: &dyn Fn() -> Script = &|| good().on_request(|_| Use::Never);
    let filling: &dyn Fn() -> Script = &|| Script { fills_kicks: true, ..good() };
    for script in [never, filling] {
        let ending = Arc::new(EventFd::new().unwrap());
        let tries = [1, 8, 48].map(Duration::from_secs);
        let opened = tries.into_iter().find_map(|patience| {
            let ending = Some(Arc::clone(&ending));
            let (disk, server, _) = try_connect(script(), &SessionOptions { patience, ending, ..options() });
            let disk = disk.ok()?;
            let client = Client::try_new(&disk, 4).ok()?;
            Some((client, disk, server))
        });
        let (mut client, disk, server) = opened.expect("it does not even answer at first");
        let (ended, wait) = std::sync::mpsc::channel();
        // Where the event is full, it sleeps in its submission.
        let waiting = std::thread::spawn(move || {
            let segments = client.segments(0, 4096);
            ended.send(client.perform(WRITE, 0, &segments)).unwrap();
        });
        assert!(wait.recv_timeout(SHORT).is_err(), "nobody has asked for the end");
        ending.ring();
        assert_eq!(wait.recv_timeout(LONG), Ok(LOST));
        let failure = disk.failure().unwrap();
        assert!(failure.contains("waited for no longer"), "{failure}");
        waiting.join().unwrap();
        drop(disk);
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_stops_answering_holds_nobody() {
    let silent = || Script::good(DISK_BYTES).saying(scripted::GET_VRING_BASE, Say::Nothing);
    let (disk, _) = connect_impatiently(silent);
    // Both come back, whenever that is.
    drop(Client::new(&disk, 4));
    drop(disk);
}

/// Listens on a path, and serves each connection by the next script.
fn listen(path: &std::path::Path, scripts: Vec<Script>, disk: &Contents) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    let disk = Arc::clone(disk);
    std::thread::spawn(move || {
        scripts.into_iter().for_each(|script| serve(listener.accept().unwrap().0, script, &disk))
    })
}

#[test]
fn memory_with_secrets_is_not_the_servers_to_map() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let disk = contents(DISK_BYTES);
    let regions = Arc::new(AtomicUsize::new(0));
    let counting = || {
        let regions = Arc::clone(&regions);
        Script::good(DISK_BYTES).on_message(move |request, _| {
            regions.fetch_add(usize::from(request == scripted::ADD_MEM_REG), Ordering::Relaxed);
            Say::Properly
        })
    };
    let server = listen(&path, vec![counting(), counting()], &disk);
    // The queue's own region, and the two of the requests'.
    for (has_secrets, wanted) in [(false, 3), (true, 1)] {
        regions.store(0, Ordering::Relaxed);
        let specification = format!("session:{}", path.display()).parse().unwrap();
        let opened = open_disk(&specification, &OpenOptions { has_secrets, ..OpenOptions::default() }).unwrap();
        let session = opened.session.as_ref().unwrap();
        let mut client = Client::new(session, 4);
        client.write(4096, &[7; 4096]);
        assert_eq!(client.read(4096, 4096), [7; 4096]);
        assert_eq!(regions.load(Ordering::Relaxed), wanted);
    }
    server.join().unwrap();
}

#[test]
fn a_server_that_closes_at_any_moment_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let disk = contents(DISK_BYTES);
    // Closes during a request, then in the middle of each handshake but the last.
    let mut scripts =
        vec![Script::good(DISK_BYTES).on_request(|count| if count == 7 { Use::Close } else { Use::Properly })];
    for place in 0..20 {
        let mut messages = 0;
        let script = Script::good(DISK_BYTES).on_message(move |_, _| {
            messages += 1;
            if messages > place { Say::Close } else { Say::Properly }
        });
        // Or, where the handshake is over by then, with the first request.
        scripts.push(script.on_request(|_| Use::Close));
    }
    scripts.push(Script::good(DISK_BYTES));
    let server = listen(&path, scripts, &disk);
    let session =
        SessionDisk::connect(&path, &SessionOptions { reconnect: Duration::from_secs(300), ..options() }).unwrap();
    let mut client = Client::new(&session, 16);
    let data = pattern(16 * 65536, 3);
    client.poke(0, &data);
    for token in 0..16_u64 {
        let segments = client.segments(token * 65536, 65536);
        client.push(WRITE, token * 65536, &segments, token);
    }
    let mut tokens: Vec<_> = client.drain().iter().map(|completion| (completion.token, completion.result)).collect();
    tokens.sort_by_key(|(token, _)| *token);
    assert_eq!(tokens, (0..16).map(|token| (token, Ok(()))).collect::<Vec<_>>());
    assert!(disk.lock().unwrap()[..data.len()] == data);
    drop((client, session));
    server.join().unwrap();
}

#[test]
fn requests_are_asked_again_in_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let disk = contents(DISK_BYTES);
    // The first server does nothing at all. The second is asked to write the same block again and again: the last one
    // stays.
    let scripts = vec![
        Script::good(DISK_BYTES).on_request(|count| if count == 15 { Use::Close } else { Use::Never }),
        Script::good(DISK_BYTES),
    ];
    let server = listen(&path, scripts, &disk);
    let session =
        SessionDisk::connect(&path, &SessionOptions { reconnect: Duration::from_secs(300), ..options() }).unwrap();
    let mut client = Client::new(&session, 16);
    for token in 0..16_u64 {
        client.poke(token * 512, &[token as u8 + 1; 512]);
        let segments = client.segments(token * 512, 512);
        client.push(WRITE, 4096, &segments, token);
    }
    assert_eq!(client.drain().len(), 16);
    assert_eq!(disk.lock().unwrap()[4096..4608], [16; 512]);
    drop((client, session));
    server.join().unwrap();
}

#[test]
fn a_server_that_never_gets_anything_done_is_not_waited_for_for_ever() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let disk = contents(DISK_BYTES);
    let scripts = (0..10_000).map(|_| Script::good(DISK_BYTES).on_request(|_| Use::Close)).collect();
    let _server = listen(&path, scripts, &disk);
    let reconnect = Duration::from_millis(300);
    let session = SessionDisk::connect(&path, &SessionOptions { reconnect, ..options() }).unwrap();
    let mut client = Client::new(&session, 1);
    let segments = client.segments(0, 512);
    let start = Instant::now();
    assert_eq!(client.perform(WRITE, 0, &segments), LOST);
    assert!(start.elapsed() < LONG);
}

/// What a scripted server does in the fuzz target, made of numbers.
fn deed(kind: u8, value: u16) -> Use {
    match kind % 32 {
        0 => Use::Index(value),
        1 => Use::Id(value.into()),
        2 => Use::Id(u32::from(value) << 16),
        3 => Use::Twice,
        4 => Use::Never,
        5 => Use::Close,
        6 | 7 => Use::Status(value as u8),
        8..16 => Use::Scribble(value as u8),
        _ => Use::Properly,
    }
}

fn word(kind: u8, value: u16) -> Say {
    match kind % 32 {
        0 => Say::Nothing,
        1 => Say::Close,
        2 => Say::Refuse,
        3 => Say::Raw(value.to_ne_bytes().repeat(1 + usize::from(value % 40))),
        4 => Say::Raw(
            [&u32::from(value % 50).to_ne_bytes()[..], &5_u32.to_ne_bytes(), &8_u32.to_ne_bytes(), &[value as u8; 8]]
                .concat(),
        ),
        5..8 => Say::WithDescriptors,
        _ => Say::Properly,
    }
}

/// A server that lies at random, to a client that copies: so what the server can reach is known, and the rest must stay
/// as it is.
#[test]
fn fuzz_a_hostile_server_neither_hangs_nor_confuses_the_client() {
    const BLOCK: usize = 4096;
    type Input = ([u8; 16], u64, u64, Vec<(u8, u16)>, Vec<(u8, u16)>);
    blockyard_fuzz::check!(400).with_type::<Input>().for_each(|(config, features, protocol, words, deeds)| {
        let mut script = Script { careless: true, ..Script::good(DISK_BYTES) };
        // Some of the configuration and of the features, so that most still connect.
        for (place, byte) in script.config.iter_mut().skip(8).zip(config) {
            if config[0] % 4 == 0 {
                *place ^= byte;
            }
        }
        script.features |= features & 0x3fff_ffff;
        script.features &= !(features >> 32 & scripted::INDIRECT | features >> 33 & scripted::EVENT_IDX);
        script.protocol &= !(protocol & protocol >> 16 & 0xffff);
        let (words, deeds) = (words.clone(), deeds.clone());
        let mut said = 0;
        script.on_message = Box::new(move |_, _| {
            said += 1;
            words.get(said - 1).map_or(Say::Properly, |&(kind, value)| word(kind, value))
        });
        script.on_request =
            Box::new(move |count| deeds.get(count).map_or(Use::Properly, |&(kind, value)| deed(kind, value)));
        let patience = Duration::from_millis(5);
        let is_passed_on = config[1] % 2 == 1;
        let options = SessionOptions { patience, is_passed_on, io_buffer_bytes: Some(64 << 10), ..options() };
        let start = Instant::now();
        let (disk, server, _) = try_connect(script, &options);
        if let Ok(disk) = disk {
            std::thread::scope(|scope| {
                if is_passed_on {
                    scope.spawn(|| talk(&disk, BLOCK));
                }
                talk(&disk, BLOCK);
            });
        }
        assert!(start.elapsed() < LONG, "it took {:?}", start.elapsed());
        server.join().unwrap();
    });
}

/// Some requests of each kind, and a look at what became of them.
fn talk(disk: &SessionDisk, block: usize) {
    // Little, as all of it is looked at in the end.
    let region_bytes = 32 * block;
    let memory = MemoryMap::allocate(&[(0, region_bytes), (region_bytes as u64, region_bytes)]).unwrap();
    let Ok(queue) = disk.open_queue(&memory, 8) else { return };
    let mut client = Client { memory, queue };
    client.poke(0, &vec![0xa5; 16 * block]);
    let mut in_flight = [false; 8];
    let mut completions = Vec::with_capacity(8);
    let mut idle = 0;
    let mut pushed = 0;
    while pushed < 40 && idle < 3 {
        while let Some(token) = in_flight.iter().position(|busy| !busy) {
            // Reads use the second half only.
            let (operation, place) = match pushed % 4 {
                0 | 1 => (Operation::Read, 8 + token),
                2 => (WRITE, token),
                _ => (Operation::Flush, token),
            };
            let segments =
                if operation == Operation::Flush { Vec::new() } else { client.segments((place * block) as u64, block) };
            client.push(operation, (token * block) as u64, &segments, token as u64);
            in_flight[token] = true;
            pushed += 1;
        }
        client.queue.submit().unwrap();
        client.queue.wait(&[], Some(Duration::from_millis(2))).unwrap();
        client.queue.reap(&mut completions);
        idle = if completions.is_empty() { idle + 1 } else { 0 };
        for completion in completions.drain(..) {
            assert!(std::mem::take(&mut in_flight[completion.token as usize]), "completes once");
        }
        assert_eq!(client.queue.in_flight(), in_flight.iter().filter(|busy| **busy).count());
    }
    let memory = client.memory.clone();
    drop(client.queue);
    let after = Client {
        memory: memory.clone(),
        queue: blockyard_block::NullDisk::new(512, 512).unwrap().open_queue(&memory, 1).unwrap(),
    };
    assert_eq!(after.peek(0, 8 * block), vec![0xa5; 8 * block], "what is written from is not written to");
    assert!(after.peek(16 * block as u64, 2 * region_bytes - 16 * block).iter().all(|&byte| byte == 0));
}

/// The log of a server that remembers what it was told.
#[test]
fn the_server_learns_no_address_of_ours_and_each_region_once() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let script = Script::good(DISK_BYTES).on_message(move |request, _| {
        seen.lock().unwrap().push(request);
        Say::Properly
    });
    let (disk, server, _) = connect(script);
    let memory = crate::rig::memory();
    let first = disk.open_queue(&memory, 4).unwrap();
    let count =
        |log: &Mutex<Vec<u32>>| log.lock().unwrap().iter().filter(|&&request| request == scripted::ADD_MEM_REG).count();
    assert_eq!(count(&log), 3, "two regions and the queue's own");
    drop(first);
    let _second = disk.open_queue(&memory, 4).unwrap();
    assert_eq!(log.lock().unwrap()[..2], [scripted::SET_OWNER, scripted::GET_FEATURES]);
    drop((_second, disk));
    server.join().unwrap();
}
