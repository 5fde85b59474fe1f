//! Passphrases as qemu-img is told of them, by the same command lines.

use super::*;
use std::os::unix::fs::PermissionsExt;

fn passphrase(yard: &Yard, name: &str, text: &str) {
    fs::write(yard.path(name), text).unwrap();
    fs::set_permissions(yard.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn secrets_open_and_make_what_they_do_for_qemu_img() {
    let yard = Yard::new();
    passphrase(&yard, "key", "abc");
    passphrase(&yard, "other", "second");
    let raw = yard.random("disk.img", MIB, 7);
    let ours = |line: &str| image(&yard, line.split(' '));
    let secret = "--object secret,id=s0,file=key";
    for (format, before) in [("qcow2", "encrypt."), ("luks", "")] {
        let says = if format == "luks" { "" } else { "encrypt.format=luks," };
        let named = |name: &str| format!("driver={format},{before}key-secret=s0,file.filename={name}");
        let options = format!("-o {says}{before}key-secret=s0,{before}iter-time=10");
        let same_disk = |name: &str| {
            qemu_img(
                &yard,
                &format!("compare -q {secret} --image-opts {} driver=raw,file.filename=disk.img", named(name)),
            );
        };
        // In each place where qemu-img takes the object.
        ours(&format!("convert -q -f raw -O {format} {secret} {options} disk.img made")).succeeded();
        same_disk("made");
        ours(&format!("create -q -f {format} {secret} {options} empty 1M")).succeeded();
        ours(&format!(
            "convert -q -n {secret} --image-opts --target-image-opts driver=raw,file.filename=disk.img {}",
            named("empty")
        ))
        .succeeded();
        same_disk("empty");
        qemu_img(&yard, &format!("convert -f raw -O {format} {options} disk.img theirs {secret}"));
        ours(&format!("convert -q --image-opts {} out.img --object=secret,id=s0,format=raw,file=key", named("theirs")))
            .succeeded();
        assert!(same(&yard.path("out.img"), &raw));
        ours(&format!("compare -q {secret} --image-opts {} {}", named("theirs"), named("made"))).succeeded();
        // Another passphrase, and the first no more.
        let change = |state: &str, named: &str| {
            format!("-o {before}state={state},{before}{named} {secret} --object secret,id=s1,file=other")
        };
        let added = format!("new-secret=s1,{before}iter-time=10");
        ours(&format!("amend {} {}", change("active", &added), named("made"))).succeeded();
        ours(&format!("amend {} {}", change("inactive", "old-secret=s0"), named("made").replace("=s0", "=s1")))
            .succeeded();
        let theirs = format!("--object secret,id=s0,file=other --image-opts {}", named("made"));
        qemu_img(&yard, &format!("compare -q {theirs} driver=raw,file.filename=disk.img"));
        ours(&format!("convert -q {secret} {} out.img", named("made"))).failed(1, &["another passphrase"]);
    }
    // How large a base is takes no passphrase.
    for (format, base) in [
        ("qcow2", "-o encrypt.format=luks,encrypt.key-secret=s0,encrypt.iter-time=10"),
        ("luks", "-o key-secret=s0,iter-time=10"),
    ] {
        qemu_img(&yard, &format!("create -q -f {format} {secret} {base} base 3M"));
        ours(&format!("create -q -f qcow2 -b base -F {format} over.qcow2")).succeeded();
        assert_eq!(qemu_img(&yard, "info --output=json over.qcow2").json()["virtual-size"], 3 * MIB);
    }
    for (line, said) in [
        ("create -f luks -o key-secret=s9 x 1M", "there is no secret 's9': add --object"),
        ("create -f luks --object secret,id=s0,data=abc -o key-secret=s0 x 1M", "everybody could read"),
        ("create -f luks --key-file key --object secret,id=s0,file=key -o key-secret=s0 x 1M", "said twice"),
        ("info --object iothread,id=t disk.img", "of QEMU's objects"),
    ] {
        ours(line).failed(2, &[said]);
    }
    assert!(!yard.path("x").exists());
}
