//! What programs do with a disk's name, beside what the kernel says of a file.

use crate::support::{Yard, blockyard, run};
use crate::{BYTES, NAME, c_program, piped};
use std::ffi::OsStr;
use std::fs;
use std::process::Command;

/// Calls of which a disk answers something else than a file: whoever attached it decides who may use it and what it is
/// called, it has the length that it has, and no kernel knows it, to tell of its changes or to mount it.
const ANSWERS: [(&str, &str); 17] = [
    ("name_to_handle_at(AT_FDCWD, name, &handle.handle, &mount_id, 0)", "-1 EOPNOTSUPP"),
    ("name_to_handle_at(disk, \"\", &handle.handle, &mount_id, AT_EMPTY_PATH)", "-1 EOPNOTSUPP"),
    ("inotify_add_watch(inotify_init1(IN_CLOEXEC), name, IN_MODIFY)", "-1 ENOSPC"),
    ("fanotify_mark(fanotify_init(0, O_RDONLY), FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, name)", "-1 ENODEV"),
    ("chroot(name)", "-1 ENOTDIR"),
    ("mount(name, \"/mnt\", \"ext4\", MS_RDONLY, \"\")", "-1 ENOTBLK"),
    ("mount(\"none\", name, \"tmpfs\", 0, \"\")", "-1 ENOTDIR"),
    ("umount(name)", "-1 EINVAL"),
    ("umount2(name, MNT_DETACH)", "-1 EINVAL"),
    ("swapon(name, 0)", "-1 EINVAL"),
    ("swapoff(name)", "-1 EINVAL"),
    ("chmod(name, 0600)", "-1 EPERM"),
    ("fchmod(disk, 0600)", "-1 EPERM"),
    ("fchmodat(AT_FDCWD, name, 0600, 0)", "-1 EPERM"),
    ("chown(name, getuid(), getgid())", "-1 EPERM"),
    ("lchown(name, getuid(), getgid())", "-1 EPERM"),
    ("fchown(disk, getuid(), getgid())", "-1 EPERM"),
];
/// The same of what looks like a device.
const OF_DEVICES: [(&str, &str); 2] = [
    ("truncate(name, lseek(disk, 0, SEEK_END))", "-1 EINVAL"),
    ("ftruncate(disk, lseek(disk, 0, SEEK_END))", "-1 EINVAL"),
];

#[test]
fn calls_by_name_answer_as_for_a_file_and_the_kernel_sees_no_name() {
    let yard = Yard::new();
    let program = c_program(&yard, "posix_names", &["-ldl"]);
    let (disk, file, calls) = (yard.random("disk.img", BYTES, 7), yard.path("file"), yard.path("calls"));
    fs::copy(&disk, &file).unwrap();
    let by_kernel = run(piped(Command::new(&program).arg(&file))).succeeded().stdout;
    for (look, of_devices) in [("device", &OF_DEVICES[..]), ("file", &[])] {
        fs::copy(&file, &disk).unwrap();
        let expected: Vec<_> = by_kernel
            .lines()
            .map(|line| {
                let call = line.split(": ").next().unwrap();
                let other = ANSWERS.iter().chain(of_devices).find(|(other, _)| *other == call);
                other.map_or_else(|| line.to_owned(), |(call, answer)| format!("{call}: {answer}"))
            })
            .collect();
        let words = ["strace", "-f", "-e", "trace=%file,openat2,name_to_handle_at,fanotify_mark", "-o"].map(OsStr::new);
        let words = words.into_iter().chain([calls.as_os_str(), program.as_os_str(), NAME.as_ref()]);
        let mut command = blockyard();
        command.args(["attach", "--as", look]).arg(&disk).args([NAME, "--"]).args(words);
        let outcome = run(piped(&mut command)).succeeded();
        assert_eq!(outcome.stdout.lines().collect::<Vec<_>>(), expected, "{look}: {}", outcome.stderr);
        let calls = fs::read_to_string(&calls).unwrap();
        let name = format!("\"{NAME}\"");
        let seen: Vec<_> = calls.lines().filter(|line| line.contains(&name)).collect();
        assert_eq!(seen.len(), 1, "but for the program's own argument: {seen:#?}");
    }
}
