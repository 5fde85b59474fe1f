//! What takes time: beside a peer's time on the same work where there is one, both in turn, as machines are noisy.

use super::Bar::{AtLeast, AtMost};
use super::Figure;
use super::yard::{Yard, json, seconds};
use anyhow::Context;
use std::process::Command;

pub(super) const FIGURES: &[Figure] = &[
    Figure { name: "copy of 1 GiB at 512-byte sectors / cp", bar: AtMost(0.8), measure: |yard| copy(yard, 512) },
    Figure { name: "copy of 1 GiB at 65536-byte sectors / cp", bar: AtMost(0.8), measure: |yard| copy(yard, 65536) },
    Figure { name: "copy of 1 GiB, flushed / cp + fdatasync", bar: AtMost(1.0), measure: flushed_copy },
    Figure { name: "copy of 4 KiB / qemu-img convert", bar: AtMost(1.0), measure: small_copy },
    Figure {
        name: "session, 4 KiB random reads, depth 64 / qemu-storage-daemon",
        bar: AtLeast(1.5),
        measure: |yard| session(yard, "--random --batch 64 --size 4K --runtime 1"),
    },
    Figure {
        name: "session, 4 KiB random writes, depth 64 / qemu-storage-daemon",
        bar: AtLeast(1.5),
        measure: |yard| session(yard, "--random --batch 64 --size 4K --runtime 1 --write"),
    },
    Figure {
        name: "session, 1 MiB reads, depth 4 / qemu-storage-daemon",
        bar: AtLeast(1.0),
        measure: |yard| session(yard, "--batch 4 --size 1M --runtime 1"),
    },
    Figure {
        name: "session, 1 MiB writes, depth 4 / qemu-storage-daemon",
        bar: AtLeast(1.0),
        measure: |yard| session(yard, "--batch 4 --size 1M --runtime 1 --write"),
    },
    Figure {
        name: "session, null disk, 4 KiB random reads, depth 64: IOPS",
        bar: AtLeast(1e6),
        measure: |yard| {
            let _server = yard.serve("null:8G")?;
            iops(yard, "--random --batch 64 --size 4K --runtime 1")
        },
    },
    Figure { name: "image ls / on ext4: seconds", bar: AtMost(0.15), measure: image_ls },
    Figure { name: "image put of 500 MiB / cp + sync", bar: AtMost(2.5), measure: image_put },
    Figure {
        name: "convert qcow2 -> raw / qemu-img",
        bar: AtMost(0.8),
        measure: |yard| convert(yard, "qcow2", "-f qcow2 -O raw"),
    },
    Figure {
        name: "convert raw -> qcow2 / qemu-img",
        bar: AtMost(1.0),
        measure: |yard| convert(yard, "data", "-f raw -O qcow2"),
    },
];

fn copy(yard: &Yard, sector: u32) -> anyhow::Result<f64> {
    yard.data()?;
    let sectors = format!("--input-sector-size {sector} --output-sector-size {sector}");
    ratio(yard, &mut yard.blockyard(&format!("copy data a --no-flush {sectors}")), &mut cp(yard))
}

fn flushed_copy(yard: &Yard) -> anyhow::Result<f64> {
    yard.data()?;
    let mut theirs = yard.program("sh", "-c");
    theirs.arg("cp --reflink=never data b && sync -d b");
    ratio(yard, &mut yard.blockyard("copy data a"), &mut theirs)
}

fn small_copy(yard: &Yard) -> anyhow::Result<f64> {
    /// One takes less than what disturbs it.
    const COPIES: usize = 20;
    std::fs::write(yard.path("small"), vec![1; 4096])?;
    let (mut ours, mut theirs) = (0.0, 0.0);
    for _ in 0..COPIES {
        yard.remove("a")?;
        yard.remove("b")?;
        ours += seconds(&mut yard.blockyard("copy small a --no-flush"))?;
        theirs += seconds(&mut yard.program("qemu-img", "convert -f raw -O raw small b"))?;
    }
    Ok(ours / theirs)
}

fn cp(yard: &Yard) -> Command {
    yard.program("cp", "--reflink=never data b")
}

/// Ours makes `a`, theirs `b`; neither is there before.
fn ratio(yard: &Yard, ours: &mut Command, theirs: &mut Command) -> anyhow::Result<f64> {
    yard.remove("a")?;
    let ours = seconds(ours)?;
    yard.remove("a")?;
    yard.remove("b")?;
    let theirs = seconds(theirs)?;
    yard.remove("b")?;
    Ok(ours / theirs)
}

/// Our server's requests a second over qemu-storage-daemon's, of the same file, with the same client.
fn session(yard: &Yard, workload: &str) -> anyhow::Result<f64> {
    yard.data()?;
    let server = yard.serve("data")?;
    let ours = iops(yard, workload)?;
    drop(server);
    let _server = yard.qemu_storage_daemon("data")?;
    Ok(ours / iops(yard, workload)?)
}

pub(super) fn iops(yard: &Yard, workload: &str) -> anyhow::Result<f64> {
    json(&mut yard.bench_disk(&format!("session:s {workload}")))?["iops"].as_f64().context("bench --json has no IOPS")
}

fn empty_ext4(yard: &Yard) -> anyhow::Result<()> {
    yard.remove("ext4")?;
    yard.sparse("ext4", 2 << 30)?;
    crate::run(&mut yard.program("mkfs.ext4", "-q -F ext4"))?;
    crate::run(&mut yard.program("sync", "ext4"))
}

fn image_ls(yard: &Yard) -> anyhow::Result<f64> {
    empty_ext4(yard)?;
    seconds(&mut yard.blockyard("image ls ext4 /"))
}

fn image_put(yard: &Yard) -> anyhow::Result<f64> {
    yard.data()?;
    crate::run(yard.program("sh", "-c").arg("[ -e half ] || head -c 500M data > half && sync half"))?;
    empty_ext4(yard)?;
    let ours = seconds(&mut yard.blockyard("image put ext4 half /"))?;
    yard.remove("b")?;
    let theirs = seconds(yard.program("sh", "-c").arg("cp --reflink=never half b && sync b"))?;
    Ok(ours / theirs)
}

/// `formats` in the words that both know.
fn convert(yard: &Yard, source: &str, formats: &str) -> anyhow::Result<f64> {
    yard.data()?;
    if !yard.path("qcow2").exists() {
        crate::run(&mut yard.program("qemu-img", "convert -f raw -O qcow2 data qcow2"))?;
    }
    let mut ours = yard.blockyard(&format!("image convert -t unsafe {formats} {source} a"));
    ratio(yard, &mut ours, &mut yard.program("qemu-img", &format!("convert -m 2 -W {formats} {source} b")))
}
