//! User-Mode Linux: a Linux kernel that is a program.

use super::facility::{Facility, Lack};
use super::program::{self, Asked};
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Says where the program is, where it is not installed.
pub const VARIABLE: &str = "BLOCKYARD_UML";
const PROGRAM: &str = "linux.uml";
const REMEDY: &str = "apt-get install user-mode-linux; or, without being root, apt-get download user-mode-linux, dpkg-deb -x \
                      user-mode-linux_*.deb DIR and BLOCKYARD_UML=DIR/usr/bin/linux.uml";

/// The program, asked for its version.
pub struct Found(Result<(PathBuf, Asked), Lack>);

/// Looks for it: where the environment says, if it says anything, and else where a shell would.
pub fn find() -> Found {
    Found(path(std::env::var_os(VARIABLE)).map(|path| {
        let asked = program::ask(&path);
        (path, asked)
    }))
}

fn path(named: Option<OsString>) -> Result<PathBuf, Lack> {
    match named {
        Some(path) if Path::new(&path).is_file() => Ok(PathBuf::from(path)),
        Some(path) => {
            let reason = format!("{VARIABLE} says {}, which is no file", path.display());
            Err(Lack::new(reason, REMEDY))
        }
        None => program::find(PROGRAM).ok_or_else(|| Lack::new(format!("{PROGRAM} is not on the PATH"), REMEDY)),
    }
}

impl Found {
    /// What there is of it. It is not booted, which would take longer than a report may.
    pub fn facility(self) -> Facility {
        Facility::new("uml", "Linux guests without KVM", self.usable())
    }

    fn usable(self) -> Result<String, Lack> {
        let (path, asked) = self.0?;
        let shown = path.display();
        let version = asked.answer().map_err(|why| Lack::new(format!("{shown}: {why}"), REMEDY))?;
        if std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").is_ok_and(|scope| scope.trim() == "3") {
            return Err(Lack::for_good(
                "the sysctl kernel.yama.ptrace_scope is 3: nobody may trace, which it needs to",
            ));
        }
        let memory = memory_directory(|name| std::env::var_os(name));
        if statvfs(&memory).is_ok_and(|status| status.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
            let reason = format!("guest memory would lie in {}, which is mounted noexec", memory.display());
            return Err(Lack::new(reason, "TMPDIR=DIR, with a directory on a file system that is not"));
        }
        let modules = modules(&path, &version);
        let driver = modules.join("kernel/drivers/block/virtio_blk.ko");
        if !driver.is_file() {
            let reason = format!("{shown}, version {version}, without the module {}", driver.display());
            return Err(Lack::new(reason, REMEDY));
        }
        Ok(format!("{shown}, version {version}; virtio_blk is in {}", modules.display()))
    }
}

/// Where the package has the modules of the program at `path`, wherever it was unpacked.
fn modules(path: &Path, version: &str) -> PathBuf {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let root = resolved.parent().and_then(Path::parent).unwrap_or_else(|| Path::new("/usr"));
    root.join("lib/uml/modules").join(version)
}

/// Where it keeps a guest's memory (Linux, arch/um/os-Linux/mem.c).
fn memory_directory(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let named = ["TMPDIR", "TMP", "TEMP"].into_iter().find_map(|name| variable(name).filter(|value| !value.is_empty()));
    let shared = || Path::new("/dev/shm").is_dir().then(|| "/dev/shm".into());
    named.or_else(shared).unwrap_or_else(|| "/tmp".into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_program() {
        assert_eq!(path(Some("/bin/sh".into())).unwrap(), Path::new("/bin/sh"));
        let lack = path(Some("/no/such/linux.uml".into())).unwrap_err();
        assert!(lack.reason.contains("BLOCKYARD_UML says /no/such/linux.uml"), "{lack:?}");
        assert!(lack.remedy.unwrap().contains("user-mode-linux"));
    }

    #[test]
    fn modules_lie_beside_an_unpacked_program() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("usr/bin/linux.uml");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        let expected = directory.path().canonicalize().unwrap().join("usr/lib/uml/modules/6.1");
        assert_eq!(modules(&program, "6.1"), expected);
    }

    #[test]
    fn guest_memory_lies_where_the_environment_says() {
        let environment = |name: &str| (name == "TEMP").then(|| "/var/tmp".into());
        assert_eq!(memory_directory(environment), Path::new("/var/tmp"));
    }
}
