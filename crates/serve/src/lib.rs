//! A process that serves a disk, or partitions of it, to virtual machines and to programs that only know files.
//!
//! One process, the driver, has the disk ([`serve`]). Where partitions are served, a second one stands at the door
//! ([`stand_at_the_door`]): the mediator passes clients on and is then out of the road, or the copier stays on it. Each
//! opens what it needs, gives up the rest, and serves.
//!
//! Both take over the process that calls them, which has no other threads yet: they close what it has inherited,
//! confine it, and return when it has nothing left to do. What they say goes to [`Notices`], which keep it from being
//! more than people read; who writes that, who looks at the clients ([`ServerView`]), and which signals end it all is
//! the matter of an [`Operator`].
#![forbid(unsafe_code)]

mod clients;
mod door;
mod file;
mod gate;
mod metrics;
mod notices;
mod operator;
mod options;
mod partitions;
mod serving;
mod view;

pub use door::{DoorOptions, stand_at_the_door};
pub use notices::{Notice, Notices};
pub use operator::Operator;
pub use options::{Door, Front, Running, ServeOptions};
pub use view::{ClientView, Look, ServerView};

use anyhow::Result;
use blockyard_session::open::OpenOptions;
use serving::Preparation;

/// Serves a disk, which is opened with `opening` when it is time for that, until the operator or the options say that
/// it is enough.
///
/// # Errors
/// When the disk cannot be had or served.
pub fn serve(options: ServeOptions, opening: &OpenOptions<'_>, operator: &dyn Operator) -> Result<()> {
    let ServeOptions { disk: name, front, running } = options;
    let (preparation, disk) = Preparation::with_disk(&name, opening, running, operator)?;
    match front {
        Front::Socket { path, once, uids } => gate::serve_disk(preparation, disk, &name, &path, once, uids),
        Front::Partitions { count, door: Door::Mediator, command } => {
            partitions::mediate(preparation, disk, count, command)
        }
        Front::Partitions { door: Door::Copier, command, .. } => partitions::copy(preparation, disk, command),
        Front::Fuse(path) => file::serve(preparation, disk, &name, &path),
    }
}
