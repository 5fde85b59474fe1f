//! The partition mediator: a process that grants clients parts of a served disk, and is then out of the road.
//!
//! ```text
//!   client ──connects──▶ mediator (a socket per partition)       driver (the disk, session::server)
//!     │                    │ Grant { session, range, rights, weight } + the client's descriptor ──▶ │
//!     └──────────────────────── vhost-user, straight ───────────────────────────────────────────────┘
//! ```
//!
//! The mediator decides who gets what: it reads the partition table through a session of its own, owns the listening
//! sockets, checks who connects, and passes accepted connections on. The driver ([`Driver`]) does not trust it beyond
//! that: it checks that each range lies within the disk and that nobody writes what another client has. When the
//! mediator dies, running sessions go on; when the driver dies, the mediator ends and its sockets go.
//!
//! It keeps each connection until the driver has closed its own: what a client has put into its connection's queue may
//! take as long to close as the client likes, and who let it in sees to that at the one socket that it came from.
//!
//! What both the mediator and the copying multiplexer need is [`offers`] (which sockets, which ranges, which rights)
//! and [`Gate`] (who may come in): a copier serves what the gate admits by itself.

mod control;
mod driver;
mod export;
mod gate;
mod message;
mod offer;
mod process;

pub use control::control_pair;
pub use driver::{Driver, Grantor, MediatorNews};
pub use export::{EXPORTS_MAX, ExportError, PartitionExport, WEIGHT_MAX};
pub use gate::{Admission, Gate};
pub use message::Grant;
pub use offer::{Offer, OfferError, Offers, offers};
pub use process::{Mediator, MediatorConfig, MediatorError, run, session};
