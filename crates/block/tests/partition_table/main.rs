//! Partition tables: those that sfdisk makes, damaged ones, and hostile ones.

mod choice;
mod damage;
mod fuzz;
mod hostile;
mod image;
mod sfdisk;
