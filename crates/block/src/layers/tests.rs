//! What tests of layers have in common.

pub(crate) mod manual_clock;
pub(crate) mod rig;
