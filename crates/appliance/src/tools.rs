//! Programs of the host's that the appliance runs: those that make, check and open file systems.
//!
//! A tool is sent into a running appliance when it is first needed, with its libraries: into the appliance's own root,
//! never into an image. It is executed there alone, by a kernel that is shut in, however old or hostile the file system
//! that it reads.

mod bundle;
mod elf;
mod error;
mod library_search;
mod tool;

use crate::kernel::Kernel;
use crate::kernel_modules;
use blockyard_protocol::appliance::{ProgramEnd, Response, RunTool, ToolArgument};
use bundle::Installed;
pub use bundle::program_with_libraries;
pub use elf::ElfError;
pub use error::ToolError;
use std::path::PathBuf;
pub use tool::*;

/// What a tool is asked to do.
#[derive(Clone, Default)]
pub struct ToolCall {
    arguments: Vec<ToolArgument>,
    stdin: Vec<u8>,
    environment: Vec<String>,
    exclusive: bool,
}

impl ToolCall {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an argument as it is.
    pub fn argument(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(ToolArgument::Text(argument.into()));
        self
    }

    /// Adds several.
    pub fn arguments<A: Into<Vec<u8>>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| ToolArgument::Text(argument.into())));
        self
    }

    /// Adds the path of one of the image's volumes, which may be called by any of its names (/dev/sda1, vda1, 1).
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.arguments.push(ToolArgument::Device(name.into()));
        self
    }

    /// What it reads on its standard input, such as a passphrase: it appears in no message and no log.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Sets a variable of its environment.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// It changes the devices: none of them may be mounted, and when it has ended they are flushed.
    pub fn changes_devices(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// What the agent is asked, of an appliance with so many images.
    pub(crate) fn request(self, tool: &Tool, disks: u32) -> RunTool {
        let Self { arguments, stdin, environment, exclusive } = self;
        RunTool { program: tool.program.to_owned(), arguments, stdin, environment, disks, exclusive }
    }
}

/// How a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolEnd {
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<u32>,
    /// What it wrote to its standard output and its standard error: of each the first bytes and the last, as they came
    /// out of the guest.
    pub output: Vec<u8>,
    /// See `output`.
    pub errors: Vec<u8>,
}

impl From<ProgramEnd> for ToolEnd {
    fn from(end: ProgramEnd) -> Self {
        let status = (end.signal == 0).then_some(end.status);
        Self { status, output: end.output, errors: end.errors }
    }
}

/// The tools that an appliance has, and its kernel's modules.
#[derive(Default)]
pub(crate) struct Tools {
    installed: Installed,
    /// What the modules that it has were asked for by.
    modules: Vec<String>,
}

impl Tools {
    /// None, and the modules that are called so.
    pub(crate) fn with_modules(names: &[&str]) -> Self {
        Self { modules: names.iter().map(|&name| name.to_owned()).collect(), ..Self::default() }
    }

    /// What a tool needs and is not there, as an archive and as its files' names; nothing if the tool is there.
    pub(crate) fn lacking(&self, tool: &Tool) -> Result<Option<(Vec<u8>, Installed)>, ToolError> {
        let program = PathBuf::from("tools/bin").join(tool.program);
        if self.installed.contains(&program) {
            return Ok(None);
        }
        bundle::bundle(tool, &self.installed).map(Some)
    }

    /// These files are there now.
    pub(crate) fn note_installed(&mut self, names: Installed) {
        self.installed.extend(names);
    }

    /// The modules that are called so and are not there, as an archive; nothing if there are no more of them.
    pub(crate) fn lacking_modules(&self, kernel: &Kernel, names: &[String]) -> Result<Option<Vec<u8>>, ToolError> {
        let path = kernel.modules().unwrap_or(&kernel.file);
        let unreadable = |error| ToolError::Unreadable { path: path.to_owned(), error };
        kernel_modules::bundle(kernel, names, &self.modules).map_err(unreadable)
    }

    /// The modules that are called so are there now.
    pub(crate) fn note_modules(&mut self, names: &[String]) {
        self.modules.extend_from_slice(names);
    }
}

/// What a tool, or its installation, came to, unless the agent refused it.
pub(crate) fn judged(what: &'static str, response: Response) -> Result<Response, ToolError> {
    if response.failures.is_empty() { Ok(response) } else { Err(ToolError::Refused(what, response.failures)) }
}
