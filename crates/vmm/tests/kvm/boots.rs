//! From power-on to power-off.

use crate::rig::Rig;
use blockyard_block::{FileDisk, FileOptions};
use blockyard_vmm::pc::VirtioTransport;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const DISK_BYTES: u64 = 8 << 20;

/// Two disks, the second of which has a pattern, copied to the first by `dd`; what was printed besides.
fn copied_from_one_disk_to_the_other(mut rig: Rig, script: &str) -> String {
    let files: Vec<_> = (0..2).map(|_| tempfile::tempfile().unwrap()).collect();
    let pattern: Vec<_> = (0..DISK_BYTES).map(|at| (at / 4096 * 7 + at) as u8).collect();
    files[0].set_len(DISK_BYTES).unwrap();
    files[1].write_all_at(&pattern, 0).unwrap();
    let disk = |file: &File| FileDisk::from_file(file.try_clone().unwrap(), &FileOptions::default()).unwrap();
    rig.disks = files.iter().map(|file| Arc::new(disk(file)) as _).collect();
    rig.has_entropy = true;
    let copy = "dd if=/dev/vdb of=/dev/vda bs=64k conv=fsync\ncmp /dev/vda /dev/vdb && echo they are the same\n";
    // More than is to be had at once, and none of it zeros.
    let entropy = "dd if=/dev/hwrng of=/tmp/bytes bs=64 count=2000 iflag=fullblock\n\
                   echo random bytes: $(cat /tmp/bytes | wc -c), packed $(gzip -c /tmp/bytes | wc -c)\n";
    let printed = rig.boot_to_power_off(&format!("{copy}{entropy}{script}"));
    assert!(printed.contains("they are the same"), "{printed}");
    assert!(printed.contains("random bytes: 128000, packed 128"), "{printed}");
    let mut copied = vec![0; DISK_BYTES as usize];
    files[0].read_exact_at(&mut copied, 0).unwrap();
    assert!(copied == pattern);
    printed
}

#[test]
fn disks_are_written_and_read_through_virtio_mmio() {
    let Some(mut rig) = Rig::new() else { return };
    rig.transport = VirtioTransport::Mmio;
    copied_from_one_disk_to_the_other(rig, "");
}

#[test]
fn two_processors_have_a_queue_and_an_interrupt_each_of_disks_that_are_pci_functions() {
    let Some(mut rig) = Rig::new() else { return };
    rig.vcpus = 2;
    // Each processor writes and reads a part of its own.
    let printed = copied_from_one_disk_to_the_other(
        rig,
        r#"taskset 1 dd if=/dev/vdb of=/dev/vda bs=64k count=64 conv=fsync,notrunc
           taskset 2 dd if=/dev/vdb of=/dev/vda bs=64k count=64 skip=64 seek=64 conv=fsync,notrunc
           echo queues: $(ls /sys/block/vda/mq | wc -l)
           grep virtio0-req /proc/interrupts | while read line; do echo interrupt: $line; done
           for function in /sys/bus/pci/devices/*; do
               cd $function
               echo $(basename $function) $(cat vendor device class) $(head -1 resource)
           done
           grep 'PCI MMCONFIG' /proc/iomem
           cd /sys/devices/system
           echo processors: $(nproc), clock: $(cat clocksource/clocksource0/current_clocksource)
           echo the second: $(cat cpu/cpu1/topology/core_cpus_list) of $(cat cpu/cpu1/topology/package_cpus_list)
           cat /proc/cmdline"#,
    );
    for expected in [
        "0000:00:00.0 0x1b36 0x0008 0x060000 0x0000000000000000",
        "0000:00:01.0 0x1af4 0x1042 0x018000 0x00000000e0000000 0x00000000e0003fff",
        "0000:00:02.0 0x1af4 0x1042 0x018000 0x00000000e0008000 0x00000000e000bfff",
        "d8000000-d80fffff : PCI MMCONFIG 0000 [bus 00-00]",
        "queues: 2",
        "processors: 2, clock: kvm-clock",
        "the second: 1 of 0-1",
        "console=ttyS0 quiet panic=-1",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    // Interrupts seen by each of the two processors: a queue's come to its own.
    let seen = |queue: usize| {
        let name = format!("virtio0-req.{queue}");
        let line = printed.lines().find(|line| line.starts_with("interrupt:") && line.trim_end().ends_with(&name));
        let line = line.unwrap_or_else(|| panic!("{name}: {printed}"));
        assert!(line.contains("PCI-MSI"), "{line}");
        let counts: Vec<u64> = line.split_whitespace().skip(2).take(2).map(|count| count.parse().unwrap()).collect();
        counts[queue]
    };
    assert!(seen(0) > 0 && seen(1) > 0, "{printed}");
}
