//! `blockyard image amend`: other options of an image that is there.

use super::image_options::{REFCOUNT_ORDERS, VERSIONS, chosen, pairs, switch};
use super::option_table;
use super::qemu_flags::WriteFlags;
use anyhow::{Result, anyhow, bail};
use blockyard_block::specification::Format;
use blockyard_block::{
    AllowedDirectories, ChainKeys, KeyFile, LuksDisk, LuksOptions, LuksSlotChange, Preallocation, Qcow2Amendment,
    Qcow2Disk, printable, shown, size,
};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::image::secrets;
use blockyard_command_line::progress::Percents;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Nobody;
use blockyard_image::whole::resize::{NewSize, Resize};
use blockyard_session::open::open_to_change;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// Change options of an image that is there: of a qcow2 image, or which passphrases open an encrypted one.
///
/// The options are qemu-img's: compat=0.10|1.1 makes it one of version 2 or 3; refcount_bits=N; lazy_refcounts=on|off;
/// data_file=NAME is another name of the file that has its data, and data_file_raw=off says that this may be no raw
/// image of the disk; size=SIZE, smaller than it is only with --shrink. What is new comes into force by one sector of
/// the header. Another backing file is `image rebase`'s to name. encrypt.state=active adds the passphrase of
/// --new-key-file, in encrypt.keyslot=N or the first key slot that is free, with encrypt.iter-time=MILLISECONDS;
/// encrypt.state=inactive takes away that of --old-key-file, or what is in encrypt.keyslot=N; neither goes with other
/// options. Of a LUKS volume (-f luks) these are state, keyslot and iter-time. All other options are fixed once an
/// image is made: `image convert -o` makes another one. -o help lists those of the format.
#[derive(Args)]
#[command(override_usage = "blockyard image amend [OPTIONS] -o <OPTIONS> <IMAGE>")]
pub struct AmendArgs {
    /// Image: a qcow2 file, or a LUKS volume.
    image: Option<String>,
    /// Options, as KEY=VALUE, with commas between them; may be given more than once.
    #[arg(short, value_name = "OPTIONS", required = true)]
    options: Vec<String>,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Show progress: no more than that it is done, as nothing of the disk is copied.
    #[arg(short, hide = true)]
    progress: bool,
    /// File with a passphrase that opens the image, and nothing else in it (or IMAGE,key-file=FILE).
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// File with a passphrase that is to open the image, too.
    #[arg(long, value_name = "FILE", conflicts_with = "old_key_file")]
    new_key_file: Option<PathBuf>,
    /// File with a passphrase that is to open the image no more.
    #[arg(long, value_name = "FILE")]
    old_key_file: Option<PathBuf>,
    /// Take away a passphrase even if nothing opens the image then: all of its data are lost.
    #[arg(long)]
    force: bool,
    /// Make the disk smaller, for size: what is behind its new end is lost.
    #[arg(long)]
    shrink: bool,
    /// Directory whose files the image may refer to, for size; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    flags: WriteFlags,
}

/// Runs the command.
///
/// # Errors
/// When an option cannot be had, or the image cannot be written.
pub fn run(args: &AmendArgs) -> Result<()> {
    if option_table::is_asked_for(&args.options) {
        return args.list_options();
    }
    let Some(image) = &args.image else { bail!(UsageError("which image? Give the name of a file".to_owned())) };
    let image_file = named_image::parse_file(image, args.format)?;
    let format = image_file.format;
    let Changes { amendment, size_bytes, slots } = parse(&args.options, format)?;
    let slots = args.slot_change(slots)?;
    if slots.is_some() && (amendment != Qcow2Amendment::default() || size_bytes.is_some()) {
        let problem = "passphrases are added and taken away by a command of their own: leave the other options out";
        bail!(UsageError(problem.to_owned()));
    }
    if !matches!(format, Format::Qcow2 | Format::Luks) {
        let is = image_file.format_in_words();
        bail!("{}: only qcow2 images and LUKS volumes are amended, and this is {is}", shown(&image_file.path));
    }
    let ImageFile { named, .. } = image_file;
    let key = args.key_file.as_ref().map(KeyFile::new).or_else(|| named.key_file().cloned());
    let percents = if args.progress && !args.quiet { Percents::begin() } else { None };
    let file = open_to_change(&named, &disk::to_write(&args.allow_dir))?.file;
    let resize = |size_bytes| -> Result<_> {
        let old_bytes = Qcow2Disk::size_bytes_of(&file)?;
        let resize = Resize::new(&file, format, old_bytes, NewSize::To(size_bytes), args.shrink, Preallocation::Off)?;
        Ok(resize.with_keys(ChainKeys::new(key.clone(), named.keys().behind().clone())))
    };
    // What is refused is refused before anything is changed.
    let mut resize = size_bytes.map(resize).transpose()?;
    let changes_header = amendment != Qcow2Amendment::default();
    if changes_header {
        amendment.check(&file)?;
    }
    // Much is refused when the disk gets its size. But that may take version 3, with which nobody loses anything.
    let is_resized_first = resize.is_some() && amendment.version != Some(3);
    if is_resized_first {
        resize.take().map_or(Ok(()), |resize| resize.run(&args.allow_dir, &Nobody))?;
    }
    if changes_header {
        let amended = amendment.apply(&file, &AllowedDirectories::none().with_key(key.clone()));
        amended.map_err(|error| match is_resized_first {
            true => anyhow!(error).context(format!("{image}: its disk has the new size, and the rest is not amended")),
            false => error.into(),
        })?;
    }
    let resized = resize.map_or(Ok(()), |resize| resize.run(&args.allow_dir, &Nobody));
    resized.map_err(|error| match changes_header {
        true => anyhow!(error).context(format!("{image}: all but the size is amended")),
        false => error.into(),
    })?;
    match (slots, format) {
        (Some(change), Format::Luks) => LuksDisk::change_slots(&file, key.as_ref(), &change)?,
        (Some(change), _) => Qcow2Disk::change_slots(&file, key.as_ref(), &change)?,
        (None, _) => {}
    }
    percents.into_iter().for_each(Percents::end);
    if args.quiet { Ok(()) } else { print(&format!("{}: amended", printable(image))) }
}

impl AmendArgs {
    fn list_options(&self) -> Result<()> {
        let named = self.image.as_ref().map(|name| named_image::parse_file(name, self.format)).transpose()?;
        let format = self.format.or(named.map(|named| named.format)).unwrap_or(Format::Qcow2);
        option_table::list(
            &format!("Options of {} images that can be amended:", format.word()),
            format,
            option_table::of_amended(format),
        )
    }

    /// What is to become of key slots, by what options and files say together.
    fn slot_change(&self, said: SaidOfSlots) -> Result<Option<LuksSlotChange>> {
        let key = |path: &Option<PathBuf>, secret: Option<KeyFile>, option: &str, word: &str| match (path, secret) {
            (Some(_), Some(_)) => Err(UsageError(format!("{option} and {word}=: a passphrase is in one file"))),
            (path, secret) => Ok(path.as_ref().map(KeyFile::new).or(secret)),
        };
        let SaidOfSlots { is_active, slot, time, new_secret, old_secret } = said;
        let new_key = key(&self.new_key_file, new_secret, "--new-key-file", "new-secret")?;
        let old_key = key(&self.old_key_file, old_secret, "--old-key-file", "old-secret")?;
        match (is_active, new_key, old_key) {
            (Some(true), _, Some(_)) => bail!(UsageError(
                "a passphrase is added by state=active, and taken away by state=inactive, which --old-key-file goes \
                 with: that is a second `amend`"
                    .to_owned()
            )),
            (Some(true), Some(key), None) => {
                Ok(Some(LuksSlotChange::Activate { key, slot, time: time.unwrap_or(LuksOptions::TIME) }))
            }
            (Some(true), None, _) => bail!(UsageError("which passphrase? Add --new-key-file FILE".to_owned())),
            (Some(false), None, key) => {
                if time.is_some() {
                    bail!(UsageError("iter-time is for a passphrase that is added".to_owned()));
                }
                if slot.is_none() && key.is_none() {
                    let problem = "which passphrase? Add --old-key-file FILE, or the number of its slot (keyslot=N)";
                    bail!(UsageError(problem.to_owned()));
                }
                Ok(Some(LuksSlotChange::Erase { slot, key, may_be_last: self.force }))
            }
            (Some(false), Some(_), _) => {
                bail!(UsageError("--new-key-file is for state=active, and state=inactive takes --old-key-file".into()))
            }
            (None, None, None) if slot.is_none() && time.is_none() => Ok(None),
            (None, ..) => bail!(UsageError(
                "is a passphrase added, or taken away? Add -o encrypt.state=active or inactive (state= of a volume)"
                    .to_owned()
            )),
        }
    }
}

/// What `-o` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Changes {
    amendment: Qcow2Amendment,
    /// The size that the disk is to have.
    size_bytes: Option<u64>,
    slots: SaidOfSlots,
}

/// What `-o` says of key slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct SaidOfSlots {
    is_active: Option<bool>,
    slot: Option<usize>,
    time: Option<Duration>,
    /// Files of passphrases that were declared as QEMU's objects.
    new_secret: Option<KeyFile>,
    old_secret: Option<KeyFile>,
}

impl SaidOfSlots {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "state" => self.is_active = Some(chosen(value, &[("active", true), ("inactive", false)])?),
            "keyslot" => self.slot = Some(value.parse().map_err(|_| "it is a number from 0 on")?),
            "iter-time" => self.time = Some(LuksOptions::parse_time(value)?),
            "new-secret" => self.new_secret = Some(secrets::key_file(value)?),
            "old-secret" => self.old_secret = Some(secrets::key_file(value)?),
            _ => {
                return Err("how an image is encrypted is fixed once it is made: `blockyard image convert -o` makes \
                            another one; what changes are state, keyslot and iter-time"
                    .to_owned());
            }
        }
        Ok(())
    }
}

/// What is to change.
fn parse(options: &[String], format: Format) -> Result<Changes> {
    let Changes { mut amendment, mut size_bytes, mut slots } = Changes::default();
    for pair in pairs(options) {
        let (option, key, value) = pair?;
        let refused = |problem: String| UsageError(format!("-o {option}: {problem}"));
        match key {
            _ if format == Format::Luks => {
                if let Some(name) = key.strip_prefix(option_table::ENCRYPTION) {
                    bail!(refused(format!("of a LUKS volume it is {name}")));
                }
                slots.set(key, value).map_err(refused)?;
            }
            "compat" => amendment.version = Some(chosen(value, &VERSIONS).map_err(refused)?),
            "refcount_bits" => {
                amendment.refcount_order = Some(chosen(value, &REFCOUNT_ORDERS).map_err(refused)?);
            }
            "data_file" => amendment.data_file = Some(value.to_owned()),
            "data_file_raw" => amendment.is_data_file_raw = Some(switch(value).map_err(refused)?),
            "lazy_refcounts" => amendment.has_lazy_refcounts = Some(switch(value).map_err(refused)?),
            "backing_file" | "backing_fmt" => {
                bail!(refused("`blockyard image rebase` names another backing file".to_owned()))
            }
            "size" => size_bytes = Some(size::parse(value).map_err(refused)?),
            "cluster_size" | "compression_type" | "extended_l2" | "preallocation" => {
                bail!(refused(
                    "this is fixed once an image is made: `blockyard image convert -o` makes another one".to_owned()
                ))
            }
            _ => match key.strip_prefix(option_table::ENCRYPTION) {
                Some(key) => slots.set(key, value).map_err(refused)?,
                None => bail!(refused(
                    "the options are compat, refcount_bits, lazy_refcounts, data_file, data_file_raw, size, \
                     encrypt.state, encrypt.keyslot and encrypt.iter-time; of a LUKS volume (-f luks) state, keyslot \
                     and iter-time"
                        .to_owned()
                )),
            },
        }
    }
    Ok(Changes { amendment, size_bytes, slots })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_qemu_imgs() {
        let said = |texts: &[&str], format| {
            parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), format).unwrap()
        };
        let Changes { amendment, size_bytes, slots } =
            said(&["compat=1.1,lazy_refcounts=on", "size=1G"], Format::Qcow2);
        let wanted = Qcow2Amendment { version: Some(3), has_lazy_refcounts: Some(true), ..Qcow2Amendment::default() };
        assert_eq!((amendment, size_bytes, slots), (wanted, Some(1 << 30), SaidOfSlots::default()));
        let off = Qcow2Amendment { has_lazy_refcounts: Some(false), ..Qcow2Amendment::default() };
        assert_eq!(said(&["nolazy_refcounts"], Format::Qcow2).amendment, off);
        let slots = said(&["encrypt.state=active,encrypt.keyslot=3,encrypt.iter-time=10"], Format::Qcow2).slots;
        let time = Some(Duration::from_millis(10));
        assert_eq!(slots, SaidOfSlots { is_active: Some(true), slot: Some(3), time, ..SaidOfSlots::default() });
        let slots = said(&["state=inactive"], Format::Luks).slots;
        assert_eq!(slots, SaidOfSlots { is_active: Some(false), ..SaidOfSlots::default() });
        for (option, format, wanted) in [
            ("compat=2", Format::Qcow2, "it is 0.10"),
            ("backing_file=a", Format::Qcow2, "image rebase"),
            ("refcount_bits=3", Format::Qcow2, "it is 1, 2, 4"),
            ("extended_l2=on", Format::Qcow2, "fixed once an image is made"),
            ("encrypt.cipher-alg=aes-128", Format::Qcow2, "fixed once it is made"),
            ("encrypt.new-secret=s", Format::Qcow2, "there is no secret 's'"),
            ("old-secret=s", Format::Luks, "there is no secret 's'"),
            ("keyslot=-1", Format::Luks, "it is a number"),
            ("size=1G", Format::Luks, "fixed once it is made"),
            ("encrypt.state=active", Format::Luks, "it is state"),
            ("state=off", Format::Luks, "it is active, inactive"),
            ("state=active", Format::Qcow2, "the options are compat"),
            ("no=1", Format::Qcow2, "the options are compat"),
            ("compat", Format::Qcow2, "an option is KEY=VALUE"),
        ] {
            let error = parse(&[option.to_owned()], format).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(wanted), "{error}");
        }
    }
}
