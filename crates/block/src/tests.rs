//! What tests have in common.

pub(crate) mod own_mounts;
pub(crate) mod unknown_users;
