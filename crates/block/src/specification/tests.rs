use super::*;
use crate::layers::tests::rig::{AskedDisk, Rig, WRITE, segment, tokens};
use crate::{Disk, NullDisk};
use std::fs;
use std::sync::Arc;

fn parse(text: &str) -> DiskSpecification {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn complaint(text: &str) -> SpecificationError {
    text.parse::<DiskSpecification>().expect_err(text)
}

#[test]
fn what_has_no_kind_is_a_file() {
    for (text, path) in [
        ("disk.img", "disk.img"),
        ("/dev/nvme0n1", "/dev/nvme0n1"),
        ("file:a:b", "a:b"),
        ("./a:b", "./a:b"),
        ("/a:b/c", "/a:b/c"),
        ("file:file:x", "file:x"),
        ("mem", "mem"),
        ("a,,b", "a,b"),
        (",,,,", ",,"),
        ("a,,,ro", "a,"),
        ("my disk=1.img", "my disk=1.img"),
        ("f\u{fc}r.img", "f\u{fc}r.img"),
    ] {
        let specification = parse(text);
        assert_eq!((specification.kind(), specification.path()), (Kind::File, Some(Path::new(path))), "{text}");
    }
}

#[test]
fn kinds_take_keys_that_there_are() {
    let names: Vec<_> = super::keys::KEYS.iter().map(|key| key.name).collect();
    for kind in Kind::ALL {
        assert!(kind.keys().own.iter().all(|own| names.contains(own)), "{kind:?}");
    }
}

#[test]
fn every_kind_and_every_key_is_understood() {
    let kinds = ["disk.img", "session:/run/a.sock", "mem:1G", "null:8G"].map(|text| parse(text).kind());
    assert_eq!(kinds, Kind::ALL);
    for text in [
        "a.img,format=qcow2,ro,direct,engine=sync,cache=unsafe,block-size=4096,partition=8,table=gpt,overlay=d.qcow2",
        "a.img,snapshot,iops=500,bps=100M,burst=2s,latency=5ms-20ms,faults=read-error:0.01+latency:5ms+seed:7",
        "session:/run/a.sock,ro,io-buffer=128K,partition=1,table=mbr,iops=1",
        "mem:1G,block-size=4096,bps=1536",
        "null:8G,ro,latency=1us",
    ] {
        assert_eq!(parse(text).to_string(), text);
    }
}

#[test]
fn a_specification_is_written_as_short_as_it_can_be() {
    for (text, shortest) in [
        ("file:disk.img,engine=auto,block-size=512", "disk.img,engine=auto,block-size=512"),
        ("disk.img,iops=10,burst=100ms", "disk.img,iops=10"),
        ("mem:1048576K", "mem:1G"),
        ("file:./a:b,ro", "./a:b,ro"),
        ("file:a:b", "file:a:b"),
        ("null:1T,bps=1024,ro", "null:1T,ro,bps=1K"),
        ("a,,,overlay=,,x,,", "a,,,overlay=,,x,,"),
        ("file:-", "file:-"),
        ("./-", "./-"),
    ] {
        assert_eq!(parse(text).to_string(), shortest);
    }
}

#[test]
fn an_error_shows_the_place() {
    assert_eq!(
        complaint("disk.img,ro,fromat=raw").to_string(),
        "there is no key 'fromat'; did you mean 'format'? a file takes format, snapshot-name, key-file, backing-key-file, disk, ro, direct, engine, cache, block-size, \
         partition, table, overlay, snapshot, iops, bps, burst, latency, faults\n  \
         disk.img,ro,fromat=raw\n              ^^^^^^"
    );
    assert_eq!(
        complaint("d\u{fc}.img,iops=0").to_string(),
        "iops: '0' is not a whole number from 1 to 1000000000\n  d\u{fc}.img,iops=0\n              ^"
    );
    assert_eq!(complaint("a\u{1b}[2J,x\n=1").to_string().lines().nth(1).unwrap(), "  a\u{fffd}[2J,x\u{fffd}=1");
}

#[test]
fn what_makes_no_sense_is_refused_where_it_stands() {
    for (text, part, word) in [
        ("", "", "a disk needs the path"),
        (",ro", "", "a disk needs the path"),
        ("file:", "file:", "a disk needs the path"),
        ("mem:,ro", "mem:", "such as mem:1G"),
        (
            "nbd:x",
            "nbd",
            "there is no kind 'nbd', only file, session, mem and null; a file of this name is written file:nbd:x or ./nbd:x",
        ),
        ("sesion:/run/a.sock", "sesion", "did you mean 'session:'"),
        ("a,,b:c,,d,ro", "a,,b", "file:a,,b:c,,d"),
        ("mem:lots", "lots", "mem: 'lots' is not a size"),
        ("mem:0", "0", "at least 1 byte"),
        ("null:8388608T", "8388608T", "less than 8388608T"),
        ("a,", "", "nothing between two commas"),
        ("a,ro,", "", "nothing between two commas"),
        ("a,ro=yes", "ro=yes", "'ro' takes no value"),
        (
            "a,format",
            "format",
            "'format' needs a value: format=raw, qcow2, luks, vmdk, vdi, vpc, vhdx, qed, parallels or ova",
        ),
        ("a,format=", "format=", "needs a value"),
        (
            "a,format=qcow",
            "qcow",
            "there is no 'qcow', only raw, qcow2, luks, vmdk, vdi, vpc, vhdx, qed, parallels and ova",
        ),
        ("a,engine=aio", "aio", "only auto, uring, threads and sync"),
        ("a,cache=none", "none", "only unsafe"),
        ("a,block-size=1000", "1000", "a power of two from 512 to 65536"),
        ("a,block-size=128K", "128K", "a power of two"),
        ("a,partition=0", "0", "from 1"),
        ("a,partition=-1", "-1", "from 1"),
        ("a,table=gpt", "table", "give partition= too"),
        ("a,partition=1,table=bsd", "bsd", "only mbr and gpt"),
        ("a,bps=0", "0", "at least 1"),
        ("a,bps=fast", "fast", "not a size"),
        ("a,burst=1s", "burst", "give iops= or bps= too"),
        ("a,iops=1,burst=2h", "2h", "not a time"),
        ("a,iops=1,burst=3601s", "3601s", "longer than 3600s"),
        ("a,latency=5", "5", "not a time"),
        ("a,ro,direct,ro", "ro", "twice"),
        ("a,iops=1,iops=1", "iops", "twice"),
        ("a,overlay=b,snapshot", "snapshot", "'overlay' and 'snapshot' contradict each other"),
        ("a,snapshot,overlay=b", "overlay", "contradict"),
        ("a,snapshot,ro", "ro", "contradict"),
        ("mem:1G,direct", "direct", "'direct' is not for a mem: disk, which takes ro, block-size, iops"),
        ("session:/s,engine=sync", "engine", "'engine' is not for a session: disk"),
        ("session:/s,io-buffer=1K", "1K", "from 4K to 1G"),
        ("a,io-buffer=1M", "io-buffer", "'io-buffer' is not for a file"),
        ("null:1G,partition=1", "partition", "is not for a null: disk"),
        ("a,b.img", "b.img", "a comma that belongs to the path is written twice"),
        ("a,snapshto", "snapshto", "did you mean 'snapshot'"),
        ("a,ROO", "ROO", "a file takes format, snapshot-name, key-file, backing-key-file, disk, ro"),
        ("a.ova,disk=0", "0", "not the number of a disk, from 1"),
        ("a,r,,o", "r,,o", "there is no key 'r,o'"),
        ("a,faults=error:1+eror:1", "eror:1", "faults: 'eror' is not a fault"),
        ("a,faults=error:,,", "error:,,", "faults: ','"),
        ("-", "-", "a file of that name is ./-"),
        ("-,ro", "-", "stdin and stdout are no disks"),
        ("a\0b", "a\0b", "zero byte"),
        ("a,overlay=\0", "\0", "zero byte"),
    ] {
        let error = complaint(text);
        assert_eq!(&text[error.span()], part, "{text:?}");
        assert!(error.message().contains(word), "{text:?}: {error}");
    }
}

#[test]
fn saying_read_only_spares_the_snapshot() {
    assert_eq!(parse("a,snapshot").read_only().to_string(), "a,ro");
    assert_eq!(parse("a,overlay=b").read_only().to_string(), "a,ro,overlay=b");
}

fn open(text: &str) -> Result<Arc<dyn Disk>, String> {
    parse(text).open(&OpenContext::default()).map(|opened| opened.disk).map_err(|error| crate::explain(&error))
}

#[test]
fn a_disk_in_memory_and_one_that_holds_nothing_are_opened() {
    let geometry = |text| open(text).unwrap().geometry();
    assert_eq!((geometry("mem:1M").capacity_bytes, geometry("mem:1M").logical_block_bytes), (1 << 20, 512));
    assert_eq!(geometry("null:8G,block-size=4096").logical_block_bytes, 4096);
    assert!(!geometry("mem:1M").read_only && geometry("mem:1M,ro").read_only);
    assert_eq!(geometry("mem:1M,ro,iops=5,latency=1ms,faults=error:1"), geometry("mem:1M,ro"));
    assert_eq!(geometry("null:8G,ro").capacity_bytes, 8 << 30);
}

#[test]
fn a_file_is_opened_as_its_specification_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a,b.img");
    fs::write(&path, [1; 5000]).unwrap();
    let text = path.to_str().unwrap().replace(',', ",,");
    let geometry = open(&format!("{text},block-size=4K,engine=sync")).unwrap().geometry();
    assert_eq!((geometry.capacity_bytes, geometry.logical_block_bytes, geometry.read_only), (8192, 4096, false));
    assert!(open(&format!("{text},ro")).unwrap().geometry().read_only);
    let read_only = OpenContext { read_only: true, ..OpenContext::default() };
    assert!(parse(&text).open(&read_only).unwrap().disk.geometry().read_only);
    let missing = open(&format!("{text}.not")).err().unwrap();
    assert!(missing.contains("a,b.img.not") && missing.contains("No such file"), "{missing}");
}

#[test]
fn contents_that_contradict_the_name_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        fs::write(&path, [bytes, &[0; 4096]].concat()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [qcow2, sparse, text] = [&b"QFI\xfb\0\0\0\x03"[..], b"KDMV\x01\0\0\0", b"# Disk DescriptorFile\nversion=1\n"];
    let refused = |text: String| open(&text).err().unwrap_or_else(|| panic!("{text} was opened"));
    for (name, bytes, keys, words) in [
        (
            "1.img",
            qcow2,
            "",
            "begins like a qcow2 image, but its name does not say so: add ,format=qcow2 if it is one, or ,format=raw if these bytes are the disk's own",
        ),
        ("2.img", sparse, "", "begins like a vmdk image"),
        ("3.img", text, "", "begins like a vmdk image"),
        (
            "4.qcow2",
            &[0; 8],
            "",
            "does not begin like a qcow2 image, though its name says so: add ,format=raw if it is one",
        ),
        (
            "5.qcow2",
            text,
            "",
            "does not begin like a qcow2 image, though its name says so: add ,format=vmdk if it is one",
        ),
        ("6.vmdk", &[0; 8], "", "does not begin like a vmdk image"),
        (
            "dmg.img",
            b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0\x0c\0",
            "",
            "begins like Android sparse image, which is not supported: convert it with `qemu-img convert`, or add ,format=raw if",
        ),
        (
            "gz.img",
            b"\x1f\x8b\x08\0",
            "",
            "begins like gzip, which its name does not say: a conversion or a copy of all of it reads it with ,format=raw.gz",
        ),
        ("1.dmg", &[0; 8], "", "is Apple disk image (dmg) by its name, which is not supported: convert it"),
        ("1.vdi", &[0; 8], "", "does not begin like a vdi image, though its name says so: add ,format=raw"),
        ("2.DMG", qcow2, "", "begins like a qcow2 image, but its name does not say so: add ,format=qcow2"),
        ("2.VDI", qcow2, "", "does not begin like a vdi image, though its name says so: add ,format=qcow2"),
        ("3.qcow2", b"VMA\0\0\0\0\x01", "", "begins like Proxmox backup (VMA)"),
        (
            "4.dmg",
            &[0; 8],
            ",format=qcow2",
            "does not begin like a qcow2 image, as is said of it: say that it is raw if it is one",
        ),
        ("7.img", &[0; 8], ",format=qcow2", "does not begin like a qcow2 image, as is said of it"),
        ("8.img", qcow2, ",format=vmdk", "does not begin like a vmdk image"),
    ] {
        let message = refused(file(name, bytes) + keys);
        assert!(message.contains(words), "{name}{keys}: {message}");
    }
    for (name, bytes, keys) in [
        ("5.vma", &b"VMA\0\0\0\0\x01"[..], ",format=raw"),
        ("12.img", qcow2, ",format=raw"),
        ("13.qcow2", qcow2, ",format=raw"),
        ("14.raw", &[0; 8], ""),
        ("15", b"", ""),
    ] {
        open(&(file(name, bytes) + keys)).unwrap();
    }
    // These are taken for what they say, and found to be cut short.
    for (name, bytes, keys) in [("16.QCOW2", qcow2, ""), ("17.img", qcow2, ",format=qcow2"), ("18.vmdk", text, "")] {
        let message = refused(file(name, bytes) + keys);
        assert!(message.contains(name) && !message.contains("begin"), "{message}");
    }
}

#[test]
fn an_image_and_a_delta_on_it_are_opened() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (image, delta) = (path("base.qcow2"), path("delta.qcow2"));
    crate::Qcow2Disk::create(Path::new(&image), &crate::Qcow2CreateOptions::new(1 << 20)).unwrap();
    let write = |text: &str, value: u8| {
        let disk = open(text).unwrap_or_else(|message| panic!("{text}: {message}"));
        Rig::new(&*disk, 1).write(4096, &[value; 512]).unwrap();
    };
    let read = |text: &str| crate::read_bytes(&*open(text).unwrap(), 4096..4608).unwrap()[0];
    write(&image, 1);
    write(&format!("{image},snapshot"), 2);
    write(&format!("{image},overlay={delta},cache=unsafe"), 3);
    assert_eq!((read(&format!("{image},ro")), read(&format!("{image},ro,overlay={delta}"))), (1, 3));
    write(&format!("{image},overlay={delta},block-size=4096"), 4);
    assert_eq!((read(&image), read(&format!("{image},overlay={delta}"))), (1, 4));
}

/// An MBR with one partition, of blocks 9 to 14, which are no whole pages (Extended Firmware Interface 2.10, section
/// 5.2.1).
fn disk_with_a_partition() -> Vec<u8> {
    let mut bytes = vec![0; 16 * 512];
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..][..4].copy_from_slice(&9u32.to_le_bytes());
    bytes[446 + 12..][..4].copy_from_slice(&6u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes[9 * 512..15 * 512].fill(0xcc);
    bytes
}

#[test]
fn a_partition_is_opened_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, disk_with_a_partition()).unwrap();
    let path = path.to_str().unwrap();
    for keys in ["", ",direct"] {
        let disk = open(&format!("{path},partition=1,ro{keys}")).unwrap();
        assert_eq!((disk.geometry().capacity_bytes, disk.geometry().read_only), (3072, true));
        assert!(crate::read_bytes(&*disk, 0..3072).unwrap().iter().all(|&byte| byte == 0xcc));
    }
    Rig::new(&*open(&format!("{path},partition=1,direct")).unwrap(), 1).write(512, &[0xdd; 1024]).unwrap();
    let expected = [vec![0xcc; 512], vec![0xdd; 1024], vec![0xcc; 1536], vec![0; 512]].concat();
    assert_eq!(fs::read(path).unwrap()[9 * 512..], expected);
    let absent = open(&format!("{path},partition=7")).err().unwrap();
    assert!(absent.contains("partition 7"), "{absent}");
    let no_gpt = open(&format!("{path},partition=1,table=gpt")).err().unwrap();
    assert!(no_gpt.contains("no GPT"), "{no_gpt}");
}

#[test]
fn a_session_is_reached_by_whoever_knows_how() {
    let connect = |session: &SessionSpecification| -> Result<Arc<dyn Disk>, OpenError> {
        assert_eq!((session.path.as_path(), session.io_buffer_bytes), (Path::new("/run/a.sock"), Some(131_072)));
        Ok(Arc::new(NullDisk::new(1 << 20, 512).unwrap()))
    };
    let context = OpenContext { connect: &connect, ..OpenContext::default() };
    let disk = parse("session:/run/a.sock,ro,io-buffer=128K").open(&context).unwrap().disk;
    assert!(disk.geometry().read_only && disk.geometry().capacity_bytes == 1 << 20);
    assert_eq!(open("session:/run/a.sock").err().unwrap(), "a session: there are none here");
}

#[test]
fn what_others_write_is_gathered_where_that_is_asked_for() {
    let below = AskedDisk::new(1 << 20);
    let connect = |_: &SessionSpecification| -> Result<Arc<dyn Disk>, OpenError> { Ok(Arc::new(below.clone())) };
    for (gathers, requests) in [(true, 1), (false, 2)] {
        let context = OpenContext { connect: &connect, gathers, ..OpenContext::default() };
        let disk = parse("session:/run/a.sock").open(&context).unwrap().disk;
        let mut rig = Rig::new(&*disk, 8);
        for token in 0..2 {
            rig.push(WRITE, token * 4096, &[segment(token * 4096, 4096)], token).unwrap();
        }
        assert_eq!(tokens(&rig.submit_and_reap()), [0, 1]);
        assert_eq!(below.take_asked().len(), requests);
    }
}

/// What holds for every text.
fn check(text: &str) {
    match text.parse::<DiskSpecification>() {
        Ok(specification) => {
            let written = specification.to_string();
            assert_eq!(written.parse(), Ok(specification), "{text:?} was written as {written:?}");
            assert_eq!(parse(&written).to_string(), written);
        }
        Err(error) => {
            assert!(text.get(error.span()).is_some(), "{:?} of {text:?}", error.span());
            let shown = error.to_string();
            assert!(shown.lines().count() == 3 && shown.ends_with('^') && !error.message().is_empty(), "{shown}");
        }
    }
}

#[test]
fn fuzz_any_text_is_refused_or_written_back_the_same() {
    blockyard_fuzz::check!(40_000).with_type::<Vec<u8>>().for_each(|bytes| check(&String::from_utf8_lossy(bytes)));
}

/// What specifications are made of, and what trips over them.
const PIECES: [&str; 64] = [
    "disk.img",
    "file:",
    "session:",
    "mem:",
    "null:",
    "nbd:",
    ":",
    "/",
    ",table=mbr",
    ",",
    ",,",
    "=",
    ",ro",
    ",format=",
    "raw",
    "qcow2",
    "vmdk",
    ",direct",
    ",engine=",
    "auto",
    "uring",
    "threads",
    "sync",
    ",cache=",
    "unsafe",
    ",block-size=",
    "512",
    "4K",
    ",io-buffer=",
    "128K",
    ",partition=",
    "1",
    "0",
    ",overlay=",
    ",snapshot",
    ",iops=",
    ",bps=",
    ",burst=",
    ",latency=",
    "5ms",
    "100us",
    "2s",
    "-",
    ",faults=",
    "error:",
    "read-error:",
    "write-",
    "latency:",
    "torn-write:",
    "silent-torn-write:",
    "lost-write:",
    "full:",
    "+",
    "+seed:",
    "0.01",
    "100th",
    "1M-2M",
    "1G",
    "8T",
    "x",
    "\u{fc}",
    "\0",
    " ",
    "18446744073709551615",
];

#[test]
fn fuzz_specifications_of_known_pieces_are_refused_or_written_back_the_same() {
    blockyard_fuzz::check!(40_000).with_type::<Vec<u8>>().for_each(|choices| {
        let pieces: Vec<_> = choices.iter().map(|&choice| PIECES[usize::from(choice) % PIECES.len()]).collect();
        check(&pieces.concat());
    });
}

#[test]
fn what_is_said_besides_is_what_one_more_key_says() {
    for text in
        ["a.img", "a.qcow2", "file:a:b,ro", "./-", "a,,b,snapshot", "a.img,direct,partition=2,faults=read-error:1"]
    {
        for format in Format::ALL {
            assert_eq!(parse(text).with_format(format).unwrap(), parse(&format!("{text},format={}", format.word())));
            assert_eq!(parse(text).with_format_named(format.word()), parse(text).with_format(format));
        }
        assert_eq!(parse(text).with_cache_unsafe().unwrap(), parse(&format!("{text},cache=unsafe")));
    }
    assert_eq!(parse("a.img,partition=2").with_direct().unwrap(), parse("a.img,partition=2,direct"));
    let session = parse("session:/run/a.sock,ro");
    assert_eq!(session.with_io_buffer(8192).unwrap(), parse("session:/run/a.sock,ro,io-buffer=8K"));
}

#[test]
fn what_is_said_besides_is_refused_as_one_more_key_is() {
    for text in ["a.img,format=raw", "a,,b,format=qcow2,ro", "session:/run/a.sock", "mem:1G,ro", "null:8G"] {
        let refused = parse(text).with_format(Format::Raw).unwrap_err();
        assert_eq!(refused, complaint(&format!("{text},format=raw")));
    }
    for text in ["a.img,cache=unsafe", "session:/run/a.sock,io-buffer=4K", "mem:1G", "null:8G,block-size=4096"] {
        let refused = parse(text).with_cache_unsafe().unwrap_err();
        assert_eq!(refused, complaint(&format!("{text},cache=unsafe")));
    }
    for text in ["a.img,direct", "session:/run/a.sock", "mem:1G"] {
        assert_eq!(parse(text).with_direct().unwrap_err(), complaint(&format!("{text},direct")));
    }
    for (text, bytes) in
        [("session:/a", 512), ("session:/a", 2 << 30), ("session:/a,io-buffer=4K", 4096), ("a.img", 4096)]
    {
        let refused = parse(text).with_io_buffer(bytes).unwrap_err();
        assert_eq!(refused, complaint(&format!("{text},io-buffer={bytes}")));
    }
    assert_eq!(parse("a.img").with_format_named("dmg").unwrap_err(), complaint("a.img,format=dmg"));
}

#[test]
fn a_file_alone_has_a_format_at_most() {
    for text in ["a.img", "file:a:b", "a,,b,format=vmdk", "a,,,format=raw"] {
        let named = parse(text);
        assert_eq!(named.file_alone(), named.path(), "{text}");
        assert!(named.file_alone().is_some());
    }
    for more in [
        "ro",
        "direct",
        "engine=auto",
        "cache=unsafe",
        "block-size=512",
        "partition=1",
        "overlay=b",
        "snapshot",
        "iops=1",
        "bps=1",
        "latency=0s",
        "faults=read-error:0",
    ] {
        assert_eq!(parse(&format!("a.img,{more},format=raw")).file_alone(), None, "{more}");
    }
    assert!(["session:/a", "mem:1G", "null:1G"].into_iter().all(|text| parse(text).file_alone().is_none()));
    assert_eq!(DiskSpecification::of_file("a,b"), parse("a,,b"));
    assert_eq!(DiskSpecification::of_session("/a,b"), parse("session:/a,,b"));
    assert_eq!(DiskSpecification::of_nothing(8 << 30), parse("null:8G"));
}
