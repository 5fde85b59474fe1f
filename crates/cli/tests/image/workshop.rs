//! An appliance with disks of a test's, in which the host's own tools make volumes that need a kernel.

use blockyard_appliance::tools::{Tool, ToolCall};
use blockyard_block::{FileDisk, FileOptions};
use blockyard_image::{ImageDisk, ImageOptions, Nobody, OpenImage, Resources};
use blockyard_protocol::appliance::Operation;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Workshop(OpenImage);

impl Workshop {
    /// With `disks` as /dev/vda, /dev/vdb and so on.
    pub(crate) fn new(disks: &[&Path]) -> Self {
        let disk = |path: &&Path| ImageDisk {
            disk: Arc::new(FileDisk::open(path, &FileOptions::default()).unwrap()),
            name: path.to_str().unwrap().into(),
        };
        let resources = Resources {
            launcher: env!("CARGO_BIN_EXE_blockyard").into(),
            ..Resources::find("appliance-kernel").expect("it comes with the package user-mode-linux")
        };
        let options = ImageOptions::new(disks.iter().map(disk).collect()).timeout(Duration::from_secs(120));
        let mut image = options.boot(resources, Arc::new(Nobody)).unwrap();
        image.install_modules().unwrap();
        Self(image)
    }

    /// Runs a tool, and expects success; what it printed.
    pub(crate) fn run(&mut self, tool: &'static Tool, arguments: &[&str]) -> String {
        self.run_with_input(tool, arguments, "")
    }

    pub(crate) fn run_with_input(&mut self, tool: &'static Tool, arguments: &[&str], input: &str) -> String {
        let call = ToolCall::new().environment("DM_DISABLE_UDEV", "1").environment("MDADM_NO_UDEV", "1");
        let end = self.0.run_tool(tool, call.arguments(arguments.iter().copied()).stdin(input)).unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(end.status, Some(0), "{} {arguments:?}: {}", tool.program, said(&end.errors));
        said(&end.output)
    }

    /// A command of LVM's, without anybody who is not there.
    pub(crate) fn lvm(&mut self, arguments: &[&str]) -> String {
        const CONFIGURATION: &str = "activation { udev_sync=0 udev_rules=0 monitoring=0 } backup { backup=0 archive=0 } \
                                     devices { use_devicesfile=0 } global { use_lvmpolld=0 }";
        let (command, rest) = arguments.split_first().unwrap();
        let all: Vec<_> = [command, "--config", CONFIGURATION].iter().chain(rest).copied().collect();
        self.run(&blockyard_appliance::tools::LVM, &all)
    }

    /// Has the agent do something, and expects success.
    pub(crate) fn call(&mut self, operation: Operation) {
        self.0.call(operation).unwrap();
    }
}

/// A new disk of zeros.
pub(crate) fn disk(path: &Path, megabytes: u64) {
    File::create(path).unwrap().set_len(megabytes << 20).unwrap();
}
