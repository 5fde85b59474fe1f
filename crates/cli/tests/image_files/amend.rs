//! `image amend` beside qemu-img: the same of twins.

use super::*;

/// What both say of an image.
fn described(yard: &Yard, name: &str) -> serde_json::Value {
    qemu_img(yard, &format!("check -q {name}"));
    image(yard, ["check", "-q", name]).succeeded();
    let mut info = qemu_img(yard, &format!("info --output=json {name}")).json();
    for key in ["filename", "actual-size", "full-backing-filename"] {
        info.as_object_mut().unwrap().remove(key);
    }
    info
}

#[test]
fn options_change_as_by_qemu_img() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 5);
    for made in ["compat=0.10", "compat=0.10,cluster_size=512", "compat=1.1,lazy_refcounts=on"] {
        let ends = ["ours.qcow2", "theirs.qcow2"];
        for name in ends {
            qemu_img(&yard, &format!("convert -O qcow2 -o {made} disk.img {name}"));
        }
        for options in ["compat=1.1", "lazy_refcounts=on", "lazy_refcounts=off,size=3M", "lazy_refcounts=on,compat=v3"]
        {
            let said = image(&yard, ["amend", "-o", options, "ours.qcow2"]).succeeded().stdout;
            assert_eq!(said, "ours.qcow2: amended\n");
            qemu_img(&yard, &format!("amend -o {options} theirs.qcow2"));
            let [ours, theirs] = ends.map(|name| qemu_img(&yard, &format!("info --output=json {name}")).json());
            for key in ["virtual-size", "format-specific"] {
                assert_eq!(ours[key], theirs[key], "{made}, then {options}: {key}");
            }
        }
        assert_eq!(described(&yard, "ours.qcow2"), described(&yard, "theirs.qcow2"), "{made}");
        qemu_img(&yard, "compare ours.qcow2 theirs.qcow2");
    }
}

#[test]
fn what_cannot_change_is_said_and_changes_nothing() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 -o compat=1.1 new.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -o compat=0.10 old.qcow2 1M");
    yard.random("disk.img", MIB, 1);
    let read = |name: &str| fs::read(yard.path(name)).unwrap();
    let before = ["new.qcow2", "old.qcow2", "disk.img"].map(read);
    for (options, name, status, wanted) in [
        ("compat=0.10", "new.qcow2", 1, "image convert -o compat=0.10"),
        ("lazy_refcounts=on", "old.qcow2", 1, "add compat=1.1"),
        ("backing_file=base.img", "new.qcow2", 2, "image rebase"),
        ("size=512K", "new.qcow2", 1, "--shrink"),
        ("compat=1.1", "disk.img", 1, "disk.img: only qcow2 images are amended, and this is raw"),
        ("cluster_size=4K", "new.qcow2", 2, "fixed once an image is made"),
        ("compat=3", "new.qcow2", 2, "it is 0.10, v2, 1.1, v3"),
    ] {
        image(&yard, ["amend", "-o", options, name]).failed(status, &[wanted]);
    }
    assert!(["new.qcow2", "old.qcow2", "disk.img"].map(read) == before);
    image(&yard, ["amend", "new.qcow2"]).failed(2, &["-o <OPTIONS>"]);
}
