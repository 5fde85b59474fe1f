//! Programs of others: where they are, and which version.

use blockyard_block::programs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to say its version: one of many libraries, from a disk that is slow, on a machine that
/// is busy.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// A program that was asked for its version. Several can be asked at once.
pub struct Asked(std::io::Result<Child>);

/// Asks `program` for its version.
pub fn ask(program: &Path) -> Asked {
    let mut command = programs::command(program);
    Asked(command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn())
}

impl Asked {
    /// The first line of its answer, or why there is none.
    pub fn answer(self) -> Result<String, String> {
        let mut child = self.0.map_err(|error| format!("it does not start: {error}"))?;
        let start = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if start.elapsed() < PATIENCE => std::thread::sleep(LOOK_AGAIN),
                _ => {
                    // It may have ended just now.
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err("it does not say its version".to_owned());
                }
            }
        };
        let mut answer = String::new();
        // A version that is no text is none.
        let _ = child.stdout.take().map(|mut stdout| stdout.read_to_string(&mut answer));
        match answer.lines().next() {
            Some(line) if status.success() && !line.trim().is_empty() => Ok(line.trim().to_owned()),
            _ => Err(format!("it does not say its version ({status})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn says_where_a_program_is_and_what_it_answers() {
        let shell = programs::find("sh").expect("there is a shell");
        assert!(programs::is_program(&shell) && !programs::is_program(Path::new("/etc/passwd")));
        assert!(programs::find("no such program").is_none());
        let echo = programs::find("echo").expect("echo comes with the package coreutils");
        assert!(ask(&echo).answer().is_ok());
        let fail = programs::find("false").expect("false comes with the package coreutils");
        assert!(ask(&fail).answer().is_err() || ask(&fail).answer().is_ok_and(|line| line.contains("coreutils")));
        assert!(ask(Path::new("/no/such/program")).answer().unwrap_err().contains("does not start"));
    }

    #[test]
    fn who_does_not_answer_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("silent");
        // Were it written here, another thread's fork could hold it open for writing while it is executed.
        let script = "printf '#!/bin/sh\nexec sleep 600\n' > \"$0\" && chmod +x \"$0\"";
        assert!(Command::new("sh").args(["-c", script]).arg(&program).status().unwrap().success());
        let start = Instant::now();
        assert_eq!(ask(&program).answer().unwrap_err(), "it does not say its version");
        assert!(start.elapsed() < Duration::from_secs(300));
    }
}
