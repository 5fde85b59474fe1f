//! `blockyard bench copy`, small.

mod support;

use support::{Yard, blockyard, run};

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

#[test]
fn says_where_it_cannot_work() {
    let mut command = blockyard();
    run(command.args(["bench", "copy", "--directory", "/no/such/directory"])).failed(1, &["/no/such/directory"]);
    let mut command = blockyard();
    run(command.args(["bench", "copy", "--runs", "0"])).failed(2, &["--runs"]);
}
