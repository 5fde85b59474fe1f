//! Who operates a process that serves.

use crate::notices::Notices;
use crate::view::Look;
use anyhow::Result;
use blockyard_block::EventFd;
use std::sync::Arc;

/// Whoever operates a process that serves: reads what it says, looks at its clients, and says when it is enough.
pub trait Operator {
    /// Where all that is said goes. Nothing is said before [`Operator::begin`].
    fn notices(&self) -> &'static Notices;

    /// From now on there may be threads: has the notices written ([`Notices::start`]), and rings `stop` once the
    /// process shall end. Called once, before the disk is opened.
    ///
    /// # Errors
    /// Whatever keeps it from that; nothing is served then.
    fn begin(&self, stop: Arc<EventFd>) -> Result<()>;

    /// From now on there are clients to look at. Called once, when the process is confined; a mediator has none, and
    /// never calls it.
    ///
    /// # Errors
    /// Whatever keeps it from that; nothing is served then.
    fn watch(&self, look: Look) -> Result<()>;
}
