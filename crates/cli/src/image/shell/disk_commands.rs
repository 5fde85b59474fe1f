//! Commands on disks, partitions and mounts.

use super::commands;
use super::new_disk::{self, NewTable};
use super::session::Session;
use super::verbs::{text, truth};
use crate::image::create;
use crate::image::layers::LUKS;
use crate::{UsageError, print};
use anyhow::{Context, Result, bail};
use blockyard_appliance::tools::{RESIZE2FS, ToolCall};
use blockyard_block::partition_table::{self, Partition, PartitionKind, Scheme};
use blockyard_block::printable;
use blockyard_protocol::appliance::{MountPoint, Volume};
use clap::Parser;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// `key:value` arguments.
pub fn options(words: &[OsString]) -> Result<Vec<(&str, &str)>> {
    words
        .iter()
        .map(|word| {
            let pair = text(word)?.split_once(':');
            pair.ok_or_else(|| UsageError(format!("{}: an option is KEY:VALUE", word.display())).into())
        })
        .collect()
}

/// `add`.
pub fn add(session: &mut Session, words: &[OsString]) -> Result<()> {
    add_as(session, words, false)
}

/// `add-ro`.
pub fn add_read_only(session: &mut Session, words: &[OsString]) -> Result<()> {
    add_as(session, words, true)
}

fn add_as(session: &mut Session, words: &[OsString], mut read_only: bool) -> Result<()> {
    let mut specification = text(&words[0])?.to_owned();
    for (key, value) in options(&words[1..])? {
        match key {
            "readonly" => read_only |= truth(OsStr::new(value))?,
            "format" => specification.push_str(&format!(",format={value}")),
            // Names and caching of QEMU's.
            "iface" | "name" | "label" | "cachemode" | "discard" => {}
            _ => bail!(UsageError(format!("{key}: a disk has readonly:true and format:raw|qcow2"))),
        }
    }
    session.add(&specification, read_only)
}

/// `sparse` and `alloc`.
pub fn make(session: &mut Session, words: &[OsString], allocated: bool) -> Result<()> {
    let preallocation = if allocated { "preallocation=falloc" } else { "preallocation=off" };
    create_image(&["-f", "raw", "-o", preallocation], &words[0], &words[1])?;
    session.add(&format!("{},format=raw", text(&words[0])?.replace(',', ",,")), false)
}

/// `disk-create`.
pub fn create(_: &mut Session, words: &[OsString]) -> Result<()> {
    let mut arguments = vec!["-f".to_owned(), text(&words[1])?.to_owned()];
    for (key, value) in options(&words[3..])? {
        match key {
            "preallocation" if value == "sparse" => {}
            "preallocation" => arguments.extend(["-o".to_owned(), format!("preallocation={value}")]),
            "clustersize" => arguments.extend(["-o".to_owned(), format!("cluster_size={value}")]),
            "compat" => arguments.extend(["-o".to_owned(), format!("compat={value}")]),
            "backingfile" => arguments.extend(["-b".to_owned(), value.to_owned()]),
            "backingformat" => arguments.extend(["-F".to_owned(), value.to_owned()]),
            _ => bail!(UsageError(format!(
                "{key}: preallocation, backingfile, backingformat, clustersize and compat are known"
            ))),
        }
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    create_image(&arguments, &words[0], &words[2])
}

fn create_image(options: &[&str], path: &OsStr, size: &OsStr) -> Result<()> {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        create: create::CreateArgs,
    }
    let mut words: Vec<OsString> = options.iter().map(OsString::from).collect();
    words.extend(["-q".into(), "--".into(), path.to_owned()]);
    // guestfish has -1 for the backing file's size.
    words.extend((size != "-1").then(|| size.to_owned()));
    let line = Line::try_parse_from(words).map_err(|error| UsageError(commands::sentence(&error)))?;
    create::run(&line.create)
}

/// guestfish's name of a device.
pub fn their_name(device: &str) -> String {
    match device.strip_prefix("vd") {
        Some(rest) if !rest.contains('/') && rest.starts_with(|letter: char| letter.is_ascii_lowercase()) => {
            format!("/dev/sd{rest}")
        }
        _ => format!("/dev/{}", printable(device)),
    }
}

fn disk_name(index: usize) -> String {
    format!("/dev/sd{}", char::from(b'a' + (index % 26) as u8))
}

/// The number of the disk that somebody calls so.
fn disk_index(session: &Session, name: &OsStr) -> Result<usize> {
    let short = text(name)?.trim_start_matches("/dev/");
    let letter = ["sd", "vd", "hd", "xvd"].iter().find_map(|prefix| short.strip_prefix(prefix));
    let index = match letter.map(str::as_bytes) {
        Some([letter @ b'a'..=b'z']) => usize::from(letter - b'a'),
        _ => bail!("{} is no disk: they are {} and so on", name.display(), disk_name(0)),
    };
    if index >= session.drives().len() {
        bail!("there is no disk {}: {} were added", name.display(), session.drives().len());
    }
    Ok(index)
}

/// `list-drives`.
pub fn list_drives(session: &mut Session, _: &[OsString]) -> Result<()> {
    let mut drives = session.drives().iter().enumerate();
    let line = |(index, drive): (usize, &super::session::Drive)| {
        let read_only = if drive.read_only { " (read-only)" } else { "" };
        print(&format!("{}: {}{read_only}", disk_name(index), drive.image.name))
    };
    drives.try_for_each(line)
}

/// `list-devices`.
pub fn list_devices(session: &mut Session, _: &[OsString]) -> Result<()> {
    (0..session.drives().len()).try_for_each(|index| print(&disk_name(index)))
}

/// `list-partitions`.
pub fn list_partitions(session: &mut Session, _: &[OsString]) -> Result<()> {
    let volumes = session.image()?.volumes()?;
    let is_partition = |volume: &&Volume| {
        volume.device.starts_with("vd") && volume.device.ends_with(|last: char| last.is_ascii_digit())
    };
    volumes.iter().filter(is_partition).try_for_each(|volume| print(&their_name(&volume.device)))
}

/// `list-filesystems`.
pub fn list_file_systems(session: &mut Session, _: &[OsString]) -> Result<()> {
    session.open_layers()?;
    for volume in session.image()?.volumes()? {
        // What is part of something else is no file system.
        if volume.used || volume.r#type.ends_with("_member") || volume.r#type == LUKS {
            continue;
        }
        let kind = if volume.r#type.is_empty() { "unknown" } else { &volume.r#type };
        print(&format!("{}: {}", their_name(&volume.device), printable(kind)))?;
    }
    Ok(())
}

/// Prints what is known of a volume.
pub fn of_volume(session: &mut Session, words: &[OsString], what: fn(&Volume) -> &str) -> Result<()> {
    session.open_layers()?;
    let volume = session.image()?.volume(Some(text(&words[0])?))?;
    print(&printable(what(&volume)))
}

/// `blockdev-getsize64` and `blockdev-getsz`: in units of so many bytes.
pub fn size(session: &mut Session, words: &[OsString], unit: u64) -> Result<()> {
    if let Ok(index) = disk_index(session, &words[0]) {
        return print(&(session.drives()[index].image.disk.geometry().capacity_bytes / unit).to_string());
    }
    session.open_layers()?;
    let volume = session.image()?.volume(Some(text(&words[0])?))?;
    print(&(volume.size / unit).to_string())
}

fn scheme(word: &OsStr) -> Result<Scheme> {
    match word.to_str() {
        Some("gpt" | "efi") => Ok(Scheme::Gpt),
        Some("mbr" | "msdos" | "dos") => Ok(Scheme::Mbr),
        _ => bail!(UsageError(format!("{}: a partition table is gpt or mbr", word.display()))),
    }
}

/// `part-init`.
pub fn part_init(session: &mut Session, words: &[OsString]) -> Result<()> {
    let (index, scheme) = (disk_index(session, &words[0])?, scheme(&words[1])?);
    new_disk::write(session, index, NewTable::new(scheme), true)
}

/// `part-disk`.
pub fn part_disk(session: &mut Session, words: &[OsString]) -> Result<()> {
    let (index, scheme) = (disk_index(session, &words[0])?, scheme(&words[1])?);
    let disk = &session.drives()[index].image.disk;
    let table = NewTable::whole(scheme, &**disk)?;
    new_disk::write(session, index, table, true)
}

/// `part-add`.
pub fn part_add(session: &mut Session, words: &[OsString]) -> Result<()> {
    let index = disk_index(session, &words[0])?;
    match text(&words[1])? {
        "primary" | "p" => {}
        other => bail!("{other} partitions cannot be made here: primary ones can"),
    }
    let Some(mut table) = session.tables.get(&index).cloned() else {
        bail!("{}: begin the table with part-init: one that was there before is left as it is", words[0].display());
    };
    let sector = |word: &OsStr| {
        let number = text(word)?.parse::<i64>();
        number.map_err(|_| UsageError(format!("{} is no number of a sector", word.display())).into())
    };
    let (start, end): (i64, i64) = match (sector(&words[2]), sector(&words[3])) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let disk = &session.drives()[index].image.disk;
    table.add(&**disk, start, end)?;
    new_disk::write(session, index, table, false)
}

fn table_of(session: &mut Session, name: &OsStr) -> Result<partition_table::PartitionTable> {
    let index = disk_index(session, name)?;
    // What the appliance has written may not have come here yet.
    session.sync()?;
    partition_table::read(&*session.drives()[index].image.disk).with_context(|| name.display().to_string())
}

/// `part-list`, with guestfish's fields.
pub fn part_list(session: &mut Session, words: &[OsString]) -> Result<()> {
    for (index, partition) in table_of(session, &words[0])?.partitions.iter().enumerate() {
        let range = &partition.range_bytes;
        print(&format!(
            "[{index}] = {{\n  part_num: {}\n  part_start: {}\n  part_end: {}\n  part_size: {}\n}}",
            partition.number,
            range.start,
            range.end - 1,
            range.end - range.start
        ))?;
    }
    Ok(())
}

/// `part-get-parttype`.
pub fn part_type(session: &mut Session, words: &[OsString]) -> Result<()> {
    match table_of(session, &words[0])?.scheme {
        Some(Scheme::Gpt) => print("gpt"),
        Some(Scheme::Mbr) => print("msdos"),
        None => bail!("{}: it has no partition table", words[0].display()),
    }
}

/// What `part-set-*` changes of a partition.
pub enum PartChange {
    Name,
    Kind,
    Bootable,
}

/// `part-set-name` and its like.
pub fn part_set(session: &mut Session, words: &[OsString], change: PartChange) -> Result<()> {
    let index = disk_index(session, &words[0])?;
    let Some(mut table) = session.tables.get(&index).cloned() else {
        bail!("{}: begin the table with part-init: one that was there before is left as it is", words[0].display());
    };
    let number = number(&words[1])?;
    match change {
        PartChange::Name => table.partition(number)?.name = text(&words[2])?.to_owned(),
        PartChange::Kind => {
            let kind = table.kind(text(&words[2])?)?;
            table.partition(number)?.kind = kind;
        }
        PartChange::Bootable => table.partition(number)?.is_bootable = truth(&words[2])?,
    }
    new_disk::write(session, index, table, false)
}

fn number(word: &OsStr) -> Result<usize> {
    let number = text(word)?.parse();
    number.map_err(|_| UsageError(format!("{} is no number of a partition", word.display())).into())
}

/// `part-get-name` and its like.
pub fn part_get(session: &mut Session, words: &[OsString], what: fn(&Partition) -> String) -> Result<()> {
    let (number, table) = (number(&words[1])?, table_of(session, &words[0])?);
    let found = table.partitions.iter().find(|partition| partition.number as usize == number);
    match found {
        Some(partition) => print(&printable(&what(partition))),
        None => bail!("{}: there is no partition {number}", words[0].display()),
    }
}

/// Whether a BIOS boots from a partition: MBR's active flag, GPT's bit 2 (UEFI 2.10, 5.3.3).
pub fn is_bootable(partition: &Partition) -> String {
    let is = match partition.kind {
        PartitionKind::Mbr(_) => partition.attributes & 0x80 != 0,
        PartitionKind::Gpt(_) => partition.attributes & 4 != 0,
    };
    is.to_string()
}

/// An MBR's type as a number, as guestfish has it.
pub fn mbr_id(partition: &Partition) -> String {
    match partition.kind {
        PartitionKind::Mbr(id) => format!("{id:#x}"),
        PartitionKind::Gpt(guid) => guid.to_string(),
    }
}

/// `part-to-dev` and `part-to-partnum`.
pub fn of_partition(_: &mut Session, words: &[OsString], wants_disk: bool) -> Result<()> {
    let name = text(&words[0])?;
    let disk = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = &name[disk.len()..];
    // nvme0n1p1 and md0p1 have a letter between.
    let disk = disk.strip_suffix('p').filter(|disk| disk.ends_with(|last: char| last.is_ascii_digit())).unwrap_or(disk);
    match (number.is_empty(), wants_disk) {
        (true, _) => bail!("{name} is no partition"),
        (false, true) => print(disk),
        (false, false) => print(number),
    }
}

/// `blkid`: what is known of a volume.
pub fn identify(session: &mut Session, words: &[OsString]) -> Result<()> {
    session.open_layers()?;
    let volume = session.image()?.volume(Some(text(&words[0])?))?;
    let known = [("LABEL", &volume.label), ("UUID", &volume.uuid), ("TYPE", &volume.r#type)];
    let mut known = known.into_iter().filter(|(_, value)| !value.is_empty());
    known.try_for_each(|(key, value)| print(&format!("{key}: {}", printable(value))))
}

/// `findfs-label` and `findfs-uuid`.
pub fn find(session: &mut Session, words: &[OsString], of: fn(&Volume) -> &str) -> Result<()> {
    let wanted = text(&words[0])?;
    session.open_layers()?;
    let volumes = session.image()?.volumes()?;
    match volumes.iter().filter(|volume| !volume.used).find(|volume| of(volume) == wanted) {
        Some(volume) => print(&their_name(&volume.device)),
        None => bail!("no file system has {wanted}"),
    }
}

/// `nr-devices`.
pub fn count_devices(session: &mut Session, _: &[OsString]) -> Result<()> {
    print(&session.drives().len().to_string())
}

/// `device-index`.
pub fn index_of_device(session: &mut Session, words: &[OsString]) -> Result<()> {
    print(&disk_index(session, &words[0])?.to_string())
}

/// `blockdev-getss`: bytes in a sector.
pub fn sector_bytes(session: &mut Session, words: &[OsString]) -> Result<()> {
    let disk = text(&words[0])?.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let index = disk_index(session, OsStr::new(disk))?;
    print(&session.drives()[index].image.disk.geometry().logical_block_bytes.to_string())
}

/// `zero` and `zero-device`.
pub fn zero(session: &mut Session, words: &[OsString], whole: bool) -> Result<()> {
    let device = text(&words[0])?;
    let image = session.changing()?;
    if !whole {
        return image.clear_start(device);
    }
    let size = image.volume(Some(device))?.size;
    image.write_zeros(device, size)
}

/// `resize2fs`, to a size or to that of the device.
pub fn resize_ext(session: &mut Session, words: &[OsString]) -> Result<()> {
    let size = words.get(1).map(|word| super::verbs::bytes(word)).transpose()?;
    let call = ToolCall::new().device(text(&words[0])?).changes_devices();
    let call = call.arguments(size.map(|bytes| format!("{}K", bytes / 1024)));
    session.changing()?.run_tool_well(&RESIZE2FS, call).map(drop)
}

/// `zerofree`: the free blocks of a file system that is not mounted.
pub fn zero_free(session: &mut Session, words: &[OsString]) -> Result<()> {
    if !session.points().is_empty() {
        bail!("something is mounted: `umount-all` first, or `zero-free` for what is mounted");
    }
    mount(session, &words[0], OsStr::new("/"), "", "")?;
    let done = super::commands::perform_words(session, &["zero-free".into()]);
    let unmounted = session.unmount_all();
    done.and(unmounted)
}

/// `mount` and its like.
pub fn mount(session: &mut Session, device: &OsStr, directory: &OsStr, options: &str, kind: &str) -> Result<()> {
    if !directory.as_bytes().starts_with(b"/") {
        bail!(UsageError(format!("{}: a directory begins with /", directory.display())));
    }
    let device = text(device)?;
    let on_read_only = |session: &Session| {
        let short = device.trim_start_matches("/dev/");
        let disk = short.trim_end_matches(|letter: char| letter.is_ascii_digit());
        disk_index(session, OsStr::new(disk)).is_ok_and(|index| session.drives()[index].read_only)
    };
    let mut options = options.to_owned();
    if on_read_only(session) && !options.split(',').any(|option| option == "ro") {
        options = if options.is_empty() { "ro".to_owned() } else { format!("{options},ro") };
    }
    session.mount(MountPoint {
        device: device.to_owned(),
        directory: directory.as_bytes().to_vec(),
        r#type: kind.to_owned(),
        options: options.into_bytes(),
        note: String::new(),
    })
}

/// `umount`.
pub fn unmount(session: &mut Session, words: &[OsString]) -> Result<()> {
    let name = &words[0];
    let points = session.points().to_vec();
    let mut found = points.iter().find(|point| point.directory == name.as_bytes());
    if found.is_none() {
        // A device has several names.
        let image = session.image()?;
        let mut device_of = |name: &str| image.volume(Some(name)).ok().map(|volume| volume.device);
        let wanted = text(name).ok().filter(|name| !name.is_empty()).and_then(&mut device_of);
        found = points.iter().find(|point| wanted.is_some() && device_of(&point.device) == wanted);
    }
    let found = match found {
        Some(found) => session.unmount(|point| point.directory == found.directory)?,
        None => false,
    };
    if found { Ok(()) } else { bail!("{}: it is not mounted", name.display()) }
}

/// `mounts`.
pub fn mounts(session: &mut Session, _: &[OsString]) -> Result<()> {
    session.points().iter().try_for_each(|point| print(&device_of(point)))
}

/// `mountpoints`.
pub fn mount_points(session: &mut Session, _: &[OsString]) -> Result<()> {
    let line =
        |point: &MountPoint| format!("{}: {}", device_of(point), printable(&String::from_utf8_lossy(&point.directory)));
    session.points().iter().try_for_each(|point| print(&line(point)))
}

fn device_of(point: &MountPoint) -> String {
    their_name(point.device.strip_prefix("/dev/").unwrap_or(&point.device))
}
