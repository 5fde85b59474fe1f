//! How the commands open disks: what is worth knowing goes to stderr.

use crate::{signals, terminal};
use blockyard_block::{ImageTrouble, Remedy, hear_of_trouble, printable, shown};
use blockyard_session::open::{OpenOptions, Remark};
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// An image could not be closed.
static IS_UNCLOSED: AtomicBool = AtomicBool::new(false);

/// Why parts of images cannot be read, if that is said by the error that the command ends with.
static UNREADABLE: Mutex<Unreadable> = Mutex::new(Unreadable::IsSaid);

/// Most reasons that are kept: of parts that several threads came to at once.
const REASONS_MAX: usize = 64;

enum Unreadable {
    /// When it happens.
    IsSaid,
    /// By the error.
    Kept(Vec<String>),
}

/// From now on, why a part of an image cannot be read is not said when it happens: a request that fails for it ends the
/// command, whose error has it ([`failure`]).
pub fn keep_unreadable() {
    *UNREADABLE.lock().unwrap_or_else(PoisonError::into_inner) = Unreadable::Kept(Vec::new());
}

/// What is said of an error that ends the command. Where a part of an image cannot be read, requests know a number and
/// no more.
pub fn failure(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    // What else cannot be read, to which another thread came meanwhile, would be a second sentence.
    let reasons = take_unreadable();
    let Some(reason) = reasons.iter().find(|reason| say_one_place(&text, reason)).or(reasons.first()) else {
        return text;
    };
    let without = |errno: Errno| text.strip_suffix(&io::Error::from(errno).to_string());
    match without(Errno::IO).or_else(|| without(Errno::ACCESS)) {
        Some(text) => format!("{text}{reason}"),
        None => text,
    }
}

/// Whether two texts have a number in common that may be a place.
fn say_one_place(one: &str, other: &str) -> bool {
    let places = |text: &str| -> Vec<String> {
        let numbers = text.split(|letter: char| !letter.is_ascii_digit());
        numbers.filter(|number| number.len() >= 3).map(str::to_owned).collect()
    };
    let of_other = places(other);
    places(one).iter().any(|place| of_other.contains(place))
}

fn take_unreadable() -> Vec<String> {
    let mut unreadable = UNREADABLE.lock().unwrap_or_else(PoisonError::into_inner);
    match std::mem::replace(&mut *unreadable, Unreadable::IsSaid) {
        Unreadable::Kept(reasons) => reasons,
        Unreadable::IsSaid => Vec::new(),
    }
}

/// Says, or keeps, why a part of the image at `path` cannot be read.
fn tell_unreadable(path: &str, error: &str) {
    let mut unreadable = UNREADABLE.lock().unwrap_or_else(PoisonError::into_inner);
    match &mut *unreadable {
        Unreadable::IsSaid => terminal::say(&format!("note: {path}: a part of it cannot be read: {error}")),
        Unreadable::Kept(reasons) if reasons.len() >= REASONS_MAX => {}
        // Some say themselves of which file it is.
        Unreadable::Kept(reasons) if error.starts_with(path) => reasons.push(error.to_owned()),
        Unreadable::Kept(reasons) => reasons.push(format!("{path}: {error}")),
    }
}

/// What was said last of an image that was cut off.
static CUT_OFF: Mutex<String> = Mutex::new(String::new());

/// From now on, what goes wrong with images and is nobody's result is said when it happens, and [`exit_status`] knows
/// of those that cannot be closed.
pub fn watch_images() {
    hear_of_trouble(|path, trouble, error| {
        let is_unclosed = matches!(trouble, ImageTrouble::UnclosedQcow2 | ImageTrouble::UnclosedVmdk);
        IS_UNCLOSED.fetch_or(is_unclosed, Ordering::SeqCst);
        let path = shown(path);
        let said = match trouble {
            ImageTrouble::UnclosedQcow2 => format!(
                "{path}: closing it failed: {error}; what was flushed is there, but bitmaps in it may stay in use, and \
                 clusters be leaked, which {} gives back",
                Remedy::RepairImage
            ),
            ImageTrouble::UnclosedVmdk => format!(
                "{path}: closing it failed: {error}; what was flushed is there; `blockyard image check` says whether its \
                 tables are in order, and `blockyard image convert` makes a new image of what can be read"
            ),
            ImageTrouble::Unwritable => format!("note: {path} {}", printable(&error.to_string())),
            ImageTrouble::CutOff => {
                let said = format!(
                    "note: {path} was cut off, or a crash kept its end from being written: {error} that it refers to are \
                     missing. They are zeros from now on, and nothing says so once it is written to"
                );
                let mut last = CUT_OFF.lock().unwrap_or_else(PoisonError::into_inner);
                // Some commands open an image twice.
                if *last == said {
                    return;
                }
                last.clone_from(&said);
                said
            }
            ImageTrouble::Unreadable => {
                return tell_unreadable(&path.to_string(), &printable(&error.to_string()));
            }
        };
        terminal::say(&said);
    });
}

/// What a command ends with whose own status is `status`, once it has let go of its disks: a failure if one of them
/// could not be closed.
pub fn exit_status(status: u8) -> u8 {
    // It ended no command, or not by that.
    take_unreadable().first().inspect(|reason| say_note(reason));
    match status {
        0 => IS_UNCLOSED.load(Ordering::SeqCst).into(),
        status => status,
    }
}

/// For writing, with an image's other files in these directories.
pub fn to_write(allow_dirs: &[PathBuf]) -> OpenOptions<'_> {
    OpenOptions { allow_dirs, ending: &signals::event, remark: &say, ..OpenOptions::default() }
}

/// For reading only. A change that was cut off is then seen through.
pub fn to_read(allow_dirs: &[PathBuf]) -> OpenOptions<'_> {
    OpenOptions { read_only: true, ..to_write(allow_dirs) }
}

/// Says what is worth knowing of a disk though all goes on.
pub fn say_note(note: &str) {
    terminal::say(&format!("note: {}", printable(note)));
}

fn say(remark: Remark<'_>) {
    match remark {
        Remark::LeftAlone(note) => say_note(note),
        Remark::OutOfDate(note) | Remark::Repaired(note) => terminal::say(note),
    }
}
