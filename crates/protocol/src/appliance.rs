//! What the appliance's agent and the host say to each other over the appliance's serial line.
//!
//! A frame is a 2-byte little-endian length and that many bytes of one message, in postcard's format: both ends come
//! out of one build. The agent sends [`Ready`], then one [`Response`] for each [`Request`], in turn. Data never come
//! this way: they go through the transfer disks, as streams ([`crate::stream`]) or as raw bytes. The records of a
//! listing are frames of [`Record`] in such a stream.
//!
//! Paths are bytes, as Linux has them, and are resolved below the root of what is mounted: a link cannot lead out of
//! it. What a frame can hold bounds all that is in it.

use crate::frame::{self, FrameError, LENGTH_BYTES};
use alloc::string::String;
use alloc::vec::Vec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The protocol's version: host and agent come out of one build, so this only ever differs by accident.
pub const VERSION: u32 = 2;
/// Most bytes in a frame, length and message.
pub const FRAME_BYTES_MAX: usize = LENGTH_BYTES + u16::MAX as usize;

/// Bytes of a request that are sent before the guest asks for more, with a response whose number is [`MORE`]. Of a line
/// that has taken 3968 bytes which nobody has read (N_TTY's 4096 but for TTY_THRESHOLD_THROTTLE), User-Mode Linux hears
/// nothing any more.
pub const PIECE_BYTES: usize = 2048;

/// The number of a response that only asks for the next piece of the request.
pub const MORE: u32 = u32::MAX;

/// Kinds of file systems that the host has tools to check.
pub const CHECKED_KINDS: [&str; 6] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "vfat"];

/// What is said of a file system that cannot be mounted, as long as nothing else is known to be the reason.
pub const MAY_BE_DAMAGED: &str = ", which may be damaged";
/// The same, where `fsck` knows its kind.
pub const MAY_BE_DAMAGED_FSCK: &str = ", which may be damaged (`fsck` it)";

/// Encodes `message` with its length in front into `buffer`, and returns the frame.
///
/// # Errors
/// When the message encodes to more than `buffer` holds or a length can say.
pub fn encode<'buffer, M: Serialize>(message: &M, buffer: &'buffer mut [u8]) -> Result<&'buffer [u8], FrameError> {
    let bytes_max = buffer.len().saturating_sub(LENGTH_BYTES).min(u16::MAX as usize);
    let no_room = FrameError::NoRoom { bytes_max };
    let Some((length, body)) = buffer.split_first_chunk_mut::<LENGTH_BYTES>() else { return Err(no_room) };
    let bytes = postcard::to_slice(message, &mut body[..bytes_max]).map_err(|_| no_room)?.len();
    *length = (bytes as u16).to_le_bytes();
    Ok(&buffer[..LENGTH_BYTES + bytes])
}

/// The message's length that a frame's first bytes announce, judged.
///
/// # Errors
/// As [`frame::message_bytes`].
pub fn message_bytes(length: [u8; LENGTH_BYTES]) -> Result<usize, FrameError> {
    frame::message_bytes(length, FRAME_BYTES_MAX)
}

/// The message in a frame, which is what follows the length.
///
/// # Errors
/// When it is not such a message, or not one alone.
pub fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, FrameError> {
    use postcard::Error;
    let (message, rest) = postcard::take_from_bytes(body).map_err(|error| {
        FrameError::Undecodable(match error {
            Error::DeserializeUnexpectedEnd => "it ends in the middle of a field",
            Error::DeserializeBadVarint => "a number has more bytes than it may have",
            Error::DeserializeBadUtf8 => "a text is not UTF-8",
            Error::DeserializeBadEnum | Error::SerdeDeCustom => "there is no message of that kind",
            Error::DeserializeBadBool | Error::DeserializeBadOption => "a field is neither there nor not there",
            _ => "a field cannot be decoded",
        })
    })?;
    if rest.is_empty() { Ok(message) } else { Err(FrameError::Undecodable("there is more in it than a message")) }
}

/// The agent runs, and has the disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Of this protocol.
    pub version: u32,
    /// As `uname -r` has it.
    pub kernel: String,
}

/// A file system, and where it shall be, or is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MountPoint {
    /// As in vda1, vg/root, btrfsvol:/dev/vda1/@, loop:/a/file/of/what/is/mounted; empty: whatever is found to be the
    /// root.
    pub device: String,
    /// Absolute.
    #[serde(with = "serde_bytes")]
    pub directory: Vec<u8>,
    /// As in ext4; empty: whatever it is found to be.
    pub r#type: String,
    /// From the agent: what is worth telling, such as a journal that was not replayed.
    pub note: String,
    /// As `mount -o` has them.
    #[serde(with = "serde_bytes")]
    pub options: Vec<u8>,
}

/// Mount file systems: those that are named, or else the root file system that is found by looking, and what its fstab
/// says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    pub read_only: bool,
    pub synchronous: bool,
    /// The first so many are images.
    pub disks: u32,
    /// The root first.
    pub points: Vec<MountPoint>,
}

/// Hand the guest over to the system in an image: its root, which the kernel's command line may name, becomes the root,
/// and its init takes the agent's place once this is answered well. The transfer disks are gone then.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HandOver {
    /// The first so many are images.
    pub disks: u32,
    /// Modules that are to be loaded before.
    pub modules: Vec<String>,
    /// A share (virtio-fs) of all modules of the kernel's, which the system is to see: its tag. Empty: there is none.
    pub module_share: String,
}

/// Look at files: a stream of Records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Walk {
    pub paths: Vec<Vec<u8>>,
    /// How deep: 0 is the paths themselves, 1 what is in them.
    pub depth: u32,
    /// Owners' names and links' targets too.
    pub details: bool,
    /// Paths that are links: look at what they lead to.
    pub follow: bool,
    pub one_file_system: bool,
    /// Of regular files: the extended ones that users set; and modes without access control lists.
    pub attributes: bool,
    /// Of directories: whether something is in them.
    pub emptiness: bool,
}

/// A file that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Within the directory that came before; a path as it was given where none did.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Type and permissions, as stat has them.
    pub mode: u32,
    pub inode: u64,
    /// Of the file system.
    pub device: u64,
    pub links: u64,
    pub user_id: u32,
    pub group_id: u32,
    /// Bytes.
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    /// Seconds since 1970.
    pub modified: i64,
    pub modified_ns: u32,
    pub accessed: i64,
    pub changed: i64,
    /// Of the device that it is.
    pub major: u32,
    pub minor: u32,
    /// Its owner's name, as the image's /etc/passwd has it; may be empty.
    pub user: String,
    pub group: String,
    /// Of a link.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    /// 2 KiB at most.
    pub attributes: Vec<Attribute>,
    /// It has more than that.
    pub more_attributes: bool,
    pub accessed_ns: u32,
    pub changed_ns: u32,
    /// A directory with nothing in it, if that was asked for.
    pub empty: bool,
}

/// An extended attribute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attribute {
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub value: Vec<u8>,
}

/// The entries that follow are in this directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Directory {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub depth: u32,
}

/// Something that could not be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// 0: the sentence says it all.
    pub errno: u32,
    /// With which file, if with one.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// What was being done, or what is wrong.
    pub sentence: String,
}

/// Part of a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    Entry(Entry),
    Directory(Directory),
    Failure(Failure),
    FileSystem(FileSystem),
    Output(Output),
    Volume(Volume),
    Root(Root),
    RootFile(RootFile),
    Attribute(Attribute),
    BootEntry(BootEntry),
    BootData(BootData),
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileSystem {
    pub device: String,
    #[serde(with = "serde_bytes")]
    pub directory: Vec<u8>,
    pub r#type: String,
    /// Bytes.
    pub block_size: u64,
    pub blocks: u64,
    /// Blocks.
    pub free: u64,
    /// Blocks, for users who are not root.
    pub available: u64,
    pub files: u64,
    pub free_files: u64,
}

/// The bytes of files, one after another, as a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Read {
    pub paths: Vec<Vec<u8>>,
}

/// Write a file out of the source disk: raw bytes from its start, or a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// The file, or a directory that it goes into.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// What it is called there, if that is a directory.
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Bytes, if it is not a stream.
    pub size: u64,
    pub stream: bool,
    /// Permissions of a new file.
    pub mode: u32,
    pub user_id: u32,
    pub group_id: u32,
    /// Seconds since 1970.
    pub modified: i64,
    pub modified_ns: u32,
    /// Where there is data, in order; none: everywhere.
    pub data: Vec<Range>,
    /// Behind what the file has, whose attributes stay.
    pub append: bool,
    /// The attributes of a file that is there stay, but for its time.
    pub keep: bool,
    /// 8 KiB at most.
    pub attributes: Vec<Attribute>,
}

/// Bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    pub offset: u64,
    pub length: u64,
}

/// Copy a file's data to the same places of the sink disk; the rest is zeros.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fetch {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// What it was found to have.
    pub size: u64,
}

/// How an archive is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}

/// Unpack the tar archive that comes as a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TarIn {
    #[serde(with = "serde_bytes")]
    pub directory: Vec<u8>,
    /// The directory must be there; without, it is made.
    pub into: bool,
    /// Files get the archive's owners; without, root's.
    pub own: bool,
    /// A file that is there is written into, also through a link, and not replaced.
    pub in_place: bool,
}

/// Pack files as a stream that is a tar archive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TarOut {
    /// Which paths are relative to.
    #[serde(with = "serde_bytes")]
    pub directory: Vec<u8>,
    /// None: all that is in the directory.
    pub paths: Vec<Vec<u8>>,
    pub compression: Compression,
    /// Patterns for paths in the directory, or for names below it: what they match is left out.
    pub excludes: Vec<Vec<u8>>,
    /// Sockets are packed, in star's way; without, they are left out, which is noted.
    pub sockets: bool,
}

/// Remove files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remove {
    pub paths: Vec<Vec<u8>>,
    pub recursive: bool,
    /// What is not there is no failure.
    pub force: bool,
    /// Empty directories too.
    pub directory: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MakeDirectory {
    pub paths: Vec<Vec<u8>>,
    pub parents: bool,
    pub mode: u32,
}

/// Move files into a directory, or one to a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rename {
    pub sources: Vec<Vec<u8>>,
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    pub no_clobber: bool,
    /// The sources come as a stream, a NUL after each.
    pub streamed: bool,
}

/// Link to a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// As written into a symbolic link; a path otherwise.
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    /// The link, or a directory that it goes into.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub symbolic: bool,
    /// Replace what is there.
    pub force: bool,
}

/// A part of a change of permissions, as chmod(1) has them: for `affected` bits, `operator` one of + - =.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModeClause {
    /// Mask of permission bits.
    pub affected: u32,
    /// '+', '-', '='.
    pub operator: u32,
    /// Permissions within `affected`.
    pub bits: u32,
    /// X: execute, for directories and what somebody may execute already.
    pub if_executable: bool,
    /// 'u', 'g', 'o': take that one's bits; 0: `bits`.
    pub copy_from: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeMode {
    pub paths: Vec<Vec<u8>>,
    pub clauses: Vec<ModeClause>,
    pub recursive: bool,
}

/// Change owners. Names are those of the image's /etc/passwd and /etc/group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChangeOwner {
    pub paths: Vec<Vec<u8>>,
    /// Empty: stays.
    pub user: String,
    /// Empty: stays.
    pub group: String,
    pub recursive: bool,
    pub no_dereference: bool,
}

/// Read so many bytes of the source disk, and do nothing with them: what a transfer alone takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Discard {
    pub size: u64,
}

/// Copy files within the image: into a directory, or one to a name. Owners, times and extended attributes are kept if
/// wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CopyFiles {
    pub sources: Vec<Vec<u8>>,
    #[serde(with = "serde_bytes")]
    pub target: Vec<u8>,
    pub recursive: bool,
    pub archive: bool,
    /// The sources come as a stream, a NUL after each.
    pub streamed: bool,
}

/// Make a file of so many bytes, a pattern repeated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Not empty.
    #[serde(with = "serde_bytes")]
    pub pattern: Vec<u8>,
    pub size: u64,
}

/// One end of CopyBlocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// Of the image.
    File(Vec<u8>),
    /// A disk or partition.
    Device(String),
    /// To or from the host.
    Stream,
}

/// dd(1): copy blocks of bytes from one place to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyBlocks {
    pub input: Place,
    pub output: Place,
    /// Bytes.
    pub block_size: u64,
    /// Blocks; UINT64_MAX: up to the end.
    pub count: u64,
    /// Blocks of the input.
    pub skip: u64,
    /// Blocks of the output.
    pub seek: u64,
    pub no_truncate: bool,
    /// The first so many are images.
    pub disks: u32,
}

/// Execute a program of the image in the image. Its outputs come as a stream of Records, its input is a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Execute {
    /// The first is the program.
    pub arguments: Vec<Vec<u8>>,
    /// NAME=VALUE.
    pub environment: Vec<Vec<u8>>,
}

/// What a program has written; nothing, as a sign of life.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// To stderr.
    pub is_error: bool,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Make files that are not there, and set the times of all of them to now; set their length if one is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Touch {
    pub paths: Vec<Vec<u8>>,
    pub no_create: bool,
    pub sets_size: bool,
    pub size: u64,
}

/// Read the partition tables of the images again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadPartitions {
    pub disks: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToolArgument {
    Text(Vec<u8>),
    /// A volume of the image, by any of its names: the agent writes its path.
    Device(String),
}

/// Execute a program that was installed, outside of the image, and wait for its end. It is found in /tools/bin, its
/// libraries in /tools/lib.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunTool {
    pub program: String,
    pub arguments: Vec<ToolArgument>,
    #[serde(with = "serde_bytes")]
    pub stdin: Vec<u8>,
    /// NAME=VALUE.
    pub environment: Vec<String>,
    /// The first so many are images.
    pub disks: u32,
    /// It changes the devices: they must not be mounted, and are flushed afterwards.
    pub exclusive: bool,
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// Its exit status, if no signal ended it.
    pub status: u32,
    pub signal: u32,
    /// What it wrote to its standard output: the first bytes and the last.
    #[serde(with = "serde_bytes")]
    pub output: Vec<u8>,
    /// The same of standard error.
    #[serde(with = "serde_bytes")]
    pub errors: Vec<u8>,
    /// Bytes of both in between.
    pub left_out: u64,
    /// The guest's kernel has killed something meanwhile, as there was no memory left: of Execute.
    pub out_of_memory: bool,
}

/// Look what is on the images' volumes, mounted or not: a stream of Records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListVolumes {
    pub disks: u32,
    /// Only this one, by any of its names; empty: all.
    pub device: String,
}

/// A partition, or a disk without any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// As in vda1.
    pub device: String,
    /// As in ext4; empty: nothing that is known.
    pub r#type: String,
    pub uuid: String,
    pub label: String,
    /// Bytes.
    pub size: u64,
    /// Where it is mounted; empty: it is not.
    #[serde(with = "serde_bytes")]
    pub directory: Vec<u8>,
    /// That it takes to make a key of a passphrase, if it is encrypted; 0: not known.
    pub key_memory_bytes: u64,
    /// Another volume is made of it.
    pub used: bool,
    /// Of the array that it is part of (md(4)).
    pub raid_level: i32,
    /// That the array or the Btrfs has when it is complete; 0: it is no part of one.
    pub raid_disks: u32,
}

/// Look for operating systems: a stream of Records. Afterwards nothing is mounted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inspect {
    pub disks: u32,
    /// The only one, if its root is named.
    pub points: Vec<MountPoint>,
}

/// The root file system of an operating system; the first is the one that is mounted if nobody says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Root {
    pub device: String,
    /// The root, and what its fstab says.
    pub mounted: Vec<MountPoint>,
    pub notes: Vec<String>,
}

/// A file below the root that came before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RootFile {
    /// Without the first slash.
    pub path: String,
    /// Its first bytes.
    #[serde(with = "serde_bytes")]
    pub content: Vec<u8>,
}

/// What was given back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trimmed {
    pub device: String,
    pub bytes: u64,
}

/// Make a file that is a device, a fifo or a socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MakeNode {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Type and permissions, as mknod(2) has them.
    pub mode: u32,
    /// Of a device.
    pub major: u32,
    pub minor: u32,
}

/// All extended attributes of a file: a stream of Records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadAttributes {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// If it is a link: of what it leads to.
    pub follow: bool,
}

/// Set an extended attribute of a file, or remove it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SetAttribute {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    pub follow: bool,
    #[serde(with = "serde_bytes")]
    pub name: Vec<u8>,
    /// Nothing: it is removed.
    #[serde(with = "serde_bytes")]
    pub value: Option<Vec<u8>>,
}

/// The path of a file without links and dots, as a stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResolvePath {
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
}

/// Whether two files hold the same bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    #[serde(with = "serde_bytes")]
    pub one: Vec<u8>,
    #[serde(with = "serde_bytes")]
    pub other: Vec<u8>,
}

/// Find what the image's boot loader would boot, in the configuration of that loader: a stream of Records, the entry
/// first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FindBootFiles {
    pub disks: u32,
    /// The bytes of kernel and initrd follow the entry.
    pub content: bool,
}

/// Most bytes of a kernel.
pub const KERNEL_BYTES_MAX: u64 = 512 << 20;
/// Most bytes of an entry's initrds.
pub const INITRD_BYTES_MAX: u64 = 1 << 30;

/// Whose configuration a boot entry is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BootLoader {
    SystemdBoot,
    /// Files as systemd-boot has them, but no loader that reads them.
    BootLoaderSpecification,
    Grub,
    Extlinux,
    /// None: the newest kernel was taken.
    #[default]
    None,
}

/// What a boot loader would boot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BootEntry {
    pub loader: BootLoader,
    /// That has the entry, as people call it.
    pub file: String,
    /// Of the file; 0: no line in particular.
    pub line: u32,
    pub title: String,
    /// As people call it.
    pub kernel: String,
    pub kernel_bytes: u64,
    pub initrds: Vec<String>,
    /// Of all of them together.
    pub initrd_bytes: u64,
    pub command_line: String,
    pub notes: Vec<String>,
}

/// Bytes of the boot entry's files, in order: of the kernel first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BootData {
    pub is_initrd: bool,
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// What the agent is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Operation {
    Mount(Mount),
    /// Unmount all. When it is done, what was written is on stable storage as far as the disks are.
    Unmount,
    Walk(Walk),
    /// How full the mounted file systems are: a stream of Records.
    Usage,
    Read(Read),
    Store(Store),
    Fetch(Fetch),
    TarIn(TarIn),
    TarOut(TarOut),
    Remove(Remove),
    MakeDirectory(MakeDirectory),
    Rename(Rename),
    Link(Link),
    ChangeMode(ChangeMode),
    ChangeOwner(ChangeOwner),
    /// Everything to stable storage.
    Sync,
    CopyFiles(CopyFiles),
    Fill(Fill),
    CopyBlocks(CopyBlocks),
    Execute(Execute),
    Touch(Touch),
    ReadPartitions(ReadPartitions),
    /// Give up the request that is under way. It is answered; this is not.
    Interrupt,
    /// Unpack a tar archive that comes as a stream into the appliance's own root, not the image's: programs for
    /// RunTool.
    InstallTools,
    RunTool(RunTool),
    ListVolumes(ListVolumes),
    /// Give the free blocks of what is mounted back to the disks (ioctl FITRIM).
    Trim,
    Discard(Discard),
    Inspect(Inspect),
    MakeNode(MakeNode),
    ReadAttributes(ReadAttributes),
    SetAttribute(SetAttribute),
    ResolvePath(ResolvePath),
    Compare(Compare),
    HandOver(HandOver),
    FindBootFiles(FindBootFiles),
}

impl Operation {
    /// Whether it is about files of what is mounted, and so makes no sense while nothing is.
    pub fn needs_a_mount(&self) -> bool {
        match self {
            Self::Mount(_)
            | Self::Unmount
            | Self::Sync
            | Self::InstallTools
            | Self::RunTool(_)
            | Self::ListVolumes(_)
            | Self::ReadPartitions(_)
            | Self::CopyBlocks(_)
            | Self::Interrupt
            | Self::HandOver(_)
            | Self::Inspect(_) => false,
            Self::Walk(_)
            | Self::Usage
            | Self::Read(_)
            | Self::Store(_)
            | Self::Fetch(_)
            | Self::TarIn(_)
            | Self::TarOut(_)
            | Self::Remove(_)
            | Self::MakeDirectory(_)
            | Self::Rename(_)
            | Self::Link(_)
            | Self::ChangeMode(_)
            | Self::ChangeOwner(_)
            | Self::CopyFiles(_)
            | Self::Fill(_)
            | Self::Execute(_)
            | Self::Touch(_)
            | Self::Trim
            | Self::Discard(_)
            | Self::MakeNode(_)
            | Self::ReadAttributes(_)
            | Self::SetAttribute(_)
            | Self::ResolvePath(_)
            | Self::Compare(_)
            | Self::FindBootFiles(_) => true,
        }
    }

    /// The paths of a request that does something with each, whatever it does with the others: it can be made as
    /// several.
    pub fn each_of(&mut self) -> Option<&mut Vec<Vec<u8>>> {
        match self {
            Self::Walk(request) => Some(&mut request.paths),
            Self::Read(request) => Some(&mut request.paths),
            Self::Remove(request) => Some(&mut request.paths),
            Self::MakeDirectory(request) => Some(&mut request.paths),
            Self::ChangeMode(request) => Some(&mut request.paths),
            Self::ChangeOwner(request) => Some(&mut request.paths),
            Self::Touch(request) => Some(&mut request.paths),
            _ => None,
        }
    }
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back.
    pub number: u32,
    pub operation: Operation,
}

/// How a request ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    pub number: u32,
    /// The first few; none: all went well.
    pub failures: Vec<Failure>,
    /// How many there were.
    pub failed: u64,
    /// By Mount; by HandOver: the root.
    pub mounted: Vec<MountPoint>,
    /// That a stream had, or that were copied.
    pub bytes: u64,
    /// Of RunTool.
    pub program: Option<ProgramEnd>,
    /// By Trim.
    pub trimmed: Vec<Trimmed>,
    /// By Mount: what could not be mounted; by TarOut: what was left out.
    pub notes: Vec<String>,
    /// By Mount and HandOver: some volumes have to be opened, or put together, before they have files.
    pub closed: bool,
    /// By Mount, HandOver and Inspect: what the kernel asked for and nobody has sent.
    pub modules: Vec<String>,
    /// By Compare.
    pub same: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn body<M: Serialize>(message: &M) -> Vec<u8> {
        encode(message, &mut [0; FRAME_BYTES_MAX]).unwrap()[LENGTH_BYTES..].to_vec()
    }

    #[test]
    fn what_is_sent_arrives() {
        let point = MountPoint { device: "vda1".into(), directory: b"/".to_vec(), ..MountPoint::default() };
        for operation in [
            Operation::Unmount,
            Operation::Mount(Mount { points: vec![point], disks: 1, ..Mount::default() }),
            Operation::CopyBlocks(CopyBlocks {
                input: Place::File(b"/a".to_vec()),
                output: Place::Stream,
                block_size: 512,
                count: u64::MAX,
                skip: 1,
                seek: 0,
                no_truncate: true,
                disks: 2,
            }),
            Operation::SetAttribute(SetAttribute { name: b"user.a".to_vec(), ..SetAttribute::default() }),
        ] {
            let request = Request { number: u32::MAX, operation };
            assert_eq!(decode::<Request>(&body(&request)), Ok(request));
        }
    }

    #[test]
    fn what_is_no_message_or_more_than_one_is_refused() {
        let whole = body(&Response { number: 1, bytes: u64::MAX, notes: vec!["ä".into()], ..Response::default() });
        assert!(decode::<Response>(&whole).is_ok());
        for end in 0..whole.len() {
            assert!(matches!(decode::<Response>(&whole[..end]), Err(FrameError::Undecodable(_))), "{end} bytes");
        }
        let more = [&whole[..], &[0]].concat();
        assert_eq!(decode::<Response>(&more), Err(FrameError::Undecodable("there is more in it than a message")));
        assert_eq!(decode::<Record>(&[99]), Err(FrameError::Undecodable("there is no message of that kind")));
    }

    #[test]
    fn a_message_without_room_is_not_encoded() {
        let message = Fill { pattern: vec![1; FRAME_BYTES_MAX], ..Fill::default() };
        let no_room = |bytes_max| Err(FrameError::NoRoom { bytes_max });
        assert_eq!(encode(&message, &mut vec![0; 2 * FRAME_BYTES_MAX]), no_room(u16::MAX as usize));
        for bytes in 0..4 {
            assert_eq!(encode(&Fill::default(), &mut vec![0; bytes]), no_room(bytes.saturating_sub(2)), "{bytes}");
        }
    }

    fn goes_round<M: Serialize + DeserializeOwned + PartialEq + core::fmt::Debug>(bytes: &[u8]) {
        if let Ok(message) = decode::<M>(bytes) {
            assert_eq!(decode::<M>(&body(&message)), Ok(message));
        }
    }

    #[test]
    fn fuzz_any_bytes_are_a_message_that_goes_round_or_an_error() {
        blockyard_fuzz::check!(100_000).for_each(|bytes: &[u8]| {
            goes_round::<Request>(bytes);
            goes_round::<Response>(bytes);
            goes_round::<Record>(bytes);
        });
    }
}
