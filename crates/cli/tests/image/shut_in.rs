//! What the appliance may do on the host, and who may have one.

use crate::ends::{all_gone, descendants, in_mid_copy, is_kernel};
use crate::rig::{Rig, failure, is_in_lab, tool};
use crate::root::is_root;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian's user nobody.
const NOBODY: u32 = 65534;

#[test]
fn nothing_is_executed_but_this_program_and_the_kernel() {
    let rig = Rig::empty(16);
    let log = rig.path("strace");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=execve,execveat", "-e", "signal=none", "-o"]).arg(&log);
    // User-Mode Linux traces its own processes, which nobody may do who is traced: what it executes before that is all
    // there is.
    command.arg(env!("CARGO_BIN_EXE_blockyard")).args(["image", "ls", "--timeout", "3"]).arg(&rig.image);
    command.output().unwrap_or_else(|error| panic!("strace ({error}): it is in Debian's strace"));
    let log = fs::read_to_string(log).unwrap();
    let executed = log.lines().filter(|line| line.contains("= 0")).filter_map(|line| line.split('"').nth(1));
    // The kernel is executed by descriptor, which has no name, and newer ones do so with a program of their own.
    let executed: BTreeSet<_> = executed.collect();
    assert_eq!(executed, BTreeSet::from(["", "/proc/self/exe", env!("CARGO_BIN_EXE_blockyard")]), "{log}");
}

/// In the lab: what `/proc` says of the process that is a virtual machine.
#[test]
fn on_kvm_its_process_has_nothing_but_what_it_was_given() {
    if !is_in_lab() {
        eprintln!("runs in the lab: cargo xtask lab");
        return;
    }
    let rig = Rig::empty(32);
    // With a descriptor that whoever started the command has forgotten.
    let forgotten = File::open("/etc/passwd").unwrap();
    fcntl_setfd(&forgotten, FdFlags::empty()).unwrap();
    let (mut command, processes) = in_mid_copy(&rig);
    drop(forgotten);
    let machine = processes.iter().copied().find(|pid| is_kernel(*pid)).unwrap();
    let of = |name: &str| format!("/proc/{machine}/{name}");
    let status = fs::read_to_string(of("status")).unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), "0000000000000000", "{set}");
    }
    assert_eq!((field("NoNewPrivs:"), field("CoreDumping:")), ("1".to_owned(), "0".to_owned()));
    for thread in fs::read_dir(of("task")).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        // Filters; two of them.
        assert!(status.contains("Seccomp:\t2") && status.contains("Seccomp_filters:\t2"), "{status}");
        assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
    }
    for namespace in ["user", "mnt", "pid", "net", "ipc", "uts"] {
        let own = fs::read_link(format!("/proc/self/ns/{namespace}")).unwrap();
        assert_ne!(fs::read_link(of("ns").to_owned() + "/" + namespace).unwrap(), own, "{namespace}");
    }
    assert_eq!(fs::read_dir(of("root")).unwrap().count(), 0, "the root directory has something in it");
    assert_eq!(fs::read_to_string(of("mountinfo")).unwrap().lines().count(), 1);
    // Events, sockets, memory and the virtual machine: no file that has a name.
    for link in fs::read_dir(of("fd")).unwrap() {
        let to = fs::read_link(link.unwrap().path()).unwrap().to_string_lossy().into_owned();
        let known = ["anon_inode:", "socket:", "/memfd:blockyard-", "/dev/kvm"];
        assert!(known.iter().any(|known| to.starts_with(known)), "{to}");
    }
    let limits = fs::read_to_string(of("limits")).unwrap();
    // Of 512 MiB of memory.
    let bounds = [
        ("Max core file size", 1),
        ("Max file size", (512 + 64) << 20),
        ("Max data size", 128 << 20),
        ("Max address space", 3 << 30),
        ("Max open files", 1024),
    ];
    for (name, maximum) in bounds {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert!(line.split_whitespace().next().unwrap().parse::<u64>().unwrap() <= maximum, "{name}{line}");
    }
    kill_process(Pid::from_child(&command), Signal::KILL).unwrap();
    command.wait().unwrap();
    all_gone(&processes);
}

/// In the lab: what `doctor` says of the appliance on KVM, which it boots, and of what keeps a user from it.
#[test]
fn on_kvm_doctor_says_what_it_saw() {
    if !is_in_lab() {
        eprintln!("runs in the lab: cargo xtask lab");
        return;
    }
    let rig = Rig::empty(16);
    let said = |mut doctor: Command| {
        let output = doctor.args(["doctor", "--json"]).output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let facilities = json["facilities"].as_array().unwrap();
        let of = |name: &str| {
            let found = facilities.iter().find(|facility| facility["name"] == name).unwrap();
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            (found["usable"].as_bool().unwrap(), text("reason"), text("remedy"))
        };
        (of("kvm image"), of("uml"))
    };
    let ((usable, reason, _), (uml, lack, remedy)) = said(Command::new(env!("CARGO_BIN_EXE_blockyard")));
    let (_, seen) = reason.split_once("; it boots in ").unwrap_or_else(|| panic!("{reason}"));
    assert!(usable && reason.starts_with("/boot/vmlinuz-"), "{reason}");
    assert!(seen.ends_with(" s, and what shuts it in is namespaces, Landlock, system calls, the seal"), "{seen}");
    assert!(!uml && lack == "there is no User-Mode Linux", "{lack}");
    assert!(remedy.starts_with("run `apt-get install user-mode-linux`"), "{remedy}");
    // Whoever may not open the device, or not read the kernel.
    fs::set_permissions("/dev/kvm", fs::Permissions::from_mode(0o600)).unwrap();
    let ((usable, reason, remedy), _) = said(as_nobody(&rig));
    assert_eq!((usable, &*reason), (false, "no permission to open /dev/kvm"));
    assert_eq!(remedy, "`sudo setfacl -m u:$USER:rw /dev/kvm`");
    fs::set_permissions("/dev/kvm", fs::Permissions::from_mode(0o666)).unwrap();
    let kernels: Vec<_> = fs::read_dir("/boot").unwrap().map(|entry| entry.unwrap().path()).collect();
    for kernel in &kernels {
        fs::set_permissions(kernel, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let ((usable, reason, remedy), _) = said(as_nobody(&rig));
    let kernel = kernels[0].display();
    assert_eq!((usable, reason), (false, format!("this user may not read the kernel {kernel}")));
    assert!(remedy.starts_with(&format!("run `sudo chmod a+r {kernel}`")), "{remedy}");
}

/// A copy of a program. Were it written here, another thread's fork could hold it open for writing while it is
/// executed.
fn copy(program: &str, to: &Path) {
    tool("cp", "coreutils", [program, to.to_str().unwrap()]);
}

/// The test's command, as a user who is not root.
fn as_nobody(rig: &Rig) -> Command {
    fs::set_permissions(rig.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(&rig.image, Some(NOBODY), Some(NOBODY)).unwrap();
    // Where that user may execute it: made once, as it may still be executed of the last time.
    let program = rig.path("blockyard");
    if !program.exists() {
        copy(env!("CARGO_BIN_EXE_blockyard"), &program);
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "env",
        "HOME=/",
        "TMPDIR=/tmp",
    ]);
    command.arg(program);
    command
}

#[test]
fn a_user_who_is_not_root_has_one_too() {
    if !is_root() {
        return;
    }
    let rig = Rig::new(16, |root| fs::write(root.join("greeting"), "hello\n").unwrap());
    let output = as_nobody(&rig).args(["image", "cat"]).arg(&rig.image).arg("/greeting").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{}", String::from_utf8_lossy(&output.stderr));
    let output = as_nobody(&rig).args(["image", "mkdir"]).arg(&rig.image).arg("/made").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    rig.check();
    // One that everybody may read is told from one that nobody may.
    let mut how = as_nobody(&rig);
    chown(&rig.image, Some(0), Some(0)).unwrap();
    fs::set_permissions(&rig.image, fs::Permissions::from_mode(0o444)).unwrap();
    let said = failure(how.args(["image", "mkdir"]).arg(&rig.image).arg("/other").output().unwrap());
    assert!(said.ends_with("Permission denied (os error 13); it can be opened for reading only\n"), "{said}");
}

#[test]
fn namespaces_are_not_needed() {
    if !is_root() {
        return;
    }
    let rig = Rig::new(16, |root| fs::write(root.join("greeting"), "hello\n").unwrap());
    let inner = as_nobody(&rig);
    // A user namespace in which no more can be made, with a /dev/shm as poor as a container's.
    let script = "echo 0 > /proc/sys/user/max_user_namespaces\n\
                  mount -t tmpfs -o size=64m,noexec shm /dev/shm && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    let program = inner.get_args().last().unwrap();
    command.arg(program).args(["image", "cat", "--verbose"]).arg(&rig.image).arg("/greeting");
    chown(&rig.image, Some(0), Some(0)).unwrap();
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no namespaces of its own"));
}

#[test]
fn without_a_kernel_it_is_said_where_to_get_one() {
    let rig = Rig::empty(16);
    let output = rig.command("ls", &[]).env("BLOCKYARD_UML", "/nonexistent/linux.uml").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("BLOCKYARD_UML names /nonexistent/linux.uml"));
    assert_eq!(output.status.code(), Some(1));
    // A program that is no kernel, beside modules that are: it ends at once.
    let prefix = rig.path("usr");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("lib/uml")).unwrap();
    copy("/bin/true", &prefix.join("bin/linux.uml"));
    tool("cp", "coreutils", ["-a", "/usr/lib/uml/modules", prefix.join("lib/uml").to_str().unwrap()]);
    let output = rig.command("ls", &[]).env("BLOCKYARD_UML", prefix.join("bin/linux.uml")).output().unwrap();
    let program = prefix.join("bin/linux.uml").canonicalize().unwrap();
    let named = format!("{}, which BLOCKYARD_UML names, is no Linux", program.display());
    let said = format!("blockyard: the appliance does not start: {named}\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), said);
    // What is no program.
    for (path, said) in [("/etc/passwd", "Permission denied"), ("/usr", "it is not a file")] {
        let output = rig.command("ls", &[]).env("BLOCKYARD_UML", path).output().unwrap();
        let said = format!("blockyard: BLOCKYARD_UML names {path}, which cannot be used: {said}");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with(&said), "{output:?}");
    }
    // One that its loader does not start: nothing of ours knows the sentence.
    let program = prefix.join("bin/linux.uml");
    let mut patched = fs::read("/bin/true").unwrap();
    let at = patched.windows(9).position(|window| window == b"libc.so.6").expect("it is linked with libc");
    patched[at..at + 9].copy_from_slice(b"libX.so.6");
    fs::write(rig.path("patched"), patched).unwrap();
    fs::set_permissions(rig.path("patched"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(&program).unwrap();
    copy(rig.path("patched").to_str().unwrap(), &program);
    let said = failure(rig.command("ls", &[]).env("BLOCKYARD_UML", &program).output().unwrap());
    assert!(said.contains("the appliance does not start") && said.contains("libX.so.6: cannot open shared"), "{said}");
}

#[test]
fn a_kernel_that_was_unpacked_elsewhere_is_used() {
    let rig = Rig::new(16, |root| fs::write(root.join("greeting"), "hello\n").unwrap());
    let prefix = rig.path("uml/usr");
    fs::create_dir_all(prefix.join("bin")).unwrap();
    fs::create_dir_all(prefix.join("lib/uml")).unwrap();
    copy("/usr/bin/linux.uml", &prefix.join("bin/linux.uml"));
    tool("cp", "coreutils", ["-a", "/usr/lib/uml/modules", prefix.join("lib/uml").to_str().unwrap()]);
    // Modules of another version beside its own.
    fs::create_dir_all(prefix.join("lib/uml/modules/1.2.3/kernel/drivers/block")).unwrap();
    fs::write(prefix.join("lib/uml/modules/1.2.3/kernel/drivers/block/virtio_blk.ko"), "none").unwrap();
    let output =
        rig.command("cat", &["/greeting"]).env("BLOCKYARD_UML", prefix.join("bin/linux.uml")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n", "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the host has of a process, in KiB: its share of what several have.
fn proportional_kib(pid: u32) -> u64 {
    let lines = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let number = |line: &str| line.strip_prefix("Pss:")?.trim_end_matches("kB").trim().parse::<u64>().ok();
    lines.lines().find_map(number).unwrap_or(0)
}

#[test]
fn a_program_has_no_more_memory_than_it_was_given_and_that_is_said() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("dev")).unwrap();
        fs::copy("/bin/busybox", root.join("busybox")).expect("it is in Debian's busybox-static");
    });
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["image", "run", "--memory", "64"]).arg(&rig.image).arg("/busybox").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let hint = "the appliance's memory was used up: --memory gives it more than 64 MiB";
    // The program says so, or it is killed.
    let asked = run(&["dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&asked.stderr).into_owned();
    assert!(!asked.status.success() && said.contains(hint), "{said}");
    let mut touching = run(&["tail", "/dev/zero"]);
    let (mut most_kib, mut file_bytes) = (0, 0);
    while touching.try_wait().unwrap().is_none() {
        let processes = descendants(touching.id());
        let own_kib = 24 * 1024 * processes.len() as u64;
        most_kib =
            most_kib.max(processes.iter().map(|pid| proportional_kib(*pid)).sum::<u64>().saturating_sub(own_kib));
        for pid in processes.into_iter().filter(|pid| is_kernel(*pid)) {
            let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
            let limit = limits
                .lines()
                .find_map(|line| line.strip_prefix("Max file size")?.split_whitespace().next()?.parse().ok());
            file_bytes = limit.unwrap_or(file_bytes);
        }
    }
    let touched = touching.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&touched.stderr).into_owned();
    assert!(touched.status.code() == Some(128 + 9) && said.contains(hint), "{:?}: {said}", touched.status);
    // The guest's memory is a file.
    assert!(most_kib <= (64 + 64) << 10, "{most_kib} KiB");
    assert!((64 << 20..=(64 + 64 + 1024) << 20).contains(&file_bytes), "{file_bytes}");
    rig.check();
}
