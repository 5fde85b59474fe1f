//! The appliance's kernel, which a process of this program becomes.

use anyhow::Result;
use blockyard_appliance::{Backend, Kernel};
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_image::guest::Trial;
use blockyard_image::{Resources, guest};
use clap::Args;
use std::ffi::OsString;
use std::sync::Arc;

/// The command that becomes the appliance's kernel.
pub const KERNEL_COMMAND: &str = "appliance-kernel";

/// A hidden command: the process that becomes the appliance's kernel.
#[derive(Args)]
pub struct KernelArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes the appliance's kernel.
///
/// # Errors
/// When it cannot.
pub fn run_kernel(args: &KernelArgs) -> Result<()> {
    Ok(guest::become_kernel(&args.arguments, KERNEL_COMMAND).map(|never| match never {})?)
}

/// What appliances are made of.
///
/// # Errors
/// When this machine has no kernel for them.
pub fn resources(backend: Backend) -> blockyard_image::Result<Resources> {
    Resources::find_for(backend, KERNEL_COMMAND)
}

/// Boots an appliance without a disk, as a trial.
///
/// # Errors
/// When it does not come up.
pub fn try_appliance(kernel: Kernel) -> Result<Trial> {
    let watch = AtTerminal::catch()?;
    Ok(guest::try_appliance(Resources::with_kernel(kernel, KERNEL_COMMAND), Arc::new(watch))?)
}
