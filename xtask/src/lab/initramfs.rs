//! What the lab's kernel finds: busybox, KVM's modules, the test executables with what they need, a kernel for their
//! guests, and an init that runs them.

use super::kernel::GuestKernel;
use super::{Load, Selection, distribution, machine};
use crate::output;
use anyhow::{Context, bail};
use blockyard_linux_guest::{Archive, BUSYBOX, DebianKernel, Module};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the kernels for guests lie, with their modules; `BLOCKYARD_LAB_GUEST` says it to the tests.
const GUEST: &str = "/guest";

/// Programs that tests run in the lab, or give to their guests.
const TOOLS: [&str; 5] = ["/sbin/debugfs", "/sbin/e2fsck", "/sbin/mke2fs", "/usr/bin/lz4", "/usr/bin/make"];

/// Tests with this in their names have guests whose kernels page as those of 32 bits do, and run without nested paging.
/// With it, QEMU walks such a guest's tables itself, and marks entries of the first one as accessed, where no processor
/// does; KVM finds that bit in one that it looks at, and refuses what the guest does (#GP at a change of CR4).
const WITHOUT_NESTED_PAGING: &str = "of_32_bits";
/// Which module has to be told.
const NESTED_PAGING_MODULE: &str = "kvm_amd";

/// Writes the archive to `path`. Always anew: it takes less time than finding out whether it must be.
///
/// # Errors
/// When a file that goes in cannot be read, or the archive cannot be written.
pub(super) fn pack(path: &Path, kernel: &DebianKernel, guests: &[GuestKernel], load: &Load) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    add_base(&mut archive, kernel)?;
    add_script(&mut archive, &script(kernel, load)?)?;
    for GuestKernel { place, kernel, busybox } in guests {
        let guest = Path::new(GUEST).join(place);
        archive.file(&guest.join("vmlinuz"), &fs::read(&kernel.image).context("cannot read the guests' kernel")?)?;
        for (index, module) in kernel.modules.iter().enumerate() {
            // By name, they are in the order in which they are loaded.
            archive.file(&guest.join(format!("modules/{index:02}-{}.ko", module.name)), &module.content)?;
        }
        if let Some(busybox) = busybox {
            let content = fs::read(busybox).with_context(|| format!("cannot read {}", busybox.display()))?;
            archive.file(&guest.join("busybox"), &content)?;
        }
    }
    if load.boots_appliances() {
        distribution::pack(&mut archive, kernel, distribution::Modules::Compressed)?;
    }
    for file in host_files(load)? {
        archive.file(&file, &stripped(&file)?)?;
    }
    for directory in load.selections.iter().map(|selection| &selection.executable.package_directory) {
        archive.directory(directory)?;
    }
    archive.finish()?;
    Ok(())
}

/// Adds what every machine of the lab's has: directories, busybox, and KVM's modules.
///
/// # Errors
/// When busybox is not installed, or the archive cannot be written.
pub(super) fn add_base<W: Write>(archive: &mut Archive<W>, kernel: &DebianKernel) -> anyhow::Result<()> {
    let busybox = fs::read(BUSYBOX).context("cannot read /bin/busybox: run `cargo xtask setup`")?;
    for directory in
        ["/dev", "/proc", "/run", "/sys", "/tmp", "/var/tmp", "/root", "/etc", "/sbin", "/usr/bin", "/usr/sbin"]
    {
        archive.directory(Path::new(directory))?;
    }
    archive.character_device(Path::new("/dev/console"), 5, 1)?;
    archive.file(Path::new(BUSYBOX), &busybox)?;
    archive.file(Path::new("/etc/passwd"), b"root:x:0:0:root:/root:/bin/sh\n")?;
    archive.file(Path::new("/etc/group"), b"root:x:0:\n")?;
    for module in &kernel.modules {
        archive.file(&module_in_lab(module), &module.content)?;
    }
    Ok(())
}

/// Files that lie in the lab where they lie here: executables, guests, shared libraries and the tests' data.
fn host_files(load: &Load) -> anyhow::Result<BTreeSet<PathBuf>> {
    let tests = load.selections.iter().map(|selection| &selection.executable.executable);
    let mut files: BTreeSet<_> = load.hostile_guests.iter().cloned().collect();
    let tools = TOOLS.map(PathBuf::from);
    for executable in tests.chain(&load.binaries).chain(&tools) {
        files.insert(executable.clone());
        files.extend(libraries(executable)?);
    }
    for directory in load.selections.iter().map(|selection| &selection.executable.package_directory) {
        add_tree(&directory.join("tests/data"), &mut files)?;
    }
    Ok(files)
}

/// Shared libraries and the loader that an executable needs, by their absolute paths.
pub(super) fn libraries(executable: &Path) -> anyhow::Result<Vec<PathBuf>> {
    // Fails for what is not dynamically linked: it needs none.
    let Ok(list) = output(Command::new("ldd").arg(executable)) else { return Ok(Vec::new()) };
    if let Some(line) = list.lines().find(|line| line.contains("not found")) {
        bail!("{} needs a library that is missing: {}", executable.display(), line.trim());
    }
    Ok(list.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect())
}

fn add_tree(directory: &Path, files: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", directory.display()))?.path();
        if path.is_dir() {
            add_tree(&path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

/// Content of a file, without the debugging information that makes test executables large. What `objcopy` does not
/// know goes as it is.
pub(super) fn stripped(file: &Path) -> anyhow::Result<Vec<u8>> {
    let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    if !content.starts_with(b"\x7fELF") {
        return Ok(content);
    }
    let output = tempfile::NamedTempFile::new().context("cannot create a temporary file")?;
    let status = Command::new("objcopy").arg("--strip-debug").arg(file).arg(output.path()).status();
    match status {
        Ok(status) if status.success() => fs::read(output.path()).context("cannot read what objcopy wrote"),
        _ => Ok(content),
    }
}

fn module_in_lab(module: &Module) -> PathBuf {
    Path::new("/lib/modules").join(&module.name).with_extension("ko")
}

/// PID 1. The kernel's own root directory cannot be exchanged for another (pivot_root(2)), as processes do that shut
/// themselves in: so its files are mounted once more, over it.
const INIT: &str = "#!/bin/busybox sh\n\
    /bin/busybox mkdir /root-of-all\n\
    /bin/busybox mount -o bind / /root-of-all\n\
    cd /root-of-all\n\
    /bin/busybox mount -o move . /\n\
    exec /bin/busybox chroot . /bin/busybox sh /tests\n";
/// What it becomes.
const SCRIPT: &str = "/tests";

/// Adds what PID 1 becomes: a script of the shell's.
///
/// # Errors
/// When the archive cannot be written.
pub(super) fn add_script<W: Write>(archive: &mut Archive<W>, script: &str) -> anyhow::Result<()> {
    archive.file(Path::new("/init"), INIT.as_bytes())?;
    archive.file(Path::new(SCRIPT), script.as_bytes())?;
    Ok(())
}

/// What the script that is PID 1 begins with: the usual file systems, KVM, and huge pages for guests whose memory other
/// processes reach, as others have them by themselves. A page that a guest touches for the first time is an exit,
/// which the emulator is slow at; 20,000 small ones were nine tenths of the exits of a boot.
///
/// Nothing is mounted on /tmp: the root is a tmpfs itself, and what was built may lie there.
pub(super) fn prelude(kernel: &DebianKernel) -> anyhow::Result<String> {
    let mut script = format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root RUST_BACKTRACE=1 BLOCKYARD_TEST_KVM=1 BLOCKYARD_LAB=1 BLOCKYARD_LAB_GUEST={GUEST}\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         mount -t devtmpfs dev /dev\n\
         mkdir -p /dev/shm /dev/pts\n\
         mount -t tmpfs tmp /dev/shm\n\
         mount -t devpts pts /dev/pts\n\
         ln -s /proc/self/fd /dev/fd\n\
         stty -echo\n\
         echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled\n",
    );
    for module in &kernel.modules {
        writeln!(script, "insmod {} || echo 'cannot load a module of KVM'", quoted(&module_in_lab(module))?)?;
    }
    Ok(script)
}

/// A shell script, which runs each executable and says its worst exit code.
fn script(kernel: &DebianKernel, load: &Load) -> anyhow::Result<String> {
    let mut script = prelude(kernel)?;
    if let Some(directory) = load.hostile_guests.first().and_then(|guest| guest.parent()) {
        writeln!(script, "export BLOCKYARD_HOSTILE_GUESTS={}", quoted(directory)?)?;
    }
    writeln!(script, "worst=0\necho {}", machine::BEGIN)?;
    let (without, with): (Vec<_>, Vec<_>) = load.selections.iter().map(Selection::split_by_paging).unzip();
    run_each(&mut script, &with)?;
    if without.iter().any(|selection| !selection.tests.is_empty()) {
        let module = kernel.modules.iter().find(|module| module.name == NESTED_PAGING_MODULE);
        let file = quoted(&module_in_lab(module.context("no module of KVM's has nested paging")?))?;
        writeln!(script, "rmmod {NESTED_PAGING_MODULE} && insmod {file} npt=0 || echo 'cannot load KVM again'")?;
        run_each(&mut script, &without)?;
    }
    // What the kernel has to say may explain a failure.
    writeln!(script, "[ $worst = 0 ] || dmesg | tail -n 30\necho {}$worst\npoweroff -f", machine::END)?;
    Ok(script)
}

impl Selection {
    /// Its tests without nested paging, and those with it.
    fn split_by_paging(&self) -> (Self, Self) {
        let part = |tests: Vec<String>| Self { executable: self.executable.clone(), tests };
        let (without, with) = self.tests.iter().cloned().partition(|test| test.contains(WITHOUT_NESTED_PAGING));
        (part(without), part(with))
    }
}

/// Adds lines that run the tests, as far as there are any, and keep the worst exit code.
fn run_each(script: &mut String, selections: &[Selection]) -> anyhow::Result<()> {
    for Selection { executable, tests } in selections.iter().filter(|selection| !selection.tests.is_empty()) {
        let tests: Vec<_> = tests.iter().map(|test| format!("'{test}'")).collect();
        writeln!(script, "echo '     Running in the lab: {}'", executable.name)?;
        writeln!(script, "cd {}", quoted(&executable.package_directory)?)?;
        writeln!(script, "{} --exact {} </dev/null 2>&1", quoted(&executable.executable)?, tests.join(" "))?;
        writeln!(script, "code=$?; [ $code -gt $worst ] && worst=$code")?;
    }
    Ok(())
}

/// A path as a word of the shell.
fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
    if text.contains(['\'', '\n']) {
        bail!("{text} cannot be quoted");
    }
    Ok(format!("'{text}'"))
}
