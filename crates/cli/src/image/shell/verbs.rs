//! The shell's own commands, and guestfish's with its arguments (guestfish(1)).

use super::commands;
use super::disk_commands as disk;
use super::file_queries::{self as files, piped, summed};
use super::new_disk::Plan;
use super::session::Session;
use super::volume_commands as volumes;
use crate::terminal::print;
use crate::usage_error::UsageError;
use anyhow::{Context, Result, bail};
use blockyard_block::partition_table::{EntryChange, Guid, TableChange};
use blockyard_block::{printable, shown, size};
use blockyard_image::Access;
use blockyard_image::files::file_type::{is_directory, is_link, is_regular};
use blockyard_image::guest::{image_path, path_of};
use blockyard_protocol::appliance::{Entry, Fill, MakeNode, Operation, SetAttribute, Store, Touch};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A command.
pub struct Verb {
    /// What it is called; the first is its usual name.
    pub names: &'static [&'static str],
    /// What follows: `X` is needed, `[X]` is not, `X…` may be repeated, and so may `[X]…`.
    pub arguments: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// What it needs the image for.
    pub access: Access,
    /// How.
    pub action: Action,
}

/// How a command is done.
#[derive(Clone, Copy)]
pub enum Action {
    /// As another: `$1` to `$3` stand for the arguments, `$*` for all of them.
    Words(&'static [&'static str]),
    /// By calling something that has checked arguments.
    Call(fn(&mut Session, &[OsString]) -> Result<()>),
}

use Action::{Call, Words};

const fn verb(names: &'static [&'static str], arguments: &'static str, summary: &'static str, action: Action) -> Verb {
    Verb { names, arguments, summary, access: Access::Write, action }
}

/// A command that changes nothing.
const fn tells(names: &'static [&'static str], arguments: &'static str, summary: &'static str, action: Action) -> Verb {
    Verb { access: Access::Read, ..verb(names, arguments, summary, action) }
}

/// All of them, in the order in which docs/shell.md has them.
pub const VERBS: &[Verb] = &[
    tells(&["help"], "[COMMAND]", "List the commands, or say what one does", Call(help)),
    verb(&["exit", "quit", "q"], "", "End; what was changed is on stable storage then", Call(exit)),
    verb(&["abort"], "", "End, and with --atomic leave the image as it was", Call(abort)),
    verb(&["lcd"], "DIR", "Change to a directory of the host", Call(lcd)),
    tells(&["echo"], "[WORD]…", "Print words", Call(echo)),
    verb(&["time"], "COMMAND…", "Run a command and say how long it took", Call(time)),
    verb(
        &["glob"],
        "COMMAND…",
        "Run a command for each device that its patterns, such as /dev/sda*, stand for; paths are patterns anyway",
        Call(disk::glob),
    ),
    verb(
        &["setenv"],
        "NAME VALUE",
        "Set an environment variable for the host's commands: not possible here",
        Call(setenv),
    ),
    tells(&["version"], "", "Say which version this is", Call(version)),
    verb(
        &["set-verbose", "verbose"],
        "true|false",
        "Show what the appliance's kernel says, from the next boot on",
        Call(set_verbose),
    ),
    verb(
        &["set-trace", "trace", "set-network", "set-autosync", "set-progress-bars"],
        "true|false",
        "Accepted, and without effect here",
        Call(|_, _| Ok(())),
    ),
    verb(
        &["add", "add-drive"],
        "IMAGE [KEY:VALUE]…",
        "Add a disk: readonly:true and format:raw|qcow2 are understood",
        Call(disk::add),
    ),
    verb(&["add-ro", "add-drive-ro"], "IMAGE [KEY:VALUE]…", "Add a disk that is only read", Call(disk::add_read_only)),
    verb(
        &["sparse"],
        "FILE SIZE",
        "Make a sparse raw image, and add it",
        Call(|session, words| disk::make(session, words, false)),
    ),
    verb(
        &["alloc", "allocate"],
        "FILE SIZE",
        "Make a raw image with all its space, and add it",
        Call(|session, words| disk::make(session, words, true)),
    ),
    verb(&["scratch"], "SIZE", "Add a disk that is gone at the end", Call(disk::scratch)),
    verb(
        &["disk-create"],
        "FILE FORMAT SIZE [KEY:VALUE]…",
        "Make an image: preallocation:off|sparse|metadata|full, backingfile:FILE, backingformat:FORMAT, clustersize:N",
        Call(disk::create),
    ),
    verb(
        &["run", "launch"],
        "",
        "Boot the appliance, which the first command that needs it does anyway",
        Call(|session, _| session.image().map(drop)),
    ),
    verb(&["reopen"], "", "Unmount, end the appliance and forget the disks", Call(|session, _| session.reopen())),
    verb(&["shutdown", "close", "kill-subprocess"], "", "Unmount, and end the appliance", Call(shutdown)),
    verb(&["smp", "set-smp"], "N", "Accepted: the appliance has one CPU", Call(smp)),
    verb(&["memsize", "set-memsize"], "MIB", "The appliance's memory, from the next boot on", Call(memsize)),
    tells(
        &["list-drives", "debug-drives"],
        "",
        "List the disks that were added, with their names",
        Call(disk::list_drives),
    ),
    tells(&["list-devices"], "", "List the disks' devices", Call(disk::list_devices)),
    tells(&["list-partitions"], "", "List the partitions' devices", Call(disk::list_partitions)),
    tells(&["list-filesystems"], "", "List the devices with what is on them", Call(disk::list_file_systems)),
    tells(
        &["vfs-type"],
        "DEVICE",
        "Say which file system is on a device",
        Call(|session, words| disk::of_volume(session, words, |volume| &volume.r#type)),
    ),
    tells(
        &["vfs-label"],
        "DEVICE",
        "Say a file system's label",
        Call(|session, words| disk::of_volume(session, words, |volume| &volume.label)),
    ),
    tells(
        &["vfs-uuid"],
        "DEVICE",
        "Say a file system's UUID",
        Call(|session, words| disk::of_volume(session, words, |volume| &volume.uuid)),
    ),
    tells(&["get-e2label"], "DEVICE", "Say an ext file system's label", Words(&["vfs-label", "$1"])),
    tells(&["get-e2uuid"], "DEVICE", "Say an ext file system's UUID", Words(&["vfs-uuid", "$1"])),
    tells(&["blkid"], "DEVICE", "Say what blkid(8) finds on a device", Call(disk::identify)),
    tells(&["tune2fs-l"], "DEVICE", "Say what tune2fs(8) knows of an ext file system", Call(disk::list_superblock)),
    tells(
        &["findfs-label"],
        "LABEL",
        "Say which device has a file system with that label",
        Call(|session, words| disk::find(session, words, |volume| &volume.label)),
    ),
    tells(
        &["findfs-uuid"],
        "UUID",
        "Say which device has a file system with that UUID",
        Call(|session, words| disk::find(session, words, |volume| &volume.uuid)),
    ),
    tells(&["nr-devices"], "", "Say how many disks were added", Call(disk::count_devices)),
    tells(&["device-index"], "DEVICE", "Say which disk it is, from 0", Call(disk::index_of_device)),
    tells(
        &["blockdev-getsize64"],
        "DEVICE",
        "Say a device's size in bytes",
        Call(|session, words| disk::size(session, words, 1)),
    ),
    tells(
        &["blockdev-getsz"],
        "DEVICE",
        "Say a device's size in units of 512 bytes",
        Call(|session, words| disk::size(session, words, 512)),
    ),
    tells(&["blockdev-getss"], "DEVICE", "Say how many bytes a device's sectors have", Call(disk::sector_bytes)),
    verb(
        &["part-init"],
        "DEVICE gpt|mbr",
        "Begin a partition table: what was there is lost",
        Call(|session, words| disk::part_init(session, words, Plan::Empty)),
    ),
    verb(
        &["part-add"],
        "DEVICE primary START END",
        "Add a partition: first and last sector of 512 bytes, negative ones from the end",
        Call(disk::part_add),
    ),
    verb(
        &["part-disk"],
        "DEVICE gpt|mbr",
        "Make one partition of a disk: what was there is lost",
        Call(|session, words| disk::part_init(session, words, Plan::Whole)),
    ),
    tells(&["part-list"], "DEVICE", "List a disk's partitions", Call(disk::part_list)),
    tells(&["part-get-parttype"], "DEVICE", "Say which kind of partition table a disk has", Call(disk::part_type)),
    verb(
        &["part-del"],
        "DEVICE NUMBER",
        "Delete a partition: what lies in it stays",
        Call(|session, words| disk::part_set(session, words, |_, _, _, _| Ok(EntryChange::Delete))),
    ),
    verb(
        &["part-resize"],
        "DEVICE NUMBER END",
        "Give a partition another last sector of 512 bytes, -34 for the last of a GPT; its file system keeps its size",
        Call(|session, words| disk::part_set(session, words, disk::new_end)),
    ),
    verb(
        &["part-expand-gpt"],
        "DEVICE",
        "Move a GPT's backup to the end of a disk that has become larger",
        Call(|session, words| disk::part_change(session, words, TableChange::Expand)),
    ),
    verb(
        &["part-set-name"],
        "DEVICE NUMBER NAME",
        "Name a partition of a GPT",
        Call(|session, words| {
            disk::part_set(session, words, |_, _, _, words| Ok(EntryChange::Name(text(&words[0])?.to_owned())))
        }),
    ),
    verb(
        &["part-set-gpt-type"],
        "DEVICE NUMBER GUID",
        "Say what a partition of a GPT is for",
        Call(|session, words| disk::part_set(session, words, disk::new_kind)),
    ),
    verb(
        &["part-set-mbr-id"],
        "DEVICE NUMBER ID",
        "Say what a partition of an MBR is for, such as 0x82",
        Call(|session, words| disk::part_set(session, words, disk::new_kind)),
    ),
    verb(
        &["part-set-bootable"],
        "DEVICE NUMBER true|false",
        "Say whether a BIOS boots from a partition",
        Call(|session, words| {
            disk::part_set(session, words, |_, _, _, words| Ok(EntryChange::Bootable(truth(&words[0])?)))
        }),
    ),
    verb(
        &["part-set-gpt-attributes"],
        "DEVICE NUMBER ATTRIBUTES",
        "Set the attributes of a partition of a GPT, a number",
        Call(|session, words| disk::part_set(session, words, disk::new_attributes)),
    ),
    verb(
        &["part-set-gpt-guid"],
        "DEVICE NUMBER GUID",
        "Set the GUID of a partition of a GPT",
        Call(|session, words| {
            disk::part_set(session, words, |_, _, _, words| Ok(EntryChange::Guid(disk::guid(&words[0])?)))
        }),
    ),
    verb(
        &["part-set-disk-guid"],
        "DEVICE GUID",
        "Set a GPT's own GUID",
        Call(|session, words| disk::part_change(session, words, TableChange::DiskGuid(disk::guid(&words[1])?))),
    ),
    verb(
        &["part-set-disk-guid-random"],
        "DEVICE",
        "Give a GPT a new GUID",
        Call(|session, words| disk::part_change(session, words, TableChange::DiskGuid(Guid::random()?))),
    ),
    tells(
        &["part-get-name"],
        "DEVICE NUMBER",
        "Say a partition's name",
        Call(|session, words| disk::part_get(session, words, |partition| partition.name.clone())),
    ),
    tells(
        &["part-get-gpt-type"],
        "DEVICE NUMBER",
        "Say what a partition of a GPT is for",
        Call(|session, words| disk::part_get(session, words, |partition| partition.kind.to_string())),
    ),
    tells(
        &["part-get-mbr-id"],
        "DEVICE NUMBER",
        "Say what a partition of an MBR is for",
        Call(|session, words| disk::part_get(session, words, disk::mbr_id)),
    ),
    tells(
        &["part-get-bootable"],
        "DEVICE NUMBER",
        "Say whether a machine boots from a partition: a BIOS, or, of an EFI system partition, UEFI",
        Call(|session, words| disk::part_get(session, words, disk::is_bootable)),
    ),
    tells(
        &["part-get-gpt-attributes"],
        "DEVICE NUMBER",
        "Say the attributes of a partition of a GPT, a number",
        Call(|session, words| disk::part_get(session, words, |partition| partition.attributes.to_string())),
    ),
    tells(
        &["part-get-gpt-guid"],
        "DEVICE NUMBER",
        "Say the GUID of a partition of a GPT",
        Call(|session, words| {
            disk::part_get(session, words, |partition| partition.guid.map(|guid| guid.to_string()).unwrap_or_default())
        }),
    ),
    tells(
        &["part-get-mbr-part-type"],
        "DEVICE NUMBER",
        "Say whether a partition is primary, extended or logical",
        Call(|session, words| disk::part_get(session, words, disk::mbr_place)),
    ),
    tells(&["part-get-disk-guid"], "DEVICE", "Say a GPT's own GUID", Call(disk::disk_guid)),
    tells(
        &["part-to-dev"],
        "PARTITION",
        "Say which disk a partition is on",
        Call(|session, words| disk::of_partition(session, words, true)),
    ),
    tells(
        &["part-to-partnum"],
        "PARTITION",
        "Say a partition's number",
        Call(|session, words| disk::of_partition(session, words, false)),
    ),
    tells(&["pvs"], "", "List the physical volumes of LVM", Call(volumes::physical_volumes)),
    tells(&["vgs"], "", "List the volume groups", Call(volumes::groups)),
    tells(&["lvs"], "", "List the logical volumes", Call(volumes::logical_volumes)),
    verb(
        &["pvcreate"],
        "DEVICE",
        "Make a physical volume: what was there is lost",
        Call(|session, words| volumes::physical_volume(session, "pvcreate", words)),
    ),
    verb(
        &["pvremove"],
        "DEVICE",
        "Make an unused physical volume none",
        Call(|session, words| volumes::physical_volume(session, "pvremove", words)),
    ),
    verb(
        &["pvresize"],
        "DEVICE",
        "Have a physical volume use all of its device",
        Call(|session, words| volumes::physical_volume(session, "pvresize", words)),
    ),
    verb(
        &["vgcreate"],
        "GROUP DEVICE…",
        "Make a volume group; the devices may be one argument",
        Call(volumes::create_group),
    ),
    verb(&["vgremove"], "GROUP", "Remove a volume group with all in it", Call(volumes::remove_group)),
    verb(
        &["lvcreate"],
        "NAME GROUP MEBIBYTES",
        "Make a logical volume",
        Call(|session, words| volumes::create_logical_volume(session, words, false)),
    ),
    verb(
        &["lvcreate-free"],
        "NAME GROUP PERCENT",
        "Make a logical volume of so much of what is free",
        Call(|session, words| volumes::create_logical_volume(session, words, true)),
    ),
    verb(
        &["lvremove"],
        "DEVICE|GROUP",
        "Remove a logical volume, or all of a group",
        Call(volumes::remove_logical_volume),
    ),
    verb(
        &["lvresize"],
        "DEVICE MEBIBYTES",
        "Make a logical volume longer or shorter: shrink its file system first",
        Call(|session, words| volumes::resize_logical_volume(session, words, false)),
    ),
    verb(
        &["lvresize-free"],
        "DEVICE PERCENT",
        "Make a logical volume longer by so much of what is free",
        Call(|session, words| volumes::resize_logical_volume(session, words, true)),
    ),
    verb(&["lvrename"], "DEVICE NAME", "Rename a logical volume", Call(volumes::rename_logical_volume)),
    tells(&["is-lv"], "DEVICE", "Say whether it is a logical volume", Call(volumes::is_logical_volume)),
    verb(&["vg-activate-all"], "true|false", "Activate all volume groups, or none", Call(volumes::activate)),
    verb(&["vg-activate"], "true|false GROUP…", "Activate volume groups, or deactivate them", Call(volumes::activate)),
    verb(
        &["cryptsetup-open", "luks-open"],
        "DEVICE NAME [KEY:VALUE]…",
        "Open an encrypted volume as /dev/mapper/NAME: keyfile:FILE, readonly:true; without a key, it is asked for",
        Call(volumes::open_encrypted),
    ),
    verb(&["cryptsetup-close", "luks-close"], "DEVICE", "Close an encrypted volume", Call(volumes::close_encrypted)),
    verb(
        &["luks-format"],
        "DEVICE KEYSLOT [KEY:VALUE]…",
        "Make an encrypted volume: keyfile:FILE, itertime:MILLISECONDS; what was there is lost; without a key, it is asked for",
        Call(|session, words| volumes::format_encrypted(session, words, None)),
    ),
    verb(
        &["luks-format-cipher"],
        "DEVICE KEYSLOT CIPHER [KEY:VALUE]…",
        "The same, with a cipher",
        Call(|session, words| volumes::format_encrypted(session, words, Some(&words[2]))),
    ),
    verb(
        &["luks-add-key"],
        "DEVICE KEYSLOT [KEY:VALUE]…",
        "Add a key to an encrypted volume: keyfile:FILE, newkeyfile:FILE; without them, they are asked for",
        Call(volumes::add_key),
    ),
    verb(
        &["luks-kill-slot"],
        "DEVICE KEYSLOT [keyfile:FILE]…",
        "Remove a key, with another one that stays",
        Call(volumes::kill_slot),
    ),
    tells(&["luks-uuid"], "DEVICE", "Say an encrypted volume's UUID", Words(&["vfs-uuid", "$1"])),
    tells(&["list-dm-devices"], "", "List what is in /dev/mapper but for logical volumes", Call(volumes::list_mapped)),
    tells(&["list-md-devices"], "", "List the arrays", Call(volumes::list_arrays)),
    verb(
        &["md-create"],
        "NAME DEVICE… [KEY:VALUE]…",
        "Make an array: level:LEVEL (raid1), nrdevices:N, spare:N, chunk:BYTES; the devices may be one argument",
        Call(volumes::create_array),
    ),
    verb(&["md-stop"], "DEVICE", "Stop an array", Call(volumes::stop_array)),
    tells(&["md-detail"], "DEVICE", "Say what an array is made of", Call(volumes::array_details)),
    verb(
        &["zero"],
        "DEVICE",
        "Make zeros of what says at a device's start what is on it",
        Call(|session, words| disk::zero(session, words, false)),
    ),
    verb(
        &["zero-device"],
        "DEVICE",
        "Make zeros of a whole device",
        Call(|session, words| disk::zero(session, words, true)),
    ),
    verb(&["wipefs"], "DEVICE", "Remove what says what is on a device", Call(disk::wipe_signatures)),
    verb(&["zerofree"], "DEVICE", "Make zeros of a file system's free blocks", Call(disk::zero_free)),
    verb(&["zero-free-space"], "DIR", "Make zeros of the free blocks of what is mounted", Words(&["zero-free"])),
    verb(&["set-label", "set-e2label"], "DEVICE LABEL", "Label a file system", Words(&["label", "--", "$1", "$2"])),
    verb(&["e2fsck-f", "e2fsck"], "DEVICE", "Check a file system, and repair it", Words(&["fsck", "--", "$1"])),
    verb(&["resize2fs"], "DEVICE", "Make an ext file system as large as its device", Call(disk::resize_ext)),
    verb(&["resize2fs-size"], "DEVICE SIZE", "Make an ext file system that large", Call(disk::resize_ext)),
    verb(
        &["mkfs-b"],
        "KIND BLOCK DEVICE",
        "Make a file system with blocks of so many bytes",
        Words(&["mkfs", "$1", "$3", "--", "-b", "$2"]),
    ),
    verb(&["mkswap-L"], "LABEL DEVICE", "Make swap space with a label", Words(&["mkfs", "swap", "$2", "-L", "$1"])),
    tells(&["inspect-os"], "", "List the roots of operating systems", Call(files::roots)),
    tells(
        &["inspect-get-type"],
        "ROOT",
        "Say which kind of system it is",
        Call(|session, words| files::fact(session, words, "name")),
    ),
    tells(
        &["inspect-get-distro"],
        "ROOT",
        "Say which distribution it is",
        Call(|session, words| files::fact(session, words, "distro")),
    ),
    tells(
        &["inspect-get-product-name"],
        "ROOT",
        "Say what the system calls itself",
        Call(|session, words| files::fact(session, words, "product_name")),
    ),
    tells(
        &["inspect-get-hostname"],
        "ROOT",
        "Say the system's host name",
        Call(|session, words| files::fact(session, words, "hostname")),
    ),
    tells(
        &["inspect-get-arch"],
        "ROOT",
        "Say which machine it is for",
        Call(|session, words| files::fact(session, words, "arch")),
    ),
    tells(
        &["inspect-get-major-version"],
        "ROOT",
        "Say the first number of its version",
        Call(|session, words| files::fact(session, words, "major_version")),
    ),
    tells(
        &["inspect-get-minor-version"],
        "ROOT",
        "Say the second number of its version",
        Call(|session, words| files::fact(session, words, "minor_version")),
    ),
    tells(
        &["inspect-get-package-format"],
        "ROOT",
        "Say which packages it has",
        Call(|session, words| files::fact(session, words, "package_format")),
    ),
    tells(&["inspect-get-mountpoints"], "ROOT", "List where it mounts what", Call(files::mount_points_of)),
    verb(&["mkswap"], "DEVICE", "Make swap space", Words(&["mkfs", "swap", "$1"])),
    verb(
        &["mount"],
        "DEVICE DIR",
        "Mount a file system",
        Call(|session, words| disk::mount(session, &words[0], &words[1], "", "")),
    ),
    verb(
        &["mount-ro"],
        "DEVICE DIR",
        "Mount a file system for reading only",
        Call(|session, words| disk::mount(session, &words[0], &words[1], "ro", "")),
    ),
    verb(
        &["mount-options"],
        "OPTIONS DEVICE DIR",
        "Mount with options of mount(8)",
        Call(|session, words| disk::mount(session, &words[1], &words[2], text(&words[0])?, "")),
    ),
    verb(
        &["mount-vfs"],
        "OPTIONS TYPE DEVICE DIR",
        "Mount with options of mount(8) and a file system's type",
        Call(|session, words| disk::mount(session, &words[2], &words[3], text(&words[0])?, text(&words[1])?)),
    ),
    verb(
        &["mount-loop"],
        "PATH DIR",
        "Mount the file system that is in a file of what is mounted",
        Call(disk::mount_loop),
    ),
    verb(&["umount", "unmount"], "DIR|DEVICE", "Unmount", Call(disk::unmount)),
    verb(&["umount-all", "unmount-all"], "", "Unmount all", Call(|session, _| session.unmount_all())),
    tells(&["mounts"], "", "List the devices that are mounted", Call(disk::mounts)),
    tells(&["mountpoints"], "", "List what is mounted where", Call(disk::mount_points)),
    verb(&["sync"], "", "Everything that was written to stable storage", Call(|session, _| session.sync())),
    verb(
        &["upload"],
        "FILE PATH",
        "Copy a file of the host into the image; - is stdin",
        Words(&["put", "-L", "--root-owned", "--", "$1", "$2"]),
    ),
    verb(
        &["download"],
        "PATH FILE",
        "Copy a file of the image to the host; - is stdout",
        Words(&["get", "-L", "--", "$1", "$2"]),
    ),
    verb(&["copy-in"], "FILE… DIR", "Copy files and trees of the host into a directory of the image", Call(copy_in)),
    tells(&["copy-out"], "PATH… DIR", "Copy files and trees of the image into a directory of the host", Call(copy_out)),
    verb(&["tgz-in"], "FILE DIR", "Unpack a tar.gz into the image", Words(&["tar-in", "--", "$1", "$2"])),
    verb(
        &["tgz-out"],
        "DIR FILE",
        "Pack files of the image as a tar.gz",
        Words(&["tar-out", "--compress", "gzip", "--", "$1", "$2"]),
    ),
    verb(
        &["write"],
        "PATH CONTENT",
        "Make a file that holds a text",
        Call(|session, words| write(session, words, false)),
    ),
    verb(
        &["write-append"],
        "PATH CONTENT",
        "Append a text to a file",
        Call(|session, words| write(session, words, true)),
    ),
    verb(&["fill-pattern"], "PATTERN SIZE PATH", "Make a file of a repeated text", Call(fill_pattern)),
    verb(&["truncate"], "PATH", "Make a file empty", Call(|session, words| truncate(session, &words[0], 0))),
    verb(
        &["truncate-size"],
        "PATH SIZE",
        "Make a file longer or shorter",
        Call(|session, words| truncate(session, &words[0], bytes(&words[1])?)),
    ),
    tells(&["ll"], "PATH", "List files with all that is known of them", Words(&["ls", "-l", "-a", "--", "$1"])),
    tells(&["more", "less"], "PATH", "Show a file page by page", Call(page)),
    tells(&["head"], "PATH", "Print the first ten lines of a file", Call(head)),
    tells(
        &["tail"],
        "PATH",
        "Print the last ten lines of a file",
        Call(|session, words| piped(session, &words[0], "tail")),
    ),
    tells(
        &["head-n"],
        "LINES PATH",
        "Print the first lines of a file; with -N all but the last N",
        Call(|session, words| files::some_lines(session, words, "head")),
    ),
    tells(
        &["tail-n"],
        "LINES PATH",
        "Print the last lines of a file",
        Call(|session, words| files::some_lines(session, words, "tail")),
    ),
    tells(&["wc-l"], "PATH", "Count a file's lines", Call(|session, words| summed(session, &words[0], "wc -l"))),
    tells(&["wc-w"], "PATH", "Count a file's words", Call(|session, words| summed(session, &words[0], "wc -w"))),
    tells(&["wc-c"], "PATH", "Count a file's bytes", Call(|session, words| summed(session, &words[0], "wc -c"))),
    tells(
        &["grep"],
        "PATTERN PATH",
        "Print the lines that match a regular expression",
        Call(|session, words| files::grep(session, words, "")),
    ),
    tells(
        &["grepi"],
        "PATTERN PATH",
        "The same, whatever the case",
        Call(|session, words| files::grep(session, words, "-i")),
    ),
    tells(
        &["egrep"],
        "PATTERN PATH",
        "The same, with an extended regular expression",
        Call(|session, words| files::grep(session, words, "-E")),
    ),
    tells(
        &["fgrep"],
        "TEXT PATH",
        "Print the lines that hold a text",
        Call(|session, words| files::grep(session, words, "-F")),
    ),
    tells(
        &["checksum"],
        "KIND PATH",
        "Say a file's checksum: crc, md5, sha1, sha224, sha256, sha384 or sha512",
        Call(files::checksum),
    ),
    tells(&["read-file", "read-lines"], "PATH", "Print a file", Words(&["cat", "--", "$1"])),
    tells(
        &["statns"],
        "PATH",
        "Say what is known of a file, with the fields of stat(2)",
        Call(|session, words| files::stat_with_nanoseconds(session, words, true)),
    ),
    tells(
        &["lstatns"],
        "PATH",
        "The same of a link itself",
        Call(|session, words| files::stat_with_nanoseconds(session, words, false)),
    ),
    tells(
        &["stat"],
        "PATH",
        "Say what is known of a file, with guestfish's fields; with options, or of several files, as stat(1) does",
        Call(|session, words| files::stat(session, words, true)),
    ),
    tells(&["lstat"], "PATH", "The same of a link itself", Call(|session, words| files::stat(session, words, false))),
    tells(
        &["find"],
        "DIR",
        "List what is below a directory, relative to it; with tests, or several paths, as find(1) does",
        Call(files::find),
    ),
    tells(&["equal"], "PATH PATH", "Say whether two files hold the same bytes", Call(files::equal)),
    tells(&["realpath"], "PATH", "Say where a path leads, without links and dots", Call(files::resolve)),
    tells(&["hexdump"], "PATH", "Print a file's bytes in hexadecimal", Call(files::hexdump)),
    tells(&["strings"], "PATH", "Print what looks like text in a file", Call(files::strings)),
    tells(
        &["getxattrs"],
        "PATH",
        "List a file's extended attributes",
        Call(|session, words| files::attributes(session, words, true)),
    ),
    tells(
        &["lgetxattrs"],
        "PATH",
        "The same of a link itself",
        Call(|session, words| files::attributes(session, words, false)),
    ),
    tells(
        &["getxattr"],
        "PATH NAME",
        "Print an extended attribute of a file",
        Call(|session, words| files::attributes(session, words, true)),
    ),
    tells(
        &["lgetxattr"],
        "PATH NAME",
        "The same of a link itself",
        Call(|session, words| files::attributes(session, words, false)),
    ),
    verb(
        &["setxattr"],
        "NAME VALUE LENGTH PATH",
        "Set an extended attribute of a file; the length counts for nothing",
        Call(|session, words| set_attribute(session, &words[3], &words[0], Some(&words[1]), true)),
    ),
    verb(
        &["lsetxattr"],
        "NAME VALUE LENGTH PATH",
        "The same of a link itself",
        Call(|session, words| set_attribute(session, &words[3], &words[0], Some(&words[1]), false)),
    ),
    verb(
        &["removexattr"],
        "NAME PATH",
        "Remove an extended attribute of a file",
        Call(|session, words| set_attribute(session, &words[1], &words[0], None, true)),
    ),
    verb(
        &["lremovexattr"],
        "NAME PATH",
        "The same of a link itself",
        Call(|session, words| set_attribute(session, &words[1], &words[0], None, false)),
    ),
    verb(
        &["mknod"],
        "MODE MAJOR MINOR PATH",
        "Make a device, a fifo or a socket: the mode says which, as mknod(2) has it, in octal",
        Call(|session, words| make_node(session, words, 0)),
    ),
    verb(
        &["mknod-b"],
        "MODE MAJOR MINOR PATH",
        "Make a block device",
        Call(|session, words| make_node(session, words, 0o060_000)),
    ),
    verb(
        &["mknod-c"],
        "MODE MAJOR MINOR PATH",
        "Make a character device",
        Call(|session, words| make_node(session, words, 0o020_000)),
    ),
    verb(
        &["mkfifo"],
        "MODE PATH",
        "Make a fifo",
        Call(|session, words| {
            make_node(session, &[words[0].clone(), "0".into(), "0".into(), words[1].clone()], 0o010_000)
        }),
    ),
    verb(
        &["tar-in"],
        "FILE DIR [KEY:VALUE]…",
        "Unpack an archive: compress:gzip|zstd, xattrs:true, acls:true and selinux:true are what happens anyway",
        Call(tar_in),
    ),
    tells(
        &["tar-out"],
        "DIR FILE [KEY:VALUE]…",
        "Pack a directory: compress:gzip|zstd, excludes:PATTERNS; numericowner:true, xattrs:true, acls:true and selinux:true are what happens anyway",
        Call(tar_out),
    ),
    tells(&["statvfs"], "PATH", "Say how full a file system is, with the fields of statvfs(3)", Call(files::statvfs)),
    verb(
        &["copy-device-to-device", "copy-device-to-file", "copy-file-to-device", "copy-file-to-file"],
        "SRC DST",
        "Copy bytes within the appliance, as dd does",
        Call(files::copy),
    ),
    verb(&["rm-f"], "PATH", "Remove a file that may be there", Words(&["rm", "-f", "--", "$1"])),
    verb(&["rm-rf"], "PATH", "Remove what is there, with all below it", Words(&["rm", "-r", "-f", "--", "$1"])),
    verb(&["rmdir"], "DIR", "Remove an empty directory", Call(remove_directory)),
    verb(&["mkdir-p"], "DIR", "Make a directory and those above it", Words(&["mkdir", "-p", "--", "$1"])),
    verb(
        &["mkdir-mode"],
        "DIR MODE",
        "Make a directory with permissions",
        Words(&["mkdir", "--mode", "$2", "--", "$1"]),
    ),
    verb(
        &["cp-a"],
        "SRC DST",
        "Copy files within the image, with all that belongs to them",
        Words(&["cp", "-a", "--", "$1", "$2"]),
    ),
    verb(&["cp-r"], "SRC DST", "Copy trees within the image", Words(&["cp", "-r", "--", "$1", "$2"])),
    verb(&["ln-s"], "TARGET LINK", "Make a symbolic link", Words(&["ln", "-s", "--", "$1", "$2"])),
    verb(&["ln-f"], "TARGET LINK", "Make a link in place of what is there", Words(&["ln", "-f", "--", "$1", "$2"])),
    verb(
        &["ln-sf"],
        "TARGET LINK",
        "Make a symbolic link in place of what is there",
        Words(&["ln", "-s", "-f", "--", "$1", "$2"]),
    ),
    tells(&["glob-expand"], "PATTERN", "List the files that a pattern stands for", Words(&["ls", "-d", "--", "$1"])),
    tells(
        &["exists"],
        "PATH",
        "Say whether a file is there",
        Call(|session, words| say_whether(session, &words[0], |_| true)),
    ),
    tells(
        &["is-file"],
        "PATH",
        "Say whether it is a regular file",
        Call(|session, words| say_whether(session, &words[0], |entry| is_regular(entry.mode))),
    ),
    tells(
        &["is-dir"],
        "PATH",
        "Say whether it is a directory",
        Call(|session, words| say_whether(session, &words[0], |entry| is_directory(entry.mode))),
    ),
    tells(
        &["is-symlink"],
        "PATH",
        "Say whether it is a symbolic link",
        Call(|session, words| say_whether(session, &words[0], |entry| is_link(entry.mode))),
    ),
    tells(
        &["is-blockdev"],
        "PATH",
        "Say whether it is a block device",
        Call(|session, words| say_whether(session, &words[0], |entry| entry.mode & 0o170_000 == 0o060_000)),
    ),
    tells(
        &["is-chardev"],
        "PATH",
        "Say whether it is a character device",
        Call(|session, words| say_whether(session, &words[0], |entry| entry.mode & 0o170_000 == 0o020_000)),
    ),
    tells(
        &["is-fifo"],
        "PATH",
        "Say whether it is a fifo",
        Call(|session, words| say_whether(session, &words[0], |entry| entry.mode & 0o170_000 == 0o010_000)),
    ),
    tells(
        &["is-socket"],
        "PATH",
        "Say whether it is a socket",
        Call(|session, words| say_whether(session, &words[0], |entry| entry.mode & 0o170_000 == 0o140_000)),
    ),
    tells(
        &["filesize"],
        "PATH",
        "Say a file's size in bytes",
        Call(|session, words| say_of(session, &words[0], true, |entry| entry.size.to_string())),
    ),
    tells(
        &["readlink"],
        "PATH",
        "Say where a link leads to",
        Call(|session, words| {
            say_of(session, &words[0], false, |entry| printable(&String::from_utf8_lossy(&entry.target)))
        }),
    ),
    tells(&["df-h"], "", "Say how full the file systems are, in sizes like 1.5K", Words(&["df", "-h"])),
    verb(&["command"], "WORDS", "Run a program of the image: one argument, a list of words", Call(command)),
    verb(&["sh"], "COMMAND", "Run a command with the image's shell", Words(&["run", "--", "/bin/sh", "-c", "$1"])),
];

/// The command that is called `name`, for these arguments: what has our own meaning with them is ours.
pub fn find(name: &OsStr, arguments: &[OsString]) -> Option<&'static Verb> {
    let verb = VERBS.iter().find(|verb| verb.names.iter().any(|&own| own == name))?;
    let is_option = |word: &OsString| word.as_bytes().starts_with(b"-") && word != "-";
    let is_theirs = match name.to_str() {
        // A program of the image is run with arguments.
        Some("run") => arguments.is_empty(),
        Some("stat" | "find") => matches!(arguments, [one] if !is_option(one)),
        Some("tar-in" | "tar-out") => arguments.len() > 2 && !arguments.iter().any(is_option),
        _ => true,
    };
    is_theirs.then_some(verb)
}

/// guestfish's arguments where one of our commands has the same name and others.
pub fn as_ours(words: &[OsString]) -> Vec<OsString> {
    let texts: Vec<_> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match texts[..] {
        ["chown" | "lchown", user, group, _] if number(user) && number(group) => {
            let no_dereference = if texts[0] == "lchown" { &["--no-dereference".into()][..] } else { &[] };
            [&["chown".into()], no_dereference, &[format!("{user}:{group}").into(), words[3].clone()]].concat()
        }
        ["dd", from, to] if !from.starts_with("if=") && !to.starts_with("of=") && !to.starts_with("if=") => {
            let named = |key: &str, word: &OsString| {
                // Both are in the image: a device by its name, or a file.
                let prefix = if word.as_bytes().starts_with(b"/dev/") { "" } else { "image:" };
                let mut text = OsString::from(format!("{key}={prefix}"));
                text.push(word);
                text
            };
            vec!["dd".into(), named("if", &words[1]), named("of", &words[2])]
        }
        ["fsck", kind, _] if !kind.starts_with('-') => vec!["fsck".into(), words[2].clone()],
        ["mkfs", ..] if texts.iter().any(|text| text.starts_with("label:") || text.starts_with("blocksize:")) => {
            let (mut ours, mut own) = (Vec::new(), Vec::new());
            for (text, word) in texts.iter().zip(words) {
                match text.split_once(':') {
                    Some(("label", label)) => ours.extend(["-L".into(), label.into()]),
                    Some(("blocksize", size)) => own.extend(["-b".into(), size.into()]),
                    _ => ours.push(word.clone()),
                }
            }
            let divider = if own.is_empty() { Vec::new() } else { vec!["--".into()] };
            [ours, divider, own].concat()
        }
        _ => words.to_vec(),
    }
}

/// The words that another command is.
pub fn substituted(words: &[&str], arguments: &[OsString]) -> Vec<OsString> {
    let mut all = Vec::new();
    for word in words {
        match word.strip_prefix('$') {
            Some("*") => all.extend_from_slice(arguments),
            Some(number) => {
                let index = number.parse::<usize>().unwrap_or(1);
                all.extend(arguments.get(index.saturating_sub(1)).cloned());
            }
            None => all.push(word.into()),
        }
    }
    all
}

/// `~` and `~/…` are the user's own directory on the host.
pub fn home(word: &OsStr) -> OsString {
    let bytes = word.as_bytes();
    match (bytes, std::env::var_os("HOME")) {
        (b"~" | [b'~', b'/', ..], Some(home)) => {
            let mut path = home;
            path.push(OsStr::from_bytes(&bytes[1..]));
            path
        }
        _ => word.to_owned(),
    }
}

impl Verb {
    /// Fails unless there are as many arguments as it takes.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check(&self, arguments: &[OsString]) -> Result<()> {
        match self.takes(arguments.len()) {
            true => Ok(()),
            false => Err(UsageError(format!("{}: it is {}", self.names[0], self.usage())).into()),
        }
    }

    /// Whether it can have so many arguments.
    pub fn takes(&self, count: usize) -> bool {
        let parts: Vec<_> = self.arguments.split_whitespace().collect();
        let needed = parts.iter().filter(|part| !part.starts_with('[')).count();
        let endless = parts.iter().any(|part| part.ends_with('…'));
        count >= needed && (endless || count <= parts.len())
    }

    fn usage(&self) -> String {
        format!("{} {}", self.names[0], self.arguments).trim_end().to_owned()
    }

    /// What it does, and how it is called.
    pub fn help(&self) -> String {
        let also = match &self.names[1..] {
            [] => String::new(),
            others => format!("\n\nAlso called {}.", others.join(", ")),
        };
        format!("{}\n\nUsage: {}{also}\n", self.summary, self.usage())
    }
}

/// A word that is a text: [`UsageError`] when it is not.
pub fn text(word: &OsStr) -> Result<&str> {
    word.to_str().ok_or_else(|| UsageError(format!("{} is not UTF-8, as this argument has to be", shown(word))).into())
}

/// A word that is a size: a number of bytes, or with a suffix such as 10M.
pub fn bytes(word: &OsStr) -> Result<u64> {
    size::parse(text(word)?).map_err(|problem| UsageError(problem).into())
}

/// true, false and what else guestfish takes for them.
pub fn truth(word: &OsStr) -> Result<bool> {
    match word.to_str().map(str::to_ascii_lowercase).as_deref() {
        Some("true" | "t" | "1" | "yes" | "y" | "on") => Ok(true),
        Some("false" | "f" | "0" | "no" | "n" | "off") => Ok(false),
        _ => bail!(UsageError(format!("{} is neither true nor false", shown(word)))),
    }
}

fn help(_: &mut Session, words: &[OsString]) -> Result<()> {
    if let Some(name) = words.first() {
        return print(commands::help(name)?.trim_end());
    }
    let all = commands::all();
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = all.iter().map(|(name, summary)| {
        let first = summary.split(['.', ':', ';']).next().unwrap_or_default();
        format!("{name:width$}  {first}")
    });
    let lines: Vec<_> = lines.collect();
    print(&format!(
        "{}\n\nhelp COMMAND says more. !COMMAND is for the host's shell, COMMAND | COMMAND gives it the output; -COMMAND may fail. Paths\n\
         may be patterns (*, ?, [a-z]; \\* is a star).",
        lines.join("\n")
    ))
}

fn exit(session: &mut Session, _: &[OsString]) -> Result<()> {
    session.is_over = true;
    Ok(())
}

fn abort(session: &mut Session, _: &[OsString]) -> Result<()> {
    if !session.is_atomic() {
        bail!("only what is done with --atomic can be given up");
    }
    session.give_up("aborted");
    Ok(())
}

fn lcd(_: &mut Session, words: &[OsString]) -> Result<()> {
    std::env::set_current_dir(&words[0]).with_context(|| shown(&words[0]).to_string())
}

fn echo(_: &mut Session, words: &[OsString]) -> Result<()> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    print(&words.join(" "))
}

fn time(session: &mut Session, words: &[OsString]) -> Result<()> {
    let start = Instant::now();
    let done = commands::perform_words(session, words);
    print(&format!("elapsed time: {:.4} seconds", start.elapsed().as_secs_f64()))?;
    done
}

fn setenv(_: &mut Session, _: &[OsString]) -> Result<()> {
    bail!("this program's environment stays as it is: write !NAME=VALUE COMMAND")
}

fn version(_: &mut Session, _: &[OsString]) -> Result<()> {
    print(concat!("blockyard ", env!("CARGO_PKG_VERSION")))
}

fn set_verbose(session: &mut Session, words: &[OsString]) -> Result<()> {
    session.how.verbose = truth(&words[0])?;
    Ok(())
}

fn shutdown(session: &mut Session, _: &[OsString]) -> Result<()> {
    session.unmount_all()?;
    session.stop()
}

fn smp(_: &mut Session, words: &[OsString]) -> Result<()> {
    match text(&words[0])?.parse::<u32>() {
        Ok(1..) => Ok(()),
        _ => bail!(UsageError(format!("{} is no number of CPUs", shown(&words[0])))),
    }
}

fn memsize(session: &mut Session, words: &[OsString]) -> Result<()> {
    match text(&words[0])?.parse::<u64>() {
        Ok(mebibytes @ 64..=65536) => session.how.memory = mebibytes,
        _ => bail!(UsageError(format!("{}: between 64 and 65536 MiB can be had", shown(&words[0])))),
    }
    Ok(())
}

fn copy_in(session: &mut Session, words: &[OsString]) -> Result<()> {
    let directory = &words[words.len() - 1];
    if !look(session, directory, true)?.is_some_and(|entry| is_directory(entry.mode)) {
        bail!("{}: not a directory of the image", shown(directory));
    }
    commands::perform_words(session, &[&["put".into(), "--".into()], words].concat())
}

fn copy_out(session: &mut Session, words: &[OsString]) -> Result<()> {
    let directory = &words[words.len() - 1];
    if !Path::new(directory).is_dir() {
        bail!("{}: not a directory of the host", shown(directory));
    }
    commands::perform_words(session, &[&["get".into(), "--".into()], words].concat())
}

fn remove_directory(session: &mut Session, words: &[OsString]) -> Result<()> {
    match look(session, &words[0], false)? {
        Some(entry) if is_directory(entry.mode) => {
            commands::perform_words(session, &["rm".into(), "-d".into(), "--".into(), words[0].clone()])
        }
        Some(_) => bail!("{}: not a directory", shown(&words[0])),
        None => bail!("{}: no such directory in the image", shown(&words[0])),
    }
}

fn write(session: &mut Session, words: &[OsString], append: bool) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let store = Store {
        path: image_path(Path::new(&words[0])),
        stream: true,
        mode: 0o644,
        modified: now.as_secs().try_into().unwrap_or(i64::MAX),
        append,
        keep: true,
        ..Store::default()
    };
    let content = io::Cursor::new(words[1].as_bytes().to_vec());
    Ok(blockyard_image::guest::read_in(session.image()?, Operation::Store(store), content).map(drop)?)
}

fn fill_pattern(session: &mut Session, words: &[OsString]) -> Result<()> {
    let fill =
        Fill { pattern: words[0].as_bytes().to_vec(), size: bytes(&words[1])?, path: image_path(Path::new(&words[2])) };
    Ok(session.image()?.call(Operation::Fill(fill)).map(drop)?)
}

fn truncate(session: &mut Session, path: &OsStr, size: u64) -> Result<()> {
    if look(session, path, true)?.is_none() {
        bail!("{}: no such file in the image", shown(path));
    }
    let touch = Touch { paths: vec![image_path(Path::new(path))], no_create: true, sets_size: true, size };
    Ok(session.image()?.call(Operation::Touch(touch)).map(drop)?)
}

/// Sets an extended attribute, or without a value removes it.
fn set_attribute(
    session: &mut Session,
    path: &OsStr,
    name: &OsStr,
    value: Option<&OsString>,
    follow: bool,
) -> Result<()> {
    let value = value.map(|value| value.as_bytes().to_vec());
    let set = SetAttribute { path: image_path(Path::new(path)), follow, name: name.as_bytes().to_vec(), value };
    Ok(session.image()?.call(Operation::SetAttribute(set)).map(drop)?)
}

fn make_node(session: &mut Session, words: &[OsString], kind: u32) -> Result<()> {
    let number = |word: &OsString| {
        let number = text(word)?.parse::<u32>();
        number.map_err(|_| anyhow::Error::from(UsageError(format!("{} is no number of a device", shown(word)))))
    };
    let mode = u32::from_str_radix(text(&words[0])?, 8).ok().filter(|mode| *mode <= 0o177_777);
    let mode = mode.ok_or_else(|| UsageError(format!("{} is no mode: it is like 0644", shown(&words[0]))))?;
    let (major, minor) = (number(&words[1])?, number(&words[2])?);
    let make = MakeNode { path: image_path(Path::new(&words[3])), mode: mode | kind, major, minor };
    Ok(session.image()?.call(Operation::MakeNode(make)).map(drop)?)
}

/// Options of guestfish's `tar-in` and `tar-out` as ours.
fn tar_options(words: &[OsString], own: &[&str]) -> Result<Vec<OsString>> {
    let mut ours = Vec::new();
    for (key, value) in disk::options(words)? {
        match (key, value) {
            ("compress", "gzip" | "zstd") if own.contains(&key) => ours.extend(["--compress".into(), value.into()]),
            ("compress", "gzip" | "zstd") => {}
            ("compress", _) => bail!(UsageError(format!("compress:{value}: gzip and zstd are known"))),
            ("excludes", _) if own.contains(&key) => {
                let patterns = commands::list(OsStr::new(value))?;
                ours.extend(patterns.into_iter().flat_map(|pattern| ["--exclude".into(), pattern]));
            }
            ("xattrs" | "acls" | "selinux", _) | ("numericowner", _) if truth(OsStr::new(value))? => {}
            ("xattrs" | "acls" | "selinux" | "numericowner", _) => {
                bail!(UsageError(format!("{key}:{value}: it is always {key}:true here")));
            }
            _ => bail!(UsageError(format!("{key}:{value}: there is no such option"))),
        }
    }
    Ok(ours)
}

fn tar_in(session: &mut Session, words: &[OsString]) -> Result<()> {
    let options = tar_options(&words[2..], &[])?;
    commands::perform_words(session, &[&["tar-in".into()], &options[..], &["--".into()], &words[..2]].concat())
}

fn tar_out(session: &mut Session, words: &[OsString]) -> Result<()> {
    let options = tar_options(&words[2..], &["compress", "excludes"])?;
    commands::perform_words(session, &[&["tar-out".into()], &options[..], &["--".into()], &words[..2]].concat())
}

fn page(session: &mut Session, words: &[OsString]) -> Result<()> {
    piped(session, &words[0], "${PAGER:-more}")
}

fn head(session: &mut Session, words: &[OsString]) -> Result<()> {
    piped(session, &words[0], "head")
}

fn command(session: &mut Session, words: &[OsString]) -> Result<()> {
    let program = commands::list(&words[0])?;
    commands::perform_words(session, &[&["run".into(), "--".into()][..], &program].concat())
}

/// What is at a path, with `follow` through links.
///
/// # Errors
/// When it cannot be looked at.
pub fn look(session: &mut Session, path: &OsStr, follow: bool) -> Result<Option<Entry>> {
    let path: PathBuf = path_of(image_path(Path::new(path)));
    Ok(session.image()?.entry(&path, follow)?)
}

fn say_whether(session: &mut Session, path: &OsStr, holds: fn(&Entry) -> bool) -> Result<()> {
    let entry = look(session, path, false)?;
    print(if entry.is_some_and(|entry| holds(&entry)) { "true" } else { "false" })
}

fn say_of(session: &mut Session, path: &OsStr, follow: bool, of: fn(&Entry) -> String) -> Result<()> {
    match look(session, path, follow)? {
        Some(entry) => print(&of(&entry)),
        None => bail!("{}: no such file in the image", shown(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn guestfishs_arguments_become_ours() {
        for (theirs, ours) in [
            ("chown 10 20 /f", "chown 10:20 /f"),
            ("chown root:root /a /b", "chown root:root /a /b"),
            ("dd /dev/sdb /big", "dd if=/dev/sdb of=image:/big"),
            ("dd if=a of=b", "dd if=a of=b"),
            ("mkfs ext4 /dev/sda1 label:root blocksize:1024", "mkfs ext4 /dev/sda1 -L root -- -b 1024"),
            ("mkfs ext4 /dev/sda1", "mkfs ext4 /dev/sda1"),
        ] {
            assert_eq!(as_ours(&words(theirs)), words(ours));
        }
    }

    #[test]
    fn no_two_commands_have_one_name_and_what_stands_for_others_is_understood() {
        let mut names: Vec<_> = VERBS.iter().flat_map(|verb| verb.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for verb in VERBS {
            if let Words(words) = verb.action {
                let arguments = vec![OsString::from("755"); verb.arguments.split_whitespace().count()];
                commands::understand(&substituted(words, &arguments))
                    .unwrap_or_else(|error| panic!("{}: {error}", verb.names[0]));
            }
        }
    }

    #[test]
    fn arguments_are_counted() {
        let check = |line: &str| {
            let words = words(line);
            find(&words[0], &words[1..]).unwrap().check(&words[1..])
        };
        for good in
            ["mount /dev/sda1 /", "run", "add x readonly:true format:raw", "copy-in a b /", "help", "help ls", "echo"]
        {
            check(good).unwrap();
        }
        for bad in ["mount /dev/sda1", "mount a b c", "add", "help a b", "copy-in /", "umount-all x"] {
            assert!(check(bad).unwrap_err().is::<UsageError>(), "{bad}");
        }
    }
}
