//! What the host's kernel gives that not every kernel does, or not everybody.

use super::facility::{Facility, Lack};
use blockyard_block::programs;
use blockyard_confinement as confinement;
use rustix::io::Errno;
use std::fs::{self, File};

/// FUSE: the device, and the program that mounts for ordinary users.
pub fn fuse() -> Facility {
    Facility::new(
        "fuse",
        "serving a disk as a file (`blockyard serve --fuse`)",
        usable_fuse(rustix::process::geteuid().is_root()),
    )
}

fn usable_fuse(root: bool) -> Result<String, Lack> {
    const DEVICE: &str = "/dev/fuse";
    let opened = File::options().read(true).write(true).open(DEVICE);
    opened.map_err(|error| {
        let remedy = match Errno::from_io_error(&error) {
            // Its permissions, and those of a container's devices.
            Some(Errno::ACCESS) => "chmod 666 /dev/fuse",
            Some(Errno::PERM) => "a container with --device /dev/fuse",
            _ => "modprobe fuse; in a container, --device /dev/fuse",
        };
        Lack::new(format!("{DEVICE} does not open: {error}"), remedy)
    })?;
    match programs::find("fusermount3") {
        Some(path) => Ok(format!("{DEVICE}, and {} mounts for ordinary users", path.display())),
        None if root => Ok(format!("{DEVICE}; root mounts without fusermount3")),
        None => Err(Lack::new("fusermount3, which mounts for ordinary users, is not there", "apt-get install fuse3")),
    }
}

/// Landlock, and which version of it.
pub fn landlock() -> Facility {
    let found = match confinement::landlock_abi() {
        Ok(abi) => Ok(format!("ABI {abi}")),
        Err(error) => Err(Lack::new(
            format!("{error}: only system calls are confined"),
            "a kernel from 5.13 on, with landlock among the security modules (lsm= on its command line)",
        )),
    };
    Facility::new("landlock", "keeping a server from the file system", found)
}

/// User namespaces, for ordinary users. `had`: whether an appliance has had namespaces of its own, if one was booted.
pub fn user_namespaces(had: Option<bool>) -> Facility {
    let settings = [
        ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let found = namespaces_by(&settings, |path| fs::read_to_string(path).ok()).and_then(|found| match had {
        Some(true) => Ok("the appliance has had them".to_owned()),
        Some(false) => Err(Lack::new(
            "the kernel refuses them, or mounts in them, to this process",
            "a container whose seccomp profile allows unshare and mount",
        )),
        None => Ok(found),
    });
    Facility::new("user namespaces", "containers that take no root", found)
}

fn namespaces_by(settings: &[(&str, &str, &str)], read: impl Fn(&str) -> Option<String>) -> Result<String, Lack> {
    if !std::path::Path::new("/proc/self/ns/user").exists() {
        return Err(Lack::for_good("the kernel has none"));
    }
    for (path, forbidding, remedy) in settings {
        if read(path).is_some_and(|value| value.trim() == *forbidding) {
            return Err(Lack::new(format!("{path} is {forbidding}"), *remedy));
        }
    }
    Ok("no sysctl forbids them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidding_sysctl_is_named_with_its_remedy() {
        let settings = [("/a", "0", "sysctl a=1"), ("/b", "1", "sysctl b=0")];
        let lack = namespaces_by(&settings, |path| (path == "/b").then(|| "1\n".into())).unwrap_err();
        assert_eq!((lack.reason.as_str(), lack.remedy.as_deref()), ("/b is 1", Some("sysctl b=0")));
        assert!(namespaces_by(&settings, |_| None).is_ok());
        assert!(namespaces_by(&settings, |path| (path == "/a").then(|| "100".into())).is_ok());
    }
}
