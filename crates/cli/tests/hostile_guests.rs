//! Guests that do what they should not: each is stopped with a sentence, the device answers as virtio 1.2 asks, and
//! neither disk is touched.

mod support;

use std::fs;
use support::{Outcome, Yard, backend, copy_command, hostile, run_without_leftovers};

/// Runs a hostile guest on two disks that must stay as they are.
#[track_caller]
fn run_hostile(name: &str, options: &[&str]) -> Outcome {
    run_hostile_for("60", name, options)
}

/// The same with one that may never do anything, which is waited for for so many seconds.
#[track_caller]
fn run_hostile_for(seconds: &str, name: &str, options: &[&str]) -> Outcome {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 1 << 20, 1), yard.random("output", 5000, 2));
    let before = (yard.names(), fs::read(&input).unwrap(), fs::read(&output).unwrap());
    let mut command = copy_command(["--timeout", seconds]);
    let outcome = run_without_leftovers(command.args(options).arg(&input).arg(&output).arg(hostile(name)));
    assert_eq!((yard.names(), fs::read(&input).unwrap(), fs::read(&output).unwrap()), before, "{outcome:#?}");
    outcome
}

#[test]
fn crashes_are_named() {
    for (guest, word_on_user) in [("crash_ud2", "invalid instruction"), ("crash_null", "0x"), ("stack_overflow", "0x")]
    {
        let outcome = run_hostile(guest, &[]);
        match backend() {
            "user" => outcome.failed(1, &["guest crashed", word_on_user]),
            _ => outcome.failed(1, &["guest"]),
        };
    }
}

#[test]
fn a_panic_is_reported() {
    run_hostile("panic_guest", &[]).failed(1, &["the guest gave up during a panic"]);
}

#[test]
fn guests_that_do_not_finish() {
    run_hostile("halt_early", &[]).failed(1, &["halted before it reported Complete"]);
    run_hostile("early_complete", &[]).failed(1, &["reported Complete, but wrote only 0 of"]);
    run_hostile("wrong_complete", &[]).failed(1, &["reported Complete after"]);
    for guest in ["loop_silent", "loop_reading"] {
        run_hostile_for("2", guest, &[]).failed(1, &["no progress for 2 s", "--timeout"]);
    }
}

#[test]
fn broken_frames() {
    run_hostile("frame_broken", &[]).failed(1, &["the guest sent a frame that is not a message"]);
    run_hostile("frame_overlong", &[]).failed(1, &["the guest sent a frame of 65535 bytes"]);
    run_hostile("frame_zero", &[]).failed(1, &["the guest sent a frame of no bytes"]);
}

#[test]
fn floods_are_no_progress() {
    for guest in ["debug_flood", "frame_flood", "wait_forever", "progress_absurd", "frame_cut"] {
        let outcome = run_hostile_for("2", guest, &[]);
        let known = ["no progress", "halted before it reported Complete"];
        assert!(known.iter().any(|words| outcome.stderr.contains(words)), "{outcome:#?}");
        outcome.failed(1, &["guest"]);
    }
}

#[test]
fn broken_virtqueues() {
    for (guest, words) in [
        ("queue_bad_size", &["broke the rules", "queue size"][..]),
        ("queue_bad_avail", &["broke the rules", "available index"]),
        ("ring_outside", &["broke the rules", "not in the guest's memory"]),
    ] {
        run_hostile(guest, &[]).failed(1, words);
    }
}

/// Registers and doorbells used wildly: either the guest survives and does not complete, or it is stopped with a
/// sentence.
#[test]
fn wild_accesses_harm_nobody() {
    for guest in ["mmio_nowhere", "port_nowhere", "queue_bad_chain", "registers_wild", "doorbell_storm"] {
        run_hostile_for("2", guest, &[]).failed(1, &["guest"]);
    }
}

/// The device answers, with VIRTIO_BLK_S_IOERR (1), and the guest tells what it was answered.
#[test]
fn bad_requests_are_answered_with_an_error_status() {
    for guest in [
        "queue_outside",
        "queue_loop",
        "queue_absurd_length",
        "indirect_nested",
        "write_readonly_input",
        "request_past_end",
    ] {
        let outcome = run_hostile(guest, &["--debug"]);
        let answered = outcome.stderr.contains("status: 1") || outcome.stderr.contains("status 1");
        let stopped = outcome.stderr.contains("broke the rules");
        assert!(outcome.code == Some(1) && (answered || stopped), "{guest}: {outcome:#?}");
    }
}
