//! The newest kernel, where no boot loader says which one to take.

use crate::files::{Image, Place};
use crate::{Entry, Loader, Problem, root_argument, version};

/// What kernels are called in /boot: this, and a version or a flavour.
const KERNELS: [&str; 2] = ["vmlinuz-", "kernel-"];
/// What kernels are called without one.
const PLAIN_KERNELS: [&str; 2] = ["vmlinuz", "bzImage"];
/// What the initrd of the kernel `vmlinuz-VERSION` is called: what stands before the version, and behind it. Debian,
/// Fedora and Arch, openSUSE, Alpine.
const INITRDS: [(&str, &str); 5] =
    [("initrd.img-", ""), ("initramfs-", ".img"), ("initrd-", ""), ("initrd-", ".img"), ("initramfs-", "")];
/// The same without a version.
const PLAIN_INITRDS: [&str; 4] = ["initrd.img", "initrd", "initramfs.img", "initramfs"];
/// Where packages leave a kernel for each version.
const MODULES: &str = "/usr/lib/modules";

pub(crate) fn find(image: &Image<'_>) -> Result<Option<Entry>, Problem> {
    let found = image.boot_directories().iter().find_map(|directory| in_directory(image, directory));
    let Some((kernel, initrd)) = found.or_else(|| in_modules(image)) else { return Ok(None) };
    let Some(piece) = image.piece(kernel.clone()) else { return Ok(None) };
    let initrds: Vec<_> = initrd.and_then(|initrd| image.piece(initrd)).into_iter().collect();
    Ok(Some(Entry {
        loader: Loader::NewestKernel,
        file: piece.name.clone(),
        line: 0,
        title: kernel.name().to_owned(),
        command_line: command_line(image, !initrds.is_empty()),
        kernel: piece,
        initrds,
        notes: Vec::new(),
    }))
}

/// The kernel with the newest version, and its initrd.
fn in_directory(image: &Image<'_>, directory: &Place) -> Option<(Place, Option<Place>)> {
    let names = image.names(directory);
    let version_of = |name: &str| KERNELS.iter().find_map(|prefix| name.strip_prefix(prefix)).map(str::to_owned);
    let versioned = names.iter().filter_map(|name| Some((version_of(name)?, name)));
    let usable = versioned.filter(|(version, name)| !is_set_aside(version) && image.has(&directory.join(name)));
    // What is for rescue is older than all.
    let newest = usable.max_by(|(one, _), (other, _)| {
        let rescues = |version: &str| version.contains("rescue");
        rescues(other).cmp(&rescues(one)).then_with(|| version::compare(one, other))
    });
    let first_there = |names: &mut dyn Iterator<Item = String>| {
        names.map(|name| directory.join(&name)).find(|place| image.has(place))
    };
    if let Some((version, name)) = newest {
        let mut initrds = INITRDS.iter().map(|(before, behind)| format!("{before}{version}{behind}"));
        return Some((directory.join(name), first_there(&mut initrds)));
    }
    let kernel = first_there(&mut PLAIN_KERNELS.iter().map(|name| (*name).to_owned()))?;
    Some((kernel, first_there(&mut PLAIN_INITRDS.iter().map(|name| (*name).to_owned()))))
}

/// Copies that packages keep, and what belongs to a kernel.
fn is_set_aside(version: &str) -> bool {
    [".old", ".bak", ".sig", ".hmac", ".dpkg-new", ".dpkg-tmp"].iter().any(|ending| version.ends_with(ending))
}

fn in_modules(image: &Image<'_>) -> Option<(Place, Option<Place>)> {
    let modules = Place::new(0, MODULES);
    let kernel = |version: &String| modules.join(version).join("vmlinuz");
    let versions = image.names(&modules).into_iter().filter(|version| image.has(&kernel(version)));
    let newest = versions.max_by(|one, other| version::compare(one, other))?;
    let initrds = ["initrd", "initramfs.img"].map(|name| modules.join(&newest).join(name));
    Some((kernel(&newest), initrds.into_iter().find(|place| image.has(place))))
}

fn command_line(image: &Image<'_>, has_initrd: bool) -> String {
    let Some(root) = image.root() else { return String::new() };
    let subvolume = root.subvolume.as_ref().map(|name| format!("rootflags=subvol={name}"));
    let words = [root_argument::of(root, has_initrd), "ro".to_owned()].into_iter().chain(subvolume);
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}
