use super::*;
use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn the_command_line_is_understood() {
    let wanted = |filter: &str, extent| Some(Fuzz { filter: filter.into(), extent });
    assert_eq!(Fuzz::parse(&[]), wanted("", Extent::Seconds(60)));
    assert_eq!(Fuzz::parse(&["frame"]), wanted("frame", Extent::Seconds(60)));
    assert_eq!(Fuzz::parse(&["--seconds", "5"]), wanted("", Extent::Seconds(5)));
    assert_eq!(Fuzz::parse(&["frame", "--seconds", "5"]), wanted("frame", Extent::Seconds(5)));
    assert_eq!(Fuzz::parse(&["frame", "--inputs", "10000000"]), wanted("frame", Extent::Inputs(10_000_000)));
    for words in [&["--second", "5"][..], &["--seconds"], &["--seconds", "0"], &["--inputs", "-1"], &["a", "b"]] {
        assert_eq!(Fuzz::parse(words), None, "{words:?}");
    }
}

#[test]
fn the_seed_is_found_in_a_report() {
    assert_eq!(seed("Failure\n\nBOLERO_RANDOM_SEED=123\n\nInput: 5"), Some("123"));
    assert_eq!(seed("Input: 5"), None);
}

/// Names of the functions that say `blockyard_fuzz::check!` and are in no target of the table.
#[test]
fn no_target_is_forgotten() {
    let mut sources = Vec::new();
    rust_files(&root().join("crates"), &mut sources);
    let functions: Vec<String> = sources.iter().flat_map(|file| functions_that_check(file)).collect();
    assert!(!functions.is_empty());
    for function in &functions {
        let named = |target: &&Target| target.test.rsplit("::").next() == Some(function);
        assert!(TARGETS.iter().any(|target| named(&target)), "{function} is missing in xtask/src/fuzz.rs");
    }
    for (index, Target { package, test, .. }) in TARGETS.iter().enumerate() {
        let twice = TARGETS[..index].iter().any(|other| (other.package, other.test) == (*package, *test));
        assert!(!twice, "{test} is in xtask/src/fuzz.rs twice");
        let function = test.rsplit("::").next().unwrap();
        assert!(functions.iter().any(|found| found == function), "{test} is in xtask/src/fuzz.rs only");
    }
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn functions_that_check(file: &Path) -> Vec<String> {
    let source = fs::read_to_string(file).unwrap();
    let before = source.match_indices("blockyard_fuzz::check!").map(|(place, _)| &source[..place]);
    before
        .map(|before| {
            let (_, from_name) = before.rsplit_once("fn ").expect("a target is in a function");
            from_name.split('(').next().unwrap_or_default().to_owned()
        })
        .collect()
}
