//! A request's bytes, in runs of those that are in one place.

/// Where bytes of a request are.
pub(super) trait Contiguous: Copy {
    /// Whether `next` is where they go on that begin here and are so many.
    fn continues_in(self, length_bytes: u64, next: Self) -> bool;
}

/// Bytes of a disk that are in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<P> {
    pub(super) place: P,
    pub(super) start_bytes: u64,
    pub(super) length_bytes: u64,
}

/// Puts runs together that one request can be sent for.
#[derive(Debug)]
pub(super) struct Runs<P>(Option<Run<P>>);

impl<P: Contiguous> Runs<P> {
    pub(super) fn new() -> Self {
        Self(None)
    }

    /// Adds what follows. The run before it comes back if that does not go on there.
    pub(super) fn add(&mut self, run: Run<P>) -> Option<Run<P>> {
        match &mut self.0 {
            Some(open) if open.place.continues_in(open.length_bytes, run.place) => {
                open.length_bytes += run.length_bytes;
                None
            }
            open => open.replace(run),
        }
    }

    /// The last one.
    pub(super) fn end(self) -> Option<Run<P>> {
        self.0
    }
}
