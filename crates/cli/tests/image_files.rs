//! `blockyard image` on images as a whole, checked by qemu-img and sfdisk (Debian packages qemu-utils and fdisk).

#[path = "image_files/amend.rs"]
mod amend;
#[path = "image_files/based.rs"]
mod based;
#[path = "image_files/bitmaps.rs"]
mod bitmaps;
#[path = "image_files/blocks.rs"]
mod blocks;
#[path = "image_files/chains.rs"]
mod chains;
#[path = "image_files/compressed.rs"]
mod compressed;
#[path = "image_files/converted.rs"]
mod converted;
#[path = "image_files/created.rs"]
mod created;
#[path = "image_files/damaged.rs"]
mod damaged;
#[path = "image_files/data_files.rs"]
mod data_files;
#[path = "image_files/dirty.rs"]
mod dirty;
#[path = "image_files/encryption.rs"]
mod encryption;
#[path = "image_files/file_hints.rs"]
mod file_hints;
#[path = "image_files/full_disks.rs"]
mod full_disks;
#[path = "image_files/ignored_signals.rs"]
mod ignored_signals;
#[path = "image_files/info.rs"]
mod info;
#[path = "image_files/kills.rs"]
mod kills;
#[path = "image_files/local_names.rs"]
mod local_names;
#[path = "image_files/names.rs"]
mod names;
#[path = "image_files/options.rs"]
mod options;
#[path = "image_files/other_formats.rs"]
mod other_formats;
#[path = "image_files/ova.rs"]
mod ova;
#[path = "image_files/packed.rs"]
mod packed;
#[path = "image_files/qemu_flags.rs"]
mod qemu_flags;
#[path = "image_files/refused.rs"]
mod refused;
#[path = "image_files/safety.rs"]
mod safety;
#[path = "image_files/second_opinions.rs"]
mod second_opinions;
#[path = "image_files/secrets.rs"]
mod secrets;
#[path = "server/mod.rs"]
mod server;
#[path = "image_files/sizes.rs"]
mod sizes;
#[path = "image_files/slow_disks.rs"]
mod slow_disks;
#[path = "image_files/snapshots.rs"]
mod snapshots;
#[path = "image_files/sources.rs"]
mod sources;
mod support;
#[path = "image_files/truncated.rs"]
mod truncated;
#[path = "../../block/tests/formats/block_map/vhd_image.rs"]
mod vhd_image;
#[path = "../../block/tests/formats/block_map/vhdx_image.rs"]
mod vhdx_image;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use support::root::is_root;
use support::{Outcome, Yard, allocated_bytes, blockyard, random_bytes, run, same};

const MIB: u64 = 1 << 20;

fn image<S: AsRef<OsStr>>(yard: &Yard, arguments: impl IntoIterator<Item = S>) -> Outcome {
    run(blockyard().current_dir(yard.path("")).arg("image").args(arguments))
}

/// Runs one of other people's tools.
#[track_caller]
fn tool(yard: &Yard, package: &str, line: &str) -> Outcome {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .current_dir(yard.path(""))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut run = || {
        let child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}: install {package}"));
        support::finish(child)
    };
    // QEMU times what a key costs by the process's own time, which a kernel that counts ticks says is none now and
    // then.
    let is_timed = |outcome: &Outcome| !outcome.stderr.contains("Unable to get accurate CPU usage");
    let mut tries = std::iter::repeat_with(&mut run).take(1000);
    tries.find(is_timed).expect("QEMU cannot tell how long it takes to make a key").succeeded()
}

#[track_caller]
fn qemu_img(yard: &Yard, line: &str) -> Outcome {
    tool(yard, "qemu-utils", &format!("qemu-img {line}"))
}

/// `blockyard image` with system calls that fail, as strace's `inject=` says it (`fdatasync:error=EIO:when=3`); of one
/// file only, if it is named. Its exit status, and what it said.
fn with_failing(yard: &Yard, failing: &str, file: Option<&str>, words: &[&str]) -> (Option<i32>, String) {
    let call = failing.split(':').next().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null"]);
    if let Some(file) = file {
        strace.arg("-P").arg(yard.path(file));
    }
    strace.args(["-e", &format!("trace={call}"), "-e", &format!("inject={failing}")]);
    strace.args([env!("CARGO_BIN_EXE_blockyard"), "image"]).args(words).current_dir(yard.path(""));
    let output = strace.output().unwrap_or_else(|error| panic!("strace ({error}): it is in Debian's strace"));
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A disk with data, text that compresses, zeros that have storage, and holes; not a whole number of clusters long.
fn mixed(yard: &Yard, name: &str) -> std::path::PathBuf {
    let path =
        yard.sparse(name, 40 * MIB + 3 * 512, &[(0, 5 * MIB), (9 * MIB + 4096, 70_000), (39 * MIB, MIB + 512)], 7);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&b"all work and no play ".repeat(200_000), 20 * MIB + 512).unwrap();
    file.write_all_at(&vec![0; 3 << 20], 30 * MIB).unwrap();
    path
}

/// Unmounts when it goes.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
