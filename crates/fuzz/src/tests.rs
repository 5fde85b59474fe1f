use crate::check;
use std::env;
use std::process::{Command, Output};
use std::sync::Mutex;

/// What [`the_target`] is given, run by itself in a process with these variables.
fn drawn(variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("BOLERO_")).for_each(
        |name| {
            command.env_remove(name);
        },
    );
    command.args(["--exact", "tests::the_target", "--nocapture"]).envs(variables.iter().copied());
    command.output().unwrap()
}

fn inputs(output: &Output) -> Vec<String> {
    let printed = String::from_utf8_lossy(&output.stdout);
    printed.lines().filter(|line| line.starts_with("drawn ")).map(str::to_owned).collect()
}

const TOO_LONG: &str = "FUZZ_TOO_LONG";

/// No test by itself: a target for the tests here.
#[test]
fn the_target() {
    let longest = env::var(TOO_LONG).map_or(usize::MAX, |length| length.parse().unwrap());
    let all = Mutex::new(String::new());
    check!(40).with_type::<(u8, Vec<[u8; 3]>, Option<String>)>().for_each(|input| {
        println!("drawn {input:?}");
        assert!(input.1.len() < longest, "too long");
        all.lock().unwrap().push('.');
    });
    assert!(all.lock().unwrap().len() <= 40);
}

#[test]
fn every_run_draws_the_same_inputs() {
    let first = inputs(&drawn(&[]));
    assert_eq!(first.len(), 40);
    assert_eq!(inputs(&drawn(&[])), first);
    let mut different = first.clone();
    different.sort();
    different.dedup();
    assert!(different.len() > 35, "{first:?}");
}

#[test]
fn with_a_variable_of_boleros_the_inputs_are_new_ones() {
    let by_hand = |name| inputs(&drawn(&[(name, "60")]));
    let first = by_hand("BOLERO_RANDOM_ITERATIONS");
    assert_eq!(first.len(), 60);
    assert_ne!(by_hand("BOLERO_RANDOM_ITERATIONS"), first);
    // Short ones may come again.
    let timed = inputs(&drawn(&[("BOLERO_RANDOM_TEST_TIME_MS", "60000")]));
    let known = timed.iter().filter(|input| first.contains(input)).count();
    assert!(known < timed.len() / 2, "{known} of {}", timed.len());
}

#[test]
fn the_seed_that_a_failure_prints_draws_the_same_input_again() {
    let long = (TOO_LONG, "60");
    for variables in [&[long][..], &[long, ("BOLERO_RANDOM_ITERATIONS", "10000")]] {
        let failed = drawn(variables);
        assert!(!failed.status.success());
        let printed = String::from_utf8_lossy(&failed.stderr);
        let (_, after) = printed.split_once("BOLERO_RANDOM_SEED=").expect(&printed);
        let seed = after.split_whitespace().next().unwrap();
        assert!(printed.contains("too long"), "{printed}");
        let again = [("BOLERO_RANDOM_SEED", seed), ("BOLERO_RANDOM_ITERATIONS", "0")];
        assert!(inputs(&failed).contains(&inputs(&drawn(&again))[0]));
        assert!(!drawn(&[&again[..], &[long]].concat()).status.success());
    }
}
