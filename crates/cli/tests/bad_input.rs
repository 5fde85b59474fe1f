//! Everything that can be wrong with the disks and the options: one sentence, the right exit status, the destination as
//! it was, nothing left behind.

mod support;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Yard, backend, children, copy_command, finish, is_alive, random_bytes, run, wait_until};

const MIB: u64 = 1 << 20;

/// Runs a copy to `output`, which exists and must stay what it is, along with everything else in the directory.
#[track_caller]
fn fails_and_leaves_everything(yard: &Yard, command: &mut Command, output: &Path, code: i32, words: &[&str]) {
    let (names, contents) = (yard.names(), fs::read(output).ok());
    run(command).failed(code, words);
    assert_eq!(fs::read(output).ok(), contents, "the destination has changed");
    assert_eq!(yard.names(), names, "something was left behind");
}

#[test]
fn options_that_make_no_sense_are_usage_errors() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 5000, 1), yard.random("output", 9, 2));
    for (options, word) in [
        (&["--input-sector-size", "1000"][..], "power of two"),
        (&["--output-sector-size", "131072"], "power of two"),
        (&["--output-sector-size", "0"], "power of two"),
        (&["--progress-percent", "101"], "101"),
        (&["--queue-depth", "0"], "0"),
        (&["--request-size", "1000"], "multiple"),
        (&["--memory", "1G"], "--memory"),
        (&["--backend", "xen"], "xen"),
        (&["--no-such-option"], "--no-such-option"),
    ] {
        let mut command = copy_command(options);
        fails_and_leaves_everything(&yard, command.arg(&input).arg(&output), &output, 2, &[word]);
    }
    fails_and_leaves_everything(&yard, copy_command([&input]).arg("--json"), &output, 2, &["SRC DST"]);
}

#[test]
fn sources_that_cannot_be_read() {
    let yard = Yard::new();
    let output = yard.random("output", 9, 2);
    let missing = yard.path("missing");
    fails_and_leaves_everything(
        &yard,
        &mut copy_command([&missing, &output]),
        &output,
        1,
        &["missing", "No such file"],
    );
    let directory = yard.path("directory");
    fs::create_dir(&directory).unwrap();
    fails_and_leaves_everything(&yard, &mut copy_command([&directory, &output]), &output, 1, &["directory"]);
    let null = Path::new("/dev/null");
    fails_and_leaves_everything(&yard, copy_command([null]).arg(&output), &output, 1, &["/dev/null"]);
    let fifo = yard.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    fails_and_leaves_everything(&yard, copy_command([&fifo]).arg(&output), &output, 1, &["fifo"]);
}

#[test]
fn a_disk_is_not_copied_onto_itself() {
    let yard = Yard::new();
    let disk = yard.random("disk", 5000, 1);
    fails_and_leaves_everything(&yard, &mut copy_command([&disk, &disk]), &disk, 1, &["same"]);
    let (soft, hard) = (yard.path("soft"), yard.path("hard"));
    symlink(&disk, &soft).unwrap();
    fs::hard_link(&disk, &hard).unwrap();
    for link in [soft, hard] {
        fails_and_leaves_everything(&yard, &mut copy_command([&disk, &link]), &disk, 1, &["same"]);
        fails_and_leaves_everything(&yard, &mut copy_command([&link, &disk]), &disk, 1, &["same"]);
    }
}

#[test]
fn destinations_that_cannot_be_written() {
    let yard = Yard::new();
    let input = yard.random("input", 5000, 1);
    let directory = yard.path("directory");
    fs::create_dir(&directory).unwrap();
    fails_and_leaves_everything(&yard, &mut copy_command([&input, &directory]), &directory, 1, &["directory"]);
    let nowhere = yard.path("no-such-directory/output");
    fails_and_leaves_everything(&yard, &mut copy_command([&input, &nowhere]), &nowhere, 1, &["no-such-directory"]);
    let under_file = input.join("output");
    fails_and_leaves_everything(&yard, &mut copy_command([&input, &under_file]), &input, 1, &["input"]);
    let dangling = yard.path("dangling");
    symlink(yard.path("gone"), &dangling).unwrap();
    fails_and_leaves_everything(&yard, &mut copy_command([&input, &dangling]), &dangling, 1, &["dangling"]);
    fails_and_leaves_everything(&yard, copy_command([&input]).arg("/dev/full"), &input, 1, &["/dev/full"]);
}

/// As somebody who may not.
#[test]
fn permissions_count() {
    let yard = Yard::new();
    fs::set_permissions(yard.path("."), fs::Permissions::from_mode(0o777)).unwrap();
    let (input, output) = (yard.random("input", 5000, 1), yard.random("output", 9, 2));
    fs::set_permissions(&output, fs::Permissions::from_mode(0o444)).unwrap();
    let as_nobody = |paths: [&Path; 2]| {
        let mut command = copy_command(paths);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        command
    };
    if backend() == "kvm" {
        // /dev/kvm is root's alone there.
        return;
    }
    fails_and_leaves_everything(&yard, &mut as_nobody([&input, &output]), &output, 1, &["output", "denied"]);
    fs::set_permissions(&input, fs::Permissions::from_mode(0o000)).unwrap();
    fails_and_leaves_everything(&yard, &mut as_nobody([&input, &yard.path("new")]), &output, 1, &["input", "denied"]);
    fs::set_permissions(&input, fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(yard.path("."), fs::Permissions::from_mode(0o555)).unwrap();
    fails_and_leaves_everything(&yard, &mut as_nobody([&input, &yard.path("new")]), &output, 1, &["new", "denied"]);
}

/// What only this user is to have stays this user's.
#[test]
fn a_umask_takes_nothing_from_what_a_command_makes_for_itself() {
    if backend() == "kvm" {
        // The appliance is not there.
        return;
    }
    let yard = Yard::new();
    fs::set_permissions(yard.path("."), fs::Permissions::from_mode(0o777)).unwrap();
    let disk = yard.sparse("disk.img", 16 * MIB, &[], 1);
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o666)).unwrap();
    let image = |words: &[&str], lines: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0777; printf \"$0\" | \"$@\"", lines, env!("CARGO_BIN_EXE_blockyard"), "image"]);
        command.args(words).current_dir(yard.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        run(&mut command).succeeded().stdout
    };
    image(&["mkfs", "disk.img", "ext4"], "");
    assert_eq!(image(&["ls", "disk.img", "/"], ""), "lost+found\n");
    assert_eq!(image(&["shell"], "scratch 1M\nblockdev-getsize64 /dev/sda\n"), "1048576\n");
}

/// Makes the kernel refuse `system_call` with `errno` when its argument `argument` is at least `least`.
fn refuse(command: &mut Command, system_call: i64, argument: u8, least: u64, errno: i32) {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Ge, least).unwrap();
    let rules = [(system_call, vec![SeccompRule::new(vec![condition]).unwrap()])];
    let architecture = std::env::consts::ARCH.try_into().unwrap();
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
    let filter = SeccompFilter::new(rules.into_iter().collect(), allow, refuse, architecture).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&program).map_err(|_| std::io::ErrorKind::Other.into()));
    }
}

/// A disk that fails in the middle, as the kernel would say it: from 4 MiB on, every read or write is an I/O error.
#[test]
fn an_io_error_in_the_middle() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 16 * MIB, 1), yard.random("output", 9, 2));
    // Its last sector is behind the error, and would show what it is.
    let input = format!("{},format=raw", input.display());
    for (system_calls, verb) in [
        ([libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_pread64], "read"),
        ([libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_pwrite64], "write"),
    ] {
        for engine in ["sync", "threads"] {
            let mut command = copy_command(["--engine", engine]);
            for system_call in system_calls {
                refuse(&mut command, system_call, 3, 4 * MIB, libc::EIO);
            }
            let words = [verb, "at byte", "Input/output error"];
            fails_and_leaves_everything(&yard, command.arg(&input).arg(&output), &output, 1, &words);
        }
    }
    let mut command = copy_command([Path::new(&input), &output]);
    refuse(&mut command, libc::SYS_fdatasync, 0, 0, libc::EIO);
    fails_and_leaves_everything(&yard, &mut command, &output, 1, &["flush", "Input/output error"]);
}

#[test]
fn no_space_left() {
    let yard = Yard::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("mounting a small file system takes root: not tried");
        return;
    }
    let small = yard.path("small");
    fs::create_dir(&small).unwrap();
    rustix::mount::mount("none", &small, "tmpfs", rustix::mount::MountFlags::empty(), c"size=4m").unwrap();
    let output = small.join("output");
    fs::write(&output, b"as it was").unwrap();
    // In one piece, which fails when storage is reserved; and in pieces too small to reserve, which fails in the
    // middle.
    let whole = yard.random("whole", 8 * MIB, 1);
    let pieces: Vec<_> = (0..64).map(|piece| (piece * MIB, MIB / 8)).collect();
    let pieces = yard.sparse("pieces", 64 * MIB, &pieces, 2);
    let outcomes = [whole, pieces].map(|input| {
        let outcome = run(&mut copy_command([&input, &output]));
        (outcome, fs::read(&output), fs::read_dir(&small).unwrap().count())
    });
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::DETACH).unwrap();
    for (outcome, contents, files) in outcomes {
        outcome.failed(1, &["output", "space left"]);
        assert_eq!((contents.unwrap().as_slice(), files), (&b"as it was"[..], 1));
    }
}

#[test]
fn a_limit_of_file_sizes() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 4 << 20, 1), yard.random("output", 9, 2));
    let mut command = Command::new("sh");
    // Blocks of 512 bytes.
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    command.args(["-c", "ulimit -f 100; exec \"$0\" copy \"$1\" \"$2\"", env!("CARGO_BIN_EXE_blockyard")]);
    fails_and_leaves_everything(&yard, command.arg(&input).arg(&output), &output, 1, &["output", "File too large"]);
}

#[test]
fn a_source_that_is_truncated_while_it_is_read() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 64 * MIB, 1), yard.random("output", 9, 2));
    let contents = fs::read(&output).unwrap();
    // Slow enough: a sector a request, one at a time.
    let slow = ["--request-size", "512", "--queue-depth", "1", "--debug"];
    let mut child = copy_command(slow).arg(&input).arg(&output).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains("Progress") {
        let mut piece = [0; 512];
        let length = stderr.read(&mut piece).unwrap();
        assert!(length > 0, "{}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..length]);
    }
    File::options().write(true).open(&input).unwrap().set_len(4096).unwrap();
    stderr.read_to_end(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(finish(child).code, Some(1), "{text}");
    assert!(text.contains("cannot read") && text.contains("became shorter"), "{text}");
    assert_eq!(fs::read(&output).unwrap(), contents);
    assert_eq!(yard.names().len(), 2);
}

#[test]
fn guests_that_are_no_guests() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 5000, 1), yard.random("output", 9, 2));
    let (empty, large, missing) = (yard.random("empty", 0, 0), yard.random("large", 2 * MIB, 3), yard.path("missing"));
    let fifo = yard.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    for (guest, words) in [
        (&empty, ["empty", "is empty"]),
        (&fifo, ["fifo", "is empty"]),
        (&large, ["large", "at most"]),
        (&missing, ["missing", "No such file"]),
        (&yard.path("."), ["guest", "directory"]),
    ] {
        let mut command = copy_command(["--input", input.to_str().unwrap(), "--output", output.to_str().unwrap()]);
        fails_and_leaves_everything(&yard, command.arg(guest), &output, 1, &words);
    }
    // Bytes that are no code do anything at all, except harm.
    for seed in 0..support::rounds(20) {
        let noise = yard.path("noise");
        fs::write(&noise, random_bytes(50_000, seed)).unwrap();
        let contents = fs::read(&output).unwrap();
        let outcome = run(copy_command(["--timeout", "1"]).arg(&input).arg(&output).arg(&noise));
        outcome.failed(1, &["guest"]);
        assert_eq!(fs::read(&output).unwrap(), contents);
    }
}

/// As of other programs that SIGPIPE ends: who has closed the pipe has had enough.
#[test]
fn a_reader_who_has_gone_needs_no_word() {
    let blockyard = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.args(words).stdout(writer);
        command
    };
    for words in [&["--help"][..], &["image", "--help"], &["--version"], &["image", "info", "mem:1M"]] {
        let output = blockyard(words).output().unwrap();
        assert_eq!((output.status.code(), &output.stderr[..]), (Some(141), &b""[..]), "{words:?}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = blockyard(words).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("cannot write the output: No space left"), "{words:?}: {said}");
    }
}

/// The copy is made; that nobody could be told is an error all the same.
#[test]
fn a_summary_that_cannot_be_printed() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 5000, 1), yard.path("output"));
    let full = || File::options().write(true).open("/dev/full").unwrap();
    run(copy_command([&input, &output]).stdout(full())).failed(1, &["cannot write the output", "No space left"]);
    assert!(support::same(&input, &output));
    run(copy_command(["--stats"]).arg(&input).arg(&output).stderr(full())).succeeded();
}

#[test]
fn signals_stop_it_and_nothing_is_left() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 64 * MIB, 1), yard.random("output", 9, 2));
    let (names, contents) = (yard.names(), fs::read(&output).unwrap());
    for (signal, word) in [(libc::SIGINT, Some("Ctrl-C")), (libc::SIGTERM, Some("SIGTERM")), (libc::SIGKILL, None)] {
        let slow = ["--request-size", "512", "--queue-depth", "1"];
        let child = copy_command(slow).arg(&input).arg(&output).spawn().unwrap();
        let pid = child.id();
        let mut guests = Vec::new();
        if backend() == "user" {
            wait_until("the guest's process", || {
                guests = children(pid);
                !guests.is_empty()
            });
        } else {
            let is_vcpu =
                |link: PathBuf| fs::read_link(link).is_ok_and(|file| file.to_string_lossy().contains("kvm-vcpu"));
            wait_until("its virtual CPU", || {
                let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
                open.map(|entry| entry.path()).any(is_vcpu)
            });
        }
        // SAFETY: sends a signal to a process of ours that has not been waited for.
        assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
        let outcome = finish(child);
        if let Some(word) = word {
            // As shells have it.
            outcome.failed(128 + signal, &[word]);
        }
        wait_until("the guest's end", || !guests.iter().any(|&guest| is_alive(guest)));
        assert_eq!((yard.names(), fs::read(&output).unwrap()), (names.clone(), contents.clone()), "signal {signal}");
    }
}

/// Each thing is said once: what failed, with which disk, and why.
#[test]
fn an_error_is_one_sentence_that_repeats_nothing() {
    let yard = Yard::new();
    let (input, output, socket) = (yard.random("input", 5000, 1), yard.path("output"), yard.path("socket"));
    let [shown, missing, out] =
        [&input, &yard.path("missing"), &yard.path("none/output")].map(|path| path.display().to_string());
    for (source, destination, line) in [
        (
            missing.clone(),
            &output,
            format!("cannot open {missing} for reading: No such file or directory (os error 2)"),
        ),
        (
            format!("{missing},format=qcow2"),
            &output,
            format!("cannot open {missing} for reading: No such file or directory (os error 2)"),
        ),
        (format!("{shown},partition=1"), &output, format!("{shown}: there is no partition 1: the disk has none")),
        (
            format!("session:{}", socket.display()),
            &output,
            format!("nobody listens on {}: is `blockyard serve` running?", socket.display()),
        ),
        (
            shown.clone(),
            &PathBuf::from("/dev/blockyard-none"),
            "there is no device /dev/blockyard-none: name one that is there, or a file that is not in /dev".to_owned(),
        ),
        (shown, &yard.path("none/output"), format!("there is no directory {}: create it first", &out[..out.len() - 7])),
    ] {
        let outcome = run(copy_command([source]).arg(destination)).failed(1, &[]);
        assert_eq!(outcome.stderr, format!("blockyard: {line}\n"));
    }
}
