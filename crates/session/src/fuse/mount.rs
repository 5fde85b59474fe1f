//! Mounting: mount(2) for whoever may, fusermount3 for everybody else.

use super::fusermount;
use super::mountpoint::{FILE_SYSTEM_TYPE, Mountpoint};
use super::{AllowedUsers, FuseError};
use blockyard_block::descriptor_path;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};
use std::ffi::CString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
/// A mount, and who can take it away again.
pub(super) struct Mounted {
    /// /dev/fuse, connected to the mount.
    pub(super) device: OwnedFd,
    /// The program that unmounts, if mount(2) and umount(2) are not ours to call.
    pub(super) fusermount: Option<PathBuf>,
}

/// Mounts over `mountpoint`.
pub(super) fn mount(mountpoint: &Mountpoint, access: AllowedUsers, read_only: bool) -> Result<Mounted, FuseError> {
    let opened = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let refused = match opened {
        Ok(device) => match mount_directly(&device, mountpoint, access, read_only) {
            Ok(()) => return Ok(Mounted { device, fusermount: None }),
            Err(Errno::PERM) => None,
            Err(errno) => return Err(FuseError::Mount { path: mountpoint.path.clone(), error: errno.into() }),
        },
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => return Err(FuseError::NoDevice),
        // fusermount3 opens the device itself, and may be let where we are not.
        Err(errno) => Some(errno),
    };
    if rustix::process::geteuid().is_root() {
        return Err(refused.map_or(FuseError::MayNotMount, |errno| FuseError::Device { error: errno.into() }));
    }
    let program = fusermount::find().ok_or(FuseError::NoFusermount)?;
    let device = mount_by_fusermount(&program, mountpoint, access, read_only)?;
    Ok(Mounted { device, fusermount: Some(program) })
}

fn mount_directly(
    device: &OwnedFd,
    mountpoint: &Mountpoint,
    access: AllowedUsers,
    read_only: bool,
) -> rustix::io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut options = format!(
        "fd={},rootmode={:o},user_id={uid},group_id={gid},default_permissions",
        device.as_raw_fd(),
        libc::S_IFREG
    );
    if access != AllowedUsers::Owner {
        options.push_str(",allow_other");
    }
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    // Through the descriptor that was checked, so that nobody can put another file in its place meanwhile.
    let target = descriptor_path(&mountpoint.file);
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    flags.set(MountFlags::RDONLY, read_only);
    rustix::mount::mount("blockyard", target, FILE_SYSTEM_TYPE, flags, Some(options.as_c_str()))
}

/// fusermount3 mounts for ordinary users and sends the connected /dev/fuse through the socket that `_FUSE_COMMFD`
/// names.
fn mount_by_fusermount(
    program: &PathBuf,
    mountpoint: &Mountpoint,
    access: AllowedUsers,
    read_only: bool,
) -> Result<OwnedFd, FuseError> {
    let failed = |error: io::Error| FuseError::Mount { path: mountpoint.path.clone(), error };
    let mut options = "fsname=blockyard,subtype=blockyard,default_permissions,nosuid,nodev".to_owned();
    if access != AllowedUsers::Owner {
        options.push_str(",allow_other");
    }
    if read_only {
        options.push_str(",ro");
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| failed(errno.into()))?;
    let child = Command::new(program)
        .args(["-o", &options, "--"])
        .arg(&mountpoint.path)
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let device = receive_descriptor(&ours);
    drop(ours);
    let output = child.wait_with_output().map_err(failed)?;
    match device {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(fusermount_error(mountpoint, &String::from_utf8_lossy(&output.stderr))),
        Err(errno) => Err(failed(errno.into())),
    }
}

/// The first descriptor that comes through the socket; `None` when it is closed without.
fn receive_descriptor(socket: &OwnedFd) -> rustix::io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => break,
        }
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.last())
}

fn fusermount_error(mountpoint: &Mountpoint, said: &str) -> FuseError {
    if said.contains("user_allow_other") {
        return FuseError::AllowOther;
    }
    if said.contains("failed to open /dev/fuse") {
        return FuseError::Device { error: Errno::ACCESS.into() };
    }
    let line = said.trim().lines().last().unwrap_or("it did not say why");
    // It puts its own path before what it says.
    let said = line.split_once("fusermount3: ").map_or(line, |(_, said)| said).to_owned();
    FuseError::Fusermount { path: mountpoint.path.clone(), said }
}
