//! What a file system is told of the files of new images, checked by its own tools.

use super::*;

/// Makes the file system in a file, and mounts it; `None`: nobody but root may.
fn mounted<'a>(yard: &Yard, point: &'a Path, package: &str, mkfs: &str) -> Option<Mounted<'a>> {
    if !is_root() {
        return None;
    }
    yard.sparse("device", 512 * MIB, &[], 1);
    fs::create_dir(point).unwrap();
    tool(yard, package, &format!("{mkfs} device"));
    let mounted = Command::new("mount").args(["-o", "loop", "device", "point"]).current_dir(yard.path("")).status();
    assert!(mounted.unwrap().success(), "this test mounts a file: run it as root, with loop devices");
    Some(Mounted(point))
}

/// The letters that lsattr has for a file.
fn flags(yard: &Yard, name: &str) -> String {
    tool(yard, "e2fsprogs", &format!("lsattr point/{name}")).stdout.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn new_images_are_written_in_place_where_they_would_be_copied() {
    let yard = Yard::new();
    let point = yard.path("point");
    let Some(_mounted) = mounted(&yard, &point, "btrfs-progs", "mkfs.btrfs -q") else { return };
    yard.random("disk.img", MIB, 1);
    qemu_img(&yard, "create -q -f qcow2 -o nocow=on point/theirs 1M");
    let wanted = flags(&yard, "theirs");
    assert!(wanted.contains('C'), "{wanted}");
    for line in [
        "create -q -f qcow2 -o nocow point/a 1M",
        "create -q -f raw -o nocow=on,preallocation=full point/a 1M",
        "create -q -f qcow2 -o nocow,data_file=b point/a 1M",
        "convert -q -O qcow2 -o nocow disk.img point/a",
        "convert -q -O raw -o nocow disk.img point/a",
        "convert -q -O vhdx -o nocow disk.img point/a",
        "convert -q -O vmdk -o nocow,subformat=streamOptimized disk.img point/a",
        "convert -q -O raw -f raw -o nocow -S0 disk.img point/a",
    ] {
        let done = image(&yard, line.split(' ')).succeeded();
        assert_eq!((done.stderr.as_str(), flags(&yard, "a")), ("", wanted.clone()), "{line}");
        if line.contains("data_file") {
            assert_eq!(flags(&yard, "b"), wanted);
        }
        fs::remove_file(yard.path("point/a")).unwrap();
    }
    image(&yard, ["create", "-q", "-f", "raw", "-o", "nonocow", "point/a", "1M"]).succeeded();
    assert!(!flags(&yard, "a").contains('C'));
    let said = image(&yard, ["create", "-q", "-f", "raw", "-o", "extent_size_hint=1M", "point/b.img", "1M"]);
    let note =
        "blockyard: point/b.img: its file system does not know extent_size_hint, which is XFS's: it is left out\n";
    assert_eq!(said.succeeded().stderr, note);
}

#[test]
fn new_images_grow_in_the_pieces_that_were_asked_for() {
    let yard = Yard::new();
    let point = yard.path("point");
    let Some(_mounted) = mounted(&yard, &point, "xfsprogs", "mkfs.xfs -q") else { return };
    let hint = |name: &str| tool(&yard, "xfsprogs", &format!("xfs_io -r -c extsize point/{name}")).stdout;
    for line in [
        "create -q -f raw -o extent_size_hint=2M point/a 1M",
        "create -q -f qcow2 -o extent_size_hint=2M,data_file=b point/a 1M",
    ] {
        assert_eq!(image(&yard, line.split(' ')).succeeded().stderr, "", "{line}");
        assert_eq!(hint("a"), "[2097152] point/a\n");
    }
    assert_eq!(hint("b"), "[2097152] point/b\n");
    image(&yard, ["create", "-q", "-f", "raw", "-o", "extent_size_hint=1000", "point/c", "1M"])
        .failed(1, &["cannot set the extent size hint of", "point/c"]);
    assert!(!yard.path("point/c").exists());
    let said = image(&yard, ["create", "-q", "-f", "qcow2", "-o", "nocow,extent_size_hint=0", "point/c", "1M"]);
    let note = "blockyard: point/c: its file system does not know nocow, which is that of a file system that copies on write, as \
                Btrfs does: it is left out\n";
    assert_eq!(said.succeeded().stderr, note);
    assert_eq!(hint("c"), "[0] point/c\n");
}
