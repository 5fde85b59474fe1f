//! Kernels that are no bzImage beside an initrd: bare ELF files, and what an image has itself. Some panic.

use crate::disks::finishes;
use crate::lab_guest::LabGuest;
use crate::support::{Yard, finish, run, wait_until_it_catches};
use crate::{SECTOR_BYTES, on_kvm};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The ELF file that the bzImage of Debian's cloud kernel holds (Linux, Documentation/arch/x86/boot.rst). It is
/// compressed by lz4 in the older of its frames, and the length of what comes out follows.
fn write_vmlinux(bzimage: &Path, vmlinux: &Path) {
    const LENGTH_BYTES: usize = 4;
    let image = fs::read(bzimage).unwrap();
    let number = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let begin = (usize::from(image[0x1f1]) + 1) * SECTOR_BYTES + number(0x248);
    let payload = &image[begin..][..number(0x24c) - LENGTH_BYTES];
    assert!(payload.starts_with(&[0x02, 0x21, 0x4c, 0x18]), "Debian compresses this kernel in another way");
    let packed = vmlinux.with_extension("lz4");
    File::create(&packed).unwrap().write_all(payload).unwrap();
    finishes(Command::new("/usr/bin/lz4").args(["-q", "-d"]).args([&packed, vmlinux]));
}

/// Takes from an ELF file the note that says where PVH begins (`XEN_ELFNOTE_PHYS32_ENTRY`), by giving it a number that
/// nobody knows.
fn forget_pvh(vmlinux: &Path) {
    const NOTE: &[u8] = b"\x12\0\0\0Xen\0";
    let mut content = fs::read(vmlinux).unwrap();
    let at: Vec<_> = content.windows(NOTE.len()).enumerate().filter(|(_, bytes)| *bytes == NOTE).collect();
    let [(at, _)] = at[..] else { panic!("not one such note: {at:?}") };
    content[at] = 0xff;
    fs::write(vmlinux, content).unwrap();
}

/// Linux remembers who loaded it: 0xb0 is a virtual machine's PVH, and 0xff a loader without a number of its own.
#[test]
fn kvm_a_vmlinux_begins_by_pvh_or_by_its_own_protocol_and_panics() {
    let Some(guest) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let (vmlinux, initrd) = (yard.path("vmlinux"), yard.path("initrd"));
    write_vmlinux(&guest.kernel(), &vmlinux);
    guest.write_initrd(&initrd, "echo loader: $(cat /proc/sys/kernel/bootloader_type)\necho c >/proc/sysrq-trigger");
    let command = |panic: &str| {
        let mut command = on_kvm(&vmlinux);
        command.args(["--memory", "256M", "--append", &format!("quiet panic={panic}"), "--initrd"]).arg(&initrd);
        command
    };

    // A panic that reboots.
    let outcome = run(command("-1").arg("--no-reboot")).succeeded();
    assert!(outcome.stdout.contains("loader: 176") && outcome.stdout.contains("Kernel panic"), "{outcome:#?}");

    // One that stays as it is, until somebody ends the machine.
    forget_pvh(&vmlinux);
    let mut child = command("0").args(["--timeout", "250"]).spawn().unwrap();
    wait_until_it_catches(child.id(), Signal::TERM.as_raw());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| line.contains("end Kernel panic")) {
        said.push(lines.next().unwrap_or_else(|| panic!("it has ended: {said:#?}")));
    }
    assert!(said.iter().any(|line| line.contains("loader: 255")), "{said:#?}");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    drop(lines);
    finish(child).failed(143, &["SIGTERM"]);
}

/// By the entry that its own boot loader takes, which an appliance reads.
#[test]
fn kvm_an_image_boots_its_own_kernel_and_stays_as_it_was() {
    const IMAGE_BYTES: u64 = 64 << 20;
    let Some(guest) = LabGuest::cloud() else { return };
    let yard = Yard::new();
    let (root, image) = (yard.path("root"), yard.path("debian.img"));
    for directory in ["boot/grub", "etc"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    fs::copy(guest.kernel(), root.join("boot/vmlinuz-6")).unwrap();
    let script = "mount -t ext4 /dev/vda /mnt && cat /mnt/etc/greeting && grep -o by=grub /proc/cmdline\n\
                  echo changed >/mnt/etc/greeting && umount /mnt && mount -t ext4 /dev/vda /mnt && cat /mnt/etc/greeting\n\
                  umount /mnt";
    guest.write_initrd(&root.join("boot/initrd.img-6"), script);
    let files = [
        ("etc/os-release", "ID=debian\n"),
        ("etc/greeting", "hello\n"),
        (
            "boot/grub/grub.cfg",
            "set default=1\nmenuentry other { linux /boot/none; }\nmenuentry own {\n\
             linux /boot/vmlinuz-6 root=/dev/vda by=grub quiet panic=-1\ninitrd /boot/initrd.img-6\n}\n",
        ),
    ];
    for (name, content) in files {
        fs::write(root.join(name), content).unwrap();
    }
    File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    finishes(Command::new("/sbin/mke2fs").args(["-q", "-F", "-t", "ext4", "-d"]).args([&root, &image]));
    let before = fs::read(&image).unwrap();
    let mut command = crate::support::blockyard();
    command.args(["run", "--backend", "kvm", "--memory", "256M", "--snapshot"]).arg(&image);
    let outcome = run(command.stdin(Stdio::null())).succeeded();
    for expected in ["hello", "by=grub", "changed"] {
        assert!(outcome.stdout.contains(expected), "{expected}: {outcome:#?}");
    }
    assert!(fs::read(&image).unwrap() == before, "a snapshot has changed the image");
}
