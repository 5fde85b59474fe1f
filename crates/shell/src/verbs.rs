//! The shell's own commands, and guestfish's with its arguments (guestfish(1)): each file begins with the table of what
//! it has.

mod arrays;
mod contents;
mod control;
mod disks;
mod encryption;
mod file_systems;
mod files;
mod lvm;
mod mounts;
mod partition_plan;
mod partitions;
mod queries;
mod systems;

use crate::verb::Verb;

/// All but `help`, which knows all.
pub(crate) const TABLES: [&[Verb]; 12] = [
    control::VERBS,
    disks::VERBS,
    partitions::VERBS,
    lvm::VERBS,
    encryption::VERBS,
    arrays::VERBS,
    file_systems::VERBS,
    systems::VERBS,
    mounts::VERBS,
    files::VERBS,
    contents::VERBS,
    queries::VERBS,
];
