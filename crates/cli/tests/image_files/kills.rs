//! Commands that change images, killed at any moment: what they leave is whole.
//!
//! What a process wrote before it was killed stays with the kernel, so the files lie in memory. What power cuts leave
//! is in the tests of the formats.

use super::*;
use rustix::process::{Pid, Signal, kill_process};
use std::thread;
use std::time::{Duration, Instant};

/// Of each command, in every run of the tests.
const KILLS: u64 = 2;
/// And by hand, where nothing else is said.
const MANY_KILLS: u64 = 200;

struct Change {
    line: &'static str,
    /// What of the files may be another after it.
    files: &'static [&'static str],
    /// What there may be of each image, as raw disks of which it shows one.
    images: &'static [(&'static str, &'static [&'static str])],
    /// What is done again when it was killed, and what is then shown.
    again: Option<(&'static str, &'static str, &'static str)>,
}

const CHANGES: &[Change] = &[
    Change {
        line: "convert -O qcow2 -o cluster_size=4K before.raw new.qcow2",
        files: &["new.qcow2"],
        images: &[("new.qcow2", &["before.raw"])],
        again: None,
    },
    Change {
        line: "convert -c -O qcow2 -o compression_type=zstd after.raw one.qcow2",
        files: &["one.qcow2"],
        images: &[("one.qcow2", &["after.raw", "before.raw"])],
        again: None,
    },
    Change {
        line: "convert -O vmdk before.raw new.vmdk",
        files: &["new.vmdk"],
        images: &[("new.vmdk", &["before.raw"])],
        again: None,
    },
    Change {
        line: "convert -O vhdx after.raw new.vhdx",
        files: &["new.vhdx"],
        images: &[("new.vhdx", &["after.raw"])],
        again: None,
    },
    Change {
        line: "commit --allow-dir . top.qcow2",
        files: &["top.qcow2", "base.qcow2"],
        images: &[("top.qcow2", &["after.raw"])],
        again: Some(("commit --allow-dir . top.qcow2", "base.qcow2", "after.raw")),
    },
    Change {
        line: "commit --allow-dir . top.vmdk",
        files: &["top.vmdk", "base.vmdk"],
        images: &[("top.vmdk", &["after.raw"])],
        again: Some(("commit --allow-dir . top.vmdk", "base.vmdk", "after.raw")),
    },
    Change {
        line: "rebase --allow-dir . -b  top.qcow2",
        files: &["top.qcow2"],
        images: &[("top.qcow2", &["after.raw"])],
        again: None,
    },
    Change {
        line: "snapshot -c another one.qcow2",
        files: &["one.qcow2"],
        images: &[("one.qcow2", &["after.raw"])],
        again: Some(("snapshot -a first one.qcow2", "one.qcow2", "before.raw")),
    },
    Change {
        line: "snapshot -a first one.qcow2",
        files: &["one.qcow2"],
        images: &[("one.qcow2", &["before.raw", "after.raw"])],
        again: Some(("snapshot -a first one.qcow2", "one.qcow2", "before.raw")),
    },
    Change {
        line: "snapshot -d first one.qcow2",
        files: &["one.qcow2"],
        images: &[("one.qcow2", &["after.raw"])],
        again: None,
    },
    Change {
        line: "amend -o compat=1.1,lazy_refcounts=on,size=9M old.qcow2",
        files: &["old.qcow2"],
        images: &[("old.qcow2", &["before.raw", "before-9M.raw"])],
        again: None,
    },
    Change {
        line: "resize --preallocation=full old.qcow2 9M",
        files: &["old.qcow2"],
        images: &[("old.qcow2", &["before.raw", "before-9M.raw"])],
        again: None,
    },
    Change {
        line: "resize --shrink one.qcow2 4M",
        files: &["one.qcow2"],
        images: &[("one.qcow2", &["after.raw", "after-4M.raw"])],
        again: Some(("snapshot -a first one.qcow2", "one.qcow2", "before.raw")),
    },
    Change {
        line: "check -r all dirty.qcow2",
        files: &["dirty.qcow2"],
        images: &[("dirty.qcow2", &["after.raw"])],
        again: None,
    },
];

/// Everything that is changed, as it is before.
fn prepare(yard: &Yard) {
    let disk = yard.sparse("before.raw", 8 * MIB, &[(0, 2 * MIB), (3 * MIB + 4096, 70_000), (7 * MIB, MIB)], 7);
    let changed = yard.path("after.raw");
    fs::copy(&disk, &changed).unwrap();
    let file = File::options().write(true).open(&changed).unwrap();
    for place in 0..200 {
        file.write_all_at(&random_bytes(3000, place), place * 40_960 + 512).unwrap();
    }
    for (name, from, length) in [("before-9M.raw", "before.raw", 9), ("after-4M.raw", "after.raw", 4)] {
        fs::copy(yard.path(from), yard.path(name)).unwrap();
        File::options().write(true).open(yard.path(name)).unwrap().set_len(length * MIB).unwrap();
    }
    for line in [
        "convert -O qcow2 -o cluster_size=512 before.raw base.qcow2",
        "convert -O qcow2 -o cluster_size=4096 -B base.qcow2 -F qcow2 after.raw top.qcow2",
        "convert -O vmdk before.raw base.vmdk",
        "create -q -f vmdk -b base.vmdk -F vmdk top.vmdk",
        "convert -O qcow2 -o compat=0.10,cluster_size=512 before.raw old.qcow2",
        "convert -O qcow2 -o cluster_size=512 before.raw one.qcow2",
        "snapshot -c first one.qcow2",
        "convert -O qcow2 -o cluster_size=512,lazy_refcounts=on before.raw dirty.qcow2",
    ] {
        qemu_img(yard, line);
    }
    qemu_img(yard, "convert -n -O qcow2 after.raw one.qcow2");
    qemu_img(yard, "convert -n -O vmdk after.raw top.vmdk");
    // It ends before refcounts are written.
    let mut died = Command::new("qemu-io");
    died.current_dir(yard.path("")).args(["-c", "write -s after.raw 0 8M", "-c", "abort", "dirty.qcow2"]);
    assert!(!died.output().unwrap().status.success());
    said(yard, &["check", "dirty.qcow2"]).failed(2, &["ERROR"]);
    fs::create_dir(yard.path("kept")).unwrap();
    for name in yard.names() {
        if name.contains('.') {
            fs::copy(yard.path(&name), yard.path("kept").join(&name)).unwrap();
        }
    }
}

impl Change {
    fn restore(&self, yard: &Yard) {
        for name in self.files {
            let (kept, path) = (yard.path("kept").join(name), yard.path(name));
            match kept.exists() {
                true => drop(fs::copy(kept, path).unwrap()),
                false => drop(fs::remove_file(path)),
            }
        }
    }

    fn command(&self, yard: &Yard) -> Command {
        let mut command = blockyard();
        command.current_dir(yard.path("")).arg("image").args(self.line.split(' '));
        command
    }

    /// What is left of the images by a command that was killed.
    fn judge(&self, yard: &Yard, moment: Duration) {
        let told = format!("{} after {moment:?}", self.line);
        // What io_uring had of a process is given back after its end, locks too.
        for name in self.files.iter().filter(|name| yard.path(name).exists()) {
            let is_free = || said(yard, &["info", "--json", name]).json()["users"]["writer"].is_null();
            support::wait_until("nobody has it open", is_free);
        }
        for (name, shown) in self.images {
            if !yard.path(name).exists() && !yard.path("kept").join(name).exists() {
                continue;
            }
            if name.ends_with("qcow2") {
                // It may be marked dirty, or still be, which whoever writes to it next repairs.
                let found = said(yard, &["check", name]);
                if found.code == Some(2) && (self.line.starts_with("snapshot") || self.line.starts_with("check")) {
                    said(yard, &["check", "-r", "all", name]);
                }
                let found = said(yard, &["check", name]);
                assert!(matches!(found.code, Some(0 | 3)), "{told}: {found:?}");
                tool_that_may_find_leaks(yard, name, &told);
            }
            let compared = shown
                .iter()
                .map(|raw| image(yard, ["compare", "-f", format_of(name), "-F", "raw", "--allow-dir", ".", name, raw]));
            let compared: Vec<_> = compared.collect();
            // A longer disk has zeros behind, which are not compared.
            assert!(compared.iter().any(|outcome| outcome.code == Some(0)), "{told}: {name}: {compared:#?}");
        }
        if let Some((line, name, raw)) = self.again {
            image(yard, line.split(' ')).succeeded();
            image(yard, ["compare", "-f", format_of(name), "-F", "raw", "--allow-dir", ".", name, raw]).succeeded();
        }
    }
}

/// What a command says, however much.
fn said(yard: &Yard, arguments: &[&str]) -> Outcome {
    blockyard().current_dir(yard.path("")).arg("image").args(arguments).output().unwrap().into()
}

fn format_of(name: &str) -> &str {
    name.rsplit('.').next().unwrap()
}

#[track_caller]
fn tool_that_may_find_leaks(yard: &Yard, name: &str, told: &str) {
    let output = Command::new("qemu-img").args(["check", name]).current_dir(yard.path("")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{told}: {said}");
}

fn kill_each(kills: u64, seed: u64) {
    let yard = Yard::in_memory();
    prepare(&yard);
    let names = yard.names();
    for (index, change) in CHANGES.iter().enumerate() {
        change.restore(&yard);
        let begun = Instant::now();
        run(&mut change.command(&yard)).succeeded();
        let whole = begun.elapsed();
        change.judge(&yard, whole);
        let (mut ended, random) = (0, random_bytes(8 * kills as usize, seed * 100 + index as u64));
        for moment in random.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())) {
            change.restore(&yard);
            let moment = whole.mul_f64(moment as f64 / u64::MAX as f64 * 1.1);
            let mut child = change.command(&yard).spawn().unwrap();
            thread::sleep(moment);
            let _ = kill_process(Pid::from_child(&child), Signal::KILL);
            ended += u64::from(child.wait().unwrap().success());
            change.judge(&yard, moment);
        }
        change.restore(&yard);
        // A new file that is to take another's place has a name of its own for a moment.
        let is_for_a_moment = |name: &String| name.starts_with('.') && name.contains(".blockyard-");
        let left: Vec<_> = yard.names().difference(&names).filter(|name| !is_for_a_moment(name)).cloned().collect();
        assert!(left.is_empty(), "{}: {left:?} is left", change.line);
        println!("{}: {kills} kills within {whole:?}, of which {ended} came too late", change.line);
    }
}

#[test]
fn what_is_killed_leaves_images_whole() {
    kill_each(KILLS, 1);
}

#[test]
#[ignore = "takes minutes: cargo xtask reliability kills"]
fn what_is_killed_often_leaves_images_whole() {
    let kills = std::env::var("BLOCKYARD_KILLS").map_or(MANY_KILLS, |kills| kills.parse().unwrap());
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    println!("seed {seed}");
    kill_each(kills, seed % 1_000_000);
}
