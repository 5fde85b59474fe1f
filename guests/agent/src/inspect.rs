//! What operating systems there are: their roots, and the files that say what they are. Whoever asks makes sense of
//! those.

use crate::block_devices;
use crate::directory_walk::write_record;
use crate::failures::refusal;
use crate::modules;
use crate::mount_options::MountOptions;
use crate::mounts::{Mounts, ROOT};
use crate::roots;
use crate::tree::Tree;
use blockyard_protocol::appliance::{FRAME_BYTES_MAX, Failure, Inspect, Mount, Record, Root, RootFile};
use std::io::{self, Write};
use std::path::Path;

/// Roots that are looked into.
const ROOTS_MAX: usize = 32;
/// Bytes of a file that are told.
const FILE_BYTES_MAX: u64 = 16 << 10;

/// Files that say what a system is, all from its root; of databases of packages, that they are there says enough.
const TELLING: [&str; 16] = [
    "etc/os-release",
    "usr/lib/os-release",
    "etc/lsb-release",
    "etc/debian_version",
    "etc/alpine-release",
    "etc/redhat-release",
    "etc/centos-release",
    "etc/SuSE-release",
    "etc/arch-release",
    "etc/gentoo-release",
    "etc/slackware-version",
    "etc/hostname",
    "etc/HOSTNAME",
    "etc/sysconfig/network",
    "etc/conf.d/hostname",
    "etc/machine-id",
];
const DATABASES: [&str; 8] = [
    "var/lib/dpkg/status",
    "var/lib/rpm",
    "usr/lib/sysimage/rpm",
    "usr/share/rpm",
    "lib/apk/db/installed",
    "var/lib/pacman/local",
    "var/db/pkg",
    "var/db/xbps",
];
/// Programs of the image: their first bytes say for which machine they are.
const PROGRAMS: [&str; 5] = ["bin/sh", "bin/bash", "bin/ls", "usr/bin/sh", "sbin/init"];
const PROGRAM_BYTES: u64 = 64;

/// Writes records to `sink`: the volumes, and each root that is found with what belongs to it. Afterwards nothing is
/// mounted.
pub(crate) fn inspect(mounts: &mut Mounts, request: &Inspect, sink: &mut dyn Write) -> io::Result<()> {
    let mut report = Report { frame: vec![0; FRAME_BYTES_MAX], sink };
    if let Err(problem) = mounts.unmount() {
        return report.record(&Record::Failure(problem));
    }
    let volumes = block_devices::volumes(request.disks);
    for volume in &volumes {
        report.record(&Record::Volume(volume.into()))?;
    }
    let sources = if request.points.is_empty() { roots::all(&volumes, Path::new(ROOT)) } else { Vec::new() };
    // The first is what mounting takes.
    for source in sources.iter().take(ROOTS_MAX) {
        let mounted = mounts.mount_system(source, &volumes, &MountOptions::new(true, false));
        report.system(mounts, mounted)?;
    }
    if !request.points.is_empty() {
        let points = request.points.clone();
        let mounted = mounts.mount_all(&Mount { read_only: true, synchronous: false, disks: request.disks, points });
        report.system(mounts, mounted)?;
    }
    mounts.wanted.extend(modules::wanted());
    Ok(())
}

struct Report<'sink> {
    frame: Vec<u8>,
    sink: &'sink mut dyn Write,
}

impl Report<'_> {
    /// Tells what was mounted, if it was, and unmounts it.
    fn system(&mut self, mounts: &mut Mounts, mounted: Result<(), Failure>) -> io::Result<()> {
        let tree = mounted.and_then(|()| Tree::open(Path::new(ROOT)).map_err(|errno| refusal(errno.to_string())));
        let told = match tree {
            Ok(tree) => self.root(mounts, &tree),
            Err(problem) => self.record(&Record::Failure(problem)),
        };
        let unmounted = mounts.unmount();
        told.and(unmounted.or_else(|problem| self.record(&Record::Failure(problem))))
    }

    fn root(&mut self, mounts: &mut Mounts, tree: &Tree) -> io::Result<()> {
        let points: Vec<_> = mounts.mounted.iter().map(|mounted| mounted.point.clone()).collect();
        let device = points.first().map(|root| root.device.clone()).unwrap_or_default();
        self.record(&Record::Root(Root { device, mounted: points, notes: std::mem::take(&mut mounts.notes) }))?;
        for path in TELLING {
            if let Some(content) = tree.head(path, FILE_BYTES_MAX) {
                self.file(path, content)?;
            }
        }
        for path in DATABASES.into_iter().filter(|path| tree.has(path)) {
            self.file(path, Vec::new())?;
        }
        for path in PROGRAMS {
            if let Some(content) = tree.head(path, PROGRAM_BYTES) {
                self.file(path, content)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &str, content: Vec<u8>) -> io::Result<()> {
        self.record(&Record::RootFile(RootFile { path: path.to_owned(), content }))
    }

    fn record(&mut self, record: &Record) -> io::Result<()> {
        write_record(record, &mut self.frame, self.sink)
    }
}
