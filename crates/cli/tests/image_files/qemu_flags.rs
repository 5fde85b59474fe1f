//! Options of qemu-img's that say how an image is opened or named.

use super::support::finish;
use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

#[test]
fn images_that_somebody_writes_to_are_looked_at_with_force_share() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 used.qcow2 4M");
    let mut user = Command::new("qemu-io");
    user.current_dir(yard.path("")).args(["-f", "qcow2", "-c", "write -P 7 0 64K", "-c", "sleep 600000", "used.qcow2"]);
    let mut user = user.stdout(std::process::Stdio::null()).spawn().expect("install qemu-utils");
    // Who locked the image to look would be in the way.
    support::wait_until("somebody has written to it", || {
        let bytes = fs::read(yard.path("used.qcow2")).unwrap();
        bytes.chunks(65536).any(|cluster| cluster.iter().all(|byte| *byte == 7))
    });
    for words in [
        &["map", "used.qcow2"][..],
        &["compare", "used.qcow2", "used.qcow2"],
        &["convert", "-q", "used.qcow2", "out.img"],
        &["measure", "-O", "qcow2", "used.qcow2"],
    ] {
        let locked = image(&yard, words);
        assert!(locked.code != Some(0) && locked.stderr.contains("used.qcow2 is in use"), "{locked:?}");
        image(&yard, words.iter().chain(&["-U"])).succeeded();
    }
    let info = image(&yard, ["info", "-U", "--json", "used.qcow2"]).succeeded().json();
    assert!(info.get("partitions-unknown").is_none(), "{info}");
    user.kill().unwrap();
    user.wait().unwrap();
}

/// What runs these commands for others reads there how far they have come.
#[test]
fn progress_is_told_as_by_qemu_img_to_who_reads_stdout() {
    let yard = Yard::new();
    yard.random("disk.img", 4 * MIB, 3);
    yard.random("other.img", 4 * MIB, 4);
    // qemu-img says some of what else it says in the same line.
    let percents = |text: &str| -> Vec<f64> {
        let number = |said: &str| said.trim().strip_prefix('(')?.strip_suffix("/100%)")?.parse().ok();
        text.split(['\r', '\n']).filter_map(number).collect()
    };
    for line in [
        "convert -p -O qcow2 disk.img new.qcow2",
        "compare -p disk.img disk.img",
        "rebase -p -b other.img -F raw over.qcow2",
        "rebase -p -u -b other.img -F raw over.qcow2",
        "commit -p over.qcow2",
        "amend -p -o lazy_refcounts=on over.qcow2",
    ] {
        let run = |ours: bool| {
            qemu_img(&yard, "create -q -f qcow2 -b disk.img -F raw over.qcow2");
            match ours {
                true => image(&yard, line.split(' ').chain(["--allow-dir", "."])).succeeded().stdout,
                false => qemu_img(&yard, line).stdout,
            }
        };
        for said in [run(false), run(true)] {
            let percents = percents(&said);
            assert_eq!((percents.first(), percents.last()), (Some(&0.0), Some(&100.0)), "{line}: {said:?}");
            assert!(percents.is_sorted(), "{line}: {said:?}");
        }
    }
    let quiet = image(&yard, ["convert", "-p", "-q", "disk.img", "new.qcow2"]).succeeded();
    assert_eq!(quiet.stdout, "");
    for (line, status) in [
        ("convert -p disk.img none/new.qcow2", 1),
        ("compare -p disk.img other.img", 1),
        ("rebase -p -b none.img -F raw over.qcow2", 1),
        ("amend -p -o size=1M over.qcow2", 1),
    ] {
        let said = image(&yard, line.split(' ').chain(["--allow-dir", "."])).failed(status, &[]).stdout;
        let percents = percents(&said);
        assert!(percents.first() == Some(&0.0) && percents.iter().all(|percent| *percent < 100.0), "{line}: {said:?}");
    }
    // It would take minutes.
    yard.random("slow.img", 64 * MIB, 5);
    let mut slow = blockyard();
    slow.current_dir(yard.path("")).args(["image", "convert", "-p", "-m", "1", "-r", "256K", "slow.img", "new.qcow2"]);
    let mut slow = slow.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut begun = [0; 16];
    slow.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"    (0.00/100%)\r");
    kill_process(Pid::from_child(&slow), Signal::TERM).unwrap();
    let ended = finish(slow).failed(143, &["stopped by SIGTERM"]);
    assert!(!ended.stdout.contains("(100.00"), "{ended:?}");
}

#[test]
fn images_are_named_by_image_options_and_read_past_the_page_cache() {
    let yard = Yard::new();
    let raw = yard.random("disk.img", MIB, 3);
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img disk.qcow2");
    let (from, to) = ("driver=qcow2,file.filename=disk.qcow2", "driver=raw,file.driver=file,file.filename=out.img");
    image(&yard, ["convert", "-q", "--image-opts", from, "out.img"]).succeeded();
    assert!(same(&yard.path("out.img"), &raw));
    fs::write(yard.path("out.img"), vec![0; MIB as usize]).unwrap();
    let both = [
        "convert",
        "-q",
        "-n",
        "--image-opts",
        "--target-image-opts",
        "-C",
        "-T",
        "none",
        "-t",
        "directsync",
        from,
        to,
    ];
    image(&yard, both).succeeded();
    assert!(same(&yard.path("out.img"), &raw));
    for words in [
        &["compare", "-q", "--image-opts", "-T", "directsync", from, to][..],
        &["check", "-q", "--image-opts", "-T", "none", from],
        &["map", "--image-opts", from],
        &["info", "--image-opts", from],
        &["measure", "--image-opts", from],
        &["snapshot", "--image-opts", "-c", "one", from],
        &["measure", "-l", "one", from],
        &["resize", "-q", "--image-opts", from, "2M"],
        &["bitmap", "--image-opts", "--add", from, "b"],
        &["amend", "-q", "--image-opts", "-t", "none", "-o", "lazy_refcounts=on", from],
        &["dd", "--image-opts", "if=disk.qcow2", "of=first.img", "count=1"],
        &["bench", "-q", "--image-opts", "-c", "10", from],
        &["rebase", "-q", "-u", "-t", "none", "-T", "none", "-b", "", from],
    ] {
        image(&yard, words).succeeded();
    }
    image(&yard, ["info", "--image-opts", "driver=nbd,host=localhost"]).failed(2, &["and not host=localhost"]);
    qemu_img(&yard, "check -q disk.qcow2");
}

#[test]
fn what_is_there_is_written_past_the_page_cache() {
    let yard = Yard::new();
    // In several pieces, of which the first is not waited for.
    yard.random("disk.img", 16 * MIB, 3);
    File::create(yard.path("out.img")).unwrap().set_len(16 * MIB).unwrap();
    let out = yard.path("out.img").canonicalize().unwrap();
    for (mode, is_direct) in [("none", true), ("writeback", false)] {
        // Slow enough to be looked at.
        let words = ["image", "convert", "-q", "-n", "-r", "1K", "-t", mode, "disk.img", "out.img"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        let mut child = command.args(words).current_dir(yard.path("")).spawn().unwrap();
        let of_process = PathBuf::from(format!("/proc/{}", child.id()));
        let flags = |descriptor: fs::DirEntry| {
            let is_out = fs::read_link(descriptor.path()).is_ok_and(|name| name == out);
            let info = is_out.then(|| fs::read_to_string(of_process.join("fdinfo").join(descriptor.file_name())));
            let flags = info?.ok()?.lines().find_map(|line| line.strip_prefix("flags:").map(str::to_owned))?;
            i32::from_str_radix(flags.trim(), 8).ok()
        };
        support::wait_until("the target is open to be written to", || {
            let mut descriptors = fs::read_dir(of_process.join("fd")).unwrap().flatten().filter_map(flags);
            descriptors.any(|flags| flags & libc::O_RDWR != 0 && (flags & libc::O_DIRECT != 0) == is_direct)
        });
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_snapshot_is_measured_as_by_qemu_img() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 64M");
    let write = |what: &str| {
        let mut io = Command::new("qemu-io");
        run(io.current_dir(yard.path("")).args(["-f", "qcow2", "-c", what, "a.qcow2"])).succeeded();
    };
    write("write 0 5M");
    qemu_img(&yard, "snapshot -c one a.qcow2");
    write("write 20M 10M");
    for snapshot in ["one", "snapshot.name=one", "snapshot.id=1", "snapshot.id=1,snapshot.name=one"] {
        let words = ["measure", "--json", "-O", "qcow2", "-l", snapshot, "a.qcow2"];
        let ours = image(&yard, words).succeeded().json();
        let theirs = qemu_img(&yard, &format!("measure --output=json -O qcow2 -l {snapshot} -f qcow2 a.qcow2")).json();
        assert_eq!(ours["required"], theirs["required"], "{snapshot}");
    }
    image(&yard, ["measure", "-l", "snapshot.name=one,snapshot.id=1", "a.qcow2"]).succeeded();
    for snapshot in ["snapshot.id=2,snapshot.name=one", "snapshot.name=one,snapshot.id=2", "snapshot.id=one"] {
        image(&yard, ["measure", "-l", snapshot, "a.qcow2"]).failed(1, &[snapshot]);
    }
}

#[test]
fn what_is_for_programs_is_asked_for_as_of_qemu_img() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 9);
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img disk.qcow2");
    for command in ["info", "check", "map", "measure"] {
        let answer = |format: &str| image(&yard, [command, format, "disk.qcow2"]).succeeded();
        assert_eq!(answer("--output=json").stdout, answer("--json").stdout);
        assert_eq!(answer("--output=human").stdout, image(&yard, [command, "disk.qcow2"]).succeeded().stdout);
        // Whatever qemu-img says, ours says, too.
        let [ours, theirs] = [
            answer("--output=json").json(),
            qemu_img(&yard, &format!("{command} --output=json -f qcow2 disk.qcow2")).json(),
        ];
        let pairs = match (&ours, &theirs) {
            (serde_json::Value::Array(ours), serde_json::Value::Array(theirs)) => {
                assert_eq!(ours.len(), theirs.len(), "{ours:?}");
                ours.iter().zip(theirs).collect()
            }
            alone => vec![alone],
        };
        for (ours, theirs) in pairs {
            for (key, value) in theirs.as_object().unwrap() {
                assert_eq!(&ours[key], value, "{command}: {key}");
            }
        }
    }
    image(&yard, ["info", "--output=json", "--json", "disk.qcow2"]).failed(2, &["--json"]);
    image(&yard, ["info", "--output=xml", "disk.qcow2"]).failed(2, &["human, json"]);
}

/// How long it takes at least, by the rate; nothing is said of how much longer.
#[test]
fn a_rate_is_not_exceeded() {
    let yard = Yard::new();
    yard.random("disk.img", 4 * MIB, 4);
    let begun = Instant::now();
    image(&yard, ["convert", "-q", "-r", "8M", "disk.img", "out.qcow2"]).succeeded();
    // A burst of a tenth of a second is free, and so is what a request of a MiB has too much.
    assert!(begun.elapsed().as_millis() >= 200, "{:?}", begun.elapsed());
    qemu_img(&yard, "create -q -f qcow2 -b out.qcow2 -F qcow2 over.qcow2");
    image(&yard, ["convert", "-q", "-n", "disk.img", "over.qcow2", "--allow-dir", "."]).succeeded();
    let begun = Instant::now();
    image(&yard, ["commit", "-q", "-r", "8M", "-t", "writeback", "--allow-dir", ".", "over.qcow2"]).succeeded();
    assert!(begun.elapsed().as_millis() >= 200, "{:?}", begun.elapsed());
    image(&yard, ["convert", "-r", "0", "disk.img", "out.qcow2"]).failed(2, &["nothing a second"]);
}

#[test]
fn sizes_and_options_of_qemu_imgs_are_understood() {
    let yard = Yard::new();
    for (format, options) in [
        ("qcow2", "cluster_size=0x10000"),
        ("raw", "preallocation=falloc"),
        ("vmdk", "compat6=on,zeroed_grain=off"),
        ("vhdx", "log_size=1M,block_state_zero=on,block_size=0x100000"),
        ("vhdx", "block_state_zero=off"),
    ] {
        for name in ["ours", "theirs"] {
            let words = ["create", "-q", "-f", format, "-o", options, name, "0x1000000"];
            match name {
                "ours" => image(&yard, words).succeeded(),
                _ => qemu_img(&yard, &words.join(" ")),
            };
        }
        let size = |name: &str| {
            qemu_img(&yard, &format!("info --output=json -f {format} {name}")).json()["virtual-size"].clone()
        };
        assert_eq!(size("ours"), size("theirs"), "{format} {options}");
        if format == "vmdk" {
            let version = |name: &str| {
                let bytes = fs::read(yard.path(name)).unwrap();
                let text = String::from_utf8_lossy(&bytes).into_owned();
                text.lines().find(|line| line.contains("virtualHWVersion")).map(str::to_owned)
            };
            assert_eq!(version("ours"), version("theirs"));
        }
    }
}
