//! `blockyard image`: what other people's tools make it reads, and what it makes they read.

mod archives;
mod atomic;
mod boot_files;
mod changes;
mod corpus;
mod damage;
mod data;
mod destinations;
mod drivers;
mod ends;
mod filesystems;
mod guestfish_verbs;
mod inspection;
mod interrupted;
mod partitions;
mod queries;
mod reading;
mod recipes;
mod rig;
mod rights;
#[path = "../support/root.rs"]
mod root;
mod shell;
mod shut_in;
mod small_files;
mod verbs;
mod volume_making;
mod volumes;
mod workshop;
