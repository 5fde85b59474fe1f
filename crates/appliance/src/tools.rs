//! Programs of the host's that the appliance runs: those that make, check and open file systems.
//!
//! A tool is sent into a running appliance when it is first needed, with its libraries: into the appliance's own root, never into an
//! image. It is executed there alone, by a kernel that is shut in, however old or hostile the file system that it reads.

mod bundle;
mod elf;
mod library_search;
mod tool;

use crate::appliance::Appliance;
use crate::error::ApplianceError;
use crate::kernel_modules;
use crate::stream::StreamSource;
use blockyard_protocol::appliance::{Failure, Operation, ProgramEnd, Response, RunTool, ToolArgument};
use bundle::Installed;
pub use elf::ElfError;
use std::io::{self, Cursor};
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
}

/// How a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolEnd {
    /// Its exit status; `None` when a signal ended it.
    pub status: Option<u32>,
    /// What it wrote to its standard output and its standard error: of each the first bytes and the last, as they came out of the guest.
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

/// Why a tool did not run.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The host has none.
    #[error("there is no {program} on this machine: run `apt-get install {package}`")]
    Missing {
        /// Its name.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// It, or something that it needs, cannot be read.
    #[error("cannot take {} into the appliance", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A library is not there.
    #[error("there is no library {name} on this machine, which {needed_by} needs")]
    Library {
        /// Its name.
        name: String,
        /// Who needs it.
        needed_by: String,
    },
    /// The agent did not execute it.
    #[error("the appliance cannot run {0}")]
    Refused(&'static str, Vec<Failure>),
    /// The appliance is of no more use.
    #[error(transparent)]
    Appliance(#[from] ApplianceError),
}

/// The tools of an appliance.
#[derive(Default)]
pub(crate) struct Tools {
    installed: Installed,
    /// What the modules that it has were asked for by.
    modules: Vec<String>,
}

impl Appliance {
    /// Runs a tool, which is sent in before if it is not there, and waits for its end: whatever its exit status is, that is for the caller to
    /// judge. The source disk is taken meanwhile.
    ///
    /// # Errors
    /// When it cannot be found, sent or executed, or the appliance is of no more use.
    pub fn run_tool(&mut self, tool: &'static Tool, call: ToolCall) -> Result<ToolEnd, ToolError> {
        self.install_tool(tool)?;
        let ToolCall { arguments, stdin, environment, exclusive } = call;
        let program = tool.program.to_owned();
        let disks = self.image_count();
        let request = RunTool { program, arguments, stdin, environment, disks, exclusive };
        let response = self.call(Operation::RunTool(request))?;
        Ok(judged(tool.program, response)?.program.unwrap_or_default().into())
    }

    /// Sends a tool in, if it is not there.
    ///
    /// # Errors
    /// As [`Appliance::run_tool`].
    pub fn install_tool(&mut self, tool: &'static Tool) -> Result<(), ToolError> {
        let program = PathBuf::from("tools/bin").join(tool.program);
        if self.tools.installed.contains(&program) {
            return Ok(());
        }
        let (archive, names) = bundle::bundle(tool, &self.tools.installed)?;
        self.install(tool.program, archive)?;
        self.tools.installed.extend(names);
        Ok(())
    }

    /// Sends in what the kernel needs for arrays, logical volumes and encrypted volumes.
    ///
    /// # Errors
    /// As [`Appliance::run_tool`].
    pub fn install_modules(&mut self) -> Result<(), ToolError> {
        self.supply_modules(&kernel_modules::LAYERS.map(str::to_owned)).map(drop)
    }

    /// Sends in the modules that are called so, and says whether there are any that it had not got yet.
    pub(crate) fn supply_modules(&mut self, names: &[String]) -> Result<bool, ToolError> {
        let archive = kernel_modules::bundle(self.kernel(), names, &self.tools.modules)?;
        let Some(archive) = archive else { return Ok(false) };
        self.install("the kernel's modules", archive)?;
        self.tools.modules.extend_from_slice(names);
        Ok(true)
    }

    fn install(&mut self, what: &'static str, archive: Vec<u8>) -> Result<(), ToolError> {
        let start = |error| ToolError::Unreadable { path: what.into(), error };
        let stream = StreamSource::new(Cursor::new(archive)).map_err(start)?;
        self.bind_source_stream(&stream);
        let response = self.call(Operation::InstallTools);
        self.release();
        judged(what, response?).map(drop)
    }
}

fn judged(what: &'static str, response: Response) -> Result<Response, ToolError> {
    if response.failures.is_empty() { Ok(response) } else { Err(ToolError::Refused(what, response.failures)) }
}
