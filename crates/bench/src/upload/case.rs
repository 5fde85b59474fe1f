//! What is measured: images, file systems, and ways to get data into them.

use crate::guestfish::{STAMP, quoted};
use crate::timed_command;
use anyhow::{Context, Result};
use blockyard_block::programs;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What an image is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    RawSparse,
    RawPreallocated,
    Qcow2,
    Qcow2Metadata,
}

/// How the data get into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// From a file of the host's.
    Upload,
    /// From a disk that the guest has.
    Dd,
    /// From a compressed archive of zeros.
    TarGz,
    /// From nowhere: bytes of this value, which the guest makes. This is the reference's write-no-upload.
    Fill(u8),
    /// From a file of the host's to nowhere.
    UploadNoWrite,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    container: Container,
    file_system: &'static str,
    is_sync: bool,
    pub(super) method: Method,
}

impl Case {
    const fn new(container: Container, method: Method, file_system: &'static str) -> Self {
        Self { container, file_system, is_sync: false, method }
    }

    const fn sync(self) -> Self {
        Self { is_sync: true, ..self }
    }

    pub(super) fn name(self) -> String {
        let container = match self.container {
            Container::RawSparse => "raw sparse",
            Container::RawPreallocated => "raw prealloc",
            Container::Qcow2 => "qcow2",
            Container::Qcow2Metadata => "qcow2 metadata",
        };
        let method = match self.method {
            Method::Upload => "upload".to_owned(),
            Method::Dd => "dd".to_owned(),
            Method::TarGz => "tar.gz".to_owned(),
            Method::Fill(byte) => format!("fill {byte}"),
            Method::UploadNoWrite => "upload-no-write".to_owned(),
        };
        let sync = if self.is_sync { ", sync" } else { "" };
        format!("{container}, {}, {method}{sync}", self.file_system)
    }

    fn is_qcow2(self) -> bool {
        matches!(self.container, Container::Qcow2 | Container::Qcow2Metadata)
    }
}

/// The reference's cases, in its order, then those of the other file systems.
pub(super) fn matrix(quick: bool) -> Vec<Case> {
    use Container::{Qcow2, Qcow2Metadata, RawPreallocated, RawSparse};
    use Method::{Dd, Fill, TarGz, Upload, UploadNoWrite};
    let mut cases = vec![
        Case::new(RawSparse, Upload, "ext2"),
        Case::new(RawPreallocated, TarGz, "ext2"),
        Case::new(Qcow2, Upload, "ext4"),
        Case::new(RawSparse, Fill(1), "ext4"),
        Case::new(RawSparse, UploadNoWrite, "ext4"),
    ];
    if !quick {
        cases = vec![
            cases[0],
            Case::new(RawPreallocated, Upload, "ext2"),
            Case::new(RawPreallocated, Dd, "ext2"),
            Case::new(Qcow2, Upload, "ext2"),
            Case::new(Qcow2Metadata, Upload, "ext2"),
            Case::new(Qcow2Metadata, Dd, "ext2"),
            Case::new(RawPreallocated, Dd, "ext2").sync(),
            Case::new(RawPreallocated, Upload, "ext2").sync(),
            Case::new(RawPreallocated, Dd, "ext3"),
            Case::new(RawPreallocated, Upload, "ext3"),
            cases[1],
            Case::new(RawSparse, Fill(0), "ext2"),
            Case::new(RawSparse, Fill(1), "ext2"),
            Case::new(Qcow2, Fill(0), "ext2"),
            Case::new(Qcow2, Fill(1), "ext2"),
            Case::new(RawSparse, Upload, "ext4"),
            cases[2],
            cases[3],
            cases[4],
        ];
    }
    cases
}

/// Files of the measurement.
pub(super) struct Yard {
    blockyard: PathBuf,
    pub(super) directory: PathBuf,
    bytes: u64,
    pub(super) data: PathBuf,
    pub(super) archive: PathBuf,
}

impl Yard {
    pub(super) fn new(blockyard: &Path, directory: &Path, bytes: u64) -> Self {
        let (data, archive) = (directory.join("big.file"), directory.join("big.file.tar.gz"));
        Self { blockyard: blockyard.to_owned(), directory: directory.to_owned(), bytes, data, archive }
    }

    /// As the reference's `tar zcf`: a file of zeros.
    pub(super) fn write_archive(&self) -> Result<()> {
        let directory = self.directory.join("zeros");
        std::fs::create_dir(&directory)?;
        let zeros = directory.join("big.file");
        File::create(&zeros)?.set_len(self.bytes)?;
        // Without --sparse, holes are zeros.
        let mut tar = programs::command("tar");
        timed_command::run(tar.arg("-C").arg(&directory).arg("-zcf").arg(&self.archive).arg("big.file"), "")?;
        Ok(std::fs::remove_dir_all(&directory)?)
    }

    pub(super) fn image(&self, case: Case) -> PathBuf {
        self.directory.join(if case.is_qcow2() { "disk.qcow2" } else { "disk.img" })
    }

    /// A fresh image, with one partition that has a file system, of twice the data's size.
    pub(super) fn make_image(&self, case: Case) -> Result<()> {
        let image = self.image(case);
        match std::fs::remove_file(&image) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", image.display()));
            }
            _ => {}
        }
        let mut create = Command::new(&self.blockyard);
        create.args(["image", "create", "--quiet", "--table", "mbr", "--part"]);
        create.arg(format!("rest,fs={}", case.file_system));
        match case.container {
            Container::RawPreallocated => drop(create.args(["-o", "preallocation=falloc"])),
            Container::Qcow2Metadata => drop(create.args(["-o", "preallocation=metadata"])),
            Container::RawSparse | Container::Qcow2 => {}
        }
        // Room for journal and tables of a small one too.
        create.arg(&image).arg((self.bytes * 2 + (64 << 20)).to_string());
        timed_command::run(&mut create, "").context("making an image")?;
        // Else what is written back of it disturbs the measurement.
        File::open(&image).and_then(|file| file.sync_all()).context("flushing the image")
    }

    /// The way of upload-no-write, for which there is no script.
    pub(super) fn read_in(&self, case: Case) -> Command {
        let mut command = Command::new(&self.blockyard);
        command.args(["image", "read-in"]).arg(self.image(case)).arg(&self.data);
        command
    }

    /// What runs scripts as guestfish does.
    pub(super) fn our_shell(&self) -> Command {
        let mut command = Command::new(&self.blockyard);
        command.args(["image", "script", "-"]);
        command
    }

    /// As the reference's script has it, for both sides.
    pub(super) fn script(&self, case: Case) -> String {
        let format = if case.is_qcow2() { "qcow2" } else { "raw" };
        let (image, data) = (quoted(&self.image(case)), quoted(&self.data));
        let mut script = format!("add {image} format:{format}\n");
        if case.method == Method::Dd {
            script += &format!("add {data} readonly:true format:raw\n");
        }
        let options = if case.is_sync { "sync" } else { "" };
        script += &format!("run\nmount-options \"{options}\" /dev/sda1 /\n");
        if case.method == Method::UploadNoWrite {
            script += "mknod-c 0666 1 3 /null\n";
        }
        script += "sync\n";
        script += STAMP;
        script += &match case.method {
            Method::Upload => format!("upload {data} /big.file\n"),
            Method::UploadNoWrite => format!("upload {data} /null\n"),
            Method::Dd => "dd /dev/sdb /big.file\n".to_owned(),
            Method::TarGz => format!("tgz-in {} /\n", quoted(&self.archive)),
            Method::Fill(byte) => format!("fill {byte} {} /big.file\n", self.bytes),
        };
        script
    }
}
