//! What tests have in common.

pub(crate) mod own_mounts;
