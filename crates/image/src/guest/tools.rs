//! Running this machine's tools in the guest.

use super::{OpenImage, sentences};
use crate::error::{Error, Result};
use blockyard_appliance::tools::{Tool, ToolCall, ToolEnd, ToolError};
use std::time::Duration;

impl OpenImage {
    /// Runs a tool, whatever its exit status will be.
    ///
    /// # Errors
    /// When it is not on this machine, or could not be executed.
    pub fn run_tool(&mut self, tool: &'static Tool, call: ToolCall) -> Result<ToolEnd> {
        self.appliance.run_tool(tool, call).map_err(|error| match error {
            ToolError::Refused(_, failures) => Error::refused(sentences(&failures)),
            // The appliance has ended the tool, and is there for the next.
            ToolError::Appliance(error) if error.lives_on() => {
                Error::from(error).context(format!("{} was ended before it was done", tool.program))
            }
            error => error.into(),
        })
    }

    /// Has what the guest's kernel needs for arrays, logical volumes and encrypted volumes, if this machine has it.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn install_modules(&mut self) -> Result<()> {
        Ok(self.appliance.install_modules()?)
    }

    /// Whether an inspection has shown that the guest's kernel lacked modules, which it has got since: then another
    /// shows more.
    pub(crate) fn take_supplied(&mut self) -> bool {
        self.appliance.take_supplied()
    }

    /// Does something while which the appliance may do nothing for so long.
    pub fn with_timeout<T>(&mut self, timeout: Duration, act: impl FnOnce(&mut Self) -> T) -> T {
        let usual = self.appliance.set_timeout(timeout);
        let done = act(self);
        self.appliance.set_timeout(usual);
        done
    }
}
