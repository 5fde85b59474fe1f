//! How the parts of a specification are written.

use std::fmt::{self, Display};
use std::path::Path;

/// A key without a value, if it is set.
pub(super) fn flag(f: &mut fmt::Formatter<'_>, name: &str, is_set: bool) -> fmt::Result {
    if is_set { write!(f, ",{name}") } else { Ok(()) }
}

/// A key, if it has a value.
pub(super) fn key(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, ",{name}={value}"))
}

/// Of a path that comes from text, nothing is lost.
pub(super) fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
