//! What is wrong with what was asked for.

use blockyard_block::printable;
use blockyard_block::specification::SpecificationError;

/// The command line asks for something that makes no sense: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{}", printable(.0))]
pub struct UsageError(pub String);

/// The same in several lines, none of which somebody's words end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageLines(pub String);

impl From<SpecificationError> for UsageLines {
    fn from(error: SpecificationError) -> Self {
        Self(error.to_string())
    }
}
