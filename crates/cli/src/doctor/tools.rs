//! The tools that the appliance runs.

use super::facility::{Facility, Lack};
use blockyard_appliance::tools::{self, Tool, ToolError};

/// Debian's packages, and what is lacking without them.
const PACKAGES: [(&str, &str); 8] = [
    ("e2fsprogs", "making, checking and labelling ext2, ext3 and ext4 in images"),
    ("xfsprogs", "making, checking and labelling XFS in images"),
    ("btrfs-progs", "making, checking and labelling Btrfs in images"),
    ("dosfstools", "making, checking and labelling FAT in images"),
    ("util-linux", "making and labelling swap space in images"),
    ("lvm2", "logical volumes in images"),
    ("mdadm", "RAIDs in images"),
    ("cryptsetup-bin", "encrypted volumes in images"),
];

/// What there is of each package.
pub fn facilities() -> impl Iterator<Item = Facility> {
    PACKAGES.into_iter().map(|(package, purpose)| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_in_a_package_that_is_told() {
        for tool in tools::ALL {
            assert!(PACKAGES.iter().any(|(package, _)| *package == tool.package), "{}", tool.program);
        }
    }
}
