//! What is asked of an image that a crash has left: it is in order, shows what it may, and can be written to.

use super::super::super::{Qcow2Check, Qcow2Disk};
use super::super::{output_of, windows};
use super::contents;
use super::model::Shown;
use super::shape::{Files, SECTOR_BYTES, allowed};
use crate::{Disk, Engine, FileOptions, OpenedFile, Repair, read_bytes, write_bytes};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// What is written to an image after a crash.
const AFTERWARDS: u32 = 99;

/// Looks at the files that a crash left, of an image that may show one of `expected`; `is_new` says of which files it
/// is not known that they are in order.
pub(super) fn examine(
    files: &Files,
    is_new: impl Fn(usize) -> bool,
    expected: &[Shown],
    asks_qemu: bool,
) -> Result<(), String> {
    let image = files.image();
    let looked_at = [image, files.base(), files.other()].into_iter().enumerate();
    for path in looked_at.filter(|(index, _)| is_new(*index)).map(|(_, path)| path) {
        let found = counted(path)?;
        if found.0 > 0 && !is_dirty(path) {
            return Err(format!("{} is damaged: {}", path.display(), damage(path)));
        }
        if asks_qemu && path == image {
            agree(path, found)?;
            windows::agree(&fs::read(path).unwrap(), &path.with_file_name("scratch"));
        }
    }
    let shown = all_shown(image)?;
    if !expected.iter().any(|expected| expected.is(&shown.0, &shown.1)) {
        let expected: Vec<_> = expected
            .iter()
            .map(|expected| {
                let counts = format!("{} sectors and {} snapshots", expected.sectors(), expected.snapshots());
                format!("of {counts}: {}", expected.difference(&shown.0))
            })
            .collect();
        return Err(format!("it shows what it may not, with {} snapshots: {}", shown.1.len(), expected.join("; ")));
    }
    write_to(image, shown)
}

/// Writes to it; then all is in order, and nothing else has changed.
fn write_to(image: &Path, (mut disk, snapshots): (Vec<u32>, Vec<Vec<u32>>)) -> Result<(), String> {
    let options = FileOptions { engine: Engine::Sync, lock: false, ..FileOptions::default() };
    let opened = Qcow2Disk::open(image, &options, &allowed(image));
    let opened = opened.map_err(|error| format!("it cannot be opened to be written to: {error}"))?;
    let places = [0, disk.len() / 3, disk.len() - 1];
    for sector in places {
        let bytes = contents(AFTERWARDS, sector as u64);
        let written = write_bytes(&opened, sector as u64 * SECTOR_BYTES, &bytes);
        written.map_err(|error| format!("it cannot be written to: {error}"))?;
        disk[sector] = AFTERWARDS;
    }
    drop(opened);
    if counted(image)?.0 > 0 {
        return Err(format!("it is damaged when it was written to: {}", damage(image)));
    }
    if all_shown(image)? != (disk, snapshots) {
        return Err("it shows something else when it was written to".to_owned());
    }
    Ok(())
}

/// Corruptions and leaks.
fn counted(path: &Path) -> Result<(u64, u64), String> {
    let image = OpenedFile::open(path, true).map_err(|error| error.to_string())?;
    let report = Qcow2Check::open(&image, false).and_then(|mut check| check.run(Repair::None, &mut |_| ()));
    let report = report.map_err(|error| format!("it cannot be checked: {error}"))?;
    Ok((report.corruptions, report.leaks))
}

/// The first thing that is wrong.
fn damage(path: &Path) -> String {
    let image = OpenedFile::open(path, true).unwrap();
    let mut lines = Vec::new();
    Qcow2Check::open(&image, false).unwrap().run(Repair::None, &mut |line| lines.push(line.to_owned())).unwrap();
    lines.into_iter().find(|line| line.starts_with("ERROR")).unwrap_or_default()
}

fn is_dirty(path: &Path) -> bool {
    fs::read(path).unwrap()[79] & 1 != 0
}

/// Whether `qemu-img check` finds the same.
fn agree(path: &Path, found: (u64, u64)) -> Result<(), String> {
    let mut check = Command::new("qemu-img");
    if path.with_file_name("image.data").exists() {
        // Where QEMU looks for a data file. For another directory the standard library forks, with all page tables.
        check.current_dir(path.parent().unwrap());
    }
    // -U: whoever forks at this moment, as other tests do, holds locks for as long as the child takes to begin.
    let output = output_of(check.args(["check", "-U", "-f", "qcow2", "--output=json"]).arg(path));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("qemu-img check: {}", String::from_utf8_lossy(&output.stderr)))?;
    let count = |name: &str| said[name].as_u64().unwrap_or(0);
    let theirs = (count("corruptions"), count("leaks"));
    if theirs == found && said["check-errors"] == 0 {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("our check finds (damage, leaks) {found:?} and qemu-img {theirs:?}: {said}"))
}

/// The labels of the disk's sectors, and of those of each snapshot.
fn all_shown(image: &Path) -> Result<(Vec<u32>, Vec<Vec<u32>>), String> {
    let options = FileOptions { engine: Engine::Sync, read_only: true, lock: false, ..FileOptions::default() };
    let disk = Qcow2Disk::open(image, &options, &allowed(image)).map_err(|error| error.to_string())?;
    let listed = Qcow2Disk::snapshots(&OpenedFile::open(image, true).map_err(|error| error.to_string())?);
    let of_snapshot = |name: &str| {
        let file = File::open(image).unwrap();
        let disk = Qcow2Disk::open_snapshot_in(file, image, name, &options, &allowed(image));
        disk.map_err(|error| error.to_string()).and_then(|disk| labels(&disk))
    };
    let listed = listed.map_err(|error| error.to_string())?;
    let snapshots: Result<Vec<_>, String> = listed.iter().map(|snapshot| of_snapshot(&snapshot.name)).collect();
    Ok((labels(&disk)?, snapshots?))
}

fn labels(disk: &Qcow2Disk) -> Result<Vec<u32>, String> {
    let bytes = read_bytes(disk, 0..disk.geometry().capacity_bytes).map_err(|error| error.to_string())?;
    let label = |(sector, bytes): (u64, &[u8])| {
        let label = (u64::from_le_bytes(bytes[..8].try_into().unwrap()) >> 32) as u32;
        let is_whole = contents(label, sector) == bytes;
        if is_whole { Ok(label) } else { Err(format!("sector {sector} is torn: {:?}…", &bytes[..16])) }
    };
    (0..).zip(bytes.chunks(SECTOR_BYTES as usize)).map(label).collect()
}
