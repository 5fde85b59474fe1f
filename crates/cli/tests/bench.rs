//! `blockyard bench copy` and `bench posix`, small.

mod support;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;
use support::{Outcome, Yard, blockyard, run};

#[test]
fn prints_the_table_and_writes_the_results() {
    let yard = Yard::new();
    let results = yard.path("results.json");
    let mut command = blockyard();
    command.args(["bench", "copy", "--bytes", "1M", "--runs", "2", "--backend", support::backend(), "--json"]);
    let outcome = run(command.arg(&results).arg("--directory").arg(yard.path("."))).succeeded();
    for row in
        ["cp ", "dd bs=1M", "one sector a request, 512, progress 0", "default, 65536, progress 10", "× cp", "idle"]
    {
        assert!(outcome.stdout.contains(row), "no {row}: {outcome:#?}");
    }
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&results).unwrap()).unwrap();
    let measured = json["measured"].as_array().unwrap();
    assert!(measured.len() >= 14);
    assert!(measured.iter().all(|one| one["seconds"].as_array().unwrap().len() == 2));
    assert!(measured.iter().all(|one| one["median_seconds"].as_f64().unwrap() > 0.0));
    // Nothing but the results is left.
    assert_eq!(yard.names().into_iter().collect::<Vec<_>>(), ["results.json"]);
}

fn posix(yard: &Yard, words: &[&str]) -> Command {
    let mut command = blockyard();
    command.args(["bench", "posix", "--size", "16M"]).args(words).arg("--directory").arg(yard.path(""));
    command
}

#[test]
fn programs_run_on_disks_of_every_kind_and_on_a_file() {
    let yard = Yard::new();
    let all = ["host", "own", "direct", "mediated", "copying"];
    // Of each program, one that is beside what only a file can have.
    for (only, rows, on_disks) in [("dd copy direct 8M", 1, 1), ("dd write 2M", 1, 1), ("fio randwrite", 5, 2)] {
        let words = ["--rounds", "2", "--runtime", "100ms", "--json", "--only", only];
        let json = run(&mut posix(&yard, &words)).succeeded().json();
        assert_eq!(json["places"], serde_json::json!(all));
        let measured = json["measured"].as_array().unwrap();
        assert_eq!(measured.len(), rows, "{json}");
        let figures = |one: &serde_json::Value| one["figures"].as_array().unwrap().clone();
        assert_eq!(measured.iter().filter(|one| figures(one).len() == all.len()).count(), on_disks, "{json}");
        for (place, of_place) in measured.iter().flat_map(|one| all.into_iter().zip(figures(one))) {
            assert_eq!(of_place["place"], place, "{json}");
            let rates = of_place["rates"].as_array().unwrap();
            assert!(rates.len() == 2 && rates.iter().all(|rate| rate.as_f64().unwrap() > 0.0), "{json}");
            assert_eq!(of_place["ratio"].is_null(), place == "host", "{json}");
        }
    }
    let words = ["--rounds", "1", "--only", "dd read 8M", "--over", "mediated,host,direct"];
    let table = run(&mut posix(&yard, &words)).succeeded().stdout;
    for words in ["×: of direct to host, of mediated to direct", "| dd, MB/s |", "| read 8M "] {
        assert!(table.contains(words), "no {words:?} in\n{table}");
    }
    assert!(!table.contains("copying"), "{table}");
    assert!(yard.names().is_empty());
    run(blockyard().args(["bench", "posix", "--size", "8M"])).failed(2, &["--size", "multiple of 16M"]);
}

/// The process that `bench` has started whose first argument is this, as soon as it is there.
fn started_by(bench: &Child, command: &str) -> Pid {
    loop {
        let tasks = fs::read_dir(format!("/proc/{}/task", bench.id())).unwrap();
        let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default());
        for pid in lists.collect::<Vec<_>>().join(" ").split_whitespace() {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if line.split(|byte| *byte == 0).nth(1) == Some(command.as_bytes()) {
                return Pid::from_raw(pid.parse().unwrap()).unwrap();
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// It reads for longer than any test lasts.
fn bench_that_stays(yard: &Yard, over: &str) -> Child {
    let words = ["--rounds", "1", "--runtime", "1000s", "--only", "fio randread psync", "--over", over];
    posix(yard, &words).spawn().unwrap()
}

#[test]
fn a_server_that_is_gone_is_named_and_leaves_nothing_behind() {
    let yard = Yard::new();
    for over in ["direct", "mediated", "copying"] {
        let bench = bench_that_stays(&yard, over);
        started_by(&bench, "attach");
        kill_process(started_by(&bench, "serve"), Signal::KILL).unwrap();
        let outcome = Outcome::from(bench.wait_with_output().unwrap());
        let place = format!("fio randread psync, {over}: ");
        outcome.failed(1, &[&place, "the disk is gone: blockyard serve has ended (signal: 9 (SIGKILL))"]);
        assert!(yard.names().is_empty());
    }
}

#[test]
fn a_bench_that_is_to_end_ends_what_it_has_started() {
    let yard = Yard::new();
    let bench = bench_that_stays(&yard, "mediated");
    let (attach, serve) = (started_by(&bench, "attach"), started_by(&bench, "serve"));
    kill_process(Pid::from_child(&bench), Signal::TERM).unwrap();
    let outcome = Outcome::from(bench.wait_with_output().unwrap()).failed(128 + 15, &["stopped by SIGTERM"]);
    assert_eq!(outcome.stdout, "nothing was measured\n");
    for pid in [attach, serve] {
        assert!(test_kill_process(pid).is_err(), "{pid:?} is still there");
    }
    assert!(yard.names().is_empty());
}

#[test]
fn says_where_it_cannot_work() {
    let mut command = blockyard();
    run(command.args(["bench", "copy", "--directory", "/no/such/directory"])).failed(1, &["/no/such/directory"]);
    let mut command = blockyard();
    run(command.args(["bench", "copy", "--runs", "0"])).failed(2, &["--runs"]);
}
