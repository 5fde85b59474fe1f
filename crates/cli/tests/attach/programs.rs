//! Programs as people have them, and what takes no library.

use crate::server::Server;
use crate::support::{Yard, blockyard, random_bytes, run, run_without_leftovers, same};
use crate::{BYTES, NAME, c_program, on_disk};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

#[test]
fn python_works_on_a_disk_as_on_a_file() {
    let yard = Yard::new();
    let (disk, twin) = (yard.random("disk.img", BYTES, 24), yard.path("twin"));
    fs::copy(&disk, &twin).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/posix_python.py");
    let copy = yard.path("copy");
    let words = ["/usr/bin/python3".as_ref(), script.as_os_str(), NAME.as_ref(), twin.as_ref(), copy.as_ref()];
    run_without_leftovers(&mut on_disk(&disk, words)).succeeded();
    assert!(same(&disk, &twin));
}

#[test]
fn a_program_that_is_linked_to_the_library_attaches_by_itself() {
    let yard = Yard::new();
    let prefix = yard.path("prefix");
    run(blockyard().args(["attach", "--install-library"]).arg(&prefix)).succeeded();
    let package = fs::read_to_string(prefix.join("lib/pkgconfig/blockyard-posix.pc")).unwrap();
    assert!(package.contains(&format!("prefix={}\n", prefix.display())), "{package}");
    let (include, library) = (format!("-I{}/include", prefix.display()), format!("-L{}/lib", prefix.display()));
    let program = c_program(&yard, "posix_linked", &[&include, &library, "-lblockyard_posix"]);
    let (disk, before) = (yard.random("disk.img", BYTES, 22), yard.path("before"));
    fs::copy(&disk, &before).unwrap();
    let mut command = Command::new(program);
    run(command.args([&disk, &before]).env("LD_LIBRARY_PATH", prefix.join("lib"))).succeeded();
    assert!(fs::read(&disk).unwrap()[777..].starts_with(b"linked"));
    // What is there is replaced.
    run(blockyard().args(["attach", "--install-library"]).arg(&prefix)).succeeded();
    assert_eq!(fs::read_dir(prefix.join("lib")).unwrap().count(), 2);
}

#[test]
fn a_program_that_is_linked_to_the_library_has_queues() {
    let yard = Yard::new();
    let prefix = yard.path("prefix");
    run(blockyard().args(["attach", "--install-library"]).arg(&prefix)).succeeded();
    let (include, library) = (format!("-I{}/include", prefix.display()), format!("-L{}/lib", prefix.display()));
    let program = c_program(&yard, "posix_queue", &[&include, &library, "-lblockyard_posix"]);
    let (image, before, socket) = (yard.random("disk.img", BYTES, 23), yard.path("before"), yard.path("sock"));
    fs::copy(&image, &before).unwrap();
    let words =
        |disk: &OsStr| [program.as_os_str(), disk, BYTES.to_string().as_ref(), before.as_os_str()].map(OsStr::to_owned);
    let on = |command: &mut Command| {
        run(command.env("LD_LIBRARY_PATH", prefix.join("lib"))).succeeded();
        let (mut expected, end) = (fs::read(&before).unwrap(), 7 * 4096);
        expected[5 * 4096..end].fill(b'q');
        expected[5 * 4096..5 * 4096 + 512].fill(0);
        assert!(fs::read(&image).unwrap()[..end] == expected[..end]);
        fs::copy(&before, &image).unwrap();
    };
    on(Command::new(&program).args(&words(image.as_os_str())[1..]));
    on(&mut on_disk(&image, words(NAME.as_ref())));
    let server = Server::start(&[image.as_os_str(), "--socket".as_ref(), socket.as_os_str()], &socket);
    let session = format!("session:{}", socket.display());
    on(Command::new(&program).args(&words(session.as_ref())[1..]));
    server.stop();
}

#[test]
fn dd_copies_in_blocks_of_any_size() {
    let yard = Yard::new();
    let (disk, copy) = (yard.random("disk.img", BYTES, 2), yard.path("copy.img"));
    for options in ["bs=4k", "bs=1M", "bs=12345", "bs=1M iflag=direct"] {
        let of = format!("of={}", copy.display());
        let words = ["dd", "if=/disk", &of].into_iter().chain(options.split(' '));
        run(&mut on_disk(&disk, words)).succeeded();
        assert!(same(&disk, &copy), "{options}");
    }
    let source = yard.random("source.img", BYTES, 3);
    for options in ["bs=4k", "bs=1M oflag=direct", "bs=12345 conv=fsync", "bs=64k oflag=dsync"] {
        fs::write(&disk, random_bytes(BYTES as usize, 4)).unwrap();
        let from = format!("if={}", source.display());
        let words = ["dd", &*from, "of=/disk"].into_iter().chain(options.split(' '));
        run(&mut on_disk(&disk, words)).succeeded();
        assert!(same(&disk, &source), "{options}");
    }
}

/// It locks what it opens, byte by byte, for itself and against others.
#[test]
fn qemu_img_takes_a_disk_for_a_device() {
    let yard = Yard::new();
    let (disk, copy) = (yard.random("disk.img", BYTES, 19), yard.path("copy.qcow2"));
    let convert = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", NAME].map(OsStr::new);
    run(&mut on_disk(&disk, convert.into_iter().chain([copy.as_os_str()]))).succeeded();
    let compare = ["qemu-img", "compare", "-f", "raw", "-F", "qcow2", NAME].map(OsStr::new);
    run(&mut on_disk(&disk, compare.into_iter().chain([copy.as_os_str()]))).succeeded();
    let other = yard.random("other.img", BYTES, 20);
    let back = ["qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw"].map(OsStr::new);
    run(&mut on_disk(&other, back.into_iter().chain([copy.as_os_str(), NAME.as_ref()]))).succeeded();
    assert!(same(&disk, &other));
}

/// It locks, writes its journal, and finds both as it left them: by one process, and by several.
#[test]
fn a_database_is_written_by_several_processes() {
    let yard = Yard::new();
    let (database, journal) = (yard.path("database"), yard.path("journal"));
    let make = "CREATE TABLE words(word TEXT); INSERT INTO words VALUES('one'), ('two'), ('three')";
    run(Command::new("sqlite3").arg(&database).arg(make)).succeeded();
    for path in [&database, &journal] {
        fs::File::options().create(true).append(true).open(path).unwrap().set_len(BYTES).unwrap();
    }
    let on_both = |script: &str| {
        let mut command = blockyard();
        command.args(["attach", "--as", "file"]).arg(&database).arg("/base").arg(&journal).arg("/base-journal");
        run(command.args(["--", "sh", "-c", script])).succeeded().stdout
    };
    let many = "sqlite3 /base \"PRAGMA journal_mode=PERSIST; BEGIN; INSERT INTO words SELECT hex(randomblob(300)) FROM words a, \
                words b, words c, words d, words e; ROLLBACK; BEGIN; INSERT INTO words SELECT hex(randomblob(300)) FROM \
                words a, words b, words c, words d; COMMIT; SELECT count(*) FROM words; PRAGMA integrity_check\"";
    assert_eq!(on_both(many), "persist\n84\nok\n");
    let several = "for process in 1 2 3; do
                       (for turn in 1 2 3; do sqlite3 -cmd '.timeout 600000' -cmd 'PRAGMA journal_mode=PERSIST' /base \
                            \"INSERT INTO words VALUES('$process $turn')\" >/dev/null || echo failed; done) &
                   done; wait; sqlite3 /base 'SELECT count(*) FROM words; PRAGMA integrity_check'";
    assert_eq!(on_both(several), "93\nok\n");
    let check = "PRAGMA integrity_check; SELECT count(*) FROM words";
    let checked = Command::new("sqlite3").arg(&database).arg(check).output().unwrap();
    assert_eq!(String::from_utf8(checked.stdout).unwrap(), "ok\n93\n");
}

#[test]
fn file_systems_are_made_filled_and_checked_by_name() {
    let yard = Yard::new();
    let image = yard.path("vm.qcow2");
    run(blockyard()
        .args(["image", "create", "--table", "gpt", "--part", "24M", "--part", "rest"])
        .arg(&image)
        .arg("64M"))
    .succeeded();
    let disk = format!("{},partition=1", image.display());
    let file = yard.random("file", 300_000, 6);
    let path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    let write = format!("write {} file", file.display());
    for words in [&["mkfs.ext4", "-q", NAME][..], &["debugfs", "-w", "-R", &write, NAME], &["e2fsck", "-fn", NAME]] {
        run(&mut on_disk(&disk, ["env", path].iter().chain(words))).succeeded();
    }
    let output = blockyard().args(["image", "cat"]).arg(&image).args(["-m", "1", "/file"]).output().unwrap();
    assert!(output.status.success() && output.stdout == fs::read(&file).unwrap(), "{output:?}");
}

#[test]
fn fio_verifies_what_several_processes_write() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 7);
    for engine in ["psync", "pvsync2", "sync", "posixaio --iodepth=32"] {
        let engine = format!("--ioengine={engine}");
        let engine = engine.split(' ');
        let words = [
            "fio",
            "--name=x",
            "--filename=/disk",
            "--rw=randwrite",
            "--bs=4k",
            "--size=2m",
            "--verify=crc32c",
            "--verify_state_save=0",
        ];
        let several = ["--offset_increment=2m", "--numjobs=4", "--fsync=64"];
        run(&mut on_disk(&disk, words.into_iter().chain(several).chain(engine))).succeeded();
    }
}

#[test]
fn what_takes_no_library_is_refused() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", BYTES, 12);
    let busybox = run(&mut on_disk(&disk, ["/bin/busybox", "cat", NAME]));
    busybox.failed(126, &["/bin/busybox is linked statically"]);
    let script = yard.path("script");
    fs::write(&script, "#!/bin/busybox sh\n").unwrap();
    let cat = yard.path("cat");
    fs::copy("/bin/cat", &cat).unwrap();
    for (program, mode, words) in [(&script, 0o755, "is linked statically"), (&cat, 0o4755, "has more rights than")] {
        fs::set_permissions(program, fs::Permissions::from_mode(mode)).unwrap();
        run(&mut on_disk(&disk, [program])).failed(126, &[words]);
    }
    for words in [&["a", "--", "true"][..], &["mem:1M", "", "--", "true"], &["mem:1M", "a=b", "--", "true"]] {
        run(blockyard().arg("attach").args(words)).failed(2, &["name"]);
    }
    let twice = ["attach", "mem:1M", "a", "mem:1M", "a", "--", "true"];
    run(blockyard().args(twice)).failed(2, &["two disks are called a"]);
    run(&mut on_disk(yard.path("nosuch.img"), ["true"])).failed(1, &["nosuch.img", "No such file"]);
}

/// They lie in one image, which is opened once, whatever it is called.
#[test]
fn partitions_of_one_image_are_attached_at_once() {
    let yard = Yard::new();
    let (raw, image, link) = (yard.path("disk.img"), yard.path("vm.qcow2"), yard.path("link.qcow2"));
    let table = yard.path("table");
    fs::write(&table, "label: gpt\nsize=4M\nsize=4M\n").unwrap();
    File::create(&raw).unwrap().set_len(16 << 20).unwrap();
    let mut sfdisk = Command::new("sfdisk");
    run(sfdisk.arg("-q").arg(&raw).stdin(File::open(&table).unwrap())).succeeded();
    run(blockyard().args(["image", "convert"]).args([&raw, &image])).succeeded();
    symlink("vm.qcow2", &link).unwrap();
    let attach = |disks: [String; 2], script: &str| {
        let mut command = blockyard();
        let [one, two] = disks;
        run(command.args(["attach", &one, "/one", &two, "/two", "--", "sh", "-c", script]))
    };
    let part = |file: &Path, more: &str| format!("{},partition={more}", file.display());
    let script = "printf first >/one && printf other >/two && head -c 5 /one && head -c 5 /two";
    let outcome = attach([part(&image, "1"), part(&link, "2")], script).succeeded();
    assert_eq!(outcome.stdout, "firstother");
    let outcome = attach([part(&image, "2,ro"), part(&link, "2,ro")], "head -c 5 /one; cmp /one /two").succeeded();
    assert_eq!(outcome.stdout, "other");
    run(blockyard().args(["image", "convert"]).args([&image, &raw])).succeeded();
    let content = fs::read(&raw).unwrap();
    assert!(content[1 << 20..].starts_with(b"first") && content[5 << 20..].starts_with(b"other"));
    for (disks, said) in [
        ([part(&image, "1"), part(&link, "1,ro")], "overlap"),
        ([part(&image, "1"), part(&image, "2,direct")], "are partitions of one disk: say the same of it"),
        ([part(&image, "1"), part(&image, "3")], "no partition 3"),
    ] {
        let outcome = attach(disks, "true");
        assert!(outcome.code != Some(0) && outcome.stderr.contains(said), "{said}: {outcome:#?}");
    }
}
