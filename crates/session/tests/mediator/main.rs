//! The mediator as a process of its own, with real sockets, clients, users and kills.

mod gate;
mod processes;
mod rig;
mod table_changes;
