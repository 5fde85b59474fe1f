//! Encrypted images by the commands, checked by qemu-img.

use crate::support::Yard;
use crate::{image, mixed, qemu_img, same};
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
