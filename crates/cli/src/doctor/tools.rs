//! The tools that the appliance runs.

use super::facility::{Facility, Lack};
use blockyard_appliance::tools::{self, Tool, ToolError};

/// What there is of each package.
pub fn facilities() -> impl Iterator<Item = Facility> {
    tools::PACKAGES.into_iter().map(|(package, purpose)| {
        let tools = tools::ALL.iter().filter(|tool| tool.package == package);
        let found: Result<Vec<_>, _> = tools.map(|tool| usable(tool)).collect();
        Facility::new(package, purpose, found.map(|paths| paths.join(", ")))
    })
}

fn usable(tool: &Tool) -> Result<String, Lack> {
    tool.usable().map(|path| path.display().to_string()).map_err(|error| match error {
        ToolError::Missing { program, package } => {
            Lack::new(format!("there is no {program}"), format!("apt-get install {package}"))
        }
        error => Lack::for_good(blockyard_block::explain(&error)),
    })
}
