//! Files in formats that are not supported are never taken for raw disks, by whichever command.

use super::*;

/// What qemu-img makes of each format: its options, and the ending of names.
const FORMATS: [(&str, &str); 7] = [
    ("-f vhdx", "vhdx"),
    ("-f vdi", "vdi"),
    ("-f vpc", "vhd"),
    ("-f vpc -o subformat=fixed", "VHD"),
    ("-f qed", "qed"),
    ("-f parallels", "hdd"),
    ("-f vmdk", "img"),
];

#[test]
fn a_container_is_not_taken_for_a_raw_disk() {
    let yard = Yard::new();
    File::create(yard.path("raw.img")).unwrap().set_len(MIB).unwrap();
    for (options, ending) in FORMATS {
        let by_name = format!("a.{ending}");
        qemu_img(&yard, &format!("create -q {options} {by_name} 20M"));
        // A name says something, and so do contents.
        fs::copy(yard.path(&by_name), yard.path("b.img")).unwrap();
        for name in [&by_name, "b.img"] {
            let before = fs::read(yard.path(name)).unwrap();
            let refusals: [&[&str]; 8] = [
                &["image", "mkfs", name, "sda", "ext4"],
                &["image", "resize", name, "40M"],
                &["image", "convert", name, "out.img"],
                &["image", "convert", "-n", "raw.img", name],
                &["image", "check", name],
                &["copy", name, "out.img"],
                &["serve", "--socket", "socket", name],
                &["image", "dd", "raw.img", &format!("if={name}"), "of=sda"],
            ];
            for arguments in refusals {
                // A VMDK that is sparse has a name that is known.
                let ending = if ending == "img" { "vmdk" } else { "not supported" };
                let ending = if arguments[1] == "dd" { "no disk's" } else { ending };
                run(blockyard().current_dir(yard.path("")).args(arguments)).failed(1, &[name, ending]);
                assert!(fs::read(yard.path(name)).unwrap() == before, "{arguments:?} changed it");
            }
            // Whose bytes they are is theirs to say who own them.
            let raw = format!("{name},format=raw");
            image(&yard, ["convert", &raw, "out.img"]).succeeded();
            assert!(same(&yard.path("out.img"), &yard.path(name)), "{name}");
        }
        for name in [by_name.as_str(), "b.img", "out.img"] {
            fs::remove_file(yard.path(name)).unwrap();
        }
    }
}

#[test]
fn no_raw_disk_is_made_under_the_name_of_another_format() {
    let yard = Yard::new();
    File::create(yard.path("raw.img")).unwrap().set_len(MIB).unwrap();
    for name in ["x.vhdx", "x.Vdi", "x.img.gz", "x.xz", "x.zst", "x.bz2", "x.zip", "x.ova", "x.vma", "x.dmg"] {
        for arguments in
            [&["image", "create", name, "1M"][..], &["image", "convert", "raw.img", name], &["copy", "raw.img", name]]
        {
            run(blockyard().current_dir(yard.path("")).args(arguments)).failed(1, &[name, "format=raw"]);
        }
        let of = format!("of={name}");
        image(&yard, ["dd", "raw.img", "if=sda", &of]).failed(1, &[name, "another name"]);
        assert!(!yard.path(name).exists());
    }
    run(blockyard().current_dir(yard.path("")).args(["copy", "raw.img", "x.vhd,format=raw"])).succeeded();
    assert!(same(&yard.path("raw.img"), &yard.path("x.vhd")));
}

/// A boot sector may begin with any code, and a file system's first sector with any bytes.
#[test]
fn a_disk_that_boots_is_raw_whatever_its_first_bytes() {
    let yard = Yard::new();
    let mut sector = vec![0; 512];
    sector[..4].copy_from_slice(b"\x1f\x8b\x08\0");
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let disk = [sector, vec![0; 1 << 20]].concat();
    fs::write(yard.path("boots.img"), &disk).unwrap();
    image(&yard, ["convert", "boots.img", "out.qcow2"]).succeeded();
    fs::write(yard.path("packed.img"), &disk[..510]).unwrap();
    image(&yard, ["convert", "packed.img", "out.qcow2"]).failed(1, &["packed.img", "gzip", "decompress"]);
}
