//! `blockyard bench disk` and `bench layers`, whole.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use support::{Outcome, Yard, blockyard, finish, run, wait_until};

#[track_caller]
fn bench_disk(words: &str) -> Outcome {
    let mut command = blockyard();
    run(command.args(["bench", "disk"]).args(words.split_whitespace()))
}

fn path_text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

#[track_caller]
fn number(json: &Value, pointer: &str) -> f64 {
    json.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("no number at {pointer} of {json:#}"))
}

#[test]
fn json_is_one_object_with_every_figure() {
    let json = bench_disk("mem:4M --random --batch 4 --jobs 2 --json").succeeded().json();
    assert!(number(&json, "/iops") > 0.0 && number(&json, "/mib_per_s") > 0.0);
    let latency = ["p50", "p99", "p999", "max"].map(|name| number(&json, &format!("/latency_ns/{name}")));
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{latency:?}");
    let idle = json["cpu_idle_percent"].as_array().unwrap();
    assert!(!idle.is_empty());
    assert!(idle.iter().flat_map(Value::as_f64).all(|percent| (0.0..=100.0).contains(&percent)), "{idle:?}");
    assert_eq!(json["verified"], Value::Bool(false));
    assert_eq!((number(&json, "/requests"), number(&json, "/read_bytes")), (1024.0, f64::from(4 << 20)));
    for name in ["submits", "waits", "allocations", "seconds", "jobs", "batch", "capacity_bytes"] {
        number(&json, &format!("/{name}"));
    }
}

#[test]
fn the_table_has_every_figure_too() {
    let outcome = bench_disk("null:64M --ping-pong --flush-every 100 --write --size 64K").succeeded();
    for words in ["ping-pong write", "MiB/s", "IOPS", "p99.9", "idle", "1024 writes, 10 flushes", "0 allocations"] {
        assert!(outcome.stdout.contains(words), "no {words}: {outcome:#?}");
    }
    assert_eq!(outcome.stderr, "");
}

#[test]
fn requests_allocate_nothing() {
    let yard = Yard::new();
    let file = yard.random("disk.img", 4 << 20, 1);
    for disk in ["null:4M", "mem:4M", path_text(&file)] {
        for more in ["--batch 64", "--random --batch 64 --copy yes", "--write --verify --batch 32 --jobs 2"] {
            let json = bench_disk(&format!("{disk} {more} --total 64M --json --force"));
            // A null disk keeps nothing: that is not what is asked here.
            let json = json.json();
            assert_eq!(number(&json, "/allocations"), 0.0, "{disk} {more}");
        }
    }
}

#[test]
fn what_one_run_wrote_a_later_one_verifies() {
    let yard = Yard::new();
    let file = yard.random("disk.img", 3 << 20, 1);
    let file = path_text(&file);
    let written = bench_disk(&format!("{file} --write --verify --random --total 12M --batch 16 --jobs 2 --json -f"));
    let json = written.succeeded().json();
    assert!(json["verified"] == Value::Bool(true) && number(&json, "/verified_bytes") > 0.0);

    bench_disk(&format!("{file} --write --verify --seed 0x10 --force")).succeeded();
    let outcome = bench_disk(&format!("{file} --verify --seed 16 --batch 8")).succeeded();
    assert!(outcome.stdout.contains("verified 3.00 MiB: all as it should be"), "{outcome:#?}");

    let mut bytes = fs::read(file).unwrap();
    bytes[1_000_000] ^= 1;
    fs::write(file, bytes).unwrap();
    let outcome = bench_disk(&format!("{file} --verify --seed 16 --json"));
    assert_eq!(outcome.json()["verified"], Value::Bool(false));
    outcome.failed(1, &[file, "at offset 999936", "checksum"]);
}

#[test]
fn nothing_is_written_that_was_not_asked_for() {
    let yard = Yard::new();
    let file = yard.random("disk.img", 1 << 20, 1);
    let before = fs::read(&file).unwrap();
    let replay = yard.path("requests");
    fs::write(&replay, "read 0 512\nwrite 512 512\n").unwrap();
    let (file, replay) = (path_text(&file), path_text(&replay));
    bench_disk(file).succeeded();
    bench_disk(&format!("{file} --replay {replay}")).failed(2, &["--replay: line 2", "--write"]);
    bench_disk(&format!("{file},ro --write")).failed(2, &["--write", "read-only"]);
    bench_disk(&format!("{file},ro --mix 50")).failed(2, &["--mix", "read-only"]);
    assert!(fs::read(file).unwrap() == before);
    bench_disk(&format!("{file} --replay {replay} --write --force")).succeeded();
    let after = fs::read(file).unwrap();
    assert!(after[..512] == before[..512] && after[512..1024] != before[512..1024] && after[1024..] == before[1024..]);
}

#[test]
fn a_disk_that_holds_anything_is_not_written_over_by_mistake() {
    let yard = Yard::new();
    let refused = |disk: &std::path::Path, word: &str| {
        let before = fs::read(disk).unwrap();
        for option in ["--write", "--mix 50"] {
            bench_disk(&format!("{} {option}", path_text(disk))).failed(1, &[path_text(disk), word, "--force"]);
        }
        assert!(fs::read(disk).unwrap() == before, "it has changed");
        bench_disk(path_text(disk)).succeeded();
    };
    refused(&yard.sparse("early.img", 8 << 20, &[(5 << 20, 512)], 1), "something at byte 524");
    refused(&yard.sparse("late.img", 8 << 20, &[((8 << 20) - 512, 512)], 1), "something at byte 838");
    let table = yard.path("table.img");
    let mut create = blockyard();
    run(create.args(["image", "create"]).arg(&table).args(["8M", "--table", "gpt", "--part", "rest"])).succeeded();
    refused(&table, "a GPT (partitions: 1)");
    // Zeros that have storage are nothing.
    let zeros = yard.path("zeros.img");
    fs::write(&zeros, vec![0; 4 << 20]).unwrap();
    bench_disk(&format!("{} --write --length 1M", path_text(&zeros))).succeeded();
}

#[test]
fn wrong_usage_names_the_option() {
    for (words, option) in [
        ("", "<DISK>"),
        ("null:1M --size 1000", "--size"),
        ("null:1M --size x", "--size"),
        ("null:1M --length 2M", "--length"),
        ("null:1M --start 1M", "--start"),
        ("null:1M --start=-2M", "--start"),
        ("null:1M --start -2M", "--start"),
        ("null:1M --start --write", "--start"),
        ("null:1M --total 0 --write", "--total"),
        ("null:1M --batch 0", "--batch"),
        ("null:1M --batch 1025", "--batch"),
        ("null:1M --jobs 0", "--jobs"),
        ("null:1M --seed x", "--seed"),
        ("null:1M --io-buffer 512", "--io-buffer"),
        ("null:1M --copy maybe", "--copy"),
        ("null:1M --mix 101", "--mix"),
        ("null:1M --mix 50 --write", "--mix"),
        ("null:1M --random --ping-pong", "--ping-pong"),
        ("null:1M --runtime 0", "--runtime"),
        ("null:1M --runtime=-1", "--runtime"),
        ("null:1M --flush-every 0 --write", "--flush-every"),
        ("null:1M --flush-every 1", "--flush-every"),
        ("null:lots", "null:lots"),
    ] {
        bench_disk(words).failed(2, &[option]);
    }
}

#[test]
fn files_that_are_not_there_or_not_right_are_named() {
    let yard = Yard::new();
    bench_disk("/no/such/disk").failed(1, &["/no/such/disk"]);
    bench_disk("null:1M --replay /no/such/replay").failed(1, &["/no/such/replay"]);
    let replay = yard.path("requests");
    fs::write(&replay, "read 0 512\nsmash 0 512\n").unwrap();
    bench_disk(&format!("null:1M --replay {}", path_text(&replay))).failed(1, &["requests", "line 2", "smash"]);
}

#[test]
fn a_signal_ends_the_run_and_what_was_measured_is_printed() {
    let yard = Yard::new();
    let disk = yard.sparse("disk.img", 1 << 20, &[], 1);
    let mut command = blockyard();
    command.args(["bench", "disk", "--write", "--runtime", "1000", "--json"]).arg(&disk);
    let child = command.spawn().unwrap();
    wait_until("a request", || fs::read(&disk).unwrap().iter().any(|&byte| byte != 0));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let outcome = finish(child).failed(130, &["stopped by Ctrl-C"]);
    let json = outcome.json();
    assert!(json["interrupted"] == Value::Bool(true) && number(&json, "/requests") > 0.0);
}

#[test]
fn layers_are_measured_beside_each_other() {
    let yard = Yard::new();
    let layers = |words: &str| {
        let mut command = blockyard();
        command.args(["bench", "layers", "--length", "2M", "--runtime", "0.01", "--rounds", "2"]);
        run(command.arg("--directory").arg(yard.path(".")).args(words.split_whitespace()))
    };
    let outcome = layers("--sizes 4K,1M --target null,file,file+layers").succeeded();
    for words in ["① null  ② file  ③ file+layers", "BW", "(idle %)", "\n  4K ", "\n  1M ", "Beside ② file"] {
        assert!(outcome.stdout.contains(words), "no {words:?}: {outcome:#?}");
    }
    let json = layers("--sizes 4K --target null,file,file+layers --json --random --write --batch 8 --copy yes")
        .succeeded()
        .json();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 3);
    for cell in cells {
        assert_eq!(cell["mib_per_s"].as_array().unwrap().len(), 2);
        assert_eq!(cell["allocations"], serde_json::json!([0.0, 0.0]), "{cell:#}");
    }
    layers("--sizes 1000").failed(2, &["--sizes"]);
    layers("--sizes 4M").failed(2, &["--sizes"]);
    layers("--target floppy").failed(2, &["--target"]);
    // Neither the file nor anything else is left.
    assert!(yard.names().is_empty());
}
