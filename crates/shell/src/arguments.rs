//! What the words of a command are: texts, sizes, options, names of the host.

use crate::line::{self, Request};
use anyhow::{Result, bail};
use blockyard_block::{shown, size};
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::volumes::stacks::is_group_name;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A word that is a text: [`UsageError`] when it is not.
pub(crate) fn text(word: &OsStr) -> Result<&str> {
    word.to_str().ok_or_else(|| UsageError(format!("{} is not UTF-8, as this argument has to be", shown(word))).into())
}

/// A word that is a size: a number of bytes, or with a suffix such as 10M.
pub(crate) fn bytes(word: &OsStr) -> Result<u64> {
    size::parse(text(word)?).map_err(|problem| UsageError(problem).into())
}

/// true, false and what else guestfish takes for them.
pub(crate) fn truth(word: &OsStr) -> Result<bool> {
    match word.to_str().map(str::to_ascii_lowercase).as_deref() {
        Some("true" | "t" | "1" | "yes" | "y" | "on") => Ok(true),
        Some("false" | "f" | "0" | "no" | "n" | "off") => Ok(false),
        _ => bail!(UsageError(format!("{} is neither true nor false", shown(word)))),
    }
}

/// `key:value` arguments.
pub(crate) fn options(words: &[OsString]) -> Result<Vec<(&str, &str)>> {
    words
        .iter()
        .map(|word| {
            let pair = text(word)?.split_once(':');
            pair.ok_or_else(|| UsageError(format!("{}: an option is KEY:VALUE", shown(word))).into())
        })
        .collect()
}

/// The words of a text that is a list: guestfish has them for `command`.
///
/// # Errors
/// When it is not well formed.
pub(crate) fn word_list(text: &OsStr) -> Result<Vec<OsString>> {
    match line::parse(&[b"list ", text.as_bytes()].concat())?.request {
        Request::Command { words, pipe: None } => Ok(words.into_iter().skip(1).collect()),
        _ => bail!(UsageError(format!("{} is no list of words", shown(text)))),
    }
}

/// `~` and `~/…` are the user's own directory on the host.
pub(crate) fn home(word: &OsStr) -> OsString {
    let bytes = word.as_bytes();
    match (bytes, std::env::var_os("HOME")) {
        (b"~" | [b'~', b'/', ..], Some(home)) => {
            let mut path = home;
            path.push(OsStr::from_bytes(&bytes[1..]));
            path
        }
        _ => word.to_owned(),
    }
}

/// The words of one list, or of several.
pub(crate) fn device_list(words: &[OsString]) -> Result<Vec<String>> {
    let lists: Vec<_> = words.iter().map(|word| word_list(word)).collect::<Result<_>>()?;
    let names: Vec<_> = lists.iter().flatten().map(|name| text(name).map(str::to_owned)).collect::<Result<_>>()?;
    if names.is_empty() { bail!(UsageError("which devices?".to_owned())) } else { Ok(names) }
}

/// A name for something new.
pub(crate) fn new_name(word: &OsStr) -> Result<&str> {
    let name = text(word)?;
    match is_group_name(name) && name != "." && name != ".." {
        true => Ok(name),
        false => bail!(UsageError(format!("{name} is no name: letters, digits and + _ . -, and no - in front"))),
    }
}
