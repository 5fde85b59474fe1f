//! A script with its steps.

use crate::shipped::Shipped;
use anyhow::{Context, Result, bail};
use blockyard_block::{read_named_text, shown};
use std::path::Path;

/// More is no script.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// Each step is a boot.
const STEPS_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 64;

/// A shell script whose functions `step_NAME` are its steps, each alone on a line that begins with it: `step_NAME() {`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    text: String,
    steps: Vec<String>,
}

impl Script {
    /// Reads the script that somebody calls so: a file, or one that comes with the program where there is no such file
    /// and the name has no slash.
    ///
    /// # Errors
    /// As [`Script::read`].
    pub fn named(name: &Path) -> Result<Self> {
        // A file that cannot be looked at is no reason to take another.
        if name.components().count() != 1 || !matches!(name.try_exists(), Ok(false)) {
            return Self::read(name);
        }
        match Shipped::all().find(|shipped| name.as_os_str() == shipped.name) {
            Some(shipped) => Self::new(shipped.text.to_owned()),
            None => {
                let names: Vec<_> = Shipped::all().map(|shipped| shipped.name).collect();
                bail!("there is no file {}, and the scripts that blockyard has are {}", shown(name), names.join(", "))
            }
        }
    }

    /// Reads a script.
    ///
    /// # Errors
    /// When it cannot be read, or has no steps.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_named_text(path, "the script", SCRIPT_BYTES_MAX)?;
        Self::new(text).with_context(|| format!("{} is no script of steps", shown(path)))
    }

    /// The script of this text.
    ///
    /// # Errors
    /// When it has no steps, one twice, or too much of anything.
    pub fn new(text: String) -> Result<Self> {
        if text.len() as u64 > SCRIPT_BYTES_MAX {
            bail!("it has more than {SCRIPT_BYTES_MAX} bytes");
        }
        let steps: Vec<String> = text.lines().filter_map(step_of).map(str::to_owned).collect();
        if steps.is_empty() {
            bail!("it has no function step_NAME, whose first line begins with `step_NAME()`");
        }
        if steps.len() > STEPS_MAX {
            bail!("it has more than {STEPS_MAX} steps");
        }
        if let Some((_, twice)) = steps.iter().enumerate().find(|(index, step)| steps[..*index].contains(step)) {
            bail!("it has the step {twice} twice");
        }
        Ok(Self { text, steps })
    }

    /// The names of its steps, in its order.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// The script itself.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// The step whose function begins in a line.
fn step_of(line: &str) -> Option<&str> {
    let (name, rest) = line.strip_prefix("step_")?.split_once('(')?;
    let name = name.trim_end();
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_word && (1..=NAME_BYTES_MAX).contains(&name.len()) && rest.trim_start().starts_with(')')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_the_functions_that_are_called_so() {
        let text =
            "size=1M\nhelper() { :; }\nstep_b() {\n  step_c\n}\nstep_a_1 () { :; }\n# step_no()\nstep_x-y() { :; }\n";
        assert_eq!(Script::new(text.to_owned()).unwrap().steps(), ["b", "a_1"]);
    }

    #[test]
    fn what_has_no_steps_or_one_twice_is_refused() {
        for (text, word) in [("echo hello\n", "no function"), ("step_a() { :; }\nstep_a() { :; }\n", "a twice")] {
            let error = Script::new(text.to_owned()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
