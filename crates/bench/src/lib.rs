//! Workloads, statistics, result files and reports.
//!
//! [`copy`] compares whole copies: ours, as the system this project follows did it and as we do it, beside cp, dd and
//! qemu-img. [`statistics`], [`cpu_idle`] and [`table`] are what every benchmark shares.
//!
//! Whatever is compared runs interleaved, in one go, on one machine; medians and ratios are reported, with the CPUs' idle time
//! beside every figure. Deliberately absent: thresholds. A benchmark measures; it does not pass or fail.
#![forbid(unsafe_code)]

pub mod copy;
pub mod cpu_idle;
pub mod disk;
pub mod statistics;
pub mod table;
