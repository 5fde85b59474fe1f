//! Bitmaps of what is written, inside of images: `image bitmap` beside qemu-img, and writes that keep them.

use super::*;

fn bitmaps(yard: &Yard, name: &str) -> Vec<(String, Vec<String>)> {
    qemu_img(yard, &format!("check -q {name}"));
    image(yard, ["check", name]).succeeded();
    let info = qemu_img(yard, &format!("info --output=json {name}")).json();
    let listed = info["format-specific"]["data"]["bitmaps"].as_array().cloned().unwrap_or_default();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let flags = |bitmap: &serde_json::Value| bitmap["flags"].as_array().unwrap().iter().map(text).collect();
    listed.iter().map(|bitmap| (text(&bitmap["name"]), flags(bitmap))).collect()
}

fn named(name: &str, flags: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), flags.iter().map(|&flag| flag.to_owned()).collect())
}

#[test]
fn a_write_keeps_bitmaps_and_leaks_nothing() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 4);
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 10M");
    qemu_img(&yard, "bitmap --add a.qcow2 one");
    qemu_img(&yard, "bitmap --add --disable a.qcow2 other");
    let wanted = [named("one", &["auto"]), named("other", &[])];
    for _ in 0..2 {
        assert_eq!(image(&yard, ["convert", "-n", "disk.img", "a.qcow2"]).succeeded().stderr, "");
        assert_eq!(bitmaps(&yard, "a.qcow2"), wanted);
    }
    image(&yard, ["resize", "a.qcow2", "20M"]).succeeded();
    assert_eq!(bitmaps(&yard, "a.qcow2"), wanted);
    // Reading leaves the image alone, and so does who opens it for writing and writes nothing.
    let before = fs::read(yard.path("a.qcow2")).unwrap();
    assert_eq!(image(&yard, ["convert", "a.qcow2", "out.img"]).succeeded().stderr, "");
    assert!(fs::read(yard.path("a.qcow2")).unwrap() == before);
}

#[test]
fn a_bitmap_that_cannot_be_kept_is_said_and_marked() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 4);
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 10M");
    qemu_img(&yard, "bitmap --add a.qcow2 one");
    let mut bytes = fs::read(yard.path("a.qcow2")).unwrap();
    let entry = bytes.windows(4).rposition(|bytes| bytes == b"one\0").unwrap() - 24;
    assert_eq!(bytes[entry + 17], 16);
    bytes[entry + 16] = 77; // Its type.
    fs::write(yard.path("a.qcow2"), bytes).unwrap();
    let said = image(&yard, ["convert", "-n", "disk.img", "a.qcow2"]).succeeded().stderr;
    assert!(
        said.contains("a.qcow2 has bitmaps of what changed that cannot be kept up to date here")
            && said.contains("one")
    );
    let again = image(&yard, ["convert", "-n", "disk.img", "a.qcow2"]).succeeded().stderr;
    assert_eq!(again, "", "it says it once");
    let info = image(&yard, ["info", "--json", "a.qcow2"]).succeeded().json();
    assert_eq!(info["format-specific"]["data"]["bitmaps"][0]["flags"], serde_json::json!(["in-use", "auto"]));
    image(&yard, ["bitmap", "--remove", "a.qcow2", "one"]).succeeded();
    assert_eq!(bitmaps(&yard, "a.qcow2"), []);
}

#[test]
fn bitmaps_are_changed_as_by_qemu_img() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 10M");
    qemu_img(&yard, "create -q -f qcow2 b.qcow2 10M");
    qemu_img(&yard, "bitmap --add b.qcow2 theirs");
    qemu_img(&yard, "bitmap --add b.qcow2 more");
    assert_eq!(image(&yard, ["bitmap", "--add", "-g", "4K", "a.qcow2", "ours"]).succeeded().stdout, "");
    // In their order: it is enabled in the end, and holds what was merged.
    let actions = ["--add", "--disable", "--merge", "ours", "--clear", "--enable", "a.qcow2", "second"];
    image(&yard, [&["bitmap"], &actions[..]].concat()).succeeded();
    let from = ["--disable", "--merge", "theirs", "--merge", "more", "-b", "b.qcow2", "-F", "qcow2", "a.qcow2", "ours"];
    image(&yard, [&["bitmap"], &from[..]].concat()).succeeded();
    assert_eq!(bitmaps(&yard, "a.qcow2"), [named("ours", &[]), named("second", &["auto"])]);
    let theirs = qemu_img(&yard, "info --output=json a.qcow2").json();
    let ours = image(&yard, ["info", "--json", "a.qcow2"]).succeeded().json();
    let key = |info: &serde_json::Value| info["format-specific"]["data"]["bitmaps"].clone();
    assert_eq!(key(&ours), key(&theirs));
    image(&yard, ["bitmap", "--remove", "a.qcow2", "ours"]).succeeded();
    qemu_img(&yard, "bitmap --remove a.qcow2 second");
    assert_eq!(bitmaps(&yard, "a.qcow2"), []);
}

#[test]
fn a_bitmap_that_cannot_be_had_is_said() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 b.qcow2 2M");
    qemu_img(&yard, "bitmap --add b.qcow2 one");
    yard.random("disk.img", MIB, 1);
    for (arguments, wanted) in [
        (&["--remove", "a.qcow2", "none"][..], "a.qcow2 has no bitmap \"none\""),
        (&["--add", "-g", "100", "a.qcow2", "one"], "a granularity of 100 bytes is not possible"),
        (&["--add", "disk.img", "one"], "disk.img: bitmaps are inside of qcow2 images, and this is raw"),
        (&["--add", "--merge", "one", "-b", "b.qcow2", "a.qcow2", "one"], "b.qcow2 has a disk of 2097152 bytes"),
        (&["--add", "--merge", "two", "-b", "b.qcow2", "a.qcow2", "one"], "b.qcow2 has no bitmap \"two\""),
        (&["--merge", "one", "-b", "disk.img", "a.qcow2", "one"], "disk.img: bitmaps are inside of qcow2 images"),
    ] {
        image(&yard, [&["bitmap"], arguments].concat()).failed(1, &[wanted]);
    }
    for (arguments, wanted) in [
        (&["a.qcow2", "one"][..], "required"),
        (&["--remove", "-g", "4K", "a.qcow2", "one"], "--add"),
        (&["--add", "-b", "b.qcow2", "a.qcow2", "one"], "--merge"),
    ] {
        image(&yard, [&["bitmap"], arguments].concat()).failed(2, &[wanted]);
    }
    assert_eq!(bitmaps(&yard, "a.qcow2"), []);
}

#[test]
fn another_backing_file_and_a_commit_keep_bitmaps() {
    let yard = Yard::new();
    for line in [
        "create -q -f qcow2 base.qcow2 10M",
        "create -q -f qcow2 other.qcow2 10M",
        "create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2",
        "bitmap --add top.qcow2 one",
        "bitmap --add base.qcow2 two",
    ] {
        qemu_img(&yard, line);
    }
    image(&yard, ["rebase", "--allow-dir", ".", "-b", "other.qcow2", "-F", "qcow2", "top.qcow2"]).succeeded();
    assert_eq!(bitmaps(&yard, "top.qcow2"), [named("one", &["auto"])]);
    image(&yard, ["rebase", "--allow-dir", ".", "-b", "base.qcow2", "-F", "qcow2", "top.qcow2"]).succeeded();
    image(&yard, ["commit", "--allow-dir", ".", "top.qcow2"]).succeeded();
    for (name, bitmap) in [("top.qcow2", "one"), ("base.qcow2", "two")] {
        assert_eq!(bitmaps(&yard, name), [named(bitmap, &["auto"])]);
    }
}

#[test]
fn a_converted_image_has_the_bitmaps_that_it_is_to_have() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 4);
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 10M");
    image(&yard, ["bitmap", "--add", "-g", "4K", "a.qcow2", "one"]).succeeded();
    image(&yard, ["bitmap", "--add", "a.qcow2", "two"]).succeeded();
    image(&yard, ["convert", "-q", "-n", "disk.img", "a.qcow2"]).succeeded();
    image(&yard, ["bitmap", "--disable", "a.qcow2", "two"]).succeeded();
    let both = [named("one", &["auto"]), named("two", &[])];
    let ours = image(&yard, ["measure", "-O", "qcow2", "--json", "a.qcow2"]).succeeded().json();
    let theirs = qemu_img(&yard, "measure -O qcow2 --output=json a.qcow2").json();
    assert!(ours["bitmaps"] == theirs["bitmaps"] && ours["bitmaps"].as_u64() > Some(0), "{ours} {theirs}");
    qemu_img(&yard, "create -q -f qcow2 -o cluster_size=4k base.qcow2 10M");
    for options in [&["-c"][..], &["-o", "cluster_size=512"], &["-B", "base.qcow2", "-F", "qcow2"]] {
        let words = [&["convert", "-q", "--bitmaps"], options, &["a.qcow2", "b.qcow2"]].concat();
        image(&yard, words).succeeded();
        assert_eq!(bitmaps(&yard, "b.qcow2"), both, "{options:?}");
        image(&yard, ["compare", "--allow-dir", ".", "a.qcow2", "b.qcow2"]).succeeded();
    }
    assert_eq!(bitmaps(&yard, "a.qcow2"), both);
    image(&yard, ["convert", "-q", "a.qcow2", "b.qcow2"]).succeeded();
    assert_eq!(bitmaps(&yard, "b.qcow2"), []);
    image(&yard, ["convert", "--bitmaps", "a.qcow2", "b.img"]).failed(2, &["--bitmaps is for a qcow2 image"]);
    image(&yard, ["convert", "--bitmaps", "disk.img", "b.qcow2"]).failed(2, &["--bitmaps is for a qcow2 image"]);
    image(&yard, ["convert", "--skip-broken-bitmaps", "a.qcow2", "b.qcow2"]).failed(2, &["--bitmaps"]);
    // One that nobody closed.
    let mut bytes = fs::read(yard.path("a.qcow2")).unwrap();
    let entry = bytes.windows(4).rposition(|bytes| bytes == b"one\0").unwrap() - 24;
    bytes[entry + 15] |= 1;
    fs::write(yard.path("a.qcow2"), bytes).unwrap();
    image(&yard, ["convert", "--bitmaps", "a.qcow2", "c.qcow2"]).failed(1, &["\"one\"", "--skip-broken-bitmaps"]);
    assert!(!yard.path("c.qcow2").exists());
    let words = ["convert", "-q", "--bitmaps", "--skip-broken-bitmaps", "a.qcow2", "c.qcow2"];
    let said = image(&yard, words).succeeded().stderr;
    assert!(said.contains("leaving out the bitmap \"one\""), "{said}");
    assert_eq!(bitmaps(&yard, "c.qcow2"), [named("two", &[])]);
}

/// Whichever step fails: what is said of the bitmaps is so.
#[test]
fn a_change_of_bitmaps_that_cannot_be_finished_is_told_as_one() {
    let yard = Yard::new();
    let (mut begun, mut refused) = (0, 0);
    for failing in 1..10 {
        image(&yard, ["create", "-q", "vm.qcow2", "1M"]).succeeded();
        image(&yard, ["bitmap", "--add", "vm.qcow2", "one"]).succeeded();
        let failing = format!("fdatasync:error=EIO:when={failing}");
        let (code, said) = with_failing(&yard, &failing, None, &["bitmap", "--disable", "vm.qcow2", "one"]);
        let info = qemu_img(&yard, "info --output=json vm.qcow2").json();
        let flags = info["format-specific"]["data"]["bitmaps"][0]["flags"].as_array().unwrap().len();
        match code {
            Some(0) => assert!(flags == 0 && said.is_empty(), "{failing}: {said}"),
            _ if flags == 0 => {
                assert!(said.contains("vm.qcow2 has its bitmaps as they were to be, but"), "{failing}: {said}");
                begun += 1;
            }
            _ => {
                assert!(
                    said.contains("cannot change the bitmaps of vm.qcow2: Input/output error"),
                    "{failing}: {said}"
                );
                refused += 1;
            }
        }
    }
    assert!(begun > 0 && refused > 0, "{begun}, {refused}");
}
