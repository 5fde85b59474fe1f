//! What twins have to have in common, and what they need not.

use super::super::super::bitmaps::{self, Bits};
use super::super::super::{Qcow2Check, Qcow2Info, Qcow2MappingKind, own_file};
use super::ours::{Ours, contents};
use super::theirs::Theirs;
use super::{Kept, Twins, widened};
use crate::{Disk, OpenedFile, Repair, read_bytes};
use serde_json::{Value, json};
use std::ops::Range;
use std::path::Path;

/// A step that we refuse, and QEMU may carry out: words of what is said then, and why that is so. It is done to
/// neither.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("shows what is behind it, and would change", "commit and rebase would change what snapshots show"),
    ("has snapshots and is of version 2", "resize would lose the snapshots' size; amend makes it version 3"),
    ("has a snapshot", "two snapshots of one name cannot be told apart"),
    ("its refcounts of", "refused before anything is changed; QEMU fails, too, and may leave leaks"),
    ("has clusters that are compressed by zstd", "amend to version 2; QEMU's does not look into snapshots"),
    (
        "uses of a cluster are too many for its refcount",
        "amend to narrower ones; ours may share with a snapshot what rebase copied, and QEMU's did not",
    ),
    ("which has no lazy refcounts", "amend to version 2 with lazy refcounts: QEMU makes one without, if it had them"),
    ("has bitmaps, which version 2", "amend would lose them, as QEMU's does"),
    ("has its data in another file", "a snapshot cannot keep what another file holds; QEMU refuses it, too"),
];

/// A step that QEMU refuses, or fails in, and we carry out; ours is taken back.
pub(super) const REFUSED_BY_THEM: &[(&str, &str)] = &[
    (
        "Failed to zero out new clusters: Operation not supported",
        "of version 2, which has no zero clusters, QEMU does not resize an image on another one: we write the zeros",
    ),
    (
        ": -22 (Invalid argument)",
        "a snapshot of an image with refcounts of 1 bit that holds nothing, where nothing is shared",
    ),
    (
        "Cannot decrease refcount entry width",
        "amend, where a cluster is shared that ours has not: QEMU keeps more of those that are zeros",
    ),
];

/// What differs where both carry a step out: what, and why.
pub(super) const DIFFERENT: &[(Difference, &str)] = &[
    (Difference::Discarded, "what was discarded reads as zeros or as before: each chooses by its own clusters"),
    (
        Difference::Zeros,
        "zeros are data, zeros or nothing, whichever costs less: what is compared is where data are \
                         that are not zeros",
    ),
    (Difference::GrownTail, "a disk that was made smaller within a cluster and grows again: QEMU shows what was there"),
    (
        Difference::Marked,
        "rebase marks in bitmaps what it writes, and resize the zeros that it writes: more, never less",
    ),
    (
        Difference::FirstBacking,
        "of version 2, QEMU gives an image its first backing file without writing the zeros that \
                                it showed: it shows what is behind then. We write them; so it is done to neither",
    ),
    (
        Difference::Copied,
        "a write, and rebase, may copy more of what is behind the image than they must; and so does QEMU where it \
         makes zeros of a part of a cluster that shows zeros already: we leave it",
    ),
    (
        Difference::Snapshots,
        "QEMU's commit and rebase change what snapshots show of what is behind the image; ours are refused if they \
         would. Its amend to version 2 writes the zeros of a cluster that kept its place there, where a snapshot has data",
    ),
    (
        Difference::Rewritten,
        "rebase writes, and marks in bitmaps, what an image does not hold itself; ours may hold more: zeros, or copies. \
         Nor need it write zeros where QEMU goes on showing what was discarded",
    ),
    (Difference::PartlyAmended, "where amend is refused, QEMU may have done a part of it; it is taken back"),
    (Difference::Places, "where in the file a cluster lies, and how many are fragmented, is the allocator's own"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    Discarded,
    Zeros,
    GrownTail,
    Marked,
    FirstBacking,
    Copied,
    Snapshots,
    Rewritten,
    PartlyAmended,
    Places,
}

/// That something may differ is one of those that are listed.
pub(super) fn difference(which: Difference) -> bool {
    DIFFERENT.iter().any(|(listed, _)| *listed == which)
}

/// Whether a refusal is one of those.
pub(super) fn is_allowed(refused: &[(&str, &str)], said: &str) -> bool {
    refused.iter().any(|(words, _)| said.contains(words))
}

/// Compares all there is.
pub(super) fn compare(twins: &Twins, ours: &Ours, theirs: &Theirs) -> Result<(), String> {
    let held = [contents(&*open(&ours.image)?), contents(&*open(&theirs.image)?)];
    same_contents(twins, &held)?;
    theirs_reads_ours(ours, &held[0])?;
    same_maps(twins, ours, theirs, &held[0])?;
    same_snapshots(twins, ours, theirs)?;
    in_order(&ours.image, theirs)?;
    same_info(ours, theirs)?;
    same_bitmaps(twins, ours, theirs)
}

fn open(image: &Path) -> Result<Box<dyn Disk>, String> {
    let of_directory = Ours::of(image.parent().unwrap());
    of_directory.open(image, true).map(|disk| Box::new(disk) as Box<dyn Disk>).map_err(|error| error.to_string())
}

fn same_contents(twins: &Twins, [ours, theirs]: &[Vec<u8>; 2]) -> Result<(), String> {
    if ours.len() != theirs.len() || ours.len() as u64 != twins.size {
        return Err(format!("disks of {} and {} bytes, not {}", ours.len(), theirs.len(), twins.size));
    }
    let sectors = ours.chunks(512).zip(theirs.chunks(512)).zip(&twins.vague);
    match sectors.enumerate().find(|(_, ((ours, theirs), is_vague))| !**is_vague && ours != theirs) {
        Some((sector, ((ours, theirs), _))) => {
            Err(format!("sector {sector}: ours holds {:?}…, theirs {:?}…", &ours[..4], &theirs[..4]))
        }
        None => Ok(()),
    }
}

/// QEMU's reader sees in our image what ours sees.
fn theirs_reads_ours(ours: &Ours, held: &[u8]) -> Result<(), String> {
    let file = ours.image.with_file_name("held");
    let read = Theirs::of(ours.image.parent().unwrap());
    read.qemu_img(&["convert", "-U", "-q", "-f", "qcow2", "-O", "raw", "image", "held"])?;
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    if bytes == held { Ok(()) } else { Err("QEMU reads something else of our image".to_owned()) }
}

/// A run of the disk that is data, and in which image of the chain.
type DataRun = (Range<u64>, u64);

fn same_maps(twins: &Twins, ours: &Ours, theirs: &Theirs, held: &[u8]) -> Result<(), String> {
    let disk = ours.open(&ours.image, true).map_err(|error| error.to_string())?;
    let mut of_ours: Vec<DataRun> = Vec::new();
    let mut at = 0;
    while at < twins.size {
        let (mapping, _) = disk.map(at..twins.size).map_err(|error| error.to_string())?;
        use Qcow2MappingKind::{Compressed, Data, Reserved};
        if matches!(mapping.kind, Data { .. } | Reserved { .. } | Compressed) {
            of_ours.push((at..at + mapping.length_bytes, mapping.depth as u64));
        }
        at += mapping.length_bytes;
    }
    let map = theirs.json(&["map", "--output=json", "-f", "qcow2", "image"])?;
    let runs = map.as_array().ok_or("qemu-img map says nothing")?.iter().filter(|run| run["data"] == true);
    let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
    let run = |run: &Value| {
        let start = number(&run["start"]);
        (start..start + number(&run["length"]), number(&run["depth"]))
    };
    let of_theirs: Vec<DataRun> = runs.map(run).collect();
    let depth_of = |runs: &[DataRun], at: u64| runs.iter().find(|(run, _)| run.contains(&at)).map(|(_, depth)| *depth);
    for (sector, bytes) in held.chunks(512).enumerate() {
        if twins.vague[sector] || bytes.iter().all(|&byte| byte == 0) {
            continue;
        }
        let found = [depth_of(&of_ours, sector as u64 * 512), depth_of(&of_theirs, sector as u64 * 512)];
        // A write copies parts of a cluster; rebase, what differs: less or more of it.
        let may_be_copied = twins.making.has_extended_l2
            || twins.is_rebased
            || twins.zeroed_in_part.iter().any(|range| range.contains(&(sector as u64 * 512)));
        if found.contains(&None) || (found[0] != found[1] && !(may_be_copied && difference(Difference::Copied))) {
            return Err(format!(
                "sector {sector} has data at depth {:?} by our map, {:?} by theirs",
                found[0], found[1]
            ));
        }
    }
    Ok(())
}

fn same_snapshots(twins: &Twins, ours: &Ours, theirs: &Theirs) -> Result<(), String> {
    for Kept { name, shown, vague } in &twins.snapshots {
        let (mine, yours) = (ours.snapshot(name)?, Ours::of(theirs.image.parent().unwrap()).snapshot(name)?);
        if mine != *shown {
            return Err(format!("our snapshot {name:?} does not show what it did"));
        }
        let sectors = mine.chunks(512).zip(yours.chunks(512)).zip(vague);
        let found = sectors.enumerate().find(|(_, ((mine, yours), is_vague))| !**is_vague && mine != yours);
        if let Some((sector, _)) = found {
            return Err(format!("snapshot {name:?} differs in sector {sector}"));
        }
        if mine.len() != yours.len() {
            return Err(format!("snapshot {name:?} has {} bytes in ours, and {} in theirs", mine.len(), yours.len()));
        }
    }
    Ok(())
}

/// Our image is in order by QEMU's check.
pub(super) fn in_order_for_them(image: &Path) -> Result<(), String> {
    let read = Theirs::of(image.parent().unwrap());
    let of_ours = read.json(&["check", "-U", "--output=json", "-f", "qcow2", "image"])?;
    let is_there = |name: &str| of_ours[name].as_u64().unwrap_or(0) > 0;
    let is_wrong = ["corruptions", "leaks", "check-errors"].into_iter().any(is_there);
    if is_wrong { Err(format!("qemu-img check of our image: {of_ours}")) } else { Ok(()) }
}

/// Both images are in order: ours by QEMU's check, and QEMU's by ours.
pub(super) fn in_order(image: &Path, theirs: &Theirs) -> Result<(), String> {
    in_order_for_them(image)?;
    let by_us = |path: &Path| {
        let opened = OpenedFile::open(path, true).map_err(|error| error.to_string())?;
        let report = Qcow2Check::open(&opened, false).and_then(|mut check| check.run(Repair::None, &mut |_| ()));
        report.map_err(|error| error.to_string())
    };
    let (mine, yours) = (by_us(image)?, by_us(&theirs.image)?);
    let check = theirs.json(&["check", "--output=json", "-f", "qcow2", "image"])?;
    let count = |name: &str| check[name].as_u64().unwrap_or(0);
    let said = [count("corruptions"), count("leaks"), count("total-clusters"), count("allocated-clusters")];
    let of_theirs = [yours.corruptions, yours.leaks, yours.total_clusters, yours.allocated_clusters];
    if said != of_theirs || count("compressed-clusters") != yours.compressed_clusters {
        return Err(format!("of their image, our check says {yours:?} and qemu-img's {check}"));
    }
    if mine.corruptions > 0 || mine.leaks > 0 || mine.total_clusters != yours.total_clusters {
        return Err(format!("of our image, our check says {mine:?}"));
    }
    Ok(())
}

/// What our reader says of our image, as qemu-img says it of theirs.
fn same_info(ours: &Ours, theirs: &Theirs) -> Result<(), String> {
    let opened = OpenedFile::open(&ours.image, true).map_err(|error| error.to_string())?;
    let info = Qcow2Info::of_opened(&opened).map_err(|error| error.to_string())?;
    let said = theirs.json(&["info", "--output=json", "-f", "qcow2", "image"])?;
    let data = &said["format-specific"]["data"];
    let bitmap = |name: &str, granularity: u64, is_in_use: bool, is_auto: bool| {
        format!("{name:?} of {granularity}, in use: {is_in_use}, kept: {is_auto}")
    };
    let flag =
        |bitmap: &Value, flag: &str| bitmap["flags"].as_array().is_some_and(|flags| flags.contains(&json!(flag)));
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let of_theirs = list(&data["bitmaps"]).into_iter().map(|value| {
        let (name, granularity) = (value["name"].as_str().unwrap_or("?"), value["granularity"].as_u64().unwrap_or(0));
        bitmap(name, granularity, flag(&value, "in-use"), flag(&value, "auto"))
    });
    let of_ours = info.bitmaps.iter();
    let of_ours = of_ours.map(|found| bitmap(&found.name, found.granularity_bytes, found.is_in_use, found.is_auto));
    let (mut of_ours, mut of_theirs) = (of_ours.collect::<Vec<_>>(), of_theirs.collect::<Vec<_>>());
    of_ours.sort();
    of_theirs.sort();
    let snapshots = |values: Vec<Value>| values.iter().map(|value| value["name"].clone()).collect::<Vec<_>>();
    let mine = json!({
        "size": info.size_bytes,
        "cluster": info.cluster_bytes,
        "compat": if info.version == 2 { "0.10" } else { "1.1" },
        "refcount": info.refcount_bits,
        "lazy": info.has_lazy_refcounts,
        "extended": info.has_extended_l2,
        "corrupt": info.is_corrupt,
        "dirty": info.is_dirty,
        "compression": if info.compression == 1 { "zstd" } else { "zlib" },
        "backing": info.backing_name,
        "format": info.backing_format,
        "data file": info.data_file,
        "snapshots": info.snapshots.iter().map(|snapshot| &snapshot.name).collect::<Vec<_>>(),
        "bitmaps": of_ours,
    });
    let or_false = |value: &Value| if value.is_null() { json!(false) } else { value.clone() };
    let yours = json!({
        "size": said["virtual-size"],
        "cluster": said["cluster-size"],
        "compat": data["compat"],
        "refcount": data["refcount-bits"],
        "lazy": or_false(&data["lazy-refcounts"]),
        "extended": or_false(&data["extended-l2"]),
        "corrupt": or_false(&data["corrupt"]),
        "dirty": or_false(&said["dirty-flag"]),
        "compression": data["compression-type"],
        "backing": said["backing-filename"],
        "format": said["backing-filename-format"],
        "data file": data["data-file"],
        "snapshots": snapshots(list(&said["snapshots"])),
        "bitmaps": of_theirs,
    });
    if mine == yours { Ok(()) } else { Err(format!("info of ours:   {mine}\n      of theirs: {yours}")) }
}

/// A bitmap's name, how many bytes a bit stands for, and what it says was written.
type Said = (Vec<u8>, u64, Vec<Range<u64>>);

fn same_bitmaps(twins: &Twins, ours: &Ours, theirs: &Theirs) -> Result<(), String> {
    let said = |path: &Path| -> Result<Vec<Said>, String> {
        let image = OpenedFile::open(path, true).map_err(|error| error.to_string())?;
        let header = own_file::read_header(image.file(), path).map_err(|error| error.to_string())?;
        let file = own_file::image_file(image.file()).map_err(|error| error.to_string())?;
        let found = bitmaps::bitmaps(&file, &header).map_err(|error| error.to_string())?;
        let mut all = Vec::new();
        for (bitmap, _) in found {
            let entries = file.entries(bitmap.table).map_err(|error| error.to_string())?;
            let mut bits = Bits::new(&file, &header, bitmap.granularity_bits, &entries);
            let (mut runs, mut at): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
            while let Some(run) = bits.next_run(at).map_err(|error| error.to_string())? {
                at = run.end;
                match runs.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ => runs.push(run),
                }
            }
            all.push((bitmap.name, 1 << bitmap.granularity_bits, runs));
        }
        all.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(all)
    };
    let (mine, yours) = (said(&ours.image)?, said(&theirs.image)?);
    let has_all = |(mine, yours): (&Said, &Said)| {
        let mut may_be = vec![false; (twins.size / 512) as usize];
        let sectors = |run: &Range<u64>| (run.start / 512) as usize..(run.end.min(twins.size) / 512) as usize;
        mine.2.iter().for_each(|run| may_be[sectors(run)].fill(true));
        let in_size = twins.rewritten.iter().filter(|range| range.start < twins.size);
        in_size.for_each(|range| may_be[sectors(&widened(range, mine.1))].fill(true));
        mine.0 == yours.0 && yours.2.iter().all(|run| !may_be[sectors(run)].contains(&false))
    };
    let may_be_more = (twins.is_rebased || twins.is_resized) && difference(Difference::Marked);
    let are_all = mine.len() == yours.len() && mine.iter().zip(&yours).all(has_all);
    if mine == yours || (may_be_more && are_all) {
        Ok(())
    } else {
        Err(format!("bitmaps of ours:   {mine:?}\n         of theirs: {yours:?}"))
    }
}

/// What is behind them, which commits write to, is the same.
pub(super) fn same_behind(twins: &Twins, ours: &Ours, theirs: &Theirs) -> Result<(), String> {
    for name in ["base", "other"] {
        let [mine, yours] = [ours.image.with_file_name(name), theirs.image.with_file_name(name)];
        if !mine.exists() || super::ours::format_of(&mine) != "qcow2" || twins.is_vague_behind {
            continue;
        }
        let read = |path: &Path| {
            let disk = Ours::of(path.parent().unwrap()).open(path, true).map_err(|error| error.to_string())?;
            read_bytes(&disk, 0..disk.geometry().capacity_bytes).map_err(|error| error.to_string())
        };
        if read(&mine)? != read(&yours)? {
            return Err(format!("{name} differs"));
        }
    }
    Ok(())
}
