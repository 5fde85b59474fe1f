//! The host's programs that make, check and open file systems: they come when they are needed, live in this root and
//! not in the image's, and are executed outside of it.

use crate::block_devices::{self, Volume};
use crate::failures::{Failures, failure};
use crate::modules;
use crate::mounts::Mounts;
use crate::program;
use crate::stream::TransferDisks;
use crate::tar_in;
use blockyard_protocol::appliance::{Failure, ProgramEnd, RunTool, TarIn, ToolArgument};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where programs are, and their libraries.
const PROGRAMS: &str = "/tools/bin";
const LIBRARIES: &str = "/tools/lib";
/// A program that looks for a module before it has the kernel want one (since mdadm 4.5, by a shell, and there is
/// none), and which.
const ARRAYS: (&str, &str) = ("mdadm", "md-mod");
/// Directories that programs expect.
const EXPECTED: [&str; 3] = ["/etc", "/run", "/tmp"];

/// Unpacks programs that come as a stream.
pub(crate) fn install(mounts: &Mounts, disks: &TransferDisks, failures: &mut Failures) -> Result<u64, Failure> {
    let here = TarIn { directory: b"/".to_vec(), into: true, ..TarIn::default() };
    mounts.outside(|| {
        for directory in EXPECTED {
            let made = fs::create_dir_all(directory);
            made.map_err(|error| failure(Path::new(directory), "cannot make the directory", &error))?;
        }
        tar_in::unpack(&here, disks, failures)
    })?
}

/// Executes a program, and waits for its end.
pub(crate) fn run(request: RunTool, mounts: &Mounts) -> Result<ProgramEnd, Failure> {
    let bad = |what| {
        let program = request.program.clone();
        move |error: std::io::Error| failure(Path::new(&program), what, &error)
    };
    let volumes = mounts.outside(|| block_devices::volumes(request.disks))?;
    let mut devices = Vec::new();
    let mut command = Command::new(Path::new(PROGRAMS).join(&request.program));
    for argument in &request.arguments {
        command.arg(written(argument, &volumes, &mut devices)?);
    }
    if request.exclusive {
        devices.iter().try_for_each(|device| mounts.must_not_have(device))?;
    }
    command.env_clear().env("PATH", PROGRAMS).env("LD_LIBRARY_PATH", LIBRARIES).env("LC_ALL", "C").env("HOME", "/");
    command.envs(request.environment.iter().filter_map(|variable| variable.split_once('=')));
    if request.program == ARRAYS.0 {
        mounts.outside(|| modules::load(ARRAYS.1))?.map_err(bad("cannot prepare"))?;
    }
    let child = mounts.outside(|| program::start(command.current_dir("/")))?.map_err(bad("cannot execute"))?;
    let end = program::finish(child, request.stdin).map_err(bad("cannot follow"))?;
    if request.exclusive {
        mounts.outside(|| devices.iter().try_for_each(|device| flush(device)))??;
    }
    Ok(end)
}

/// An argument as the program gets it.
fn written(argument: &ToolArgument, volumes: &[Volume], devices: &mut Vec<String>) -> Result<OsString, Failure> {
    match argument {
        ToolArgument::Text(text) => Ok(OsStr::from_bytes(text).to_owned()),
        ToolArgument::Device(name) => {
            let volume = block_devices::find(volumes, name)?;
            devices.push(volume.node.clone());
            Ok(Path::new("/dev").join(&volume.node).into())
        }
    }
}

/// Not every program flushes what it has written.
fn flush(device: &str) -> Result<(), Failure> {
    let path = PathBuf::from("/dev").join(device);
    File::open(&path).and_then(|device| device.sync_all()).map_err(|error| failure(&path, "cannot flush", &error))
}
