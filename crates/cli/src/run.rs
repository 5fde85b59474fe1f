//! `blockyard run`: Linux in a virtual machine.
//!
//! [`args`] says what the machine is made of, [`statistics`] what it cost; the machine is `blockyard-run`'s.

pub mod args;
mod statistics;

use crate::image::KERNEL_COMMAND;
use anyhow::{Context, Result, bail};
use args::RunArgs;
use blockyard_block::{explain, printable};
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::signals;
use blockyard_command_line::terminal::{self, print_exactly};
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::{disk, remedies};
use blockyard_confinement::Inherited;
use blockyard_image::Watch;
use blockyard_run::{Audience, Configuration, DoesNotFit, RunReport};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::sync::Arc;

/// Runs the command.
///
/// # Errors
/// When the machine cannot be had, or ends otherwise than by being switched off or left.
pub fn run(args: &RunArgs) -> Result<()> {
    remedies::name_options_of_run();
    let inherited = Inherited::take().context("taking over what was inherited")?;
    let configuration = args.configuration()?;
    if args.print_config {
        return print_configuration(&configuration);
    }
    let audience = Watched(Arc::new(AtTerminal::catch()?));
    if let Some(parent) = args.ends_with {
        end_with(parent)?;
    }
    signals::quit_gives_the_terminal_back()?;
    let mut report = RunReport::default();
    let opening = disk::to_write(&configuration.allow_dirs);
    let ran = blockyard_run::run(&configuration, &opening, &audience, inherited, &mut report);
    // Stdout is the guest's.
    match (args.stats && report.has_begun(), args.json) {
        (false, _) => {}
        (true, true) => terminal::tell(&terminal::json(&report)?),
        (true, false) => terminal::tell(statistics::table(&report).trim_end()),
    }
    ran.map_err(|error| match error.downcast::<DoesNotFit>() {
        Ok(misfit) => UsageError(misfit.to_string()).into(),
        Err(error) => error,
    })
}

/// Has this process end when its parent does, which is to be `parent`.
fn end_with(parent: i32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM)).context("asking to end with the parent")?;
    // It may have gone before it was asked.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        bail!("process {parent}, which has started this one, has ended");
    }
    Ok(())
}

/// Prints it as TOML, with a comment on the kernel that the first disk has, where that is the one.
fn print_configuration(configuration: &Configuration) -> Result<()> {
    let text = configuration.to_toml()?;
    let has_its_own = configuration.kernel.is_none() && !configuration.disks.is_empty();
    if !has_its_own || !blockyard_run::is_on_kvm(configuration) {
        return print_exactly(text.trim_end());
    }
    let audience = Watched(Arc::new(AtTerminal::catch()?));
    let found = blockyard_run::own_kernel(configuration, &disk::to_write(&configuration.allow_dirs), &audience);
    let comment = match found {
        Ok(entry) => format!("kernel: {} by {entry}, told {}", entry.kernel, printable(&entry.command_line)),
        Err(error) => format!("no kernel: {}", printable(&explain(&*error))),
    };
    print_exactly(format!("# {comment}\n{text}").trim_end())
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
