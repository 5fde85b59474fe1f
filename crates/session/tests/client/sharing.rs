//! Queues that share a virtqueue: as many as are wanted, on a server that has one.

use crate::data::random_requests;
use crate::rig::{Client, Rig, WRITE, pattern};
use crate::scripted::{self, Say, Script, Use, contents, serve};
use crate::server::{QemuStorageDaemon, Running};
use blockyard_block::{Disk, Operation, RequestError};
use blockyard_session::client::{SessionDisk, SessionOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const DISK_BYTES: usize = 4 << 20;
/// Longest that anything here may take, on a machine with much else to do.
const LONG: Duration = Duration::from_secs(60);

fn sharing() -> SessionOptions {
    SessionOptions { is_passed_on: true, patience: Duration::from_secs(30), ..SessionOptions::default() }
}

/// A disk of a scripted server, which says nothing of virtqueues: it has one.
fn connect(script: Script, options: &SessionOptions) -> (SessionDisk, thread::JoinHandle<()>, scripted::Contents) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let disk = contents(DISK_BYTES);
    let shared = Arc::clone(&disk);
    let server = thread::spawn(move || serve(theirs, script, &shared));
    (SessionDisk::from_stream(ours, "scripted", options).unwrap(), server, disk)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn more_queues_than_virtqueues_do_what_a_vector_does() {
    const SHARE: usize = 1 << 20;
    const QUEUES: usize = 5;
    for (io_buffer_bytes, virtqueues) in [(None, 1), (Some(128 << 10), 1), (None, 2)] {
        let options = SessionOptions { io_buffer_bytes, ..sharing() };
        let rig = Rig::new(&vec![0; QUEUES * SHARE], virtqueues, &options);
        let shares = thread::scope(|scope| {
            let disk = &rig.disk;
            let threads: Vec<_> =
                (0..QUEUES).map(|queue| scope.spawn(move || random_requests(disk, queue * SHARE, SHARE, 4))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(rig.contents() == shares.concat());
    }
}

/// Together they push more than a virtqueue takes at once; none reaps but the last.
#[test]
fn queues_that_do_not_reap_are_in_nobodys_way() {
    const DEPTH: usize = 200;
    let rig = Rig::new(&vec![0; 4 << 20], 1, &sharing());
    let mut idle: Vec<_> = (0..4_u8).map(|_| Client::new(&rig.disk, DEPTH)).collect();
    for (index, client) in idle.iter_mut().enumerate() {
        client.poke(0, &vec![index as u8 + 1; 512]);
        let segments = client.segments(0, 512);
        for token in 0..DEPTH as u64 {
            client.push(WRITE, (index * DEPTH) as u64 * 512 + token * 512, &segments, token);
        }
        client.queue.submit().unwrap();
    }
    let mut busy = Client::new(&rig.disk, 4);
    for round in 0..100 {
        busy.write(3 << 20, &[round; 4096]);
        assert_eq!(busy.read(3 << 20, 4096), [round; 4096]);
    }
    for (index, client) in idle.iter_mut().enumerate() {
        let mut tokens: Vec<_> = client.drain().iter().map(|done| done.result.map(|()| done.token).unwrap()).collect();
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..DEPTH as u64), "each once");
        let place = index * DEPTH * 512;
        assert!(rig.contents()[place..place + DEPTH * 512].iter().all(|&byte| byte == index as u8 + 1));
    }
}

/// The server does what it is asked in its order, and stops before the first could have done all that it wants.
#[test]
fn whoever_wants_little_does_not_wait_for_all_that_another_wants() {
    const MANY: usize = 1000;
    let script =
        Script::good(DISK_BYTES).on_request(|count| if count == MANY / 2 { Use::Close } else { Use::Properly });
    let (disk, server, contents) = connect(script, &sharing());
    let (mut greedy, mut modest) = (Client::new(&disk, MANY), Client::new(&disk, 1));
    greedy.poke(0, &[1; 512]);
    let segments = greedy.segments(0, 512);
    (0..MANY as u64).for_each(|token| greedy.push(WRITE, token * 512, &segments, token));
    greedy.queue.submit().unwrap();
    modest.poke(0, &[2; 512]);
    let segments = modest.segments(0, 512);
    modest.push(WRITE, 1 << 20, &segments, 1);
    assert_eq!(modest.drain().len(), 1);
    assert_eq!(greedy.drain().len(), MANY);
    server.join().unwrap();
    let contents = contents.lock().unwrap();
    assert_eq!((contents[1 << 20], contents[(MANY - 1) * 512]), (2, 0));
}

/// It sleeps on the event that it has taken once, and another one takes its completions out of the virtqueue.
#[test]
fn whoever_sleeps_is_woken_for_what_another_finds() {
    let contents = pattern(1 << 20, 7);
    let rig = Rig::new(&contents, 1, &sharing());
    let mut sleeper = Client::new(&rig.disk, 16);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Client::new(&rig.disk, 16);
            let segments = other.segments(0, 4096);
            let mut completions = Vec::with_capacity(16);
            while !stop.load(Ordering::Relaxed) {
                if other.queue.in_flight() < 16 {
                    other.push(Operation::Read, 0, &segments, 1);
                }
                other.queue.submit().unwrap();
                other.queue.reap(&mut completions);
                completions.clear();
            }
        });
        let event = sleeper.queue.completion_event().unwrap().try_clone_to_owned().unwrap();
        let mut completions = Vec::with_capacity(16);
        for round in 0..500_u64 {
            let in_batch = 1 + round as usize % 16;
            for token in 0..in_batch as u64 {
                let segments = sleeper.segments(token * 4096, 4096);
                sleeper.push(Operation::Read, token * 4096, &segments, token);
            }
            sleeper.queue.submit().unwrap();
            while completions.len() < in_batch {
                let before = completions.len();
                sleeper.queue.reap(&mut completions);
                if completions.len() == before {
                    let mut fds = [PollFd::new(&event, PollFlags::IN)];
                    assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })), Ok(1), "woken within 20 s");
                }
            }
            assert!(completions.drain(..).all(|completion| completion.result.is_ok()));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(sleeper.peek(0, 65536) == contents[..65536]);
}

/// The virtqueue's event is taken by the one that has found it, and asked for anew: it says nothing of what it found.
#[test]
fn whoever_sleeps_is_woken_though_the_other_goes_on_to_sleep() {
    let rig = Rig::new(&pattern(1 << 20, 8), 1, &sharing());
    let (mut sleeper, mut other) = (Client::new(&rig.disk, 4), Client::new(&rig.disk, 4));
    let event = sleeper.queue.completion_event().unwrap().try_clone_to_owned().unwrap();
    let segments = sleeper.segments(0, 4096);
    let mut completions = Vec::with_capacity(4);
    for round in 0..200 {
        sleeper.push(Operation::Read, 0, &segments, round);
        sleeper.queue.submit().unwrap();
        let deadline = Instant::now() + LONG;
        while sleeper.queue.in_flight() > 0 {
            sleeper.queue.reap(&mut completions);
            let mut fds = [PollFd::new(&event, PollFlags::IN)];
            while sleeper.queue.in_flight() > 0 && fds[0].revents().is_empty() {
                assert!(Instant::now() < deadline, "it is not woken");
                other.queue.reap(&mut completions);
                other.queue.completion_event();
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })).unwrap();
            }
        }
        assert_eq!(completions.drain(..).map(|done| (done.token, done.result)).collect::<Vec<_>>(), [(round, Ok(()))]);
    }
}

/// With a server that is told of regions one by one, and one that gets all of its table anew, for which its virtqueue
/// stops and goes on.
#[test]
fn queues_come_and_go_while_others_use_their_virtqueue() {
    for protocol in [scripted::PROTOCOL, scripted::CONFIG] {
        let (disk, server, _) = connect(Script { protocol, ..Script::good(DISK_BYTES) }, &sharing());
        assert_eq!(disk.queue_count(), 1);
        let (stop, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = Client::new(&disk, 16);
                while !stop.load(Ordering::Relaxed) {
                    let data = pattern(65536, rounds.load(Ordering::Relaxed) as u64);
                    client.write(0, &data);
                    assert!(client.read(0, data.len()) == data);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            for round in 0..20 {
                let before = rounds.load(Ordering::Relaxed);
                let mut client = Client::new(&disk, 4);
                client.write(1 << 20, &[round; 4096]);
                assert_eq!(client.read(1 << 20, 4096), [round; 4096]);
                // It leaves with something under way, which is done nevertheless.
                let segments = client.segments(0, 4096);
                client.push(WRITE, (2 << 20) + u64::from(round) * 4096, &segments, 1);
                drop(client);
                wait_until("the other goes on", || rounds.load(Ordering::Relaxed) > before);
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut client = Client::new(&disk, 4);
        (0..20).for_each(|round| assert_eq!(client.read((2 << 20) + u64::from(round) * 4096, 4096), [round; 4096]));
        drop((client, disk));
        server.join().unwrap();
    }
}

/// All of them are: the first that came, too, and the one that is the last for a while.
#[test]
fn the_last_queue_that_leaves_gives_the_virtqueue_back() {
    let rig = Rig::new(&pattern(1 << 20, 5), 2, &sharing());
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..4).map(|_| Client::new(&rig.disk, 8)).collect();
        drop(clients.remove(0));
        for client in &mut clients {
            assert!(client.read(512, 4096) == rig.contents()[512..4608]);
        }
        drop(clients.remove(0));
        assert!(clients[0].read(512, 4096) == rig.contents()[512..4608]);
    }
}

#[test]
fn whose_memory_the_server_does_not_take_has_its_data_copied() {
    // The virtqueue's own region, and two of each queue's.
    let few = Script { memory_slots: 4, ..Script::good(DISK_BYTES) };
    let refusing = Script::good(DISK_BYTES).on_message(|request, count| match request {
        scripted::ADD_MEM_REG if count == 4 => Say::Refuse,
        _ => Say::Properly,
    });
    for script in [few, refusing] {
        let (disk, server, contents) = connect(script, &sharing());
        let mut clients: Vec<_> = (0..3).map(|_| Client::new(&disk, 4)).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            let data = pattern(1 << 20, index as u64);
            client.write(512, &data);
            assert!(contents.lock().unwrap()[512..512 + data.len()] == data);
            assert!(client.read(512, data.len()) == data);
        }
        drop((clients, disk));
        server.join().unwrap();
    }
}

/// What the server owes it still is not done to its memory by the next server, which does what it owes to the others.
#[test]
fn whoever_left_while_the_server_was_away_is_not_asked_for_again() {
    let options = SessionOptions { reconnect: Duration::from_secs(300), ..sharing() };
    let mut rig = Rig::new(&pattern(1 << 20, 6), 1, &options);
    let (mut stays, mut leaves) = (Client::new(&rig.disk, 4), Client::new(&rig.disk, 4));
    rig.server.kill();
    for client in [&mut stays, &mut leaves] {
        let segments = client.segments(0, 65536);
        client.push(Operation::Read, 4096, &segments, 7);
        client.push(WRITE, 512 << 10, &segments, 8);
        client.queue.submit().unwrap();
    }
    let memory = leaves.memory.clone();
    drop(leaves);
    let _server = Running::start(&QemuStorageDaemon, &rig.image, &rig.server.socket, 1);
    let mut done = stays.drain();
    done.sort_by_key(|completion| completion.token);
    assert_eq!(done.iter().map(|done| (done.token, done.result)).collect::<Vec<_>>(), [(7, Ok(())), (8, Ok(()))]);
    assert!(stays.peek(0, 65536) == rig.contents()[4096..4096 + 65536]);
    // Another has its place.
    let mut comes = Client::new(&rig.disk, 4);
    assert!(comes.read(512, 4096) == rig.contents()[512..4608]);
    let left = Client { memory: memory.clone(), queue: rig.disk.open_queue(&memory, 1).unwrap() };
    assert!(left.peek(0, 65536) == [0; 65536]);
}

/// Its memory must not stay with such a server, so the connection goes; what the others are owed comes from the next.
#[test]
fn whoever_leaves_a_server_that_never_answers_costs_the_others_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let disk = contents(DISK_BYTES);
    let listener = UnixListener::bind(&path).unwrap();
    let scripts = [Script::good(DISK_BYTES).on_request(|_| Use::Never), Script::good(DISK_BYTES)];
    let served = Arc::clone(&disk);
    let server = thread::spawn(move || {
        scripts.into_iter().for_each(|script| serve(listener.accept().unwrap().0, script, &served));
    });
    let reconnect = Duration::from_secs(300);
    // Long enough for its answers, on a machine with much else to do.
    let options = SessionOptions { reconnect, patience: Duration::from_secs(2), ..sharing() };
    let session = SessionDisk::connect(&path, &options).unwrap();
    let mut clients: Vec<_> = (0..4).map(|_| Client::new(&session, 4)).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        client.poke(0, &[index as u8 + 1; 4096]);
        let segments = client.segments(0, 4096);
        client.push(WRITE, index as u64 * 4096, &segments, 1);
        client.queue.submit().unwrap();
    }
    drop(clients.remove(2));
    for client in &mut clients {
        assert_eq!(client.drain().iter().map(|done| done.result).collect::<Vec<_>>(), [Ok(())]);
    }
    let written: Vec<_> = disk.lock().unwrap().chunks(4096).take(4).map(|block| block[0]).collect();
    assert_eq!(written, [1, 2, 0, 4]);
    drop((clients, session));
    server.join().unwrap();
}

#[test]
fn the_end_of_the_session_is_the_end_of_every_queue_of_it() {
    let mut rig = Rig::new(&[0; 1 << 20], 1, &sharing());
    let mut clients: Vec<_> = (0..3).map(|_| Client::new(&rig.disk, 4)).collect();
    rig.server.kill();
    let lost = Err(RequestError::Os(libc::ENOTCONN));
    for client in &mut clients {
        let segments = client.segments(0, 512);
        assert_eq!(client.perform(WRITE, 0, &segments), lost);
        assert_eq!(client.perform(Operation::Flush, 0, &[]), lost);
    }
    assert!(rig.disk.open_queue(&clients[0].memory, 1).is_err());
}
