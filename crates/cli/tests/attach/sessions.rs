//! Disks that another process serves.

use crate::server::Server;
use crate::support::{Yard, blockyard, run};
use crate::{BYTES, NAME, on_disk};
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_disk_that_another_process_serves_is_one_too() {
    let yard = Yard::new();
    let (disk, socket) = (yard.random("disk.img", BYTES, 8), yard.path("vm.sock"));
    let _server = Server::start(&["--socket".as_ref(), socket.as_ref(), disk.as_ref()], &socket);
    let session = format!("session:{}", socket.display());
    let output = on_disk(&session, ["cat", NAME]).output().unwrap();
    assert!(output.status.success() && output.stdout == fs::read(&disk).unwrap());
    // By hand, without anybody between.
    let library = yard.path("library.so");
    fs::write(&library, blockyard().args(["attach", "--print-library"]).output().unwrap().stdout).unwrap();
    let mut command = Command::new("cat");
    command.arg(NAME).env("LD_PRELOAD", &library).env("BLOCKYARD_ATTACH", format!("{session}={NAME}"));
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stdout == fs::read(&disk).unwrap());
}

fn ours(disk: &Path, socket: &Path) -> Command {
    let mut command = blockyard();
    command.arg("serve").arg(disk).arg("--socket").arg(socket).args(["--queues", "1"]);
    command
}

/// As it is without a word: with one virtqueue.
fn qemus(disk: &Path, socket: &Path) -> Command {
    let file = format!("driver=file,node-name=disk,filename={}", disk.display());
    let export = "type=vhost-user-blk,id=export,node-name=disk,writable=on,addr.type=unix,addr.path=";
    let mut command = Command::new("qemu-storage-daemon");
    command.args(["--blockdev", &file, "--export", &format!("{export}{}", socket.display())]);
    command
}

/// fio starts a process for each job, and has the disk itself.
#[test]
fn processes_share_a_virtqueue_where_a_server_has_no_more() {
    const MIB: usize = 1 << 20;
    let yard = Yard::new();
    let servers: [fn(&Path, &Path) -> Command; 2] = [ours, qemus];
    for (serve, name) in servers.into_iter().zip(["ours", "qemus"]) {
        let (disk, socket) = (yard.random(name, BYTES, 25), yard.path(&format!("{name}.sock")));
        let before = fs::read(&disk).unwrap();
        let server = Server::spawn(&mut serve(&disk, &socket), &socket);
        let session = format!("session:{}", socket.display());
        let words = ["fio", "--name=x", "--filename=/disk", "--rw=randwrite", "--bs=4k", "--size=1m", "--numjobs=6"];
        let more = ["--offset_increment=1m", "--verify=crc32c", "--verify_state_save=0"];
        for engine in [&["--ioengine=psync"][..], &["--ioengine=posixaio", "--iodepth=32"]] {
            run(&mut on_disk(&session, words.iter().chain(&more).chain(engine))).succeeded();
        }
        let after = fs::read(&disk).unwrap();
        assert!(after[6 * MIB..] == before[6 * MIB..] && after[..6 * MIB] != before[..6 * MIB], "{name}");
        // The shell has it open while its programs do.
        let copy = yard.path("copy");
        let script = format!(
            "exec 5<{NAME}; dd <{NAME} >{copy} bs=64k && dd <{copy} >{NAME} bs=64k skip=16 && dd <&5 bs=1M",
            copy = copy.display(),
        );
        let output = on_disk(&session, ["sh", "-c", &script]).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        let moved = [&after[MIB..], &after[BYTES as usize - MIB..]].concat();
        assert!(fs::read(&copy).unwrap() == after && output.stdout == moved, "{name}");
        server.kill();
        assert!(fs::read(&disk).unwrap() == moved, "{name}");
    }
}

/// Each reads the rest of the block and writes all of it: one after the other.
#[test]
fn parts_of_a_block_are_not_undone_by_other_processes() {
    let yard = Yard::new();
    let (image, socket) = (yard.random("disk.img", BYTES, 31), yard.path("vm.sock"));
    let program = "import os
children = []
for number in range(4):
    child = os.fork()
    if child:
        children.append(child)
        continue
    disk = os.open('/disk', os.O_RDWR)
    for turn in range(300):
        mine = turn.to_bytes(4, 'little')
        os.pwrite(disk, mine, 1000 + number * 8)
        if os.pread(disk, 4, 1000 + number * 8) != mine: os._exit(1)
    os._exit(0)
for child in children: assert os.waitpid(child, 0)[1] == 0";
    let words = ["/usr/bin/python3", "-c", program];
    run(&mut on_disk(&image, words)).succeeded();
    let server = Server::start(&["--socket".as_ref(), socket.as_ref(), image.as_ref()], &socket);
    run(&mut on_disk(format!("session:{}", socket.display()), words)).succeeded();
    server.stop();
}
