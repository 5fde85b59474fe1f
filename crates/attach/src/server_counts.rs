//! What a session's servers have done for the processes of a disk, one after the other.

use blockyard_session::client::SessionDisk;
use blockyard_session::server::QueueCounts;
use std::mem::take;
use std::time::Duration;

/// How often a server is asked, which may be killed: as much as it does in that time is not known then.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// How often a server is asked again that has come meanwhile.
const ATTEMPTS_MAX: usize = 4;

/// What is known of them.
#[derive(Debug, Default)]
pub(crate) struct ServerCounts {
    /// Of those that have gone, as they last said.
    gone: QueueCounts,
    /// Of the one that is there.
    last: QueueCounts,
    incarnation: u64,
}

impl ServerCounts {
    /// Asks the server that is there: what all of them have done. Nothing of one that does not answer, which has told
    /// those who waited for it.
    pub(crate) fn ask(&mut self, server: &SessionDisk) -> QueueCounts {
        for _ in 0..ATTEMPTS_MAX {
            let incarnation = server.incarnation();
            if incarnation != self.incarnation {
                self.gone = self.gone + take(&mut self.last);
                self.incarnation = incarnation;
            }
            let answer = server.further_counts();
            if server.incarnation() == incarnation {
                self.last = answer.unwrap_or(self.last);
                break;
            }
        }
        self.gone + self.last
    }
}
