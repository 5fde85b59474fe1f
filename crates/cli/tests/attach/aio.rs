//! POSIX AIO.

use crate::support::{Yard, blockyard, run, run_without_leftovers, same};
use crate::{BYTES, NAME, c_program, on_disk, piped};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The same of a disk of ours and, by glibc, of a file of the machine's.
#[test]
fn requests_that_nobody_waits_for_end_as_glibcs_do() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_aio", &["-lrt"]);
    let (disk, before) = (yard.random("disk.img", BYTES, 13), yard.path("before"));
    let contents = fs::read(&disk).unwrap();
    fs::write(&before, &contents).unwrap();
    let words = |name: &Path| {
        [program.as_os_str(), name.as_ref(), BYTES.to_string().as_ref(), before.as_ref()].map(OsStr::to_owned)
    };
    run(Command::new(&program).args(&words(&disk)[1..])).succeeded();
    let by_glibc = fs::read(&disk).unwrap();
    fs::write(&disk, contents).unwrap();
    let words = words(Path::new(NAME)).into_iter().chain(["forks".into()]);
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
    assert!(by_glibc == fs::read(&disk).unwrap());
    let words = [program.as_os_str(), NAME.as_ref(), BYTES.to_string().as_ref(), before.as_ref(), "20".as_ref()]
        .map(OsStr::to_owned);
    let slow = format!("{},iops=10", disk.display());
    let mut command = blockyard();
    run(command.args(["attach", "--aio-max", "20", &slow, NAME, "--"]).args(words)).succeeded();
    let words = [program.as_os_str(), NAME.as_ref(), BYTES.to_string().as_ref(), before.as_ref(), "long".as_ref()]
        .map(OsStr::to_owned);
    fs::copy(&before, &disk).unwrap();
    run(&mut on_disk(format!("{},latency=300ms", disk.display()), words)).succeeded();
}

/// What POSIX demands and leaves open, case by case: of a file by glibc, and of a disk. Where they differ, POSIX allows
/// both.
#[test]
fn what_posix_demands_of_aio_is_kept_as_by_glibc() {
    let differences = [
        // A disk does not grow: as on a device, there is no room behind its end.
        ("write_over_the_end: kept: 4096 bytes, no error", "write_over_the_end: kept: 512 bytes, ENOSPC"),
        (
            "offset_is_at_the_maximum: kept: EINVAL, EINVAL, EINVAL, EINVAL, no error, EFBIG",
            "offset_is_at_the_maximum: kept: EINVAL, EINVAL, EINVAL, EINVAL, no error, ENOSPC",
        ),
        // The kernel looks for the memory first, which cannot be there; POSIX has EINVAL for it.
        (
            "length_is_wrong: kept: EFAULT, EFAULT, EFAULT, EFAULT",
            "length_is_wrong: kept: EINVAL, EINVAL, EINVAL, EINVAL",
        ),
        // glibc's answer to a list that is not waited for has the error of a wrong priority; here, the request alone
        // has it, as it has any other.
        (
            "list_has_one_that_fails: kept: no error, EIO, no error, EIO, no error, EIO, EINVAL, EIO",
            "list_has_one_that_fails: kept: no error, EIO, no error, EIO, no error, EIO, no error, EIO",
        ),
        // To glibc, fewer than none are none.
        ("list_is_wrong: kept: no error", "list_is_wrong: kept: EINVAL"),
    ];
    let yard = Yard::new();
    let program = c_program(&yard, "posix_aio_conformance", &["-lrt"]);
    let (disk, file) = (yard.random("disk.img", BYTES, 23), yard.path("file"));
    fs::copy(&disk, &file).unwrap();
    let size = BYTES.to_string();
    let by_glibc = run(piped(Command::new(&program).arg(&file).arg(&size)));
    let words = [program.as_os_str(), NAME.as_ref(), size.as_ref()];
    let on_a_disk = run_without_leftovers(&mut on_disk(&disk, words));
    assert_eq!(by_glibc.stdout.lines().count(), on_a_disk.stdout.lines().count(), "{by_glibc:#?} {on_a_disk:#?}");
    let differing: Vec<_> =
        by_glibc.stdout.lines().zip(on_a_disk.stdout.lines()).filter(|(file, disk)| file != disk).collect();
    assert_eq!(differing, differences);
    by_glibc.succeeded();
    on_a_disk.succeeded();
    assert!(same(&disk, &file));
    // What is under way for some time, and what there is never room for.
    let slow = format!("{},iops=100", disk.display());
    for (disk, size, case) in [
        (slow.as_str(), &*size, "descriptor_is_closed_meanwhile"),
        (&slow, &size, "cancel_all"),
        (&slow, &size, "suspend_until_any_is_done"),
        (&slow, &size, "sync_between_writes"),
        (&slow, &size, "cancel_by_a_number_that_is_anothers"),
        (&slow, &size, "suspend_on_one_whose_number_is_anothers"),
        ("mem:160M", "167772160", "longer_than_there_is_room_for"),
    ] {
        let words = [program.as_os_str(), NAME.as_ref(), size.as_ref(), case.as_ref()];
        let outcome = run(&mut on_disk(disk, words)).succeeded();
        assert_eq!(outcome.stdout, format!("{case}: kept\n"));
    }
}
