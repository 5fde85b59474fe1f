//! Modules of the kernel's: those that an appliance boots with, and those that it gets when its kernel wants them. What
//! they need comes along, as depmod(8) has written it down.

use crate::kernel::Kernel;
use blockyard_linux_guest::{read_module, uncompressed_name};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Those that every appliance has: its disks' drivers, and what Linux's and EFI's partitions need, which most images
/// have. What a kernel has built in is none.
const INITIAL: [&str; 7] = ["virtio_mmio", "virtio_blk", "ext4", "vfat", "nls_cp437", "nls_iso8859-1", "nls_utf8"];

/// Those that the kernel may want when an image has arrays, logical volumes or encrypted volumes, or a file of it is
/// mounted; it loads what it uses. They come at once, as whoever opens such a volume cannot be asked to do so again. A
/// name with a slash at its end is a directory's, with all that it has.
pub(crate) const LATER: [&str; 3] = ["kernel/drivers/md/", "kernel/crypto/", "loop"];

/// Where the agent looks for modules.
const DIRECTORY: &str = "lib/modules";

/// Files that an appliance boots with, below the directory of its modules: names and contents. Modules that are called
/// `more` are among them.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn initial(kernel: &Kernel, more: &[&str]) -> io::Result<Vec<(String, Vec<u8>)>> {
    let Some(tables) = Tables::read(kernel)? else { return Ok(Vec::new()) };
    tables.files(&tables.lines_of(&[&INITIAL, more].concat()), &BTreeSet::new())
}

/// An archive for the appliance's root of the modules that are called so, by whatever name, and are not there with
/// those of `names_before`: with the agent's tables, which say which needs which, and what else they are called.
/// Nothing if there are no more such modules.
///
/// # Errors
/// When one cannot be read.
pub(crate) fn bundle<N: AsRef<str>>(
    kernel: &Kernel,
    names: &[N],
    names_before: &[String],
) -> io::Result<Option<Vec<u8>>> {
    let Some(tables) = Tables::read(kernel)? else { return Ok(None) };
    let mut lines = tables.lines_of(&INITIAL);
    lines.append(&mut tables.lines_of(names_before));
    let before = lines.clone();
    lines.append(&mut tables.lines_of(names));
    if lines == before {
        return Ok(None);
    }
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in tables.files(&lines, &before)? {
        append(&mut archive, &name, &content)?;
    }
    archive.into_inner().map(Some)
}

/// What depmod(8) has written down.
struct Tables {
    /// Where they lie, and what their paths begin at.
    directory: PathBuf,
    needs: String,
    aliases: String,
}

impl Tables {
    /// Nothing where all is built in.
    fn read(kernel: &Kernel) -> io::Result<Option<Self>> {
        let Some(directory) = kernel.modules().map(Path::to_owned) else { return Ok(None) };
        let needs = fs::read_to_string(directory.join("modules.dep"))?;
        let aliases = fs::read_to_string(directory.join("modules.alias"))?;
        Ok(Some(Self { directory, needs, aliases }))
    }

    /// The lines of modules that are called so, and of those that they need.
    fn lines_of<N: AsRef<str>>(&self, names: &[N]) -> BTreeSet<&str> {
        let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
        // Some twenty thousand: this is done at every start.
        let aliases = self.aliases.lines().filter_map(alias);
        let called = aliases.filter(|(pattern, _)| names.iter().any(|name| matches(pattern, name)));
        let wanted: BTreeSet<_> = called.map(|(_, module)| module).chain(names.iter().copied()).map(plain).collect();
        let directories: Vec<_> = names.iter().filter(|name| name.ends_with('/')).collect();
        let lies_there = |line: &str| directories.iter().any(|directory| line.starts_with(*directory));
        let own = self.needs.lines().filter(|line| lies_there(line) || wanted.contains(&plain(name_of(line))));
        let paths: BTreeSet<_> = own.flat_map(paths_of).collect();
        self.needs.lines().filter(|line| paths_of(line).next().is_some_and(|own| paths.contains(own))).collect()
    }

    /// The modules of `lines` but for those of `before`, and tables of all of them.
    fn files(&self, lines: &BTreeSet<&str>, before: &BTreeSet<&str>) -> io::Result<Vec<(String, Vec<u8>)>> {
        let mut files = Vec::new();
        for path in lines.difference(before).filter_map(|line| paths_of(line).next()) {
            files.push((file_name(path).to_owned(), read_module(&self.directory.join(path))?));
        }
        let names: BTreeSet<_> = lines.iter().map(|line| plain(name_of(line))).collect();
        let known = |line: &&str| alias(line).is_some_and(|(_, module)| names.contains(&plain(module)));
        let aliases: Vec<_> = self.aliases.lines().filter(known).collect();
        let needs: Vec<_> = lines.iter().map(|line| uncompressed_line(line)).collect();
        files.push(("modules.dep".to_owned(), needs.join("\n").into_bytes()));
        files.push(("modules.alias".to_owned(), aliases.join("\n").into_bytes()));
        Ok(files)
    }
}

/// What a line of aliases calls which module.
fn alias(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("alias ")?.rsplit_once(' ')
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern.len() == name.len() && plain_bytes(pattern).eq(plain_bytes(name)),
    }
}

fn plain_bytes(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().map(|byte| if byte == b'-' { b'_' } else { byte })
}

/// A - and a _ are the same in a module's name.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

/// The module's own path, and those of what it needs.
fn paths_of(line: &str) -> impl Iterator<Item = &str> {
    line.split([':', ' ']).filter(|path| !path.is_empty())
}

/// Of the module whose path a line begins with.
fn name_of(line: &str) -> &str {
    file_name(line.split(':').next().unwrap_or(line)).trim_end_matches(".ko")
}

/// Under which the agent finds the module of that path.
fn file_name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    uncompressed_name(name).unwrap_or(name)
}

/// A line of what modules need, as it is of modules that are not compressed: the agent's are not.
fn uncompressed_line(line: &str) -> String {
    line.split_inclusive([':', ' '])
        .map(|part| {
            let path = part.trim_end_matches([':', ' ']);
            format!("{}{}", uncompressed_name(path).unwrap_or(path), &part[path.len()..])
        })
        .collect()
}

fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, Path::new(DIRECTORY).join(name), content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Backend;
    use std::collections::HashMap;
    use std::io::Read;
    use std::process::Command;

    fn unpacked(archive: &[u8]) -> HashMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let file = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), content)
        };
        archive.entries().unwrap().map(file).collect()
    }

    #[test]
    fn what_the_kernel_asks_for_comes_once() {
        let kernel = Kernel::find(Backend::Uml).unwrap();
        let archive =
            bundle(&kernel, &["fs-iso9660", "quota_v2", "../../etc/passwd", "nothing"], &[]).unwrap().unwrap();
        let files = unpacked(&archive);
        for name in ["isofs.ko", "cdrom.ko", "quota_v2.ko", "quota_tree.ko"] {
            assert!(files.contains_key(&format!("lib/modules/{name}")), "{name}");
        }
        // Tables are of what is there already, too.
        let table = String::from_utf8(files["lib/modules/modules.dep"].clone()).unwrap();
        assert!(table.contains("isofs.ko: kernel/drivers/cdrom/cdrom.ko") && table.contains("/vfat.ko:"), "{table}");
        assert!(!files.contains_key("lib/modules/vfat.ko"));
        let before = ["fs-iso9660".to_owned()];
        assert!(bundle(&kernel, &["isofs", "cdrom", "vfat", "nothing"], &before).unwrap().is_none());
        let udf = unpacked(&bundle(&kernel, &["fs-udf"], &before).unwrap().unwrap());
        assert!(udf.contains_key("lib/modules/udf.ko") && !udf.contains_key("lib/modules/cdrom.ko"));
    }

    #[test]
    fn modules_come_with_what_they_need_and_their_other_names() {
        let kernel = Kernel::find(Backend::Uml).unwrap();
        let archive = bundle(&kernel, &LATER, &[]).unwrap().unwrap();
        let files = unpacked(&archive);
        for name in [
            "dm-crypt.ko",
            "encrypted-keys.ko",
            "raid456.ko",
            "async_xor.ko",
            "xts.ko",
            "loop.ko",
            "dm-verity.ko",
            "adiantum.ko",
            "libchacha.ko",
        ] {
            assert!(files.contains_key(&format!("lib/modules/{name}")), "{name}");
        }
        let text = |name: &str| String::from_utf8(files[&format!("lib/modules/{name}")].clone()).unwrap();
        assert!(text("modules.alias").contains("alias md-level-5 raid456"));
        assert!(text("modules.dep").contains("kernel/drivers/md/dm-crypt.ko: kernel/drivers/md/dm-mod.ko"));
    }

    /// As depmod(8) writes them of a tree whose modules are compressed in every way that is known, one after another.
    fn compressed(tables: &Tables, names: &[&str], to: &Path) -> Tables {
        let mut needs = tables.needs.clone();
        let paths = tables.lines_of(names).into_iter().filter_map(|line| paths_of(line).next());
        for (path, ending) in paths.zip(["", ".xz", ".zst"].into_iter().cycle()) {
            let file = to.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::copy(tables.directory.join(path), &file).unwrap();
            match ending {
                ".xz" => assert!(Command::new("xz").arg("--check=crc32").arg(&file).status().unwrap().success()),
                ".zst" => {
                    let content = zstd::encode_all(&fs::read(&file).unwrap()[..], 1).unwrap();
                    fs::write(to.join(format!("{path}.zst")), content).unwrap();
                    fs::remove_file(file).unwrap();
                }
                _ => {}
            }
            needs = needs.replace(path, &format!("{path}{ending}"));
        }
        Tables { directory: to.to_owned(), needs, aliases: tables.aliases.clone() }
    }

    #[test]
    fn modules_that_are_compressed_come_as_those_that_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let plain = Tables::read(&Kernel::find(Backend::Uml).unwrap()).unwrap().unwrap();
        let names = ["raid456", "dm_crypt", "fs-iso9660", "loop", "vfat"];
        let compressed = compressed(&plain, &names, directory.path());
        let files = |tables: &Tables, names: &[&str]| {
            let before = tables.lines_of(&names[..1]);
            tables.files(&tables.lines_of(names), &before).unwrap().into_iter().collect::<HashMap<_, _>>()
        };
        let expected = files(&plain, &names);
        assert!(expected.contains_key("dm-crypt.ko") && !expected.contains_key("raid456.ko"), "{:?}", expected.keys());
        let lines = |table: &[u8]| -> BTreeSet<String> {
            String::from_utf8(table.to_vec()).unwrap().lines().map(str::to_owned).collect()
        };
        let mut found = files(&compressed, &names);
        let table = found.insert("modules.dep".to_owned(), expected["modules.dep"].clone()).unwrap();
        assert_eq!(lines(&table), lines(&expected["modules.dep"]));
        assert!(found == expected);
    }
}
