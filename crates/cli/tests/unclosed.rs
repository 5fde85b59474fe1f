//! Images whose last changes cannot be written: the file may not grow any more, as on a disk that is full.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Outcome, Yard, blockyard, finish, run, wait_until};

/// More than what programs share with the disk, which is bounded as files are.
const IMAGE_BYTES: &str = "64M";

/// All of its data has a place, but what was written, which its bitmap says in the end, has none.
fn full_image(yard: &Yard, name: &str) -> PathBuf {
    let path = yard.path(name);
    let make = ["create", "-q", "-f", "qcow2", "-o", "preallocation=falloc"];
    qemu_img(make.iter().map(AsRef::as_ref).chain([path.as_os_str(), IMAGE_BYTES.as_ref()]));
    qemu_img(["bitmap".as_ref(), "--add".as_ref(), path.as_os_str(), "changed".as_ref()]);
    path
}

fn qemu_img<'a>(words: impl IntoIterator<Item = &'a OsStr>) -> Outcome {
    let mut command = Command::new("qemu-img");
    run(command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())).succeeded()
}

/// `blockyard` with these words, a shell's, whose files become no longer than `image` is.
fn in_no_more_room(image: &Path, words: &str) -> Command {
    // In units of 1024 bytes.
    let blocks = fs::metadata(image).unwrap().len().div_ceil(1024);
    let mut command = Command::new("bash");
    let script = format!("ulimit -f {blocks}; exec \"$0\" {words}");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_blockyard")]).current_dir(image.parent().unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn is_in_use(image: &Path) -> bool {
    let info = qemu_img(["info".as_ref(), "--output=json".as_ref(), image.as_os_str()]).json();
    let flags = &info["format-specific"]["data"]["bitmaps"][0]["flags"];
    flags.as_array().unwrap().contains(&"in-use".into())
}

const SAID: [&str; 2] = ["a.qcow2: closing it failed: File too large", "bitmaps in it may stay in use"];

#[test]
fn what_cannot_be_written_when_an_image_is_closed_is_said() {
    let commands = [
        "attach a.qcow2 /disk -- dd if=data of=/disk conv=notrunc status=none",
        "image convert -n -O qcow2 data a.qcow2",
        "copy data a.qcow2",
        "bench disk a.qcow2 --write --length 1M",
    ];
    for words in commands {
        let yard = Yard::new();
        yard.random("data", 1 << 20, 1);
        let image = full_image(&yard, "a.qcow2");
        run(&mut in_no_more_room(&image, words)).failed(1, &SAID);
        assert!(is_in_use(&image), "{words}");
    }
}

#[test]
fn a_server_says_it_when_it_ends() {
    let yard = Yard::new();
    let (image, socket) = (full_image(&yard, "a.qcow2"), yard.path("socket"));
    let server = in_no_more_room(&image, "serve a.qcow2 --socket socket").spawn().unwrap();
    wait_until("it listens", || socket.exists());
    let session = format!("session:{}", socket.display());
    let write = ["/disk", "--", "dd", "if=/dev/urandom", "of=/disk", "bs=1M", "count=1", "conv=notrunc", "status=none"];
    run(blockyard().args(["attach", &session]).args(write)).succeeded();
    rustix::process::kill_process(rustix::process::Pid::from_child(&server), rustix::process::Signal::TERM).unwrap();
    finish(server).failed(1, &SAID);
    assert!(is_in_use(&image));
}

#[test]
fn commit_names_the_base_that_cannot_be_written() {
    let yard = Yard::new();
    let words = |line: &str| {
        let mut command = Command::new("qemu-img");
        command.current_dir(yard.path("")).args(line.split(' ')).stdin(Stdio::null());
        run(command.stdout(Stdio::piped()).stderr(Stdio::piped())).succeeded()
    };
    words(&format!("create -q -f qcow2 -o preallocation=falloc base.qcow2 {IMAGE_BYTES}"));
    words("resize -q -f qcow2 base.qcow2 128M");
    words("create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2");
    // What has no place in the base yet.
    words("bench -q -w -c 1 -s 1M -o 100M --pattern 7 -f qcow2 top.qcow2");
    let said = ["cannot commit top.qcow2: cannot write to ", "base.qcow2: File too large"];
    run(&mut in_no_more_room(&yard.path("base.qcow2"), "image commit --allow-dir . top.qcow2")).failed(1, &said);
    words("check -q base.qcow2");
}
