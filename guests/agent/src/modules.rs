//! The kernel's modules: those that the initramfs has, and those that come later.
//!
//! The kernel asks for some by itself, under names that they have for it (a cipher, a kind of array or of file system):
//! it executes /sbin/modprobe (modprobe(8)), which is this program. What is not here is remembered for the host, which
//! sends it for the next time.

use rustix::io::Errno;
use rustix::system::init_module;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Where they are, with two tables in depmod(8)'s formats: which needs which, and other names.
const MODULES: &str = "/lib/modules";
const NEEDS: &str = "/lib/modules/modules.dep";
const ALIASES: &str = "/lib/modules/modules.alias";
/// What the kernel executes, and what is called so.
const LOADER: &str = "/sbin/modprobe";

/// Names that were asked for in vain, one a line: another process of this program writes them.
const WANTED: &str = "/modules-wanted";
/// How many of them are told, and how long they may be (Linux, include/linux/module.h, MODULE_NAME_LEN).
const WANTED_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// Lets the kernel find this program when it wants a module.
pub(crate) fn serve_kernel() -> io::Result<()> {
    fs::create_dir_all("/sbin")?;
    match symlink("/init", LOADER) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Does what the kernel wants, if it was the kernel who executed this program: with the exit status.
pub(crate) fn asked_by_kernel() -> Option<i32> {
    let mut arguments = std::env::args();
    arguments.next().filter(|name| name.ends_with("modprobe"))?;
    let wanted = arguments.filter(|argument| !argument.starts_with('-'));
    Some(wanted.map(|name| load_by_any_name(&name)).fold(0, |status, loaded| if loaded { status } else { 1 }))
}

/// Loads what has that name, or is called so; what is not here is wanted.
fn load_by_any_name(name: &str) -> bool {
    if file_of(name).is_some() {
        return load(name).is_ok();
    }
    let table = fs::read_to_string(ALIASES).unwrap_or_default();
    let modules: Vec<_> = called(&table, name).collect();
    if modules.is_empty() {
        want(name);
    }
    !modules.is_empty() && modules.into_iter().all(|module| load(module).is_ok())
}

/// Loads what mounts file systems of that kind, if it is not there.
pub(crate) fn load_file_system(kind: &str) {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.split_whitespace().any(|name| name == kind) {
        load_by_any_name(&format!("fs-{kind}"));
    }
}

/// Remembers that somebody asked for it.
fn want(name: &str) {
    let wanted = fs::OpenOptions::new().append(true).create(true).open(WANTED);
    // It fails whoever asked, who says so.
    let _ = wanted.and_then(|mut wanted| wanted.write_all(format!("{name}\n").as_bytes()));
}

/// What was asked for in vain since this was asked last.
pub(crate) fn wanted() -> Vec<String> {
    let names = fs::read_to_string(WANTED).unwrap_or_default();
    let _ = fs::remove_file(WANTED);
    let mut names: Vec<_> = names.lines().filter(|name| name.len() < NAME_BYTES_MAX).map(str::to_owned).collect();
    names.dedup();
    names.truncate(WANTED_MAX);
    names
}

/// The modules that a table calls `name`.
fn called<'table>(table: &'table str, name: &str) -> impl Iterator<Item = &'table str> {
    table.lines().filter_map(move |line| {
        let mut fields = line.strip_prefix("alias ")?.split_whitespace();
        let (pattern, module) = (fields.next()?, fields.next()?);
        let same = match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => same_name(pattern, name),
        };
        same.then_some(module)
    })
}

/// A - and a _ are the same in a module's name.
fn same_name(one: &str, other: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    one.len() == other.len() && one.bytes().map(plain).eq(other.bytes().map(plain))
}

/// Loads a module, after those that it needs. One that is there already, or built in, is fine.
pub(crate) fn load(name: &str) -> io::Result<()> {
    // Built in, then; if not, what needs it says so.
    let Some(file) = file_of(name) else { return Ok(()) };
    let table = fs::read_to_string(NEEDS).unwrap_or_default();
    // The last is needed first (modules.dep(5)).
    for needed in needs(&table, name).into_iter().rev() {
        if let Some(file) = file_of(needed) {
            insert(&file)?;
        }
    }
    insert(&file)
}

/// Names of the modules that one needs.
fn needs<'table>(table: &'table str, name: &str) -> Vec<&'table str> {
    let stem = |path: &'table str| path.rsplit('/').next().unwrap_or(path).trim_end_matches(".ko");
    let lines = table.lines().filter_map(|line| line.split_once(':'));
    let line = lines.filter(|(module, _)| same_name(stem(module), name)).map(|(_, needed)| needed).next();
    line.unwrap_or_default().split_whitespace().map(stem).collect()
}

fn file_of(name: &str) -> Option<PathBuf> {
    let usual = Path::new(MODULES).join(format!("{name}.ko"));
    let other = |from, to| Path::new(MODULES).join(format!("{}.ko", name.replace(from, to)));
    // What the kernel asks for is no path.
    let candidates = [usual, other("_", "-"), other("-", "_")];
    candidates.into_iter().find(|path| !name.contains('/') && path.is_file())
}

fn insert(path: &Path) -> io::Result<()> {
    match init_module(&fs::read(path)?, c"") {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(io::Error::other(format!("cannot load {}: {errno}", path.display()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_known_by_several_names() {
        let table = "# Aliases\nalias md-personality-4 raid456\nalias md-raid6 raid456\nalias char-major-10-* misc_one\n\
                     alias crypto-xts xts\nbroken\n";
        let modules = |name: &str| called(table, name).collect::<Vec<_>>();
        assert_eq!(modules("md-raid6"), ["raid456"]);
        assert_eq!(modules("md_raid6"), ["raid456"]);
        assert_eq!(modules("char-major-10-236"), ["misc_one"]);
        assert_eq!(modules("crypto-xts(aes)"), Vec::<&str>::new());
    }

    #[test]
    fn a_module_comes_after_what_it_needs() {
        let table = "kernel/md/dm-crypt.ko: kernel/md/dm-mod.ko kernel/keys/encrypted-keys.ko\nkernel/md/dm-mod.ko:\n";
        assert_eq!(needs(table, "dm_crypt"), ["dm-mod", "encrypted-keys"]);
        assert_eq!(needs(table, "dm-mod"), Vec::<&str>::new());
        assert_eq!(needs(table, "other"), Vec::<&str>::new());
    }
}
