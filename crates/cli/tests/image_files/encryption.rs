//! Encrypted images by the commands, checked by qemu-img.

use crate::support::{Yard, allocated_bytes};
use crate::{MIB, image, mixed, qemu_img, same, tool};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// With the end of a line, which counts.
pub(super) fn key(yard: &Yard, name: &str, mode: u32) {
    let path = yard.path(name);
    fs::write(&path, "pass word\n").unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn images_are_encrypted_and_decrypted_by_convert() {
    let yard = Yard::new();
    key(&yard, "key", 0o600);
    let plain = mixed(&yard, "plain.img");
    let convert = |line: &str| image(&yard, format!("convert -q {line}").split(' ')).succeeded();
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10 --key-file key";
    convert(&format!("plain.img a.qcow2 {luks}"));
    convert("plain.img -O luks a.luks -o iter-time=10,cipher-alg=aes-128 --key-file key");
    convert("a.qcow2,key-file=key b.img");
    convert("a.luks,format=luks,key-file=key c.img");
    convert(
        &format!("a.luks,format=luks,key-file=key b.qcow2 {luks},preallocation=metadata")
            .replace(" --key-file key,preallocation=metadata", ",preallocation=metadata --key-file key"),
    );
    let secret = "--object secret,id=s,file=key --image-opts";
    qemu_img(&yard, &format!("convert {secret} driver=qcow2,encrypt.key-secret=s,file.filename=a.qcow2 -O raw d.img"));
    qemu_img(&yard, &format!("convert {secret} driver=luks,key-secret=s,file.filename=a.luks -O raw e.img"));
    qemu_img(&yard, &format!("convert {secret} driver=qcow2,encrypt.key-secret=s,file.filename=b.qcow2 -O raw f.img"));
    for copy in ["b.img", "c.img", "d.img", "e.img", "f.img"] {
        let copy = yard.path(copy);
        // Images have whole sectors.
        let length = plain.metadata().unwrap().len();
        assert_eq!(copy.metadata().unwrap().len(), length.next_multiple_of(512), "{copy:?}");
        fs::File::options().write(true).open(&copy).unwrap().set_len(length).unwrap();
        assert!(same(&plain, &copy), "{copy:?}");
    }
    image(&yard, ["compare", "-q", "a.qcow2,key-file=key", "plain.img"]).succeeded();
    image(&yard, ["check", "-q", "a.qcow2"]).succeeded();
    assert!(image(&yard, ["map", "a.qcow2", "--json"]).succeeded().stdout.contains("\"data\": true"));
    assert!(image(&yard, ["info", "a.qcow2"]).succeeded().stdout.contains("luks"));
}

#[test]
fn an_encrypted_image_is_made_changed_and_committed() {
    let yard = Yard::new();
    key(&yard, "key", 0o600);
    let run = |line: &str| image(&yard, line.split(' ')).succeeded();
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10 --key-file key";
    run(&format!("create -q base.qcow2 8M --table gpt --part rest {luks}"));
    run(&format!("create -q top.qcow2 -b base.qcow2 -F qcow2 -u 8M {luks}"));
    run("snapshot -c one base.qcow2");
    run("snapshot -d one base.qcow2");
    mixed(&yard, "data.img");
    qemu_img(&yard, "resize -q --shrink -f raw data.img 8M");
    run("convert -q -n data.img top.qcow2,key-file=key --allow-dir .");
    run("commit -q top.qcow2,key-file=key --allow-dir .");
    run("compare -q base.qcow2,key-file=key data.img");
    run("resize -q base.qcow2 16M");
    run("resize -q --shrink base.qcow2,key-file=key 8M");
    run("compare -q base.qcow2,key-file=key data.img");
    run("check -q base.qcow2");
    run("create -q -f luks v.luks 1M -o iter-time=10 --key-file key");
    run("info v.luks,format=luks,key-file=key");
}

/// The volume's map, with places in its file: with a key that opens it, and with none.
#[test]
fn a_volume_is_mapped() {
    let yard = Yard::new();
    key(&yard, "key", 0o600);
    fs::write(yard.path("wrong"), "word").unwrap();
    fs::set_permissions(yard.path("wrong"), Permissions::from_mode(0o600)).unwrap();
    let run = |line: &str| image(&yard, line.split(' '));
    run("create -q -f luks v.luks 4M -o iter-time=10 --key-file key").succeeded();
    let secret = "--object secret,id=s,file=key --image-opts driver=luks,key-secret=s,file.filename=v.luks";
    let theirs = qemu_img(&yard, &format!("map --output=json {secret}")).json();
    let info = run("info --json -f luks v.luks").succeeded().json();
    let start = info["format-specific"]["data"]["payload-offset"].as_u64().unwrap();
    for name in ["v.luks", "v.luks,key-file=key"] {
        let mut ours = run(&format!("map --json -f luks {name}")).succeeded().json();
        assert_eq!(ours[0]["offset"].take(), start, "{name}");
        ours[0].as_object_mut().unwrap().retain(|key, _| key != "offset" && key != "compressed");
        assert_eq!(ours, theirs, "{name}");
        let part = run(&format!("map -f luks {name} --start-offset 1M --max-length 1M")).succeeded().stdout;
        let line: Vec<_> = part.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(line, ["0x100000", "0x100000", &format!("{:#x}", start + MIB), "v.luks"], "{name}");
    }
    run("map -f luks v.luks,key-file=wrong").failed(1, &["v.luks"]);
    fs::File::options().write(true).open(yard.path("v.luks")).unwrap().set_len(start + MIB + 5).unwrap();
    let cut = run("map --json -f luks v.luks");
    assert!(cut.stderr.contains("ends within a sector"), "{}", cut.stderr);
    assert_eq!(cut.succeeded().json()[0]["length"], MIB);
}

#[test]
fn keys_are_asked_for_and_refused() {
    let yard = Yard::new();
    key(&yard, "key", 0o600);
    key(&yard, "open", 0o644);
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10";
    image(&yard, format!("create -q a.qcow2 1M {luks} --key-file key").split(' ')).succeeded();
    fs::write(yard.path("wrong"), "word").unwrap();
    fs::set_permissions(yard.path("wrong"), Permissions::from_mode(0o600)).unwrap();
    for (line, status, said) in [
        ("convert a.qcow2 a.img", 1, "a.qcow2 is encrypted: name the file that has its passphrase"),
        ("convert a.qcow2,key-file=wrong a.img", 1, "is encrypted by another passphrase than that of the key file"),
        ("convert a.qcow2,key-file=open a.img", 1, "is for other users, too (its mode is 0644)"),
        ("create b.qcow2 1M -o encrypt.format=luks", 2, "by which passphrase? Add --key-file FILE"),
        ("create b.qcow2 1M --key-file key", 2, "add -o encrypt.format=luks"),
        ("create b.qcow2 1M -o encrypt.format=aes --key-file key", 2, "AES without LUKS does not hide data well"),
        ("create b.img 1M --key-file key", 2, "--key-file is for an encrypted image"),
        ("create b.qcow2 1M -o encrypt.format=luks,encrypt.key-secret=s --key-file key", 2, "--key-file FILE"),
    ] {
        let outcome = image(&yard, line.split(' '));
        outcome.failed(status, &[said]);
        assert!(!yard.path("b.qcow2").exists() && !yard.path("a.img").exists());
    }
}

/// A file with a passphrase, and its name as a secret of qemu-img's.
fn passphrase(yard: &Yard, name: &str) {
    fs::write(yard.path(name), name).unwrap();
    fs::set_permissions(yard.path(name), Permissions::from_mode(0o600)).unwrap();
}

/// What a volume or an image holds for whom qemu-img is given this passphrase; `None`: it is not opened.
fn opened_by_qemu_img(yard: &Yard, image: &str, key: &str) -> bool {
    let options = match image.ends_with(".luks") {
        true => format!("driver=luks,key-secret=s,file.filename={image}"),
        false => format!("driver=qcow2,encrypt.key-secret=s,file.filename={image}"),
    };
    let mut command = std::process::Command::new("qemu-img");
    command.current_dir(yard.path("")).args(["compare", "-q", "--object", &format!("secret,id=s,file={key}")]);
    command.args(["--image-opts", &options, "driver=raw,file.filename=plain.img"]);
    command.output().unwrap().status.success()
}

#[test]
fn passphrases_are_added_and_taken_away_as_by_qemu_img() {
    let yard = Yard::new();
    let keys = ["one", "two", "three"];
    keys.iter().for_each(|key| passphrase(&yard, key));
    yard.random("plain.img", MIB, 9);
    let run = |line: &str| image(&yard, line.split(' ')).succeeded();
    run("convert -q plain.img a.qcow2 -o encrypt.format=luks,encrypt.iter-time=10 --key-file one");
    run("convert -q plain.img -O luks a.luks -o iter-time=10 --key-file one");
    for (name, format, prefix) in [("a.qcow2", "qcow2", "encrypt."), ("a.luks", "luks", "")] {
        let opened = || keys.map(|key| opened_by_qemu_img(&yard, name, key));
        let amend = |options: &str, more: &str| {
            let options: Vec<_> = options.split(',').map(|option| format!("{prefix}{option}")).collect();
            let line = format!("amend -q -f {format} -o {} {more} {name}", options.join(","));
            image(&yard, line.split(' '))
        };
        amend("state=active,iter-time=10", "--key-file one --new-key-file two").succeeded();
        assert_eq!(opened(), [true, true, false]);
        amend("state=active,keyslot=6,iter-time=10", "--key-file two --new-key-file three").succeeded();
        assert_eq!(opened(), [true, true, true]);
        for (options, more, said) in [
            ("state=active,keyslot=6", "--key-file one --new-key-file two", "has a passphrase in its key slot 6"),
            ("state=active,keyslot=8", "--key-file one --new-key-file two", "they are 0 to 7"),
            ("state=active", "--new-key-file two", "is encrypted: name the file that has its passphrase"),
            ("state=inactive,keyslot=7", "--key-file one", "has nothing in its key slot 7"),
            ("state=inactive,keyslot=6", "--key-file one --old-key-file two", "another passphrase in its key slot 6"),
        ] {
            let before = fs::read(yard.path(name)).unwrap();
            amend(options, more).failed(1, &[said]);
            assert!(fs::read(yard.path(name)).unwrap() == before, "{options} {more}");
        }
        amend("state=inactive", "--key-file one --old-key-file two").succeeded();
        assert_eq!(opened(), [true, false, true]);
        amend("state=inactive", "--key-file one --old-key-file two")
            .failed(1, &["has no key slot with the passphrase"]);
        // qemu-img's own, and ours after it.
        let options = match prefix {
            "" => "driver=luks,key-secret=s,file.filename=a.luks",
            _ => "driver=qcow2,encrypt.key-secret=s,file.filename=a.qcow2",
        };
        let objects = "--object secret,id=s,file=three --object secret,id=n,file=two";
        let change = format!("{prefix}state=active,{prefix}new-secret=n,{prefix}iter-time=10");
        qemu_img(&yard, &format!("amend {objects} -o {change} --image-opts {options}"));
        assert_eq!(opened(), [true, true, true]);
        amend("state=inactive,keyslot=0", "--key-file two").succeeded();
        amend("state=inactive,keyslot=6", "--key-file two").succeeded();
        assert_eq!(opened(), [false, true, false]);
        amend("state=inactive,keyslot=1", "--key-file two").failed(1, &["all of its data be lost", "--force"]);
        amend("state=inactive", "--key-file two --old-key-file two").failed(1, &["all of its data be lost"]);
        assert_eq!(opened(), [false, true, false]);
        amend("state=inactive,keyslot=1", "--force --key-file two").succeeded();
        assert_eq!(opened(), [false; 3]);
        let open = image(&yard, ["convert", "-f", format, &format!("{name},key-file=two"), "b.img"]);
        open.failed(1, &["no passphrase opens it any more"]);
    }
    let dump = tool(&yard, "cryptsetup-bin", "/sbin/cryptsetup luksDump a.luks").stdout;
    assert_eq!(dump.matches("DISABLED").count(), 8, "{dump}");
}

#[test]
fn what_is_said_of_passphrases_goes_together() {
    let yard = Yard::new();
    passphrase(&yard, "one");
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 1M");
    for (line, status, said) in [
        ("a.qcow2 -o encrypt.state=active", 2, "Add --new-key-file FILE"),
        ("a.qcow2 -o encrypt.state=inactive", 2, "Add --old-key-file FILE"),
        ("a.qcow2 -o encrypt.state=inactive --new-key-file one", 2, "--new-key-file is for state=active"),
        (
            "a.qcow2 -o encrypt.state=inactive,encrypt.iter-time=1 --old-key-file one",
            2,
            "iter-time is for a passphrase",
        ),
        ("a.qcow2 -o compat=1.1 --new-key-file one", 2, "is a passphrase added, or taken away?"),
        ("a.qcow2 -o encrypt.keyslot=1", 2, "is a passphrase added, or taken away?"),
        ("a.qcow2 -o encrypt.state=active --new-key-file one --key-file one", 1, "is not encrypted by LUKS"),
    ] {
        image(&yard, format!("amend {line}").split(' ')).failed(status, &[said]);
    }
}

#[test]
fn a_luks_volume_becomes_larger_and_smaller_as_by_qemu_img() {
    let yard = Yard::new();
    passphrase(&yard, "one");
    yard.random("plain.img", MIB, 9);
    let run = |line: &str| image(&yard, line.split(' ')).succeeded();
    run("convert -q plain.img -O luks a.luks -o iter-time=10 --key-file one");
    let length = || yard.path("a.luks").metadata().unwrap().len();
    let head = length() - MIB;
    let volume = "--object secret,id=s,file=one --image-opts driver=luks,key-secret=s,file.filename=a.luks";
    run("resize -f luks a.luks,key-file=one 2M");
    assert_eq!(length(), head + 2 * MIB);
    qemu_img(&yard, &format!("resize -q {volume} 3M"));
    assert_eq!(length(), head + 3 * MIB);
    image(&yard, ["resize", "-f", "luks", "a.luks", "1M"]).failed(1, &["--shrink"]);
    image(&yard, ["resize", "-f", "luks", "--shrink", "a.luks", "0"]).failed(1, &["has a sector at least"]);
    image(&yard, ["resize", "-f", "luks", "--shrink", "plain.img", "0"]).failed(1, &["is no LUKS 1 volume"]);
    image(&yard, ["resize", "-f", "luks", "a.luks,key-file=none", "1M"]).failed(1, &["none"]);
    assert_eq!(length(), head + 3 * MIB);
    run("resize -q -f luks --shrink a.luks 1M");
    assert_eq!(length(), head + MIB);
    assert!(opened_by_qemu_img(&yard, "a.luks", "one"));
    run("resize -q -f luks --preallocation=full a.luks +64K");
    assert!(allocated_bytes(&yard.path("a.luks")) >= MIB + (64 << 10));
    run("info a.luks,format=luks,key-file=one");
}
