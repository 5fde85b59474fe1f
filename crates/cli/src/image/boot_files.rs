//! `blockyard image boot-files`: what an image boots.

use anyhow::{Context, Result};
use blockyard_block::{ReplacementFile, shown};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::terminal::{self, print};
use blockyard_image::Access;
use blockyard_image::boot_files::BootEntry;
use blockyard_image::guest::OpenImage;
use clap::Args;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// What the owner of a file may do with it.
const OWNERS: u32 = 0o600;

/// Say which kernel, initrd and command line an image's own boot loader would boot, and copy them out.
///
/// That is the default entry of systemd-boot, GRUB or extlinux, and where none of them is, the newest kernel in /boot.
#[derive(Args)]
pub struct BootFiles {
    /// Print one JSON object on stdout.
    #[arg(long)]
    json: bool,
    /// Write the files `kernel` and, if there is one, `initrd` into this directory: several initrds as one.
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl FileCommand for BootFiles {
    fn access(&self) -> Access {
        Access::Read
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let entry = match &self.output {
            None => image.boot_entry()?,
            Some(directory) => {
                let files = image.boot_files()?;
                let durable = image.is_durable();
                // For nobody that the image is not for. An initrd may have keys in it.
                let permissions = image.permissions();
                let secret = Some(permissions.unwrap_or(OWNERS) & OWNERS);
                write(&files.kernel, &directory.join("kernel"), permissions, durable)?;
                if let Some(initrd) = files.initrd {
                    write(&initrd, &directory.join("initrd"), secret, durable)?;
                }
                files.entry
            }
        };
        if self.json { print(&terminal::json_pretty(&entry)?) } else { print(render(&entry).trim_end()) }
    }
}

fn write(mut from: &File, to: &Path, permissions: Option<u32>, durable: bool) -> Result<()> {
    let new = ReplacementFile::create_like(to, permissions)?;
    io::copy(&mut from, &mut new.file()).with_context(|| format!("cannot write {}", shown(to)))?;
    Ok(new.commit(durable)?)
}

/// For people.
fn render(entry: &BootEntry) -> String {
    let mut lines = vec![format!("found:        {entry}"), format!("kernel:       {}", entry.kernel)];
    lines.extend(entry.initrds.iter().map(|initrd| format!("initrd:       {initrd}")));
    lines.push(format!("command line: {}", blockyard_block::printable(&entry.command_line)));
    lines.extend(entry.notes.iter().cloned());
    lines.join("\n")
}
