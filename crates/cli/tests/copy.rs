//! Whole copies: what goes in comes out, whatever the sizes.

mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use support::{Yard, allocated_bytes, blockyard, copy_command, run, same};

const MIB: u64 = 1 << 20;

#[test]
fn lengths_that_fit_nothing_come_out_as_they_went_in() {
    let yard = Yard::new();
    let output = yard.path("output");
    for length in [1, 511, 512, 513, 4095, 4096, 65537, MIB - 1, MIB, MIB + 1, 8 * MIB + 511, 9 * MIB] {
        let input = yard.random("input", length, length);
        for (input_sector, output_sector) in [("512", "512"), ("65536", "512"), ("512", "65536"), ("4096", "8192")] {
            let sectors = ["--input-sector-size", input_sector, "--output-sector-size", output_sector, "--no-flush"];
            run(copy_command(sectors).arg(&input).arg(&output)).succeeded();
            assert_eq!(output.metadata().unwrap().len(), length);
            assert!(same(&input, &output), "{length} bytes, {input_sector} to {output_sector}");
        }
    }
}

#[test]
fn every_pair_of_sector_sizes() {
    let yard = Yard::new();
    let output = yard.path("output");
    let input = yard.sparse("input", 3 * MIB + 777, &[(0, 70_000), (MIB + 512, 300), (2 * MIB, MIB + 777)], 1);
    let shifts = if support::backend() == "kvm" { vec![9, 12, 16] } else { (9..=16).collect() };
    for &input_sector in &shifts {
        for &output_sector in &shifts {
            let [input_sector, output_sector] = [input_sector, output_sector].map(|shift| (1 << shift).to_string());
            let sectors = ["--input-sector-size", &input_sector, "--output-sector-size", &output_sector, "--no-flush"];
            run(copy_command(sectors).arg(&input).arg(&output)).succeeded();
            assert!(same(&input, &output), "{input_sector} to {output_sector}");
        }
    }
}

/// Random lengths, sector sizes, request sizes and depths, holes or not. The seed of a failure is in its message.
#[test]
fn random_copies() {
    let yard = Yard::new();
    let output = yard.path("output");
    for seed in 0..support::rounds(60) {
        let mut words = support::random_bytes(400, seed).into_iter().map(u64::from);
        let mut random = |limit: u64| {
            let word = words.next().unwrap() << 16 | words.next().unwrap() << 8 | words.next().unwrap();
            word % limit
        };
        let length = 1 + random(6 * MIB);
        let (input_sector, output_sector) = (512_u64 << random(8), 512_u64 << random(8));
        let request = input_sector.max(output_sector) * (1 + random(8));
        let depth = 1 + random(64);
        let input = match random(2) {
            0 => yard.random("input", length, seed),
            _ => {
                let pieces: Vec<_> = (0..random(20)).map(|_| (random(length), 1 + random(MIB / 4))).collect();
                let pieces: Vec<_> = pieces.iter().map(|&(at, piece)| (at, piece.min(length - at))).collect();
                yard.sparse("input", length, &pieces, seed)
            }
        };
        let arguments = [
            ("--input-sector-size", input_sector),
            ("--output-sector-size", output_sector),
            ("--request-size", request),
            ("--queue-depth", depth),
            ("--queues", 1 + random(4.min(depth))),
            ("--progress-percent", random(101)),
        ];
        let mut command = copy_command(["--no-flush"]);
        command.args(arguments.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]));
        command.args(["--engine", ["sync", "threads", "uring"][random(3) as usize]]);
        if random(2) == 1 {
            command.arg("--detect-zeroes");
        }
        run(command.arg(&input).arg(&output)).succeeded();
        assert!(same(&input, &output), "seed {seed}: {length} bytes, {arguments:?}");
    }
}

#[test]
fn an_empty_file_gives_an_empty_file() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 0, 0), yard.random("output", 9, 0));
    run(&mut copy_command([&input, &output])).succeeded();
    assert_eq!(output.metadata().unwrap().len(), 0);
}

#[test]
fn holes_stay_holes_and_more_are_found_when_asked_for() {
    let yard = Yard::new();
    let output = yard.path("output");
    let input = yard.sparse("input", 64 * MIB, &[(0, 4096), (30 * MIB, MIB), (63 * MIB, 512)], 7);
    run(&mut copy_command([&input, &output])).succeeded();
    assert!(same(&input, &output));
    assert!(allocated_bytes(&output) <= allocated_bytes(&input) + 256 * 1024, "{}", allocated_bytes(&output));

    // The same contents, with storage behind the zeros.
    let full = yard.path("full");
    fs::write(&full, fs::read(&input).unwrap()).unwrap();
    run(&mut copy_command([&full, &output])).succeeded();
    assert!(same(&input, &output) && allocated_bytes(&output) >= 64 * MIB);
    run(copy_command(["--detect-zeroes"]).arg(&full).arg(&output)).succeeded();
    assert!(same(&input, &output));
    assert!(allocated_bytes(&output) < 8 * MIB, "{}", allocated_bytes(&output));
}

#[test]
fn a_file_of_nothing_but_a_hole() {
    let yard = Yard::new();
    let (input, output) = (yard.sparse("input", 10_000 * MIB + 1, &[], 0), yard.path("output"));
    run(&mut copy_command([&input, &output])).succeeded();
    assert_eq!(output.metadata().unwrap().len(), 10_000 * MIB + 1);
    assert!(allocated_bytes(&output) < MIB);
}

#[test]
fn a_file_that_was_there_keeps_its_mode_and_gets_new_contents() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 5000, 1), yard.random("output", 90_000, 2));
    fs::set_permissions(&output, fs::Permissions::from_mode(0o640)).unwrap();
    run(&mut copy_command([&input, &output])).succeeded();
    assert!(same(&input, &output));
    assert_eq!(output.metadata().unwrap().mode() & 0o7777, 0o640);
    assert_eq!(yard.names().len(), 2, "{:?}", yard.names());
}

#[test]
fn a_link_to_a_file_stays_a_link() {
    let yard = Yard::new();
    let (input, output, link) = (yard.random("input", 5000, 1), yard.random("output", 9, 2), yard.path("link"));
    symlink(&output, &link).unwrap();
    run(&mut copy_command([&input, &link])).succeeded();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(same(&input, &output));
}

#[test]
fn json_says_what_it_cost() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 16 * MIB + 5, 1), yard.path("output"));
    let json = run(copy_command(["--json"]).arg(&input).arg(&output)).succeeded().json();
    let number =
        |path: &str| json.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{json}"));
    assert_eq!(number("/bytes"), 16 * MIB + 5);
    assert_eq!(json["backend"], support::backend());
    assert!(json["seconds"].as_f64().unwrap() > 0.0);
    // 17 reads, 17 writes, a flush.
    assert_eq!(number("/requests"), 35);
    assert!(number("/doorbells") > 0);
    let kinds = ["waits", "port_in", "port_out", "mmio_read", "mmio_write", "halts"];
    let sum: u64 = kinds.iter().map(|kind| number(&format!("/exits/{kind}"))).sum();
    assert_eq!(number("/exits/total"), sum);
}

#[test]
fn statistics_and_summary_are_for_people() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 3 * MIB, 1), yard.path("output"));
    let outcome = run(copy_command(["--stats", "--debug"]).arg(&input).arg(&output)).succeeded();
    assert!(outcome.stdout.contains("3.00 MiB in"), "{outcome:#?}");
    for word in ["exits", "doorbells", "requests", "waits", "copy ", "guest: ", "debug: "] {
        assert!(outcome.stderr.contains(word), "no {word}: {outcome:#?}");
    }
}

/// The exits of a copy do not depend on its sector sizes, and hardly on its length. Those that are waits are left out:
/// there are more of them where somebody else has the processors, so `cargo xtask figures` counts them.
#[test]
fn exits_are_few_and_the_sector_size_does_not_matter() {
    let yard = Yard::new();
    let output = yard.path("output");
    // KVM itself takes `rep outsb` apart: there every byte of a frame is an exit, every digit of a number in it. And
    // the lab's machine is emulated: less of everything has to do.
    let (mebibytes, start_up_max, digits) = if support::backend() == "kvm" { (8, 1500, 32) } else { (64, 200, 0) };
    for sector in ["512", "4096", "65536"] {
        let exits = |length: u64| {
            let input = yard.random("input", length, length);
            let sectors = ["--input-sector-size", sector, "--output-sector-size", sector];
            let mut command = copy_command(["--json", "--no-flush", "--progress-percent", "100"]);
            let json = run(command.args(sectors).arg(&input).arg(&output)).succeeded().json();
            let count = |kind: &str| json["exits"][kind].as_u64().unwrap();
            count("total") - count("waits")
        };
        let (small, large) = (exits(mebibytes * MIB), exits(2 * mebibytes * MIB));
        // 100 a GiB.
        assert!(large <= small + 100 * mebibytes / 1024 + digits, "{sector}: {small} and {large} exits");
        assert!(small < start_up_max, "start-up takes {small} exits");
    }
}

/// On `user`, a frame is one exit; so a report more is an exit more.
#[test]
fn a_progress_frame_costs_one_exit() {
    if support::backend() != "user" {
        // KVM itself takes `rep outsb` apart: there an exit is a byte.
        return;
    }
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 128 * MIB, 1), yard.path("output"));
    let port_out = |percent: &str| {
        let mut command = copy_command(["--json", "--no-flush", "--progress-percent", percent]);
        let json = run(command.arg(&input).arg(&output)).succeeded().json();
        (json["exits"]["port_out"].as_u64().unwrap(), json["frames"].as_u64().unwrap())
    };
    let ((few, few_frames), (many, many_frames)) = (port_out("100"), port_out("1"));
    assert!(many_frames >= few_frames + 90, "{few_frames} and {many_frames} frames");
    assert_eq!(many - few, many_frames - few_frames);
}

/// Peak memory of all processes together, however large the file; what they share is counted twice.
#[test]
fn memory_stays_below_100_mib() {
    let yard = Yard::new();
    let mebibytes = if support::backend() == "kvm" { 24 } else { 192 };
    let (input, output) = (yard.random("input", mebibytes * MIB, 1), yard.path("output"));
    let child = copy_command(["--queue-depth", "8"]).arg(&input).arg(&output).spawn().unwrap();
    let (pid, mut peak_kib) = (child.id(), std::collections::BTreeMap::new());
    // Each process's own peak (VmHWM) only grows: what was last seen is close to the last.
    support::wait_until("the end", || {
        for process in support::children(pid).into_iter().chain([pid]) {
            if let Some(kib) = support::peak_kib(process) {
                peak_kib.insert(process, kib);
            }
        }
        !support::is_alive(pid)
    });
    support::finish(child).succeeded();
    let total_kib: u64 = peak_kib.values().sum();
    assert!(total_kib > 8 * 1024, "nothing was measured: {peak_kib:?}");
    assert!(total_kib <= 100 * 1024, "{peak_kib:?} KiB");
}

#[test]
fn threads_stay_on_their_cpus() {
    let yard = Yard::new();
    let (input, output) = (yard.random("input", 3 * MIB, 1), yard.path("output"));
    let placed = ["--cpu-affinity", "0", "--cpu-affinity", "vcpu=0"];
    run(copy_command(placed).arg(&input).arg(&output)).succeeded();
    assert!(same(&input, &output));
    let missing = ["--cpu-affinity", "1000"];
    run(copy_command(missing).arg(&input).arg(&output)).failed(1, &["CPUs 1000"]);
}

#[test]
fn help_and_doctor_say_what_there_is() {
    let help = run(blockyard().args(["copy", "--help"])).succeeded().stdout;
    for option in ["--input-sector-size", "--progress-percent", "--request-size", "--backend", "--timeout", "--json"] {
        assert!(help.contains(option), "{option}");
    }
    let doctor = run(blockyard().args(["doctor", "--json"])).succeeded().json();
    let names: Vec<_> = doctor["backends"].as_array().unwrap().iter().map(|backend| &backend["name"]).collect();
    assert_eq!(names, ["kvm", "user"]);
    let told = run(blockyard().arg("doctor")).succeeded().stdout;
    assert!(told.contains("user") && told.contains("landlock") && told.contains("fuse"), "{told}");
}
