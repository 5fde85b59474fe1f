//! Why something could not be done with an image.

use crate::needs::Needs;
use blockyard_appliance::tools::ToolError;
use blockyard_appliance::{ApplianceError, KernelError};
use blockyard_block::comparison::ComparisonError;
use blockyard_block::conversion::ConversionError;
use blockyard_block::partition_table::NewTableError;
use blockyard_block::specification::OpenError;
use blockyard_block::{
    FileDiskError, ImageError, KeyFileError, NamedFileError, ReplacementError, RequestError, explain, printable,
};
use std::io;
use std::path::Path;

/// What this crate's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something could not be done with an image.
///
/// As text (`{error}`) it is its own part only, such as the name of the file that it happened to: what it came of is
/// its source, and never said twice. [`Error::in_one_line`] is the whole sentence, for people. As `main`'s result it
/// would be shown as `{error:?}`, which is for nobody.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was asked for makes no sense, whatever the image holds.
    #[error("{}", printable(.0))]
    Usage(String),
    /// This image or this machine cannot do it. Several lines where several things failed.
    #[error("{0}")]
    Refused(String),
    /// Where it happened, or what was being done; the source says what.
    #[error("{doing}")]
    While {
        /// The thing's name, or what was being done.
        doing: String,
        /// What happened.
        source: Box<Error>,
    },
    /// Whoever was to have the output did not take it.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// There is no appliance, or it did not do what it was asked.
    #[error(transparent)]
    Appliance(#[from] ApplianceError),
    /// A program of this machine's that the appliance was to run.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// There is no kernel for the appliance.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The appliance has to be another one.
    #[error(transparent)]
    Needs(#[from] Needs),
    /// A file of the host's that was to be made or replaced.
    #[error(transparent)]
    Replacement(#[from] ReplacementError),
    /// A file of the host's that was to be read or written.
    #[error(transparent)]
    FileDisk(#[from] FileDiskError),
    /// A small file of the host's that was to be read.
    #[error(transparent)]
    NamedFile(#[from] NamedFileError),
    /// A key file of the host's.
    #[error(transparent)]
    KeyFile(#[from] KeyFileError),
    /// An image's file, or one that it refers to.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A disk that was to be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A partition table that was to be made.
    #[error(transparent)]
    NewTable(#[from] NewTableError),
    /// One of the disks of a conversion.
    #[error(transparent)]
    Conversion(#[from] ConversionError),
    /// One of two disks that were compared.
    #[error(transparent)]
    Comparison(#[from] ComparisonError),
    /// The system refused something.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Anything else.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Something that makes no sense.
    pub fn usage(problem: impl Into<String>) -> Self {
        Self::Usage(problem.into())
    }

    /// Something that cannot be done.
    pub fn refused(problem: impl Into<String>) -> Self {
        Self::Refused(problem.into())
    }

    /// An error of another crate's.
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// The same, said of `doing`: once, where it says so itself.
    #[must_use]
    pub fn context(self, doing: impl Into<String>) -> Self {
        let doing = doing.into();
        match self {
            Self::Refused(said) if said.strip_prefix(&doing).is_some_and(|rest| rest.starts_with(": ")) => {
                Self::Refused(said)
            }
            source => Self::While { doing, source: Box::new(source) },
        }
    }

    /// What happened, without where.
    pub fn cause(&self) -> &Self {
        match self {
            Self::While { source, .. } => source.cause(),
            cause => cause,
        }
    }

    /// What ended an appliance, if that is what happened.
    pub fn appliance(&self) -> Option<&ApplianceError> {
        match self.cause() {
            Self::Appliance(error) | Self::Tool(ToolError::Appliance(error)) => Some(error),
            _ => None,
        }
    }

    /// What the appliance has to have, if that is what happened.
    pub fn needs(&self) -> Option<Needs> {
        match self.cause() {
            Self::Needs(needs) => Some(*needs),
            _ => None,
        }
    }

    /// The same of making a file at `path`: that there is no room for it, if that is what it was.
    pub(crate) fn or_no_space(self, path: &Path) -> Self {
        match self.cause() {
            // That says itself whether there is a file.
            Self::Replacement(_) => self,
            _ if is_storage_full(&self) => ReplacementError::NoSpace(path.to_owned()).into(),
            _ => self,
        }
    }

    /// The same of filling a device of so many bytes: that it, or what it has of a pool, is too small, if that is what
    /// it was.
    pub(crate) fn or_small_device(self, device_bytes: u64) -> Self {
        match is_storage_full(&self) {
            true => Self::Refused(format!(
                "the device has {device_bytes} bytes, too few for the image, or storage for less: `blockyard image measure` \
                 says how many it may take"
            )),
            false => self,
        }
    }

    /// What happened, with all that it came of, in one sentence.
    pub fn in_one_line(&self) -> String {
        explain(self)
    }
}

/// Whether an error came of a file system, or a user's quota, that is full.
pub fn is_storage_full(error: &(dyn std::error::Error + 'static)) -> bool {
    let is_full = |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        match error.downcast_ref().map(Error::cause) {
            // These say what the system said, and so do not have it as their source.
            Some(Error::System(error) | Error::Conversion(ConversionError::System(error))) => is_full(error),
            Some(Error::Conversion(ConversionError::Write { source: RequestError::Os(errno), .. })) => {
                is_full(&io::Error::from_raw_os_error(*errno))
            }
            _ => error.downcast_ref().is_some_and(is_full),
        }
    })
}

/// Says where an error happened.
pub(crate) trait Context<T> {
    /// What was being done, or with what.
    fn context(self, doing: impl Into<String>) -> Result<T>;
    /// The same, made only when it is needed.
    fn with_context<D: Into<String>>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, doing: impl Into<String>) -> Result<T> {
        self.map_err(|error| error.into().context(doing))
    }

    fn with_context<D: Into<String>>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| error.into().context(doing()))
    }
}

/// Returns that this image or this machine cannot do it.
macro_rules! refuse {
    ($($sentence:tt)+) => { return Err($crate::Error::Refused(format!($($sentence)+))) };
}
pub(crate) use refuse;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_said_once() {
        for (said, wanted) in [
            ("fs.img: a request to it failed", "fs.img: a request to it failed"),
            ("fs.img.old: a request to it failed", "fs.img: fs.img.old: a request to it failed"),
            ("fs.img", "fs.img: fs.img"),
            ("cannot mount", "fs.img: cannot mount"),
        ] {
            assert_eq!(Error::refused(said).context("fs.img").in_one_line(), wanted);
        }
    }
}
