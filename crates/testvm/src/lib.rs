//! The minimal test VM: a kernel, busybox, dd and fio, booted afresh for each step of a script.
//!
//! [`write_initramfs`] makes its initial file system of a machine's (or another root directory's) programs and what
//! they need, or of packages that are [`unpacked`] for that; [`write_iso`] makes a CD of it. [`Script`] is a shell
//! script with its steps, some of which come with the program ([`Shipped`]); [`TestVm::step`] boots a machine of
//! `blockyard run` for one of them, and joins what it said with how busy the host was meanwhile ([`StepResult`]).
//! Modules come from the kernel that is booted ([`Guest`]), so that any kernel goes with one initial file system.
//!
//! The machine is a process of its own, as its console is its stdout. Whatever comes out of it is the guest's: read
//! within bounds, and never through a link.
#![forbid(unsafe_code)]

mod console;
mod guest;
mod host;
mod initramfs;
mod iso;
mod output;
mod packages;
mod script;
mod shipped;
mod step;
mod variable;

pub use guest::Guest;
pub use initramfs::{PROGRAMS, packages, write_initramfs};
pub use iso::write_iso;
pub use output::Output;
pub use packages::unpacked;
pub use script::Script;
pub use shipped::Shipped;
pub use step::{ResultsBy, StepResult, TestVm};
pub use variable::{NoVariable, Variable};
