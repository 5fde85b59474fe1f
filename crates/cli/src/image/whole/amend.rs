//! `blockyard image amend`: other options of an image that is there.

use super::image_options::{REFCOUNT_ORDERS, SWITCH, VERSIONS, chosen, pairs};
use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{AllowedDirectories, Preallocation, Qcow2Amendment, Qcow2Disk, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Nobody;
use blockyard_image::whole::resize::{NewSize, Resize};
use blockyard_session::open::open_to_change;
use clap::Args;
use std::path::PathBuf;

/// Change options of a qcow2 image that is there.
///
/// The options are qemu-img's: compat=0.10|1.1 makes it one of version 2 or 3; refcount_bits=N; lazy_refcounts=on|off;
/// data_file=NAME is another name of the file that has its data, and data_file_raw=off says that this may be no raw
/// image of the disk; size=SIZE, no smaller than it is. What is new comes into force by one sector of the header.
/// Another backing file is `image rebase`'s to name. All other options are fixed once an image is made: `image convert
/// -o` makes another one.
#[derive(Args)]
pub struct AmendArgs {
    /// Image: a qcow2 file.
    image: String,
    /// Options, as KEY=VALUE, with commas between them; may be given more than once.
    #[arg(short, value_name = "OPTIONS", required = true)]
    options: Vec<String>,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Show progress, of which there is none: nothing of the disk is copied.
    #[arg(short, hide = true)]
    progress: bool,
    /// Directory whose files the image may refer to, for size; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
}

/// Runs the command.
///
/// # Errors
/// When an option cannot be had, or the image cannot be written.
pub fn run(args: &AmendArgs) -> Result<()> {
    let (amendment, size_bytes) = parse(&args.options)?;
    let ImageFile { named, path, format } = named_image::parse_file(&args.image, args.format)?;
    if format != Format::Qcow2 {
        bail!("{}: only qcow2 images are amended, and this is {}", shown(&path), format.word());
    }
    let file = open_to_change(&named, &disk::to_write(&args.allow_dir))?.file;
    let resize = |size_bytes| -> Result<()> {
        let old_bytes = Qcow2Disk::size_bytes_of(&file)?;
        let resize = Resize::new(&file, format, old_bytes, NewSize::To(size_bytes), false, Preallocation::Off)?;
        Ok(resize.with_key(named.key_file().cloned()).run(&args.allow_dir, &Nobody)?)
    };
    if amendment != Qcow2Amendment::default() {
        let allowed = AllowedDirectories::none().with_key(named.key_file().cloned());
        amendment.apply(&file, &allowed)?;
    }
    size_bytes.map_or(Ok(()), resize)?;
    if args.quiet { Ok(()) } else { print(&format!("{}: amended", args.image)) }
}

/// What is to change, and the size that the disk is to have.
fn parse(options: &[String]) -> Result<(Qcow2Amendment, Option<u64>)> {
    let (mut amendment, mut size_bytes) = (Qcow2Amendment::default(), None);
    for pair in pairs(options) {
        let (option, key, value) = pair?;
        let refused = |problem: String| UsageError(format!("-o {option}: {problem}"));
        match key {
            "compat" => amendment.version = Some(chosen(value, &VERSIONS).map_err(refused)?),
            "refcount_bits" => {
                amendment.refcount_order = Some(chosen(value, &REFCOUNT_ORDERS).map_err(refused)?);
            }
            "data_file" => amendment.data_file = Some(value.to_owned()),
            "data_file_raw" => amendment.is_data_file_raw = Some(chosen(value, &SWITCH).map_err(refused)?),
            "lazy_refcounts" => amendment.has_lazy_refcounts = Some(chosen(value, &SWITCH).map_err(refused)?),
            "backing_file" | "backing_fmt" => {
                bail!(refused("`blockyard image rebase` names another backing file".to_owned()))
            }
            "size" => size_bytes = Some(size::parse(value).map_err(refused)?),
            "cluster_size" | "compression_type" | "extended_l2" | "preallocation" => {
                bail!(refused(
                    "this is fixed once an image is made: `blockyard image convert -o` makes another one".to_owned()
                ))
            }
            _ if key.starts_with("encrypt") => bail!(refused(
                "how an image is encrypted is fixed once it is made: `blockyard image convert -o` makes another one"
                    .to_owned()
            )),
            _ => {
                bail!(refused(
                    "the options are compat, refcount_bits, lazy_refcounts, data_file, data_file_raw and size"
                        .to_owned()
                ))
            }
        }
    }
    Ok((amendment, size_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_qemu_imgs() {
        let (amendment, size_bytes) =
            parse(&["compat=1.1,lazy_refcounts=on".to_owned(), "size=1G".to_owned()]).unwrap();
        let wanted = Qcow2Amendment { version: Some(3), has_lazy_refcounts: Some(true), ..Qcow2Amendment::default() };
        assert_eq!((amendment, size_bytes), (wanted, Some(1 << 30)));
        for (option, wanted) in [
            ("compat=2", "it is 0.10"),
            ("backing_file=a", "image rebase"),
            ("refcount_bits=3", "it is 1, 2, 4"),
            ("extended_l2=on", "fixed once an image is made"),
            ("encrypt.state=active", "fixed once it is made"),
            ("no=1", "the options are compat"),
            ("compat", "an option is KEY=VALUE"),
        ] {
            let error = parse(&[option.to_owned()]).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(wanted), "{error}");
        }
    }
}
