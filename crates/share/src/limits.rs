//! How much of this process a guest may take.

/// What a guest may have of descriptors, which are what its files cost. Each known file also keeps an inode in the
/// host's memory, some 2 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Files that it knows.
    pub(crate) nodes: usize,
    /// Files and directories that it has open.
    pub(crate) handles: usize,
}

/// Descriptors that are the process's own: memory, queues, what is opened for a moment.
const RESERVED: usize = 256;
/// What no guest needs more of.
const NODES_MAX: usize = 1 << 20;
const HANDLES_MAX: usize = 1 << 16;

impl Limits {
    /// In a process that may have so many descriptors.
    pub(crate) fn of(descriptors: usize) -> Self {
        let free = descriptors.saturating_sub(RESERVED);
        let handles = (free / 4).min(HANDLES_MAX);
        Self { nodes: (free - handles).min(NODES_MAX), handles }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_handles_fit_into_what_the_process_may_have() {
        for descriptors in [0, 256, 300, 1024, 4096, 20_000, 1 << 20, usize::MAX] {
            let limits = Limits::of(descriptors);
            assert!(limits.nodes + limits.handles <= descriptors.saturating_sub(RESERVED), "{limits:?}");
        }
        assert_eq!(Limits::of(1024), Limits { nodes: 576, handles: 192 });
        assert_eq!(Limits::of(usize::MAX), Limits { nodes: NODES_MAX, handles: HANDLES_MAX });
    }
}
