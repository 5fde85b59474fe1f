//! `blockyard image edit`: a file of an image in the user's editor.

use crate::image::file_commands::FileCommand;
use crate::{private_directory, terminal};
use anyhow::{Context, Result, bail};
use blockyard_block::{shell_word, shown};
use blockyard_image::Access;
use blockyard_image::files::file_type::is_regular;
use blockyard_image::guest::{OpenImage, image_path, path_of};
use blockyard_image::guest::{read_in, write_out};
use blockyard_protocol::appliance::{Operation, Read, Store};
use blockyard_protocol::pattern::escaped;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Edit a file of an image with $VISUAL or $EDITOR.
///
/// The editor gets a copy in a directory that only you can read; it goes back if it was changed and the editor ended well. Owner, permissions and
/// extended attributes stay.
#[derive(Args)]
pub struct Edit {
    /// The file.
    path: PathBuf,
}

impl FileCommand for Edit {
    fn access(&self) -> Access {
        Access::Write
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let path = path_of(image_path(&self.path));
        let Some(entry) = image.entry(&path, true)? else { bail!("{}: no such file in the image", shown(&path)) };
        if !is_regular(entry.mode) {
            bail!("{}: it is not a regular file", shown(&path));
        }
        let directory = private_directory::make()?;
        // With its own ending, by which editors know what it is.
        let copy = directory.path().join(name_for_host(&path));
        let file = File::create_new(&copy).context("making a copy")?;
        let read = Read { paths: vec![escaped(path.as_os_str().as_bytes())] };
        write_out(image, Operation::Read(read), file)?.sync_all().context("making a copy")?;
        let before = fs::read(&copy).context("reading the copy")?;
        run_editor(&copy)?;
        if fs::read(&copy).context("reading what was edited")? == before {
            terminal::say(&format!("{}: not changed", shown(&path)));
            return Ok(());
        }
        let written = write_back(image, &path, &copy);
        if written.is_err() {
            let kept = directory.keep();
            terminal::say(&format!("what was edited is in {}", shell_word(&kept.to_string_lossy())));
        }
        written
    }
}

fn write_back(image: &mut OpenImage, path: &Path, copy: &Path) -> Result<()> {
    let edited = File::open(copy).context("reading what was edited")?;
    let store =
        Store { path: path.as_os_str().as_bytes().to_vec(), stream: true, keep: true, mode: 0o644, ..Store::default() };
    Ok(read_in(image, Operation::Store(store), edited).map(drop)?)
}

/// The last part of the path, without what a shell or an editor could take for something else.
fn name_for_host(path: &Path) -> OsString {
    let name = path.file_name().unwrap_or(OsStr::new("file")).to_string_lossy();
    let harmless = |letter: char| if letter.is_ascii_alphanumeric() || "._".contains(letter) { letter } else { '_' };
    let name: String = name.chars().map(harmless).take(64).collect();
    format!("image_{name}").into()
}

fn run_editor(copy: &Path) -> Result<()> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".into());
    // The variable may hold options; the shell takes it apart, as git and visudo have it.
    let mut script = editor.clone();
    script.push(" \"$@\"");
    let status = Command::new("/bin/sh").arg("-c").arg(script).arg(&editor).arg(copy).status();
    let status = status.with_context(|| format!("cannot run {}", shown(&editor)))?;
    if status.success() { Ok(()) } else { bail!("{}: {status}: nothing was changed", shown(&editor)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_image_are_harmless_on_the_host() {
        assert_eq!(name_for_host(Path::new("/etc/fstab")), "image_fstab");
        assert_eq!(name_for_host(Path::new("/a/-x $(id)\n.conf")), "image__x___id__.conf");
        assert_eq!(name_for_host(Path::new("/")), "image_file");
    }
}
