//! The test VM as a CD that boots on machines of other people's: GRUB 2, a kernel, and the initial file system.

use crate::guest::Guest;
use crate::initramfs::write_with_modules;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_block::{open_named, private_directory};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;

/// What makes the CD, and the packages that it needs for that.
const PROGRAM: &str = "grub-mkrescue";
const PACKAGES: &str = "grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools";
/// Of what it says when it fails, an error repeats so much.
const WORDS_MAX: usize = 600;

/// How a machine's firmware starts it: its name, where GRUB's modules for it are, and the package that brings them.
const FIRMWARE: [(&str, &str, &str); 2] =
    [("BIOS", "/usr/lib/grub/i386-pc", "grub-pc-bin"), ("UEFI", "/usr/lib/grub/x86_64-efi", "grub-efi-amd64-bin")];

/// Writes a CD to a new file, which boots this kernel with the initial file system `initramfs`, the kernel's modules
/// and these words, its menu and its console on the first serial port; to GRUB's shell, the words have to be plain.
/// Gives back what does not start it: a firmware, and the package that is missing for that.
///
/// # Errors
/// When GRUB's programs are not there, or the CD cannot be written.
pub fn write_iso(
    mut to: &File,
    initramfs: &File,
    guest: &Guest,
    append: &str,
) -> Result<Vec<(&'static str, &'static str)>> {
    let missing: Vec<_> = FIRMWARE.iter().filter(|(_, modules, _)| !Path::new(modules).is_dir()).collect();
    if missing.len() == FIRMWARE.len() {
        return Err(lacking());
    }
    let context = "cannot write the CD";
    let scratch = private_directory(|_| true).context("making a directory")?;
    let (tree, made) = (scratch.path().join("tree"), scratch.path().join("made.iso"));
    fs::create_dir_all(tree.join("boot/grub")).context(context)?;
    fs::write(tree.join("boot/grub/grub.cfg"), menu(append)).context(context)?;
    let mut kernel = open_named(&guest.kernel, "the kernel")?;
    io::copy(&mut kernel, &mut File::create(tree.join("vmlinuz")).context(context)?).context(context)?;
    let file = File::create(tree.join("test.cpio")).context(context)?;
    write_with_modules(&file, initramfs, guest.modules.as_deref())?;
    let output = Command::new(PROGRAM).arg("--output").arg(&made).arg(&tree).output();
    let output = output.map_err(|error| match error.kind() {
        ErrorKind::NotFound => lacking(),
        _ => anyhow::Error::new(error).context(format!("cannot run {PROGRAM}")),
    })?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let last = words.trim().chars().rev().take(WORDS_MAX).collect::<Vec<_>>().into_iter().rev();
        bail!("{PROGRAM} has failed ({}): it needs {PACKAGES}", last.collect::<String>());
    }
    io::copy(&mut File::open(&made).context(context)?, &mut to).context(context)?;
    Ok(missing.into_iter().map(|&(firmware, _, package)| (firmware, package)).collect())
}

fn lacking() -> anyhow::Error {
    anyhow!("a CD is made with GRUB's programs, which are not here: run `apt-get install {PACKAGES}`")
}

fn menu(append: &str) -> String {
    format!(
        "serial --unit=0 --speed=115200\n\
         terminal_input console serial\n\
         terminal_output console serial\n\
         set timeout=0\n\
         menuentry 'test VM' {{\n\
         \tlinux /vmlinuz console=tty0 console=ttyS0,115200 quiet panic=-1 {append}\n\
         \tinitrd /test.cpio\n\
         }}\n"
    )
}
