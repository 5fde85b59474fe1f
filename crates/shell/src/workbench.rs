//! What a shell or a script works on: disks, and an appliance that has them.
//!
//! A guest under User-Mode Linux cannot be given a disk while it runs. So when a disk is added later, what is mounted
//! is unmounted, the appliance boots again with all disks, and the same is mounted again: that takes as long as a boot,
//! a fifth of a second. An appliance that is gone is replaced in the same way when the next command needs it.
//!
//! With `--atomic` one image is written, by way of a change that begins when the image is added and happens when all
//! ends well: then all that was done has happened, or else nothing.

use crate::program::Program;
use anyhow::{Result, anyhow, bail};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{AtomicChange, OpenedFile};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::open_image::{OpenArgs, OpenedDisk, both};
use blockyard_command_line::signals::{self, EndSignals};
use blockyard_command_line::terminal;
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::verdict::EndsWith;
use blockyard_command_line::{failures, stdin};
use blockyard_image::guest::{DISKS_MAX, OpenImage, image_path, path_of};
use blockyard_image::volumes::keys::Key;
use blockyard_image::volumes::stacks::{Asking, BOOTS_MAX};
use blockyard_image::{Access, ApplianceError, ImageDisk, Needs};
use blockyard_protocol::appliance::{Entry, MountPoint, Operation};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Disks, the appliance that has them if it runs, and what is mounted in it.
pub(crate) struct Workbench {
    /// How images are opened, and the appliance boots.
    pub how: OpenArgs,
    /// Whose commands there are.
    pub program: Program,
    /// Does what words ask for: the commands stand above this, and some are made of others.
    interpret: Interpret,
    /// What ends a command.
    pub signals: EndSignals,
    drives: Vec<Drive>,
    /// With `--atomic`, of the one disk that is written.
    change: Option<AtomicChange>,
    /// Why that must not happen.
    given_up: Option<&'static str>,
    /// What the permission bits of the disks' files allow.
    permissions: Option<u32>,
    image: Option<OpenImage>,
    points: Vec<MountPoint>,
    /// Encrypted volumes that somebody has opened and named.
    pub mappings: Vec<Mapping>,
    /// Nobody asks for commands any more.
    pub is_over: bool,
    /// There is somebody to talk to.
    pub is_interactive: bool,
}

/// Does what the words of a line ask for.
pub(crate) type Interpret = fn(&mut Workbench, &[OsString]) -> Result<()>;

/// A disk that was added.
pub(crate) struct Drive {
    /// The disk.
    pub image: ImageDisk,
    /// It is not written.
    pub read_only: bool,
}

/// An encrypted volume that is opened as /dev/mapper/`name`.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// As somebody calls it.
    pub device: String,
    /// What it is called when it is open.
    pub name: String,
    /// It is not written.
    pub read_only: bool,
    /// Its key.
    pub key: Key,
}

/// Opens an encrypted volume under a name of somebody's; false when the key is not its.
///
/// # Errors
/// When it is none, or cannot be opened; that the appliance needs more.
pub(crate) fn open_as(image: &mut OpenImage, mapping: &Mapping) -> Result<bool> {
    let Mapping { device, name, read_only, key } = mapping;
    Ok(image.open_encrypted_as(device, name, *read_only, key)?)
}

impl Workbench {
    /// Without disks. What a command is made of goes to `interpret`.
    ///
    /// # Errors
    /// When signals cannot be caught.
    pub(crate) fn new(how: OpenArgs, program: Program, interpret: Interpret) -> Result<Self> {
        Ok(Self {
            how,
            program,
            interpret,
            signals: EndSignals::catch()?,
            drives: Vec::new(),
            change: None,
            given_up: None,
            permissions: None,
            image: None,
            points: Vec::new(),
            mappings: Vec::new(),
            is_over: false,
            is_interactive: false,
        })
    }

    fn access(&self) -> Access {
        if self.how.ro { Access::Read } else { Access::Write }
    }

    /// Adds the disk that somebody called `name`, and whose file may be open already; if the appliance runs, it boots
    /// again when it is needed next.
    ///
    /// # Errors
    /// When it cannot be opened, or what is mounted cannot be unmounted.
    pub(crate) fn add(
        &mut self,
        name: &str,
        named: DiskSpecification,
        file: Option<&OpenedFile>,
        read_only: bool,
    ) -> Result<()> {
        if self.drives.len() == DISKS_MAX {
            bail!("an appliance has at most {DISKS_MAX} disks");
        }
        let read_only = read_only || self.how.ro;
        let access = if read_only { Access::Read } else { Access::Write };
        if access == Access::Write && self.change.is_some() {
            let problem = "with --atomic one image is written: several do not change at one moment (`add-ro`?)";
            return Err(UsageError(format!("{name}: {problem}")).into());
        }
        let OpenedDisk { image, change, permissions } = self.how.open_disk(name, named, file, access)?;
        self.change = self.change.take().or(change);
        self.permissions = both(self.permissions, permissions);
        self.stop()?;
        self.drives.push(Drive { image, read_only });
        Ok(())
    }

    /// Lets go of all disks: what was done is on stable storage, and nothing is there any more.
    ///
    /// # Errors
    /// With `--atomic`, where that has an end of its own; when what was written is not on stable storage.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        if self.is_atomic() {
            bail!("with --atomic the change happens at the end: `exit` is that");
        }
        self.unmount_all()?;
        self.stop()?;
        self.mappings.clear();
        self.drives.clear();
        self.permissions = None;
        Ok(())
    }

    /// The disks, in the order of their names in the appliance.
    pub(crate) fn drives(&self) -> &[Drive] {
        &self.drives
    }

    /// What is mounted, in the order in which it was.
    pub(crate) fn points(&self) -> &[MountPoint] {
        &self.points
    }

    /// Whether the appliance runs.
    pub(crate) fn is_running(&self) -> bool {
        self.image.is_some()
    }

    /// The appliance, which boots if it does not run.
    ///
    /// # Errors
    /// When it does not come up, or what was mounted cannot be mounted again.
    pub(crate) fn image(&mut self) -> Result<&mut OpenImage> {
        if self.image.is_none() {
            self.boot()?;
        }
        match &mut self.image {
            Some(image) => Ok(image),
            None => bail!("the appliance does not run"),
        }
    }

    /// Stdin is no command's to read.
    pub(crate) fn commands_come_from_stdin(&mut self) {
        stdin::is_where_commands_come_from();
    }

    fn boot(&mut self) -> Result<()> {
        if self.drives.is_empty() {
            bail!("there is no disk: `add` one");
        }
        let disks: Vec<_> = self.drives.iter().map(|drive| drive.image.clone()).collect();
        let options = self.how.options(disks, self.access())?.lives_on(true).permissions(self.permissions);
        let mut image = self.how.boot(options, self.program.resources, self.signals.clone())?;
        for mapping in &self.mappings {
            image.install_modules()?;
            if image.encrypted(&mapping.device).is_err() {
                image.open_stacks(Asking::Nobody)?;
            }
            if !open_as(&mut image, mapping)? {
                bail!("{}: its key does not open it any more", mapping.device);
            }
        }
        if !self.points.is_empty() {
            // What it was that was mounted is known, so nobody need look for it.
            image.set_points(self.points.clone());
            self.how.mount(&mut image)?;
        }
        self.image = Some(image);
        Ok(())
    }

    /// Mounts what the images say, or `points`.
    ///
    /// # Errors
    /// When it cannot be.
    pub(crate) fn mount_as_found(&mut self, points: Vec<MountPoint>) -> Result<()> {
        self.image()?;
        let Some(image) = &mut self.image else { return Ok(()) };
        image.set_points(points.clone());
        let mounted = self.how.mount(image)?;
        self.points = if points.is_empty() { mounted } else { points };
        Ok(())
    }

    /// Mounts one more, or mounts it in place of what is mounted there.
    ///
    /// # Errors
    /// When it cannot be: what was mounted stays mounted.
    pub(crate) fn mount(&mut self, point: MountPoint) -> Result<()> {
        if self.points.is_empty() && point.directory != b"/" {
            bail!("nothing is mounted: mount something on / first");
        }
        let mut points = self.points.clone();
        points.retain(|there| there.directory != point.directory);
        points.push(point);
        self.change_points(points)
    }

    /// Unmounts one by its device or directory.
    ///
    /// # Errors
    /// When there is none, or it cannot be unmounted.
    pub(crate) fn unmount(&mut self, is_it: impl Fn(&MountPoint) -> bool) -> Result<bool> {
        let mut points = self.points.clone();
        points.retain(|point| !is_it(point));
        if points.len() == self.points.len() {
            return Ok(false);
        }
        if !points.is_empty() && points.iter().all(|point| point.directory != b"/") {
            bail!("something is mounted below it: unmount that first, or `umount-all`");
        }
        self.change_points(points)?;
        Ok(true)
    }

    fn change_points(&mut self, points: Vec<MountPoint>) -> Result<()> {
        if points.is_empty() {
            return self.unmount_all();
        }
        let before = std::mem::take(&mut self.points);
        let (image, how) = self.image_and_how()?;
        image.set_points(points.clone());
        match how.mount(image) {
            Ok(_) => {
                self.points = points;
                Ok(())
            }
            Err(error) => {
                if !before.is_empty() && is_alive(&error) {
                    let (image, how) = self.image_and_how()?;
                    image.set_points(before.clone());
                    how.mount(image)?;
                }
                self.points = before;
                Err(error)
            }
        }
    }

    fn image_and_how(&mut self) -> Result<(&mut OpenImage, &OpenArgs)> {
        self.image()?;
        match &mut self.image {
            Some(image) => Ok((image, &self.how)),
            None => bail!("the appliance does not run"),
        }
    }

    /// Unmounts everything.
    ///
    /// # Errors
    /// When what was written is not on stable storage.
    pub(crate) fn unmount_all(&mut self) -> Result<()> {
        self.points.clear();
        match &mut self.image {
            Some(image) => Ok(image.unmount()?),
            None => Ok(()),
        }
    }

    /// Does something in an appliance that has what it turns out to need.
    ///
    /// # Errors
    /// What it fails with; when no such appliance can be had.
    pub(crate) fn needing<T>(&mut self, mut act: impl FnMut(&mut OpenImage) -> Result<T>) -> Result<T> {
        for _ in 0..BOOTS_MAX {
            let done = act(self.image()?);
            let Err(Some(Needs { memory_bytes, raid6 })) = done.as_ref().map_err(failures::needs) else {
                return done;
            };
            self.how.memory = self.how.memory.max(memory_bytes.div_ceil(1 << 20));
            self.how.raid6 |= raid6;
            self.stop()?;
        }
        bail!("it wants more and more of the appliance")
    }

    /// Opens what lies in layers, as far as nobody need be asked for a key.
    ///
    /// # Errors
    /// When a key is wrong, or a tool is missing.
    pub(crate) fn open_stacks(&mut self) -> Result<()> {
        self.needing(|image| Ok(image.open_all(Asking::Nobody).map(drop)?))
    }

    /// The appliance, with all that lies in layers open, for one who changes those.
    ///
    /// # Errors
    /// When nothing is to be written; as [`Workbench::open_stacks`].
    pub(crate) fn changing(&mut self) -> Result<&mut OpenImage> {
        if self.how.ro {
            bail!("the images are open for reading only");
        }
        self.open_stacks()?;
        let image = self.image()?;
        image.install_modules()?;
        Ok(image)
    }

    /// Everything to stable storage.
    ///
    /// # Errors
    /// When something is not.
    pub(crate) fn sync(&mut self) -> Result<()> {
        match &mut self.image {
            Some(image) => Ok(image.call(Operation::Sync).map(drop)?),
            None => Ok(()),
        }
    }

    /// Runs one of our commands.
    ///
    /// # Errors
    /// The command's own.
    pub(crate) fn run(&mut self, command: &dyn FileCommand) -> Result<()> {
        if command.access() == Access::Write && self.how.ro && !command.may_only_read() {
            bail!("the images are open for reading only");
        }
        command.check()?;
        if !command.mounts() {
            // It may be for something that lies in a layer.
            self.open_stacks()?;
        }
        let done = command.run(self.image()?);
        if command.unmounts() && done.as_ref().err().is_none_or(is_alive) {
            self.mount_again()?;
        }
        done
    }

    /// Does what words ask for: `time`, `glob` and others have a command for an argument.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn perform(&mut self, words: &[OsString]) -> Result<()> {
        (self.interpret)(self, words)
    }

    /// What is at a path, with `follow` through links.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub(crate) fn entry(&mut self, path: &OsStr, follow: bool) -> Result<Option<Entry>> {
        Ok(self.image()?.entry(&path_of(image_path(Path::new(path))), follow)?)
    }

    /// Mounts what was mounted, after something that has unmounted it.
    ///
    /// # Errors
    /// When it cannot be.
    pub(crate) fn mount_again(&mut self) -> Result<()> {
        let points = self.points.clone();
        if points.is_empty() { Ok(()) } else { self.change_points(points) }
    }

    /// Takes note of an error: an appliance that is gone is not asked again.
    pub(crate) fn take_note(&mut self, error: &anyhow::Error) {
        if is_alive(error) {
            return;
        }
        self.image = None;
        if self.change.is_some() {
            // What it had not written is lost, so that it can be done as a whole no more.
            return self.give_up("the appliance is gone, and with it what was not synced");
        }
        if self.is_interactive {
            terminal::say("the appliance is gone, and with it what was not synced; it boots again when it is needed");
        }
    }

    /// Ends it without the change that `--atomic` makes.
    pub(crate) fn give_up(&mut self, why: &'static str) {
        self.given_up = self.given_up.or(Some(why));
        self.is_over = true;
    }

    /// Whether what was done happens at the end, as a whole.
    pub(crate) fn is_atomic(&self) -> bool {
        self.change.is_some()
    }

    /// Ends it: unmounts everything, and with `--atomic` makes what was done happen, unless `done` says that something
    /// failed.
    ///
    /// # Errors
    /// What failed; when what was written is not on stable storage.
    pub(crate) fn finish(&mut self, done: Result<()>) -> Result<()> {
        let status = signals::exit_status();
        // An error that came of a signal has that one's exit status.
        self.end(done).map_err(|error| match status {
            Some(status) => EndsWith { status, error }.into(),
            None => error,
        })
    }

    fn end(&mut self, done: Result<()>) -> Result<()> {
        let Some(change) = self.change.take() else {
            // A signal that ended what was done is no reason to leave the images in disorder.
            self.signals.forget();
            return done.and(self.stop());
        };
        let interrupted = self.signals.name().map_or(Ok(()), |signal| Err(anyhow!("ended by {signal}")));
        let given_up = self.given_up.map_or(Ok(()), |why| Err(anyhow!(why)));
        self.signals.forget();
        let stopped = done.and(given_up).and(interrupted).and_then(|()| self.stop());
        let name = self.drives.iter().find(|drive| !drive.read_only).map(|drive| drive.image.name.to_string());
        // They let go of the disk.
        (self.image, self.drives) = (None, Vec::new());
        stopped.map_err(|error| error.context(format!("{} is as it was", name.unwrap_or_default())))?;
        Ok(change.commit()?)
    }

    /// Unmounts and ends the appliance, but remembers what was mounted.
    ///
    /// # Errors
    /// When what was written is not on stable storage.
    pub(crate) fn stop(&mut self) -> Result<()> {
        match self.image.take() {
            Some(image) => Ok(image.close()?),
            None => Ok(()),
        }
    }
}

/// Whether the appliance is of use after an error.
fn is_alive(error: &anyhow::Error) -> bool {
    failures::appliance(error).is_none_or(ApplianceError::lives_on)
}
