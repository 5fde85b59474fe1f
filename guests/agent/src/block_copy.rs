//! Copying blocks between disks, files of the image and the host: dd(1).

use crate::block_devices;
use crate::failures::{Failures, failure, refusal};
use crate::interruption;
use crate::mounts::{Mounts, path_of};
use crate::stream::{SinkStream, SourceStream, TransferDisks};
use blockyard_protocol::appliance::{CopyBlocks, Failure, Place};
use blockyard_protocol::volume_name::{disk_name, kernel_name};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Copies; how many bytes.
pub(crate) fn copy(request: &CopyBlocks, mounts: &Mounts, disks: &TransferDisks) -> Result<u64, Failure> {
    let offset = |blocks: u64| {
        let bytes = blocks.checked_mul(request.block_size).filter(|_| request.block_size > 0);
        bytes.ok_or_else(|| refusal("so many blocks of that size are more than there can be"))
    };
    let (skip, seek) = (offset(request.skip)?, offset(request.seek)?);
    let limit = if request.count == u64::MAX { u64::MAX } else { offset(request.count)? };
    let places = Places { request, mounts, disks };
    let mut input = places.input(skip)?;
    let mut output = places.output(seek)?;
    let copied = copy_bytes(&mut *input, &mut output, limit);
    let finished = output.finish();
    let bytes = copied.map_err(|error| failure(Path::new(""), "cannot copy", &error))?;
    finished.map_err(|error| failure(Path::new(""), "cannot copy", &error))?;
    Ok(bytes)
}

fn copy_bytes(input: &mut dyn Read, output: &mut Output, limit: u64) -> io::Result<u64> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut copied = 0;
    while copied < limit {
        interruption::check()?;
        let wanted = (limit - copied).min(PIECE_BYTES as u64) as usize;
        match input.read(&mut buffer[..wanted])? {
            0 => break,
            bytes => {
                output.writer().write_all(&buffer[..bytes])?;
                copied += bytes as u64;
            }
        }
    }
    Ok(copied)
}

struct Places<'request> {
    request: &'request CopyBlocks,
    mounts: &'request Mounts,
    disks: &'request TransferDisks,
}

enum Output {
    File(File),
    Device(File),
    Stream(SinkStream),
}

impl Output {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::File(file) | Self::Device(file) => file,
            Self::Stream(stream) => stream,
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::File(_) => Ok(()),
            // Nobody unmounts it.
            Self::Device(file) => file.sync_all(),
            Self::Stream(stream) => stream.finish().map(drop),
        }
    }
}

impl Places<'_> {
    fn input(&self, skip: u64) -> Result<Box<dyn Read>, Failure> {
        let bad = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| failure(&path, "cannot read", &error)
        };
        match &self.request.input {
            // The host has skipped what is to be skipped.
            Place::Stream => {
                let stream = SourceStream::open(&self.disks.source).map_err(bad(Path::new("")))?;
                Ok(Box::new(stream))
            }
            Place::File(path) => {
                let path = path_of(path);
                let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path);
                let file = file.and_then(regular).and_then(|mut file| file.seek(SeekFrom::Start(skip)).map(|_| file));
                Ok(Box::new(file.map_err(bad(path))?))
            }
            Place::Device(name) => {
                let path = self.device(name)?;
                let file = self.mounts.outside(|| File::open(&path))?;
                let file = file.and_then(|mut file| file.seek(SeekFrom::Start(skip)).map(|_| file));
                Ok(Box::new(file.map_err(bad(&path))?))
            }
        }
    }

    fn output(&self, seek: u64) -> Result<Output, Failure> {
        let bad = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| failure(&path, "cannot write", &error)
        };
        match &self.request.output {
            Place::Stream => Ok(Output::Stream(SinkStream::open(&self.disks.sink))),
            Place::File(path) => {
                let path = path_of(path);
                let flags = OFlags::NONBLOCK.bits() as i32;
                let file =
                    File::options().write(true).create(true).truncate(false).mode(0o644).custom_flags(flags).open(path);
                let file = file.and_then(regular).and_then(|mut file| {
                    if !self.request.no_truncate {
                        // As dd does: what is before stays.
                        file.set_len(seek)?;
                    }
                    file.seek(SeekFrom::Start(seek)).map(|_| file)
                });
                Ok(Output::File(file.map_err(bad(path))?))
            }
            Place::Device(name) => {
                let path = self.device(name)?;
                let node = path.strip_prefix("/dev").unwrap_or(&path).to_string_lossy().into_owned();
                self.mounts.must_not_have(&node)?;
                let file = self.mounts.outside(|| File::options().write(true).open(&path))?;
                let file = file.and_then(|mut file| file.seek(SeekFrom::Start(seek)).map(|_| file));
                Ok(Output::Device(file.map_err(bad(&path))?))
            }
        }
    }

    /// A disk or a volume by any of its names.
    fn device(&self, name: &str) -> Result<PathBuf, Failure> {
        self.mounts.outside(|| {
            let whole = kernel_name(name);
            let disks = (0..self.request.disks.min(24)).map(disk_name);
            if disks.into_iter().any(|disk| disk == whole) {
                return Ok(Path::new("/dev").join(whole));
            }
            let volumes = block_devices::volumes(self.request.disks);
            Ok(Path::new("/dev").join(&block_devices::find(&volumes, name)?.node))
        })?
    }
}

fn regular(file: File) -> io::Result<File> {
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::other("it is not a regular file")),
    }
}

/// Has the kernel read the partition tables again: the host has written new ones.
pub(crate) fn read_partitions(disks: u32, failures: &mut Failures) {
    for disk in 0..disks.min(24) {
        let path = PathBuf::from(format!("/dev/vd{}", char::from(b'a' + disk as u8)));
        // One that is mounted is as it was.
        match File::open(&path).and_then(|disk| read_partition_table(&disk)) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {}
            read => failures.note(&path, "cannot read the partition table again", read),
        }
    }
    // Nodes appear in /dev when the kernel likes; devtmpfs is there when the call returns.
    let _ = fs::read_dir("/dev");
}

fn read_partition_table(disk: &File) -> io::Result<()> {
    const BLKRRPART: Opcode = opcode::none(0x12, 95);
    const BLKFLSBUF: Opcode = opcode::none(0x12, 97);
    // SAFETY: both take no argument (Linux, include/uapi/linux/fs.h).
    unsafe {
        ioctl(disk, NoArg::<BLKFLSBUF>::new())?;
        ioctl(disk, NoArg::<BLKRRPART>::new())?;
    }
    Ok(())
}
