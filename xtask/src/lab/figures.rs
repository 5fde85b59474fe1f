//! `cargo xtask lab-figures`: what a Linux guest and its disks cost on real KVM, beside QEMU on the same one.
//!
//! The lab is an emulated machine: its figures are worth something only beside each other, from one run. Both programs
//! boot the same kernel and initramfs with the same memory, in turn.

use super::{initramfs, kernel, machine};
use crate::build::Workspace;
use crate::{cargo, run};
use anyhow::{Context, bail};
use blockyard_linux_guest::{Archive, BUSYBOX, DebianKernel, write_initramfs};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

/// Each is measured so often; medians count.
const ROUNDS: usize = 5;
/// Begins a line of the lab's that has figures: what, who, values.
const FIGURE: &str = "FIGURE";
/// In the lab: what is measured.
const BLOCKYARD: &str = "/blockyard";
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// The firmware of its smallest machine, and what loads a kernel there (packages seabios and qemu-system-data).
const QEMU_FIRMWARE: [&str; 2] = ["/usr/share/seabios/bios-microvm.bin", "/usr/share/qemu/linuxboot_dma.bin"];
const FIO: &str = "/usr/bin/fio";
/// Of the disk that is read, which is larger than what the guest's device has in flight and smaller than its memory.
const DISK_MIB: u32 = 256;
const MEMORY_MIB: u32 = 512;

/// What fio does in the guest: its name here, and its words.
const JOBS: [(&str, &str); 2] =
    [("4 KiB reads, 64 in flight", "--rw=randread --bs=4k"), ("1 MiB reads, 64 in flight", "--rw=read --bs=1m")];

/// Measures all of it with a `blockyard` that is built now, or this one, and prints a table.
///
/// # Errors
/// When something cannot be built, fetched or measured.
pub(crate) fn figures(binary: Option<&Path>) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    let binary = match binary {
        Some(binary) => binary.to_owned(),
        None => {
            run(cargo().args(["build", "--release", "--package", "blockyard"]))?;
            workspace.target_directory.join("x86_64-unknown-linux-gnu/release/blockyard")
        }
    };
    let directory = workspace.target_directory.join("lab");
    let (kernel, guests) = (kernel::fetch(&directory)?, kernel::of_cloud_guests(&directory)?);
    let archive = directory.join("figures.cpio");
    pack(&archive, &directory, &kernel, &guests, &binary).context("cannot pack the lab's initramfs")?;
    let said = RefCell::new(Vec::new());
    let code = machine::run(&kernel.image, &archive, &|line| {
        machine::print_line(line);
        said.borrow_mut().push(line.to_owned());
    })?;
    if code != 0 {
        bail!("the lab measured nothing (exit code {code})");
    }
    print!("{}", table(&said.into_inner())?);
    Ok(())
}

fn pack(
    path: &Path,
    directory: &Path,
    kernel: &DebianKernel,
    guests: &DebianKernel,
    binary: &Path,
) -> anyhow::Result<()> {
    let initrds = ["boot", "jobs"].map(|name| (name, directory.join(format!("figures-{name}.cpio"))));
    write_initramfs(&initrds[0].1, &[], "echo INIT-IS-UP")?;
    pack_jobs(&initrds[1].1, guests)?;
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    initramfs::add_base(&mut archive, kernel)?;
    archive.file(Path::new(BLOCKYARD), &fs::read(binary).context("cannot read the release binary")?)?;
    for name in [QEMU].iter().chain(&QEMU_FIRMWARE) {
        archive.file(Path::new(name), &fs::read(name).with_context(|| format!("cannot read {name}"))?)?;
    }
    for library in initramfs::libraries(Path::new(QEMU))? {
        archive.file(&library, &initramfs::stripped(&library)?)?;
    }
    archive.file(Path::new("/guest/vmlinuz"), &fs::read(&guests.image).context("cannot read the guests' kernel")?)?;
    for (name, initrd) in &initrds {
        let content = fs::read(initrd).context("cannot read the guests' initramfs")?;
        archive.file(&Path::new("/guest").join(name), &content)?;
    }
    archive.file(Path::new("/init"), script(kernel)?.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// A guest that has fio do its jobs, and powers off.
fn pack_jobs(path: &Path, guests: &DebianKernel) -> anyhow::Result<()> {
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    for directory in ["/dev", "/proc", "/sys", "/tmp", "/sbin", "/usr/bin", "/usr/sbin"] {
        archive.directory(Path::new(directory))?;
    }
    archive.character_device(Path::new("/dev/console"), 5, 1)?;
    archive
        .file(Path::new(BUSYBOX), &fs::read(BUSYBOX).context("cannot read /bin/busybox: run `cargo xtask setup`")?)?;
    archive.file(Path::new(FIO), &initramfs::stripped(Path::new(FIO))?)?;
    for library in initramfs::libraries(Path::new(FIO))? {
        archive.file(&library, &initramfs::stripped(&library)?)?;
    }
    let mut init = String::from(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         mount -t devtmpfs dev /dev\n",
    );
    for (index, module) in guests.modules.iter().enumerate() {
        let name = format!("/lib/modules/{index:02}-{}.ko", module.name);
        archive.file(Path::new(&name), &module.content)?;
        writeln!(init, "insmod {name}")?;
    }
    for (index, (_, words)) in JOBS.iter().enumerate() {
        writeln!(
            init,
            "sync; echo JOB-BEGINS\n\
             {FIO} --name=job --filename=/dev/vda --ioengine=libaio --direct=1 --iodepth=64 {words} --runtime=5 \
             --time_based --output-format=terse --terse-version=3 | cut -d';' -f7,8,60 | sed 's/^/JOB-ENDS;{index};/'"
        )?;
    }
    init += "poweroff -f\n";
    archive.file(Path::new("/init"), init.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// The lab's PID 1. Exits are those that KVM counts for the VM that there is.
fn script(kernel: &DebianKernel) -> anyhow::Result<String> {
    let mut script = initramfs::prelude(kernel)?;
    let (begin, end) = (machine::BEGIN, machine::END);
    write!(
        script,
        "mount -t debugfs debug /sys/kernel/debug\n\
         truncate -s {DISK_MIB}M /disk\n\
         dd if=/dev/urandom of=/disk bs=1M count={DISK_MIB} conv=notrunc 2>/dev/null\n\
         now() {{ read up rest </proc/uptime; echo $up; }}\n\
         exits() {{ cat /sys/kernel/debug/kvm/exits; }}\n\
         watch() {{\n\
         began=$(now)\n\
         while read -r line; do case $line in\n\
         *INIT-IS-UP*) echo {FIGURE} boot $1 $began $(now) $(exits) ;;\n\
         *JOB-BEGINS*) before=$(exits) ;;\n\
         *JOB-ENDS*) echo {FIGURE} job $1 ${{line#*JOB-ENDS}} $before $(exits) ;;\n\
         *) echo \"$1: $line\" ;;\n\
         esac; done; }}\n\
         words='console=ttyS0 quiet panic=-1 reboot=t'\n\
         ours() {{ {BLOCKYARD} run --backend kvm --memory {MEMORY_MIB}M --kernel /guest/vmlinuz --initrd /guest/$1 \
         --append \"$words\" --disk /disk,engine=uring </dev/null 2>&1 | watch blockyard; }}\n\
         qemu() {{ {QEMU} -M microvm,pit=off,pic=off,rtc=off,isa-serial=on -accel kvm -cpu host \
         -m {MEMORY_MIB} -smp 1 -nodefaults -no-user-config -nographic -serial stdio -no-reboot -kernel /guest/vmlinuz \
         -initrd /guest/$1 -append \"$words\" -object iothread,id=io \
         -blockdev driver=file,filename=/disk,aio=io_uring,node-name=disk \
         -device virtio-blk-device,drive=disk,iothread=io,num-queues=1 </dev/null 2>&1 | watch qemu; }}\n\
         echo {begin}\n"
    )?;
    for _ in 0..ROUNDS {
        script += "ours boot; qemu boot\n";
    }
    for _ in 0..ROUNDS {
        script += "ours jobs; qemu jobs\n";
    }
    writeln!(script, "echo {end}0\npoweroff -f")?;
    Ok(script)
}

/// Medians by figure and program, and their ratio.
fn table(lines: &[String]) -> anyhow::Result<String> {
    let mut measured: BTreeMap<(String, &str), Vec<f64>> = BTreeMap::new();
    for line in lines {
        let words: Vec<_> = line.split_ascii_whitespace().skip_while(|word| *word != FIGURE).collect();
        let number = |index: usize| words[index].parse::<f64>().with_context(|| format!("no number in {line:?}"));
        let mut add = |what: String, who: &str, value: f64| {
            let who = if who == "qemu" { "qemu" } else { "blockyard" };
            measured.entry((what, who)).or_default().push(value);
        };
        match words[..] {
            [_, "boot", who, ..] if words.len() == 6 => {
                add("seconds to init".into(), who, number(4)? - number(3)?);
                add("exits to init".into(), who, number(5)?);
            }
            [_, "job", who, job, ..] if words.len() == 6 => {
                let fields: Vec<_> = job.trim_matches(';').split(';').collect();
                let [index, kib_a_second, iops, ..] = fields[..] else { bail!("fio said {line:?}") };
                let (name, _) = JOBS.get(index.parse::<usize>()?).with_context(|| format!("no job in {line:?}"))?;
                let (kib_a_second, iops) = (kib_a_second.parse::<f64>()?, iops.parse::<f64>()?);
                add(format!("{name}: MB/s"), who, kib_a_second * 1.024e-3);
                add(format!("{name}: exits a request"), who, (number(5)? - number(4)?) / (iops * 5.0));
            }
            _ => {}
        }
    }
    let mut text = format!("{:<44} {:>12} {:>12} {:>8}\n", "median", "blockyard", "qemu", "ratio");
    let names: std::collections::BTreeSet<_> = measured.keys().map(|(what, _)| what.clone()).collect();
    for name in names {
        let median = |who| median(measured.get(&(name.clone(), who)).cloned().unwrap_or_default());
        if let (Some(ours), Some(theirs)) = (median("blockyard"), median("qemu")) {
            writeln!(text, "{name:<44} {ours:>12.3} {theirs:>12.3} {:>8.3}", ours / theirs)?;
        }
    }
    Ok(text)
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_stand_beside_each_other() {
        let lines = [
            "FIGURE boot blockyard 1.00 3.00 1000",
            "FIGURE boot qemu 1.00 5.00 4000",
            "FIGURE boot blockyard 1.00 2.00 1002",
            "FIGURE boot blockyard 1.00 9.00 1001",
            "[ 1.0] FIGURE job qemu ;0;4000;1000;x 10 5010",
            "FIGURE job blockyard ;0;8000;2000;x 10 1010",
        ];
        let table = table(&lines.map(str::to_owned)).unwrap();
        let row = |name: &str| {
            table.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(row("seconds to init")[3..], ["2.000", "4.000", "0.500"]);
        assert_eq!(row("exits to init")[3..], ["1001.000", "4000.000", "0.250"]);
        assert_eq!(row("4 KiB reads, 64 in flight: exits")[9..], ["0.100", "1.000", "0.100"]);
    }
}
