//! The session client against servers: qemu-storage-daemon's real one, and scripted ones that do what no server should.

mod data;
mod further;
mod hostile;
mod own_server;
mod restart;
mod rig;
mod scripted;
mod server;
mod sharing;
mod verify;
