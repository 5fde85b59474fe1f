//! The process that serves a directory to a guest, which `run` starts.

use anyhow::Result;
use blockyard_command_line::terminal;
use clap::Args;
use std::ffi::OsString;

/// A hidden command: the process that serves a directory to a guest.
#[derive(Args)]
pub struct ServeShareArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Serves a directory.
///
/// # Errors
/// When it cannot begin or go on.
pub fn run(args: &ServeShareArgs) -> Result<()> {
    Ok(blockyard_share::serve(&args.arguments, terminal::tell)?)
}
