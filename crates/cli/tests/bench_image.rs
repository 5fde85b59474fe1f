//! `blockyard bench upload`, `startup` and `api`, small, and without guestfish: that is for people who have it.

mod support;

use serde_json::Value;
use support::{Outcome, Yard, blockyard, run};

fn bench(yard: &Yard, words: &str) -> Outcome {
    let mut command = blockyard();
    command.args(["bench"]).args(words.split(' ')).arg("--no-guestfish").arg("--directory").arg(yard.path("."));
    run(&mut command)
}

#[test]
fn uploads_are_measured_and_leave_nothing() {
    let yard = Yard::new();
    let words = "upload --quick --size 1M --runs 2 --count 1 --only upload --backend uml --json";
    let json = bench(&yard, words).succeeded().json();
    let measured = json["measured"].as_array().unwrap();
    let names: Vec<_> = measured.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let wanted = [
        "cp and sync, on the host",
        "raw sparse, ext2, upload",
        "qcow2, ext4, upload",
        "raw sparse, ext4, upload-no-write",
    ];
    assert_eq!(names, wanted);
    assert!(measured.iter().all(|one| one["seconds"].as_array().unwrap().len() == 1), "{json:#}");
    assert!(measured.iter().all(|one| one["guestfish_seconds"] == Value::Null));
    assert_eq!(yard.names().len(), 0);
}

#[test]
fn start_up_and_small_operations_are_measured() {
    let yard = Yard::new();
    // A backend that has no appliance here has no figures, and it is said why.
    let table = bench(&yard, "startup --runs 1").succeeded().stdout;
    let row = |backend: &str| {
        let line = table.lines().find(|line| line.contains(&format!("blockyard image ls IMAGE /, {backend}")));
        line.unwrap_or_else(|| panic!("{table}")).contains("  0.") || table.contains(&format!("\n{backend}: "))
    };
    assert!(row("uml") && row("kvm"), "{table}");
    let json = bench(&yard, "api --rounds 2 --runs 1 --json").succeeded().json();
    assert_eq!(json["operations"], 24);
    let (whole, without_boot) = (&json["measured"][0]["seconds"][0], &json["measured"][0]["without_boot"][0]);
    assert!(whole.as_f64().unwrap() > without_boot.as_f64().unwrap(), "{json:#}");
    assert_eq!(yard.names().len(), 0);
}

#[test]
fn impossible_wishes_are_usage_errors() {
    let yard = Yard::new();
    bench(&yard, "upload --size 1000").failed(2, &["multiple of 512"]);
    bench(&yard, "upload --runs 2 --count 3").failed(2, &["there are 2 runs"]);
}
