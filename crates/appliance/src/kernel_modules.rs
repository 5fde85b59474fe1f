//! Modules of the kernel's that an appliance gets when an image has arrays, logical volumes or encrypted volumes.

use crate::kernel::Kernel;
use crate::tools::ToolError;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// Those that the kernel may want; it loads what it uses. What they need comes along.
const WANTED: [&str; 32] = [
    "dm-mod",
    "dm-crypt",
    "dm-snapshot",
    "dm-mirror",
    "dm-raid",
    "dm-thin-pool",
    "dm-cache",
    "dm-cache-smq",
    "dm-writecache",
    "dm-integrity",
    "dm-zero",
    "md-mod",
    "linear",
    "raid0",
    "raid1",
    "raid10",
    "raid456",
    "xts",
    "cbc",
    "ctr",
    "ecb",
    "essiv",
    "lrw",
    "cts",
    "hmac",
    "sha512_generic",
    "rmd160",
    "wp512",
    "serpent_generic",
    "twofish_generic",
    "camellia_generic",
    "algif_skcipher",
];

/// Where the agent looks for modules.
const DIRECTORY: &str = "lib/modules";

/// An archive of them for the appliance's root, with the agent's tables: which needs which, and what else they are called.
pub(crate) fn bundle(kernel: &Kernel) -> Result<Vec<u8>, ToolError> {
    let unreadable = |path: &Path, error| ToolError::Unreadable { path: path.to_owned(), error };
    let Some(modules) = kernel.modules() else {
        // All of them are built in.
        return tar::Builder::new(Vec::new()).into_inner().map_err(|error| unreadable(&kernel.program, error));
    };
    let tables = modules.parent().unwrap_or(modules);
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| unreadable(path, error));
    let needs = read(&tables.join("modules.dep"))?;
    let aliases = read(&tables.join("modules.alias"))?;
    let lines: Vec<_> = needs.lines().filter(|line| WANTED.contains(&name_of(line))).collect();
    let paths = lines.iter().flat_map(|line| line.split([':', ' '])).filter(|path| !path.is_empty());
    // The same path is needed by many.
    let paths: BTreeSet<_> = paths.collect();
    let names: BTreeSet<_> = paths.iter().map(|path| name_of(path).replace('-', "_")).collect();
    let known = |line: &&str| line.rsplit(' ').next().is_some_and(|module| names.contains(module));
    let aliases: Vec<_> = aliases.lines().filter(known).collect();
    let pack = || {
        let mut archive = tar::Builder::new(Vec::new());
        for path in &paths {
            let name = path.rsplit('/').next().unwrap_or(path);
            append(&mut archive, name, &fs::read(tables.join(path))?)?;
        }
        append(&mut archive, "modules.dep", lines.join("\n").as_bytes())?;
        append(&mut archive, "modules.alias", aliases.join("\n").as_bytes())?;
        archive.into_inner()
    };
    pack().map_err(|error| unreadable(modules, error))
}

/// Of the module whose path a line begins with.
fn name_of(line: &str) -> &str {
    let path = line.split(':').next().unwrap_or(line);
    path.rsplit('/').next().unwrap_or(path).trim_end_matches(".ko")
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
    use std::collections::HashMap;
    use std::io::Read;

    #[test]
    fn modules_come_with_what_they_need_and_their_other_names() {
        let archive = bundle(&Kernel::find().unwrap()).unwrap();
        let mut archive = tar::Archive::new(&archive[..]);
        let files: HashMap<_, _> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().to_str().unwrap().to_owned(), content)
            })
            .collect();
        for name in ["dm-crypt.ko", "encrypted-keys.ko", "raid456.ko", "async_xor.ko", "xts.ko"] {
            assert!(files.contains_key(&format!("lib/modules/{name}")), "{name}");
        }
        let text = |name: &str| String::from_utf8(files[&format!("lib/modules/{name}")].clone()).unwrap();
        assert!(text("modules.alias").contains("alias md-level-5 raid456"));
        assert!(text("modules.dep").contains("kernel/drivers/md/dm-crypt.ko: kernel/drivers/md/dm-mod.ko"));
    }
}
