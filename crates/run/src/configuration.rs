//! What a machine is made of, as a value that a TOML file can hold.

mod share;
mod text;

use crate::LOOK_INTERVAL;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Engine, read_named_text, shown};
use blockyard_image::{Keys, Watch};
use blockyard_vmm::placement::CpuList;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

pub use crate::placement::{BadPlace, Place};
pub use share::{BadShare, Share};

/// A machine. Its names are an interface: people write them into files ([`Configuration::read`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Configuration {
    /// Who executes the guest.
    pub backend: Backend,
    /// The kernel; without one, the first disk's own.
    pub kernel: Option<PathBuf>,
    /// The initial file system.
    pub initrd: Option<PathBuf>,
    /// The kernel's command line; with a kernel of the first disk's own, what is added to the one that it has.
    pub append: Option<String>,
    /// vCPUs.
    pub cpus: u32,
    /// Bytes of memory.
    #[serde(with = "text::bytes")]
    pub memory: u64,
    /// Where the vCPUs run.
    #[serde(with = "text::optional")]
    pub place: Option<Place>,
    /// Where the I/O threads run.
    #[serde(with = "text::optional")]
    pub io_cpus: Option<CpuList>,
    /// How those files are read and written that do not say it themselves.
    pub engine: Option<EngineName>,
    /// Whether what is written to disks is dropped at the end.
    pub snapshot: bool,
    /// Whether the machine ends when the guest reboots.
    pub no_reboot: bool,
    /// Whether processes of a User-Mode Linux work with its kernel by signals, which each of them can then read.
    pub uml_seccomp: bool,
    /// Longest time that the machine may run.
    #[serde(with = "text::seconds")]
    pub timeout: Option<Duration>,
    /// Directories that images' backing and data files may lie in.
    pub allow_dirs: Vec<PathBuf>,
    /// The file with the key of encrypted volumes that the system of the first disk lies in.
    pub key_file: Option<PathBuf>,
    /// Keys of single ones: `VOLUME:file:FILE`.
    #[serde(rename = "key")]
    pub keys: Vec<String>,
    /// The disks, in the guest's order.
    #[serde(rename = "disk")]
    pub disks: Vec<GuestDisk>,
    /// Directories of the host's that the guest may mount.
    #[serde(rename = "share")]
    pub shares: Vec<Share>,
}

/// Enough for a distribution's kernel, its initrd and a small system.
const MEMORY_BYTES_DEFAULT: u64 = 1 << 30;
/// As many as an APIC has numbers for.
const VCPUS_MAX: u32 = 255;
/// More is no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Default for Configuration {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            kernel: None,
            initrd: None,
            append: None,
            cpus: 1,
            memory: MEMORY_BYTES_DEFAULT,
            place: None,
            io_cpus: None,
            engine: None,
            snapshot: false,
            no_reboot: false,
            uml_seccomp: false,
            timeout: None,
            allow_dirs: Vec::new(),
            key_file: None,
            keys: Vec::new(),
            disks: Vec::new(),
            shares: Vec::new(),
        }
    }
}

/// Who executes the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// KVM where it executes guest code natively, and User-Mode Linux elsewhere.
    #[default]
    Auto,
    /// /dev/kvm.
    Kvm,
    /// User-Mode Linux: a kernel that is an ordinary program.
    Uml,
}

/// A disk of the guest's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GuestDisk {
    /// Which disk.
    #[serde(with = "text::plain")]
    pub name: DiskSpecification,
    /// What the guest sees it as.
    #[serde(default)]
    pub bus: DiskBus,
}

/// What a guest sees a disk as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskBus {
    /// virtio-blk as a PCI function, with a queue for each vCPU.
    #[default]
    Virtio,
    /// virtio-blk behind memory-mapped registers, named in the ACPI tables.
    VirtioMmio,
    /// A port of an AHCI controller, for guests without drivers for virtio.
    Ahci,
}

/// How the host reads and writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// Each request is done where it is made, by the queue's own thread.
    Sync,
    /// By a pool of threads.
    Threads,
    /// By io_uring.
    Uring,
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Sync => Self::Sync,
            EngineName::Threads => Self::Threads,
            EngineName::Uring => Self::Uring,
        }
    }
}

impl Configuration {
    /// Reads a TOML file. What it does not say is as by default; paths in it are as seen from the current directory.
    ///
    /// # Errors
    /// When it cannot be read, or is no configuration: the sentence has the line.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_named_text(path, "the configuration", FILE_BYTES_MAX)?;
        Self::from_toml(&text).with_context(|| format!("{} is no configuration", shown(path)))
    }

    /// Parses TOML.
    ///
    /// # Errors
    /// When it is none, or says what a configuration does not know.
    pub fn from_toml(text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let sentence = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            let before = error.span().map(|span| text.bytes().take(span.start));
            match before.map(|bytes| bytes.filter(|&byte| byte == b'\n').count() + 1) {
                Some(line) => anyhow!("line {line}: {sentence}"),
                None => anyhow!(sentence),
            }
        })
    }

    /// The whole of it as TOML, from which [`Configuration::from_toml`] makes the same.
    ///
    /// # Errors
    /// When a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).context("this cannot be written down as TOML, which is UTF-8")
    }

    /// Checks that its parts fit each other, wherever they come from.
    ///
    /// # Errors
    /// A sentence on what does not fit.
    pub fn check(&self) -> Result<()> {
        if self.kernel.is_none() && self.disks.is_empty() {
            bail!("there is nothing to boot: name an IMAGE that has a kernel, or one with --kernel");
        }
        if !(1..=VCPUS_MAX).contains(&self.cpus) {
            bail!("{} vCPUs: 1 to {VCPUS_MAX} are possible", self.cpus);
        }
        if self.memory == 0 || !self.memory.is_multiple_of(1 << 20) {
            bail!("{} bytes of memory: whole MiB are possible, such as 512M", self.memory);
        }
        if self.append.as_ref().is_some_and(|words| words.contains('\0')) {
            bail!("a kernel's command line has no zero byte in it");
        }
        for (index, share) in self.shares.iter().enumerate() {
            if self.shares[..index].iter().any(|other| other.tag == share.tag) {
                bail!("two shares cannot both be called {}: the tag is there twice", share.tag);
            }
        }
        Keys::check(&self.keys)?;
        self.disks_to_open().map(drop)
    }

    /// Whether keys are given, which only who looks for the first disk's own system has a use for.
    pub(crate) fn has_keys(&self) -> bool {
        self.key_file.is_some() || !self.keys.is_empty()
    }

    /// The keys that are given. Somebody may have to write them first, as into a pipe: whoever is not to wait for that
    /// any longer says so by `watch`.
    ///
    /// # Errors
    /// When one is not said as it has to be, or a file cannot be read; when it ends before.
    pub(crate) fn read_keys(&self, watch: &dyn Watch) -> Result<Keys> {
        if !self.has_keys() {
            return Ok(Keys::default());
        }
        let (file, given) = (self.key_file.clone(), self.keys.clone());
        let (sender, read) = mpsc::sync_channel(1);
        // Where nobody waits any more, this process ends.
        let reading = move || _ = sender.send(Keys::read(file.as_deref(), &given));
        thread::Builder::new().name("keys".to_owned()).spawn(reading).context("reading the keys")?;
        loop {
            match read.recv_timeout(LOOK_INTERVAL) {
                Ok(keys) => return Ok(keys?),
                Err(RecvTimeoutError::Disconnected) => bail!("the keys were not read"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(signal) = watch.ends() {
                bail!("stopped by {signal}");
            }
        }
    }

    /// The disks as they are to be opened.
    ///
    /// # Errors
    /// When changes to one cannot be dropped.
    pub(crate) fn disks_to_open(&self) -> Result<Vec<DiskSpecification>> {
        let to_open = |disk: &GuestDisk| {
            let name = match self.engine {
                Some(engine) => disk.name.clone().or_engine(engine.into()),
                None => disk.name.clone(),
            };
            if self.snapshot { Ok(name.or_snapshot()?) } else { Ok(name) }
        };
        self.disks.iter().map(to_open).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Configuration {
        Configuration {
            backend: Backend::Kvm,
            kernel: Some("vmlinuz".into()),
            append: Some("root=/dev/vda1 \"quoted\"".into()),
            cpus: 4,
            memory: 2 << 30,
            place: Some(Place::Disjoint),
            io_cpus: Some("0,2".parse().unwrap()),
            engine: Some(EngineName::Threads),
            timeout: Some(Duration::from_millis(1500)),
            allow_dirs: vec!["images".into()],
            key_file: Some("key".into()),
            keys: vec!["vda2:file:other".into()],
            disks: vec![
                GuestDisk { name: "a.qcow2,ro".parse().unwrap(), bus: DiskBus::Virtio },
                GuestDisk { name: "session:b.sock".parse().unwrap(), bus: DiskBus::VirtioMmio },
            ],
            shares: vec!["./work:work,ro,limit=3M".parse().unwrap()],
            ..Configuration::default()
        }
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        for configuration in [Configuration::default(), example()] {
            let text = configuration.to_toml().unwrap();
            assert_eq!(Configuration::from_toml(&text).unwrap(), configuration, "{text}");
        }
        let text = example().to_toml().unwrap();
        for line in ["memory = \"2G\"", "place = \"disjoint\"", "timeout = 1.5", "[[disk]]", "name = \"a.qcow2,ro\""] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }

    #[test]
    fn what_nobody_knows_is_refused_with_its_line() {
        for (text, expected) in [
            ("cpus = 2\ncolour = 'red'", "colour"),
            ("memory = 'much'", "much"),
            ("[[disk]]\nname = 'a,colour=red'", "colour"),
            ("[[share]]\ndirectory = 'a'", "tag"),
            ("timeout = -1", "seconds"),
            ("cpus = -1", "-1"),
            ("place = 'moon'", "moon"),
            ("backend = 'xen'", "xen"),
        ] {
            let error = format!("{:#}", Configuration::from_toml(text).unwrap_err());
            assert!(error.contains(expected) && error.starts_with("line ") && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn changes_are_dropped_where_that_is_asked_for() {
        let mut configuration = example();
        configuration.snapshot = true;
        configuration.disks[1].name = "b.img".parse().unwrap();
        let names: Vec<_> = configuration.disks_to_open().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["a.qcow2,ro,engine=threads", "b.img,engine=threads,snapshot"]);
        configuration.disks[1].name = "b.img,overlay=c.delta".parse().unwrap();
        assert!(configuration.disks_to_open().unwrap_err().to_string().contains("contradict"));
    }

    /// Any text is a configuration, which can be written and read again, or an error.
    #[test]
    fn any_text_is_read_or_refused() {
        blockyard_fuzz::check!(2000).with_type::<String>().for_each(|text| {
            if let Ok(configuration) = Configuration::from_toml(text) {
                let written = configuration.to_toml().unwrap();
                assert_eq!(Configuration::from_toml(&written).unwrap(), configuration);
            }
        });
    }
}
