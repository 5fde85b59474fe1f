//! Compressed files as sources, made by xz, zstd and gzip themselves (Debian packages xz-utils, zstd and gzip).

use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

/// What compresses, the ending of what it makes, and what makes one that does not say how much is in it.
const PROGRAMS: [(&str, &str); 3] = [("xz", "xz-utils"), ("zstd", "zstd"), ("gzip", "gzip")];

fn ending(program: &str) -> &str {
    match program {
        "zstd" => "zst",
        "gzip" => "gz",
        xz => xz,
    }
}

/// Compresses a file as `NAME.ENDING` with these options; through a pipe the program does not know how long it is.
fn compress(yard: &Yard, program: &str, options: &[&str], name: &str) -> String {
    let compressed = format!("{name}.{}", ending(program));
    let output = File::create(yard.path(&compressed)).unwrap();
    let mut command = Command::new(program);
    command.args(options).arg("-c").arg(name).current_dir(yard.path("")).stdout(output);
    let package = PROGRAMS.iter().find(|(known, _)| *known == program).unwrap().1;
    assert!(command.status().unwrap_or_else(|error| panic!("{program}: {error}: install {package}")).success());
    compressed
}

fn compress_pipe(yard: &Yard, program: &str, options: &[&str], name: &str, compressed: &str) {
    let (input, output) = (File::open(yard.path(name)).unwrap(), File::create(yard.path(compressed)).unwrap());
    // A pipe, of which zstd cannot ask the length.
    let mut cat = Command::new("cat").stdin(input).stdout(Stdio::piped()).spawn().unwrap();
    let status = Command::new(program)
        .args(options)
        .arg("-c")
        .stdin(cat.stdout.take().unwrap())
        .stdout(output)
        .status()
        .unwrap();
    assert!(status.success() && cat.wait().unwrap().success());
}

/// A disk with data and zeros, of no whole number of sectors.
fn odd_disk(yard: &Yard) -> Vec<u8> {
    let mut bytes = random_bytes(3 << 17, 1);
    bytes.extend(vec![0; 3 << 20]);
    bytes.extend(b"between zeros");
    bytes.extend(vec![0; 1 << 20]);
    bytes.extend(random_bytes((1 << 18) + 77, 2));
    fs::write(yard.path("disk.raw"), &bytes).unwrap();
    bytes
}

fn in_sectors(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn what_was_compressed_is_converted_in_one_pass() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    fs::write(yard.path("whole.img"), &whole).unwrap();
    let made = PROGRAMS.map(|(program, _)| compress(&yard, program, &["-1"], "disk.raw"));
    compress_pipe(&yard, "zstd", &["-T2", "-B512KiB"], "disk.raw", "piped.img.zst");
    compress_pipe(&yard, "xz", &["-1", "--check=none", "--block-size=256KiB", "-T2"], "disk.raw", "blocks.XZ");
    let names = [&made[..], &["piped.img.zst", "blocks.XZ"].map(str::to_owned)].concat();
    let mut targets = [
        (&[][..], "out.qcow2"),
        (&["-o", "preallocation=falloc"], "out.qcow2"),
        (&["-c"], "out.qcow2"),
        (&[], "out.vdi"),
        (&["-c", "-o", "compression_type=zstd,extended_l2=on"], "out.qcow2"),
        (&["-O", "vmdk", "-o", "subformat=streamOptimized"], "out.vmdk"),
    ]
    .into_iter()
    .cycle();
    let digest = image(&yard, ["convert", "-q", "--digest", "whole.img", "digest.img"]).succeeded().stdout;
    for name in names {
        let said = image(&yard, ["convert", "-q", "--digest", &name, "out.img"]).succeeded().stdout;
        assert_eq!(said, digest, "{name}");
        assert!(fs::read(yard.path("out.img")).unwrap() == whole, "{name}");
        assert!(allocated_bytes(&yard.path("out.img")) < 2 << 20, "{name}: zeros take room");
        for (options, target) in targets.by_ref().take(3) {
            let words = [&["convert"][..], options, &[&name, target]].concat();
            image(&yard, words).succeeded();
            qemu_img(&yard, &format!("compare -f raw whole.img {target}"));
            if target.ends_with("qcow2") {
                qemu_img(&yard, &format!("check {target}"));
            }
        }
        image(&yard, ["convert", "-S", "0", "-m", "3", &name, "full.img"]).succeeded();
        assert!(fs::read(yard.path("full.img")).unwrap() == whole, "{name}");
        image(&yard, ["convert", &name, &name, "twice.img"]).succeeded();
        assert!(fs::read(yard.path("twice.img")).unwrap() == [&whole[..], &whole].concat(), "{name}");
    }
    assert!(!yard.names().iter().any(|name| name.starts_with('.')), "{:?}", yard.names());
}

/// What is not known to fit is not asked for: neither a file of the length that a disk could have, nor tables for it.
#[test]
fn a_disk_of_unknown_length_takes_what_it_has() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    let gzip = compress(&yard, "gzip", &["-1"], "disk.raw");
    for (words, target) in [
        (&[][..], "out.img"),
        (&["-S", "0", "-c"], "out.qcow2"),
        (&["-o", "cluster_size=512"], "out.qcow2"),
        (&["-o", "cluster_size=4K"], "out.qcow2"),
    ] {
        let mut limited = Command::new("prlimit");
        limited.arg("--fsize=33554432").arg(env!("CARGO_BIN_EXE_blockyard")).args(["image", "convert"]);
        limited.stdout(Stdio::piped()).stderr(Stdio::piped());
        run(limited.current_dir(yard.path("")).args(words).args([&gzip, target])).succeeded();
        match target {
            "out.img" => assert!(fs::read(yard.path(target)).unwrap() == whole),
            _ => {
                qemu_img(&yard, &format!("compare -f raw disk.raw {target}"));
                qemu_img(&yard, &format!("check {target}"));
                assert!(fs::metadata(yard.path(target)).unwrap().len() < 6 << 20);
            }
        }
    }
}

/// Sources of which each is decompressed when its turn comes, and no more than are read at once.
#[test]
fn many_compressed_sources_are_read_one_after_another() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    let name = compress(&yard, "gzip", &["-1"], "disk.raw");
    let mut limited = Command::new("prlimit");
    limited.arg("--nofile=128:128").arg(env!("CARGO_BIN_EXE_blockyard")).args(["image", "convert", "-q", "--digest"]);
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = run(limited.current_dir(yard.path("")).args([&name; 24]).arg("out.img")).succeeded().stdout;
    fs::write(yard.path("all.img"), whole.repeat(24)).unwrap();
    assert!(fs::read(yard.path("out.img")).unwrap() == whole.repeat(24));
    assert_eq!(said, image(&yard, ["convert", "-q", "--digest", "all.img", "out.vdi"]).succeeded().stdout);
}

#[test]
fn what_is_there_is_written_up_to_the_disks_end() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    for (program, _) in PROGRAMS {
        let name = compress(&yard, program, &[], "disk.raw");
        fs::write(yard.path("there.img"), vec![7; 8 << 20]).unwrap();
        image(&yard, ["convert", "-n", &name, "there.img"]).succeeded();
        let there = fs::read(yard.path("there.img")).unwrap();
        assert!(there[..whole.len()] == whole && there[whole.len()..].iter().all(|&byte| byte == 7), "{name}");
        fs::write(yard.path("there.img"), vec![7; 1 << 20]).unwrap();
        image(&yard, ["convert", "-n", &name, "there.img"]).failed(1, &["there.img", "blockyard image resize"]);
    }
}

fn copy(yard: &Yard, words: &[&str]) -> Outcome {
    run(blockyard().current_dir(yard.path("")).args(["copy", "--backend", support::backend()]).args(words))
}

#[test]
fn copies_decompress_too() {
    let yard = Yard::new();
    let disk = odd_disk(&yard);
    for (program, _) in PROGRAMS {
        let name = compress(&yard, program, &[], "disk.raw");
        copy(&yard, &[&name, "copy.img", "--queues", "4"]).succeeded();
        assert!(fs::read(yard.path("copy.img")).unwrap() == disk, "{name}");
        assert!(allocated_bytes(&yard.path("copy.img")) < 2 << 20, "{name}: zeros take room");
        let cut_off = File::options().write(true).open(yard.path(&name)).unwrap();
        cut_off.set_len(cut_off.metadata().unwrap().len() - 5).unwrap();
        copy(&yard, &[&name, "cut.img"]).failed(1, &[&name, "cut off"]);
        assert!(!yard.path("cut.img").exists());
    }
    compress_pipe(&yard, "zstd", &[], "disk.raw", "disk.zst");
    qemu_img(&yard, "convert -f raw -O qcow2 disk.raw disk.qcow2");
    let name = compress(&yard, "zstd", &[], "disk.qcow2");
    copy(&yard, &[&name, "copy.img"]).succeeded();
    assert!(fs::read(yard.path("copy.img")).unwrap() == in_sectors(disk));
}

#[test]
fn images_in_compressed_files_are_unpacked_beside_the_result() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    for (format, ending) in [("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vpc", "vhd"), ("vdi", "vdi")] {
        let options = if format == "vpc" { "-o force_size=on " } else { "" };
        qemu_img(&yard, &format!("convert -f raw -O {format} {options}disk.raw disk.{ending}"));
        for (program, _) in PROGRAMS {
            let name = compress(&yard, program, &[], &format!("disk.{ending}"));
            image(&yard, ["convert", &name, "out.img"]).succeeded();
            let out = fs::read(yard.path("out.img")).unwrap();
            assert!(out[..whole.len()] == whole && out[whole.len()..].iter().all(|&byte| byte == 0), "{name}");
            fs::rename(yard.path(&name), yard.path("disk")).unwrap();
            let said = format!("{format}.{}", name.rsplit('.').next().unwrap());
            image(&yard, ["convert", "-f", &said, "disk", "out.qcow2"]).succeeded();
            qemu_img(&yard, "compare -f raw out.img out.qcow2");
        }
    }
    // What an image refers to is as little its own to open as ever.
    qemu_img(&yard, "create -q -f qcow2 -b disk.raw -F raw over.qcow2");
    let name = compress(&yard, "xz", &[], "over.qcow2");
    image(&yard, ["convert", &name, "out.img"]).failed(1, &["over.qcow2", "--allow-dir"]);
    image(&yard, ["convert", "--allow-dir", ".", &name, "out.img"]).succeeded();
    assert!(fs::read(yard.path("out.img")).unwrap() == whole);
    image(&yard, ["convert", "--size-max", "64K", &name, "none.img"]).failed(1, &[&name, "--size-max"]);
}

#[test]
fn several_streams_are_one_disk_and_what_else_follows_is_an_error() {
    let yard = Yard::new();
    let parts = [random_bytes(700_000, 3), vec![0; 3 << 20], random_bytes(512 * 9, 4)];
    let whole = in_sectors(parts.concat());
    for (program, _) in PROGRAMS {
        let compressed = parts.each_ref().map(|part| {
            fs::write(yard.path("part"), part).unwrap();
            fs::read(yard.path(&compress(&yard, program, &[], "part"))).unwrap()
        });
        let name = format!("parts.{}", ending(program));
        let convert = |bytes: &[u8]| {
            fs::write(yard.path(&name), bytes).unwrap();
            image(&yard, ["convert", &name, "out.img"])
        };
        let all = compressed.concat();
        convert(&all).succeeded();
        assert!(fs::read(yard.path("out.img")).unwrap() == whole, "{program}");
        fs::remove_file(yard.path("out.img")).unwrap();
        let padded = [&all[..], &[0; 512]].concat();
        match program {
            "zstd" => drop(convert(&padded).failed(1, &[&name])),
            _ => {
                convert(&padded).succeeded();
                assert!(fs::read(yard.path("out.img")).unwrap() == whole, "{program}");
                fs::remove_file(yard.path("out.img")).unwrap();
            }
        }
        if program == "xz" {
            convert(&[&all[..], &[0; 5]].concat()).failed(1, &[&name]);
            let between = [&compressed[0][..], &[0; 8], &compressed[1], &[0; 4], &compressed[2]].concat();
            convert(&between).succeeded();
            assert!(fs::read(yard.path("out.img")).unwrap() == whole);
            fs::remove_file(yard.path("out.img")).unwrap();
        }
        for behind in [&b"x"[..], b"\0x", b"\x1f\x8b", &random_bytes(1000, 5), &all[..all.len() / 2]] {
            convert(&[&all[..], behind].concat()).failed(1, &[&name]);
        }
        assert!(!yard.path("out.img").exists(), "{program}");
    }
}

#[test]
fn what_is_damaged_leaves_no_result() {
    let yard = Yard::new();
    fs::write(yard.path("disk.raw"), [random_bytes(20_000, 6), vec![0; 40_000], random_bytes(20_000, 7)].concat())
        .unwrap();
    for (program, _) in PROGRAMS {
        let options = if program == "zstd" { &["--check"][..] } else { &[] };
        let name = compress(&yard, program, options, "disk.raw");
        let bytes = fs::read(yard.path(&name)).unwrap();
        let convert = |bytes: &[u8]| {
            fs::write(yard.path(&name), bytes).unwrap();
            image(&yard, ["convert", &name, "out.img"])
        };
        for length in [bytes.len() - 1, bytes.len() - 9, bytes.len() - 20, bytes.len() / 2, 40, 12] {
            convert(&bytes[..length]).failed(1, &[&name, "cut off"]);
        }
        for (at, bit) in
            [(12, 1), (bytes.len() / 3, 8), (bytes.len() / 2, 128), (bytes.len() - 3, 1), (bytes.len() - 7, 2)]
        {
            let mut damaged = bytes.clone();
            damaged[at] ^= bit;
            // The name of the file that gzip keeps is nobody's business.
            if program == "gzip" && at == 12 {
                continue;
            }
            convert(&damaged).failed(1, &[&name]);
        }
        convert(&[]).failed(1, &[&name]);
        convert(&bytes[..3]).failed(1, &[&name]);
        assert!(!yard.path("out.img").exists(), "{program}");
    }
}

#[test]
fn bombs_and_large_windows_are_refused() {
    let yard = Yard::new();
    File::create(yard.path("bomb.raw")).unwrap().set_len(50 << 20).unwrap();
    for (program, _) in PROGRAMS {
        let name = compress(&yard, program, &["-1"], "bomb.raw");
        image(&yard, ["convert", "--size-max", "20M", &name, "out.img"]).failed(1, &[&name, "--size-max"]);
        image(&yard, ["convert", "--size-max", "20M", &name, "out.vdi"]).failed(1, &[&name, "--size-max"]);
        image(&yard, ["convert", "--size-max", "50M", &name, "out.qcow2"]).succeeded();
        assert!(["out.img", "out.vdi"].iter().all(|name| !yard.names().contains(*name)));
    }
    fs::write(yard.path("small"), random_bytes(5000, 8)).unwrap();
    compress_pipe(&yard, "zstd", &["-1", "--long=27"], "small", "fits.zst");
    compress_pipe(&yard, "zstd", &["-1", "--long=28"], "small", "wide.zst");
    compress_pipe(&yard, "xz", &["--lzma2=dict=128MiB,mode=fast,mf=hc3"], "small", "fits.xz");
    compress_pipe(&yard, "xz", &["--lzma2=dict=256MiB,mode=fast,mf=hc3"], "small", "wide.xz");
    for ending in ["zst", "xz"] {
        image(&yard, ["convert", &format!("fits.{ending}"), "out.img"]).succeeded();
        image(&yard, ["convert", &format!("wide.{ending}"), "out.img"]).failed(1, &["wide", "128 MiB"]);
    }
}

/// Who decompresses has a filter before it reads anything.
#[test]
fn what_decompresses_is_shut_in() {
    let yard = Yard::new();
    File::create(yard.path("zeros")).unwrap().set_len(64 << 20).unwrap();
    let name = compress(&yard, "zstd", &[], "zeros");
    let mut command = blockyard();
    let input = File::open(yard.path(&name)).unwrap();
    // It waits for who reads the pipe.
    let mut child = command
        .args(["decompress", "zst", &std::process::id().to_string()])
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [1; 4096];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    assert_eq!(first, [0; 4096]);
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    let mut numbers: Vec<_> = fs::read_dir(format!("/proc/{}/fd", child.id()))
        .unwrap()
        .map(|entry| fs::read_link(entry.unwrap().path()).unwrap())
        .collect();
    numbers.retain(|target| !target.to_string_lossy().starts_with("pipe:"));
    let file = fs::canonicalize(yard.path(&name)).unwrap();
    assert!(numbers.iter().all(|target| *target == file || target.starts_with("/dev")), "{numbers:?}");
    // Nobody reads any more.
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

/// What a command and those that it has started have started.
fn descendants(pid: u32) -> Vec<u32> {
    support::children(pid).into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// A file that gives its disk and then nothing, without end: zeros may follow.
fn endless(yard: &Yard, program: &str) -> String {
    fs::write(yard.path("small.raw"), random_bytes(512, 9)).unwrap();
    let name = compress(yard, program, &[], "small.raw");
    File::options().write(true).open(yard.path(&name)).unwrap().set_len(1 << 43).unwrap();
    name
}

/// The first signal ends it, and what decompresses ends with the command, however that ends.
#[test]
fn what_gives_nothing_is_stopped() {
    let yard = Yard::new();
    let (gzip, xz) = (endless(&yard, "gzip"), endless(&yard, "xz"));
    for (words, signal) in [
        (&["image", "convert", &gzip, "out.img"][..], Signal::INT),
        (&["image", "convert", &gzip, "out.vdi"], Signal::INT),
        (&["image", "convert", "-f", "vpc.xz", &xz, "out.img"], Signal::TERM),
        (&["image", "convert", "--digest", &xz, "out.qcow2"], Signal::KILL),
        (&["copy", "--backend", support::backend(), &gzip, "out.img"], Signal::INT),
    ] {
        let mut command = blockyard();
        command.current_dir(yard.path("")).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let mut decompress = Vec::new();
        support::wait_until("somebody decompresses", || {
            decompress = descendants(child.id());
            // It has the file's end before it.
            let is_shut_in = |pid: &u32| {
                fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains("Seccomp:\t2"))
            };
            decompress.iter().any(is_shut_in)
        });
        kill_process(Pid::from_child(&child), signal).unwrap();
        let outcome = support::finish(child);
        match signal {
            Signal::INT => drop(outcome.failed(130, &["stopped by Ctrl-C"])),
            Signal::TERM => drop(outcome.failed(143, &["stopped by SIGTERM"])),
            _ => {}
        }
        support::wait_until("nobody decompresses", || decompress.iter().all(|&pid| !support::is_alive(pid)));
    }
    copy(&yard, &["--timeout", "1", &gzip, "out.img"]).failed(1, &[&gzip, "nothing has come out of it"]);
    assert!(["out.img", "out.vdi", "out.qcow2"].iter().all(|name| !yard.names().contains(*name)));
}

#[test]
fn an_image_is_unpacked_where_there_is_room() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    qemu_img(&yard, "convert -f raw -O qcow2 disk.raw disk.qcow2");
    let name = compress(&yard, "xz", &[], "disk.qcow2");
    fs::write(yard.path("there.img"), vec![7; whole.len()]).unwrap();
    let in_place = |temporary: &str| {
        run(blockyard().current_dir(yard.path("")).env("TMPDIR", temporary).args([
            "image",
            "convert",
            "-n",
            &name,
            "there.img",
        ]))
    };
    in_place("/nowhere").failed(1, &[&name, "/nowhere", "TMPDIR"]);
    in_place("/tmp").succeeded();
    assert!(fs::read(yard.path("there.img")).unwrap() == whole);
    // What is no image is seen before it is unpacked.
    let not = compress(&yard, "zstd", &[], "disk.raw");
    fs::rename(yard.path(&not), yard.path("not.qcow2.zst")).unwrap();
    let early = ["convert", "--size-max", "128K", "not.qcow2.zst", "out.img"];
    image(&yard, early).failed(1, &["not.qcow2.zst", "does not look like a qcow2 image"]);
}

/// As pzstd writes it, and zstd reads it: a frame that is skipped comes first.
#[test]
fn a_frame_that_is_skipped_may_come_first() {
    let yard = Yard::new();
    let whole = in_sectors(odd_disk(&yard));
    let name = compress(&yard, "zstd", &[], "disk.raw");
    let bytes = fs::read(yard.path(&name)).unwrap();
    fs::write(yard.path(&name), [&b"\x50\x2a\x4d\x18\x04\0\0\0size"[..], &bytes].concat()).unwrap();
    image(&yard, ["convert", &name, "out.img"]).succeeded();
    assert!(fs::read(yard.path("out.img")).unwrap() == whole);
}

/// What is said names the file that is there, and what would help for this very one.
#[test]
fn what_is_said_helps() {
    let yard = Yard::new();
    odd_disk(&yard);
    qemu_img(&yard, "convert -f raw -O qcow2 disk.raw vm.qcow2");
    let name = compress(&yard, "xz", &[], "vm.qcow2");
    for (words, said) in [
        (&["convert", "-f", "qcow2", &name, "out.img"][..], "with format=qcow2.xz"),
        (&["convert", "-l", "none", &name, "out.img"], "vm.qcow2.xz"),
        (&["convert", "-f", "vdi.xz", &name, "out.img"], "vm.qcow2.xz: what is in it does not look like a vdi image"),
        (&["convert", "vm.qcow2.xz,overlay=over.qcow2", "out.img"], "leave overlay="),
        (&["convert", "-f", "xz", &name, "out.img"], "raw.xz, qcow2.xz"),
        (&["dd", &format!("if={name}"), "of=out.img.xz"], "out.img.xz"),
        (&["dd", "if=-", "of=out.img"], "a stream is none"),
        (&["dd", "if=vm.qcow2", "of=out.img", "ibs=512"], "bs, count and skip"),
    ] {
        let outcome = image(&yard, words);
        let status = outcome.code.unwrap();
        assert!(status == 1 || status == 2, "{words:?}");
        outcome.failed(status, &[said]);
    }
    fs::copy(yard.path(&name), yard.path("vm.txz")).unwrap();
    image(&yard, ["convert", "vm.txz", "out.img"]).failed(1, &["vm.txz", "with format=raw.xz"]);
    qemu_img(&yard, "convert -f raw -O vpc disk.raw disk.vhd");
    let vhd = compress(&yard, "gzip", &[], "disk.vhd");
    image(&yard, ["convert", "-f", "vhd.gz", &vhd, "out.img"]).succeeded();
    // Not a length that came of something else.
    let gzip = compress(&yard, "gzip", &[], "disk.raw");
    let mut bytes = fs::read(yard.path(&gzip)).unwrap();
    bytes.extend(b"behind");
    fs::write(yard.path(&gzip), bytes).unwrap();
    image(&yard, ["convert", &gzip, "none.img"]).failed(1, &[&gzip, "something follows that is not gz"]);
    assert!(!yard.names().iter().any(|name| name == "none.img" || name == "over.qcow2" || name == "out.img.xz"));
}

#[test]
fn names_and_contents_have_to_agree() {
    let yard = Yard::new();
    let disk = odd_disk(&yard);
    let xz = compress(&yard, "xz", &[], "disk.raw");
    for (name, contents) in [("not.xz", &disk[..]), ("not.raw.zst", &fs::read(yard.path(&xz)).unwrap())] {
        fs::write(yard.path(name), contents).unwrap();
        image(&yard, ["convert", name, "out.img"]).failed(1, &[name, "does not begin like"]);
    }
    fs::copy(yard.path(&xz), yard.path("disk.img")).unwrap();
    image(&yard, ["convert", "disk.img", "out.img"]).failed(1, &["disk.img", "xz", "format=raw.xz"]);
    image(&yard, ["convert", "-f", "raw.zst", "disk.img", "out.img"]).failed(1, &["disk.img", "zst"]);
    image(&yard, ["convert", "-f", "raw.xz", "disk.img", "out.img"]).succeeded();
    image(&yard, ["convert", "disk.img,format=raw.xz", "out.img"]).succeeded();
    image(&yard, ["convert", "-f", "raw", "disk.img", "bytes.img"]).succeeded();
    image(&yard, ["convert", "-f", "xz", "disk.img", "out.img"]).failed(2, &["raw.xz"]);
    // What is in it is looked at, too, unless somebody says that it is raw.
    qemu_img(&yard, "create -q -f qcow2 image.raw 1M");
    qemu_img(&yard, "create -q -f vpc -o subformat=fixed fixed.raw 1M");
    for name in ["image.raw", "fixed.raw"] {
        let name = compress(&yard, "gzip", &[], name);
        image(&yard, ["convert", &name, "none.img"]).failed(1, &[&name, "format="]);
        image(&yard, ["convert", "-f", "raw.gz", &name, "some.img"]).succeeded();
    }
    assert!(!yard.path("none.img").exists());
    fs::write(yard.path("disk.tar.gz"), fs::read(yard.path("image.raw.gz")).unwrap()).unwrap();
    image(&yard, ["convert", "disk.tar.gz", "none.img"]).failed(1, &["disk.tar.gz", "tar"]);
    // Everything else wants all of a disk, or writes to it.
    for (words, status) in [
        (&["map", "disk.raw.xz"][..], 1),
        (&["measure", "-O", "qcow2", "disk.raw.xz"], 1),
        (&["compare", "disk.raw.xz", "disk.raw"], 2),
    ] {
        image(&yard, words).failed(status, &["disk.raw.xz", "compressed", "image convert"]);
    }
    let said = image(&yard, ["info", "disk.raw.xz"]).succeeded().stdout;
    assert!(said.contains("file format: xz") && said.contains("image convert"), "{said}");
    for target in ["new.raw.xz", "new,format=raw.gz"] {
        image(&yard, ["convert", "disk.raw", target]).failed(1, &["new"]);
    }
    image(&yard, ["convert", "disk.raw.xz,partition=1", "none.img"]).failed(1, &["disk.raw.xz", "partition="]);
    image(&yard, ["convert", "disk.raw.xz,block-size=4096", "none.img"]).failed(1, &["disk.raw.xz", "block-size="]);
    let digest = String::from_utf8(Command::new("sha256sum").arg(yard.path(&xz)).output().unwrap().stdout).unwrap();
    image(&yard, ["convert", "--sha256", &digest[..64], &xz, "out.img"]).succeeded();
    image(&yard, ["convert", "--sha256", &"0".repeat(64), &xz, "none.img"]).failed(1, &[&xz, &digest[..64]]);
}
