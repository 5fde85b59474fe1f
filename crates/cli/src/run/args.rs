//! `blockyard run`: its options, and what they may be.

use anyhow::Result;
use blockyard_block::size;
use blockyard_block::specification::DiskSpecification;
use blockyard_command_line::time;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_run::Configuration;
use blockyard_run::configuration::{Backend, DiskBus, EngineName, GuestDisk, Place, Share};
use blockyard_vmm::placement::CpuList;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// Boot Linux in a virtual machine whose console is the terminal.
///
/// IMAGE and DISK are disk specifications, [KIND:]PATH[,KEY=VALUE...], such as disk.img, vm.qcow2,ro, session:vm.sock
/// or mem:1G: the guest's disks, IMAGE first. Ctrl-A x leaves the machine, which is as pulling its plug; Ctrl-A Ctrl-A
/// is one Ctrl-A for the guest. Where stdin is no terminal, what comes from there is typed, and nothing of it is taken
/// for keys of ours.
///
/// There are no network devices, and nothing of a machine changes while it runs.
///
/// Exit status: 0 when the guest switched itself off or was left, 1 on failure (a guest that crashes, --timeout), 2 on
/// wrong usage, 130 when Ctrl-C ended it, 143 when SIGTERM did.
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct RunArgs {
    /// The guest's first disk.
    #[arg(value_name = "IMAGE")]
    image: Option<String>,
    /// Kernel to boot: a bzImage, as distributions have it in /boot/vmlinuz, or an ELF vmlinux [default: what IMAGE's
    /// boot loader would take]. With User-Mode Linux, another such program [default: linux.uml, as it is installed].
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Initial file system for it. With User-Mode Linux, in place of IMAGE's system.
    #[arg(long, value_name = "FILE", requires = "kernel")]
    initrd: Option<PathBuf>,
    /// The kernel's command line; console=ttyS0 goes before it unless it has a console of its own. Without --kernel,
    /// what is added to the boot loader's; with User-Mode Linux, to what that kernel needs: root=, rootflags=, ro and
    /// init= say which system of IMAGE's it becomes. Most kernels take 2047 bytes.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Option<String>,
    /// One more disk; may be repeated.
    #[arg(long, value_name = "DISK")]
    disk: Vec<String>,
    /// What the guest sees the disks as: virtio-blk on PCI, the same in the ACPI tables, or ports of an AHCI
    /// controller.
    #[arg(long, value_enum, value_name = "BUS", default_value = "virtio")]
    bus: BusArg,
    /// How the host reads and writes files that do not say engine=: each queue's own thread itself (sync), a pool of
    /// threads, or io_uring [default: uring where it is to be had].
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<EngineArg>,
    /// Drop what the guest writes to its disks when the machine ends.
    #[arg(long)]
    snapshot: bool,
    /// Directory that the guest mounts as TAG: for reading only (ro), or to write no more than SIZE into it each time
    /// that it boots; may be repeated.
    #[arg(long, value_name = "DIR:TAG[,ro][,limit=SIZE]")]
    share: Vec<Share>,
    /// vCPUs, from 1 to 255 [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// Memory, in whole MiB: 16M or more, with User-Mode Linux 64M or more [default: 1G].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// CPUs of the vCPUs: one of its own for each but the first, which has that of the I/O threads (shared), or for all
    /// (disjoint), or the nth of a list such as 0,2 for vCPU n [default: wherever there is time].
    #[arg(long, value_name = "shared|disjoint|LIST")]
    place: Option<Place>,
    /// CPUs of the I/O threads, like 0,2 or 0-1; thread n runs on the nth.
    #[arg(long, value_name = "LIST")]
    io_cpus: Option<CpuList>,
    /// Who executes the guest: KVM where it executes guest code natively and User-Mode Linux elsewhere (auto), or one
    /// of them.
    #[arg(long, value_enum, value_name = "BACKEND")]
    backend: Option<BackendArg>,
    /// End when the guest reboots, instead of booting it again.
    #[arg(long)]
    no_reboot: bool,
    /// Let the processes of User-Mode Linux work with its kernel by signals instead of being traced: faster, where it
    /// can (Linux 6.16), but each of them can then read all of the guest's memory.
    #[arg(long)]
    uml_seccomp: bool,
    /// Stop the machine after so long, as a failure; what looks for a kernel in IMAGE first counts, too. 0 never does.
    #[arg(long, value_name = "SECONDS", value_parser = time::seconds)]
    timeout: Option<Duration>,
    /// Directory that an image's backing and data files may lie in; may be repeated.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// The key of encrypted volumes (LUKS) that IMAGE's system lies in; without, it is asked for at the terminal.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The key of one encrypted volume, which may be named by its UUID; may be repeated.
    #[arg(long, value_name = "VOLUME:file:FILE")]
    key: Vec<String>,
    /// Take the machine from a TOML file. What else is said here goes before what it says; disks, shares and
    /// directories come to those that it has. Names in it start from the current directory, as here.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the machine as a TOML file for --config, and run nothing.
    #[arg(long)]
    pub print_config: bool,
    /// End as by SIGTERM when the thread of this process ends that has started this one.
    #[arg(long, value_name = "PID", hide = true)]
    pub ends_with: Option<i32>,
    /// Print on stderr what the machine cost: exits, requests, time. Of one that failed, too, before the failure.
    #[arg(long)]
    pub stats: bool,
    /// With --stats: print it as one JSON object.
    #[arg(long, requires = "stats")]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BackendArg {
    Auto,
    Kvm,
    Uml,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BusArg {
    Virtio,
    VirtioMmio,
    Ahci,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum EngineArg {
    Sync,
    Threads,
    Uring,
}

impl RunArgs {
    /// The machine that is wanted.
    ///
    /// # Errors
    /// [`UsageError`], with a sentence on what does not fit and what would; or the file of --config cannot be read.
    pub fn configuration(&self) -> Result<Configuration> {
        let mut machine = match &self.config {
            Some(file) => Configuration::read(file)?,
            None => Configuration::default(),
        };
        if let Some(backend) = self.backend {
            machine.backend = backend.into();
        }
        if let Some(kernel) = &self.kernel {
            // They belong together.
            (machine.kernel, machine.initrd) = (Some(kernel.clone()), self.initrd.clone());
        }
        replace(&mut machine.append, &self.append);
        replace(&mut machine.place, &self.place);
        replace(&mut machine.io_cpus, &self.io_cpus);
        if let Some(engine) = self.engine {
            machine.engine = Some(engine.into());
        }
        machine.cpus = self.cpus.unwrap_or(machine.cpus);
        machine.memory = self.memory.unwrap_or(machine.memory);
        machine.snapshot |= self.snapshot;
        machine.no_reboot |= self.no_reboot;
        machine.uml_seccomp |= self.uml_seccomp;
        if let Some(timeout) = self.timeout {
            machine.timeout = Some(timeout).filter(|timeout| !timeout.is_zero());
        }
        machine.allow_dirs.extend(self.allow_dir.iter().cloned());
        replace(&mut machine.key_file, &self.key_file);
        machine.keys.extend(self.key.iter().cloned());
        machine.shares.extend(self.share.iter().cloned());
        let more = self.disk.iter().map(|disk| guest_disk(disk, self.bus)).collect::<Result<Vec<_>>>()?;
        if let Some(image) = &self.image {
            machine.disks.insert(0, guest_disk(image, self.bus)?);
        }
        machine.disks.extend(more);
        machine.check().map_err(|error| UsageError(error.to_string()))?;
        Ok(machine)
    }
}

/// The disk of this name on this bus.
///
/// # Errors
/// [`UsageLines`] when it is no disk specification.
pub fn guest_disk(text: &str, bus: BusArg) -> Result<GuestDisk> {
    let name: DiskSpecification = text.parse().map_err(UsageLines::from)?;
    Ok(GuestDisk { name, bus: bus.into() })
}

impl From<BackendArg> for Backend {
    fn from(argument: BackendArg) -> Self {
        match argument {
            BackendArg::Auto => Self::Auto,
            BackendArg::Kvm => Self::Kvm,
            BackendArg::Uml => Self::Uml,
        }
    }
}

impl From<BusArg> for DiskBus {
    fn from(argument: BusArg) -> Self {
        match argument {
            BusArg::Virtio => Self::Virtio,
            BusArg::VirtioMmio => Self::VirtioMmio,
            BusArg::Ahci => Self::Ahci,
        }
    }
}

impl From<EngineArg> for EngineName {
    fn from(argument: EngineArg) -> Self {
        match argument {
            EngineArg::Sync => Self::Sync,
            EngineArg::Threads => Self::Threads,
            EngineArg::Uring => Self::Uring,
        }
    }
}

fn replace<T: Clone>(place: &mut Option<T>, value: &Option<T>) {
    if value.is_some() {
        place.clone_from(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        run: RunArgs,
    }

    fn machine(arguments: &[&str]) -> Result<Configuration, String> {
        let command = Command::try_parse_from([&["run"], arguments].concat()).map_err(|error| error.to_string())?;
        command.run.configuration().map_err(|error| error.to_string())
    }

    #[test]
    fn the_image_is_the_first_disk() {
        let machine = machine(&["--disk", "b.img", "a.qcow2", "--disk", "mem:1G", "--bus", "virtio-mmio"]).unwrap();
        let names: Vec<_> = machine.disks.iter().map(|disk| disk.name.to_string()).collect();
        assert_eq!(names, ["a.qcow2", "b.img", "mem:1G"]);
        assert!(machine.disks.iter().all(|disk| disk.bus == DiskBus::VirtioMmio));
    }

    #[test]
    fn options_go_before_the_file_and_disks_beside_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let written = "kernel = 'k'\ninitrd = 'i'\ncpus = 2\ntimeout = 5\n[[disk]]\nname = 'own.img'\n";
        std::fs::write(&file, written).unwrap();
        let config = ["--config", file.path().to_str().unwrap()];
        let plain = machine(&config).unwrap();
        assert_eq!((plain.cpus, plain.initrd.as_deref()), (2, Some("i".as_ref())));
        let other =
            machine(&[&config[..], &["a.img", "--cpus", "3", "--kernel", "x", "--timeout", "0"]].concat()).unwrap();
        assert_eq!((other.cpus, other.initrd, other.timeout), (3, None, None));
        let names: Vec<_> = other.disks.iter().map(|disk| disk.name.to_string()).collect();
        assert_eq!(names, ["a.img", "own.img"]);
    }

    #[test]
    fn refuses_options_that_do_not_fit() {
        for (arguments, word) in [
            (&[][..], "IMAGE"),
            (&["--initrd", "i"], "--kernel"),
            (&["--kernel", "k", "--cpus", "0"], "0"),
            (&["--kernel", "k", "--cpus", "256"], "256"),
            (&["--kernel", "k", "--memory", "1000"], "MiB"),
            (&["--kernel", "k", "--memory", "0"], "MiB"),
            (&["--kernel", "k", "--place", "moon"], "disjoint"),
            (&["--kernel", "k", "--share", "work"], "DIR:TAG"),
            (&["--kernel", "k", "--share", "a:t", "--share", "b:t"], "twice"),
            (&["--kernel", "k", "--append", "a\0b"], "zero byte"),
            (&["--kernel", "k", "--disk", "a,colour=red"], "colour"),
            (&["--kernel", "k", "--disk", "a,overlay=b", "--snapshot"], "contradict"),
            (&["--kernel", "k", "--json"], "--stats"),
            (&["a", "b"], "unexpected"),
        ] {
            let message = machine(arguments).unwrap_err();
            assert!(message.contains(word), "{arguments:?}: {message}");
        }
    }
}
