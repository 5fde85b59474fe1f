//! Compressed clusters and grains that are damaged.

use super::*;

fn big_endian(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Where the first compressed cluster of a qcow2 image of QEMU's is, in clusters of 64 KiB.
fn first_cluster(image: &[u8]) -> usize {
    const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
    let l2 = big_endian(image, big_endian(image, 40) as usize) & OFFSET;
    let entry = big_endian(image, l2 as usize);
    assert!(entry & 1 << 62 != 0, "it is not compressed");
    (entry & ((1 << 54) - 1)) as usize
}

/// Behind its marker of 12 bytes, in the first sector behind what a VMDK has before its grains.
fn first_grain(image: &[u8]) -> usize {
    u64::from_le_bytes(image[64..72].try_into().unwrap()) as usize * 512 + 12
}

/// Whatever reads a part that is damaged says which it is, once; and a check finds it, though all tables are in order.
#[test]
fn what_cannot_be_decompressed_is_named_and_found() {
    let yard = Yard::new();
    let text: Vec<u8> = random_bytes(300_000, 4).iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect();
    fs::write(yard.path("disk.raw"), &text[..9 << 16]).unwrap();
    for (options, name, first) in [
        ("-c -O qcow2", "disk.qcow2", first_cluster as fn(&[u8]) -> usize),
        ("-c -O qcow2 -o compression_type=zstd", "disk.qcow2", first_cluster),
        ("-O vmdk -o subformat=streamOptimized", "disk.vmdk", first_grain),
    ] {
        qemu_img(&yard, &format!("convert -f raw {options} disk.raw {name}"));
        image(&yard, ["check", name]).succeeded();
        let mut bytes = fs::read(yard.path(name)).unwrap();
        let at = first(&bytes);
        // No method of compressing begins so.
        bytes[at..at + 4].fill(0xff);
        fs::write(yard.path(name), bytes).unwrap();
        let why = "does not become a whole one";
        let said = image(&yard, ["check", name]).failed(2, &[why]);
        assert!(said.stdout.contains("1 errors were found"), "{}", said.stdout);
        let said = image(&yard, ["convert", name, "out.img"]).failed(1, &[name, why]);
        assert!(said.stderr.matches(why).count() == 1 && said.stderr.lines().count() == 1, "{}", said.stderr);
        assert!(!yard.path("out.img").exists());
        if name.ends_with("qcow2") {
            // In an image that is behind others, too.
            qemu_img(&yard, &format!("create -q -f qcow2 -F qcow2 -b {name} top.qcow2"));
            let said = format!(" at byte 0: top.qcow2: in {name}, the compressed cluster at");
            image(&yard, ["convert", "--allow-dir", ".", "top.qcow2", "out.img"]).failed(1, &[&said]);
            image(&yard, ["check", "-r", "all", name]).failed(2, &[why]);
            // It keeps nobody from what needs its tables only.
            image(&yard, ["snapshot", "-c", "one", name]).succeeded();
        }
    }
}

/// Programs hold much that is only three bytes long.
#[test]
fn what_is_compressed_is_no_larger_than_by_qemu_img() {
    let yard = Yard::new();
    let mut program: Vec<u8> =
        ["img", "io", "nbd"].iter().flat_map(|name| std::fs::read(format!("/usr/bin/qemu-{name}")).unwrap()).collect();
    program.resize(program.len().next_multiple_of(65536), 0);
    std::fs::write(yard.path("program.img"), program).unwrap();
    for options in [
        "-c -O qcow2",
        "-c -O qcow2 -o compression_type=zstd",
        "-c -O qcow2 -o cluster_size=4k",
        "-O vmdk -o subformat=streamOptimized",
    ] {
        image(&yard, ["convert", "-q"].into_iter().chain(options.split(' ')).chain(["program.img", "ours"]))
            .succeeded();
        qemu_img(&yard, &format!("convert {options} program.img theirs"));
        let [ours, theirs] = ["ours", "theirs"].map(|name| std::fs::metadata(yard.path(name)).unwrap().len());
        // A file of ours ends with a whole cluster.
        assert!((ours - 65536) * 100 <= theirs * 101, "{options}: {ours} bytes, by qemu-img {theirs}");
        qemu_img(
            &yard,
            &format!("compare program.img {}", if options.contains("vmdk") { "-F vmdk ours" } else { "ours" }),
        );
        std::fs::remove_file(yard.path("ours")).unwrap();
    }
}
