//! Twins: two images that are made alike, to one of which we do what QEMU's tools do to the other.
//!
//! Each script is drawn by chance from its number: options, what is behind the image, and twenty steps. Afterwards the
//! twins hold the same, in the same clusters as far as these have data, and say the same of themselves. What may differ
//! is [`compare::REFUSED`] and [`compare::DIFFERENT`].

mod compare;
mod ours;
mod script;
mod theirs;

use crate::formats::random::Random;
use compare::{Difference, REFUSED, REFUSED_BY_THEM, compare, difference, in_order_for_them, is_allowed, same_behind};
use ours::Ours;
use script::{Behind, BitmapChange, Making, SnapshotChange, Step};
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use theirs::Theirs;

const STEPS: usize = 20;
const SIZE_MAX: u64 = 4 << 20;

/// What is known of both.
struct Twins {
    size: u64,
    making: Making,
    /// By sector: it need not be the same, for one of [`compare::DIFFERENT`].
    vague: Vec<bool>,
    snapshots: Vec<Kept>,
    /// Their names, and how many bytes a bit stands for.
    bitmaps: Vec<(String, u64)>,
    /// Where bitmaps of theirs may say alone that something was written, for [`Difference::Rewritten`].
    rewritten: Vec<Range<u64>>,
    /// Clusters of which a part was made zeros, for [`Difference::Copied`].
    zeroed_in_part: Vec<Range<u64>>,
    /// Something vague was committed.
    is_vague_behind: bool,
    /// Since it was made by a conversion, if it was.
    is_rebased: bool,
    is_resized: bool,
    is_based: bool,
}

/// A snapshot that both have.
struct Kept {
    name: String,
    /// What ours showed when it was made, and its snapshot is to show as long as there is one.
    shown: Vec<u8>,
    /// As [`Twins::vague`].
    vague: Vec<bool>,
}

impl Twins {
    /// What a step that both carried out makes of it.
    fn did(&mut self, step: &Step) {
        let mut mark = |offset: u64, length: u64, is_vague: bool| {
            self.vague[(offset / 512) as usize..((offset + length) / 512) as usize].fill(is_vague);
        };
        if let Step::Zero { offset, length, .. } = step {
            let cluster_bytes = 1 << self.making.cluster_bits;
            let cut = [*offset, offset + length].into_iter().filter(|end| !end.is_multiple_of(cluster_bytes));
            self.zeroed_in_part.extend(cut.map(|end| widened(&(end..end + 1), cluster_bytes)));
        }
        match step {
            Step::Write { offset, length, .. } | Step::Zero { offset, length, .. } => mark(*offset, *length, false),
            Step::Discard { offset, length } => mark(*offset, *length, difference(Difference::Discarded)),
            Step::Resize { size } => {
                let tail = self.size.next_multiple_of(1 << self.making.cluster_bits).min(*size);
                let old = self.size.min(*size);
                self.vague.resize((size / 512) as usize, false);
                self.vague[(old / 512) as usize..(tail.max(old) / 512) as usize]
                    .fill(difference(Difference::GrownTail));
                (self.size, self.is_resized) = (*size, true);
            }
            Step::Snapshot { change, name } => {
                let found = self.snapshots.iter().position(|kept| kept.name == *name);
                match (change, found) {
                    (SnapshotChange::Make, _) => {
                        let (name, vague) = (name.clone(), self.vague.clone());
                        self.snapshots.push(Kept { name, shown: Vec::new(), vague });
                    }
                    (SnapshotChange::Remove, Some(found)) => drop(self.snapshots.remove(found)),
                    (_, Some(found)) => {
                        self.vague = self.snapshots[found].vague.clone();
                        self.size = self.vague.len() as u64 * 512;
                    }
                    (_, None) => {}
                }
            }
            Step::Bitmap { change: BitmapChange::Add { granularity_bytes }, name } => {
                self.bitmaps.push((name.clone(), *granularity_bytes));
            }
            Step::Bitmap { change: BitmapChange::Remove, name } => self.bitmaps.retain(|(other, _)| other != name),
            Step::Bitmap { change: BitmapChange::Merge { source }, name } => {
                let of_two = self.bitmaps.iter().filter(|(other, _)| other == source || other == name);
                let bytes = of_two.map(|(_, bytes)| *bytes).max().unwrap_or(1);
                self.rewritten.iter_mut().for_each(|range| *range = widened(range, bytes));
            }
            Step::Commit => self.is_vague_behind |= self.vague.contains(&true),
            Step::Convert { making, .. } => {
                self.making = *making;
                (self.is_rebased, self.is_resized, self.is_based) = (false, false, false);
                self.snapshots.clear();
                self.bitmaps.clear();
                self.rewritten.clear();
                self.zeroed_in_part.clear();
            }
            Step::Rebase { name } => (self.is_rebased, self.is_based) = (true, !name.is_empty()),
            Step::Amend { version, is_lazy, refcount_order } => {
                let making = &mut self.making;
                making.version = version.unwrap_or(making.version);
                making.is_zstd &= making.version == 3;
                making.is_lazy = making.version == 3 && is_lazy.unwrap_or(making.is_lazy);
                making.refcount_order = refcount_order.unwrap_or(making.refcount_order);
            }
            Step::Bitmap { .. } => {}
        }
    }
}

/// A range, to the ends of what bits of a bitmap stand for.
fn widened(range: &Range<u64>, granularity_bytes: u64) -> Range<u64> {
    range.start / granularity_bytes * granularity_bytes..range.end.next_multiple_of(granularity_bytes)
}

/// What is looked at before a command, as QEMU's may change it besides.
struct Before {
    /// What each snapshot of theirs showed.
    snapshots: Vec<Vec<u8>>,
    /// The sectors that ours holds itself, and theirs does not; and those that may show something else.
    ours_alone: Vec<Range<u64>>,
}

impl Before {
    fn of(twins: &Twins, step: &Step, ours: &Ours, theirs: &Ours) -> Result<Self, String> {
        let (mut snapshots, mut ours_alone) = (Vec::new(), Vec::new());
        if matches!(step, Step::Commit | Step::Rebase { .. } | Step::Amend { .. }) {
            let shown = twins.snapshots.iter().map(|kept| theirs.snapshot(&kept.name));
            snapshots = shown.collect::<Result<_, _>>()?;
        }
        if matches!(step, Step::Rebase { .. }) && !twins.bitmaps.is_empty() {
            let held = (0..).step_by(512).zip(ours.holds()?).zip(theirs.holds()?).zip(&twins.vague);
            let held = held.filter(|(((_, by_ours), by_theirs), is_vague)| (*by_ours && !by_theirs) || **is_vague);
            ours_alone = held.map(|(((start, _), _), _)| start..start + 512).collect();
        }
        Ok(Self { snapshots, ours_alone })
    }

    /// After it, when both have carried it out.
    fn compare(self, twins: &mut Twins, theirs: &Ours) -> Result<(), String> {
        for (kept, before) in twins.snapshots.iter_mut().zip(&self.snapshots) {
            let after = theirs.snapshot(&kept.name)?;
            for ((before, after), is_vague) in before.chunks(512).zip(after.chunks(512)).zip(&mut kept.vague) {
                *is_vague |= before != after && difference(Difference::Snapshots);
            }
        }
        if difference(Difference::Rewritten) {
            twins.rewritten.extend(self.ours_alone);
        }
        Ok(())
    }
}

/// Makes both, and does to both what the number says.
fn tell(number: u64, directory: &Path) -> Result<(), String> {
    let random = &mut Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let directories = ["ours", "theirs"].map(|name| directory.join(name));
    directories.iter().for_each(|directory| {
        let _ = fs::remove_dir_all(directory);
        fs::create_dir(directory).unwrap();
    });
    let (ours, theirs) = (Ours::of(&directories[0]), Theirs::of(&directories[1]));
    let mut twins = made(random, &ours, &theirs);
    let mut done: Vec<Step> = Vec::new();
    let mut requests: Vec<Step> = Vec::new();
    let told = (|| {
        for _ in 0..STEPS {
            let snapshots: Vec<_> = twins.snapshots.iter().map(|kept| kept.name.clone()).collect();
            let bitmaps: Vec<_> = twins.bitmaps.iter().map(|(name, _)| name.clone()).collect();
            let step = Step::drawn(random, twins.size, &twins.making, &snapshots, &bitmaps);
            done.push(step.clone());
            if step.is_request() {
                twins.did(&step);
                requests.push(step);
                continue;
            }
            both_perform(&ours, &theirs, &mut requests)?;
            command(&mut twins, &ours, &theirs, &step)?;
        }
        both_perform(&ours, &theirs, &mut requests)?;
        same_behind(&twins, &ours, &theirs)?;
        compare(&twins, &ours, &theirs)
    })();
    told.map_err(|problem: String| format!("script {number}, {:?}: {problem}\n{done:#?}", twins.making))
}

fn both_perform(ours: &Ours, theirs: &Theirs, requests: &mut Vec<Step>) -> Result<(), String> {
    if requests.is_empty() {
        return Ok(());
    }
    let steps = std::mem::take(requests);
    ours.perform(&steps).map_err(|error| format!("our twin, {steps:?}: {error}"))?;
    theirs.perform(&steps).map_err(|error| format!("their twin, {steps:?}: {error}"))
}

fn command(twins: &mut Twins, ours: &Ours, theirs: &Theirs, step: &Step) -> Result<(), String> {
    let is_first_backing = twins.making.version == 2 && !twins.is_based && matches!(step, Step::Rebase { .. });
    if is_first_backing && difference(Difference::FirstBacking) {
        return Ok(());
    }
    let files = || ["image", "base"].map(|name| fs::read(ours.image.with_file_name(name)).unwrap());
    let before = files();
    let their_image = matches!(step, Step::Amend { .. }).then(|| fs::read(&theirs.image).unwrap());
    let read = Ours::of(theirs.image.parent().unwrap());
    let looked = Before::of(twins, step, ours, &read)?;
    let mine = ours.command(step).map_err(|error| crate::explain(&*error).to_string());
    if let Err(said) = &mine
        && is_allowed(REFUSED, said)
    {
        let is_left_alone = files() == before;
        return if is_left_alone {
            Ok(())
        } else {
            Err(format!("{step:?} was refused, and changed something: {said}"))
        };
    }
    let may_be_taken_back = matches!(step, Step::Resize { .. } | Step::Snapshot { .. } | Step::Amend { .. });
    match (mine, theirs.command(step)) {
        (Ok(()), Ok(())) => {
            twins.did(step);
            let made = twins.snapshots.last_mut().filter(|kept| kept.shown.is_empty());
            if let Some(kept) = made {
                kept.shown = ours::contents(&ours.open(&ours.image, true).map_err(|error| error.to_string())?);
            }
            looked.compare(twins, &read)
        }
        (Err(_), Err(_)) => {
            if let Some(bytes) = their_image.filter(|_| difference(Difference::PartlyAmended)) {
                fs::write(&theirs.image, bytes).unwrap();
            }
            Ok(())
        }
        (mine, yours) => match &yours {
            Err(said) if may_be_taken_back && mine.is_ok() && is_allowed(REFUSED_BY_THEM, said) => {
                in_order_for_them(&ours.image)?;
                fs::write(&ours.image, &before[0]).unwrap();
                their_image.inspect(|bytes| fs::write(&theirs.image, bytes).unwrap());
                Ok(())
            }
            _ => Err(format!("{step:?}: ours {mine:?}, theirs {yours:?}")),
        },
    }
}

fn made(random: &mut Random, ours: &Ours, theirs: &Theirs) -> Twins {
    let making = Making::drawn(random);
    let size = (1 + random.below(if making.cluster_bits > 16 { SIZE_MAX } else { 1 << 20 } / 512)) * 512;
    let behind = [Behind::Nothing, Behind::Raw, Behind::Qcow2][random.below(3) as usize];
    let has_data_file = making.version == 3 && random.one_of(6);
    let directories = [&ours.image, &theirs.image].map(|image| image.parent().unwrap());
    for (name, is_raw) in [("base", behind != Behind::Qcow2), ("other", random.one_of(2))] {
        let length = (1 + random.below(size / 512)) * 512 * (1 + random.below(2));
        let bytes: Vec<u8> =
            (0..length / 512).flat_map(|sector| [(sector % 251 * random.below(2)) as u8; 512]).collect();
        for directory in directories {
            fs::write(directory.join(name), &bytes).unwrap();
        }
        if !is_raw {
            let path = ours.image.with_file_name(name);
            let made = Making { has_extended_l2: false, is_zstd: false, ..making };
            fs::remove_file(&path).unwrap();
            let raw = directories[1].join(name);
            let words = ["convert", "-f", "raw", "-O", "qcow2", "-o", &made.options(), raw.to_str().unwrap(), "new"];
            theirs.qemu_img(&words).unwrap();
            fs::rename(directories[1].join("new"), directories[1].join(name)).unwrap();
            fs::copy(directories[1].join(name), path).unwrap();
        }
    }
    let is_based = behind != Behind::Nothing;
    let format = ours::format_of(&ours.image.with_file_name("base"));
    let more: &[&str] = if is_based { &["-F", format, "-b", "base"] } else { &[] };
    theirs.create("image", &making, size, more, has_data_file.then_some("data"));
    ours.create(&making, size, is_based, has_data_file);
    let vague = vec![false; (size / 512) as usize];
    let (snapshots, bitmaps, rewritten, zeroed_in_part) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    Twins {
        size,
        making,
        vague,
        snapshots,
        bitmaps,
        rewritten,
        zeroed_in_part,
        is_vague_behind: false,
        is_rebased: false,
        is_resized: false,
        is_based,
    }
}

/// Tells the scripts with these numbers, on all processors.
fn tell_all(numbers: Range<u64>) {
    let (next, problems, began) = (AtomicU64::new(numbers.start), Mutex::new(Vec::new()), Instant::now());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let directory = blockyard_fuzz::memory_directory().unwrap();
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= numbers.end || problems.lock().unwrap().len() > 4 {
                        break;
                    }
                    if let Err(problem) = tell(number, directory.path()) {
                        // At once: all of them may take hours.
                        eprintln!("{problem}\n");
                        problems.lock().unwrap().push(number);
                    }
                    if number % 500 == 0 {
                        eprintln!("at script {number} after {:.0} s", began.elapsed().as_secs_f64());
                    }
                }
            });
        }
    });
    let problems = problems.into_inner().unwrap();
    assert!(
        problems.is_empty(),
        "scripts {problems:?}: BLOCKYARD_TWINS_FROM=NUMBER cargo xtask reliability twins 1 tells one again"
    );
    let (count, seconds) = (numbers.end - numbers.start, began.elapsed().as_secs_f64());
    println!("{count} scripts of {STEPS} steps: {seconds:.0} s, {:.1} a second", count as f64 / seconds);
}

#[test]
fn twins_of_which_qemu_has_one_stay_twins() {
    tell_all(0..500);
}

#[test]
#[ignore = "takes long: cargo xtask reliability twins"]
fn twins_of_which_qemu_has_one_stay_twins_for_long() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |value| value.parse().unwrap());
    let from = number("BLOCKYARD_TWINS_FROM", 1000);
    tell_all(from..from + number("BLOCKYARD_TWINS", 10_000));
}

#[test]
fn zeros_at_the_beginning_of_a_data_file_are_counted_as_by_qemu() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [mine, yours] = ["ours", "theirs"].map(|name| directory.path().join(name));
    [&mine, &yours].iter().for_each(|path| fs::create_dir(path).unwrap());
    let (ours, theirs) = (Ours::of(&mine), Theirs::of(&yours));
    let (has_extended_l2, is_lazy, is_zstd) = (false, false, false);
    let making = Making { cluster_bits: 12, version: 3, refcount_order: 4, has_extended_l2, is_lazy, is_zstd };
    ours.create(&making, 8192, false, true);
    theirs.create("image", &making, 8192, &[], Some("data"));
    let (offset, length) = (0, 8192);
    let steps = [Step::Write { offset, length, byte: 7 }, Step::Zero { offset, length, unmap: false }];
    both_perform(&ours, &theirs, &mut steps.to_vec()).unwrap();
    compare::in_order(&ours.image, &theirs).unwrap();
}
