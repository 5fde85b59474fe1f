//! Taking from processes what they do not need, before they look at anything that somebody else has made.
//!
//! [`Confinement`] is for this process: whoever has opened its files and sockets gives up the rest. [`program_filter`]
//! is for a program that this process executes and that must not notice, [`machine_filter`] for a process that becomes
//! the virtual machine of an appliance, [`MachineThread`] for the threads of one that runs a virtual machine for
//! people. [`standard_output`] says whether anybody hears what this process prints.
//!
//! Deliberately absent: policy. Which process may do what is said by those who start it.

mod allow_list;
mod every_thread;
mod kvm_requests;
pub mod machine_filter;
mod machine_thread;
mod process;
pub mod program_filter;
mod seccomp_rules;
pub mod standard_output;

pub use machine_thread::MachineThread;
pub use process::{
    Confinement, ConfinementError, Inherited, Landlock, Tree, give_up_capabilities, landlock_abi,
    raise_descriptor_limit,
};
pub use seccomp_rules::fcntl_without_signals;
