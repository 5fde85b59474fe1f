//! `cargo xtask lab-appliances`: what the appliance of `blockyard image` costs on real KVM, beside User-Mode Linux in
//! the same machine.
//!
//! The lab is an emulated machine: its figures are worth something only beside each other, from one run.

use super::{distribution, initramfs, kernel, machine};
use crate::build::Workspace;
use anyhow::{Context, bail};
use blockyard_linux_guest::{Archive, DebianKernel};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

/// In the lab: what is measured.
const BLOCKYARD: &str = "/usr/bin/blockyard";
/// User-Mode Linux, as its package has it.
const USER_MODE_LINUX: &str = "/usr/bin/linux.uml";
const ITS_MODULES: &str = "/usr/lib/uml/modules";
/// Programs that `bench upload` executes besides those of the appliance.
const PROGRAMS: [&str; 2] = ["/usr/bin/gzip", "/bin/cp"];

/// What is run. The kernel's own clock says when its init began: after that, the agent does what it was asked.
const MEASURED: &str = "\
    blockyard bench startup --directory /tmp --runs 5\n\
    blockyard bench upload --directory /tmp --quick\n\
    blockyard image create --quiet --table mbr --part rest,fs=ext4 /tmp/disk.img 256M\n\
    for backend in uml kvm; do\n\
    echo \"the kernel of the appliance on $backend:\"\n\
    blockyard image ls --backend $backend --verbose /tmp/disk.img / 2>&1 |\n\
    grep -E 'Linux version|Run /init|Freeing unused kernel image'\n\
    done\n";

/// Measures with a `blockyard` that is built now, or this one, and prints what it says.
///
/// # Errors
/// When something cannot be built, fetched or measured.
pub(crate) fn appliances(binary: Option<&Path>) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    let binary = workspace.binary_to_measure(binary)?;
    let directory = workspace.target_directory.join("lab");
    let kernel = kernel::fetch(&directory)?;
    let archive = directory.join("appliances.cpio");
    pack(&archive, &kernel, &binary).context("cannot pack the lab's initramfs")?;
    match machine::run(&kernel.image, &archive, &machine::print_line)? {
        0 => Ok(()),
        code => bail!("the lab measured nothing (exit code {code})"),
    }
}

fn pack(path: &Path, kernel: &DebianKernel, binary: &Path) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    initramfs::add_base(&mut archive, kernel)?;
    distribution::pack(&mut archive, kernel, distribution::Modules::AsTheyAre)?;
    archive.file(Path::new(BLOCKYARD), &fs::read(binary).context("cannot read the binary that is measured")?)?;
    distribution::pack_tree(&mut archive, Path::new(ITS_MODULES), Path::new(ITS_MODULES))?;
    for program in PROGRAMS.iter().chain(&[USER_MODE_LINUX]).map(Path::new) {
        archive.file(program, &initramfs::stripped(program)?)?;
        for library in initramfs::libraries(program)? {
            archive.file(&library, &initramfs::stripped(&library)?)?;
        }
    }
    let (begin, end) = (machine::BEGIN, machine::END);
    let prelude = initramfs::prelude(kernel)?;
    let script = format!(
        "{prelude}echo {begin}\n\
         while sleep 60; do echo 'the lab measures'; done &\n\
         (set -e\n{MEASURED}) 2>&1 </dev/null\n\
         echo {end}$?\npoweroff -f\n"
    );
    initramfs::add_script(&mut archive, &script)?;
    archive.finish()?;
    Ok(())
}
