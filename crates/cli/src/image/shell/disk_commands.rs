//! Commands on disks, partitions and mounts.

use super::commands;
use super::new_disk::{self, Plan, usual_kind};
use super::session::Session;
use super::verbs::{text, truth};
use crate::image::at_terminal::AtTerminal;
use crate::image::named_image;
use crate::image::whole::create;
use crate::terminal::print;
use crate::usage_error::{UsageError, UsageLines};
use anyhow::{Context, Result, bail};
use blockyard_appliance::tools::{BLKID, RESIZE2FS, TUNE2FS, ToolCall, WIPEFS};
use blockyard_block::partition_table::{self, EntryChange, Guid, Partition, PartitionKind, Scheme, TableChange};
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{Preallocation, printable, private_directory, shown};
use blockyard_image::volumes::stacks::LUKS;
use blockyard_image::volumes::tools::{self, complaint};
use blockyard_image::whole::NewImage;
use blockyard_protocol::appliance::{MountPoint, Volume};
use blockyard_protocol::pattern::{is_pattern, matches};
use blockyard_protocol::volume_name::lettered;
use clap::Parser;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// `key:value` arguments.
pub fn options(words: &[OsString]) -> Result<Vec<(&str, &str)>> {
    words
        .iter()
        .map(|word| {
            let pair = text(word)?.split_once(':');
            pair.ok_or_else(|| UsageError(format!("{}: an option is KEY:VALUE", shown(word))).into())
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
    let mut name = Cow::Borrowed(text(&words[0])?);
    let mut named = named_image::parse(&name, None)?;
    for (key, value) in options(&words[1..])? {
        match key {
            "readonly" => read_only |= truth(OsStr::new(value))?,
            "format" => {
                named = named.with_format_named(value).map_err(UsageLines::from)?;
                name = Cow::Owned(named.to_string());
            }
            // Names and caching of QEMU's.
            "iface" | "name" | "label" | "cachemode" | "discard" => {}
            _ => bail!(UsageError(format!("{key}: a disk has readonly:true and format:raw|qcow2"))),
        }
    }
    session.add(&name, named, None, read_only)
}

/// `sparse` and `alloc`: of exactly so many bytes, where `create` makes whole sectors.
pub fn make(session: &mut Session, words: &[OsString], allocated: bool) -> Result<()> {
    let (name, size_bytes) = (text(&words[0])?, super::verbs::bytes(&words[1])?);
    let preallocation = if allocated { Preallocation::Falloc } else { Preallocation::Off };
    let image = NewImage { preallocation, ..NewImage::new(name, Format::Raw, size_bytes) };
    // What is added is the file that was made, whatever has its name by then.
    let file = image.make(&AtTerminal::catch()?)?.commit_open(true)?;
    let named = DiskSpecification::of_file(name).with_format(Format::Raw).map_err(UsageLines::from)?;
    session.add(&named.to_string(), named, Some(&file), false)
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
    let line = Line::try_parse_from(words).map_err(|error| UsageLines(commands::sentence(&error)))?;
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
    let index = match lettered(text(name)?) {
        Some((disk, "")) => disk as usize,
        _ => bail!("{} is no disk: they are {} and so on", shown(name), disk_name(0)),
    };
    if index >= session.drives().len() {
        bail!("there is no disk {}: {} were added", shown(name), session.drives().len());
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
    session.open_stacks()?;
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
    session.open_stacks()?;
    let volume = session.image()?.volume(Some(text(&words[0])?))?;
    print(&printable(what(&volume)))
}

/// `blockdev-getsize64` and `blockdev-getsz`: in units of so many bytes.
pub fn size(session: &mut Session, words: &[OsString], unit: u64) -> Result<()> {
    if let Ok(index) = disk_index(session, &words[0]) {
        return print(&(session.drives()[index].image.disk.geometry().capacity_bytes / unit).to_string());
    }
    session.open_stacks()?;
    let volume = session.image()?.volume(Some(text(&words[0])?))?;
    print(&(volume.size / unit).to_string())
}

fn scheme(word: &OsStr) -> Result<Scheme> {
    match word.to_str() {
        Some("gpt" | "efi") => Ok(Scheme::Gpt),
        Some("mbr" | "msdos" | "dos") => Ok(Scheme::Mbr),
        _ => bail!(UsageError(format!("{}: a partition table is gpt or mbr", shown(word)))),
    }
}

/// What guestfish counts.
const SECTOR_BYTES: u64 = 512;

/// `part-init`, and `part-disk` with one partition.
pub fn part_init(session: &mut Session, words: &[OsString], plan: fn(Scheme) -> Plan) -> Result<()> {
    let (index, scheme) = (disk_index(session, &words[0])?, scheme(&words[1])?);
    new_disk::write(session, index, &plan(scheme))
}

/// The byte at which a sector begins; negative ones are counted from the disk's end.
fn sector_start(session: &Session, index: usize, word: &OsStr) -> Result<u64> {
    let bytes = session.drives()[index].image.disk.geometry().capacity_bytes;
    let sectors = i64::try_from(bytes / SECTOR_BYTES).unwrap_or(i64::MAX);
    let number = text(word)?.parse::<i64>();
    let sector = number.map_err(|_| UsageError(format!("{} is no number of a sector", shown(word))))?;
    let absolute = if sector < 0 { sectors.saturating_add(sector) } else { sector };
    match absolute {
        0.. if absolute < sectors => Ok(absolute as u64 * SECTOR_BYTES),
        _ => bail!("there is no sector {sector}: the disk has {sectors}"),
    }
}

/// `part-add`.
pub fn part_add(session: &mut Session, words: &[OsString]) -> Result<()> {
    let index = disk_index(session, &words[0])?;
    match text(&words[1])? {
        "primary" | "p" => {}
        other => bail!("{other} partitions cannot be made here: primary ones can"),
    }
    let start = sector_start(session, index, &words[2])?;
    let end = sector_start(session, index, &words[3])? + SECTOR_BYTES;
    let scheme =
        table_of(session, &words[0])?.scheme.context("the disk has no partition table: `part-init` makes one")?;
    new_disk::write(session, index, &Plan::Change(TableChange::Add(start..end, usual_kind(scheme)?)))
}

fn table_of(session: &mut Session, name: &OsStr) -> Result<partition_table::PartitionTable> {
    let index = disk_index(session, name)?;
    // What the appliance has written may not have come here yet.
    session.sync()?;
    partition_table::read(&*session.drives()[index].image.disk).with_context(|| shown(name).to_string())
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
        None => bail!("{}: it has no partition table", shown(&words[0])),
    }
}

/// What `part-set-…` and their like do to a partition: out of their arguments behind its number.
pub type PartChange = fn(&Session, usize, Scheme, &[OsString]) -> Result<EntryChange>;

/// `part-set-name` and its like.
pub fn part_set(session: &mut Session, words: &[OsString], change: PartChange) -> Result<()> {
    let (index, number) = (disk_index(session, &words[0])?, number(&words[1])?);
    let scheme = table_of(session, &words[0])?.scheme.unwrap_or(Scheme::Gpt);
    let change = change(session, index, scheme, &words[2..])?;
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    new_disk::write(session, index, &Plan::Change(TableChange::Entry(number, change)))
}

/// `part-resize`: the last sector.
pub fn new_end(session: &Session, index: usize, _: Scheme, words: &[OsString]) -> Result<EntryChange> {
    Ok(EntryChange::End(sector_start(session, index, &words[0])? + SECTOR_BYTES))
}

/// `part-set-gpt-type` and `part-set-mbr-id`.
pub fn new_kind(_: &Session, _: usize, scheme: Scheme, words: &[OsString]) -> Result<EntryChange> {
    let word = text(&words[0])?;
    let kind = PartitionKind::of_word(word, scheme).with_context(|| format!("{word} is no type of such a table"))?;
    Ok(EntryChange::Kind(kind))
}

/// `part-set-gpt-attributes`.
pub fn new_attributes(_: &Session, _: usize, _: Scheme, words: &[OsString]) -> Result<EntryChange> {
    let word = text(&words[0])?;
    let number = match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.parse(),
    };
    Ok(EntryChange::Attributes(number.map_err(|_| UsageError(format!("{word} is no number of attributes")))?))
}

/// A GUID.
pub fn guid(word: &OsStr) -> Result<Guid> {
    let parsed = text(word)?.parse::<Guid>();
    parsed.map_err(|error| UsageError(format!("{}: {error}", shown(word))).into())
}

/// `part-set-disk-guid` and its like, and `part-expand-gpt`.
pub fn part_change(session: &mut Session, words: &[OsString], change: TableChange) -> Result<()> {
    let index = disk_index(session, &words[0])?;
    new_disk::write(session, index, &Plan::Change(change))
}

/// `part-get-disk-guid`.
pub fn disk_guid(session: &mut Session, words: &[OsString]) -> Result<()> {
    match table_of(session, &words[0])?.disk_guid {
        Some(guid) => print(&guid.to_string()),
        None => bail!("{}: it has no GPT", shown(&words[0])),
    }
}

/// `part-get-mbr-part-type`.
pub fn mbr_place(partition: &Partition) -> String {
    match (partition.is_logical(), partition.kind.is_extended()) {
        (true, _) => "logical",
        (_, true) => "extended",
        _ => "primary",
    }
    .to_owned()
}

fn number(word: &OsStr) -> Result<usize> {
    let number = text(word)?.parse();
    number.map_err(|_| UsageError(format!("{} is no number of a partition", shown(word))).into())
}

/// `part-get-name` and its like.
pub fn part_get(session: &mut Session, words: &[OsString], what: fn(&Partition) -> String) -> Result<()> {
    let (number, table) = (number(&words[1])?, table_of(session, &words[0])?);
    let found = table.partitions.iter().find(|partition| partition.number as usize == number);
    match found {
        Some(partition) => print(&printable(&what(partition))),
        None => bail!("{}: there is no partition {number}", shown(&words[0])),
    }
}

/// Whether a machine boots from a partition: MBR's active flag; in a GPT an EFI system partition, or bit 2 (UEFI 2.10, 5.3.3).
pub fn is_bootable(partition: &Partition) -> String {
    let is = match partition.kind {
        PartitionKind::Mbr(_) => partition.attributes & 0x80 != 0,
        kind => partition.attributes & 4 != 0 || PartitionKind::of_word("esp", Scheme::Gpt) == Some(kind),
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

/// `blkid`: what blkid(8) finds on a device, with its names.
pub fn identify(session: &mut Session, words: &[OsString]) -> Result<()> {
    /// Its exit status when there is nothing that it knows.
    const NOTHING: u32 = 2;
    session.open_stacks()?;
    let call = ToolCall::new().arguments(["-c", "/dev/null", "-p", "-i", "-o", "export"]);
    let end = session.image()?.run_tool(&BLKID, call.device(text(&words[0])?))?;
    if ![Some(0), Some(NOTHING)].contains(&end.status) {
        bail!("{}", complaint(&BLKID, &end));
    }
    let said = tools::text(&end.output);
    let mut known = said.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| *key != "DEVNAME");
    known.try_for_each(|(key, value)| print(&format!("{key}: {value}")))
}

/// `tune2fs-l`: what tune2fs(8) says of an ext file system.
pub fn list_superblock(session: &mut Session, words: &[OsString]) -> Result<()> {
    session.open_stacks()?;
    let call = ToolCall::new().argument("-l").device(text(&words[0])?);
    let said = session.image()?.run_tool_well(&TUNE2FS, call)?;
    let mut known = said.lines().filter_map(|line| line.split_once(':'));
    known.try_for_each(|(key, value)| print(&format!("{}: {}", key.trim(), value.trim())))
}

/// `wipefs`: nothing says any more what is on a device.
pub fn wipe_signatures(session: &mut Session, words: &[OsString]) -> Result<()> {
    let call = ToolCall::new().arguments(["--all", "--force"]).device(text(&words[0])?).changes_devices();
    Ok(session.changing()?.run_tool_well(&WIPEFS, call).map(drop)?)
}

/// `scratch`: a disk that is gone when the session ends.
pub fn scratch(session: &mut Session, words: &[OsString]) -> Result<()> {
    // Who opens it now goes on seeing what is written to it.
    let directory = private_directory(|_| true).context("making a directory")?;
    let path = directory.path().join("scratch.img");
    // The session has it open: it needs no name.
    make(session, &[path.into(), words[0].clone()], false)
}

/// `mount-loop`: the file system in a file of what is mounted.
pub fn mount_loop(session: &mut Session, words: &[OsString]) -> Result<()> {
    let Some(path) = words[0].to_str() else {
        bail!("{} is no text, so it cannot be mounted", shown(&words[0]));
    };
    let device = OsString::from(format!("loop:/{}", path.trim_start_matches('/')));
    mount(session, &device, &words[1], "", "")
}

/// `glob`: a command for each device that its patterns stand for. What is a path may be a pattern anyway.
pub fn glob(session: &mut Session, words: &[OsString]) -> Result<()> {
    let is_device = |word: &OsString| word.as_bytes().starts_with(b"/dev/") && is_pattern(word.as_bytes());
    if !words.iter().any(is_device) {
        return super::commands::perform_words(session, words);
    }
    session.open_stacks()?;
    let disks = (0..session.drives().len()).map(disk_name);
    let volumes = session.image()?.volumes()?;
    let mut devices: Vec<_> = disks.chain(volumes.iter().map(|volume| their_name(&volume.device))).collect();
    devices.sort();
    devices.dedup();
    let mut lines = vec![Vec::new()];
    for word in words {
        let choices: Vec<OsString> = match is_device(word) {
            true => {
                let fits = |device: &&String| fits(word.as_bytes(), device.as_bytes());
                devices.iter().filter(fits).map(OsString::from).collect()
            }
            false => vec![word.clone()],
        };
        if choices.is_empty() {
            bail!("{}: no device matches", shown(word));
        }
        let longer = |line: &Vec<OsString>| {
            let with = |choice: &OsString| [&line[..], std::slice::from_ref(choice)].concat();
            choices.iter().map(with).collect::<Vec<_>>()
        };
        lines = lines.iter().flat_map(longer).collect();
    }
    lines.iter().try_for_each(|line| super::commands::perform_words(session, line))
}

/// Whether a pattern stands for a device: name by name, as for a path.
fn fits(pattern: &[u8], device: &[u8]) -> bool {
    let (steps, names) = (pattern.split(|&byte| byte == b'/'), device.split(|&byte| byte == b'/'));
    steps.clone().count() == names.clone().count() && steps.zip(names).all(|(step, name)| matches(step, name))
}

/// `findfs-label` and `findfs-uuid`.
pub fn find(session: &mut Session, words: &[OsString], of: fn(&Volume) -> &str) -> Result<()> {
    let wanted = text(&words[0])?;
    session.open_stacks()?;
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
        return Ok(image.clear_start(device)?);
    }
    let size = image.volume(Some(device))?.size;
    Ok(image.write_zeros(device, size)?)
}

/// `resize2fs`, to a size or to that of the device.
pub fn resize_ext(session: &mut Session, words: &[OsString]) -> Result<()> {
    let size = words.get(1).map(|word| super::verbs::bytes(word)).transpose()?;
    let call = ToolCall::new().device(text(&words[0])?).changes_devices();
    let call = call.arguments(size.map(|bytes| format!("{}K", bytes / 1024)));
    Ok(session.changing()?.run_tool_well(&RESIZE2FS, call).map(drop)?)
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
        bail!(UsageError(format!("{}: a directory begins with /", shown(directory))));
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
    if found { Ok(()) } else { bail!("{}: it is not mounted", shown(name)) }
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
    match point.device.starts_with("loop:") {
        true => printable(&point.device),
        false => their_name(point.device.strip_prefix("/dev/").unwrap_or(&point.device)),
    }
}
