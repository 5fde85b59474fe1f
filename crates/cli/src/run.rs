//! `blockyard run`: Linux in a virtual machine.
//!
//! [`args`] says what the machine is made of, [`statistics`] what it cost; the machine is `blockyard-run`'s.

pub mod args;
mod statistics;

use crate::image::KERNEL_COMMAND;
use anyhow::Result;
use args::RunArgs;
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::terminal::{self, print};
use blockyard_image::Watch;
use blockyard_run::Audience;
use std::sync::Arc;

/// Runs the command.
///
/// # Errors
/// When the machine cannot be had, or ends otherwise than by being switched off or left.
pub fn run(args: &RunArgs) -> Result<()> {
    let configuration = args.configuration()?;
    if args.print_config {
        return print(configuration.to_toml()?.trim_end());
    }
    let audience = Watched(Arc::new(AtTerminal::catch()?));
    let report = blockyard_run::run(&configuration, &disk::to_write(&configuration.allow_dirs), &audience)?;
    // Stdout is the guest's.
    match (args.stats, args.json) {
        (false, _) => {}
        (true, true) => terminal::tell(&terminal::json(&report)?),
        (true, false) => terminal::tell(statistics::table(&report).trim_end()),
    }
    Ok(())
}

/// Somebody at a terminal, which is the guest's meanwhile: only signals of others get here.
struct Watched(Arc<AtTerminal>);

impl Audience for Watched {
    fn asks_to_end(&self) -> Option<String> {
        self.0.ends()
    }

    fn watch(&self) -> Arc<dyn Watch> {
        Arc::clone(&self.0) as Arc<dyn Watch>
    }

    fn kernel_argument(&self) -> &'static str {
        KERNEL_COMMAND
    }
}
