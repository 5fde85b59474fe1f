//! What /dev/kvm is worth on this machine.

use super::KvmHypervisor;
use crate::{Entry, Error, Exit, Hypervisor, Vcpu};
use blockyard_block::{MemoryMap, explain};
use rustix::fs::{Mode, OFlags, open, stat};
use rustix::io::Errno;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use vm_memory::{Bytes, GuestAddress};

const DEVICE: &str = "/dev/kvm";

/// Guest code slower than this is not being executed, it is being emulated. A processor takes well under 1 ns an
/// instruction; QEMU's translator under 5, and more than 50 where it hardly gets a CPU; KVM's instruction emulator
/// takes more than 1000.
const NATIVE_NS_PER_INSTRUCTION_MAX: f64 = 500.0;

/// Whether KVM can be used here, and whether it should.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// A VM can be created and runs.
    pub usable: bool,
    /// It executes guest code, rather than emulating it: worth choosing by itself.
    pub native: bool,
    /// Why, as a sentence.
    pub reason: String,
    /// What to do for more, as a sentence with the command.
    pub remedy: Option<String>,
    /// Nanoseconds a guest instruction took, where that was tried.
    pub measured: Option<f64>,
}

impl Probe {
    /// Why it is as it is, and what to do, as one sentence.
    pub fn in_words(&self) -> String {
        match &self.remedy {
            Some(remedy) => format!("{} ({remedy})", self.reason),
            None => self.reason.clone(),
        }
    }
}

/// Whether KVM here is PVM, which emulates guests that are not written for it. Costs one system call, and saves the
/// probe.
pub fn emulates_guests() -> bool {
    is_loaded("kvm_pvm")
}

/// Whether KVM here executes guest code, so that it is worth choosing by itself.
pub fn is_native() -> bool {
    !emulates_guests() && probe().native
}

/// Finds out all of it, for whoever wants to know rather than to start: whether a guest gets through what compilers
/// make besides, too. A KVM that emulates guests may not know such instructions, and then runs hardly any guest.
pub fn examine() -> Probe {
    let probe = probe();
    if !probe.usable {
        return probe;
    }
    match KvmHypervisor::open().and_then(|hypervisor| executes_sse(&hypervisor)) {
        Ok(true) => probe,
        Ok(false) => without_sse(probe, "crashed"),
        Err(error) => without_sse(probe, &format!("did not run: {}", explain(&error))),
    }
}

/// What a probe is worth where guests, which may use SSE (docs/guests.md), cannot. `fate`: what became of one.
fn without_sse(probe: Probe, fate: &str) -> Probe {
    let reason = format!("{}; and a guest that used SSE (xorps, movups), as that of `copy` does, {fate}", probe.reason);
    Probe { usable: false, native: false, reason, ..probe }
}

/// Finds out what it takes to choose, in a few milliseconds.
pub fn probe() -> Probe {
    if let Err(errno) = open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        return closed(errno);
    }
    let hypervisor = match KvmHypervisor::open() {
        Ok(hypervisor) => hypervisor,
        Err(error) => return unusable(explain(&error), None),
    };
    if emulates_guests() {
        return Probe {
            usable: true,
            native: false,
            reason: "KVM here is PVM, which emulates guests that are not written for it one instruction at a time: each takes some \
                     thousand times as long"
                .to_owned(),
            remedy: Some(
                "use a machine whose processor's virtualization is passed through (kvm_intel, kvm_amd)".to_owned(),
            ),
            measured: None,
        };
    }
    match nanoseconds_per_instruction(&hypervisor) {
        Ok(measured) => judged(measured, ["kvm_intel", "kvm_amd"].into_iter().find(|module| is_loaded(module))),
        Err(error) => unusable(format!("KVM is there, but runs no guest: {}", explain(&error)), None),
    }
}

/// Times a short loop in a guest: the fastest of a few runs, as whatever interrupts one makes it look slow. Some 0.1 ms
/// where code is executed, 25 ms a run where it is emulated.
///
/// # Errors
/// When no VM can be created, or it does not get through the loop.
pub fn nanoseconds_per_instruction(hypervisor: &KvmHypervisor) -> Result<f64, Error> {
    const ITERATIONS: u32 = 10_000;
    const INSTRUCTIONS: f64 = 2.0 * ITERATIONS as f64;
    const RUNS: usize = 3;
    // hlt; run: mov ecx, ITERATIONS; again: dec ecx; jnz again; hlt; jmp run
    let mut code = vec![0xf4, 0xb9];
    code.extend(ITERATIONS.to_le_bytes());
    code.extend([0xff, 0xc9, 0x75, 0xfc, 0xf4, 0xeb, 0xf4]);

    with_guest(hypervisor, &code, |vcpu| {
        let mut run_to_halt = || match vcpu.run()? {
            Exit::Halt => Ok(()),
            other => Err(Error::Refused(format!("a guest that only counts came back with {other:?}"))),
        };
        // The first run brings the guest's pages in.
        run_to_halt()?;
        let mut fastest = Duration::MAX;
        for _ in 0..RUNS {
            let begin = Instant::now();
            run_to_halt()?;
            fastest = fastest.min(begin.elapsed());
        }
        Ok(fastest.max(Duration::from_nanos(1)).as_nanos() as f64 / INSTRUCTIONS)
    })
}

/// Whether a guest clears memory by way of an SSE register, as compilers have zeros written.
///
/// # Errors
/// When no VM can be created, or it does something else altogether.
fn executes_sse(hypervisor: &KvmHypervisor) -> Result<bool, Error> {
    // xorps xmm0, xmm0; movups [rsp - 32], xmm0; hlt
    const CODE: [u8; 9] = [0x0f, 0x57, 0xc0, 0x0f, 0x11, 0x44, 0x24, 0xe0, 0xf4];
    with_guest(hypervisor, &CODE, |vcpu| match vcpu.run()? {
        Exit::Halt => Ok(true),
        Exit::Crashed(_) | Exit::Shutdown => Ok(false),
        other => Err(Error::Refused(format!("a guest that only clears memory came back with {other:?}"))),
    })
}

/// Makes a guest of `code`, and gives its processor to `try_out`.
fn with_guest<T>(
    hypervisor: &KvmHypervisor,
    code: &[u8],
    try_out: impl FnOnce(&mut dyn Vcpu) -> Result<T, Error>,
) -> Result<T, Error> {
    const CODE: u64 = 0x1_0000;
    let memory = MemoryMap::allocate(&[(0, 0x2_0000)]).map_err(|error| Error::Refused(explain(&error)))?;
    let written = memory.guest_memory().write_slice(code, GuestAddress(CODE));
    written.map_err(|error| Error::Refused(explain(&error)))?;
    let mut vm = hypervisor.create_vm()?;
    vm.map_memory(0, &memory, 0)?;
    let entry = Entry::Flat64 { entry: CODE, stack_top: 0x2_0000, gdt: 0x1000, page_tables: 0x2000 };
    try_out(vm.create_vcpu(0, &entry)?.as_mut())
}

fn judged(measured: f64, module: Option<&str>) -> Probe {
    let native = measured < NATIVE_NS_PER_INSTRUCTION_MAX;
    let by = module.map_or_else(|| "KVM".to_owned(), |module| format!("KVM ({module})"));
    let (how, remedy) = if native {
        ("executes guest code natively", None)
    } else {
        ("emulates guest code", Some("use a machine whose processor's virtualization is passed through".to_owned()))
    };
    let reason = format!("{by} {how}: {measured:.1} ns an instruction");
    Probe { usable: true, native, reason, remedy, measured: Some(measured) }
}

/// Why the device does not open.
pub(super) fn closed(errno: Errno) -> Probe {
    match errno {
        Errno::NOENT | Errno::NXIO | Errno::NODEV => unusable(
            format!("this machine offers no KVM ({DEVICE}: {errno})"),
            Some(
                "switch virtualization on in the firmware (or in the hypervisor around this machine), then \
                  `sudo modprobe kvm_intel` or `sudo modprobe kvm_amd`"
                    .to_owned(),
            ),
        ),
        Errno::ACCESS | Errno::PERM => {
            unusable(format!("no permission to open {DEVICE}"), Some(permission_remedy(Path::new(DEVICE))))
        }
        errno => unusable(format!("{DEVICE} does not open: {errno}"), None),
    }
}

/// The command that lets this user open `device`.
fn permission_remedy(device: &Path) -> String {
    const GROUP_READ_WRITE: u32 = 0o060;
    let group =
        stat(device).ok().filter(|stat| stat.st_gid != 0 && stat.st_mode & GROUP_READ_WRITE == GROUP_READ_WRITE);
    match group.and_then(|stat| group_name(&fs::read_to_string("/etc/group").ok()?, stat.st_gid)) {
        Some(name) => format!("join the group {name}: `sudo usermod -aG {name} $USER`, then log in again"),
        None => format!("`sudo setfacl -m u:$USER:rw {}`", device.display()),
    }
}

/// Name of group `id` in `groups`, which looks like /etc/group.
fn group_name(groups: &str, id: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(id)).then(|| name.to_owned())
    })
}

fn unusable(reason: String, remedy: Option<String>) -> Probe {
    Probe { usable: false, native: false, reason, remedy, measured: None }
}

fn is_loaded(module: &str) -> bool {
    Path::new("/sys/module").join(module).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probing_never_fails_and_always_says_why() {
        let probe = probe();
        assert!(!probe.reason.is_empty());
        assert!(probe.usable || !probe.native);
        assert_eq!(probe.measured.is_some(), probe.usable && !is_loaded("kvm_pvm"), "{probe:?}");
    }

    #[test]
    fn what_runs_no_guest_that_uses_sse_is_not_usable() {
        let probe = examine();
        let runs = || KvmHypervisor::open().and_then(|hypervisor| executes_sse(&hypervisor));
        assert_eq!(probe.usable, matches!(runs(), Ok(true)), "{probe:?}");
        let failed = without_sse(judged(1200.0, None), "crashed");
        assert!(!failed.usable && !failed.native && failed.remedy.is_some());
        assert!(failed.reason.ends_with("as that of `copy` does, crashed"), "{failed:?}");
    }

    #[test]
    fn speed_decides_what_is_native() {
        let fast = judged(0.7, Some("kvm_amd"));
        assert!(fast.native && fast.usable && fast.remedy.is_none());
        assert_eq!(fast.reason, "KVM (kvm_amd) executes guest code natively: 0.7 ns an instruction");
        let slow = judged(1200.0, None);
        assert!(!slow.native && slow.usable && slow.remedy.is_some());
    }

    #[test]
    fn a_device_that_does_not_open_has_a_remedy() {
        assert!(closed(Errno::NOENT).remedy.unwrap().contains("modprobe"));
        let denied = closed(Errno::ACCESS);
        assert!(denied.reason.contains("permission") && denied.remedy.as_ref().unwrap().contains("sudo"));
        assert!(denied.in_words().starts_with("no permission to open /dev/kvm (") && denied.in_words().ends_with(')'));
    }

    #[test]
    fn groups_are_found_by_number() {
        let groups = "root:x:0:\nkvm:x:104:qemu\nbroken\nkvmish:x:1040:\n";
        assert_eq!(group_name(groups, 104).as_deref(), Some("kvm"));
        assert_eq!(group_name(groups, 105), None);
    }
}
