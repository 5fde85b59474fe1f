//! Bitmaps that QEMU keeps of what changed: a write here makes them stale, and says so.

use super::*;

#[test]
fn a_write_marks_bitmaps_and_leaks_nothing() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 4);
    let fresh = |name: &str| {
        qemu_img(&yard, &format!("create -q -f qcow2 {name} 10M"));
        for bitmap in ["one", "another"] {
            qemu_img(&yard, &format!("bitmap --add {name} {bitmap}"));
        }
    };
    let is_stale = |name: &str| {
        qemu_img(&yard, &format!("check -q {name}"));
        image(&yard, ["check", name]).succeeded();
        let info = qemu_img(&yard, &format!("info --output=json {name}")).json();
        let bitmaps = info["format-specific"]["data"]["bitmaps"].as_array().cloned().unwrap_or_default();
        assert_eq!(bitmaps.len(), 2, "{info}");
        assert!(bitmaps.iter().all(|bitmap| bitmap["flags"].as_array().unwrap().contains(&"in-use".into())), "{info}");
        // Who made them removes them.
        qemu_img(&yard, &format!("bitmap --remove {name} one"));
        qemu_img(&yard, &format!("check -q {name}"));
    };
    fresh("a.qcow2");
    let said = image(&yard, ["convert", "-n", "disk.img", "a.qcow2"]).succeeded().stderr;
    assert!(said.contains("a.qcow2 has bitmaps") && said.contains("one, another"), "{said}");
    let again = image(&yard, ["convert", "-n", "disk.img", "a.qcow2"]).succeeded().stderr;
    assert_eq!(again, "", "it says it once");
    is_stale("a.qcow2");
    fresh("b.qcow2");
    image(&yard, ["resize", "b.qcow2", "20M"]).succeeded();
    is_stale("b.qcow2");
    // Reading leaves them alone.
    fresh("c.qcow2");
    let before = fs::read(yard.path("c.qcow2")).unwrap();
    assert_eq!(image(&yard, ["convert", "c.qcow2", "out.img"]).succeeded().stderr, "");
    assert!(fs::read(yard.path("c.qcow2")).unwrap() == before);
}

#[test]
fn another_backing_file_and_a_commit_leave_no_bitmap_behind() {
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
    qemu_img(&yard, "check -q top.qcow2");
    image(&yard, ["rebase", "--allow-dir", ".", "-b", "base.qcow2", "-F", "qcow2", "top.qcow2"]).succeeded();
    image(&yard, ["commit", "--allow-dir", ".", "top.qcow2"]).succeeded();
    for name in ["top.qcow2", "base.qcow2"] {
        qemu_img(&yard, &format!("check -q {name}"));
    }
}
