//! Operations without what they carry.

use crate::Operation;

/// Which [`Operation`] a request is: what counts are kept by and faults chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Write`].
    Write,
    /// [`Operation::Flush`].
    Flush,
    /// [`Operation::Discard`].
    Discard,
    /// [`Operation::WriteZeroes`].
    WriteZeroes,
}

impl OperationKind {
    /// Every kind, in the order of [`OperationKind::index`].
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Discard, Self::WriteZeroes];

    /// Its place in [`OperationKind::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// One word for it: `read`, `write`, `flush`, `discard` or `zero`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Discard => "discard",
            Self::WriteZeroes => "zero",
        }
    }
}

impl From<Operation> for OperationKind {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read => Self::Read,
            Operation::Write { .. } => Self::Write,
            Operation::Flush => Self::Flush,
            Operation::Discard { .. } => Self::Discard,
            Operation::WriteZeroes { .. } => Self::WriteZeroes,
        }
    }
}
