//! `blockyard testvm`: steps in machines that have just booted. What needs a real KVM runs in the lab, by its name.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use support::{Yard, blockyard, run, run_without_leftovers};

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
step_hangs() { sleep 1000; }
step_dies() { poweroff -f; }
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
        assert!(fs::read_to_string(yard.path(way).join("first.log")).unwrap().contains("BLOCKYARD-TESTVM end 0"));
    }
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
    assert!(!yard.path("x.cpio").exists());
}

/// Debian's cloud kernel and its modules, a disk, and results both ways.
#[test]
fn kvm_a_step_writes_a_disk_and_its_results_come_back() {
    let Some(guest) = std::env::var_os("BLOCKYARD_LAB_GUEST").map(PathBuf::from) else {
        eprintln!("runs in the lab: cargo xtask lab");
        return;
    };
    let yard = Yard::new();
    let modules = modules(&yard, &guest);
    let initramfs = yard.path("test.cpio");
    run(blockyard().args(["testvm", "build", "--program", "make", "-o"]).arg(&initramfs)).succeeded();
    fs::write(yard.path("disk.img"), [0; 1 << 20]).unwrap();
    fs::write(yard.path("disk.sh"), "step_disk() { printf marked >/dev/vda; make --version | head -n 1; }\n").unwrap();
    for way in ["share", "console"] {
        let mut command = blockyard();
        command.args(["testvm", "run", "--backend", "kvm", "--memory", "256M", "--json", "--results", way]);
        command
            .arg("--kernel")
            .arg(guest.join("vmlinuz"))
            .arg("--modules")
            .arg(&modules)
            .arg("--initramfs")
            .arg(&initramfs);
        let json = run(command.arg("--disk").arg(yard.path("disk.img")).arg(yard.path("disk.sh"))).succeeded().json();
        assert!(json["steps"][0]["output"].as_str().unwrap().starts_with("GNU Make"), "{way}: {json:#}");
    }
    assert!(fs::read(yard.path("disk.img")).unwrap().starts_with(b"marked"));
}

/// The lab's modules, which have numbers before their names, by their names.
fn modules(yard: &Yard, guest: &Path) -> PathBuf {
    let modules = yard.path("modules");
    fs::create_dir(&modules).unwrap();
    for entry in fs::read_dir(guest.join("modules")).unwrap() {
        let path = entry.unwrap().path();
        let (_, name) = path.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
        fs::copy(&path, modules.join(name)).unwrap();
    }
    modules
}
