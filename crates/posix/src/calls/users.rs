//! Calls after which this process is another user, who may not come where disks are served. What it can have of them,
//! it has before.

use crate::connection;
use crate::next::calls;
use libc::{c_int, uid_t};

calls! {
    fn [setuid](user: uid_t) -> c_int |own| {
        prepare_for(user);
        own()
    }
    fn [seteuid](user: uid_t) -> c_int |own| {
        prepare_for(user);
        own()
    }
    fn [setreuid](user: uid_t, effective: uid_t) -> c_int |own| {
        prepare_for(effective);
        own()
    }
    fn [setresuid](user: uid_t, effective: uid_t, saved: uid_t) -> c_int |own| {
        prepare_for(effective);
        own()
    }
}

/// This process is about to be that user; -1: it stays who it is.
fn prepare_for(user: uid_t) {
    // SAFETY: it cannot fail.
    if user != uid_t::MAX && user != unsafe { libc::geteuid() } {
        connection::make_all();
    }
}
