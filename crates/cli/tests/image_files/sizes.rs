//! What images hold and take: maps, measures, comparing and resizing.

use super::*;
use crate::support::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Stdio;

#[test]
fn maps_and_measures_are_qemu_imgs() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img a.qcow2");
    qemu_img(&yard, "create -q -f qcow2 -b a.qcow2 -F qcow2 b.qcow2 60M");
    run(Command::new("qemu-io")
        .current_dir(yard.path(""))
        .args(["-f", "qcow2", "-c", "write 0x120000 64k", "b.qcow2"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped()))
    .succeeded();
    for name in ["a.qcow2", "b.qcow2", "disk.img"] {
        let mut ours = image(&yard, ["map", "--json", "--allow-dir", ".", name]).succeeded().json();
        let format = if name.ends_with("img") { "raw" } else { "qcow2" };
        let theirs = qemu_img(&yard, &format!("map --output=json -f {format} {name}")).json();
        for entry in ours.as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("compressed");
        }
        assert_eq!(ours, theirs, "{name}");
        let human = |text: &str| {
            text.lines()
                .skip(1)
                .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let ours = image(&yard, ["map", "--allow-dir", ".", name]).succeeded();
        assert_eq!(human(&ours.stdout), human(&qemu_img(&yard, &format!("map -f {format} {name}")).stdout));
        for options in ["", "-o cluster_size=4k ", "-o preallocation=full "] {
            let line = format!("measure -O qcow2 {options}--output=json -f {format} {name}");
            let ours = image(&yard, line.replace("--output=json", "--json --allow-dir .").split(' ')).succeeded();
            let [ours, theirs] = [ours, qemu_img(&yard, &line)].map(|said| said.json()["required"].as_u64().unwrap());
            // Where the file has holes within its clusters, qemu-img counts them as data.
            let is_finer = format == "qcow2" && options.contains("4k");
            assert!(ours == theirs || (is_finer && ours < theirs), "{line}: {ours}, {theirs}");
        }
    }
    image(&yard, ["measure", "--size", "16E", "-O", "qcow2"]).failed(2, &["16E"]);
    // What cannot be made is not measured, and for the same reason.
    for (size, options) in [
        ("18446744073709551615", "size=1"),
        ("1G", "cluster_size=5000"),
        ("1G", "extended_l2=on,compat=0.10"),
        ("1G", "extended_l2=on,cluster_size=4K"),
        ("1G", "refcount_bits=64,compat=0.10"),
        ("8E", "cluster_size=64K"),
        ("1E", "cluster_size=512"),
    ] {
        let said = |arguments: &[&str]| {
            let options = if options == "size=1" { "cluster_size=64K" } else { options };
            let outcome = image(&yard, arguments.iter().copied().chain(["-o", options]));
            assert_ne!(outcome.code, Some(0), "{outcome:?}");
            (outcome.code, outcome.stderr)
        };
        let made = said(&["create", "-f", "qcow2", "no.qcow2", size]);
        assert_eq!(said(&["measure", "--size", size, "-O", "qcow2"]), made);
    }
    let stream = ["-o", "subformat=streamOptimized,preallocation=full"];
    let made = image(&yard, ["create", "-f", "vmdk", "no.vmdk", "1G"].iter().chain(&stream)).stderr;
    assert_eq!(image(&yard, ["measure", "--size", "1G", "-O", "vmdk"].iter().chain(&stream)).stderr, made);
}

#[test]
fn disks_that_differ_are_found_to() {
    let yard = Yard::new();
    mixed(&yard, "a.img");
    fs::copy(yard.path("a.img"), yard.path("b.img")).unwrap();
    let file = File::options().write(true).open(yard.path("b.img")).unwrap();
    file.write_all_at(b"x", 12_345_678).unwrap();
    let different = image(&yard, ["compare", "a.img", "b.img"]).failed(1, &[]);
    assert_eq!(different.stdout, "Content mismatch at offset 12345678!\n");
    assert!(different.stderr.is_empty());
    qemu_img(&yard, "convert -O qcow2 a.img a.qcow2");
    image(&yard, ["compare", "a.img", "a.qcow2"]).succeeded();
    let strict = image(&yard, ["compare", "-s", "a.img", "a.qcow2"]).failed(1, &[]);
    assert!(strict.stdout.starts_with("Strict mode"), "{strict:?}");
    image(&yard, ["compare", "a.img", "absent.img"]).failed(2, &["absent.img"]);
    image(&yard, ["resize", "-q", "a.qcow2", "+1M"]).succeeded();
    let longer = image(&yard, ["compare", "a.img", "a.qcow2"]).succeeded();
    assert!(longer.stdout.contains("size mismatch"), "{longer:?}");
    image(&yard, ["compare", "-s", "a.img", "a.qcow2"]).failed(1, &[]);
}

#[test]
fn disks_grow_and_shrink() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    image(&yard, ["convert", "disk.img", "disk.qcow2"]).succeeded();
    for name in ["disk.img", "disk.qcow2"] {
        image(&yard, ["resize", name, "+3G"]).succeeded();
        image(&yard, ["resize", name, "10M"]).failed(1, &["--shrink"]);
        image(&yard, ["resize", name, "--shrink", "-4G"]).failed(2, &["not possible"]);
        image(&yard, ["resize", name, "--shrink", "10M"]).succeeded();
        image(&yard, ["resize", name, "20M"]).succeeded();
    }
    qemu_img(&yard, "check -q disk.qcow2");
    qemu_img(&yard, "compare -q disk.img disk.qcow2");
    // What was cut off does not come back, not in the middle of a cluster either.
    yard.random("full.img", MIB, 6);
    image(&yard, ["convert", "full.img", "full.qcow2"]).succeeded();
    for name in ["full.img", "full.qcow2"] {
        image(&yard, ["resize", name, "--shrink", "100K"]).succeeded();
        image(&yard, ["resize", name, "1M"]).succeeded();
    }
    qemu_img(&yard, "check -q full.qcow2");
    qemu_img(&yard, "compare -q full.img full.qcow2");
    // What is behind a longer backing file does not come up.
    yard.random("base.img", 4 * MIB, 5);
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "top.qcow2", "1M"]).succeeded();
    image(&yard, ["resize", "--allow-dir", ".", "top.qcow2", "8M"]).succeeded();
    qemu_img(&yard, "check -q top.qcow2");
    image(&yard, ["convert", "--allow-dir", ".", "top.qcow2", "top.img"]).succeeded();
    let found = fs::read(yard.path("top.img")).unwrap();
    assert!(found[..1 << 20] == random_bytes(1 << 20, 5)[..] && found[1 << 20..].iter().all(|&byte| byte == 0));
}

#[test]
fn what_a_disk_grows_by_is_allocated_as_it_is_wanted() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    for (name, mode) in
        [("a.qcow2", "metadata"), ("a.qcow2", "falloc"), ("a.qcow2", "full"), ("a.img", "falloc"), ("a.img", "full")]
    {
        image(&yard, ["convert", "-q", "disk.img", name]).succeeded();
        image(&yard, ["resize", "--preallocation", mode, name, "+10M"]).succeeded();
        // Of the disk, 10 to 14 MiB have storage.
        let allocated = allocated_bytes(&yard.path(name));
        assert_eq!(allocated >= 20 * MIB, mode != "metadata", "{name}, {mode}: {allocated}");
        qemu_img(&yard, &format!("compare -q {name} -F raw disk.img"));
        if name.ends_with("qcow2") {
            qemu_img(&yard, &format!("check -q {name}"));
            let map = image(&yard, ["map", "--json", "--start-offset", "45M", name]).succeeded().json();
            assert_eq!(map[0]["present"], true, "{mode}: {map}");
        }
        image(&yard, ["resize", "--shrink", "--preallocation", mode, name, "1M"]).failed(2, &["larger"]);
    }
    image(&yard, ["resize", "--preallocation", "metadata", "a.img", "+1M"]).failed(2, &["raw"]);
}

/// What takes long ends by a signal, and the disk is what it was, with no more storage.
#[test]
fn a_resize_that_is_stopped_gives_back_what_it_had() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 7);
    for (name, mode) in [("a.qcow2", "full"), ("a.qcow2", "falloc"), ("a.img", "full")] {
        image(&yard, ["convert", "-q", "disk.img", name]).succeeded();
        let path = yard.path(name);
        let before = allocated_bytes(&path);
        let mut command = blockyard();
        command.args(["image", "resize", "--preallocation", mode, name, "+8G"]).current_dir(yard.path(""));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut has_ended = false;
        wait_until("storage", || {
            has_ended = child.try_wait().unwrap().is_some();
            has_ended || allocated_bytes(&path) > before + MIB
        });
        if !has_ended {
            kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
        let outcome = support::finish(child);
        image(&yard, ["compare", "-q", name, "disk.img"]).succeeded();
        let size = image(&yard, ["info", "--json", name]).succeeded().json()["virtual-size"].as_u64();
        // It may have been faster than the signal.
        if outcome.code == Some(0) {
            assert_eq!(size, Some(MIB + (8 << 30)), "{name}, {mode}");
        } else {
            outcome.failed(143, &["cannot change the size of", name, "stopped by SIGTERM"]);
            assert_eq!(size, Some(MIB), "{name}, {mode}");
            let kept = allocated_bytes(&path);
            // A block of refcounts and an L2 table may stay.
            assert!(kept <= before + MIB, "{name}, {mode}: {before} bytes became {kept}");
        }
        if name.ends_with("qcow2") {
            qemu_img(&yard, &format!("check -q {name}"));
        }
    }
}

/// The places that a larger disk had, or one that was not made in the end, are free, and no new ones: those that are to
/// be zeros take no storage all the same.
#[test]
fn places_that_were_used_before_become_zeros_without_storage() {
    let yard = Yard::new();
    fs::File::create(yard.path("zeros.img")).unwrap().set_len(200 * MIB).unwrap();
    for options in ["cluster_size=4K", "compat=0.10", "data_file=d.raw,data_file_raw=on"] {
        let _ = fs::remove_file(yard.path("d.raw"));
        image(&yard, ["create", "-q", "-f", "qcow2", "-o", options, "vm.qcow2", "200M"]).succeeded();
        let mut write = Command::new("qemu-io");
        write.current_dir(yard.path("")).args(["-f", "qcow2", "-c", "write -P 1 100M 8M", "vm.qcow2"]);
        run(write.stdout(Stdio::piped()).stderr(Stdio::piped())).succeeded();
        let resize =
            |more: &str, size: &str| image(&yard, ["resize", "-q", "--allow-dir", ".", more, "vm.qcow2", size]);
        resize("--shrink", "1M").succeeded();
        resize("--preallocation=metadata", "200M").succeeded();
        let files = ["vm.qcow2", "d.raw"].map(|name| yard.path(name)).into_iter().filter(|path| path.exists());
        let stored: u64 = files.map(|path| allocated_bytes(&path)).sum();
        assert!(stored < 6 * MIB, "{options}: {stored} bytes");
        qemu_img(&yard, "check -q vm.qcow2");
        image(&yard, ["compare", "-q", "--allow-dir", ".", "vm.qcow2", "zeros.img"]).succeeded();
    }
}

/// Whichever step fails: what is said of the size is so, and a data file ends where its disk does, or is said not to.
#[test]
fn a_resize_that_cannot_be_finished_is_told_as_one() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 8);
    let (mut begun, mut refused) = (0, 0);
    let metadata = Some("--preallocation=metadata");
    for (size, new_bytes, preallocation) in [("3M", 3 * MIB, None), ("512K", MIB / 2, None), ("3M", 3 * MIB, metadata)]
    {
        for failing in 1..12 {
            for name in ["vm.qcow2", "d.raw"] {
                let _ = fs::remove_file(yard.path(name));
            }
            image(&yard, ["convert", "-q", "-o", "data_file=d.raw", "disk.img", "vm.qcow2"]).succeeded();
            let failing = format!("fdatasync:error=EIO:when={failing}");
            let mut words = vec!["resize", "--allow-dir", ".", "--shrink", "vm.qcow2", size];
            words.extend(preallocation);
            let (code, said) = with_failing(&yard, &failing, None, &words);
            let info = image(&yard, ["info", "--json", "vm.qcow2"]).succeeded().json();
            let is_done = info["virtual-size"] == new_bytes;
            let data_bytes = fs::metadata(yard.path("d.raw")).unwrap().len();
            // What is left for another attempt is no damage.
            let checked = image(&yard, ["check", "-q", "--allow-dir", ".", "vm.qcow2"]);
            assert!(matches!(checked.code, Some(0 | 3)), "{size}, {failing}: {checked:?}");
            match code {
                Some(0) => assert!(is_done && data_bytes == new_bytes, "{size}, {failing}: {said}"),
                _ if is_done => {
                    assert!(said.contains("vm.qcow2 has its new size"), "{size}, {failing}: {said}");
                    assert!(said.contains("blockyard image check -r all"), "{said}");
                    begun += 1;
                }
                _ => {
                    assert!(said.contains("cannot change the size of vm.qcow2: Input/output error"), "{said}");
                    assert!(data_bytes == MIB || preallocation.is_some(), "{size}, {failing}: {data_bytes} bytes");
                    refused += 1;
                }
            }
        }
    }
    assert!(begun > 1 && refused > 0, "{begun}, {refused}");
}
