//! What programs give to calls on a disk: addresses at which nothing is, and small stacks.

use crate::support::{Yard, blockyard, run, run_without_leftovers};
use crate::{BYTES, NAME, c_program, on_disk};
use std::fs;

/// Also in threads that have blocked the signals by which it is noticed, which would end the program.
#[test]
fn what_is_not_there_is_an_error_in_every_call() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_faults", &["-lrt"]);
    let disk = yard.random("disk.img", BYTES, 43);
    run_without_leftovers(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref()])).succeeded();
    let mut command = blockyard();
    command.arg("attach").arg(&disk).args([NAME, "--as", "file", "--"]);
    run_without_leftovers(command.arg(&program).args([NAME, "parts"])).succeeded();
}

#[test]
fn the_first_call_on_a_disk_needs_no_large_stack() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_stacks", &["-lrt"]);
    let (disk, before) = (yard.random("disk.img", BYTES, 44), yard.path("before"));
    fs::copy(&disk, &before).unwrap();
    run(&mut on_disk(&disk, [program.as_os_str(), NAME.as_ref(), before.as_ref()])).succeeded();
}
