//! Commands that are ended anywhere: what is in the image from before is there, the rest can be repaired, and no file
//! of the host is half written. The moments are random, with seeds; what holds, holds at every moment.

use crate::ends::{PATIENCE, all_gone, descendants, is_kernel};
use crate::rig::{Rig, noise, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
enum End {
    CommandKilled,
    KernelKilled,
    CtrlC,
}

const ENDS: [End; 3] = [End::CommandKilled, End::KernelKilled, End::CtrlC];

/// Numbers that look random, the same for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Starts a command whose temporary files are in a directory of their own.
fn start(rig: &Rig, subcommand: &str, arguments: &[&str]) -> Child {
    // What a command that was killed while it started has left.
    let _ = fs::remove_dir_all(rig.path("tmp"));
    fs::create_dir(rig.path("tmp")).unwrap();
    let mut command = rig.command(subcommand, arguments);
    command.stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null()).env("TMPDIR", rig.path("tmp"));
    command.spawn().unwrap()
}

/// Waits until the appliance's kernel runs, if the command has not ended before.
fn kernel_of(child: &mut Child) -> Option<(u32, Vec<u32>)> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let processes = descendants(child.id());
        if let Some(kernel) = processes.iter().copied().find(|pid| is_kernel(*pid)) {
            return Some((kernel, processes));
        }
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("the appliance does not start");
}

fn send(pid: u32, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_raw(pid as i32).unwrap(), signal);
}

/// Ends it, waits until all of it is gone, and looks at what it left in its temporary directory.
fn end(rig: &Rig, end: End, mut child: Child, kernel: u32, processes: &[u32]) {
    match end {
        End::CommandKilled => send(child.id(), Signal::KILL),
        End::KernelKilled => send(kernel, Signal::KILL),
        End::CtrlC => send(child.id(), Signal::INT),
    }
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    match (end, output.status.code()) {
        (End::CommandKilled, _) | (_, Some(0)) => {}
        (_, code) => {
            let status = if matches!(end, End::CtrlC) { 130 } else { 1 };
            assert_eq!(code, Some(status), "{end:?}: {said}");
            assert!(said.starts_with("blockyard: ") && said.trim_end().lines().count() == 1, "{end:?}: {said}");
        }
    }
    all_gone(processes);
    if !matches!(end, End::CommandKilled) {
        assert_eq!(fs::read_dir(rig.path("tmp")).unwrap().count(), 0, "{end:?}");
    }
}

/// An image with files that were there before, and one that a command has put there.
fn image() -> Rig {
    let rig = Rig::new(48, |root| {
        fs::create_dir_all(root.join("kept/below")).unwrap();
        fs::create_dir(root.join("goes")).unwrap();
        (0..40).for_each(|number| fs::write(root.join(format!("kept/below/{number}")), noise(number * 997)).unwrap());
        (0..800).for_each(|number| fs::write(root.join(format!("goes/{number}")), noise(3000)).unwrap());
    });
    fs::write(rig.path("synced"), noise(1 << 20)).unwrap();
    rig.run("put", &["synced", "/kept/synced"]);
    rig
}

/// e2fsck repairs it, and then it has nothing to say; what was synced is as it was.
fn is_repaired_with_all_that_was_synced(rig: &Rig, case: &str) {
    let repaired = Command::new("/usr/sbin/e2fsck").arg("-fy").arg(&rig.image).output().unwrap();
    let said = String::from_utf8_lossy(&repaired.stdout);
    assert!(matches!(repaired.status.code(), Some(0 | 1)), "{case}: {said}");
    rig.check();
    let out = rig.path("dumped");
    fs::create_dir(&out).unwrap();
    rig.debugfs(&format!("rdump /kept {}", out.display()));
    for number in 0..40 {
        assert!(fs::read(out.join(format!("kept/below/{number}"))).unwrap() == noise(number * 997), "{case}: {number}");
    }
    assert!(fs::read(out.join("kept/synced")).unwrap() == noise(1 << 20), "{case}");
    fs::remove_dir_all(out).unwrap();
}

#[test]
fn a_stream_that_goes_in_may_end_anywhere() {
    let original = image();
    let archive = original.path("a.tar");
    let goes = original.directory.path().join("root");
    tool("tar", "tar", ["-C", goes.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "goes"]);
    let archive = fs::read(archive).unwrap();
    let long = noise(24 << 20);
    for (seed, how) in (1..).zip(ENDS) {
        for (subcommand, arguments, data) in
            [("put", &["-", "/kept/file"][..], &long), ("tar-in", &["-", "/kept/tree"][..], &archive)]
        {
            let rig = original.twin();
            let mut random = Random(seed);
            let mut child = start(&rig, subcommand, arguments);
            let bytes = random.below(data.len() as u64) as usize;
            let (kernel, processes) = kernel_of(&mut child).unwrap();
            child.stdin.as_mut().unwrap().write_all(&data[..bytes]).unwrap();
            // Somewhere behind that: what was read may be on its way anywhere.
            sleep(Duration::from_millis(random.below(60)));
            end(&rig, how, child, kernel, &processes);
            is_repaired_with_all_that_was_synced(&rig, &format!("{subcommand} {how:?} {bytes}"));
        }
    }
}

#[test]
fn a_removal_may_end_anywhere() {
    let original = image();
    for (seed, how) in (1..).zip(ENDS) {
        let rig = original.twin();
        let mut child = start(&rig, "rm", &["--sync", "-r", "/goes"]);
        if let Some((kernel, processes)) = kernel_of(&mut child) {
            sleep(Duration::from_millis(Random(seed).below(900)));
            end(&rig, how, child, kernel, &processes);
        }
        is_repaired_with_all_that_was_synced(&rig, &format!("rm {how:?}"));
    }
}

/// Names of files below a directory, and what is in them.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push((path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn no_file_of_the_host_is_ever_half_written() {
    let original = image();
    fs::write(original.path("large"), noise(12 << 20)).unwrap();
    original.run("put", &["large", "/goes/large"]);
    let large = noise(12 << 20);
    for (seed, how) in (1..).zip(ENDS) {
        let out = original.path(&format!("out{seed}"));
        // Half of the files are there, and older.
        fs::create_dir_all(out.join("goes")).unwrap();
        (0..400).for_each(|number| fs::write(out.join(format!("goes/{number}")), "old").unwrap());
        fs::write(out.join("alone"), "old").unwrap();
        for target in [out.join("alone"), out.clone()] {
            let source = if target == out { "/goes" } else { "/goes/large" };
            let mut child = start(&original, "get", &[source, target.to_str().unwrap()]);
            if let Some((kernel, processes)) = kernel_of(&mut child) {
                sleep(Duration::from_millis(Random(seed).below(700)));
                end(&original, how, child, kernel, &processes);
            }
        }
        let (left, named): (Vec<_>, Vec<_>) = files(&out).into_iter().partition(|(name, _)| name.starts_with('.'));
        for (name, content) in named {
            let whole = match name.as_str() {
                "large" | "alone" => &large[..],
                number => &noise(3000)[..if number.parse::<u32>().is_ok() { 3000 } else { 0 }],
            };
            assert!(content == whole || content == b"old", "{how:?}: {name} has {} bytes", content.len());
        }
        // Nothing takes a file's place without having had a name before: each of the two commands may have been killed
        // between the two, with a file that was complete.
        let left_max = if matches!(how, End::CommandKilled) { 2 } else { 0 };
        assert!(left.len() <= left_max, "{how:?}: {} temporary files are left", left.len());
        for (name, content) in left {
            assert!(content == large || content == noise(3000), "{how:?}: {name} has {} bytes", content.len());
        }
    }
    original.check();
}
