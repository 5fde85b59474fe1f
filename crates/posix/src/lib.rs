//! Disks as files of programs that were never changed.
//!
//! A program is started with this library (`LD_PRELOAD`) and with names in its environment (`names::VARIABLE`). What
//! it opens by one of them is a disk, and what it does on such a descriptor is done here, in requests to a session: no
//! system call of the kernel's sees the name, and none is made for a request but where somebody has to be woken or
//! waited for. All else goes on to libc.
//!
//! One way: a call of libc's (`calls`) finds what its descriptor is open on (`table`), which is a description that
//! processes share (`description`), and has its bytes transferred (`transfer`) on a connection that the process
//! has for itself (`connection`).
//!
//! A program that knows of this library has queues besides (`queue`), without names or descriptors.
//!
//! A descriptor is a real one, so its number is nobody else's, and it is inherited, duplicated and passed to programs
//! as any other. It is open on nothing that could be read (`O_PATH`): a call that goes past this library gets EBADF and
//! reaches no file.
//!
//! Calls may come at any time: from signal handlers, in a child after fork(2), in the middle of another. So the table
//! is read without locks, and nothing that is found by it moves or is freed while somebody may look at it.
#![allow(unreachable_pub, reason = "a shared library has no interface but its symbols")]

mod ahead;
mod aio;
mod behind;
mod calls;
mod connection;
mod control_block;
mod description;
mod environment;
mod errno;
mod fork;
mod guarded;
mod leader;
mod locks;
mod names;
mod next;
mod own;
mod partial_writes;
mod queue;
mod setup;
mod signals;
mod stat;
mod stderr;
mod stdio;
mod table;
mod transfer;
mod users;
mod writers;
