//! Streams of stdio, beside what glibc's are on a file.

use crate::support::{Yard, run, run_without_leftovers};
use crate::{BYTES, NAME, c_program, on_disk, piped};
use std::fs;
use std::process::Command;

#[test]
fn streams_are_on_a_disk_as_on_a_file() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_streams", &[]);
    let (disk, file, other) = (yard.random("disk.img", BYTES, 31), yard.path("file"), yard.path("other"));
    fs::copy(&disk, &file).unwrap();
    let size = BYTES.to_string();
    let by_glibc = run(piped(Command::new(&program).arg(&file).arg(&other).arg(&size))).succeeded();
    let words = [program.as_os_str(), NAME.as_ref(), other.as_ref(), size.as_ref()];
    let on_a_disk = run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
    assert_eq!(by_glibc.stdout, "begun ended\nall\n");
    assert_eq!(by_glibc.stdout, on_a_disk.stdout);
}

/// Programs of the machine's, on streams that a shell has redirected, or by name.
#[test]
fn programs_hear_what_stdio_could_not_write() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 32);
    for (specification, script) in [
        ("", "head -c 16M /dev/zero | tee /disk >/dev/null"),
        ("", "head -c 16M /dev/zero | tail -c 9000000 >/disk"),
        (",faults=write-error:1.0", "echo text | tee /disk >/dev/null"),
    ] {
        let specification = format!("{}{specification}", disk.display());
        run(&mut on_disk(specification, ["sh", "-c", script])).failed(1, &[]);
    }
    let script =
        "printf 'abc\\n' | dd of=/disk conv=sync 2>/dev/null && rev /disk | head -n 1 && rev </disk | head -n 1";
    assert_eq!(run(&mut on_disk("mem:64K", ["sh", "-c", script])).succeeded().stdout, "cba\ncba\n");
}
