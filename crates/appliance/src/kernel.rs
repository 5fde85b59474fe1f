//! The appliance's kernel, as it is found on the machine.

mod distribution;
mod user_mode_linux;

use blockyard_block::Remedy;
use blockyard_confinement::program_filter::Executes;
use blockyard_hypervisor::kvm;
use rustix::process::geteuid;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Who executes an appliance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// User-Mode Linux where it is to be had, and otherwise KVM where that executes natively.
    ///
    /// In this order as User-Mode Linux boots in a third of the time, and all that an image's kernel may break out into
    /// there is a process.
    #[default]
    Auto,
    /// User-Mode Linux.
    Uml,
    /// KVM, with the kernel of a distribution.
    Kvm,
}

/// A Linux kernel for appliances, on disk.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What is executed, or booted.
    pub file: PathBuf,
    /// The directory of its modules, where depmod(8) has written its tables, unless what is needed is built in.
    modules: Option<PathBuf>,
    kind: Kind,
}

/// How it becomes a guest.
#[derive(Clone, Debug)]
enum Kind {
    /// User-Mode Linux is a program.
    Program {
        /// What was looked at is what is executed, each time, whatever has its name by then.
        opened: Arc<File>,
        /// Linux's version: its first two numbers.
        version: Option<(u32, u32)>,
        /// BLOCKYARD_UML names it.
        named: bool,
    },
    /// It boots in a virtual machine on KVM.
    VirtualMachine,
}

/// Whether the modules in a directory beside a kernel, as `lib/modules/…` is beside `boot/vmlinuz-…`, are a part of
/// what was installed there and not what somebody else has put there: in /tmp, anybody may.
pub fn are_its_own(kernel: &Path, modules: &Path) -> bool {
    let owner = |path: &Path| fs::metadata(path).ok().map(|metadata| metadata.uid());
    let owners = [Some(0), Some(geteuid().as_raw()), owner(kernel)];
    let prefix = kernel.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let mut way = modules.ancestors().take_while(|directory| *directory != prefix && **directory != *"/");
    way.all(|directory| owner(directory).is_some_and(|owner| owners.contains(&Some(owner))))
}

/// Why there is no kernel.
#[derive(Debug)]
pub enum KernelError {
    /// No User-Mode Linux was found.
    Missing,
    /// Neither was found.
    Neither {
        /// Why KVM is not taken instead.
        kvm: Box<Self>,
    },
    /// The one that was named is not there.
    Named {
        /// Where it is named.
        variable: &'static str,
        /// What it names.
        path: PathBuf,
        /// What looking for it met.
        error: io::Error,
    },
    /// It is not there, or nobody may execute it.
    Unusable {
        /// What was named.
        path: PathBuf,
        /// What looking for it met.
        error: io::Error,
    },
    /// It is another program.
    Other {
        /// What was named.
        path: PathBuf,
    },
    /// It is a kernel for machines, and no program.
    ForMachines {
        /// What was named.
        path: PathBuf,
    },
    /// User-Mode Linux has no modules.
    Modules {
        /// The kernel that was found.
        program: PathBuf,
        /// Where they should be.
        looked: PathBuf,
    },
    /// KVM does not execute kernels here.
    Kvm {
        /// Why.
        reason: String,
        /// What would help.
        remedy: Option<String>,
    },
    /// No kernel was found that could be booted on KVM.
    NoneInBoot,
    /// One was found, which this user may not read.
    Unreadable(PathBuf),
    /// Nobody has written down which module of it needs which.
    NoTables(PathBuf),
}

impl KernelError {
    /// What is wrong, without what would help.
    pub fn reason(&self) -> String {
        match self {
            Self::Missing => "there is no User-Mode Linux".to_owned(),
            Self::Neither { kvm } => {
                format!("{}; nor is there KVM to boot a distribution's kernel on: {kvm}", Self::Missing)
            }
            Self::Named { variable, path, .. } => {
                format!("{variable} names {}, which cannot be used", path.display())
            }
            Self::Unusable { path, .. } => format!("the kernel {} cannot be used", path.display()),
            Self::Other { path } => format!("the kernel {} is no User-Mode Linux with virtio", path.display()),
            Self::ForMachines { path } => {
                format!(
                    "the kernel {} is one for machines (a bzImage), and User-Mode Linux is a program",
                    path.display()
                )
            }
            Self::Modules { program, looked } => {
                let (program, looked) = (program.display(), looked.display());
                format!("{program} has no virtio_blk, neither built in nor as a module at {looked}")
            }
            Self::Kvm { reason, .. } => reason.clone(),
            Self::NoneInBoot => "there is no kernel of a distribution's in /boot".to_owned(),
            Self::Unreadable(path) => format!("this user may not read the kernel {}", path.display()),
            Self::NoTables(modules) => format!("{} lacks modules.dep and modules.alias", modules.display()),
        }
    }

    /// What would help.
    pub fn remedy(&self) -> Option<String> {
        const NAME_ONE: &str = "=/PATH/boot/vmlinuz-RELEASE, with its modules in /PATH/lib/modules/RELEASE";
        let variable = distribution::VARIABLE;
        Some(match self {
            Self::Missing => "run `apt-get install user-mode-linux`, or without root `apt-get download user-mode-linux && dpkg-deb -x \
                              user-mode-linux_*.deb uml` and set BLOCKYARD_UML=uml/usr/bin/linux.uml"
                .to_owned(),
            Self::Other { .. } => "leave it out, or take another backend".to_owned(),
            Self::ForMachines { .. } => {
                format!("{}, or leave it out: the package user-mode-linux has one", Remedy::TakeKvm)
            }
            Self::Unusable { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => {
                format!(
                    "User-Mode Linux is a program, which this user has to be allowed to read and execute; if it is a \
                     kernel for machines, {}",
                    Remedy::TakeKvm
                )
            }
            Self::Modules { .. } => "the Debian package user-mode-linux has both".to_owned(),
            Self::Kvm { remedy, .. } => return remedy.clone(),
            Self::NoneInBoot => format!("run `apt-get install linux-image-amd64`, or set {variable}{NAME_ONE}"),
            Self::Unreadable(path) => format!(
                "run `sudo chmod a+r {}`, after each update of the kernel, or set {variable}{NAME_ONE}",
                path.display()
            ),
            Self::NoTables(_) => "`depmod RELEASE` writes them (with `-b DIR` for another root)".to_owned(),
            Self::Neither { .. } | Self::Named { .. } | Self::Unusable { .. } => return None,
        })
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.reason())?;
        self.remedy().map_or(Ok(()), |remedy| write!(formatter, ": {remedy}"))
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Named { error, .. } | Self::Unusable { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl Kernel {
    /// For this backend: the one that an environment variable names (`BLOCKYARD_UML`, `BLOCKYARD_APPLIANCE_KERNEL`), or
    /// the one on PATH and Debian's, or the one in /boot.
    ///
    /// # Errors
    /// When there is none, or it has no modules, or KVM does not execute natively.
    pub fn find(backend: Backend) -> Result<Self, KernelError> {
        match backend {
            Backend::Uml => user_mode_linux::find(),
            Backend::Kvm => Self::find_for_kvm(),
            Backend::Auto => match user_mode_linux::find() {
                Err(KernelError::Missing) => {
                    Self::find_for_kvm().map_err(|kvm| KernelError::Neither { kvm: Box::new(kvm) })
                }
                found => found,
            },
        }
    }

    fn find_for_kvm() -> Result<Self, KernelError> {
        let kvm = kvm::probe();
        if !kvm.native {
            return Err(KernelError::Kvm { reason: kvm.reason, remedy: kvm.remedy });
        }
        distribution::find()
    }

    /// User-Mode Linux at `path`, for whoever names it.
    ///
    /// # Errors
    /// When it is none, or has no modules.
    pub fn user_mode_linux_at(path: &Path) -> Result<Self, KernelError> {
        user_mode_linux::at(path)
    }

    /// Whether it boots in a virtual machine on KVM, rather than being a program.
    pub fn is_for_kvm(&self) -> bool {
        matches!(self.kind, Kind::VirtualMachine)
    }

    /// What is wrong with it if it is no Linux. Looked at when it does not start: to read all of it takes a while.
    pub(crate) fn is_no_linux(&self) -> Option<String> {
        match self.kind {
            Kind::Program { ref opened, named, .. } => user_mode_linux::is_no_linux(opened, &self.file, named),
            Kind::VirtualMachine => None,
        }
    }

    /// The directory of its modules and depmod(8)'s tables, if it has any.
    pub fn modules(&self) -> Option<&Path> {
        self.modules.as_deref()
    }

    /// Whether the guest's processes can work with it by signals (User-Mode Linux 6.16).
    pub fn has_seccomp_mode(&self) -> bool {
        const FIRST: (u32, u32) = (6, 16);
        match self.kind {
            Kind::Program { version, .. } => version.is_none_or(|version| version >= FIRST),
            Kind::VirtualMachine => false,
        }
    }

    /// What is executed, where it is a program.
    pub(crate) fn program(&self) -> Option<&Arc<File>> {
        match &self.kind {
            Kind::Program { opened, .. } => Some(opened),
            Kind::VirtualMachine => None,
        }
    }

    /// What it goes on executing when it has started, where it is a program.
    pub(crate) fn executes(&self) -> Option<Executes> {
        match self.kind {
            Kind::Program { version, .. } => Some(user_mode_linux::executes(version)),
            Kind::VirtualMachine => None,
        }
    }
}

/// The names in a directory; none where it cannot be listed.
fn names_in(directory: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Uid, chown};

    #[test]
    fn modules_that_somebody_else_has_put_beside_a_kernel_are_not_its_own() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("lib/modules/6.1")).unwrap();
        fs::create_dir(at("boot")).unwrap();
        fs::write(at("boot/vmlinuz-6.1"), "").unwrap();
        assert!(are_its_own(&at("boot/vmlinuz-6.1"), &at("lib/modules/6.1")));
        assert!(!are_its_own(&at("boot/vmlinuz-6.1"), &at("lib/modules/none")));
        if geteuid().is_root() {
            chown(at("lib"), Some(Uid::from_raw(12345)), None).unwrap();
            assert!(!are_its_own(&at("boot/vmlinuz-6.1"), &at("lib/modules/6.1")));
            chown(at("boot/vmlinuz-6.1"), Some(Uid::from_raw(12345)), None).unwrap();
            assert!(are_its_own(&at("boot/vmlinuz-6.1"), &at("lib/modules/6.1")));
        }
    }
}
