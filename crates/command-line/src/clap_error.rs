//! What clap says of a command line, told well: which word it is of, and nothing that commands a terminal.

use blockyard_block::{misleads, printable, shown};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Clap does not say which of the words is not UTF-8 and should be. `read`: what is wrong with other words.
pub fn name_what_is_not_utf8(
    mut error: clap::Error,
    words: &[OsString],
    read: impl Fn(&[OsString]) -> Option<clap::Error>,
) -> clap::Error {
    let is_it = |at: &usize| {
        let but_for_one = |(index, word): (usize, &OsString)| match index == *at {
            true => word.clone(),
            false => word.to_string_lossy().into_owned().into(),
        };
        let others: Vec<_> = words.iter().enumerate().map(but_for_one).collect();
        words[*at].to_str().is_none() && read(&others).is_some_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    if let Some(at) = (0..words.len()).find(is_it) {
        let tip =
            format!("it is {}: if that is a file's name, name the file by a link that is UTF-8", shown(&words[at]));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What clap says, without what would command a terminal or end a line in the words that it says it of.
pub fn text(error: &clap::Error) -> String {
    let mut text = error.render().to_string();
    for (_, value) in error.context() {
        if let ContextValue::String(word) = value
            && word.contains(misleads)
        {
            text = text.replace(word, &printable(word));
        }
    }
    text
}
