//! `blockyard run`. What needs a real KVM runs in the lab, by its name.

#[path = "run/disks.rs"]
mod disks;
#[path = "run/kernels.rs"]
mod kernels;
#[path = "run/lab_guest.rs"]
mod lab_guest;
#[path = "server/mod.rs"]
mod server;
mod support;

use lab_guest::LabGuest;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{LocalModes, tcgetattr};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Yard, blockyard, finish, run, terminal, wait_until};

const SECTOR_BYTES: usize = 512;

/// `blockyard run` of this kernel on KVM.
fn on_kvm(kernel: &Path) -> Command {
    let mut command = blockyard();
    command.args(["run", "--backend", "kvm", "--memory", "64M", "--kernel"]).arg(kernel);
    command
}

/// A kernel that is nothing but `code`, entered in 64-bit mode.
fn tiny_kernel(yard: &Yard, name: &str, code: &[u8]) -> PathBuf {
    const ENTRY_64: usize = 0x200;
    let mut image = vec![0; 2 * SECTOR_BYTES + ENTRY_64];
    let mut set = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    set(0x1f1, &[1]);
    set(0x200, &[0xeb, 0x70]);
    set(0x202, b"HdrS");
    set(0x206, &0x020f_u16.to_le_bytes());
    set(0x211, &[1]);
    set(0x22c, &0x7fff_ffff_u32.to_le_bytes());
    set(0x236, &1_u16.to_le_bytes());
    set(0x238, &2047_u32.to_le_bytes());
    set(0x258, &0x10_0000_u64.to_le_bytes());
    set(0x260, &0x1_0000_u32.to_le_bytes());
    image.extend(code);
    let path = yard.path(name);
    fs::write(&path, image).unwrap();
    path
}

/// Says `words`, and then what it hears.
fn echoing(words: &[u8]) -> Vec<u8> {
    #[rustfmt::skip]
    let code = [
        0x66, 0xba, 0xf8, 0x03,                         // mov dx, 0x3f8
        0x48, 0x8d, 0x35, 0x19, 0x00, 0x00, 0x00,       // lea rsi, [words]
        0xac,                                           // next: lodsb
        0x84, 0xc0,                                     // test al, al
        0x74, 0x03,                                     // jz listen
        0xee,                                           // out dx, al
        0xeb, 0xf8,                                     // jmp next
        0x66, 0xba, 0xfd, 0x03,                         // listen: mov dx, 0x3fd
        0xec,                                           // in al, dx
        0xa8, 0x01,                                     // test al, 1
        0x74, 0xf7,                                     // jz listen
        0x66, 0xba, 0xf8, 0x03,                         // mov dx, 0x3f8
        0xec,                                           // in al, dx
        0xee,                                           // out dx, al
        0xeb, 0xef,                                     // jmp listen
    ];
    [&code, words, &[0]].concat()
}

#[test]
fn kvm_linux_has_disks_reboots_and_powers_off() {
    let Some(guest) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let initrd = yard.path("initrd");
    let script = "read -r word </dev/vda; echo boot: $word, processors: $(nproc), dropped: $(head -c 3 /dev/vdb)\n\
                  echo new >/dev/vdb\n\
                  echo xyz >/dev/vdc || echo vdc is read-only\n\
                  for disk in vdd vde vdf; do echo $disk of $word: $(dd if=/dev/$disk skip=1000 count=1 2>/dev/null | head -c 5)\n\
                  printf grown | dd of=/dev/$disk seek=1000 conv=fsync 2>/dev/null || echo $disk fails; done\n\
                  [ $word = second ] || { printf 'second\\n' | dd of=/dev/vda conv=fsync 2>/dev/null; reboot -f; }";
    guest.write_initrd(&initrd, script);
    let disk = |name: &str, text: &str| {
        let mut content = text.as_bytes().to_vec();
        content.resize(1 << 20, 0);
        fs::write(yard.path(name), content).unwrap();
    };
    for (name, text) in [("a.img", "first\n"), ("b.img", "old\n"), ("c.img", ""), ("e.img", ""), ("f.img", "")] {
        disk(name, text);
    }
    let mut create = blockyard();
    run(create.current_dir(yard.path("")).args(["image", "create", "-q", "d.qcow2", "1M"])).succeeded();
    let allocated = || fs::metadata(yard.path("d.qcow2")).unwrap().len();
    let empty = allocated();
    let mut command = on_kvm(&guest.kernel());
    command.current_dir(yard.path("")).arg("a.img").arg("--initrd").arg(&initrd);
    command.args(["--disk", "b.img,snapshot", "--disk", "c.img,ro", "--memory", "256M", "--cpus", "2"]);
    // Each way to carry requests out is open to the process that has shut itself in.
    command.args(["--disk", "d.qcow2", "--disk", "e.img,engine=threads", "--disk", "f.img,engine=sync"]);
    command.args(["--append", "quiet panic=-1", "--place", "disjoint", "--stats", "--json"]);
    let outcome = run(&mut command).succeeded();
    for expected in ["boot: first, processors: 2, dropped: old", "boot: second, processors: 2, dropped: new"] {
        assert!(outcome.stdout.contains(expected), "{expected}: {outcome:#?}");
    }
    assert!(outcome.stdout.contains("vdc is read-only") && !outcome.stdout.contains("fails"), "{outcome:#?}");
    for disk in ["vdd", "vde", "vdf"] {
        assert!(outcome.stdout.contains(&format!("{disk} of second: grown")), "{outcome:#?}");
    }
    assert!(allocated() > empty);
    let report: serde_json::Value = serde_json::from_str(outcome.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((&report["backend"], &report["reboots"]), (&"kvm".into(), &1.into()));
    assert!(report["exits"]["total"].as_u64().unwrap() > 100 && report["disks"][0]["reads"].as_u64().unwrap() > 0);
    assert!(fs::read(yard.path("a.img")).unwrap().starts_with(b"second\n"));
    assert!(fs::read(yard.path("b.img")).unwrap().starts_with(b"old\n"));
}

#[test]
fn kvm_linux_has_directories_of_the_hosts() {
    let Some(guest) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let initrd = yard.path("initrd");
    let script = "mkdir /rw /ro; mount -t virtiofs work /rw && mount -t virtiofs fixed /ro && echo MOUNTED\n\
                  [ -e /rw/begun ] || { touch /rw/begun; umount /rw /ro; reboot -f; }\n\
                  cat /rw/greeting && cp /rw/greeting /rw/copy && mkdir /rw/made && mv /rw/copy /rw/made/moved\n\
                  dd if=/dev/urandom of=/rw/bulk bs=64k count=64 2>/dev/null; sha256sum /rw/bulk >/rw/sum\n\
                  echo 3 >/proc/sys/vm/drop_caches; cd / && sha256sum -c /rw/sum\n\
                  touch /ro/new 2>&1 | grep -q 'Read-only' && echo REFUSED; cat /ro/fixed /rw/../outside\n\
                  umount /rw /ro && echo UNMOUNTED";
    guest.write_initrd(&initrd, script);
    for directory in ["work", "fixed"] {
        fs::create_dir(yard.path(directory)).unwrap();
    }
    fs::write(yard.path("work/greeting"), "hello\n").unwrap();
    fs::write(yard.path("fixed/fixed"), "stays\n").unwrap();
    fs::write(yard.path("outside"), "secret\n").unwrap();
    let mut command = on_kvm(&guest.kernel());
    command.current_dir(yard.path("")).args(["--memory", "256M", "--append", "quiet panic=-1"]).arg("--initrd");
    let outcome = run(command.arg(&initrd).args(["--share", "work:work", "--share", "fixed:fixed,ro"])).succeeded();
    for expected in ["MOUNTED", "hello", "/rw/bulk: OK", "REFUSED", "stays", "UNMOUNTED"] {
        assert!(outcome.stdout.contains(expected), "{expected}: {outcome:#?}");
    }
    // The machine after the reboot has them from servers of its own. (The third is in UNMOUNTED.)
    assert_eq!(outcome.stdout.matches("MOUNTED").count(), 3, "{outcome:#?}");
    assert!(!outcome.stdout.contains("secret"), "{outcome:#?}");
    assert_eq!(fs::read_to_string(yard.path("work/made/moved")).unwrap(), "hello\n");
    assert_eq!(fs::metadata(yard.path("work/bulk")).unwrap().len(), 4 << 20);
    assert_eq!(fs::read_dir(yard.path("fixed")).unwrap().count(), 1);
}

#[test]
fn kvm_a_terminal_is_the_guests_and_is_given_back() {
    let Some(_) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let kernel = tiny_kernel(&yard, "kernel", &echoing(b"ready\x1b]0;title\x07 \x1b[1m"));
    let (mut master, terminal) = terminal();
    let before = tcgetattr(&terminal).unwrap();
    let twin = || Stdio::from(terminal.try_clone().unwrap());
    let mut child = on_kvm(&kernel).stdin(twin()).stdout(twin()).stderr(twin()).spawn().unwrap();
    let mut keys = master.try_clone().unwrap();
    let mut seen = String::new();
    let mut see = |until: &str| {
        let mut byte = [0];
        while !seen.contains(until) {
            assert_eq!(master.read(&mut byte).unwrap(), 1, "{seen:?}");
            seen.push(char::from(byte[0]));
        }
        std::mem::take(&mut seen)
    };
    assert_eq!(see("\x1b[1m"), "ready \x1b[1m");
    let raw = tcgetattr(&terminal).unwrap();
    assert!(!raw.local_modes.intersects(LocalModes::ISIG | LocalModes::ICANON | LocalModes::ECHO));
    // Ctrl-C is a key of the guest's, and so is a Ctrl-A that is pressed twice.
    keys.write_all(b"ls\x03\x01\x01!").unwrap();
    assert_eq!(see("!"), "ls\x03\x01!");
    keys.write_all(b"\x01x").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(see("\x1b[0m").contains("\x1b[!p"), "the guest has touched the terminal");
    let after = tcgetattr(&terminal).unwrap();
    assert_eq!((after.local_modes, after.input_modes), (before.local_modes, before.input_modes));
    assert_eq!(after.output_modes, before.output_modes);
}

#[test]
fn kvm_a_guest_that_resets_without_end_is_left() {
    let Some(_) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    #[rustfmt::skip]
    let kernel = tiny_kernel(&yard, "kernel", &[
        0x66, 0xba, 0xf8, 0x03,     // mov dx, 0x3f8
        0xb0, b'x',                 // mov al, 'x'
        0xee,                       // out dx, al
        0x66, 0xba, 0x02, 0x06,     // mov dx, 0x602
        0xb0, 0x01,                 // mov al, 1
        0xee,                       // again: out dx, al
        0xeb, 0xfd,                 // jmp again
    ]);
    let (mut master, terminal) = terminal();
    let mut child = on_kvm(&kernel).stdin(terminal.try_clone().unwrap()).stdout(terminal).spawn().unwrap();
    master.read_exact(&mut [0; 3]).unwrap();
    master.write_all(b"\x01x").unwrap();
    // Until nobody has the terminal any more.
    let _ = std::io::copy(&mut master, &mut std::io::sink());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn kvm_a_guest_that_hangs_is_stopped() {
    let Some(_) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let kernel = tiny_kernel(&yard, "kernel", &[0xeb, 0xfe]);
    // Whoever starts the command has forgotten a descriptor.
    let forgotten = File::open("/etc/passwd").unwrap();
    fcntl_setfd(&forgotten, FdFlags::empty()).unwrap();
    // Its stdin stays open, and so the thread that reads it.
    let child = on_kvm(&kernel).stdin(Stdio::piped()).spawn().unwrap();
    drop(forgotten);
    support::wait_until_it_catches(child.id(), Signal::TERM.as_raw());
    wait_until("all threads are shut in", || are_shut_in(child.id()));
    let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = descriptors.filter_map(|descriptor| fs::read_link(descriptor).ok()).collect();
    assert!(!files.contains(&PathBuf::from("/etc/passwd")), "{files:?}");
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    finish(child).failed(143, &["SIGTERM"]);
}

/// Whether a machine's process has its threads, and each has the filters and capabilities that it is to have.
fn are_shut_in(process: u32) -> bool {
    /// What keeps all of the process in, and what keeps a thread in besides.
    const EVERYBODYS: &str = "2";
    const AND_ITS_OWN: &str = "3";
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let statuses: Vec<_> =
        threads.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("status")).ok()).collect();
    let thread = |name: &str| {
        statuses.iter().find(|status| status.lines().next().is_some_and(|line| line.ends_with(&format!("\t{name}"))))
    };
    let has = |status: &str, field: &str, value: &str| status.lines().any(|line| line == format!("{field}:\t{value}"));
    let narrow = ["vcpu0", "io0", "console-in", "console-out", "typing"].map(thread);
    let own = narrow.iter().all(|status| status.is_some_and(|status| has(status, "Seccomp_filters", AND_ITS_OWN)));
    let all = statuses.iter().all(|status| {
        has(status, "CapEff", "0000000000000000")
            && has(status, "CapPrm", "0000000000000000")
            && has(status, "NoNewPrivs", "1")
    });
    own && all && thread("blockyard").is_some_and(|status| has(status, "Seccomp_filters", EVERYBODYS))
}

#[test]
fn kvm_files_that_do_not_boot_are_named() {
    let Some(_) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let kernel = tiny_kernel(&yard, "kernel", &[0xeb, 0xfe]);
    let (empty, words, large) = (yard.path("empty"), yard.path("words"), yard.path("large"));
    fs::write(&empty, "").unwrap();
    fs::write(&words, "no kernel and no archive").unwrap();
    fs::write(&large, [&b"070701"[..], &vec![0; 70 << 20]].concat()).unwrap();
    let refused = |kernel: &Path, more: &[&OsStr], sentence: &str| {
        run(on_kvm(kernel).args(more)).failed(1, &[sentence]);
    };
    refused(&empty, &[], "empty: the kernel is an empty file");
    refused(&words, &[], "words: this is no Linux kernel");
    refused(&yard.path(""), &[], "is a directory, and a regular file is wanted");
    refused(&kernel, &["--initrd".as_ref(), words.as_ref()], "words: the initrd is none");
    refused(&kernel, &["--initrd".as_ref(), large.as_ref()], "large: the initrd has 71 MiB, and beside the kernel");
    refused(&kernel, &["--memory".as_ref(), "1M".as_ref()], "give it 16 MiB or more");
    refused(&kernel, &["--memory".as_ref(), "100T".as_ref()], "a guest cannot have 100.00 TiB of memory here");
    let letters = "x".repeat(5000);
    refused(
        &kernel,
        &["--append".as_ref(), letters.as_ref()],
        "kernel: the command line has 5014 bytes, and the kernel",
    );
    // What it cost so far comes before the failure.
    let outcome =
        run(on_kvm(&kernel).args(["--timeout", "0.5", "--stats", "--json"])).failed(1, &["stopped after 0.5 s"]);
    let report: serde_json::Value = serde_json::from_str(outcome.stderr.lines().next().unwrap()).unwrap();
    assert!(report["seconds"].as_f64().unwrap() > 0.0, "{outcome:#?}");
}

/// With what its processor had in its registers. The lab's KVM resets a processor that faults without end, and says so.
#[test]
fn kvm_a_guest_that_dies_is_told_of_with_its_registers() {
    let Some(_) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let undefined = tiny_kernel(&yard, "undefined", &[0x0f, 0x0b]);
    let outcome = run(&mut on_kvm(&undefined)).failed(1, &["it met a fault while handling a fault", "of vCPU 0"]);
    assert!(outcome.stderr.contains("  rip ") && outcome.stderr.contains("  idt "), "{outcome:#?}");
    #[rustfmt::skip]
    let code = [
        0xb8, 0x00, 0x00, 0x00, 0x30,                   // mov eax, 0x30000000
        0xbb, 0xad, 0xde, 0x00, 0x00,                   // mov ebx, 0xdead
        0xff, 0xe0,                                     // jmp rax
    ];
    let outcome = run(&mut on_kvm(&tiny_kernel(&yard, "astray", &code))).failed(1, &["the guest crashed: "]);
    for register in ["rip    0000000030000000", "rbx    000000000000dead", "cs 0010 0000000000000000"] {
        assert!(outcome.stderr.contains(register), "{outcome:#?}");
    }
}

/// What nobody reads holds the guest up, and nothing else: the machine ends when it is asked to.
#[test]
fn kvm_a_guest_that_floods_the_console_waits_for_its_reader() {
    let Some(_) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    // mov dx, 0x3f8; mov al, 'x'; again: out dx, al; jmp again
    let kernel = tiny_kernel(&yard, "kernel", &[0x66, 0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfd]);
    let mut child = on_kvm(&kernel).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut some = [0; 1000];
    stdout.read_exact(&mut some).unwrap();
    assert_eq!(some, [b'x'; 1000]);
    // Full when nothing more can be added to what is there.
    let waiting = || rustix::io::ioctl_fionread(&stdout).unwrap();
    let mut last = waiting();
    wait_until("the pipe is full", || {
        let before = std::mem::replace(&mut last, waiting());
        last == before && last >= 1 << 15
    });
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let mut child = on_kvm(&kernel).spawn().unwrap();
    drop(child.stdout.take());
    finish(child).failed(1, &["cannot write the guest's console"]);
}

#[test]
fn what_cannot_be_booted_is_refused_with_a_sentence() {
    let yard = Yard::new();
    let command = |words: &[&str]| {
        let mut command = blockyard();
        run(command.current_dir(yard.path("")).arg("run").args(words))
    };
    command(&[]).failed(2, &["nothing to boot", "--kernel"]);
    fs::write(yard.path("bad.toml"), "cpus = 1\ncolour = 'red'\n").unwrap();
    let outcome = command(&["--config", "bad.toml"]).failed(1, &["bad.toml is no configuration: line 2: ", "colour"]);
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
    command(&["--config", "none.toml"]).failed(1, &["cannot read the configuration none.toml: No such file"]);
    command(&["--config", "/"]).failed(1, &["the configuration / is a directory"]);
}

#[test]
fn a_machine_that_is_printed_is_the_same_machine() {
    let yard = Yard::new();
    let words =
        ["run", "--kernel", "k", "a.img", "--disk", "b.qcow2,ro", "--cpus", "3", "--place", "0,1", "--share", ".:t,ro"];
    // A letter that turns the order of what is read is part of the name.
    let words = words.into_iter().chain(["--disk", "\u{202e}gmi.a"]);
    let printed = run(blockyard().args(words).arg("--print-config")).succeeded().stdout;
    assert!(printed.contains("\u{202e}gmi.a"), "{printed}");
    fs::write(yard.path("machine.toml"), &printed).unwrap();
    let again = run(blockyard().arg("run").arg("--config").arg(yard.path("machine.toml")).arg("--print-config"));
    assert_eq!(again.succeeded().stdout, printed);
}
