//! `blockyard image`: what other people's tools make it reads, and what it makes they read.

mod changes;
mod damage;
mod data;
mod ends;
mod partitions;
mod reading;
mod rig;
mod shell;
mod shut_in;
