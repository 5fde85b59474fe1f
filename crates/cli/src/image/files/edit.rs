//! `blockyard image edit`: a file of an image in the user's editor.

use anyhow::{Context, Result, bail};
use blockyard_block::{private_directory, programs, shell_word, shown};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::{signals, terminal};
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Edit a file of an image with $VISUAL or $EDITOR.
///
/// The editor gets a copy in a directory that only you can read; it goes back if it was changed and the editor ended
/// well. Owner, permissions and extended attributes stay.
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
        let directory = private_directory(|_| true).context("making a directory")?;
        let file = image.copy_to_edit(&self.path, directory.path())?;
        run_editor(file.copy())?;
        if !file.is_changed()? {
            terminal::say(&format!("{}: not changed", shown(file.path())));
            return Ok(());
        }
        let written = image.write_back(&file);
        if written.is_err() {
            let kept = directory.keep();
            terminal::say(&format!("what was edited is in {}", shell_word(&kept.to_string_lossy())));
        }
        Ok(written?)
    }
}

/// The editor of who has named none.
const DEFAULT: &str = "vi";

fn run_editor(copy: &Path) -> Result<()> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| DEFAULT.into());
    // The variable may hold options; the shell takes it apart, as git and visudo have it.
    let mut script = editor.clone();
    script.push(" \"$@\"");
    let mut shell = Command::new("/bin/sh");
    if editor == DEFAULT {
        shell.env("PATH", programs::path());
    }
    let running = shell.arg("-c").arg(script).arg(&editor).arg(copy).spawn();
    let status = running.and_then(|mut editor| signals::wait_for_program(&mut editor));
    let status = status.with_context(|| format!("cannot run {}", shown(&editor)))?;
    match status.code() {
        Some(0) => Ok(()),
        // What sh(1) says of a program that is not there.
        Some(127) => bail!("{}: {status}: nothing was changed; name an editor that is there: EDITOR=…", shown(&editor)),
        _ => bail!("{}: {status}: nothing was changed", shown(&editor)),
    }
}
