//! `cargo xtask fuzz`: every fuzz target for longer than the tests run it, on stable Rust.
//!
//! The targets are bolero tests, which `blockyard_fuzz::check!` has draw the same inputs whenever they are tested, as
//! many as they say themselves. bolero's environment variables win over that, with new inputs, but what one of them
//! leaves open is still taken from the target: only time *and* iterations together make a run longer.

use crate::{cargo, describe, run};
use anyhow::{Context, bail};
use std::process::Command;

#[cfg(test)]
mod seeds;
#[cfg(test)]
mod tests;

/// How long each target goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Seconds(u32),
    Inputs(u64),
}

struct Target {
    package: &'static str,
    /// What makes cargo build the test binary that it is in, and no other.
    binary: &'static [&'static str],
    /// Its whole name in there.
    test: &'static str,
}

const fn in_library(package: &'static str, test: &'static str) -> Target {
    Target { package, binary: &["--lib"], test }
}

/// Whatever bytes a guest or a device can choose comes first.
const TARGETS: &[Target] = &[
    in_library("blockyard-protocol", "frame::tests::fuzz_any_bytes_in_any_pieces_neither_panic_nor_differ"),
    in_library("blockyard-protocol", "frame::tests::fuzz_what_decodes_encodes_to_what_decodes_the_same"),
    Target {
        package: "blockyard-protocol",
        binary: &["--lib", "--features", "appliance"],
        test: "appliance::tests::fuzz_any_bytes_are_a_message_that_goes_round_or_an_error",
    },
    in_library("blockyard-hypervisor", "user::decode::tests::judging_never_panics"),
    in_library("blockyard-hypervisor", "user::decode::tests::judging_requests_never_panics"),
    in_library("blockyard-vmm", "pc::kernel::tests::any_bzimage::fuzz_any_header_is_refused_or_starts_in_memory"),
    in_library("blockyard-vmm", "pc::kernel::tests::any_elf::fuzz_any_elf_is_refused_or_starts_in_memory"),
    in_library("blockyard-devices", "serial::port::tests::random_accesses"),
    Target { package: "blockyard-devices", binary: &["--test", "virtio"], test: "hostile::random_register_accesses" },
    Target { package: "blockyard-devices", binary: &["--test", "virtio"], test: "hostile::random_bar_accesses" },
    Target { package: "blockyard-devices", binary: &["--test", "virtio"], test: "hostile::random_rings" },
    Target { package: "blockyard-devices", binary: &["--test", "virtio"], test: "hostile::random_entropy_rings" },
    Target { package: "blockyard-devices", binary: &["--test", "pci"], test: "hostile::random_bus_accesses" },
    Target { package: "blockyard-devices", binary: &["--test", "ahci"], test: "hostile::random_accesses_to_ports" },
    Target { package: "blockyard-devices", binary: &["--test", "ahci"], test: "hostile::random_commands" },
    Target {
        package: "blockyard-session",
        binary: &["--test", "client"],
        test: "hostile::fuzz_a_hostile_server_neither_hangs_nor_confuses_the_client",
    },
    in_library("blockyard-session", "client::io_buffer::tests::fuzz_ranges_never_overlap_and_nothing_is_lost"),
    in_library("blockyard-virtqueue", "driver::tests::fuzz_a_lying_device_neither_loops_nor_confuses_the_driver"),
    in_library("blockyard-virtqueue", "driver::tests::fuzz_every_chain_comes_back_once_and_as_it_was"),
    in_library("blockyard-session", "server::message::tests::fuzz_any_bytes_are_a_request_or_an_error"),
    Target {
        package: "blockyard-session",
        binary: &["--test", "server"],
        test: "hostile::fuzz_any_client_harms_only_itself",
    },
    in_library("blockyard-share", "tests::hostile_requests"),
    in_library("blockyard-run", "configuration::tests::any_text_is_read_or_refused"),
    in_library("blockyard-run", "console::terminal_filter::tests::what_comes_out_needs_no_filter"),
    in_library(
        "blockyard-shell",
        "completion::tests::fuzz_what_is_completed_is_one_word_that_means_the_path_and_is_seen",
    ),
    in_library("blockyard-shell", "completion::tests::fuzz_no_shell_executes_what_is_completed"),
    in_library("blockyard-shell", "completion::tests::fuzz_what_is_completed_for_us_is_never_for_the_hosts_shell"),
    in_library("blockyard-shell", "line::tests::fuzz_any_line_is_understood_or_refused_and_its_words_can_be_written"),
    in_library("blockyard-testvm", "console::tests::fuzz_any_console_is_kept_within_bounds"),
    in_library("blockyard-bench", "disk::replay::tests::fuzz_any_file_is_a_replay_or_an_error_with_its_line"),
    in_library("blockyard-block", "formats::qcow2::tests::fuzz::fuzz_what_the_checker_calls_clean_opens"),
    in_library("blockyard-block", "formats::qcow2::tests::fuzz::fuzz_a_spoiled_image_neither_panics_nor_hangs"),
    in_library(
        "blockyard-block",
        "formats::qcow2::tests::fuzz_numbers::fuzz_an_image_of_any_kind_is_refused_or_stays_in_order",
    ),
    in_library(
        "blockyard-block",
        "formats::qcow2::tests::repaired::fuzz_what_could_be_read_reads_the_same_after_any_repair",
    ),
    in_library("blockyard-block", "formats::luks::unlock::tests::fuzz_a_spoiled_header_ends_in_a_sentence_or_a_key"),
    in_library("blockyard-block", "formats::block_map::tests::fuzz::fuzz_a_spoiled_vdi_neither_panics_nor_hangs"),
    in_library("blockyard-block", "formats::block_map::tests::fuzz::fuzz_a_spoiled_vhd_neither_panics_nor_hangs"),
    in_library("blockyard-block", "formats::block_map::tests::fuzz::fuzz_a_spoiled_vhdx_neither_panics_nor_hangs"),
    in_library("blockyard-block", "formats::block_map::tests::fuzz::fuzz_a_spoiled_qed_neither_panics_nor_hangs"),
    in_library("blockyard-block", "formats::block_map::tests::fuzz::fuzz_a_spoiled_parallels_neither_panics_nor_hangs"),
    in_library("blockyard-block", "formats::block_map::tests::fuzz::fuzz_a_spoiled_vmdk_neither_panics_nor_hangs"),
    in_library(
        "blockyard-block",
        "formats::block_map::tests::fuzz::fuzz_a_spoiled_compressed_vmdk_neither_panics_nor_hangs",
    ),
    in_library(
        "blockyard-block",
        "formats::block_map::tests::fuzz::fuzz_a_spoiled_vmdk_of_esx_neither_panics_nor_hangs",
    ),
    in_library(
        "blockyard-block",
        "formats::block_map::tests::fuzz::fuzz_a_spoiled_space_efficient_vmdk_neither_panics_nor_hangs",
    ),
    in_library(
        "blockyard-block",
        "formats::block_map::vhdx::unfinished::tests::fuzz_a_spoiled_entry_is_judged_and_never_whole_when_it_is_not",
    ),
    in_library("blockyard-block", "formats::compression::tests::fuzz_a_spoiled_file_neither_panics_nor_hangs"),
    in_library("blockyard-block", "formats::ova::tests::fuzz_any_archive_is_disks_or_a_sentence"),
    in_library("blockyard-block", "formats::vmdk::tests::fuzz_a_descriptor_is_understood_or_refused_but_never_half"),
    in_library("blockyard-appliance", "channel::tests::fuzz_any_agent_gives_messages_or_an_error_whatever_the_pieces"),
    in_library(
        "blockyard-appliance",
        "stream::sink::tests::fuzz_any_bytes_are_a_stream_or_an_error_whatever_the_pieces",
    ),
    in_library("blockyard-appliance", "stream::tests::fuzz_a_guest_that_reads_gets_the_stream_and_nothing_else"),
    in_library("blockyard-appliance", "stream::tests::fuzz_a_guest_that_writes_gives_a_stream_or_none"),
    in_library("blockyard-boot-entries", "version::tests::fuzz_comparing_is_an_order"),
    in_library("blockyard-boot-entries", "systemd_boot::tests::fuzz_any_pattern_ends"),
    in_library("blockyard-boot-entries", "tests::fuzz_any_files_are_an_entry_within_the_image_or_a_sentence"),
    in_library("blockyard-boot-entries", "grub::script::tests::fuzz_any_text_is_a_script_or_an_error_with_its_line"),
    in_library("blockyard-boot-entries", "grub::condition::tests::fuzz_any_words_end"),
    in_library("blockyard-boot-entries", "grub::environment_block::tests::fuzz_any_block_has_names"),
    in_library("blockyard-boot-entries", "grub::tests::fuzz_any_script_boots_something_or_says_why_not"),
    in_library("blockyard-image", "guest::records::tests::fuzz_any_bytes_are_records_or_an_error_whatever_the_pieces"),
    Target {
        package: "blockyard-archive",
        binary: &["--test", "hostile"],
        test: "fuzz_no_archive_makes_anything_but_plain_files_where_it_is_unpacked",
    },
    in_library(
        "blockyard-image",
        "inspection::operating_system::tests::fuzz_whatever_files_say_is_told_in_harmless_text",
    ),
    in_library(
        "blockyard-image",
        "inspection::packages::tests::fuzz_whatever_a_database_says_is_told_in_harmless_text",
    ),
    in_library("blockyard-protocol", "frame::tests::fuzz_messages_go_round"),
    in_library("blockyard-protocol", "plan::tests::fuzz_pieces_cover_the_length_once_and_zeros_are_zeros"),
    in_library("blockyard-protocol", "progress::tests::fuzz_steps_are_neither_late_nor_double"),
    in_library("blockyard-appliance", "tools::elf::tests::fuzz_a_broken_file_is_an_error_or_has_bounded_needs"),
    model("model::sync::random_requests_do_what_a_vector_does"),
    model("model::threads::random_requests_do_what_a_vector_does"),
    model("model::uring::random_requests_do_what_a_vector_does"),
    partition_table("fuzz::fuzz_any_bytes_of_a_disk"),
    partition_table("fuzz::fuzz_chains_of_boot_records"),
    partition_table("fuzz::fuzz_gpts_with_right_checksums"),
    in_library("blockyard-session", "mediator::driver::tests::fuzz_a_mediator_cannot_grant_what_it_must_not"),
    in_library("blockyard-session", "mediator::message::tests::fuzz_any_datagram_is_understood_or_refused"),
    in_library("blockyard-session", "mediator::export::tests::fuzz_what_is_parsed_is_shown_as_it_is_parsed"),
    in_library("blockyard-block", "specification::tests::fuzz_any_text_is_refused_or_written_back_the_same"),
    in_library(
        "blockyard-block",
        "specification::tests::fuzz_specifications_of_known_pieces_are_refused_or_written_back_the_same",
    ),
    in_library("blockyard-block", "layers::partition::tests::fuzz_no_request_touches_a_byte_outside_the_range"),
    in_library("blockyard-block", "layers::throttle::bucket::tests::fuzz_no_stretch_of_time_allows_too_much"),
    in_library("blockyard-block", "layers::throttle::tests::fuzz_every_request_goes_once_and_not_too_early"),
    in_library("blockyard-block", "layers::meter::tests::fuzz_the_meter_counts_what_was_done"),
    in_library(
        "blockyard-block",
        "layers::faults::tests::fuzz_with_any_faults_every_request_completes_once_and_stays_on_the_disk",
    ),
    in_library("blockyard-block", "layers::write_log::tests::fuzz_after_every_cut_each_block_holds_what_it_may"),
    aligned("model::random_requests_do_what_a_vector_does_whatever_the_disk_demands"),
    aligned("model::random_requests_do_what_a_vector_does_on_the_callers_thread"),
    Target {
        package: "blockyard-block",
        binary: &["--test", "completion_events"],
        test: "split_bounced_and_merged::requests_complete_by_event_alone",
    },
    aligned("direct::uring::random_requests_past_the_page_cache"),
    aligned("direct::threads::random_requests_past_the_page_cache"),
];

const fn model(test: &'static str) -> Target {
    Target { package: "blockyard-block", binary: &["--test", "conformance"], test }
}

const fn partition_table(test: &'static str) -> Target {
    Target { package: "blockyard-block", binary: &["--test", "partition_table"], test }
}

const fn aligned(test: &'static str) -> Target {
    Target { package: "blockyard-block", binary: &["--test", "aligned"], test }
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fuzz {
    /// Part of the names of the targets to run; empty for all.
    filter: String,
    /// For each target.
    extent: Extent,
}

impl Fuzz {
    /// Takes `[FILTER] [--seconds N | --inputs N]`; `None` if `words` are something else.
    pub(crate) fn parse(words: &[&str]) -> Option<Self> {
        let (filter, option) = match *words {
            [filter, ref option @ ..] if !filter.starts_with('-') => (filter, option),
            ref option => ("", option),
        };
        let extent = match *option {
            [] => Extent::Seconds(60),
            ["--seconds", seconds] => Extent::Seconds(seconds.parse().ok().filter(|&seconds| seconds > 0)?),
            ["--inputs", inputs] => Extent::Inputs(inputs.parse().ok().filter(|&inputs| inputs > 0)?),
            _ => return None,
        };
        Some(Self { filter: filter.to_owned(), extent })
    }

    /// Runs the targets, one after the other.
    ///
    /// # Errors
    /// The first target's that fails, with what reproduces it.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let targets: Vec<_> = TARGETS.iter().filter(|target| target.test.contains(&self.filter)).collect();
        if targets.is_empty() {
            let names: Vec<_> = TARGETS.iter().map(|target| target.test).collect();
            bail!("no fuzz target has `{}` in its name: there are\n  {}", self.filter, names.join("\n  "));
        }
        targets.into_iter().try_for_each(|target| target.run(self.extent))
    }
}

impl Target {
    fn run(&self, extent: Extent) -> anyhow::Result<()> {
        println!("=== {} {}", self.package, self.test);
        run(self.cargo().arg("--no-run"))?;
        let (milliseconds, inputs) = match extent {
            Extent::Seconds(seconds) => (u64::from(seconds) * 1000, u64::MAX),
            // A century, to which others are added.
            Extent::Inputs(inputs) => (100 * 365 * 86_400_000, inputs),
        };
        let mut command = self.cargo();
        command
            .args(["--", "--exact", self.test, "--nocapture"])
            .env("BOLERO_RANDOM_TEST_TIME_MS", milliseconds.to_string())
            .env("BOLERO_RANDOM_ITERATIONS", inputs.to_string());
        let output = command.output().with_context(|| format!("cannot run {}", describe(&command)))?;
        let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("{printed}\n{} failed: {}\n{}", self.test, output.status, self.how_to_reproduce(&printed));
        }
        match printed.lines().find_map(|line| line.split_once("run time: ")) {
            Some((_, outcome)) => println!("=== ok: {outcome}"),
            // The io_uring engine's, where there is no io_uring.
            None if printed.contains("1 passed") => println!("=== skipped by the target itself"),
            None => bail!("{} has no test of this name:\n{printed}", describe(&command)),
        }
        Ok(())
    }

    /// The test binary as fast as it goes, but with the checks that find more than panics.
    fn cargo(&self) -> Command {
        let mut command = cargo();
        command.args(["test", "--locked", "--release", "--package", self.package]).args(self.binary).args([
            "--config",
            "profile.release.debug-assertions=true",
            "--config",
            "profile.release.overflow-checks=true",
        ]);
        command
    }

    fn how_to_reproduce(&self, printed: &str) -> String {
        let Some(seed) = seed(printed) else {
            return "no seed was printed: either a file of the corpus fails, as it then does under `cargo test`, or the \
                    process died"
                .into();
        };
        let Self { package, binary, test } = self;
        let binary = binary.join(" ");
        format!(
            "to reproduce:\nBOLERO_RANDOM_SEED={seed} BOLERO_RANDOM_ITERATIONS=0 \
             cargo test --package {package} {binary} -- --exact {test}"
        )
    }
}

/// The seed in bolero's report of a failure.
fn seed(printed: &str) -> Option<&str> {
    let (_, after) = printed.split_once("BOLERO_RANDOM_SEED=")?;
    let end = after.find(|character: char| !character.is_ascii_digit()).unwrap_or(after.len());
    Some(&after[..end])
}
