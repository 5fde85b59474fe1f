//! Copies from and to every kind of disk that a specification can name, with qemu-img and qemu-storage-daemon as
//! witnesses.

mod server;
mod support;

use blockyard_block::{FileDisk, FileOptions};
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, listens};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{Yard, allocated_bytes, copy_command, finish, random_bytes, run, same, wait_until};

const MIB: u64 = 1 << 20;

/// What is copied: data, holes, and a length that is no whole number of MiB.
const LENGTH: u64 = 6 * MIB + 512;
const PIECES: [(u64, u64); 3] = [(0, 70_000), (2 * MIB + 512, MIB), (6 * MIB, 512)];

fn qemu_img<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) {
    let output = Command::new("qemu-img").args(arguments).output();
    let output = output.expect("qemu-img comes with Debian's qemu-utils");
    assert!(output.status.success(), "{}{}", text(output.stdout), text(output.stderr));
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An image of `LENGTH` bytes and more, full of other bytes if it is `old`.
fn qcow2(yard: &Yard, name: &str, old: bool) -> PathBuf {
    let image = yard.path(name);
    if old {
        let raw = yard.random("old", 8 * MIB, 77);
        qemu_img([
            "convert".as_ref(),
            "-f".as_ref(),
            "raw".as_ref(),
            "-O".as_ref(),
            "qcow2".as_ref(),
            raw.as_os_str(),
            image.as_os_str(),
        ]);
        fs::remove_file(raw).unwrap();
    } else {
        qemu_img(["create".as_ref(), "-q".as_ref(), "-f".as_ref(), "qcow2".as_ref(), image.as_os_str(), "8M".as_ref()]);
    }
    image
}

/// Bytes of an image, as qemu-img sees them.
fn qemus_view(yard: &Yard, image: &Path) -> Vec<u8> {
    let raw = yard.path("qemus-view");
    qemu_img(["check".as_ref(), "-q".as_ref(), image.as_os_str()]);
    qemu_img(["convert".as_ref(), "-O".as_ref(), "raw".as_ref(), image.as_os_str(), raw.as_os_str()]);
    let bytes = fs::read(&raw).unwrap();
    fs::remove_file(raw).unwrap();
    bytes
}

/// Two partitions of 8 MiB from 1 MiB on, full of bytes that are not zero.
fn partitioned(yard: &Yard, name: &str) -> PathBuf {
    let disk = yard.random(name, 18 * MIB, 5);
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel", "--wipe=never"]).arg(&disk).stdin(Stdio::piped());
    let mut sfdisk = sfdisk.spawn().expect("sfdisk comes with Debian's fdisk");
    sfdisk.stdin.take().unwrap().write_all(b"label: dos\nstart=2048, size=16384\nsize=16384\n").unwrap();
    assert!(sfdisk.wait().unwrap().success());
    disk
}

fn with(disk: &Path, rest: &str) -> String {
    format!("{}{rest}", disk.display())
}

fn session(socket: &Path) -> String {
    format!("session:{}", socket.display())
}

/// What is on a destination of 8 MiB that held `old` before `input` was copied there.
fn laid_over(old: &[u8], input: &Path) -> Vec<u8> {
    let mut bytes = fs::read(input).unwrap();
    bytes.extend_from_slice(&old[bytes.len()..]);
    bytes
}

/// qemu-storage-daemon, serving a raw file with one queue. Killed when dropped.
struct StorageDaemon(Child);

impl StorageDaemon {
    fn serve(file: &Path, socket: &Path) -> Self {
        let file = format!("driver=file,node-name=disk,filename={}", file.display());
        let socket_text = socket.display();
        let export =
            format!("type=vhost-user-blk,id=export,node-name=disk,writable=on,addr.type=unix,addr.path={socket_text}");
        let child = Command::new("qemu-storage-daemon").args(["--blockdev", &file, "--export", &export]).spawn();
        let daemon = Self(child.expect("qemu-storage-daemon comes with Debian's qemu-system-common"));
        wait_until("its socket", || listens(socket));
        daemon
    }
}

impl Drop for StorageDaemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(disk: &Path, socket: &Path) -> Server {
    Server::start(&[disk.as_os_str(), "--socket".as_ref(), socket.as_os_str()], socket)
}

#[test]
fn out_of_a_qcow2_image_and_into_one() {
    let yard = Yard::new();
    let (input, output) = (yard.sparse("input", LENGTH, &PIECES, 1), yard.path("output"));
    let image = yard.path("compressed.qcow2");
    qemu_img([
        "convert".as_ref(),
        "-c".as_ref(),
        "-O".as_ref(),
        "qcow2".as_ref(),
        input.as_os_str(),
        image.as_os_str(),
    ]);
    for engine in [&[][..], &["--engine", "sync"], &["--engine", "threads"]] {
        run(copy_command(engine).arg(&image).arg(&output)).succeeded();
        assert!(same(&input, &output), "{engine:?}");
    }
    for (old, options) in [(false, &[][..]), (true, &[]), (true, &["--detect-zeroes"]), (false, &["--detect-zeroes"])] {
        let image = qcow2(&yard, "output.qcow2", old);
        let before = qemus_view(&yard, &image);
        run(copy_command(options).arg(&input).arg(&image)).succeeded();
        assert!(qemus_view(&yard, &image) == laid_over(&before, &input), "{old} {options:?}");
        // What was zero needs no storage.
        assert!(old || allocated_bytes(&image) < 3 * MIB, "{}", allocated_bytes(&image));
    }
}

#[test]
fn an_image_that_is_not_there_or_too_small_is_refused() {
    let yard = Yard::new();
    let input = yard.random("input", LENGTH, 1);
    let missing = yard.path("missing.qcow2");
    let create = with(&missing, &format!(" {LENGTH})"));
    run(&mut copy_command([&input, &missing]))
        .failed(1, &["there is no image", "blockyard image create -f qcow2", &create]);
    assert!(!missing.exists());
    let small = yard.path("small.qcow2");
    qemu_img(["create".as_ref(), "-q".as_ref(), "-f".as_ref(), "qcow2".as_ref(), small.as_os_str(), "4M".as_ref()]);
    let before = fs::read(&small).unwrap();
    run(&mut copy_command([&input, &small])).failed(1, &["has 4194304 bytes, too few for the 6291968 bytes"]);
    assert!(fs::read(&small).unwrap() == before);
    // What its name says counts, and its contents must agree.
    let raw = yard.random("raw.qcow2", 8 * MIB, 2);
    run(&mut copy_command([&input, &raw])).failed(1, &["does not begin like a qcow2 image"]);
    let hidden = yard.path("hidden.img");
    fs::rename(&small, &hidden).unwrap();
    run(&mut copy_command([&hidden, &yard.path("output")])).failed(1, &["add ,format=qcow2"]);
    assert!(!yard.path("output").exists());
    // As raw files they are files like any other.
    run(&mut copy_command([with(&hidden, ",format=raw"), with(&missing, ",format=raw")])).succeeded();
    assert!(same(&hidden, &missing));
}

#[test]
fn out_of_a_vmdk_whose_files_are_allowed() {
    let yard = Yard::new();
    let (input, image, output) = (yard.random("input", LENGTH, 1), yard.path("disk.vmdk"), yard.path("output"));
    qemu_img([
        "convert".as_ref(),
        "-O".as_ref(),
        "vmdk".as_ref(),
        "-o".as_ref(),
        "subformat=monolithicFlat".as_ref(),
        input.as_os_str(),
        image.as_os_str(),
    ]);
    run(&mut copy_command([&image, &output])).failed(1, &["--allow-dir"]);
    run(copy_command([&image, &output]).arg("--allow-dir").arg(yard.path("."))).succeeded();
    let (expected, bytes) = (fs::read(&input).unwrap(), fs::read(&output).unwrap());
    // qemu-img rounds a VMDK up to whole clusters.
    assert!(bytes[..expected.len()] == expected && bytes[expected.len()..].iter().all(|&byte| byte == 0));
}

#[test]
fn out_of_a_partition_and_into_one() {
    let yard = Yard::new();
    let (disk, output) = (partitioned(&yard, "disk"), yard.path("output"));
    let before = fs::read(&disk).unwrap();
    let partition = |number: usize| {
        let start = (8 * number - 7) * MIB as usize;
        start..start + 8 * MIB as usize
    };
    run(copy_command([&with(&disk, ",partition=2")]).arg(&output)).succeeded();
    assert!(fs::read(&output).unwrap() == before[partition(2)]);
    let input = yard.sparse("input", LENGTH, &PIECES, 1);
    for sectors in [&[][..], &["--output-sector-size", "65536"]] {
        fs::write(&disk, &before).unwrap();
        run(copy_command(sectors).arg(&input).arg(with(&disk, ",partition=1"))).succeeded();
        let after = fs::read(&disk).unwrap();
        let length = LENGTH.next_multiple_of(if sectors.is_empty() { 512 } else { 65536 }) as usize;
        let mut expected = before.clone();
        expected[MIB as usize..][..length].fill(0);
        expected[MIB as usize..][..LENGTH as usize].copy_from_slice(&fs::read(&input).unwrap());
        assert!(after == expected, "{sectors:?}");
    }
    let both = [with(&disk, ",partition=1"), with(&disk, ",partition=2")];
    run(&mut copy_command(both)).failed(1, &["on the same disk", "serve"]);
}

#[test]
fn onto_sessions_of_both_servers_and_back() {
    let yard = Yard::new();
    let (input, output, socket) = (yard.sparse("input", LENGTH, &PIECES, 1), yard.path("output"), yard.path("socket"));
    let disk = yard.random("disk", 8 * MIB, 2);
    let old = fs::read(&disk).unwrap();
    let server = serve(&disk, &socket);
    run(copy_command(["--output-sector-size", "4096"]).arg(&input).arg(session(&socket))).succeeded();
    run(copy_command([session(&socket)]).arg(&output)).succeeded();
    server.stop();
    let mut expected = laid_over(&old, &input);
    expected[LENGTH as usize..][..4096 - 512].fill(0);
    assert!(fs::read(&disk).unwrap() == expected && same(&disk, &output));

    fs::write(&disk, &old).unwrap();
    // It has one queue, and copies would take two.
    let daemon = StorageDaemon::serve(&disk, &socket);
    run(copy_command([&input]).arg(session(&socket))).succeeded();
    run(copy_command([session(&socket)]).arg(&output)).succeeded();
    drop(daemon);
    assert!(fs::read(&disk).unwrap() == laid_over(&old, &input) && same(&disk, &output));
}

#[test]
fn memory_nothing_and_limits() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", LENGTH, 1), yard.path("output"));
    for destination in ["mem:8M", "null:8M,block-size=4096"] {
        run(copy_command([&input]).arg(destination)).succeeded();
    }
    run(copy_command([&input]).arg("null:4M")).failed(1, &["too few"]);
    run(copy_command(["null:3M"]).arg(&output)).succeeded();
    assert!(fs::read(&output).unwrap() == vec![0; 3 * MIB as usize]);
    run(&mut copy_command([with(&input, ",direct,bps=1G"), with(&output, ",direct,iops=10000")])).succeeded();
    assert!(same(&input, &output));
}

#[test]
fn changes_go_to_an_overlay_and_the_disk_is_spared() {
    let yard = Yard::new();
    let (input, base) = (yard.sparse("input", LENGTH, &PIECES, 1), yard.random("base", 8 * MIB, 2));
    let (old, delta) = (fs::read(&base).unwrap(), yard.path("delta.qcow2"));
    run(copy_command([&input]).arg(with(&base, &format!(",overlay={}", delta.display())))).succeeded();
    assert!(fs::read(&base).unwrap() == old);
    assert!(qemus_view(&yard, &delta) == laid_over(&old, &input));
    // Read back through the same names, which `snapshot` does not change.
    let output = yard.path("output");
    run(copy_command([with(&base, ",snapshot")]).arg(&output)).succeeded();
    assert!(same(&base, &output));
    run(copy_command([with(&base, &format!(",overlay={}", delta.display()))]).arg(&output)).succeeded();
    assert!(fs::read(&output).unwrap() == laid_over(&old, &input));
}

#[test]
fn what_makes_no_sense_is_a_usage_error_and_touches_nothing() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 5000, 1), yard.random("output", 9, 2));
    let contents = fs::read(&output).unwrap();
    for (source, destination, word) in [
        ("", ",ro", "'ro'"),
        ("", ",snapshot", "'snapshot'"),
        ("", ",colour=red", "colour"),
        (",colour=red", "", "colour"),
        (",format=dmg", "", "dmg"),
        (",partition=0", "", "partition"),
    ] {
        let disks = [with(&input, source), with(&output, destination)];
        run(&mut copy_command(disks)).failed(2, &[word]);
    }
    run(copy_command(["mem:lots"]).arg(&output)).failed(2, &["mem:"]);
    let strange = OsString::from_vec(b"not-\xff-text".to_vec());
    run(copy_command([&strange]).arg(&output)).failed(2, &["UTF-8"]);
    let contradiction = ["--input-sector-size", "512"];
    run(copy_command(contradiction).arg(with(&input, ",block-size=4K")).arg(&output)).failed(2, &["contradict"]);
    assert!(fs::read(&output).unwrap() == contents);
}

#[test]
fn a_disk_that_another_program_uses_is_left_alone() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", LENGTH, 1), yard.random("output", 9, 2));
    let image = qcow2(&yard, "image.qcow2", false);
    for disk in [&input, &output, &image] {
        let _user = FileDisk::open(disk, &FileOptions::default()).unwrap();
        let before = fs::read(disk).unwrap();
        let pair = if disk == &input { [disk, &output] } else { [&input, disk] };
        run(&mut copy_command(pair)).failed(1, &["is in use", disk.to_str().unwrap()]);
        assert!(fs::read(disk).unwrap() == before);
    }
    // Names do not tell that the one lies on the other; locks do.
    let top = yard.path("top.qcow2");
    qemu_img(["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &with(&input, ""), &with(&top, "")]);
    let onto_itself = copy_command([&top, &input]).arg("--allow-dir").arg(yard.path(".")).spawn().unwrap();
    finish(onto_itself).failed(1, &["is in use", "this process itself"]);
    // Many may read.
    let reader = FileDisk::open(&input, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
    run(&mut copy_command([&input, &output])).succeeded();
    drop(reader);
}

#[test]
fn sectors_that_do_not_fit_a_disk_lose_nothing() {
    let yard = Yard::new();
    // Whole sectors of 512 bytes and no more.
    let (image, output) = (yard.path("image.qcow2"), yard.random("output", 9, 1));
    let size = LENGTH.to_string();
    qemu_img(["create".as_ref(), "-q".as_ref(), "-f".as_ref(), "qcow2".as_ref(), image.as_os_str(), size.as_ref()]);
    let large = ["--input-sector-size", "4096"];
    run(copy_command(large).arg(&image).arg(&output)).failed(1, &["whole number of sectors of 4096"]);
    assert_eq!(fs::read(&output).unwrap().len(), 9);
    let input = yard.random("input", LENGTH, 2);
    let large = ["--output-sector-size", "4096"];
    run(copy_command(large).arg(&input).arg(&image)).failed(1, &["too few", "in sectors of 4096"]);
    run(&mut copy_command([&input, &image])).succeeded();
    assert!(qemus_view(&yard, &image) == fs::read(&input).unwrap());
}

#[test]
fn a_read_only_source_is_read_and_a_read_only_destination_refused() {
    let yard = Yard::new();
    let (input, output, socket) = (yard.random("input", LENGTH, 1), yard.path("output"), yard.path("socket"));
    let server = Server::start(&[with(&input, ",ro").as_ref(), "--socket".as_ref(), socket.as_os_str()], &socket);
    run(copy_command([session(&socket)]).arg(&output)).succeeded();
    assert!(same(&input, &output));
    run(copy_command([&output]).arg(session(&socket))).failed(1, &["is read-only"]);
    server.stop();
    run(copy_command([with(&input, ",ro")]).arg(&output)).succeeded();
}

/// Starts a copy onto a session that takes some seconds, and returns once bytes have arrived.
fn slow_copy(yard: &Yard, options: &[&str]) -> (PathBuf, PathBuf, PathBuf, Child, Server) {
    let (input, disk, socket) = (yard.random("input", 8 * MIB, 1), yard.path("disk"), yard.path("socket"));
    File::create(&disk).unwrap().set_len(8 * MIB).unwrap();
    let server = serve(&disk, &socket);
    let mut command = copy_command(["--request-size", "64K", "--queue-depth", "4"]);
    command.args(options).arg(with(&input, ",bps=3M")).arg(session(&socket));
    let copy = command.spawn().unwrap();
    let file = File::open(&disk).unwrap();
    wait_until("the first bytes", || {
        let mut first = [0; 512];
        file.read_exact_at(&mut first, 0).unwrap();
        first == random_bytes(512, 1)[..]
    });
    (input, disk, socket, copy, server)
}

#[test]
fn a_server_that_is_killed_and_started_again_costs_nothing() {
    let yard = Yard::new();
    let (input, disk, socket, copy, server) = slow_copy(&yard, &[]);
    server.kill();
    let server = serve(&disk, &socket);
    finish(copy).succeeded();
    server.stop();
    assert!(same(&input, &disk));
}

#[test]
fn a_server_that_is_gone_leaves_an_incomplete_destination_and_the_error_says_so() {
    let yard = Yard::new();
    let (_, disk, _, copy, server) = slow_copy(&yard, &["--timeout", "4"]);
    server.kill();
    finish(copy).failed(1, &["socket is incomplete: cannot", "did not come back within"]);
    assert!(fs::read(&disk).unwrap()[..512] == random_bytes(512, 1)[..]);
}

#[test]
fn a_copy_that_is_told_to_stop_says_that_the_destination_is_incomplete() {
    let yard = Yard::new();
    let (_, _, _, copy, server) = slow_copy(&yard, &[]);
    kill_process(Pid::from_child(&copy), Signal::INT).unwrap();
    finish(copy).failed(130, &["socket is incomplete: stopped by Ctrl-C (SIGINT)"]);
    server.stop();
}

/// As timeout(1) sends each signal, to the process and then to its group.
#[test]
fn signals_that_come_together_are_one_and_a_later_one_ends_what_does_not_end() {
    let yard = Yard::new();
    let send = |child: &Child, signal| kill_process(Pid::from_child(child), signal).unwrap();
    let (_, _, _, copy, server) = slow_copy(&yard, &[]);
    // Both are there when it goes on.
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        send(&copy, signal);
    }
    let outcome = finish(copy);
    assert!(outcome.stderr.contains("socket is incomplete: stopped by"), "{outcome:?}");
    server.stop();

    let (_, _, _, mut copy, server) = slow_copy(&yard, &[]);
    // Now it waits for requests that nobody answers.
    server.suspend();
    wait_until("its end", || {
        send(&copy, Signal::INT);
        copy.try_wait().unwrap().is_some()
    });
    assert_eq!(copy.wait().unwrap().signal(), Some(libc::SIGINT));
    kill_process(server.id(), Signal::CONT).unwrap();
    server.stop();
}
