//! What a line may be made of: letters that are seen, and stand where they are seen. What mislead, in what is typed and
//! what is pasted, rings the bell and is left out, so that what is executed is what was shown.

use blockyard_block::misleads;
use rustyline::{
    Cmd, ConditionalEventHandler, Event, EventContext, EventHandler, KeyCode, KeyEvent, Modifiers, RepeatCount,
};
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Whether a text may be a line, or several: a script that is pasted for the host's shell has more.
pub(crate) fn is_seen(text: &str) -> bool {
    text.chars().all(|letter| matches!(letter, '\n' | '\t') || !misleads(letter))
}

/// Takes every key before the editor does.
pub(crate) fn handler() -> EventHandler {
    EventHandler::Conditional(Box::new(Keys(Mutex::new(None))))
}

/// What is being pasted, if something is.
struct Keys(Mutex<Option<Paste>>);

#[derive(Default)]
struct Paste {
    text: String,
    is_after_return: bool,
    lacks: bool,
}

impl Paste {
    fn take(&mut self, key: KeyEvent) {
        let is_after_return =
            std::mem::replace(&mut self.is_after_return, key == KeyEvent(KeyCode::Enter, Modifiers::NONE));
        match key {
            KeyEvent(KeyCode::Char(letter), Modifiers::NONE) if !misleads(letter) => self.text.push(letter),
            KeyEvent(KeyCode::Tab, Modifiers::NONE) => self.text.push('\t'),
            KeyEvent(KeyCode::Enter, Modifiers::NONE) => self.text.push('\n'),
            KeyEvent(KeyCode::Char('J'), Modifiers::CTRL) if is_after_return => {}
            KeyEvent(KeyCode::Char('J'), Modifiers::CTRL) => self.text.push('\n'),
            _ => self.lacks = true,
        }
    }
}

impl Keys {
    /// What a key does; `None`: what it always does. With whether the bell is to be rung.
    fn command(&self, key: KeyEvent) -> (Option<Cmd>, bool) {
        let mut pasting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = Some(Cmd::Noop);
        match (&mut *pasting, key) {
            (None, KeyEvent(KeyCode::BracketedPasteStart, _)) => {
                *pasting = Some(Paste::default());
                (nothing, false)
            }
            (Some(_), KeyEvent(KeyCode::BracketedPasteEnd, _)) => {
                let paste = pasting.take().unwrap_or_default();
                (Some(Cmd::Insert(1, paste.text)), paste.lacks)
            }
            (Some(paste), key) => {
                paste.take(key);
                (nothing, false)
            }
            // The next one would be taken as it is.
            (None, KeyEvent(KeyCode::Char('Q' | 'V'), Modifiers::CTRL)) => (nothing, true),
            (None, KeyEvent(KeyCode::Char(letter), _)) if misleads(letter) => (nothing, true),
            (None, _) => (None, false),
        }
    }
}

impl ConditionalEventHandler for Keys {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        let (command, rings) = self.command(*event.get(0)?);
        if rings {
            let mut output = io::stdout();
            // It is a bell.
            let _ = output.write_all(b"\x07").and_then(|()| output.flush());
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(keys: &Keys, letters: &str) -> Vec<(Option<Cmd>, bool)> {
        letters.chars().map(|letter| keys.command(KeyEvent::new(letter, Modifiers::NONE))).collect()
    }

    #[test]
    fn what_is_typed_is_seen() {
        let keys = Keys(Mutex::new(None));
        for letter in ["\u{202e}", "\u{ad}", "\u{e0041}", "\u{16}", "\u{11}"] {
            assert_eq!(press(&keys, letter), [(Some(Cmd::Noop), true)], "{letter:?}");
        }
        for letter in ["a", "ä", "\u{3}", "\r", "\t", "\u{15}"] {
            assert_eq!(press(&keys, letter), [(None, false)], "{letter:?}");
        }
    }

    #[test]
    fn what_is_pasted_is_seen_and_presses_no_key() {
        let keys = Keys(Mutex::new(None));
        let mark = |code| keys.command(KeyEvent(code, Modifiers::NONE));
        for (pasted, text, lacks) in [
            ("! ls /tmp", "! ls /tmp", false),
            ("a\r\nb\rc\nd\te", "a\nb\nc\nd\te", false),
            ("a\u{3}b\u{f}c\u{15}d\u{16}\u{1b}e", "abcde", true),
            ("a\u{202e}b\u{85}c\u{200b}d\u{ad}e\u{e0041}f\u{7f}", "abcdef", true),
        ] {
            assert_eq!(mark(KeyCode::BracketedPasteStart), (Some(Cmd::Noop), false));
            assert!(press(&keys, pasted).into_iter().all(|done| done == (Some(Cmd::Noop), false)), "{pasted:?}");
            if lacks {
                assert_eq!(mark(KeyCode::Up), (Some(Cmd::Noop), false));
            }
            let (command, rings) = mark(KeyCode::BracketedPasteEnd);
            assert_eq!((command, rings), (Some(Cmd::Insert(1, text.to_owned())), lacks), "{pasted:?}");
            assert!(is_seen(text) && is_seen(&pasted.replace('\r', "\n")) != lacks);
        }
        assert_eq!(press(&keys, "a"), [(None, false)]);
    }
}
