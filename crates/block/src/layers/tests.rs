//! What tests of layers have in common.

pub(crate) mod rig;
