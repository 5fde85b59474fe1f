//! The vhost-user server, from the other end of its socket.

#![forbid(unsafe_code)]

mod client;
mod data;
mod doorkeeper;
mod fairness;
mod hostile;
mod protocol;
mod recovery;
mod slow_disk;
