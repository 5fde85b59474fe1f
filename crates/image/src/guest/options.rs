//! How an appliance is booted with an image's disks.

use super::OpenImage;
use crate::Watch;
use crate::error::{Context, Result};
use crate::volumes::keys::Keys;
use blockyard_appliance::{
    Appliance, ApplianceOptions, Backend, Confined, ImageDisk, Kernel, SystemOptions, kernel_process,
};
use blockyard_block::AtomicChange;
use blockyard_protocol::volume_name;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// PID 1 of the appliance.
static AGENT: &[u8] = include_bytes!(env!("BLOCKYARD_AGENT"));

/// Disks that have a name of one letter, but for two that data go through.
pub const DISKS_MAX: usize = volume_name::DISKS_MAX as usize;

/// What is wanted of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its contents: nothing is written to it.
    Read,
    /// To change it.
    Write,
}

/// What an appliance is made of, and which process becomes its kernel.
#[derive(Clone, Debug)]
pub struct Resources {
    /// The kernel.
    pub kernel: Kernel,
    /// A program that calls [`become_kernel`] before anything else when it is executed with the arguments that follow
    /// and then some.
    pub launcher: PathBuf,
    /// Those arguments.
    pub launcher_arguments: Vec<&'static str>,
}

impl Resources {
    /// This machine's kernel, and this very program, whose `main` calls [`become_kernel`] before anything else when its
    /// arguments begin with `argument`. If it does not, an image is not booted.
    ///
    /// # Errors
    /// When this machine has no kernel for it.
    pub fn find(argument: &'static str) -> Result<Self> {
        Self::find_for(Backend::Auto, argument)
    }

    /// The same, with a guest that this backend executes.
    ///
    /// # Errors
    /// When this machine has no kernel for it.
    pub fn find_for(backend: Backend, argument: &'static str) -> Result<Self> {
        Ok(Self::with_kernel(Kernel::find(backend)?, argument))
    }

    /// The same with this kernel.
    pub fn with_kernel(kernel: Kernel, argument: &'static str) -> Self {
        Self { kernel, launcher: "/proc/self/exe".into(), launcher_arguments: vec![argument] }
    }
}

/// Becomes the kernel of the appliance that started this process, which is to have no other threads then. `arguments`
/// are those behind the one of [`Resources::find`].
///
/// # Errors
/// When it cannot.
pub fn become_kernel(arguments: &[OsString], argument: &str) -> Result<Infallible> {
    kernel_process::run(arguments, &[argument]).context("cannot start the appliance's kernel")
}

/// An image's disks, and how they are opened in an appliance.
pub struct ImageOptions {
    pub(crate) disks: Vec<ImageDisk>,
    pub(crate) access: Access,
    pub(crate) memory_bytes: u64,
    pub(crate) raid6: bool,
    pub(crate) timeout: Duration,
    pub(crate) synchronous: bool,
    pub(crate) durable: bool,
    pub(crate) lives_on: bool,
    pub(crate) keys: Keys,
    pub(crate) change: Option<AtomicChange>,
    pub(crate) permissions: Option<u32>,
    pub(crate) system: Option<SystemOptions>,
}

impl ImageOptions {
    /// Memory that an appliance has unless somebody says otherwise.
    pub const MEMORY_BYTES: u64 = 256 << 20;
    /// How long it may do nothing unless somebody says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(60);

    /// The disks of an image, the appliance's first, to be changed.
    pub fn new(disks: Vec<ImageDisk>) -> Self {
        Self {
            disks,
            access: Access::Write,
            memory_bytes: Self::MEMORY_BYTES,
            raid6: false,
            timeout: Self::TIMEOUT,
            synchronous: false,
            durable: true,
            lives_on: false,
            keys: Keys::default(),
            change: None,
            permissions: None,
            system: None,
        }
    }

    /// What is wanted of the image.
    #[must_use]
    pub fn access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// The appliance's memory.
    #[must_use]
    pub fn memory_bytes(self, memory_bytes: u64) -> Self {
        Self { memory_bytes, ..self }
    }

    /// Whether the appliance's kernel finds out how to compute the second parity of RAID 6, which takes it a while.
    #[must_use]
    pub fn raid6(self, raid6: bool) -> Self {
        Self { raid6, ..self }
    }

    /// It is given up when nothing has moved for so long, or nothing new for 30 times as long.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Whether everything is written at once, as `mount -o sync` does.
    #[must_use]
    pub fn synchronous(self, synchronous: bool) -> Self {
        Self { synchronous, ..self }
    }

    /// Whether files of the host that are written are on stable storage before a function returns.
    #[must_use]
    pub fn durable(self, durable: bool) -> Self {
        Self { durable, ..self }
    }

    /// Whether [`Watch::ends`] ends what is asked of the appliance, and not the appliance.
    #[must_use]
    pub fn lives_on(self, lives_on: bool) -> Self {
        Self { lives_on, ..self }
    }

    /// The keys of encrypted volumes.
    #[must_use]
    pub fn keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    /// What makes the changes happen, as a whole, when the image is closed: the disks are that change's.
    #[must_use]
    pub fn change(self, change: Option<AtomicChange>) -> Self {
        Self { change, ..self }
    }

    /// What the permission bits of the disks' files allow: what is made of all of a disk is for nobody else.
    #[must_use]
    pub fn permissions(self, permissions: Option<u32>) -> Self {
        Self { permissions, ..self }
    }

    /// That the guest shall be handed over to the system in the image ([`OpenImage::hand_over`]), and what that is
    /// told.
    #[must_use]
    pub fn system(self, system: SystemOptions) -> Self {
        Self { system: Some(system), ..self }
    }

    /// Boots an appliance with the disks. Nothing is mounted yet.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(self, resources: Resources, watch: Arc<dyn Watch>) -> Result<OpenImage> {
        OpenImage::boot(self, resources, watch)
    }
}

/// What became of an appliance that was booted without a disk.
#[derive(Clone, Debug)]
pub struct Trial {
    /// How far it was shut in.
    pub confined: Confined,
    /// What its kernel says that it is.
    pub kernel_release: String,
    /// How long it took until its agent was there.
    pub boot: Duration,
}

/// Boots an appliance without a disk, as a trial.
///
/// # Errors
/// When it does not come up.
pub fn try_appliance(resources: Resources, watch: Arc<dyn Watch>) -> Result<Trial> {
    let options = ImageOptions::new(Vec::new());
    let boot = Boot {
        resources,
        disks: Vec::new(),
        memory_bytes: options.memory_bytes,
        raid6: options.raid6,
        timeout: options.timeout,
        lives_on: options.lives_on,
        system: options.system,
        watch,
    };
    let begin = Instant::now();
    let appliance = boot.boot()?;
    let boot = begin.elapsed();
    Ok(Trial { confined: appliance.confined(), kernel_release: appliance.kernel_release().to_owned(), boot })
}

/// How an appliance is booted, and booted again.
pub(crate) struct Boot {
    pub(crate) resources: Resources,
    pub(crate) disks: Vec<ImageDisk>,
    pub(crate) memory_bytes: u64,
    pub(crate) raid6: bool,
    pub(crate) timeout: Duration,
    pub(crate) lives_on: bool,
    pub(crate) system: Option<SystemOptions>,
    pub(crate) watch: Arc<dyn Watch>,
}

impl Boot {
    pub(crate) fn boot(&self) -> Result<Appliance> {
        let watch = Arc::clone(&self.watch);
        let Resources { kernel, launcher, launcher_arguments } = self.resources.clone();
        let options = ApplianceOptions {
            kernel,
            agent: AGENT,
            launcher: (launcher, launcher_arguments),
            memory_bytes: self.memory_bytes,
            raid6: self.raid6,
            timeout: self.timeout,
            console: self.watch.console(),
            interrupted: Box::new(move || watch.ends()),
            system: self.system.clone(),
            lives_on: self.lives_on,
        };
        Ok(Appliance::boot(options, &self.disks)?)
    }
}
