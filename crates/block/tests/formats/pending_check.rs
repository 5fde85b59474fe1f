//! Images whose tables are many: they are open before they are checked.

use crate::rig::{Rig, WRITE, check_clean, open, pattern, qemu_img, text};
use blockyard_block::{Operation, RequestError};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const DISK_BYTES: u64 = 4 << 30;

/// An image with 8 MiB of tables.
fn image(directory: &tempfile::TempDir) -> PathBuf {
    let image = directory.path().join("image");
    let options = "cluster_size=4k,preallocation=metadata";
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, text(&image), &DISK_BYTES.to_string()]);
    image
}

#[test]
fn what_is_written_at_once_waits_for_the_check() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(&directory);
    let bytes = pattern(70_144, 1);
    for force_unit_access in [false, true] {
        let mut rig = Rig::new(open(&image));
        rig.write_as(Operation::Write { force_unit_access }, DISK_BYTES - 70_144, &bytes).unwrap();
        assert!(rig.read(DISK_BYTES - 70_144, 70_144) == bytes);
    }
    // Who does not wait for it does no harm.
    drop(Rig::new(open(&image)));
    check_clean(text(&image));
}

#[test]
fn what_is_damaged_is_read_and_never_written() {
    let directory = tempfile::tempdir().unwrap();
    let image = image(&directory);
    let file = std::fs::File::options().read(true).write(true).open(&image).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_be_bytes(bytes)
    };
    // The last cluster of the first table is the first one, too.
    let table = number(number(40)) & 0x00ff_ffff_ffff_fe00;
    file.write_all_at(&number(table).to_be_bytes(), table + 4088).unwrap();
    let before = std::fs::read(&image).unwrap();
    let mut rig = Rig::new(open(&image));
    assert!(rig.read(0, 4096).iter().all(|&byte| byte == 0));
    let damaged = Err(RequestError::Os(libc::EUCLEAN));
    for offset in [0, 8192, DISK_BYTES - 512] {
        assert_eq!(rig.write_as(WRITE, offset, &[7; 512]), damaged);
        assert_eq!(rig.perform(Operation::Discard { length_bytes: 4096 }, offset / 4096 * 4096, &[]), damaged);
    }
    assert!(rig.read(0, 4096).iter().all(|&byte| byte == 0));
    drop(rig);
    assert!(std::fs::read(&image).unwrap() == before, "it was written to");
}
