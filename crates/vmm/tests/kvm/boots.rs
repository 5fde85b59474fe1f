//! From power-on to power-off.

use crate::rig::{End, Rig};
use blockyard_block::{FileDisk, FileOptions};
use blockyard_vmm::pc::PowerRequest;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

#[test]
fn a_stock_kernel_boots_on_two_processors_and_powers_off() {
    let Some(mut rig) = Rig::new() else { return };
    rig.vcpus = 2;
    let printed = rig.boot_to_power_off(
        "echo processors: $(nproc)\ncat /proc/cmdline\n\
         cat /sys/devices/system/clocksource/clocksource0/current_clocksource\n\
         cat /sys/devices/system/cpu/cpu1/topology/core_cpus_list /sys/devices/system/cpu/cpu1/topology/package_cpus_list",
    );
    for expected in ["processors: 2", "console=ttyS0 quiet panic=-1", "kvm-clock", "\n1\r\n0-1\r\n"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn memory_goes_on_above_4_gib() {
    let Some(mut rig) = Rig::new() else { return };
    rig.memory_bytes = 5 << 30;
    let printed =
        rig.boot_to_power_off("grep -i 'system ram' /proc/iomem\necho kilobytes: $(grep MemTotal /proc/meminfo)");
    assert!(printed.contains("100000000-17fffffff : System RAM"), "{printed}");
    let total = printed.split("MemTotal:").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    assert!(total.parse::<u64>().unwrap() > 4 << 20, "{printed}");
}

#[test]
fn a_reset_is_asked_for() {
    let Some(rig) = Rig::new() else { return };
    let (end, printed) = rig.boot("reboot -f");
    assert_eq!(end, End::Power(PowerRequest::Reset), "{printed}");
}

#[test]
fn disks_are_written_and_read_through_virtio() {
    const BYTES: u64 = 8 << 20;
    let Some(mut rig) = Rig::new() else { return };
    let files: Vec<_> = (0..2).map(|_| tempfile::tempfile().unwrap()).collect();
    let pattern: Vec<_> = (0..BYTES).map(|at| (at / 4096 * 7 + at) as u8).collect();
    files[0].set_len(BYTES).unwrap();
    files[1].write_all_at(&pattern, 0).unwrap();
    let disk = |file: &File| FileDisk::from_file(file.try_clone().unwrap(), &FileOptions::default()).unwrap();
    rig.disks = files.iter().map(|file| Arc::new(disk(file)) as _).collect();
    let printed = rig.boot_to_power_off(
        "dd if=/dev/vdb of=/dev/vda bs=64k conv=fsync\ncmp /dev/vda /dev/vdb && echo they are the same",
    );
    assert!(printed.contains("they are the same"), "{printed}");
    let mut copied = vec![0; BYTES as usize];
    files[0].read_exact_at(&mut copied, 0).unwrap();
    assert!(copied == pattern);
}
