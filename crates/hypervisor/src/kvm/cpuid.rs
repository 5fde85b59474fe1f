//! What a vCPU is told of its processor.

use kvm_bindings::{CpuId, kvm_cpuid_entry2};

const VMX: u32 = 1 << 5;
const SVM: u32 = 1 << 2;
const TSC_DEADLINE: u32 = 1 << 24;
/// KVM's own leaves are looked for only where this is set, and KVM leaves it to us.
const HYPERVISOR: u32 = 1 << 31;
/// One package has several logical processors.
const HYPER_THREADING: u32 = 1 << 28;
const TOPOLOGY_EXTENSIONS: u32 = 1 << 22;

/// Levels of a topology leaf (0xb, 0x1f), in bits 8 to 15 of ECX.
const LEVEL_THREAD: u32 = 1 << 8;
const LEVEL_CORE: u32 = 2 << 8;

/// What vCPU `index` of `vcpus` is told: all that KVM supports except nested virtualization, which would only widen
/// what a hostile guest can reach. The vCPUs are one package of cores with a thread each, and a vCPU's APIC has its
/// number.
/// With `tsc_deadline`, its APIC's timer can be given a time stamp.
pub(super) fn cpuid(supported: &CpuId, index: u32, vcpus: u32, tsc_deadline: bool) -> CpuId {
    // Of an APIC's number, those that say which core.
    let core_bits = vcpus.next_power_of_two().trailing_zeros();
    // KVM lists those levels of the topology that the host has.
    let others = supported.as_slice().iter().filter(|leaf| !is_topology(leaf.function)).copied();
    let topology = supported.as_slice().iter().map(|leaf| leaf.function).filter(|&leaf| is_topology(leaf));
    let mut topology: Vec<_> = topology.collect();
    topology.dedup();
    let levels = topology.into_iter().flat_map(|leaf| {
        let level = |level: u32, ecx, eax, ebx| kvm_cpuid_entry2 {
            function: leaf,
            index: level,
            flags: kvm_bindings::KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
            eax,
            ebx,
            ecx: ecx | level,
            edx: index,
            ..Default::default()
        };
        [level(0, LEVEL_THREAD, 0, 1), level(1, LEVEL_CORE, core_bits, vcpus), level(2, 0, 0, 0)]
    });
    let leaves: Vec<_> = others
        .map(|mut leaf| {
            match leaf.function {
                0x1 => {
                    leaf.ecx =
                        leaf.ecx & !(VMX | TSC_DEADLINE) | HYPERVISOR | if tsc_deadline { TSC_DEADLINE } else { 0 };
                    leaf.ebx = leaf.ebx & 0x0000_ffff | index << 24 | (vcpus & 0xff) << 16;
                    leaf.edx = leaf.edx & !HYPER_THREADING | if vcpus > 1 { HYPER_THREADING } else { 0 };
                }
                // Of each cache: how many numbers of APICs share it, and how many cores the package has room for.
                0x4 if leaf.eax & 0x1f != 0 => {
                    let is_last_level = leaf.eax >> 5 & 7 >= 3;
                    let sharing = if is_last_level { (1 << core_bits) - 1 } else { 0 };
                    leaf.eax = leaf.eax & 0x3fff | sharing << 14 | ((1 << core_bits) - 1) << 26;
                }
                0x8000_0001 => leaf.ecx &= !(SVM | TOPOLOGY_EXTENSIONS),
                0x8000_0008 => leaf.ecx = leaf.ecx & !0xf0ff | core_bits << 12 | (vcpus - 1).min(0xff),
                _ => {}
            }
            leaf
        })
        .collect();
    CpuId::from_entries(&[leaves, levels.collect()].concat()).expect("there are fewer than KVM lists at most")
}

fn is_topology(leaf: u32) -> bool {
    matches!(leaf, 0xb | 0x1f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(index: u32, vcpus: u32) -> Vec<kvm_cpuid_entry2> {
        let leaf = |function, index, eax, ebx, ecx| kvm_cpuid_entry2 {
            function,
            index,
            eax,
            ebx,
            ecx,
            edx: HYPER_THREADING,
            ..Default::default()
        };
        let supported = [
            leaf(0x1, 0, 0, 0xff10_0800, VMX),
            leaf(0x4, 0, 0xfc00_4121, 0, 0),
            leaf(0x4, 3, 0xfc03_c163, 0, 0),
            leaf(0xb, 0, 1, 2, 0x100),
            leaf(0xb, 1, 7, 128, 0x201),
            leaf(0x8000_0001, 0, 0, 0, SVM | TOPOLOGY_EXTENSIONS | 1),
            leaf(0x8000_0008, 0, 0, 0, 0x7f | 7 << 12),
        ];
        cpuid(&CpuId::from_entries(&supported).unwrap(), index, vcpus, true).as_slice().to_vec()
    }

    fn find(leaves: &[kvm_cpuid_entry2], function: u32, index: u32) -> kvm_cpuid_entry2 {
        let mut found = leaves.iter().filter(|leaf| leaf.function == function && leaf.index == index);
        let leaf = *found.next().expect("the leaf is there");
        assert!(found.next().is_none(), "{function:#x}, {index} twice");
        leaf
    }

    #[test]
    fn vcpus_are_cores_of_one_package() {
        let leaves = told(2, 3);
        let first = find(&leaves, 0x1, 0);
        assert_eq!((first.ebx, first.ecx), (0x0203_0800, HYPERVISOR | TSC_DEADLINE));
        // The first cache is a core's own, the last all cores'.
        assert_eq!(find(&leaves, 0x4, 0).eax, 0x0c00_0121);
        assert_eq!(find(&leaves, 0x4, 3).eax, 0x0c00_c163);
        let levels = [0, 1, 2].map(|index| find(&leaves, 0xb, index));
        assert_eq!(
            levels.map(|level| (level.eax, level.ebx, level.ecx, level.edx)),
            [(0, 1, 0x100, 2), (2, 3, 0x201, 2), (0, 0, 2, 2)]
        );
        assert_eq!(find(&leaves, 0x8000_0001, 0).ecx, 1);
        assert_eq!(find(&leaves, 0x8000_0008, 0).ecx, 2 << 12 | 2);
    }

    #[test]
    fn one_vcpu_is_alone() {
        let leaves = told(0, 1);
        assert_eq!(find(&leaves, 0x1, 0).edx & HYPER_THREADING, 0);
        assert_eq!(find(&leaves, 0xb, 1).ebx, 1);
        assert_eq!(find(&leaves, 0x4, 3).eax, 0x0000_0163);
    }
}
