//! A PC with a kernel of Debian's and an init that is a script.

use blockyard_block::Disk;
use blockyard_devices::serial::NoInput;
use blockyard_hypervisor::kvm::KvmHypervisor;
use blockyard_linux_guest::write_initramfs_with;
use blockyard_vmm::machine::RunningMachine;
use blockyard_vmm::pc::kernel::Kernel;
use blockyard_vmm::pc::{Pc, PcMemory, PowerRequest, VirtioTransport};
use blockyard_vmm::placement::Placement;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A lab on a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is to be booted.
pub(crate) struct Rig {
    pub(crate) kernel: PathBuf,
    modules: Vec<(String, Vec<u8>)>,
    /// Files of this machine's that the guest has too.
    files: Vec<(PathBuf, Vec<u8>)>,
    pub(crate) vcpus: u32,
    pub(crate) memory_bytes: u64,
    pub(crate) command_line: String,
    pub(crate) disks: Vec<Arc<dyn Disk>>,
    pub(crate) ahci_disks: Vec<Arc<dyn Disk>>,
    pub(crate) transport: VirtioTransport,
    pub(crate) has_entropy: bool,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Power(PowerRequest),
    /// Something happened that should not.
    Machine(String),
}

impl Rig {
    /// Debian's kernel for virtual machines; `None` where there is no kernel to boot.
    pub(crate) fn new() -> Option<Self> {
        Self::with_kernel("")
    }

    /// The kernel that Debian installs on a PC.
    pub(crate) fn generic() -> Option<Self> {
        Self::with_kernel("generic")
    }

    fn with_kernel(place: &str) -> Option<Self> {
        let Some(directory) = std::env::var_os("BLOCKYARD_LAB_GUEST").map(PathBuf::from) else {
            eprintln!("runs in the lab: cargo xtask lab");
            return None;
        };
        let directory = directory.join(place);
        let mut modules: Vec<_> =
            fs::read_dir(directory.join("modules")).unwrap().map(|entry| entry.unwrap()).collect();
        modules.sort_by_key(|entry| entry.file_name());
        let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
        Some(Self {
            kernel: directory.join("vmlinuz"),
            modules: modules.iter().map(|entry| (name(entry), fs::read(entry.path()).unwrap())).collect(),
            vcpus: 1,
            memory_bytes: 256 << 20,
            command_line: "console=ttyS0 quiet panic=-1".to_owned(),
            disks: Vec::new(),
            ahci_disks: Vec::new(),
            files: Vec::new(),
            transport: VirtioTransport::default(),
            has_entropy: false,
        })
    }

    /// Gives the guest a program of the lab's, with its libraries.
    pub(crate) fn take_along(&mut self, program: &str) {
        let traced = Command::new(program).env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
        let traced = String::from_utf8(traced.stdout).unwrap();
        let libraries = traced.split_whitespace().filter(|word| word.starts_with('/'));
        for file in libraries.chain([program]).map(PathBuf::from) {
            let content = fs::read(&file).unwrap();
            self.files.push((file, content));
        }
    }

    /// Boots it with an init that runs `script` and powers off; what it printed.
    pub(crate) fn boot_to_power_off(&self, script: &str) -> String {
        let (end, printed) = self.boot(script);
        assert_eq!(end, End::Power(PowerRequest::Off), "{printed}");
        printed
    }

    /// Boots it with an init that runs `script` and powers off; how it ended, and what it printed.
    pub(crate) fn boot(&self, script: &str) -> (End, String) {
        let path = std::env::temp_dir().join(format!("initramfs-{:?}", std::thread::current().id()));
        let modules: Vec<_> = self.modules.iter().map(|(name, content)| (name.as_str(), &content[..])).collect();
        let files: Vec<_> = self.files.iter().map(|(path, content)| (path.as_path(), &content[..])).collect();
        write_initramfs_with(&path, &modules, &files, script).unwrap();
        let initrd = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();

        let printed = Arc::new(Mutex::new(Vec::new()));
        let (sender, ends) = mpsc::channel();
        let mut machine = self.start(&initrd, Arc::clone(&printed), sender);
        let end = wait(&ends, &printed);
        machine.stop();
        eprintln!("{:?}", machine.exits());
        let printed = printed.lock().unwrap();
        (end, String::from_utf8_lossy(&printed).into_owned())
    }

    fn start(&self, initrd: &File, printed: Arc<Mutex<Vec<u8>>>, sender: Sender<End>) -> RunningMachine {
        let hypervisor = KvmHypervisor::open().unwrap();
        let ends = sender.clone();
        let power = Arc::new(move |request| _ = ends.send(End::Power(request)));
        let events = Arc::new(move |event| _ = sender.send(End::Machine(format!("{event:?}"))));
        let memory = PcMemory { bytes: self.memory_bytes, shared: false };
        let mut pc = Pc::new(&hypervisor, self.vcpus, memory, Placement::default(), power, events).unwrap();
        let output = Box::new(move |bytes: &[u8]| printed.lock().unwrap().extend(bytes));
        pc.attach_console(output, Box::new(NoInput)).unwrap();
        for disk in &self.disks {
            pc.attach_disk(Arc::clone(disk), self.vcpus as u16, self.transport).unwrap();
        }
        for disk in &self.ahci_disks {
            pc.attach_ahci_disk(Arc::clone(disk)).unwrap();
        }
        if self.has_entropy {
            pc.attach_entropy(self.transport).unwrap();
        }
        let image = File::open(&self.kernel).unwrap();
        pc.start(&Kernel { image: &image, initrd: Some(initrd), command_line: &self.command_line }).unwrap()
    }
}

fn wait(ends: &Receiver<End>, printed: &Mutex<Vec<u8>>) -> End {
    ends.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let printed = printed.lock().unwrap();
        panic!("the guest does not end; it printed\n{}", String::from_utf8_lossy(&printed))
    })
}
