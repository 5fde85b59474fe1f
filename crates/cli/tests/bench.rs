//! `blockyard bench copy` and `bench posix`, small.

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
fn programs_run_on_a_disk_and_on_the_file_that_it_is() {
    let yard = Yard::new();
    let posix = |only: &str| {
        let mut command = blockyard();
        command.args(["bench", "posix", "--size", "8M", "--rounds", "2", "--runtime", "100ms", "--only", only]);
        command.arg("--directory").arg(yard.path(""));
        command
    };
    for (only, count, attached) in [("dd, read, ", 4, 4), ("randwrite", 4, 2)] {
        let said = run(posix(only).arg("--json")).succeeded().stdout;
        let measured = serde_json::from_str::<serde_json::Value>(&said).unwrap()["measured"].clone();
        let measured = measured.as_array().unwrap();
        let has_rates = |figures: &serde_json::Value| {
            figures["rates"].as_array().is_some_and(|rates| rates.len() == 2 && rates[0].as_f64().unwrap() > 0.0)
        };
        assert_eq!(measured.len(), count, "{said}");
        assert!(measured.iter().all(|one| has_rates(&one["host"])), "{said}");
        assert_eq!(measured.iter().filter(|one| has_rates(&one["attached"])).count(), attached, "{said}");
        assert!(measured.iter().all(|one| one["ratio"].is_null() == one["attached"].is_null()), "{said}");
    }
    let table = run(&mut posix("dd, read, 8")).succeeded().stdout;
    assert!(table.contains("dd, read, 8.00 MiB") && table.contains("MB/s"), "{table}");
    assert!(yard.names().is_empty());
    run(blockyard().args(["bench", "posix", "--size", "1M"])).failed(2, &["--size", "multiple of 8M"]);
}

#[test]
fn says_where_it_cannot_work() {
    let mut command = blockyard();
    run(command.args(["bench", "copy", "--directory", "/no/such/directory"])).failed(1, &["/no/such/directory"]);
    let mut command = blockyard();
    run(command.args(["bench", "copy", "--runs", "0"])).failed(2, &["--runs"]);
}
