//! Images that are damaged, or somebody else's for now.

use super::*;

#[test]
fn bad_images_are_one_sentence_and_leave_nothing() {
    let yard = Yard::new();
    yard.random("noise.qcow2", 100_000, 1);
    fs::write(yard.path("empty.qcow2"), "").unwrap();
    image(&yard, ["create", "-q", "good.qcow2", "64M"]).succeeded();
    let header = fs::read(yard.path("good.qcow2")).unwrap();
    fs::write(yard.path("short.qcow2"), &header[..80]).unwrap();
    fs::write(yard.path("called.img"), &header).unwrap();
    let mut absurd = header.clone();
    absurd[24..32].copy_from_slice(&(u64::MAX - 511).to_be_bytes());
    fs::write(yard.path("absurd.qcow2"), &absurd).unwrap();
    let mut wide = header.clone();
    wide[20..24].copy_from_slice(&60_u32.to_be_bytes());
    fs::write(yard.path("wide.qcow2"), &wide).unwrap();
    fs::create_dir(yard.path("directory.img")).unwrap();
    let names = yard.names();
    for (name, word) in [
        ("noise.qcow2", "qcow2"),
        ("empty.qcow2", "qcow2"),
        ("short.qcow2", "cut off"),
        ("called.img", "format=qcow2"),
        ("absurd.qcow2", "claims"),
        ("wide.qcow2", "clusters"),
        ("directory.img", "directory"),
        ("absent.img", "absent"),
    ] {
        if name != "directory.img" && name != "absent.img" {
            // It is looked at, and what other commands will say is said.
            let info = image(&yard, ["info", name]).succeeded().stdout;
            assert!(info.contains("not usable here: ") && info.contains(word), "{name}: {info}");
        }
        image(&yard, ["map", name]).failed(1, &[name, word]);
        image(&yard, ["convert", name, "out.qcow2"]).failed(1, &[name, word]);
        image(&yard, ["compare", name, "good.qcow2"]).failed(2, &[name, word]);
        image(&yard, ["resize", name, "1G"]).failed(1, &[name, word]);
    }
    for name in ["directory.img", "absent.img"] {
        image(&yard, ["info", name]).failed(1, &[name]);
    }
    image(&yard, ["convert", "good.qcow2", "directory.img"]).failed(1, &["directory"]);
    image(&yard, ["convert", "good.qcow2", "absent/out.img"]).failed(1, &["absent"]);
    image(&yard, ["convert", "good.qcow2", "good.qcow2"]).failed(1, &["same"]);
    image(&yard, ["create", "x.qcow2", "8000X"]).failed(2, &["size"]);
    image(&yard, ["create", "x.qcow2", "8000000T"]).failed(1, &["not possible"]);
    image(&yard, ["create", "x.img", "9E"]).failed(1, &["x.img", "File too large"]);
    image(&yard, ["create", "x.img", "-o", "size=5M", "1M"]).failed(2, &["contradict"]);
    image(&yard, ["create", "x.qed", "1G"]).failed(2, &["QED"]);
    assert_eq!(yard.names(), names);
}

/// What would come to nothing is not taken without a word.
#[test]
fn how_a_disk_is_used_is_not_said_of_a_new_image() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 1);
    let names = yard.names();
    for key in ["bps=1M", "latency=1s", "ro", "engine=sync", "cache=unsafe", "direct", "block-size=4K"] {
        for new in ["new.img", "new.qcow2"] {
            let (name, expected) = (format!("{new},{key}"), [new, "new image", "format=FORMAT and key-file=FILE"]);
            image(&yard, ["convert", "disk.img", &name]).failed(2, &expected);
            image(&yard, ["dd", "if=disk.img", &format!("of={name}")]).failed(2, &expected);
            image(&yard, ["create", &name, "1M"]).failed(2, &[&name]);
        }
    }
    assert_eq!(yard.names(), names);
    image(&yard, ["convert", "disk.img", "new.img"]).succeeded();
    image(&yard, ["convert", "-n", "disk.img", "new.img,engine=sync"]).succeeded();
}

/// What cannot be looked at is not taken for a raw disk: neither its beginning, nor where only its end would say more.
#[test]
fn a_file_that_cannot_be_read_is_no_raw_disk() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 1);
    image(&yard, ["convert", "-q", "-O", "qcow2", "disk.img", "q"]).succeeded();
    let before = fs::read(yard.path("q")).unwrap();
    let failing = |name: &str, call: &str, words: &[&str]| {
        with_failing(&yard, &format!("{call}:error=EIO:when=1"), Some(name), words)
    };
    for words in [&["convert", "-n", "disk.img", "q"][..], &["convert", "q", "out.img"]] {
        let (code, said) = failing("q", "read", words);
        assert!(code == Some(1) && said.contains("q cannot be read where it would show its format"), "{said}");
        assert!(!yard.path("out.img").exists() && fs::read(yard.path("q")).unwrap() == before);
    }
    // What it begins with says enough.
    let (code, said) = failing("q", "pread64", &["convert", "q", "out.img"]);
    assert!(code == Some(1) && said.contains("begins like a qcow2 image"), "{said}");
    let (code, said) = failing("disk.img", "pread64", &["convert", "disk.img", "out.img"]);
    assert!(code == Some(1) && said.contains("disk.img cannot be read where"), "{said}");
    assert!(said.contains("add ,format=raw"), "{said}");
    assert!(!yard.path("out.img").exists());
    image(&yard, ["convert", "-q", "-f", "raw", "disk.img", "out.img"]).succeeded();
}

#[test]
fn an_image_in_use_is_left_alone_and_info_says_by_whom() {
    let yard = Yard::new();
    image(&yard, ["create", "-q", "used.qcow2", "64M"]).succeeded();
    image(&yard, ["create", "-q", "other.qcow2", "1M"]).succeeded();
    let socket = yard.path("socket");
    let mut server = Command::new("qemu-storage-daemon");
    server.current_dir(yard.path("")).args(["--blockdev", "driver=file,node-name=file,filename=used.qcow2"]);
    server.args(["--blockdev", "driver=qcow2,node-name=disk,file=file", "--nbd-server"]);
    server.arg(format!("addr.type=unix,addr.path={}", socket.display()));
    server.args(["--export", "nbd,id=export,node-name=disk,writable=on"]);
    let mut server = server.spawn().expect("install qemu-system-common, which has qemu-storage-daemon");
    support::wait_until("the server listens", || socket.exists());
    let info = image(&yard, ["info", "used.qcow2"]).succeeded();
    let refusals = [
        image(&yard, ["convert", "other.qcow2", "used.qcow2"]),
        image(&yard, ["create", "used.qcow2", "1M"]),
        image(&yard, ["resize", "used.qcow2", "1G"]),
        image(&yard, ["convert", "used.qcow2", "x.img"]),
    ];
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(info.stdout.contains("in use for writing: by qemu-storage"), "{info:?}");
    for refusal in refusals {
        refusal.failed(1, &["used.qcow2", "qemu-storage"]);
    }
    assert!(!yard.path("x.img").exists());
    image(&yard, ["create", "used.qcow2", "1M"]).succeeded();
}

#[test]
fn an_image_that_is_served_is_refused_by_name() {
    let yard = Yard::new();
    yard.random("base.img", 4 * MIB, 1);
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "used.qcow2"]).succeeded();
    let (used, socket, directory) = (yard.path("used.qcow2"), yard.path("socket"), yard.path(""));
    let arguments =
        [used.as_os_str(), "--socket".as_ref(), socket.as_os_str(), "--allow-dir".as_ref(), directory.as_os_str()];
    let server = server::Server::start(&arguments, &socket);
    let holder = format!("blockyard (process {}) has it open", server.id().as_raw_nonzero());
    for arguments in [
        &["check", "used.qcow2"][..],
        &["check", "-r", "leaks", "used.qcow2"],
        &["commit", "--allow-dir", ".", "used.qcow2"],
        &["rebase", "--allow-dir", ".", "-b", "", "used.qcow2"],
        &["rebase", "-u", "-b", "other", "-F", "raw", "used.qcow2"],
        &["resize", "--allow-dir", ".", "used.qcow2", "1G"],
        &["map", "--allow-dir", ".", "used.qcow2"],
        &["ls", "--allow-dir", ".", "used.qcow2"],
        &["mkdir", "--allow-dir", ".", "--atomic", "used.qcow2", "/x"],
        &["create", "used.qcow2", "1M"],
        &["resize", "base.img", "1G"],
    ] {
        image(&yard, arguments).failed(1, &["is in use: ", &holder]);
    }
    image(&yard, ["check", "-U", "used.qcow2"]).succeeded();
    server.stop();
    image(&yard, ["check", "used.qcow2"]).succeeded();
}

#[test]
fn checks_end_as_qemu_imgs_do() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img good.qcow2");
    let good = fs::read(yard.path("good.qcow2")).unwrap();
    let number = |at: usize| u64::from_be_bytes(good[at..at + 8].try_into().unwrap()) as usize;
    let refblock = number(number(48));
    let checked = |code: i32, what: &str, qemu: bool| {
        let ours = image(&yard, ["check", "bad.qcow2"]).failed(code, &[what]);
        if qemu {
            let mut theirs = Command::new("qemu-img");
            theirs.args(["check", "bad.qcow2"]).current_dir(yard.path(""));
            let theirs = theirs.output().expect("install qemu-utils");
            assert_eq!(theirs.status.code(), Some(code));
            assert_eq!(ours.stdout, String::from_utf8(theirs.stdout).unwrap());
        }
    };
    // A cluster that nobody uses, one that is said to be free, and both repaired.
    let mut bytes = good.clone();
    let clusters = good.len() / 65536;
    bytes.resize((clusters + 1) * 65536, 0);
    bytes[refblock + clusters * 2 + 1] = 1;
    fs::write(yard.path("bad.qcow2"), &bytes).unwrap();
    checked(3, "Leaked cluster", true);
    let json = image(&yard, ["check", "--json", "bad.qcow2"]).failed(3, &[]).json();
    let mut theirs = Command::new("qemu-img");
    theirs.args(["check", "--output=json", "bad.qcow2"]).current_dir(yard.path(""));
    assert_eq!(json, serde_json::from_slice::<serde_json::Value>(&theirs.output().unwrap().stdout).unwrap());
    bytes[refblock + 7] = 0;
    fs::write(yard.path("bad.qcow2"), &bytes).unwrap();
    checked(2, "ERROR cluster 3 refcount=0 reference=1", true);
    image(&yard, ["check", "-r", "leaks", "bad.qcow2"]).failed(2, &["Repairing cluster"]);
    let repaired = image(&yard, ["check", "-r", "all", "bad.qcow2"]).succeeded();
    assert!(repaired.stdout.contains("found and repaired") && repaired.stdout.contains("No errors"), "{repaired:?}");
    qemu_img(&yard, "check -q bad.qcow2");
    qemu_img(&yard, "compare -q -f raw -F qcow2 disk.img bad.qcow2");
    let raw = image(&yard, ["check", "disk.img"]).failed(63, &[]);
    assert!(raw.stdout.contains("does not support checks"), "{raw:?}");
    image(&yard, ["check", "-q", "good.qcow2"]).succeeded();
    image(&yard, ["check", "absent.qcow2"]).failed(1, &["absent.qcow2"]);
    image(&yard, ["check", "--no-such-option", "good.qcow2"]).failed(2, &[]);
    image(&yard, ["check", "-U", "-r", "all", "good.qcow2"]).failed(2, &[]);
}
