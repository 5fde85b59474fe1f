//! `dd` and `bench`, beside qemu-img's.

use super::*;

/// What both make with the same operands, compared by qemu-img.
fn twins(yard: &Yard, options: &str, operands: &str, format: &str) {
    let words: Vec<&str> = ["dd"].into_iter().chain(options.split_whitespace()).chain(operands.split(' ')).collect();
    image(yard, words.iter().copied().chain(["of=ours"])).succeeded();
    qemu_img(yard, &format!("dd {options}{operands} of=theirs"));
    qemu_img(yard, &format!("compare -f {format} -F {format} ours theirs"));
    let info = ["ours", "theirs"].map(|name| {
        let info = qemu_img(yard, &format!("info --output=json -f {format} {name}")).json();
        ["virtual-size", "format"].map(|key| info[key].clone())
    });
    assert_eq!(info[0], info[1], "{options}{operands}");
}

#[test]
fn blocks_go_into_a_new_image_as_qemus_dd_does() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img disk.qcow2");
    for (options, operands, format) in [
        ("-f raw ", "if=disk.img", "raw"),
        ("-f qcow2 ", "if=disk.qcow2 bs=1M", "raw"),
        ("-f qcow2 -O qcow2 ", "if=disk.qcow2 bs=64k count=100", "qcow2"),
        ("-f raw -O vpc -U ", "if=disk.img bs=1M skip=8", "vpc"),
        ("-f raw -O vmdk ", "if=disk.img skip=17", "vmdk"),
        ("-f raw -O qcow2 ", "bs=3584 count=9 if=disk.img", "qcow2"),
        ("-f raw ", "if=disk.img count=9999999 bs=1M", "raw"),
    ] {
        if format == "vpc" {
            // QEMU makes a disk with the next size that a geometry can say.
            image(&yard, ["dd", "-O", "vpc", "if=disk.img", "of=ours", "bs=1M", "skip=8"]).succeeded();
            qemu_img(&yard, "dd -f raw -O raw if=disk.img of=theirs bs=1M skip=8");
            qemu_img(&yard, "compare -f vpc -F raw ours theirs");
        } else {
            twins(&yard, options, operands, format);
        }
    }
    // Blocks are counted from where skipping ends, as GNU's dd does.
    image(&yard, ["dd", "if=disk.img", "of=ours", "bs=1k", "skip=9", "count=4"]).succeeded();
    tool(&yard, "coreutils", "dd status=none if=disk.img of=theirs bs=1k skip=9 count=4");
    assert!(same(&yard.path("ours"), &yard.path("theirs")));
    image(&yard, ["dd", "if=disk.qcow2", "of=named.qcow2", "-O", "qcow2"]).succeeded();
    qemu_img(&yard, "compare disk.qcow2 named.qcow2");
    for (words, status) in [
        (&["if=disk.img", "of=new.img", "bs=0"][..], 2),
        (&["if=disk.img", "bs=512"], 2),
        (&["if=disk.img", "of=new.img", "seek=1"], 2),
        (&["if=disk.img", "of=new.img", "bs=100", "count=3"], 2),
        (&["if=disk.img", "of=new.img", "skip=1", "bs=1G"], 1),
        (&["if=disk.img", "of=new.img", "count=0"], 2),
        (&["if=none.img", "of=new.img"], 1),
        (&["if=disk.img", "of=disk.img"], 1),
    ] {
        image(&yard, ["dd"].iter().chain(words)).failed(status, &[]);
    }
    assert!(!yard.path("new.img").exists());
}

#[test]
fn bench_asks_what_qemus_does() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    let said = image(&yard, ["bench", "-c", "1000", "-d", "8", "disk.img"]).succeeded().stdout;
    let theirs = qemu_img(&yard, "bench -f raw -c 1000 -d 8 disk.img").stdout;
    assert_eq!(said.lines().next(), theirs.lines().next());
    let is_time = |line: &str| line.starts_with("Run completed in ") && line.ends_with(" seconds.");
    assert!(is_time(said.lines().nth(1).unwrap()) && is_time(theirs.lines().nth(1).unwrap()), "{said}{theirs}");
    qemu_img(&yard, "create -q -f qcow2 ours.qcow2 8M");
    qemu_img(&yard, "create -q -f qcow2 theirs.qcow2 8M");
    let options = "-w -c 500 -d 4 -s 8192 -S 20480 -o 4096 --pattern=65 --flush-interval=10";
    for more in ["", " --no-drain", " -i threads", " -t unsafe", " -t writethrough"] {
        let words = format!("{options}{more} ours.qcow2");
        image(&yard, ["bench"].into_iter().chain(words.split(' '))).succeeded();
        qemu_img(&yard, "check -q ours.qcow2");
    }
    let json = image(&yard, ["bench", "--json", "-c", "10", "ours.qcow2"]).succeeded().json();
    assert!(json["requests"] == 10 && json["seconds"].as_f64().unwrap() > 0.0, "{json}");
    // Within the disk, theirs are the same places.
    qemu_img(&yard, "create -q -f qcow2 ours.qcow2 8M");
    let options = "-w -c 300 -d 4 -s 8192 -S 20480 -o 4096 --pattern=65 --flush-interval=10";
    image(&yard, ["bench"].into_iter().chain(options.split(' ')).chain(["ours.qcow2"])).succeeded();
    qemu_img(&yard, &format!("bench -f qcow2 {options} theirs.qcow2"));
    qemu_img(&yard, "compare ours.qcow2 theirs.qcow2");
    for words in [
        &["-s", "100", "disk.img"][..],
        &["-s", "0", "disk.img"],
        &["-o", "1T", "disk.img"],
        &["-d", "0", "disk.img"],
        &["--flush-interval", "8", "disk.img"],
        &["-w", "--flush-interval", "8", "-d", "16", "disk.img"],
        &["-w", "--pattern", "256", "disk.img"],
    ] {
        image(&yard, ["bench"].iter().chain(words)).failed(2, &[]);
    }
}
