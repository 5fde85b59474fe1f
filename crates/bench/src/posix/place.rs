//! Where a program is run, and what that is compared with.

use serde::Serialize;

/// What a program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// A file of the host's.
    Host,
    /// A disk that `attach` opens itself.
    Own,
    /// A session of `serve`, of the whole disk.
    Direct,
    /// A session of a partition, straight with the driver once a mediator has let its client in.
    Mediated,
    /// A session of a partition, by a process that copies every block.
    Copying,
}

impl Place {
    /// In the order of the columns.
    pub const ALL: [Self; 5] = [Self::Host, Self::Own, Self::Direct, Self::Mediated, Self::Copying];

    /// What heads its column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Own => "own",
            Self::Direct => "direct",
            Self::Mediated => "mediated",
            Self::Copying => "copying",
        }
    }

    /// What it is compared with, of those that are measured: a partition with the session of the whole disk, all else,
    /// and where that is not measured, with the host.
    pub(super) fn beside(self, measured: &[Self]) -> Option<Self> {
        let suitable: &[Self] = match self {
            Self::Host => &[],
            Self::Own | Self::Direct => &[Self::Host],
            Self::Mediated | Self::Copying => &[Self::Direct, Self::Host],
        };
        suitable.iter().copied().find(|place| measured.contains(place))
    }
}
