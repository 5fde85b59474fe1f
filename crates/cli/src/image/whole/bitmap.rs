//! `blockyard image bitmap`: bitmaps of what is written, which an image has inside.

use super::qemu_flags::NameFlags;
use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{Qcow2BitmapAction, Qcow2Disk, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image::{self, ImageFile};
use blockyard_session::open::{open_file, open_to_change};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches};

/// Add, remove or change a bitmap that a qcow2 image has inside.
///
/// A bitmap says what was written to the disk since it was made or cleared: backup programs ask for that. It is kept by
/// whoever writes to the image, unless it is disabled; `info` lists them. The options are qemu-img's. All actions
/// happen, one after the other, or none. Nobody may use the image meanwhile.
#[derive(Args)]
#[command(override_usage = "blockyard image bitmap [OPTIONS] <--add|--merge SOURCE|...>... <IMAGE> <BITMAP>")]
pub struct BitmapArgs {
    /// Image: a qcow2 file.
    image: String,
    /// The bitmap's name.
    bitmap: String,
    #[command(flatten)]
    actions: Actions,
    /// Image that bitmaps are merged from, instead of the same one.
    #[arg(short = 'b', value_name = "SRC", requires = "merge")]
    source: Option<String>,
    /// Format of that image.
    #[arg(short = 'F', value_name = "FORMAT", requires = "source", value_parser = named_image::formats())]
    source_format: Option<Format>,
    /// Bytes of the disk that a bit of a new bitmap is for, such as 64K: a power of two, 512 at least.
    #[arg(short, long, value_name = "BYTES", value_parser = size::parse, requires = "add")]
    granularity: Option<u64>,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    #[command(flatten)]
    names: NameFlags,
}

/// What is done, in the order in which it was said.
struct Actions(Vec<Qcow2BitmapAction>);

/// Options without a value, what they do and what they mean.
const FLAGS: [(&str, &str, Qcow2BitmapAction); 5] = [
    ("add", "Make it", Qcow2BitmapAction::Add { granularity_bytes: None }),
    ("remove", "Remove it, whatever state it is in", Qcow2BitmapAction::Remove),
    ("clear", "Say that nothing was written since now", Qcow2BitmapAction::Clear),
    ("enable", "Keep it from now on", Qcow2BitmapAction::Enable),
    ("disable", "Leave it as it is from now on", Qcow2BitmapAction::Disable),
];

impl Args for Actions {
    fn augment_args(command: Command) -> Command {
        let merge = Arg::new("merge").long("merge").value_name("SOURCE").action(ArgAction::Append);
        let merge = merge.help("Say that what another one says was written was written; may be given more than once");
        let flag = |(name, help, _): &(&'static str, &'static str, _)| {
            let arg = Arg::new(*name).long(*name).help(*help).action(ArgAction::Append);
            arg.num_args(0).default_missing_value("").value_parser(clap::value_parser!(String))
        };
        let names = FLAGS.iter().map(|(name, ..)| *name).chain(["merge"]);
        let group = ArgGroup::new("actions").args(names).required(true).multiple(true);
        FLAGS.iter().map(flag).chain([merge]).fold(command, Command::arg).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Actions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let indices = |name: &str| matches.indices_of(name).into_iter().flatten().collect::<Vec<_>>();
        let flags = FLAGS.iter().flat_map(|(name, _, action)| {
            indices(name).into_iter().map(|index| (index, action.clone())).collect::<Vec<_>>()
        });
        let sources = matches.get_many::<String>("merge").into_iter().flatten();
        let merges = indices("merge").into_iter().zip(sources);
        let merges = merges.map(|(index, source)| (index, Qcow2BitmapAction::Merge { source: source.clone() }));
        let mut actions: Vec<_> = flags.chain(merges).collect();
        actions.sort_by_key(|(index, _)| *index);
        Ok(Self(actions.into_iter().map(|(_, action)| action).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Runs the command.
///
/// # Errors
/// When the image has no such bitmap, cannot have one, or cannot be read or written.
pub fn run(args: &BitmapArgs) -> Result<()> {
    let image = named_image::parse_file(&args.image, args.format)?;
    let source = args.source.as_ref().map(|source| named_image::parse_file(source, args.source_format)).transpose()?;
    refuse_others(&image)?;
    source.as_ref().map_or(Ok(()), refuse_others)?;
    let file = open_to_change(&image.named, &disk::to_write(&[]))?.file;
    let source = source.map(|source| open_file(&source.named.read_only(), &disk::to_write(&[])));
    let source = source.transpose()?.map(|source| source.file);
    let actions: Vec<_> = args.actions.0.iter().map(|action| of_granularity(action, args.granularity)).collect();
    Ok(Qcow2Disk::change_bitmap(&file, &args.bitmap, &actions, source.as_ref())?)
}

fn refuse_others(image: &ImageFile) -> Result<()> {
    if image.format != Format::Qcow2 {
        bail!("{}: bitmaps are inside of qcow2 images, and this is {}", shown(&image.path), image.format_in_words());
    }
    Ok(())
}

fn of_granularity(action: &Qcow2BitmapAction, granularity_bytes: Option<u64>) -> Qcow2BitmapAction {
    match action {
        Qcow2BitmapAction::Add { .. } => Qcow2BitmapAction::Add { granularity_bytes },
        action => action.clone(),
    }
}
