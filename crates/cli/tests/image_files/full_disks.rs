//! Images on file systems that become full in the middle of a change.

use super::*;

const KIB: u64 = 1 << 10;

/// A file system of 2 MiB in which a file leaves so much room.
fn left(small: &Path, bytes: u64) {
    let filler = File::create(small.join("filler")).unwrap();
    let free = || {
        let found = rustix::fs::statvfs(small).unwrap();
        found.f_bavail * found.f_frsize
    };
    let wanted = free().saturating_sub(bytes);
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, wanted).unwrap();
    assert_eq!(free(), bytes);
}

/// However little room there is, what fails leaves an image that is as it was: nothing of it is lost, leaked or shared.
#[test]
fn what_finds_no_room_gives_back_what_it_had() {
    if !is_root() {
        return;
    }
    let yard = Yard::new();
    let small = yard.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "none"]).arg(&small).status().unwrap();
    assert!(mounted.success(), "this test mounts a small tmpfs: run it as root");
    let _mounted = Mounted(&small);
    yard.random("disk.img", 768 * KIB, 36);
    let run = |line: &str| image(&yard, line.split(' '));
    let of_small = "convert -q disk.img -O qcow2 -o cluster_size=4k small/";
    let changes: [(&str, &[&str]); 8] = [
        ("snapshot -c two small/x.qcow2", &["snapshot -c one small/x.qcow2"]),
        ("snapshot -c one small/x.qcow2", &[]),
        ("snapshot -a one small/x.qcow2", &["snapshot -c one small/x.qcow2", "resize -q small/x.qcow2 1G"]),
        ("snapshot -d one small/x.qcow2", &["snapshot -c one small/x.qcow2", "snapshot -c two small/x.qcow2"]),
        ("resize -q --preallocation full small/x.qcow2 3M", &[]),
        ("resize -q --preallocation falloc small/x.qcow2 3M", &[]),
        ("resize -q --preallocation metadata small/x.qcow2 16M", &[]),
        ("bitmap --add -g 512 small/x.qcow2 new", &["bitmap --add -g 512 small/x.qcow2 old"]),
    ];
    for (change, before) in changes {
        let (mut failed, mut done) = (0, false);
        for pages in 0..40 {
            run(&format!("{of_small}x.qcow2")).succeeded();
            before.iter().for_each(|line| drop(run(line).succeeded()));
            left(&small, pages * 4 * KIB);
            let size = |key: &str| run("info --json small/x.qcow2").json()[key].as_u64().unwrap();
            let was = (size("virtual-size"), fs::metadata(small.join("x.qcow2")).unwrap().len());
            let stored = allocated_bytes(&small.join("x.qcow2"));
            let outcome = run(change);
            if outcome.code == Some(0) {
                done = true;
                break;
            }
            failed += 1;
            outcome.failed(1, &["x.qcow2", ": make room there, and run this again"]);
            // Nothing is to be repaired.
            qemu_img(&yard, "check -q -f qcow2 small/x.qcow2");
            run("check small/x.qcow2").succeeded();
            assert_eq!(size("virtual-size"), was.0, "{change}, {pages}");
            let kept = allocated_bytes(&small.join("x.qcow2"));
            // Blocks of refcounts, and an L1 table that is longer, stay.
            assert!(kept <= stored + 32 * KIB, "{change}, {pages}: {stored} bytes became {kept}");
            if was.0 == 768 * KIB {
                run("compare -q small/x.qcow2 disk.img").succeeded();
            }
            fs::remove_file(small.join("filler")).unwrap();
            fs::remove_file(small.join("x.qcow2")).unwrap();
        }
        assert!(failed > 0 && (done || change.contains("full") || change.contains("falloc")), "{change}: {failed}");
        for name in ["filler", "x.qcow2"] {
            let _ = fs::remove_file(small.join(name));
        }
    }
}
