//! User spaces of busybox and one script.

use crate::Archive;
use anyhow::Context;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// From the Debian package busybox-static: the user space of these guests.
pub const BUSYBOX: &str = "/bin/busybox";

/// Writes an initramfs to `path` whose init mounts the usual file systems, loads `modules` (name and content, in this
/// order), runs the lines of `script`, and powers off.
///
/// # Errors
/// When busybox is not installed, or the archive cannot be written.
pub fn write_initramfs(path: &Path, modules: &[(&str, &[u8])], script: &str) -> anyhow::Result<()> {
    write_initramfs_with(path, modules, &[], script)
}

/// The same with files, by their absolute paths. What is called [`BUSYBOX`] among them takes the place of this
/// machine's, for kernels that cannot execute that.
///
/// # Errors
/// As [`write_initramfs`].
pub fn write_initramfs_with(
    path: &Path,
    modules: &[(&str, &[u8])],
    files: &[(&Path, &[u8])],
    script: &str,
) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    for directory in ["/dev", "/proc", "/sys", "/tmp", "/mnt", "/sbin", "/usr/bin", "/usr/sbin"] {
        archive.directory(Path::new(directory))?;
    }
    archive.character_device(Path::new("/dev/console"), 5, 1)?;
    if files.iter().all(|(file, _)| *file != Path::new(BUSYBOX)) {
        let busybox = fs::read(BUSYBOX).context("cannot read /bin/busybox: run `apt-get install busybox-static`")?;
        archive.file(Path::new(BUSYBOX), &busybox)?;
    }
    for (file, content) in files {
        archive.file(file, content)?;
    }
    let mut init = String::from(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         mount -t devtmpfs dev /dev\n",
    );
    for (name, content) in modules {
        archive.file(&Path::new("/lib/modules").join(name), content)?;
        init += &format!("insmod /lib/modules/{name} || echo 'cannot load {name}'\n");
    }
    init += script;
    init += "\npoweroff -f\n";
    archive.file(Path::new("/init"), init.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// Makes `root` the root directory of a system whose init is the lines of `script`.
///
/// # Errors
/// When busybox is not installed, or a file cannot be made.
pub fn make_root(root: &Path, script: &str) -> anyhow::Result<()> {
    for directory in ["bin", "sbin", "etc", "dev", "proc", "sys", "run", "mnt"] {
        let directory = root.join(directory);
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).context("cannot copy busybox: run `apt-get install busybox-static`")?;
    symlink("busybox", root.join("bin/sh")).context("cannot make bin/sh")?;
    let init = root.join("sbin/init");
    let written = fs::write(&init, format!("#!/bin/busybox sh\nPATH=/bin\nbusybox --install -s /bin\n{script}\n"));
    let made = written.and_then(|()| fs::set_permissions(&init, fs::Permissions::from_mode(0o755)));
    made.with_context(|| format!("cannot make {}", init.display()))
}
