//! A script with its steps.

use crate::initramfs::busybox;
use crate::shipped::Shipped;
use anyhow::{Context, Result, bail};
use blockyard_block::{read_named_text, shown};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// More is no script.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// Each step is a boot.
const STEPS_MAX: usize = 1000;
const NAME_BYTES_MAX: usize = 64;
/// A name of what a shell reads, so that it says in which line a mistake is; a machine may have no /dev/stdin.
const STDIN: &str = "/proc/self/fd/0";
/// Of what a shell says of a script that is none, an error repeats so much.
const WORDS_MAX: usize = 300;

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

    /// Has a shell of this machine's look whether it is a script, where there is busybox: it executes nothing.
    ///
    /// # Errors
    /// When it is none, with what the shell says.
    pub fn check(&self) -> Result<()> {
        let Some(busybox) = busybox() else { return Ok(()) };
        let shell =
            Command::new(busybox).args(["sh", "-n", STDIN]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        // Whoever cannot ask hears of it from the guest.
        let Ok(mut shell) = shell else { return Ok(()) };
        if let Some(mut stdin) = shell.stdin.take() {
            // A shell that has found a mistake reads no further.
            _ = stdin.write_all(self.text.as_bytes());
        }
        let end = shell.wait_with_output().context("waiting for busybox")?;
        let words = String::from_utf8_lossy(&end.stderr);
        let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(WORDS_MAX).collect();
        if end.status.success() {
            Ok(())
        } else {
            bail!("{}", words.trim_start_matches(STDIN).trim_start_matches(": "))
        }
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
    fn what_is_no_script_of_a_shells_is_told_with_its_line() {
        let check = |text: &str| Script::new(text.to_owned()).unwrap().check();
        check("step_a() { exit 7; }\ntouch /tmp/never\n").unwrap();
        let error = check("step_a() {\n\tif true; then echo\n}\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3: syntax error"), "{error}");
    }

    #[test]
    fn what_has_no_steps_or_one_twice_is_refused() {
        for (text, word) in [("echo hello\n", "no function"), ("step_a() { :; }\nstep_a() { :; }\n", "a twice")] {
            let error = Script::new(text.to_owned()).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
