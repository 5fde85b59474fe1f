//! What `convert` reads: several disks, and files that have to have certain bytes.

use super::*;

fn digest(yard: &Yard, name: &str) -> String {
    let said = Command::new("sha256sum").arg(yard.path(name)).output().unwrap().stdout;
    String::from_utf8(said).unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn disks_are_converted_one_behind_the_other() {
    let yard = Yard::new();
    mixed(&yard, "a.img");
    fs::write(yard.path("b.img"), random_bytes(5 * 512, 3)).unwrap();
    qemu_img(&yard, "convert -f raw -O qcow2 b.img b.qcow2");
    image(&yard, ["convert", "a.img", "b.qcow2", "null:3M", "b.img", "all.qcow2"]).succeeded();
    let zeros = vec![0; 3 << 20];
    let parts = ["a.img", "b.img"].map(|name| fs::read(yard.path(name)).unwrap());
    fs::write(yard.path("all.img"), [&parts[0][..], &parts[1], &zeros, &parts[1]].concat()).unwrap();
    qemu_img(&yard, "compare -f raw -F qcow2 all.img all.qcow2");
    let refusals: [&[&str]; 4] = [
        &["convert", "-l", "one", "a.img", "b.img", "out.qcow2"],
        &["convert", "-B", "b.img", "-F", "raw", "a.img", "b.img", "out.qcow2"],
        &["convert", "--sha256", &"0".repeat(64), "a.img", "b.img", "out.qcow2"],
        &["convert", "a.img"],
    ];
    for words in refusals {
        image(&yard, words).failed(2, &[]);
    }
    // None of them is what is written.
    image(&yard, ["convert", "b.img", "a.img", "a.img"]).failed(1, &["a.img"]);
    image(&yard, ["convert", "b.img", "a.img,block-size=4096", "out.qcow2"]).failed(1, &["4096"]);
    assert!(!yard.path("out.qcow2").exists());
}

#[test]
fn a_file_that_has_other_bytes_is_not_converted() {
    let yard = Yard::new();
    mixed(&yard, "a.img");
    qemu_img(&yard, "convert -f raw -O qcow2 a.img a.qcow2");
    let (raw, qcow2) = (digest(&yard, "a.img"), digest(&yard, "a.qcow2"));
    // The file's bytes are checked, and the disk's are said.
    let said = image(&yard, ["convert", "-q", "--sha256", &qcow2, "--digest", "a.qcow2", "b.img"]).succeeded().stdout;
    assert_eq!(said.trim(), raw);
    let said = image(&yard, ["convert", "--digest", "b.img", "c.qcow2"]).succeeded().stdout;
    assert!(said.contains(&raw), "{said}");
    fs::write(yard.path("there.img"), vec![7; 64 << 20]).unwrap();
    for words in [&["out.img"][..], &["-n", "there.img"]] {
        let words = [&["convert", "--sha256", &raw, "a.qcow2"][..], words].concat();
        image(&yard, words).failed(1, &["a.qcow2", &qcow2, &raw]);
    }
    assert!(!yard.path("out.img").exists());
    assert!(fs::read(yard.path("there.img")).unwrap() == vec![7; 64 << 20], "what is there was written to");
    image(&yard, ["convert", "--sha256", &raw, "null:1M", "out.img"]).failed(2, &["null:1M"]);
    image(&yard, ["convert", "--sha256", &raw[1..], "a.img", "out.img"]).failed(2, &["64 hexadecimal digits"]);
    // Of what lies elsewhere, it says nothing.
    qemu_img(&yard, "convert -f raw -O vmdk -o subformat=monolithicFlat a.img flat.vmdk");
    qemu_img(&yard, "create -q -f qcow2 -b a.qcow2 -F qcow2 over.qcow2");
    qemu_img(&yard, "create -q -f qcow2 -o data_file=data.raw data.qcow2 1M");
    qemu_img(&yard, "create -q -f qed -b a.img -F raw over.qed");
    for (name, other) in [
        ("flat.vmdk", "flat-flat.vmdk"),
        ("over.qcow2", "a.qcow2"),
        ("over.qcow2,format=qcow2", "a.qcow2"),
        ("data.qcow2", "data.raw"),
        ("over.qed", "a.img"),
    ] {
        let expected = digest(&yard, name.split(',').next().unwrap());
        let words = ["convert", "--allow-dir", ".", "--sha256", &expected, name, "out.img"];
        image(&yard, words).failed(1, &["has bytes of its disk in another file", other]);
    }
    assert!(!yard.path("out.img").exists());
}
