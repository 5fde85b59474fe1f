//! What was acknowledged before a kill -9 is there after it.

use crate::rig::{Random, Rig, WRITE, open, run_accepting, text};
use blockyard_block::{Operation, Qcow2CreateOptions, Qcow2Disk, Request, Segment};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 4096;
const IN_FLIGHT: u64 = 8;
const KILLS: u64 = 15;

const IMAGE: &str = "BLOCKYARD_TEST_IMAGE";
const SEED: &str = "BLOCKYARD_TEST_SEED";

/// Of each block, how often it was changed: odd times written, even times zeroed.
type Versions = HashMap<u64, u64>;

/// What each word of a block is.
fn word(block: u64, version: u64) -> u64 {
    if version.is_multiple_of(2) { 0 } else { block << 32 | version }
}

/// Clusters as large as blocks are freed and used again all the time.
#[test]
fn nothing_that_was_acknowledged_is_lost() {
    kill_again_and_again(4096);
}

/// Blocks are written in place into clusters that others are just allocating.
#[test]
fn nothing_that_was_acknowledged_is_lost_where_clusters_are_shared() {
    kill_again_and_again(65536);
}

fn kill_again_and_again(cluster_bytes: u32) {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image.qcow2");
    let create = Qcow2CreateOptions { cluster_bytes, ..Qcow2CreateOptions::new(BLOCKS * BLOCK_BYTES) };
    Qcow2Disk::create(&image, &create).unwrap();
    let mut versions = Versions::new();
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        acknowledged += run_and_kill(&image, kill, &mut versions);
        look_after_kill(&image, &mut versions);
        check_no_corruption(&image);
    }
    assert!(acknowledged > KILLS * 20, "only {acknowledged} requests were done before their process was killed");
}

/// Runs the child until it has done some requests, and kills it in the midst of more. How many it had done.
fn run_and_kill(image: &Path, kill: u64, versions: &mut Versions) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored", "--nocapture"])
        .env(IMAGE, image)
        .env(SEED, kill.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut random = Random::new(kill);
    let wanted = 20 + random.below(400);
    let mut done = 0;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut take = |line: String| {
        let Some(block) = line.strip_prefix("done ") else { return 0 };
        *versions.entry(block.parse().unwrap()).or_default() += 1;
        1
    };
    while done < wanted {
        let line = lines.next().expect("the child ended by itself");
        done += take(line);
    }
    std::thread::sleep(Duration::from_micros(random.below(2000)));
    child.kill().unwrap();
    child.wait().unwrap();
    lines.for_each(|line| done += take(line));
    done
}

/// Each block is as it was acknowledged, or as the one request that may have been on its way made it. Starts the next
/// round from what is there.
fn look_after_kill(image: &Path, versions: &mut Versions) {
    let contents = Rig::new(open(image)).read_all();
    for (block, bytes) in (0..).zip(contents.chunks(BLOCK_BYTES as usize)) {
        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes.chunks(8).all(|word| word == found.to_le_bytes()), "block {block} is torn");
        let version = versions.entry(block).or_default();
        if found != word(block, *version) {
            assert_eq!(found, word(block, *version + 1), "block {block} was acknowledged as version {version}");
        }
        // As the next child sees it, too.
        *version = found & 0xffff_ffff;
    }
}

/// Clusters may have leaked, but none is used twice or called free.
fn check_no_corruption(image: &Path) {
    let printed = run_accepting("qemu-img", &["check", "-f", "qcow2", text(image)], &[0, 3]);
    assert!(!printed.contains("corrupt"), "{printed}");
}

#[test]
#[ignore = "is run, and killed, by the test above"]
fn child() {
    let image = std::env::var_os(IMAGE).expect("nothing runs this but the test above");
    let mut random = Random::new(std::env::var(SEED).unwrap().parse::<u64>().unwrap() + 1000);
    let mut rig = Rig::new(open(Path::new(&image)));
    // What each block was left as by the one before.
    let mut versions: Vec<u64> = rig
        .read_all()
        .chunks(BLOCK_BYTES as usize)
        .map(|bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()) & 0xffff_ffff)
        .collect();
    let mut completions = Vec::new();
    let mut busy = vec![false; BLOCKS as usize];
    let mut slots: Vec<u64> = (0..IN_FLIGHT).collect();
    let mut in_slot = [0; IN_FLIGHT as usize];
    loop {
        while let Some(slot) = slots.pop() {
            let block = random.below(BLOCKS / 8) * (1 + random.below(8)) % BLOCKS;
            if std::mem::replace(&mut busy[block as usize], true) {
                slots.push(slot);
                continue;
            }
            in_slot[slot as usize] = block;
            versions[block as usize] += 1;
            push(&mut rig, slot, block, versions[block as usize]);
        }
        rig.queue.submit().unwrap();
        rig.queue.wait(&[], None).unwrap();
        rig.queue.reap(&mut completions);
        for completion in completions.drain(..) {
            completion.result.unwrap();
            let block = in_slot[completion.token as usize];
            let line = format!("done {block}\n");
            rustix::io::write(rustix::stdio::stdout(), line.as_bytes()).unwrap();
            busy[block as usize] = false;
            slots.push(completion.token);
        }
    }
}

fn push(rig: &mut Rig, slot: u64, block: u64, version: u64) {
    let address = slot * BLOCK_BYTES;
    let segment = Segment { region: 0, length_bytes: BLOCK_BYTES as u32, offset_bytes: address };
    let offset_bytes = block * BLOCK_BYTES;
    let zeroes = Operation::WriteZeroes { length_bytes: BLOCK_BYTES, may_unmap: true };
    let request = if version.is_multiple_of(2) {
        Request { operation: zeroes, offset_bytes, segments: &[], token: slot }
    } else {
        rig.poke(address, &word(block, version).to_le_bytes().repeat(BLOCK_BYTES as usize / 8));
        Request { operation: WRITE, offset_bytes, segments: &[segment], token: slot }
    };
    rig.queue.push(&request).unwrap();
}
