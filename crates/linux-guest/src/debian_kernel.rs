//! Debian's kernel for virtual machines, as its package unpacks.

use crate::module_file::{read_module_below, uncompressed_name};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel on disk.
#[derive(Debug)]
pub struct DebianKernel {
    /// As `uname -r` has it.
    pub version: String,
    /// What boots.
    pub image: PathBuf,
    /// To load, in this order.
    pub modules: Vec<Module>,
}

/// A module of the kernel.
#[derive(Debug)]
pub struct Module {
    /// Its name, with underscores.
    pub name: String,
    /// The module itself, not compressed.
    pub content: Vec<u8>,
}

impl DebianKernel {
    /// The kernel in a directory that its package was unpacked to, with the modules wanted and those that they need.
    ///
    /// # Errors
    /// When there is not exactly one kernel, or it lacks a module.
    pub fn find(directory: &Path, wanted: &[&str]) -> anyhow::Result<Self> {
        let image = only_file(&directory.join("boot"), |name| name.starts_with("vmlinuz-"))?;
        let name = image.file_name().unwrap_or_default().to_string_lossy();
        let version = name.trim_start_matches("vmlinuz-").to_owned();
        let tree = directory.join("lib/modules").join(&version);
        let files = module_files(&tree)?;
        let mut modules = Vec::new();
        for module in wanted {
            add_module((&tree, &files), module, &mut modules)?;
        }
        Ok(Self { version, image, modules })
    }
}

/// The modules wanted that lie below `directory`, as far as there are any, each after those that it needs.
/// No link leads out of it.
///
/// # Errors
/// When the directory cannot be listed, or a module not be read.
pub fn modules_in(directory: &Path, wanted: &[&str]) -> anyhow::Result<Vec<Module>> {
    let files = module_files(directory)?;
    let mut modules = Vec::new();
    for module in wanted.iter().filter(|module| files.contains_key(**module)) {
        add_module((directory, &files), module, &mut modules)?;
    }
    Ok(modules)
}

/// Adds a module after those it depends on, which differ from one kernel to the next. Where they say that they depend
/// on each other, in a circle, one has to be before the others.
fn add_module(
    (tree, files): (&Path, &BTreeMap<String, PathBuf>),
    name: &str,
    modules: &mut Vec<Module>,
) -> anyhow::Result<()> {
    // Those whose dependencies come first lie above them.
    let (mut wanted, mut read) = (vec![name.to_owned()], BTreeMap::new());
    while let Some(name) = wanted.pop() {
        if modules.iter().any(|module| module.name == name) {
            continue;
        }
        if let Some(content) = read.remove(&name) {
            modules.push(Module { name, content });
            continue;
        }
        let file = files.get(&name).with_context(|| format!("the kernel has no module {name}"))?;
        let content = read_module_below(tree, file)?;
        let mut first = dependencies(&content);
        first.retain(|dependency| *dependency != name && !read.contains_key(dependency));
        read.insert(name.clone(), content);
        wanted.push(name);
        wanted.extend(first.into_iter().rev());
    }
    Ok(())
}

/// What a module says it depends on: `depends=a,b` and a zero byte, in its section .modinfo.
fn dependencies(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value).replace('-', "_");
    names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The modules in a tree, compressed or not, by name: their paths as seen from there.
fn module_files(tree: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let (mut directories, mut files) = (vec![tree.to_owned()], BTreeMap::new());
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            } else if let Some(name) = uncompressed_name(&name).and_then(|name| name.strip_suffix(".ko")) {
                let path = entry.path();
                files.insert(name.replace('-', "_"), path.strip_prefix(tree).unwrap_or(&path).to_owned());
            }
        }
    }
    Ok(files)
}

/// The only file in a directory whose name is wanted.
///
/// # Errors
/// When there are none, or several.
pub fn only_file(directory: &Path, wanted: impl Fn(&str) -> bool) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    let mut found = entries.filter_map(Result::ok).filter(|entry| wanted(&entry.file_name().to_string_lossy()));
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry.path()),
        _ => bail!("not exactly one such file in {}", directory.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(dependencies(b"\x7fELF..\0license=GPL\0depends=kvm,irq-bypass\0name=x\0"), ["kvm", "irq_bypass"]);
        assert!(dependencies(b"\0depends=\0").is_empty());
        assert!(dependencies(b"nothing").is_empty());
    }

    #[test]
    fn modules_come_after_those_that_they_need_and_a_circle_has_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let says = |name: &str, needs: &str| {
            fs::write(directory.path().join(name), format!("\0depends={needs}\0")).unwrap();
        };
        let names = |wanted: &[&str]| {
            let modules = modules_in(directory.path(), wanted).unwrap();
            modules.into_iter().map(|module| module.name).collect::<Vec<_>>()
        };
        says("top.ko", "left,right,base");
        says("left.ko", "base");
        says("right.ko", "base,left");
        says("base.ko", "");
        assert_eq!(names(&["right", "top"]), ["base", "left", "right", "top"]);
        says("base.ko", "top,base");
        assert_eq!(names(&["top"]), ["base", "left", "right", "top"]);
        (0..5000).for_each(|number| says(&format!("m{number}.ko"), &format!("m{}", number + 1)));
        says("m5000.ko", "m0");
        let long = names(&["m0"]);
        assert_eq!((long.len(), &long[0][..], &long[5000][..]), (5001, "m5000", "m0"));
    }
}
