//! What is wrong with a specification, and where.

use crate::printable;
use std::fmt;
use std::ops::Range;

/// Why a text names no disk: a sentence, the text, and a mark under the part that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecificationError {
    specification: String,
    span: Range<usize>,
    message: String,
}

impl SpecificationError {
    pub(super) fn new(specification: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        Self { specification: specification.into(), span, message: message.into() }
    }

    /// What is wrong and what would be right, without the specification.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What is wrong in the specification, in bytes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

impl std::error::Error for SpecificationError {}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = |text: &str| text.chars().count();
        let before = self.specification.get(..self.span.start).map_or(0, letters);
        let marked = self.specification.get(self.span.clone()).map_or(0, letters).max(1);
        writeln!(f, "{}", printable(&self.message))?;
        writeln!(f, "  {}", printable(&self.specification))?;
        write!(f, "  {:before$}{:^<marked$}", "", "")
    }
}
