//! Changes that happen as a whole or not at all.

use crate::rig::{Rig, failure, failure_with, noise};
use crate::root::is_root;
use crate::shell::{good, script};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Read;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A change that is complete, and not yet in its image.
fn unfinished(rig: &Rig) -> usize {
    let names = fs::read_dir(rig.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().starts_with(".blockyard")).count()
}

/// Waits until there is something else in the image.
fn wait_for_a_write(rig: &Rig) {
    let (before, began) = (fs::read(&rig.image).unwrap(), Instant::now());
    while fs::read(&rig.image).unwrap() == before {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is put in place");
        sleep(Duration::from_millis(5));
    }
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
        command = Command::new(program);
        command.args(["image", "mkdir", image, "/x", "--atomic"]).args(options).current_dir(rig.directory.path());
        assert_eq!(command.output().unwrap().status.code(), Some(2), "{image}");
    }
}

/// Another of an image's files says nothing of a change that was cut off.
#[test]
fn an_image_in_several_files_is_not_changed_as_a_whole() {
    let rig = Rig::empty(16);
    let qemu_img = |line: &str| {
        let status = Command::new("qemu-img").args(line.split(' ')).current_dir(rig.directory.path()).status();
        assert!(status.unwrap().success(), "{line}");
    };
    qemu_img("convert -q -f raw -O vmdk -o subformat=monolithicFlat disk.img flat.vmdk");
    qemu_img("convert -q -f raw -O vmdk disk.img one.vmdk");
    qemu_img("create -q -f qcow2 -o data_file=data.raw,data_file_raw=on parts.qcow2 16M");
    let mkdir = |image: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["image", "mkdir", "--atomic", "--allow-dir", ".", image, "/x"]);
        let output = command.current_dir(rig.directory.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (image, other) in [("flat.vmdk", "flat-flat.vmdk"), ("parts.qcow2", "data.raw")] {
        let (code, said) = mkdir(image);
        assert!(code == Some(1) && said.contains("several files") && said.contains(other), "{image}: {code:?}: {said}");
    }
    let (code, said) = mkdir("one.vmdk");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(unfinished(&rig), 0);
}

/// Nobody would know the change's file as one: said before anything is done that would be lost.
#[test]
fn a_change_whose_file_cannot_be_marked_does_not_begin() {
    let rig = Rig::empty(16);
    let before = fs::read(&rig.image).unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-o", "/dev/null", "-e", "trace=fsetxattr", "-e", "inject=fsetxattr:error=EPERM"]);
    strace.args([env!("CARGO_BIN_EXE_blockyard"), "image", "mkdir", "--atomic", "disk.img", "/x"]);
    let output = strace.current_dir(rig.directory.path()).output();
    let output = output.unwrap_or_else(|error| panic!("strace ({error}): it is in Debian's strace"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected = "cannot make a file beside disk.img: the attribute user.blockyard.journal cannot be set there";
    assert!(said.contains(expected), "{said}");
    assert!(fs::read(&rig.image).unwrap() == before && unfinished(&rig) == 0);
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
        let is_as_it_was = fs::read(&rig.image).unwrap() == before && !has_happened(&rig);
        let listed = rig.run("ls", &["/"]);
        rig.run("mkdir", &["/after"]);
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

/// Whether a change has happened that may not be in place: its file lies there, and the image says so, where its file
/// system keeps that.
fn has_happened(rig: &Rig) -> bool {
    let mark = rustix::fs::getxattr(&rig.image, MARK, &mut [0; 100]);
    unfinished(rig) > 0 && mark != Err(rustix::io::Errno::NODATA)
}

/// A change that was killed in the middle of being put in place.
fn killed(content: &[u8]) -> Rig {
    let rig = Rig::empty(16);
    fs::write(rig.path("in"), content).unwrap();
    // Only what is put in place writes to the image.
    let slow = "disk.img,faults=write-latency:1s+zero-latency:1s";
    let child = image(&rig, &["put", "--atomic", slow, "in", "/"]).spawn().unwrap();
    // Into the middle of it: behind the second of several writes, for which the rest waits.
    wait_for_a_write(&rig);
    wait_for_a_write(&rig);
    kill(child);
    assert_eq!(unfinished(&rig), 1, "it was done too soon");
    rig
}

fn image(rig: &Rig, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.arg("image").args(arguments).current_dir(rig.directory.path());
    command
}

#[test]
fn a_change_that_was_cut_off_is_completed_by_who_writes_and_by_nobody_who_looks() {
    let content = noise(3 << 20);
    let rig = killed(&content);
    let before = fs::read(&rig.image).unwrap();
    for look in [
        &["ls", "disk.img", "/"][..],
        &["get", "disk.img", "/in", "out"],
        &["info", "disk.img"],
        &["info", "--json", "disk.img"],
        &["convert", "-q", "disk.img", "copy.img"],
        &["convert", "-q", "disk.img,ro", "copy.qcow2"],
        &["compare", "-q", "disk.img", "copy.qcow2"],
        &["measure", "-O", "qcow2", "disk.img"],
        &["filesystems", "disk.img"],
        &["ls", "--ro", "disk.img", "/"],
    ] {
        let output = image(&rig, look).output().unwrap();
        let (said, heard) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{look:?}: {heard}");
        assert!(look[0] != "ls" || said.lines().any(|name| name == "in"), "{said}");
        assert!(look[0] != "info" || said.contains("unfinished") && said.contains(".blockyard-change-"), "{said}");
        assert!(fs::read(&rig.image).unwrap() == before && unfinished(&rig) == 1, "{look:?} has written");
    }
    assert!(fs::read(rig.path("out")).unwrap() == content);
    // What shows the file itself says what completes it.
    let dd = ["dd", "copy.img", "if=/dev/sda", "of=disk.img", "count=1", "conv=notrunc"];
    for look in [&["map", "disk.img"][..], &["check", "disk.img"], &dd] {
        let said = failure(image(&rig, look).output().unwrap());
        let how = "has a change that was cut off (";
        assert!(said.contains(how) && said.contains("`blockyard image check -r leaks`"), "{said}");
        assert!(fs::read(&rig.image).unwrap() == before && unfinished(&rig) == 1, "{look:?} has written");
    }
    let copy = Rig { image: rig.path("copy.img"), directory: rig.directory };
    copy.check();
    let rig = Rig { image: copy.path("disk.img"), directory: copy.directory };
    complete(&rig, &["check", "-r", "leaks", "disk.img"], &content);
    for write in [&["mkdir", "disk.img", "/x"][..], &["resize", "disk.img", "+1M"]] {
        complete(&killed(&content), write, &content);
    }
}

fn complete(rig: &Rig, command: &[&str], content: &[u8]) {
    let output = image(rig, command).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(unfinished(rig), 0, "{command:?}");
    rig.check();
    rig.run("get", &["/in", "out"]);
    assert!(fs::read(rig.path("out")).unwrap() == content, "{command:?}");
}

/// What a half-changed image has.
const MARK: &str = "user.blockyard.change";

fn journal(rig: &Rig) -> std::path::PathBuf {
    let names = fs::read_dir(rig.directory.path()).unwrap().map(|entry| entry.unwrap().path());
    names.into_iter().find(|path| path.to_str().unwrap().contains(".blockyard-change-")).unwrap()
}

/// Takes a change's file to where that of another image would be, as who may rename things there can.
fn move_journal(rig: &Rig, to: &str) {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let status = statx(CWD, rig.path(to), AtFlags::empty(), StatxFlags::INO | StatxFlags::BTIME).unwrap();
    let born = status.stx_btime;
    let name = format!(".blockyard-change-{:x}-{:x}-{:x}", status.stx_ino, born.tv_sec, born.tv_nsec);
    fs::rename(journal(rig), rig.path(&name)).unwrap();
}

/// What a stranger gets so would be what somebody puts into an image of his own, or the wrong image is changed.
#[test]
fn a_change_to_one_image_is_never_put_in_another() {
    let content = noise(3 << 20);
    let rig = killed(&content);
    let half = fs::read(&rig.image).unwrap();
    let mark = {
        let mut mark = [0; 100];
        let length = rustix::fs::getxattr(&rig.image, MARK, &mut mark[..]);
        length.ok().map(|length| mark[..length].to_vec())
    };
    fs::File::create(rig.path("other.img")).unwrap().set_len(half.len() as u64).unwrap();
    let other = fs::read(rig.path("other.img")).unwrap();
    if let Some(mark) = &mark {
        rustix::fs::setxattr(rig.path("other.img"), MARK, mark, rustix::fs::XattrFlags::empty()).unwrap();
    }
    move_journal(&rig, "other.img");
    for command in [&["check", "-r", "leaks", "other.img"][..], &["info", "other.img"], &["resize", "other.img", "+0"]]
    {
        let output = image(&rig, command).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(said.contains("the file of a change to another image"), "{command:?}: {said}");
        assert!(fs::read(rig.path("other.img")).unwrap() == other && unfinished(&rig) == 1, "{command:?}");
    }
    assert!(fs::read(&rig.image).unwrap() == half);
    move_journal(&rig, "disk.img");
    complete(&rig, &["check", "-r", "leaks", "disk.img"], &content);
}

/// By way of another image's file too: what its last command, killed before that, has not removed would have it called
/// half-changed later.
#[test]
fn who_writes_to_an_image_removes_what_is_left_of_a_change_that_is_in_place() {
    use std::os::unix::fs::FileExt;
    let content = noise(3 << 20);
    let descriptor =
        "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n";
    for command in [
        &["commit", "--allow-dir", ".", "top.qcow2"][..],
        &["resize", "disk.img", "+0"],
        &["mkdir", "--allow-dir", ".", "v.vmdk", "/x"],
    ] {
        let rig = killed(&content);
        let record = fs::metadata(journal(&rig)).unwrap().len() - 512;
        // All of it is in place, the journal says so and was not removed: what is there is a whole file system.
        let whole = image(&rig, &["convert", "-q", "disk.img", "whole.img"]).output().unwrap();
        assert!(whole.status.success());
        fs::write(&rig.image, fs::read(rig.path("whole.img")).unwrap()).unwrap();
        fs::File::options().write(true).open(journal(&rig)).unwrap().write_all_at(&[3], record + 8).unwrap();
        let sectors = fs::metadata(&rig.image).unwrap().len() / 512;
        fs::write(rig.path("v.vmdk"), format!("{descriptor}RW {sectors} FLAT \"disk.img\" 0\n")).unwrap();
        let made = image(&rig, &["create", "-q", "-b", "disk.img", "-F", "raw", "--allow-dir", ".", "top.qcow2"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        assert_eq!(unfinished(&rig), 1, "who only looks leaves it");
        let output = image(&rig, command).output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        let is_marked = rustix::fs::getxattr(&rig.image, MARK, &mut [0; 100]).is_ok();
        assert!(unfinished(&rig) == 0 && !is_marked, "{command:?}");
        rig.check();
        rig.run("get", &["/in", "out"]);
        assert!(fs::read(rig.path("out")).unwrap() == content, "{command:?}");
    }
}

/// Another user, whose directory it is, leaves a change to an image of root's, or to what a link leads to.
#[test]
fn a_strangers_change_is_not_put_in_place() {
    if !is_root() {
        return;
    }
    use std::os::unix::fs::{chown, symlink};
    let content = noise(3 << 20);
    let rig = killed(&content);
    let journal = journal(&rig);
    if chown(&journal, Some(1234), None).is_err() {
        eprintln!("not root: nothing of a stranger's can be made");
        return;
    }
    let before = fs::read(&rig.image).unwrap();
    fs::create_dir(rig.path("strangers")).unwrap();
    symlink("../disk.img", rig.path("strangers/link.img")).unwrap();
    // It says that it is half-changed, where its file system keeps that, until somebody takes it for whole.
    if rustix::fs::getxattr(&rig.image, MARK, &mut [0; 100]).is_ok() {
        let said = image(&rig, &["resize", "disk.img", "+0"]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        let why = "is neither the image's owner's nor root's";
        assert!(said.contains("is half-changed") && said.contains(why) && said.contains(MARK), "{said}");
        assert!(fs::read(&rig.image).unwrap() == before && journal.exists());
        rustix::fs::removexattr(&rig.image, MARK).unwrap();
    }
    for write in [&["resize", "disk.img", "+0"][..], &["resize", "strangers/link.img", "+0"], &["info", "disk.img"]] {
        let output = image(&rig, write).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{write:?}: {said}");
        assert!(said.contains("counts as no change to") && said.contains("it is left alone"), "{write:?}: {said}");
        assert!(fs::read(&rig.image).unwrap() == before && journal.exists(), "{write:?}");
    }
}

#[test]
fn an_image_that_somebody_has_is_refused_by_name() {
    let rig = Rig::empty(16);
    let mut holder = std::process::Command::new("qemu-io");
    holder.args(["-f", "raw"]).arg(&rig.image).stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut holder = holder.spawn().unwrap_or_else(|error| panic!("qemu-io ({error}): it is in Debian's qemu-utils"));
    // Ours would keep it from starting: its prompt says that it has.
    let mut prompt = [0; 8];
    holder.stdout.as_mut().unwrap().read_exact(&mut prompt).expect("qemu-io does not start");
    let said = rig.fail("mkdir", &["--atomic", "/x"]);
    let process = holder.id();
    kill(holder);
    assert!(said.contains(&format!("disk.img is in use: qemu-io (process {process}) has it open")), "{said}");
    rig.run("mkdir", &["--atomic", "/x"]);
    rig.check();
}

/// A script's image as it was, and nothing left beside it.
fn is_as_it_was(rig: &Rig, before: &[u8], case: &str) {
    assert!(fs::read(&rig.image).unwrap() == before && unfinished(rig) == 0, "{case}");
}

#[test]
fn a_script_changes_all_or_nothing() {
    let rig = Rig::new(16, |root| fs::write(root.join("a"), "a\n").unwrap());
    fs::copy(&rig.image, rig.path("other.img")).unwrap();
    let before = fs::read(&rig.image).unwrap();
    let atomic = &["--atomic", "disk.img"];
    let work =
        "write /b b\nsync\nadd-ro other.img\nmkdir /other\nmount /dev/sdb /other\ncp /other/a /c\n-cat /nothing\n";
    for (end, problem) in [
        ("cat /nothing\n", "disk.img is as it was: stdin:8: /nothing: cannot open"),
        ("umount-all\nshutdown\nlcd nonsense\n", "nonsense: No such file"),
        ("abort\nwrite /d d\n", "disk.img is as it was: aborted"),
        ("add disk2.img\n", "disk2.img"),
        ("sparse new.img 1M\n", "with --atomic one image is written"),
        // Ctrl-C, in the middle and at the last moment.
        ("!kill -INT $PPID\nwrite /d d\n", "Ctrl-C"),
        ("write /d d\n-!kill -INT $PPID\n", "disk.img is as it was: ended by Ctrl-C"),
        ("umount-all\npart-disk /dev/sda mbr\nlcd nonsense\n", "nonsense: No such file"),
    ] {
        let status = if end.contains("kill -INT") { 130 } else { 1 };
        let said = failure_last(status, script(&rig, atomic, &format!("{work}{end}")));
        assert!(said.contains(problem) && said.contains("disk.img is as it was"), "{end}: {said}");
        is_as_it_was(&rig, &before, end);
    }
    assert_eq!(script(&rig, atomic, &format!("{work}!kill -KILL $PPID\n")).status.code(), None);
    is_as_it_was(&rig, &before, "killed");

    good(&rig, atomic, &format!("{work}exit\nlcd nonsense\n"));
    assert_eq!((rig.debugfs("cat /b"), rig.debugfs("cat /c")), ("b".to_owned(), "a\n".to_owned()));
    rig.check();
    assert_eq!(unfinished(&rig), 0);
}

/// As [`failure`], where something was said before.
fn failure_last(status: i32, mut output: std::process::Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    output.stderr = said.lines().last().unwrap_or_default().as_bytes().to_vec();
    failure_with(status, output)
}

#[test]
fn a_script_changes_one_image_as_a_whole() {
    let rig = Rig::empty(8);
    fs::copy(&rig.image, rig.path("other.img")).unwrap();
    for images in [&["disk.img", "other.img"][..], &["mem:16M"], &["disk.img", "--cache", "unsafe"]] {
        let output = script(&rig, &[&["--atomic"], images].concat(), "touch /x\n");
        assert_eq!(output.status.code(), Some(2), "{images:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // A new one too, with its partition table, which is written by the host.
    let made = "sparse new.img 32M\npart-disk /dev/sda gpt\nmkfs ext4 /dev/sda1\nmount /dev/sda1 /\nwrite /x x\n";
    failure_last(1, script(&rig, &["--atomic"], &format!("{made}lcd nonsense\n")));
    assert!(fs::read(rig.path("new.img")).unwrap().iter().all(|&byte| byte == 0));
    good(&rig, &["--atomic"], made);
    let mut cat = std::process::Command::new(env!("CARGO_BIN_EXE_blockyard"));
    let cat = cat.args(["image", "cat", "new.img", "/x"]).current_dir(rig.directory.path()).output().unwrap();
    assert_eq!(cat.stdout, b"x");
}

#[test]
fn a_change_without_room_for_it_in_the_image_does_not_happen_and_takes_no_room() {
    if !is_root() {
        return;
    }
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
