//! Mounts of a test alone.

use rustix::mount::{MountPropagationFlags, mount_change};

/// Runs `work` in a mount namespace of its own; false where this user may have none.
pub(crate) fn among_own_mounts(work: impl FnOnce() + Send + 'static) -> bool {
    std::thread::spawn(|| {
        // SAFETY: it concerns this thread alone, which lends no descriptor and ends here.
        let unshared = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }.is_ok()
            && mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).is_ok();
        if unshared {
            work();
        } else {
            eprintln!("no mount namespace for this user: not tried");
        }
        unshared
    })
    .join()
    .unwrap()
}
