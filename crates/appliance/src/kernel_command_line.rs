//! What kernels are told.

use crate::kernel::Kernel;
use crate::machine::INITRAMFS_NAME;
use crate::system::SystemOptions;

/// What User-Mode Linux is told as its arguments, whatever it boots for. Without `raid6`, it does not measure how to
/// compute the second parity of RAID 6, which takes it a second, and has none.
pub(crate) fn of_user_mode_linux(memory_bytes: u64, raid6: bool) -> Vec<String> {
    vec![
        format!("mem={}M", memory_bytes >> 20),
        format!("initrd={INITRAMFS_NAME}"),
        "rdinit=/init".to_owned(),
        "con=null".to_owned(),
        "con0=fd:1,fd:1".to_owned(),
        // Measurements and self-tests that make up nine tenths of a boot. What is tested when it is first needed
        // need not be before (Linux, crypto/algapi.c, crypto_start_tests); nobody swaps to compressed memory; and there
        // are no serial ports, which would be 64, as each device is told to a program (/sbin/hotplug), for which the
        // kernel makes a process before it sees that there is none.
        format!(
            "initcall_blacklist={}calibrate_xor_blocks,crypto_algapi_init,init_zswap,ssl_init",
            if raid6 { "" } else { "raid6_select_algo,raid6_init," }
        ),
        "cryptomgr.notests".to_owned(),
        // BSD's pseudo-terminals, which nobody has.
        "pty.legacy_count=0".to_owned(),
        // Two billion loops a second, roughly, as on any machine: to measure it (Linux, init/calibrate.c) takes a
        // fifth of a boot, and no device here has to be given time.
        "lpj=20000000".to_owned(),
        // Whose files these are is for others to say.
        "lsm=".to_owned(),
    ]
}

/// The first console is a line like a serial one, on which there is somebody to log in; nobody sees the others, of
/// which systemd takes the first for a screen, and those up to the sixth where there is no logind.
const CONSOLES: &str = "console=tty0 systemd.mask=getty@tty1.service systemd.mask=getty-static.service";
const LOGIN: &str = " systemd.wants=console-getty.service";
/// Words with which systemd starts a shell on the console itself (systemd, kernel-command-line(7)), and of units that
/// do.
const SHELLS: [&str; 7] = ["rescue", "emergency", "single", "s", "S", "1", "-b"];
const SHELL_UNITS: [&str; 2] = ["rescue.target", "emergency.target"];

/// Whether the console has a shell of systemd's own, which would share what is typed with a login.
fn has_shell(append: &str) -> bool {
    append.split_ascii_whitespace().any(|word| {
        SHELLS.contains(&word) || word.strip_prefix("systemd.unit=").is_some_and(|unit| SHELL_UNITS.contains(&unit))
    })
}

/// What a system is told besides. That is one argument: User-Mode Linux takes those for itself that begin with a word
/// of its own, which the words that somebody appends are not to be.
pub(crate) fn of_a_system(kernel: &Kernel, options: &SystemOptions, first: &str) -> [String; 2] {
    let seccomp = match (kernel.has_seccomp_mode(), options.seccomp) {
        // What a kernel does not know it passes on to the init.
        (false, _) => "",
        (true, true) => "seccomp=on ",
        (true, false) => "seccomp=off ",
    };
    let login = if has_shell(&options.append) { "" } else { LOGIN };
    let words = format!("printk.time=1 {seccomp}{first}{CONSOLES}{login} {}", options.append);
    // Or it would add a root of its own behind all that.
    ["root=".to_owned(), words]
}

/// What a distribution's kernel is told in an appliance, as its command line.
pub(crate) fn on_kvm() -> Vec<String> {
    let words = [
        "rdinit=/init",
        // The first serial port is the agent's.
        "console=ttyS1",
        "cryptomgr.notests",
        // Whose files these are is for others to say.
        "lsm=",
        // At once, to the end of its virtual machine.
        "panic=-1",
        // All that is in there is one to the host: nothing has to be kept from the rest.
        "mitigations=off",
    ];
    words.map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_has_a_login_or_a_shell() {
        for append in ["quiet single", "systemd.unit=rescue.target", "emergency root=/dev/vda1"] {
            assert!(has_shell(append), "{append}");
        }
        for append in ["", "quiet", "systemd.unit=multi-user.target", "init=/1"] {
            assert!(!has_shell(append), "{append}");
        }
    }
}
