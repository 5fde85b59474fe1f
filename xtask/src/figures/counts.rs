//! What is counted: system calls and exits, which a debug build makes as many of as a release build.

use super::Bar::AtMost;
use super::Figure;
use super::yard::{Yard, json};
use crate::output;
use anyhow::Context;
use std::process::Command;

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "system calls: file, 4 KiB reads, depth 64, a request",
        bar: AtMost(0.2),
        measure: |yard| on_file(yard, "", ""),
    },
    Figure {
        name: "system calls: file, 4 KiB, half writes, depth 64, a request",
        bar: AtMost(0.7),
        measure: |yard| on_file(yard, "", "--mix 50"),
    },
    Figure {
        name: "system calls: file past the page cache, half writes, a request",
        bar: AtMost(0.2),
        measure: |yard| on_file(yard, ",direct", "--mix 50"),
    },
    Figure {
        name: "system calls: client of a session, depth 64, a request",
        bar: AtMost(0.2),
        measure: |yard| {
            let _server = yard.serve("null:8G")?;
            a_request(yard, "session:s", "")
        },
    },
    Figure { name: "exits: copy, a GiB at 512-byte sectors", bar: AtMost(2500.0), measure: |yard| exits(yard, 512) },
    Figure {
        name: "exits: copy, a GiB at 65536-byte sectors",
        bar: AtMost(2500.0),
        measure: |yard| exits(yard, 65536),
    },
];

fn on_file(yard: &Yard, keys: &str, options: &str) -> anyhow::Result<f64> {
    let path = yard.path("file");
    if !path.exists() {
        std::fs::write(&path, vec![1; 64 << 20])?;
    }
    a_request(yard, &format!("file,engine=uring{keys}"), options)
}

/// The difference between a long run and a short one.
fn a_request(yard: &Yard, disk: &str, options: &str) -> anyhow::Result<f64> {
    const REQUESTS: [u64; 2] = [1000, 21_000];
    let [few, many] = REQUESTS.map(|requests| {
        let words = format!("{disk} --random --batch 64 --total {} {options}", requests * 4096);
        system_calls(yard, &yard.bench_disk(&words))
    });
    Ok((many? as f64 - few? as f64) / (REQUESTS[1] - REQUESTS[0]) as f64)
}

/// All system calls of `command` and what it starts.
fn system_calls(yard: &Yard, command: &Command) -> anyhow::Result<u64> {
    let mut strace = yard.program("strace", "-f -c -U calls,name -o calls");
    strace.arg(command.get_program()).args(command.get_args());
    output(&mut strace)?;
    let text = std::fs::read_to_string(yard.path("calls"))?;
    let total = text.lines().find_map(|line| line.trim_end().strip_suffix(" total"));
    total.and_then(|count| count.trim().parse().ok()).context("strace prints no total")
}

/// What more data cost, counted to a GiB.
fn exits(yard: &Yard, sector: u32) -> anyhow::Result<f64> {
    const MEBIBYTES: [u64; 2] = [128, 256];
    let [small, large] = MEBIBYTES.map(|mebibytes| -> anyhow::Result<u64> {
        std::fs::write(yard.path("input"), vec![1; (mebibytes << 20) as usize])?;
        yard.remove("a")?;
        let sectors = format!("--input-sector-size {sector} --output-sector-size {sector}");
        let json =
            json(&mut yard.blockyard(&format!("copy input a --json --no-flush --progress-percent 100 {sectors}")))?;
        json["exits"]["total"].as_u64().context("copy --json has no exits")
    });
    Ok((large? as f64 - small? as f64) * 1024.0 / (MEBIBYTES[1] - MEBIBYTES[0]) as f64)
}
