//! Text of limited length.

use blockyard_protocol::messages::String;
use core::fmt::{self, Write};

/// Formats text for a message, cut where it is too long.
pub fn text<const N: usize>(arguments: fmt::Arguments<'_>) -> String<N> {
    struct Cut<const N: usize>(String<N>);
    impl<const N: usize> Write for Cut<N> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            text.chars().try_for_each(|character| self.0.push(character).map_err(|_| fmt::Error))
        }
    }
    let mut cut = Cut(String::new());
    // A text that is full is cut, and that is all.
    _ = cut.write_fmt(arguments);
    cut.0
}
