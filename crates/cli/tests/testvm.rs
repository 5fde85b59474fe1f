//! `blockyard testvm`: steps in machines that have just booted. What needs a real KVM runs in the lab, by its name.

mod support;

use blockyard_linux_guest::{DebianKernel, Guest, kernel_directory};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{Yard, blockyard, finish, run, run_without_leftovers, wait_until};

/// Steps that leave results, fail, hang, and die.
const SCRIPT: &str = "\
greet() { echo \"hello from $1\"; }
step_first() {
	greet first
	touch /tmp/been-here
	dd if=/dev/zero of=data bs=1K count=3 2>/dev/null
	dd --version | head -n 1
	figure MB/s 7.5
}
step_afresh() { [ ! -e /tmp/been-here ]; printf 'no newline'; }
step_fails() {
	false
	echo unreachable
}
step_mounts() { grep ' /mnt/' /proc/mounts; }
step_hangs() { sleep 1000; }
step_dies() { poweroff -f; }
step_boasts() {
	echo 'BLOCKYARD-TESTVM end 0'
	echo 'BLOCKYARD-TESTVM begin' >/dev/console
	sleep 1000 &
	false
}
step_floods() {
	yes $(printf MB/s=%01000d.5 7) | head -c 20000 >>figures
	if fallocate -l 1100M data; then echo all; else echo no more; fi
}
step_leaves() {
	: >a.txt
	: >'not plain'
}
step_explains() { seq 1 20; echo because; false; }
step_reboots() { reboot -f; }
step_meddles() { ln -s ../elsewhere /mnt/yard/out/fails.log; }
step_spoils() { rm /mnt/yard/test.cpio /mnt/yard/linux; }
";

fn script(yard: &Yard) -> PathBuf {
    let script = yard.path("steps.sh");
    fs::write(&script, SCRIPT).unwrap();
    script
}

fn initramfs(yard: &Yard) -> PathBuf {
    let initramfs = yard.path("test.cpio");
    run(blockyard().args(["testvm", "build", "--program", "dd", "-o"]).arg(&initramfs)).succeeded();
    initramfs
}

#[test]
fn each_step_boots_afresh_on_user_mode_linux_and_brings_its_results_back() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    for way in ["share", "console"] {
        let mut command = blockyard();
        command.args(["testvm", "run", "--backend", "uml", "--memory", "256M", "--step", "first,afresh,fails,dies"]);
        command.args(["--json", "--results", way]).arg("--initramfs").arg(&initramfs);
        let outcome = run_without_leftovers(command.arg("--output").arg(yard.path(way)).arg(&script));
        let outcome = outcome.failed(1, &["2 of 4 steps failed"]);
        let json = outcome.json();
        let step = |index: usize| &json["steps"][index];
        for (index, name) in ["first", "afresh", "fails", "dies"].into_iter().enumerate() {
            assert_eq!(step(index)["step"], name, "{way}: {json:#}");
        }
        for (index, failed) in [(0, None), (1, None), (2, Some("exit status 1")), (3, Some("switched itself off"))] {
            let said = step(index)["failed"].as_str();
            assert!(
                said.is_some() == failed.is_some() && said.unwrap_or("").contains(failed.unwrap_or("")),
                "{json:#}"
            );
        }
        let output = step(0)["output"].as_str().unwrap();
        assert!(output.starts_with("hello from first\ndd (coreutils) "), "{way}: not busybox's dd: {output}");
        assert_eq!(step(1)["output"], "no newline", "{way}: {json:#}");
        assert_eq!(step(0)["figures"][0], "MB/s=7.5", "{way}: {json:#}");
        assert!(step(0)["seconds"].as_f64().unwrap() > 0.0 && step(3)["seconds"].is_null(), "{json:#}");
        assert!(!step(0)["cpu_idle_percent"].as_array().unwrap().is_empty(), "{json:#}");
        assert_eq!(fs::read(yard.path(way).join("first/data")).unwrap(), [0; 3072], "{way}");
        assert!(fs::read_to_string(yard.path(way).join("first.log")).unwrap().contains(" end 0\r\n"));
    }
}

fn uml(initramfs: &Path, steps: &str) -> Command {
    let mut command = blockyard();
    command.args(["testvm", "run", "--backend", "uml", "--memory", "256M", "--json", "--step", steps]);
    command.arg("--initramfs").arg(initramfs);
    command
}

/// Neither by what it prints nor by what it leaves does a step say more than it may.
#[test]
fn a_step_is_not_believed_more_than_it_measured() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let json = run(uml(&initramfs, "boasts").args(["--results", "console"]).arg(&script)).failed(1, &["1 of 1"]).json();
    let step = &json["steps"][0];
    assert_eq!((&step["failed"], &step["status"]), (&"exit status 1".into(), &1.into()), "{json:#}");
    assert_eq!(step["output"], "BLOCKYARD-TESTVM end 0\nBLOCKYARD-TESTVM begin\n", "{json:#}");

    let json = run(uml(&initramfs, "floods").arg(&script)).succeeded().json();
    let step = &json["steps"][0];
    let figures = step["figures"].as_array().unwrap();
    assert!(figures.len() == 16 && figures.iter().all(|figure| figure == &figures[0]), "{}", figures.len());
    assert_eq!(step["left_out"][0], "figures behind the first 16 KiB", "{:#}", step["left_out"]);
    assert!(step["output"].as_str().unwrap().ends_with("no more\n"), "{}", step["output"]);
    let json = run(uml(&initramfs, "leaves").args(["--results", "console"]).arg(&script)).succeeded().json();
    assert_eq!(json["steps"][0]["left_out"][0], "1 files, as there are too many or by their names", "{json:#}");
}

#[test]
fn what_failed_is_told_with_its_last_lines_and_what_ended_it() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let mut command = blockyard();
    command.args(["testvm", "run", "--backend", "uml", "--memory", "256M", "--step", "explains,reboots,dies"]);
    let outcome = run(command.arg("--initramfs").arg(&initramfs).arg(&script)).failed(1, &["3 of 3 steps failed"]);
    for told in [
        "\nexplains: exit status 1\n    12\n    13\n",
        "    20\n    because\n",
        "\nreboots: the guest rebooted before the step had ended\n    ",
        "\ndies: the guest switched itself off before the step had ended\n    ",
    ] {
        assert!(outcome.stdout.contains(told), "{told}: {}", outcome.stdout);
    }
    fs::write(&script, "step_a() {\n\tif true; then echo\n}\n").unwrap();
    run(&mut command).failed(1, &["steps.sh is no script: line 3: syntax error"]);
}

#[test]
fn several_rounds_are_medians_of_what_was_measured() {
    let yard = Yard::new();
    let initramfs = initramfs(&yard);
    // Each boot has another time.
    let script =
        "step_count() {\n\tcat /mnt/yard/count >now; echo x >>/mnt/yard/count\n\tfigure lines $(wc -l <now).0\n}\n";
    fs::write(yard.path("count.sh"), script).unwrap();
    fs::write(yard.path("count"), "").unwrap();
    let mut command = uml(&initramfs, "count");
    command.args(["--rounds", "3"]).arg("--share").arg(format!("{}:yard", yard.path("").display()));
    let json = run(command.arg("--output").arg(yard.path("out")).arg(yard.path("count.sh"))).succeeded().json();
    let summary = &json["summary"][0];
    assert_eq!((&summary["step"], &summary["runs"], &summary["failed"]), (&"count".into(), &3.into(), &0.into()));
    let lines = serde_json::json!({ "median": 1.0, "min": 0.0, "max": 2.0 });
    assert_eq!((&summary["figures"]["lines"], &json["steps"][2]["round"]), (&lines, &3.into()), "{json:#}");
    let measured = &json["measured"];
    assert_eq!((&measured["backend"], &measured["rounds"]), (&"uml".into(), &3.into()), "{json:#}");
    assert!(measured["host"]["cpus"].as_u64().unwrap() > 0 && measured["date"].as_str().unwrap().starts_with("20"));
    assert!(json["steps"][0]["kernel"].as_str().unwrap().starts_with(|letter: char| letter.is_ascii_digit()));
    assert!(yard.path("out/3/count/now").exists());
}

/// What was named at the start is what later steps have, too; and what cannot be written does not lose earlier rows.
#[test]
fn a_later_step_has_what_the_first_one_had() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let linux = yard.path("linux");
    fs::copy("/usr/bin/linux.uml", &linux).expect("the Debian package user-mode-linux has it");
    let mut command = uml(&initramfs, "spoils,first");
    command.arg("--kernel").arg(&linux);
    command.arg("--share").arg(format!("{}:yard", yard.path("").display()));
    let json = run(command.arg(&script)).succeeded().json();
    assert!(!initramfs.exists() && !linux.exists() && json["steps"][1]["figures"][0] == "MB/s=7.5", "{json:#}");

    let initramfs = self::initramfs(&yard);
    let mut command = uml(&initramfs, "meddles,fails");
    command.arg("--share").arg(format!("{}:yard", yard.path("").display()));
    let outcome = run(command.arg("--output").arg(yard.path("out")).arg(&script));
    let json = outcome.failed(1, &["cannot make", "fails.log"]).json();
    assert_eq!((&json["steps"][0]["step"], json["steps"].as_array().unwrap().len()), (&"meddles".into(), 1));
    // What is there from the start is told before anything boots.
    let outcome = run(uml(&initramfs, "first,fails").arg("--output").arg(yard.path("out")).arg(&script));
    outcome.failed(1, &["fails is there already"]);
    assert!(!yard.path("out/first.log").exists());
    assert!(!yard.path("elsewhere").exists());
}

#[test]
fn a_test_that_a_signal_ends_shows_what_it_has_measured() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let mut command = uml(&initramfs, "first,hangs,afresh");
    let child = command.arg("--output").arg(yard.path("out")).arg(&script).spawn().unwrap();
    wait_until("the second step runs", || {
        fs::read_to_string(yard.path("out/hangs.log")).is_ok_and(|log| log.contains(" begin"))
    });
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    let json = finish(child).failed(143, &["SIGTERM"]).json();
    let steps = json["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["figures"][0]), (1, &"MB/s=7.5".into()), "{json:#}");
}

/// A directory for temporary files may be called anything; a machine's configuration is text.
#[test]
fn names_that_are_no_text_are_in_nobodys_way() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let odd = yard.path("").join(OsStr::from_bytes(b"odd-\xff"));
    fs::create_dir(&odd).unwrap();
    let renamed = odd.join(OsStr::from_bytes(b"\xfe.cpio"));
    fs::rename(&initramfs, &renamed).unwrap();
    let mut command = uml(&renamed, "first");
    command.env("TMPDIR", &odd).args(["--size", "8M", "--session", "copying"]).arg("--directory").arg(yard.path(""));
    run_without_leftovers(command.arg("--output").arg(odd.join("out")).arg(&script)).succeeded();
    assert!(odd.join("out/first/data").exists());
    let mut command = uml(&renamed, "first");
    command.current_dir(&odd).args(["--size", "8M"]).arg(&script);
    run(&mut command).failed(2, &["--directory", "is no text (UTF-8)"]);
}

#[test]
fn a_share_that_cannot_be_changed_is_mounted_so() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let mut command = blockyard();
    command.args(["testvm", "run", "--backend", "uml", "--memory", "256M", "--step", "mounts", "--json"]);
    command.args(["--share", "/etc:fixed,ro", "--share"]).arg(format!("{}:work", yard.path("").display()));
    let json = run_without_leftovers(command.arg("--initramfs").arg(&initramfs).arg(&script)).succeeded().json();
    let output = json["steps"][0]["output"].as_str().unwrap();
    assert!(
        output.contains("fixed /mnt/fixed virtiofs ro") && output.contains("work /mnt/work virtiofs rw"),
        "{json:#}"
    );
}

#[test]
fn a_step_that_hangs_is_a_row_that_says_so() {
    let yard = Yard::new();
    let (script, initramfs) = (script(&yard), initramfs(&yard));
    let mut command = blockyard();
    command.args(["testvm", "run", "--backend", "uml", "--memory", "256M", "--step", "hangs", "--timeout", "5"]);
    command.arg("--initramfs").arg(&initramfs).arg("--output").arg(yard.path("out")).arg(&script);
    let outcome = run_without_leftovers(&mut command).failed(1, &["1 of 1 steps failed"]);
    assert!(outcome.stdout.contains("| hangs") && outcome.stdout.contains("timeout"), "{outcome:#?}");
    // What is there already is not written over.
    run(&mut command).failed(1, &["out/hangs", "new directory"]);
}

#[test]
fn what_cannot_be_run_is_refused_before_a_machine_starts() {
    let yard = Yard::new();
    let script = script(&yard);
    let mut unknown = blockyard();
    run(unknown.args(["testvm", "run", "--step", "none"]).arg(&script)).failed(2, &["no step 'none'", "first, afresh"]);
    fs::write(yard.path("empty.sh"), "echo hello\n").unwrap();
    run(blockyard().args(["testvm", "run"]).arg(yard.path("empty.sh"))).failed(1, &["empty.sh", "step_NAME"]);
    let mut build = blockyard();
    build.args(["testvm", "build", "-o"]).arg(yard.path("x.cpio")).arg("--root").arg(yard.path(""));
    run(&mut build).failed(1, &["no busybox", "apt-get install busybox-static", "--root"]);
    run(blockyard().args(["testvm", "build"])).failed(2, &["--output <FILE>"]);
    assert!(!yard.path("x.cpio").exists());
    fs::write(yard.path("x.cpio"), "what was there").unwrap();
    run(blockyard().args(["testvm", "build", "--program", "dd,none", "--root", "/", "-o"]).arg(yard.path("x.cpio")))
        .failed(1, &["no none below /"]);
    assert_eq!(fs::read(yard.path("x.cpio")).unwrap(), b"what was there");

    // Whoever writes into a FIFO is not waited for.
    mknodat(CWD, yard.path("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    run(blockyard().args(["testvm", "run"]).arg(yard.path("fifo"))).failed(1, &["the script", "is a FIFO"]);
    let mut fed = blockyard();
    fed.args(["testvm", "run", "--backend", "uml", "--initramfs"]).arg(yard.path("fifo")).arg(&script);
    run(&mut fed).failed(1, &["the initial file system", "is a FIFO"]);
    File::create(yard.path("huge")).unwrap().set_len(1 << 40).unwrap();
    let mut fed = blockyard();
    fed.args(["testvm", "run", "--backend", "uml", "--initramfs"]).arg(yard.path("huge")).arg(&script);
    run(&mut fed).failed(2, &["--initramfs", "has 1.00 TiB", "--memory"]);

    let refused = |arguments: &[&str], words: &[&str]| {
        run(blockyard().args(["testvm", "run"]).args(arguments).current_dir(yard.path(""))).failed(2, words);
    };
    refused(&["dd", "--backend", "uml", "--bus", "virtio,ahci"], &["virtio disks of its own kind only"]);
    refused(&["dd", "--session", "mediated", "--disk", "a.img"], &["a.img is no partition", "FILE,partition=1"]);
    refused(&["dd", "--direct", "yes", "--disk", "mem:8M"], &["mem:8M is in no file"]);
    refused(&["dd", "--set", "A B=1"], &["NAME=VALUE"]);
    refused(&["dd", "--size", "1K"], &["--size", "whole MiB"]);
    refused(&[], &["<SCRIPT>"]);
    let unknown = run(blockyard().args(["testvm", "run", "ddd"]).current_dir(yard.path("")));
    unknown.failed(1, &["no file ddd", "are dd, fio"]);
    // A file of that name goes before the script that comes with the program.
    fs::write(yard.path("dd"), "echo hello\n").unwrap();
    let mut shadowed = blockyard();
    run(shadowed.args(["testvm", "run", "dd"]).current_dir(yard.path(""))).failed(1, &["dd is no script of steps"]);
}

/// On a machine that has nothing but this program.
#[test]
fn all_that_a_machine_lacks_is_said_before_anything_boots() {
    if !geteuid().is_root() {
        return;
    }
    let yard = Yard::new();
    fs::create_dir(yard.path("tmp")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_blockyard"), yard.path("blockyard")).unwrap();
    let mut bare = Command::new("chroot");
    bare.arg(yard.path("")).args(["/blockyard", "testvm", "run", "dd", "--backend"]);
    bare.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let packages = "apt-get install busybox-static coreutils fio";
    run(bare.arg("uml")).failed(1, &["apt-get install user-mode-linux", packages]);
}

/// What comes with the program runs on the disk that is made for it, by each way that the host has, past its caches.
#[test]
fn scripts_of_blockyards_own_run_on_several_machines_beside_each_other() {
    let yard = Yard::new();
    let list = run(blockyard().args(["testvm", "run", "--list"])).succeeded().stdout;
    assert!(list.lines().count() == 2 && list.starts_with("dd: ") && list.contains("\nfio: "), "{list}");
    let printed = run(blockyard().args(["testvm", "run", "fio", "--print"])).succeeded().stdout;
    assert!(printed.contains("step_randread() {"), "{printed}");

    let initramfs = initramfs(&yard);
    let mut command = blockyard();
    command.args(["testvm", "run", "dd", "--backend", "uml", "--memory", "256M", "--size", "24M", "--set", "MIB=8"]);
    command.args(["--step", "copy_128k,read_8m", "--engine", "sync", "--engine", "uring"]);
    command.args(["--session", "none,copying", "--direct", "yes"]);
    command.arg("--initramfs").arg(&initramfs).arg("--directory").arg(yard.path("")).arg("--output");
    let outcome = run_without_leftovers(command.arg(yard.path("out"))).succeeded();
    let table = &outcome.stdout;
    for heading in ["| step ", " file sync |", " file uring |", " copying sync |", " copying uring |"] {
        assert!(table.contains(heading), "{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    for step in ["copy_128k", "read_8m"] {
        let row = table.lines().find(|line| line.starts_with(&format!("| {step}, MB/s"))).expect(table);
        assert_eq!(row.matches(" (").count(), 4, "{table}");
    }
    assert!(yard.path("out/copying-uring/read_8m.log").exists());
    let left: Vec<_> = fs::read_dir(yard.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.len() == 2, "the disk is still there: {left:?}");
}

/// Links of another root directory mean what they mean there.
#[test]
fn no_link_of_another_root_leads_out_of_it() {
    let yard = Yard::new();
    let root = yard.path("root");
    for directory in ["usr/bin", "usr/lib/x86_64-linux-gnu", "real"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    symlink("usr/lib/x86_64-linux-gnu", root.join("lib64")).unwrap();
    fs::copy("/lib64/ld-linux-x86-64.so.2", root.join("lib64/ld-linux-x86-64.so.2")).unwrap();
    fs::copy("/bin/dd", root.join("usr/bin/dd")).unwrap();
    symlink("/bin/busybox", root.join("usr/bin/busybox")).unwrap();
    symlink("/lib/x86_64-linux-gnu/libc.so.6", root.join("lib64/libc.so.6")).unwrap();
    let mut build = blockyard();
    build.args(["testvm", "build", "--program", "dd", "-o"]).arg(yard.path("test.cpio")).arg("--root").arg(&root);
    run(&mut build).failed(1, &["no busybox"]);
    fs::remove_file(root.join("usr/bin/busybox")).unwrap();
    fs::copy("/bin/busybox", root.join("real/busybox")).unwrap();
    symlink("/real/busybox", root.join("usr/bin/busybox")).unwrap();
    run(&mut build).failed(1, &["libc.so.6", "dd needs"]);
    fs::remove_file(root.join("lib64/libc.so.6")).unwrap();
    fs::copy("/lib/x86_64-linux-gnu/libc.so.6", root.join("lib64/libc.so.6")).unwrap();
    run(&mut build).succeeded();
}

/// The archive is a directory here, so that apt is real and needs no network.
#[test]
fn programs_come_out_of_packages_without_being_installed() {
    let yard = Yard::new();
    let libc = ("/lib/x86_64-linux-gnu/libc.so.6", "usr/lib/x86_64-linux-gnu/libc.so.6");
    let loader = ("/lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2");
    let index = package(&yard, "busybox-static", "", &[("/bin/busybox", "usr/bin/busybox")])
        + &package(&yard, "coreutils", "Depends: their-libc\n", &[("/bin/dd", "usr/bin/dd")])
        + &package(&yard, "their-libc", "", &[libc, loader]);
    fs::write(yard.path("Packages"), index).unwrap();
    let at = |name: &str| yard.path(name).display().to_string();
    fs::write(yard.path("sources"), format!("deb [trusted=yes] file:{} ./\n", at(""))).unwrap();
    let settings = format!(
        "Dir::Etc::SourceList \"{}\";\nDir::Etc::SourceParts \"/dev/null\";\nDir::State::lists \"{}\";\n\
         Dir::Cache \"{}\";\nAPT::Sandbox::User \"root\";\nDebug::NoLocking \"true\";\n",
        at("sources"),
        at("lists"),
        at("cache")
    );
    fs::write(yard.path("apt.conf"), settings).unwrap();
    for directory in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(yard.path(directory)).unwrap();
    }
    finished(Command::new("apt-get").arg("update").env("APT_CONFIG", yard.path("apt.conf")));

    let mut build = blockyard();
    build.args(["testvm", "build", "--packages", "--program", "dd", "-o"]).arg(yard.path("test.cpio"));
    let outcome = run(build.env("APT_CONFIG", yard.path("apt.conf"))).succeeded();
    assert!(outcome.stderr.contains("fetching the packages busybox-static, coreutils\n"), "{outcome:#?}");
    let archive = fs::read(yard.path("test.cpio")).unwrap();
    for name in ["bin/busybox", "tools/bin/dd", "tools/lib/libc.so.6", "lib64/ld-linux-x86-64.so.2"] {
        let named = [name.as_bytes(), b"\0"].concat();
        assert!(archive.windows(named.len()).any(|window| window == named), "{name} is not in it");
    }
    run(build.env("PATH", yard.path("none"))).failed(1, &["no apt-get here", "--root"]);
}

/// Makes a package of these files of this machine's, by what they are called in it; its part of the archive's index.
fn package(yard: &Yard, name: &str, more: &str, files: &[(&str, &str)]) -> String {
    let (tree, deb) = (yard.path(name), yard.path(&format!("{name}.deb")));
    for (file, place) in files {
        let place = tree.join(place);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::copy(file, place).unwrap();
    }
    fs::create_dir(tree.join("DEBIAN")).unwrap();
    let control = format!(
        "Package: {name}\nVersion: 1\nArchitecture: amd64\nMaintainer: Nobody <nobody@example.org>\n{more}Description: {name}\n"
    );
    fs::write(tree.join("DEBIAN/control"), &control).unwrap();
    finished(Command::new("dpkg-deb").args(["--root-owner-group", "-Znone", "--build"]).arg(&tree).arg(&deb));
    let sum = finished(Command::new("sha256sum").arg(&deb));
    let (size, sum) = (fs::metadata(&deb).unwrap().len(), sum.split(' ').next().unwrap());
    format!("{control}Filename: ./{name}.deb\nSize: {size}\nSHA256: {sum}\n\n")
}

fn finished(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// GRUB and the kernel come from the CD alone; in QEMU, whose BIOS, and UEFI if Debian's ovmf is installed, start it.
#[test]
fn a_cd_boots_to_a_shell_in_qemu() {
    let yard = Yard::new();
    let binary = Path::new(env!("CARGO_BIN_EXE_blockyard"));
    let target = binary.ancestors().find(|path| kernel_directory(*path).exists());
    let target = target.expect("there is no kernel to boot in QEMU: run `cargo xtask setup`");
    let kernel = DebianKernel::find(&kernel_directory(target), &[]).unwrap().image;
    let mut build = blockyard();
    build.args(["testvm", "build", "--program", "dd", "--iso"]).arg(yard.path("test.iso")).arg("--kernel").arg(kernel);
    run(build.args(["--append", "loglevel=0"])).succeeded();
    let names: Vec<_> = yard.names().into_iter().collect();
    assert_eq!(names, ["test.iso"], "nothing else is left");
    run(build.args(["--append", "quoted'"])).failed(2, &["--append"]);

    fs::write(yard.path("disk.img"), [b'x'; 4096]).unwrap();
    let ovmf = Path::new("/usr/share/ovmf/OVMF.fd");
    for bios in [None, Some(ovmf).filter(|file| file.exists())].into_iter().take(1 + usize::from(ovmf.exists())) {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-accel",
            "tcg",
            "-m",
            "512",
            "-nographic",
            "-no-reboot",
            "-nic",
            "none",
            "-machine",
            "q35",
            "-cdrom",
        ]);
        qemu.arg(yard.path("test.iso"));
        qemu.arg("-drive").arg(format!("if=virtio,format=raw,file={}", yard.path("disk.img").display()));
        qemu.args(bios.iter().flat_map(|file| [Path::new("-bios"), *file]));
        let mut guest = Guest::start(qemu, Duration::from_secs(180)).unwrap();
        guest.wait_for("a shell of the test VM").unwrap();
        guest.type_line("/tools/bin/dd if=/dev/vda bs=4 count=1 2>/dev/null; echo -$((6 * 7))-").unwrap();
        guest.wait_for("xxxx-42-").unwrap();
        guest.type_line("poweroff -f").unwrap();
        guest.finish().unwrap();
    }
}

/// Debian's cloud kernel with a virtio disk, and its generic one with the same disk behind AHCI; results both ways.
#[test]
fn kvm_a_step_writes_a_disk_and_its_results_come_back() {
    let Some(guest) = std::env::var_os("BLOCKYARD_LAB_GUEST").map(PathBuf::from) else {
        eprintln!("runs in the lab: cargo xtask lab");
        return;
    };
    let yard = Yard::new();
    let initramfs = yard.path("test.cpio");
    run(blockyard().args(["testvm", "build", "--program", "make", "-o"]).arg(&initramfs)).succeeded();
    fs::write(yard.path("disk.img"), [0; 1 << 20]).unwrap();
    let script = "step_disk() { printf \"$MARK\" >\"$DISK\"; echo \"$DISK\"; make --version | head -n 1; }\n";
    fs::write(yard.path("disk.sh"), script).unwrap();
    let machines =
        [("share", "virtio", guest.clone(), "/dev/vda"), ("console", "ahci", guest.join("generic"), "/dev/sda")];
    for (way, bus, guest, disk) in machines {
        let mut command = blockyard();
        command.args(["testvm", "run", "--backend", "kvm", "--memory", "256M", "--json", "--results", way]);
        command.args(["--bus", bus, "--set", &format!("MARK=by {bus}")]);
        command.arg("--kernel").arg(guest.join("vmlinuz")).arg("--modules").arg(modules(&yard, &guest, bus));
        command.arg("--initramfs").arg(&initramfs).arg("--disk").arg(yard.path("disk.img")).arg(yard.path("disk.sh"));
        let json = run(&mut command).succeeded().json();
        let output = json["steps"][0]["output"].as_str().unwrap();
        assert!(output.starts_with(&format!("{disk}\nGNU Make")), "{json:#}");
        assert_eq!(json["steps"][0]["bus"], bus, "{json:#}");
        assert!(fs::read(yard.path("disk.img")).unwrap().starts_with(format!("by {bus}").as_bytes()), "{json:#}");
    }
}

/// The lab's modules, which have numbers before their names, by their names.
fn modules(yard: &Yard, guest: &Path, name: &str) -> PathBuf {
    let modules = yard.path(name);
    fs::create_dir(&modules).unwrap();
    for entry in fs::read_dir(guest.join("modules")).unwrap() {
        let path = entry.unwrap().path();
        let (_, name) = path.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
        fs::copy(&path, modules.join(name)).unwrap();
    }
    modules
}
