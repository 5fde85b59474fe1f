//! What a script is told by the command line.

use std::fmt;
use std::str::FromStr;

/// A variable of a script's shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: String,
    value: String,
}

/// A text is no variable: a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a variable is NAME=VALUE, with a name of letters, digits and _ that does not begin with a digit")]
pub struct NoVariable;

impl Variable {
    /// A variable of a plain name, which is the caller's own.
    pub(crate) fn new(name: &str, value: &str) -> Self {
        Self { name: name.to_owned(), value: value.to_owned() }
    }
}

impl FromStr for Variable {
    type Err = NoVariable;

    fn from_str(text: &str) -> Result<Self, NoVariable> {
        let (name, value) = text.split_once('=').ok_or(NoVariable)?;
        let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match is_word && !name.is_empty() && !name.starts_with(|letter: char| letter.is_ascii_digit()) {
            true => Ok(Self::new(name, value)),
            false => Err(NoVariable),
        }
    }
}

/// As a shell takes it: whatever is in the value, it is nothing else.
impl fmt::Display for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}='{}'", self.name, self.value.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_nothing_but_a_value_to_a_shell() {
        let said = "A_1=it's $(reboot)=".parse::<Variable>().unwrap().to_string();
        assert_eq!(said, r"A_1='it'\''s $(reboot)='");
        for text in ["A", "=1", "1A=1", "A B=1", "A-B=1", "A;reboot=1"] {
            assert_eq!(text.parse::<Variable>(), Err(NoVariable), "{text}");
        }
    }
}
