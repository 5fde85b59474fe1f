//! When a disk is said to be there.

use super::*;

/// Where a process may have so few descriptors, one thing or another of a server cannot be had.
const DESCRIPTORS: std::ops::Range<u32> = 5..29;

/// How a server that may have so many descriptors goes on: whether it has said that the disk is there.
fn begins(directory: &TempDir, descriptors: u32, arguments: &[&str], said: &str) -> bool {
    let errors = directory.path().join("errors");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n $0; exec \"$@\""]).arg(descriptors.to_string()).arg(BLOCKYARD).arg("serve");
    command.args(arguments).current_dir(directory).stdin(Stdio::null()).stderr(File::create(&errors).unwrap());
    let mut server = command.spawn().unwrap();
    let (start, has_said) = (Instant::now(), || fs::read_to_string(&errors).unwrap().contains(said));
    let ended = loop {
        match server.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if has_said() => break None,
            None => assert!(start.elapsed() < PATIENCE, "{descriptors} descriptors, {arguments:?}: nothing happens"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    if ended.is_none() {
        kill_process(rustix::process::Pid::from_child(&server), Signal::TERM).unwrap();
    }
    let status = server.wait().unwrap();
    let words = fs::read_to_string(&errors).unwrap();
    assert_eq!(status.success(), words.contains(said), "{descriptors} descriptors, {arguments:?}: {status}, {words}");
    status.success()
}

#[test]
fn a_disk_is_said_to_be_there_when_it_is() {
    let directory = tempfile::tempdir().unwrap();
    partitioned(&directory);
    for (arguments, said) in [
        (&["disk.img", "--socket", "s"][..], "is served on"),
        (&["disk.img", "--fuse", "f"], "is the file"),
        (&["disk.img", "--partition", "1=p1.sock"], "sockets are ready"),
    ] {
        let begun: Vec<_> = DESCRIPTORS.map(|count| begins(&directory, count, arguments, said)).collect();
        assert!(begun.contains(&false), "{arguments:?}: all of them are enough");
    }
}
