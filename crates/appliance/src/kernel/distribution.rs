//! The kernel of a distribution, which boots on KVM.

use super::{Kernel, KernelError, Kind, names_in};
use rustix::system::uname;
use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Names the kernel where it is not in the usual places.
pub(super) const VARIABLE: &str = "BLOCKYARD_APPLIANCE_KERNEL";
const BOOT: &str = "/boot";
const PREFIX: &str = "vmlinuz-";
/// Where modules are, below the root that a kernel's package was unpacked to.
const MODULES: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// The one that the variable names, or the one that runs here, or the newest in /boot that can be read.
pub(super) fn find() -> Result<Kernel, KernelError> {
    if let Some(name) = env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        let path = PathBuf::from(name);
        let named = |error| KernelError::Named { variable: VARIABLE, path: path.clone(), error };
        let file = path.canonicalize().map_err(named)?;
        let release = release(&file).map_err(named)?;
        return with_modules(file, &release);
    }
    let running = uname().release().to_string_lossy().into_owned();
    let mut others: Vec<_> = names_in(Path::new(BOOT))
        .filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned))
        .filter(|release| *release != running)
        .collect();
    others.sort_by_key(|release| std::cmp::Reverse(numbers(release)));
    let files = [running].into_iter().chain(others).map(|name| Path::new(BOOT).join(format!("{PREFIX}{name}")));
    let (file, release) = first_readable(files, release)?;
    with_modules(file, &release)
}

/// The first of `files` whose release `release` says.
fn first_readable(
    files: impl Iterator<Item = PathBuf>,
    release: impl Fn(&Path) -> io::Result<String>,
) -> Result<(PathBuf, String), KernelError> {
    let mut denied = None;
    for file in files {
        match release(&file) {
            Ok(release) => return Ok((file, release)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = denied.or(Some(file)),
            Err(_) => {}
        }
    }
    Err(denied.map_or(KernelError::NoneInBoot, KernelError::Unreadable))
}

fn with_modules(file: PathBuf, release: &str) -> Result<Kernel, KernelError> {
    let root = file.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let places = [root, Path::new("/")].into_iter().flat_map(|root| MODULES.map(|tree| root.join(tree).join(release)));
    // Where there are none, all is built in; if not, the agent says what it lacks.
    let modules = places.into_iter().find(|place| place.is_dir());
    if let Some(modules) = &modules
        && !["modules.dep", "modules.alias"].iter().all(|table| modules.join(table).is_file())
    {
        return Err(KernelError::NoTables(modules.clone()));
    }
    Ok(Kernel { file, modules, kind: Kind::VirtualMachine })
}

/// What `uname -r` says in a kernel, as the header of its file has it (Linux, Documentation/arch/x86/boot.rst,
/// `kernel_version`).
fn release(file: &Path) -> io::Result<String> {
    let mut header = Vec::new();
    File::open(file)?.take(HEADER_BYTES).read_to_end(&mut header)?;
    release_in(&header)
        .ok_or_else(|| io::Error::other("it is no Linux kernel for machines (a bzImage, as distributions have it)"))
}

/// As much of a kernel as setup code has room for.
const HEADER_BYTES: u64 = 64 << 10;

/// Where a bzImage says that it is one, and what.
const MAGIC: usize = 0x202;
const MAGIC_BYTES: [u8; 4] = *b"HdrS";

/// Whether it is a kernel that machines boot.
pub(super) fn is_bzimage(opened: &File) -> bool {
    let mut bytes = [0; MAGIC_BYTES.len()];
    opened.read_exact_at(&mut bytes, MAGIC as u64).is_ok() && bytes == MAGIC_BYTES
}

fn release_in(header: &[u8]) -> Option<String> {
    const VERSION: usize = 0x20e;
    /// What the version's place counts from.
    const VERSION_BASE: usize = 0x200;
    header.get(MAGIC..).filter(|rest| rest.starts_with(&MAGIC_BYTES))?;
    let offset = u16::from_le_bytes(header.get(VERSION..VERSION + 2)?.try_into().ok()?);
    let text = header.get(VERSION_BASE + usize::from(offset)..)?;
    let release = text.split(|byte| !byte.is_ascii_graphic()).next()?;
    let release = String::from_utf8(release.to_vec()).ok()?;
    // It is part of a path.
    (!release.is_empty() && !release.contains('/')).then_some(release)
}

/// The numbers in a release, by which newer ones are told.
fn numbers(release: &str) -> Vec<u64> {
    release.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(release: &[u8]) -> Vec<u8> {
        let mut header = vec![0; 0x300];
        header[0x202..0x206].copy_from_slice(b"HdrS");
        header[0x20e..0x210].copy_from_slice(&0x80_u16.to_le_bytes());
        header[0x280..0x280 + release.len()].copy_from_slice(release);
        header
    }

    #[test]
    fn a_kernel_says_its_release() {
        assert_eq!(release_in(&header(b"6.1.0-56-amd64 (debian) #1")).as_deref(), Some("6.1.0-56-amd64"));
        for bad in [&b""[..], b" x", b"../../etc"] {
            assert_eq!(release_in(&header(bad)), None, "{bad:?}");
        }
        assert_eq!(release_in(&header(b"6.1")[..0x20f]), None);
        assert_eq!(release_in(b"#!/bin/sh"), None);
        let mut far = header(b"6.1");
        far[0x20e..0x210].copy_from_slice(&[0xff, 0xff]);
        assert_eq!(release_in(&far), None);
    }

    #[test]
    fn newer_releases_have_larger_numbers() {
        assert!(numbers("6.12.9-amd64") < numbers("6.12.10-amd64"));
        assert!(numbers("6.1.0-56-cloud-amd64") < numbers("6.2.0"));
    }

    #[test]
    fn a_kernel_that_is_for_root_alone_is_passed_over_or_told() {
        let files = || ["/boot/vmlinuz-2", "/boot/vmlinuz-1"].map(PathBuf::from).into_iter();
        let denied = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
        let only_old = |file: &Path| if file.ends_with("vmlinuz-1") { Ok("1".to_owned()) } else { denied(file) };
        assert_eq!(first_readable(files(), only_old).unwrap(), ("/boot/vmlinuz-1".into(), "1".to_owned()));
        let said = first_readable(files(), denied).unwrap_err().to_string();
        assert!(
            said.starts_with("this user may not read the kernel /boot/vmlinuz-2: run `sudo chmod a+r /boot/vmlinuz-2`")
        );
        let missing = |_: &Path| Err(io::ErrorKind::NotFound.into());
        assert!(matches!(first_readable(files(), missing), Err(KernelError::NoneInBoot)));
    }

    #[test]
    fn a_tree_of_modules_without_tables_is_told() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/modules/6.1-test");
        std::fs::create_dir_all(&modules).unwrap();
        let file = root.path().join("boot/vmlinuz-6.1-test");
        let found = with_modules(file.clone(), "6.1-test");
        assert!(matches!(found, Err(KernelError::NoTables(place)) if place == modules));
        assert_eq!(with_modules(file, "6.1-none").unwrap().modules, None);
    }
}
