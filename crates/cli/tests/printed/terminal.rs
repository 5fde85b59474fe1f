//! Nothing that is printed is wider than the terminal.

use crate::pty::{Terminal, fits, lines};
use crate::support::{Yard, blockyard, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

const WIDTHS: [u16; 3] = [40, 60, 80];
const MIB: u64 = 1 << 20;

fn on_terminal(yard: &Yard, columns: u16, words: &str) -> String {
    let mut command = blockyard();
    command.current_dir(yard.path("")).args(words.split(' '));
    Terminal::start(&mut command, columns).finish()
}

fn partitioned(yard: &Yard) {
    let path = yard.path("disk.img");
    File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    let mut sfdisk = Command::new("sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&path).stdin(Stdio::piped());
    let mut sfdisk = sfdisk.spawn().expect("sfdisk comes with the package `fdisk`");
    let script =
        b"label: gpt\nsize=16384, name=\"a partition with quite a long name\"\nsize=16384, attrs=LegacyBIOSBootable\n";
    sfdisk.stdin.take().unwrap().write_all(script).unwrap();
    assert!(sfdisk.wait().unwrap().success());
}

#[test]
fn tables_fit_the_terminal() {
    let yard = Yard::new();
    partitioned(&yard);
    for columns in WIDTHS {
        for words in
            ["partitions disk.img", "bench disk disk.img", "image inspect disk.img", "image filesystems disk.img"]
        {
            let written = on_terminal(&yard, columns, words);
            fits(&written, columns, words);
            assert!(written.contains("| ") && !written.contains("NaN"), "{words}: {written}");
        }
        let written = on_terminal(&yard, columns, "partitions disk.img");
        assert!(lines(&written).concat().contains("legacy-boot"), "{written}");
    }
}

#[test]
fn layers_and_their_legend_fit_the_terminal() {
    let yard = Yard::new();
    let words = "bench layers --length 1M --sizes 4K --runtime 0.01 --rounds 1 --target null,file,file+layers,session";
    for columns in WIDTHS {
        let written = on_terminal(&yard, columns, words);
        fits(&written, columns, words);
        let text = lines(&written).join("\n");
        assert!(text.contains("① null") && text.contains("BW: MiB/s") && !text.contains("NaN"), "{text}");
    }
}

/// Long enough for a line to be drawn: a copy that is throttled, and a conversion of which each request takes its time.
#[test]
fn progress_fits_the_terminal() {
    at_all_widths(|columns| {
        let yard = Yard::new();
        yard.random("data.img", 6 * MIB, 1);
        yard.sparse("sparse.img", 4096 * MIB, &[(0, 2 * MIB), (4000 * MIB, 2 * MIB)], 1);
        yard.random("file", 40 * MIB, 1);
        let mut archive = Command::new("tar");
        assert!(archive.args(["-cf", "files.tar", "file"]).current_dir(yard.path("")).status().unwrap().success());
        let mut create = blockyard();
        create.args(["image", "create", "--fs", "ext4", "files.img", "100M"]).current_dir(yard.path(""));
        assert!(create.output().unwrap().status.success());
        for words in [
            "copy --backend user sparse.img,bps=1M copy.img",
            "image convert -p data.img,bps=2M -O qcow2 new.img",
            "bench disk data.img --runtime 2",
            // More than the appliance has memory for.
            "image tar-in --memory 64 files.img,bps=12M files.tar",
        ] {
            let written = on_terminal(&yard, columns, words);
            assert!(written.contains(" %"), "{words}: nothing was drawn: {written:?}");
            let drawn: Vec<_> = lines(&written).into_iter().filter(|line| line.contains(" %")).collect();
            fits(&drawn.join("\n"), columns, words);
        }
    });
}

/// At the same time: each takes its time, and mostly waits.
fn at_all_widths(check: impl Fn(u16) + Sync) {
    std::thread::scope(|scope| {
        for columns in WIDTHS {
            let check = &check;
            scope.spawn(move || check(columns));
        }
    });
}

/// 4 MiB of data in 4 GiB are not 2 GiB/s.
#[test]
fn speeds_count_data_and_not_holes() {
    let yard = Yard::new();
    yard.sparse("sparse.img", 4096 * MIB, &[(0, 2 * MIB), (4000 * MIB, 2 * MIB)], 1);
    let written = on_terminal(&yard, 120, "copy --backend user sparse.img,bps=1M copy.img");
    let text = lines(&written).join("\n");
    assert!(text.contains("4.00 GiB, 4.00 MiB of it data,"), "{text}");
    assert!(!text.contains("GiB/s"), "{text}");
}

#[test]
fn the_live_view_fits_the_terminal() {
    at_all_widths(|columns| {
        let yard = Yard::new();
        let socket = yard.path("a-socket-with-quite-a-long-name.sock");
        let mut serve = blockyard();
        serve.args(["serve", "mem:8M", "--stats", "--socket"]).arg(&socket);
        let serving = Terminal::start(&mut serve, columns);
        wait_until("a socket", || socket.exists());
        let mut client = blockyard();
        client.args(["bench", "disk", "--runtime", "2.5"]).arg(format!("session:{}", socket.display()));
        assert!(client.output().unwrap().status.success());
        kill_process(Pid::from_child(&serving.child), Signal::TERM).unwrap();
        let written = serving.finish();
        // Its lines are as long as the terminal is wide, blanks at their ends, and one goes on where the one before
        // ended.
        let view: Vec<_> = lines(&written).into_iter().filter(|line| line.starts_with('|')).collect();
        assert!(view.concat().contains("IOPS"), "{written:?}");
        for drawn in view.iter().map(|line| line.chars().collect::<Vec<_>>()) {
            for line in drawn.chunks(columns.into()) {
                let is_whole = line[0] == '|' || line.iter().all(|letter| *letter == ' ');
                assert!(is_whole, "at {columns} columns: {drawn:?}");
            }
        }
    });
}
