//! Workloads, statistics, result files and reports.
//!
//! [`copy`] compares whole copies: ours, as the system this project follows did it and as we do it, beside cp, dd and
//! qemu-img. [`disk`] tests any disk, and [`layer_costs`] does the same to several, to say what lies between them.
//! [`kbuild`] builds a kernel in virtual machines, each a [`machine_process`]. [`startup`] and [`upload`] measure the
//! appliance, on each [`backend`]. [`posix`] runs dd and fio on a disk. [`statistics`], [`cpu_idle`], [`random_file`]
//! and [`table`] are what every benchmark shares; [`partitioned_file`] and [`serve_process`], a disk and its server.
//!
//! Whatever is compared runs interleaved, in one go, on one machine; medians and ratios are reported, with the CPUs'
//! idle time beside every figure. Deliberately absent: thresholds. A benchmark measures; it does not pass or fail.
#![forbid(unsafe_code)]

pub mod api;
pub mod backend;
pub mod copy;
pub mod cpu_idle;
pub mod disk;
pub mod guestfish;
pub mod kbuild;
pub mod layer_costs;
pub mod machine_process;
pub mod partitioned_file;
pub mod posix;
mod random;
pub mod random_file;
pub mod serve_process;
pub mod startup;
pub mod statistics;
pub mod table;
mod timed_command;
pub mod upload;
pub mod work_directory;
