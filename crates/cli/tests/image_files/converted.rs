//! Disks that become new images, or are written to ones that are there.

use super::*;

#[test]
fn images_converted_hold_the_same_and_are_sound() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    for (number, options) in [
        &[][..],
        &["-m", "1"],
        &["-m", "5", "-o", "cluster_size=512"],
        &["-o", "cluster_size=2M"],
        &["-c"],
        &["-c", "-o", "cluster_size=4K", "-m", "3"],
        &["-c", "-o", "cluster_size=2M"],
        &["-S", "0"],
        &["-S", "1M"],
        &["-o", "preallocation=metadata"],
        &["-o", "preallocation=full"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("{number}.qcow2");
        image(&yard, ["convert", "disk.img", &name].iter().chain(*options)).succeeded();
        qemu_img(&yard, &format!("check -q {name}"));
        qemu_img(&yard, &format!("compare -q -f raw -F qcow2 disk.img {name}"));
        image(&yard, ["compare", "disk.img", &name]).succeeded();
        image(&yard, ["convert", &name, "-O", "raw", "back"]).succeeded();
        assert!(same(&yard.path("back"), &yard.path("disk.img")), "{options:?}");
    }
    assert!(allocated_bytes(&yard.path("0.qcow2")) < 14 * MIB);
    assert!(allocated_bytes(&yard.path("4.qcow2")) < 8 * MIB);
}

#[test]
fn what_qemu_made_is_read() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -c -f raw -O qcow2 disk.img packed.qcow2");
    qemu_img(&yard, "convert -f raw -O qcow2 -o compat=0.10,cluster_size=4k disk.img old.qcow2");
    qemu_img(&yard, "convert -f raw -O vmdk -o subformat=monolithicFlat disk.img disk.vmdk");
    for name in ["packed.qcow2", "old.qcow2", "disk.vmdk"] {
        image(&yard, ["convert", "--allow-dir", ".", name, "back.img"]).succeeded();
        assert!(same(&yard.path("back.img"), &yard.path("disk.img")), "{name}");
    }
}

#[test]
fn holes_and_zeros_take_no_room() {
    let yard = Yard::new();
    let disk = mixed(&yard, "disk.img");
    image(&yard, ["convert", "disk.img", "copy.img"]).succeeded();
    assert!(same(&disk, &yard.path("copy.img")));
    assert!(allocated_bytes(&yard.path("copy.img")) <= allocated_bytes(&disk) - 3 * MIB + 65536);
    image(&yard, ["convert", "-S", "0", "disk.img", "full.img"]).succeeded();
    assert!(same(&disk, &yard.path("full.img")) && allocated_bytes(&yard.path("full.img")) >= 40 * MIB);
    image(&yard, ["create", "-q", "huge.qcow2", "1T"]).succeeded();
    image(&yard, ["convert", "huge.qcow2", "huge2.qcow2"]).succeeded();
    assert!(allocated_bytes(&yard.path("huge2.qcow2")) < MIB);
}

#[test]
fn a_target_that_is_there_is_written_in_place() {
    let yard = Yard::new();
    let disk = mixed(&yard, "disk.img");
    let target = yard.random("target.img", 50 * MIB, 3);
    image(&yard, ["convert", "-n", "disk.img", "target.img"]).succeeded();
    let (wanted, found) = (fs::read(&disk).unwrap(), fs::read(&target).unwrap());
    assert!(found[..wanted.len()] == wanted[..] && found.len() as u64 == 50 * MIB);
    assert!(found[wanted.len()..] == random_bytes(50 << 20, 3)[wanted.len()..], "what is behind it has changed");
    image(&yard, ["create", "-q", "target.qcow2", "50M"]).succeeded();
    image(&yard, ["convert", "-n", "disk.img", "target.qcow2"]).succeeded();
    qemu_img(&yard, "check -q target.qcow2");
    qemu_img(&yard, "compare -q disk.img target.qcow2");
    image(&yard, ["create", "-q", "small.qcow2", "1M"]).succeeded();
    image(&yard, ["convert", "-n", "disk.img", "small.qcow2"]).failed(1, &["small.qcow2", "too few"]);
    image(&yard, ["convert", "-n", "disk.img", "absent.qcow2"]).failed(1, &["absent.qcow2", "No such file"]);
}

/// A server has as many queues as it is told to, and each thread wants one; what is read from the page cache has a
/// queue of one request, and what a server writes has more.
#[test]
fn sessions_are_converted_with_the_queues_that_they_have() {
    let yard = Yard::new();
    let disk = mixed(&yard, "disk.img");
    for (name, queues) in [("one", "1"), ("many", "8")] {
        let (served, socket) = (yard.sparse(&format!("{name}.img"), 41 * MIB, &[], 1), yard.path(name));
        let options = ["--queues".as_ref(), queues.as_ref(), "--socket".as_ref()];
        let arguments = [&[served.as_os_str()][..], &options, &[socket.as_os_str()]].concat();
        let server = server::Server::start(&arguments, &socket);
        let session = format!("session:{name}");
        image(&yard, ["convert", "-n", "-m", "4", "disk.img", &session]).succeeded();
        image(&yard, ["compare", "disk.img", &session]).succeeded();
        image(&yard, ["convert", "-m", "4", &session, "back.qcow2"]).succeeded();
        server.stop();
        assert!(fs::read(&served).unwrap().starts_with(&fs::read(&disk).unwrap()));
        image(&yard, ["compare", "disk.img", "back.qcow2"]).succeeded();
    }
    image(&yard, ["convert", "-n", "disk.img", "mem:41M"]).succeeded();
}

#[test]
fn a_disk_is_converted_to_what_differs_from_another() {
    let yard = Yard::new();
    mixed(&yard, "base.img");
    mixed(&yard, "disk.img");
    let file = File::options().write(true).open(yard.path("disk.img")).unwrap();
    file.write_all_at(b"changed", 12_345_678).unwrap();
    file.write_all_at(&[0; 5000], 100_000).unwrap();
    // In the same cluster, where those are the largest, and far from each other.
    file.write_all_at(b"changed, too", 10_600_000).unwrap();
    for options in [
        &["-B", "base.img", "-F", "raw"][..],
        &["-o", "backing_file=base.img,backing_fmt=raw,cluster_size=4k"],
        &["-o", "backing_file=base.img,backing_fmt=raw,cluster_size=2M"],
    ] {
        image(&yard, [&["convert", "disk.img", "new.qcow2"], options].concat()).succeeded();
        qemu_img(&yard, "check -q new.qcow2");
        qemu_img(&yard, "compare -q -F raw new.qcow2 disk.img");
        assert!(allocated_bytes(&yard.path("new.qcow2")) < 20 * MIB, "{options:?}");
    }
    for (options, code) in [
        (&["-B", "base.img"][..], 2),
        (&["-B", "absent", "-F", "raw"], 1),
        (&["-B", "base.img", "-F", "raw", "-O", "raw"], 2),
    ] {
        image(&yard, [&["convert", "disk.img", "no.qcow2"], options].concat()).failed(code, &[]);
        assert!(!yard.path("no.qcow2").exists());
    }
}

#[test]
fn a_full_disk_is_one_sentence_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let yard = Yard::new();
    yard.random("disk.img", 8 * MIB, 1);
    yard.sparse("zeros.img", 8 * MIB, &[], 1);
    let small = yard.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&small).status().unwrap();
    assert!(mounted.success(), "this test mounts a small tmpfs: run it as root");
    let _mounted = Mounted(&small);
    for options in [
        &["small/x.qcow2"][..],
        &["-c", "small/x.qcow2"],
        &["-o", "preallocation=full", "small/x.qcow2"],
        &["-O", "qcow2", "-B", "../zeros.img", "-F", "raw", "small/x"],
        &["-S0", "small/x.img"],
        &["small/x.img"],
    ] {
        let problem = format!("blockyard: no space left for {}: free some", options.last().unwrap());
        image(&yard, ["convert", "disk.img"].iter().chain(options)).failed(1, &[&problem]);
        assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    }
    image(&yard, ["create", "small/x.img", "8M", "-o", "preallocation=full"]).failed(1, &["o space left"]);
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
}

#[test]
fn a_signal_in_mid_convert_leaves_nothing() {
    let yard = Yard::new();
    yard.random("disk.img", 4 * MIB, 1);
    let old = yard.random("old.qcow2", 1000, 2);
    let names = yard.names();
    for target in ["new.qcow2", "old.qcow2"] {
        let mut command = blockyard();
        // Some seconds for each request, so that it is in the middle of it.
        command.current_dir(yard.path("")).args(["image", "convert", "disk.img,latency=3s", target]);
        let child = command.spawn().unwrap();
        support::wait_until_it_catches(child.id(), libc::SIGINT);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
        support::finish(child).failed(130, &["stopped by Ctrl-C"]);
        assert_eq!(yard.names(), names);
        assert!(fs::read(&old).unwrap() == random_bytes(1000, 2));
    }
}
