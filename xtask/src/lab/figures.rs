//! `cargo xtask lab-figures`: what a Linux guest and its disks cost on real KVM, beside QEMU on the same one.
//!
//! The lab is an emulated machine: its figures are worth something only beside each other, from one run. Both programs
//! boot the same kernel and initramfs with the same memory and the same file as their disk, in turn.

use super::kernel::GuestKernel;
use super::{initramfs, kernel, machine};
use crate::build::Workspace;
use anyhow::{Context, bail};
use blockyard_linux_guest::{Archive, BUSYBOX, DebianKernel, write_initramfs};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

/// Each is measured so often; medians count.
const ROUNDS: usize = 3;
/// Begins a line of the lab's that has figures: what, who, values.
const FIGURE: &str = "FIGURE";
/// In the lab: what is measured.
const BLOCKYARD: &str = "/blockyard";
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// The firmware of its machines, and what they load besides (packages seabios and qemu-system-data).
const QEMU_FILES: [&str; 4] = [
    "/usr/share/seabios/bios-microvm.bin",
    "/usr/share/seabios/bios-256k.bin",
    "/usr/share/qemu/linuxboot_dma.bin",
    "/usr/share/qemu/kvmvapic.bin",
];
const FIO: &str = "/usr/bin/fio";
/// Of the disk that is read, which is larger than what the guest's device has in flight and smaller than its memory.
const DISK_MIB: u32 = 256;
const MEMORY_MIB: u32 = 512;

/// A way of having a disk, in both programs.
#[derive(Debug)]
struct Leg {
    name: &'static str,
    /// For `--bus`.
    bus: &'static str,
    /// QEMU's machine, and the device in it.
    machine: &'static str,
    device: &'static str,
    /// The disk in the guest.
    disk: &'static str,
    /// Where its kernel is among [`kernel::of_guests`].
    kernel: usize,
    /// Whether booting is measured: QEMU's smallest machine is what ours is to be held against.
    boots: bool,
    /// Whether our other engines are measured.
    engines: bool,
}

const LEGS: [Leg; 3] = [
    Leg {
        name: "virtio-mmio",
        bus: "virtio-mmio",
        machine: "microvm,pit=off,pic=off,rtc=off,isa-serial=on",
        device: "virtio-blk-device,drive=disk,iothread=io,num-queues=1",
        disk: "/dev/vda",
        kernel: 0,
        boots: true,
        engines: false,
    },
    Leg {
        name: "virtio-pci",
        bus: "virtio",
        machine: "q35",
        device: "virtio-blk-pci,drive=disk,iothread=io,num-queues=1",
        disk: "/dev/vda",
        kernel: 0,
        boots: false,
        engines: true,
    },
    Leg {
        name: "ahci",
        bus: "ahci",
        machine: "q35",
        device: "ide-hd,drive=disk,bus=ide.0",
        disk: "/dev/sda",
        kernel: 1,
        boots: false,
        engines: true,
    },
];

/// What fio does in the guest: its name here, and its words.
const JOBS: [(&str, &str); 2] =
    [("4 KiB reads, 64 in flight", "--rw=randread --bs=4k"), ("1 MiB reads, 64 in flight", "--rw=read --bs=1m")];

/// Measures all of it with a `blockyard` that is built now, or this one, and prints a table.
///
/// # Errors
/// When something cannot be built, fetched or measured.
pub(crate) fn figures(binary: Option<&Path>, bus: &str) -> anyhow::Result<()> {
    let workspace = Workspace::load()?;
    let binary = workspace.binary_to_measure(binary)?;
    let directory = workspace.target_directory.join("lab");
    let kernel = kernel::fetch(&directory)?;
    let guests = kernel::of_guests(&directory)?;
    let archive = directory.join("figures.cpio");
    let mut tables = String::new();
    let legs: Vec<_> = LEGS.iter().filter(|leg| leg.name.contains(bus)).collect();
    if legs.is_empty() {
        bail!("no bus is called {bus:?}: there are {}", LEGS.map(|leg| leg.name).join(", "));
    }
    for leg in legs {
        pack(&archive, &directory, &kernel, &guests, &binary, leg).context("cannot pack the lab's initramfs")?;
        let said = RefCell::new(Vec::new());
        let code = machine::run(&kernel.image, &archive, &|line| {
            machine::print_line(line);
            said.borrow_mut().push(line.to_owned());
        })?;
        if code != 0 {
            bail!("the lab measured nothing (exit code {code})");
        }
        writeln!(tables, "{}:\n{}", leg.name, table(&said.into_inner())?)?;
    }
    print!("{tables}");
    Ok(())
}

fn pack(
    path: &Path,
    directory: &Path,
    kernel: &DebianKernel,
    guests: &[GuestKernel],
    binary: &Path,
    leg: &Leg,
) -> anyhow::Result<()> {
    let guest = &guests.get(leg.kernel).context("no kernel for the guest")?.kernel;
    let initrds = ["boot", "jobs"].map(|name| (name, directory.join(format!("figures-{name}.cpio"))));
    write_initramfs(&initrds[0].1, &[], "echo INIT-IS-UP")?;
    pack_jobs(&initrds[1].1, guest, leg.disk)?;
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut archive = Archive::new(BufWriter::new(file));
    initramfs::add_base(&mut archive, kernel)?;
    archive.file(Path::new(BLOCKYARD), &fs::read(binary).context("cannot read the binary that is measured")?)?;
    for name in [QEMU].iter().chain(&QEMU_FILES) {
        archive.file(Path::new(name), &fs::read(name).with_context(|| format!("cannot read {name}"))?)?;
    }
    for library in initramfs::libraries(Path::new(QEMU))? {
        archive.file(&library, &initramfs::stripped(&library)?)?;
    }
    archive.file(Path::new("/guest/vmlinuz"), &fs::read(&guest.image).context("cannot read the guests' kernel")?)?;
    for (name, initrd) in &initrds {
        let content = fs::read(initrd).context("cannot read the guests' initramfs")?;
        archive.file(&Path::new("/guest").join(name), &content)?;
    }
    archive.file(Path::new("/init"), script(kernel, leg)?.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// A guest that has fio do its jobs on `disk`, and powers off.
fn pack_jobs(path: &Path, guests: &DebianKernel, disk: &str) -> anyhow::Result<()> {
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
             {FIO} --name=job --filename={disk} --ioengine=libaio --direct=1 --iodepth=64 {words} --runtime=5 \
             --time_based --output-format=terse --terse-version=3 | cut -d';' -f7,8,60 | sed 's/^/JOB-ENDS;{index};/'"
        )?;
    }
    init += "poweroff -f\n";
    archive.file(Path::new("/init"), init.as_bytes())?;
    archive.finish()?;
    Ok(())
}

/// The lab's PID 1. Exits are those that KVM counts for the VM that there is; system calls those of the program and its
/// threads, which the kernel traces in runs of their own, as that takes time.
fn script(kernel: &DebianKernel, leg: &Leg) -> anyhow::Result<String> {
    let mut script = initramfs::prelude(kernel)?;
    let (begin, end) = (machine::BEGIN, machine::END);
    let Leg { bus, machine, device, .. } = leg;
    write!(
        script,
        "mount -t debugfs debug /sys/kernel/debug\n\
         trace=/sys/kernel/tracing\n\
         mount -t tracefs trace $trace\n\
         echo 64 >$trace/buffer_size_kb\n\
         echo 1 >$trace/options/event-fork\n\
         truncate -s {DISK_MIB}M /disk\n\
         dd if=/dev/urandom of=/disk bs=1M count={DISK_MIB} conv=notrunc 2>/dev/null\n\
         now() {{ read up rest </proc/uptime; echo $up; }}\n\
         exits() {{ cat /sys/kernel/debug/kvm/exits; }}\n\
         calls() {{ awk '/^(entries|overrun|read events):/ {{ n += $NF }} END {{ printf \"%d\", n }}' $trace/per_cpu/cpu0/stats; }}\n\
         followed() {{ sh -c 'echo $$ >/sys/kernel/tracing/set_event_pid; exec \"$@\"' - \"$@\" </dev/null 2>&1; }}\n\
         counts() {{ echo $1 >$trace/events/raw_syscalls/sys_enter/enable; }}\n\
         watch() {{\n\
         began=$(now)\n\
         while read -r line; do case $line in\n\
         *INIT-IS-UP*) echo {FIGURE} boot $1 $began $(now) $(exits) ;;\n\
         *JOB-BEGINS*) before=\"$(exits) $(calls)\" ;;\n\
         *JOB-ENDS*) echo {FIGURE} $kind $1 ${{line#*JOB-ENDS}} $before $(exits) $(calls) ;;\n\
         *) echo \"$1: $line\" ;;\n\
         esac; done; }}\n\
         words='console=ttyS0 quiet panic=-1 reboot=t'\n\
         kind=job\n\
         ours() {{ followed {BLOCKYARD} run --backend kvm --memory {MEMORY_MIB}M --kernel /guest/vmlinuz --initrd /guest/$1 \
         --append \"$words\" --bus {bus} --disk /disk,engine=$2 | watch $3; }}\n\
         qemu() {{ followed {QEMU} -M {machine} -accel kvm -cpu host \
         -m {MEMORY_MIB} -smp 1 -nodefaults -no-user-config -nographic -serial stdio -no-reboot -kernel /guest/vmlinuz \
         -initrd /guest/$1 -append \"$words\" -object iothread,id=io \
         -blockdev driver=file,filename=/disk,aio=io_uring,node-name=disk \
         -device {device} | watch qemu; }}\n\
         echo {begin}\n"
    )?;
    if leg.boots {
        script += &"ours boot uring blockyard; qemu boot\n".repeat(ROUNDS);
    }
    for _ in 0..ROUNDS {
        script += "ours jobs uring blockyard; qemu jobs\n";
        if leg.engines {
            script += "ours jobs threads threads; ours jobs sync sync\n";
        }
    }
    script += "counts 1; kind=calls\nours jobs uring blockyard; qemu jobs\n";
    writeln!(script, "echo {end}0\npoweroff -f")?;
    Ok(script)
}

/// Medians by figure and program, ours in proportion to QEMU's, and those of our other engines.
fn table(lines: &[String]) -> anyhow::Result<String> {
    let mut measured: BTreeMap<(String, String), Vec<f64>> = BTreeMap::new();
    for line in lines {
        let words: Vec<_> = line.split_ascii_whitespace().skip_while(|word| *word != FIGURE).collect();
        let number = |index: usize| words[index].parse::<f64>().with_context(|| format!("no number in {line:?}"));
        let mut add = |what: String, value: f64| {
            measured.entry((what, words[2].to_owned())).or_default().push(value);
        };
        match words[..] {
            [_, "boot", ..] if words.len() == 6 => {
                add("seconds to init".into(), number(4)? - number(3)?);
                add("exits to init".into(), number(5)?);
            }
            [_, kind @ ("job" | "calls"), _, job, ..] if words.len() == 8 => {
                let fields: Vec<_> = job.trim_matches(';').split(';').collect();
                let [index, kib_a_second, iops, ..] = fields[..] else { bail!("fio said {line:?}") };
                let (name, _) = JOBS.get(index.parse::<usize>()?).with_context(|| format!("no job in {line:?}"))?;
                let (kib_a_second, iops) = (kib_a_second.parse::<f64>()?, iops.parse::<f64>()?);
                let requests = iops * 5.0;
                if kind == "calls" {
                    add(format!("{name}: system calls a request"), (number(7)? - number(5)?) / requests);
                } else {
                    add(format!("{name}: MB/s"), kib_a_second * 1.024e-3);
                    add(format!("{name}: exits a request"), (number(6)? - number(4)?) / requests);
                }
            }
            _ => {}
        }
    }
    let names: BTreeSet<_> = measured.keys().map(|(what, _)| what.clone()).collect();
    let mut text = format!(
        "{:<46} {:>10} {:>10} {:>7} {:>10} {:>10}\n",
        "median", "blockyard", "qemu", "ratio", "threads", "sync"
    );
    for name in names {
        let median = |who: &str| median(measured.get(&(name.clone(), who.to_owned())).cloned().unwrap_or_default());
        let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}"));
        let (ours, theirs) = (median("blockyard"), median("qemu"));
        let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        let [ours, theirs, ratio, threads, sync] = [ours, theirs, ratio, median("threads"), median("sync")].map(shown);
        writeln!(text, "{name:<46} {ours:>10} {theirs:>10} {ratio:>7} {threads:>10} {sync:>10}")?;
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
            "[ 1.0] FIGURE job qemu ;0;4000;1000;x 10 0 5010 0",
            "FIGURE job blockyard ;0;8000;2000;x 10 0 1010 0",
            "FIGURE job sync ;0;8000;2000;x 10 0 20010 0",
            "FIGURE calls blockyard ;0;4000;1000;x 10 100 10 600",
        ];
        let table = table(&lines.map(str::to_owned)).unwrap();
        let row = |name: &str| {
            table.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(row("seconds to init")[3..], ["2.000", "4.000", "0.500", "-", "-"]);
        assert_eq!(row("exits to init")[3..], ["1001.000", "4000.000", "0.250", "-", "-"]);
        assert_eq!(row("4 KiB reads, 64 in flight: exits")[9..], ["0.100", "1.000", "0.100", "-", "2.000"]);
        assert_eq!(row("4 KiB reads, 64 in flight: system")[10..], ["0.100", "-", "-", "-", "-"]);
    }
}
