//! Changes that happen as a whole or not at all.

use crate::rig::{Rig, noise};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A change that is complete, and not yet in its image.
fn unfinished(rig: &Rig) -> usize {
    let names = fs::read_dir(rig.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".blockyard")).count()
}

fn kill(mut child: Child) {
    // It may have ended.
    let _ = kill_process(Pid::from_child(&child), Signal::KILL);
    child.wait().unwrap();
}

#[test]
fn a_command_that_fails_has_changed_nothing() {
    let rig = Rig::empty(16);
    fs::write(rig.path("large"), noise(20 << 20)).unwrap();
    fs::write(rig.path("small"), "small").unwrap();
    let before = fs::read(&rig.image).unwrap();
    let said = rig.fail("put", &["--atomic", "small", "large", "/"]);
    assert!(said.contains("is as it was") && said.contains("No space left on device"), "{said}");
    assert!(fs::read(&rig.image).unwrap() == before && unfinished(&rig) == 0);
    rig.run("put", &["--atomic", "small", "/"]);
    assert_eq!(rig.debugfs("cat /small"), "small");
    rig.check();
    assert_eq!(unfinished(&rig), 0);
    for (image, options) in [("mem:16M", &[][..]), ("disk.img,snapshot", &[]), ("disk.img", &["--cache", "unsafe"])] {
        let mut command = rig.command("mkdir", &["--atomic", "/x"]);
        let program = command.get_program().to_owned();
        command = std::process::Command::new(program);
        command.args(["image", "mkdir", image, "/x", "--atomic"]).args(options).current_dir(rig.directory.path());
        assert_eq!(command.output().unwrap().status.code(), Some(2), "{image}");
    }
}

#[test]
fn a_command_that_is_killed_has_changed_nothing_or_all() {
    let rig = Rig::empty(16);
    let content = noise(3 << 20);
    fs::write(rig.path("in"), &content).unwrap();
    let before = fs::read(&rig.image).unwrap();
    for pause in [100, 250, 400, 550, 700] {
        fs::write(&rig.image, &before).unwrap();
        let child = rig.command("put", &["--atomic", "in", "/"]).spawn().unwrap();
        sleep(Duration::from_millis(pause));
        kill(child);
        let is_as_it_was = unfinished(&rig) == 0 && fs::read(&rig.image).unwrap() == before;
        let listed = rig.run("ls", &["/"]);
        assert_eq!(unfinished(&rig), 0);
        rig.check();
        if is_as_it_was {
            assert!(!listed.lines().any(|name| name == "in"), "{listed}");
        } else {
            rig.run("get", &["/in", "out"]);
            assert!(fs::read(rig.path("out")).unwrap() == content);
        }
    }
}

#[test]
fn a_change_that_is_cut_off_while_it_is_put_in_place_is_completed_by_whoever_comes_next() {
    let content = noise(3 << 20);
    for next in [&["ls", "disk.img", "/"][..], &["info", "disk.img"], &["convert", "disk.img", "copy.qcow2"]] {
        let rig = Rig::empty(16);
        fs::write(rig.path("in"), &content).unwrap();
        let mut command = rig.command("put", &[]);
        let program = command.get_program().to_owned();
        command = std::process::Command::new(&program);
        // Only what is put in place writes to the image.
        command.args(["image", "put", "--atomic", "disk.img,faults=write-latency:200ms+zero-latency:200ms", "in", "/"]);
        let child = command.current_dir(rig.directory.path()).spawn().unwrap();
        let began = Instant::now();
        while unfinished(&rig) == 0 || fs::metadata(&rig.image).unwrap().modified().unwrap().elapsed().is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing is put in place");
            sleep(Duration::from_millis(1));
        }
        // Into the middle of it.
        sleep(Duration::from_millis(300));
        kill(child);
        assert_eq!(unfinished(&rig), 1, "it was done too soon");
        let mut command = std::process::Command::new(&program);
        let output = command.arg("image").args(next).current_dir(rig.directory.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(unfinished(&rig), 0, "{next:?}");
        rig.check();
        rig.debugfs("dump /in out");
        rig.run("get", &["/in", "out"]);
        assert!(fs::read(rig.path("out")).unwrap() == content, "{next:?}");
    }
}

#[test]
fn an_image_that_somebody_has_is_refused_by_name() {
    let rig = Rig::empty(16);
    let mut holder = std::process::Command::new("qemu-io");
    holder.args(["-f", "raw"]).arg(&rig.image).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null());
    let holder = holder.spawn().unwrap_or_else(|error| panic!("qemu-io ({error}): it is in Debian's qemu-utils"));
    // Ours would keep it from starting.
    let (inode, began) = (format!(":{} ", fs::metadata(&rig.image).unwrap().ino()), Instant::now());
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(|lock| lock.contains(&inode)) {
        assert!(began.elapsed() < Duration::from_secs(60), "qemu-io does not lock it");
        sleep(Duration::from_millis(1));
    }
    let said = rig.fail("mkdir", &["--atomic", "/x"]);
    let process = holder.id();
    kill(holder);
    assert!(said.contains(&format!("disk.img is in use: qemu-io (process {process}) has it open")), "{said}");
    rig.run("mkdir", &["--atomic", "/x"]);
    rig.check();
}

#[test]
fn a_change_without_room_for_it_in_the_image_does_not_happen_and_takes_no_room() {
    let rig = Rig::empty(36);
    fs::write(rig.path("in"), noise(14 << 20)).unwrap();
    fs::create_dir(rig.path("small")).unwrap();
    let script = "mount -t tmpfs -o size=24m none small && cp --sparse=always disk.img small/ && free() { stat -f -c %f small; } && \
                  before=$(free) && ! \"$0\" image put --atomic small/disk.img in / && test $(free) -ge $((before - 16)) && \
                  cmp disk.img small/disk.img && test $(ls -A small | wc -l) = 1 && \"$0\" image ls small/disk.img / && \
                  qemu-img convert -O qcow2 small/disk.img small/a.qcow2 && rm small/disk.img && \
                  ! \"$0\" image put --atomic small/a.qcow2 in / && test $(ls -A small | wc -l) = 1 && \
                  head -c 3000000 in > less && \"$0\" image put --atomic small/a.qcow2 less / && \
                  \"$0\" image cat small/a.qcow2 /less | cmp - less";
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_blockyard")]);
    let output = command.current_dir(rig.directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("disk.img is as it was: there is no room for the change in it").count(), 1, "{said}");
    assert_eq!(said.matches("a.qcow2 is as it was: there is no room for the change in it").count(), 1, "{said}");
}
