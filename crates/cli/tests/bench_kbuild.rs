//! `blockyard bench kbuild`, with trees that are built in a moment. What needs a real KVM runs in the lab, by its name.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Yard, blockyard, finish, run, wait_until};

/// A tree of one file, which is compiled by `compiler`.
fn tree(yard: &Yard, compiler: &str) -> PathBuf {
    let tree = yard.path("tree");
    fs::create_dir(&tree).unwrap();
    let makefile = format!(
        "vmlinux: unit.o\n\tcp unit.o vmlinux\n\
         unit.o: unit.c .config\n\t{compiler}\n\t@echo with $(MAKEFLAGS) on `grep -c ^processor /proc/cpuinfo`\n\
         own-config:\n\techo own >.config\nolddefconfig: .config\n\tgrep given .config\n\
         prepare:\n\t@echo prepared\nforever:\n\t@echo waits >/dev/console; sleep 1000\n"
    );
    fs::write(tree.join("Makefile"), makefile).unwrap();
    fs::write(tree.join("unit.c"), "int unit(int x) { return x + 1; }\n").unwrap();
    tree
}

/// The measurement of that tree on this backend.
fn bench(yard: &Yard, tree: &Path, backend: &str) -> Command {
    let mut command = blockyard();
    command.args(["bench", "kbuild", "--backend", backend, "--memory", "256M", "--tree"]).arg(tree);
    command.arg("--logs").arg(yard.path("logs")).arg("--directory").arg(yard.path(""));
    command
}

#[test]
fn a_tree_is_built_on_user_mode_linux() {
    let yard = Yard::new();
    let tree = tree(&yard, "gcc -O2 -c -o $@ $<");
    fs::write(yard.path("its.config"), "given=y\n").unwrap();
    let archive = yard.path("tree.tar.gz");
    assert!(
        Command::new("tar")
            .arg("-czf")
            .arg(&archive)
            .arg("-C")
            .arg(yard.path(""))
            .arg("tree")
            .status()
            .unwrap()
            .success()
    );
    let mut command = bench(&yard, &archive, "uml");
    let json =
        run(command.arg("--config").arg(yard.path("its.config")).args(["--cpus", "1", "--json"])).succeeded().json();
    let cells = json["rows"][0]["cells"].as_array().unwrap();
    assert_eq!((cells.len(), &cells[0]["placement"]), (1, &"shared".into()), "{json:#}");
    let runs = cells[0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{json:#}");
    for run in runs {
        let seconds = |name: &str| run[name].as_f64().unwrap();
        assert!(seconds("seconds") > 0.0 && seconds("guest_seconds") > 0.0, "{json:#}");
        let name = run["log"].as_str().unwrap();
        let built = fs::read_to_string(yard.path("logs").join(name).join("build.log")).unwrap();
        for expected in ["prepared", "gcc -O2 -c -o unit.o unit.c", "-j1", "on 1"] {
            assert!(built.contains(expected), "{expected}: {built}");
        }
        for (path, mode) in [(name.to_owned(), 0o700), (format!("{name}.log"), 0o600)] {
            let found = fs::metadata(yard.path("logs").join(path)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "they are for nobody else");
        }
        let console = fs::read_to_string(yard.path("logs").join(format!("{name}.log"))).unwrap();
        assert!(console.contains("BLOCKYARD-KBUILD begin"), "{console}");
    }
    let seconds = |run: usize| runs[run]["seconds"].as_f64().unwrap();
    // A number that is printed and read again may be the next one to it.
    let difference = json["base"]["seconds"].as_f64().unwrap() - f64::midpoint(seconds(0), seconds(1));
    assert!(difference.abs() < 1e-9, "{json:#}");
    assert!(!tree.join("vmlinux").exists(), "it is built in the guest's memory");
    let names: Vec<_> = yard.names().into_iter().collect();
    assert_eq!(names, ["its.config", "logs", "tree", "tree.tar.gz"], "nothing else is left");
}

#[test]
fn a_build_that_fails_is_a_dash_and_told() {
    let yard = Yard::new();
    let tree = tree(&yard, "false");
    let mut command = bench(&yard, &tree, "uml");
    let outcome = run(command.args(["--config", "own-config", "--rounds", "1"]));
    let outcome = outcome.failed(1, &["one machine failed", "logs"]);
    assert!(outcome.stdout.contains("uml-1-shared-1: the build (exit status 2)"), "{outcome:#?}");
    assert!(outcome.stdout.lines().any(|line| line.starts_with("| uml ") && line.contains(" - ")), "{outcome:#?}");
    let log = fs::read_to_string(yard.path("logs/uml-1-shared-1.log")).unwrap();
    assert!(log.contains("Error 1"), "the end of what make said: {log}");
    let missing = bench(&yard, &yard.path("none"), "uml").spawn().unwrap();
    finish(missing).failed(1, &["cannot read the tree", "none"]);
}

#[test]
fn a_signal_ends_the_machine_that_builds() {
    let yard = Yard::new();
    let tree = tree(&yard, "true");
    let mut command = bench(&yard, &tree, "uml");
    fs::create_dir_all(yard.path("logs/uml-1-shared-1")).unwrap();
    let build_log = yard.path("logs/uml-1-shared-1/build.log");
    fs::write(&build_log, "of an earlier run").unwrap();
    let child = command.args(["--config", "own-config", "--target", "forever"]).spawn().unwrap();
    let log = yard.path("logs/uml-1-shared-1.log");
    wait_until("the build waits", || fs::read_to_string(&log).is_ok_and(|log| log.contains("waits")));
    let machines = support::children(child.id());
    assert!(!machines.is_empty());
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::TERM).unwrap();
    finish(child).failed(143, &["SIGTERM"]);
    wait_until("its end", || !machines.iter().any(|&pid| support::is_alive(pid)));
    assert!(!build_log.exists(), "a run that wrote no log has an earlier one's");
}

/// What cannot be measured is no success, a kernel that is named is not left out, and earlier logs are not this run's.
#[test]
fn a_measurement_without_a_figure_fails() {
    let yard = Yard::new();
    let tree = tree(&yard, "true");
    fs::create_dir_all(yard.path("logs/uml-1-shared-2")).unwrap();
    fs::write(yard.path("logs/uml-1-shared-2/build.log"), "of an earlier run").unwrap();
    fs::write(yard.path("kernel"), "no kernel").unwrap();
    let mut command = bench(&yard, &tree, "uml");
    let outcome = run(command.arg("--kernel").arg(yard.path("kernel"))).failed(1, &["nothing was measured"]);
    assert!(outcome.stdout.contains("is no User-Mode Linux"), "{outcome:#?}");
    assert_eq!(fs::read_dir(yard.path("logs")).unwrap().count(), 0);
}

/// On the lab's one CPU, which the VMM has to share.
#[test]
fn kvm_a_tree_is_built_but_not_compared_where_cpus_are_too_few() {
    let Some(guest) = std::env::var_os("BLOCKYARD_LAB_GUEST").map(PathBuf::from) else {
        eprintln!("runs in the lab: cargo xtask lab");
        return;
    };
    let yard = Yard::new();
    let tree = tree(&yard, "cp unit.c unit.o");
    let modules = yard.path("modules");
    fs::create_dir(&modules).unwrap();
    for entry in fs::read_dir(guest.join("modules")).unwrap() {
        let path = entry.unwrap().path();
        // They have numbers before their names.
        let (_, name) = path.file_name().unwrap().to_str().unwrap().split_once('-').unwrap();
        fs::copy(&path, modules.join(name)).unwrap();
    }
    let mut command = bench(&yard, &tree, "kvm");
    command.args(["--config", "own-config", "--cpus", "1", "--place", "disjoint", "--rounds", "1"]);
    command.arg("--kernel").arg(guest.join("vmlinuz")).arg("--modules").arg(&modules);
    let outcome = run(&mut command).succeeded();
    let row = outcome.stdout.lines().find(|line| line.starts_with("| kvm ")).unwrap();
    assert!(row.contains("not comparable: ") && row.contains(" exits, ") && row.contains("s CPU"), "{outcome:#?}");
    assert!(yard.path("logs/kvm-1-disjoint-1/build.log").exists());
}
