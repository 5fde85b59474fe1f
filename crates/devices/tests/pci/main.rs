//! A PCI bus as a guest's configuration and memory accesses find it.

mod bus;
mod hostile;
mod rig;
