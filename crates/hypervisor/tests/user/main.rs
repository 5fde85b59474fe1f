//! The `user` backend, from outside: real guests in real processes.

mod confinement;
mod doorbells;
mod exits;
mod guest;
mod kicks;
mod lifetime;
