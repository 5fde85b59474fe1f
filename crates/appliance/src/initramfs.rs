//! What the appliance boots: its agent and the kernel's modules.

use crate::kernel::Kernel;
use crate::kernel_modules;
use blockyard_linux_guest::Archive;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

/// Writes the archive, uncompressed: unpacking takes longer than reading. It has the modules that every appliance has,
/// and those that are called `modules`.
pub(crate) fn write(file: File, kernel: &Kernel, modules: &[&str], agent: &[u8]) -> io::Result<()> {
    let mut archive = Archive::new(BufWriter::with_capacity(256 << 10, file));
    for directory in ["/dev", "/proc", "/sys", "/image"] {
        archive.directory(Path::new(directory))?;
    }
    archive.character_device(Path::new("/dev/console"), 5, 1)?;
    archive.file(Path::new("/init"), agent)?;
    for (name, content) in kernel_modules::initial(kernel, modules)? {
        archive.file(&Path::new("/lib/modules").join(name), &content)?;
    }
    archive.finish().map(drop)
}
