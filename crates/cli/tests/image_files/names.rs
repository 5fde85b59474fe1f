//! Files are what their names lead to, once.

use super::*;
use std::os::unix::fs::symlink;

/// How often a command opens a file by this name, other than to look at its directory.
fn openings(yard: &Yard, name: &str, arguments: &[&str]) -> usize {
    let log = yard.path("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-e", "trace=open,openat,openat2", "-o"]).arg(&log);
    command.arg(env!("CARGO_BIN_EXE_blockyard")).arg("image").args(arguments).current_dir(yard.path(""));
    let output = command.output().expect("strace comes with the package of that name");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let named = format!("{name}\"");
    let log = fs::read_to_string(log).unwrap();
    log.lines().filter(|line| line.contains(&named) && !line.contains(" = -1 ")).count()
}

/// Who owns the directory can put another file there between two openings.
#[test]
fn who_works_on_an_images_file_opens_it_once() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 1);
    yard.random("other.img", MIB, 1);
    fs::write(yard.path("raw.img"), vec![1; MIB as usize]).unwrap();
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "top.qcow2"]).succeeded();
    for (name, arguments) in [
        ("raw.img", &["info", "raw.img"][..]),
        ("top.qcow2", &["info", "top.qcow2"]),
        ("raw.img", &["map", "raw.img"]),
        ("raw.img", &["resize", "raw.img", "2M"]),
        ("top.qcow2", &["map", "--allow-dir", ".", "top.qcow2"]),
        ("top.qcow2", &["check", "top.qcow2"]),
        ("top.qcow2", &["check", "-r", "all", "top.qcow2"]),
        ("top.qcow2", &["resize", "--allow-dir", ".", "top.qcow2", "2M"]),
        ("top.qcow2", &["convert", "-n", "--allow-dir", ".", "raw.img", "top.qcow2"]),
        ("top.qcow2", &["rebase", "--allow-dir", ".", "-b", "other.img", "-F", "raw", "top.qcow2"]),
        ("top.qcow2", &["commit", "--allow-dir", ".", "top.qcow2"]),
    ] {
        assert_eq!(openings(&yard, name, arguments), 1, "{arguments:?}");
    }
    fs::write(yard.path("script"), "sparse new.img 1000000\nalloc other-new.img 1000000\n").unwrap();
    assert_eq!(openings(&yard, "new.img", &["script", "script"]), 0, "what had just been made was opened by its name");
    assert_eq!(fs::metadata(yard.path("new.img")).unwrap().len(), 1_000_000);
    assert!(allocated_bytes(&yard.path("other-new.img")) >= 1_000_000 && allocated_bytes(&yard.path("new.img")) == 0);
}

/// A name in an image starts from where the image's own name is, a symbolic link or not: as QEMU has it, and in all
/// commands alike.
#[test]
fn a_backing_file_is_looked_for_beside_the_name_of_the_image() {
    let yard = Yard::new();
    fs::create_dir(yard.path("a")).unwrap();
    fs::create_dir(yard.path("b")).unwrap();
    for (seed, name) in [(1, "a/base.img"), (2, "b/base.img")] {
        yard.random(name, MIB, seed);
    }
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "a/top.qcow2"]).succeeded();
    symlink("../a/top.qcow2", yard.path("b/link.qcow2")).unwrap();
    for (name, base) in [("a/top.qcow2", "a/base.img"), ("b/link.qcow2", "b/base.img")] {
        image(&yard, ["convert", "-q", "--allow-dir", ".", name, "ours.img"]).succeeded();
        qemu_img(&yard, &format!("convert -O raw {name} theirs.img"));
        assert!(same(&yard.path("ours.img"), &yard.path("theirs.img")), "{name}");
        assert!(same(&yard.path("ours.img"), &yard.path(base)), "{name}");
    }
    // What it shows stays, by the name that it is given here.
    fs::copy(yard.path("b/base.img"), yard.path("b/moved.img")).unwrap();
    yard.random("a/moved.img", MIB, 3);
    image(&yard, ["rebase", "-q", "--allow-dir", ".", "-b", "moved.img", "-F", "raw", "b/link.qcow2"]).succeeded();
    image(&yard, ["convert", "-q", "--allow-dir", ".", "b/link.qcow2", "ours.img"]).succeeded();
    assert!(same(&yard.path("ours.img"), &yard.path("b/base.img")), "a rebase has changed what the image shows");
}

#[test]
fn what_cannot_be_checked_makes_no_json() {
    let yard = Yard::new();
    yard.random("raw.img", MIB, 1);
    let outcome = image(&yard, ["check", "--json", "raw.img"]).failed(63, &["does not support checks"]);
    assert_eq!(outcome.stdout, "");
}

/// What -f says is said of the disk, and not written behind its name.
#[test]
fn a_comma_at_the_end_of_a_name_does_not_take_the_format_into_it() {
    let yard = Yard::new();
    yard.random("raw.img", MIB, 1);
    image(&yard, ["info", "-f", "raw", "raw.img,"])
        .failed(2, &["there is nothing between two commas, or after the last"]);
    image(&yard, ["create", "-q", "-f", "raw", "new.img,", "1M"]).failed(2, &["or after the last"]);
    assert!(!yard.path("new.img,format=raw").exists());
    image(&yard, ["info", "-f", "raw", "raw.img,format=raw"])
        .failed(2, &["the key 'format' is there twice; once is enough\n  raw.img,format=raw,format=raw\n"]);
    image(&yard, ["info", "-f", "raw", "mem:1M"])
        .failed(2, &["'format' is not for a mem: disk", "\n  mem:1M,format=raw\n"]);
}
