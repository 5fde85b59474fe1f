//! Commands that print what files hold, or what the host's programs say of it.

use crate::arguments::text;
use crate::pipe;
use crate::verb::Action::{Call, Words};
use crate::verb::Verb;
use crate::verb::on_files::tells;
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_block::shown;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::guest::{image_path, write_out};
use blockyard_protocol::appliance::{Operation, Read};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// On what files hold.
pub(crate) const VERBS: &[Verb] = &[
    tells(&["more", "less"], "PATH", "Show a file page by page", Call(page)),
    tells(&["head"], "PATH", "Print the first ten lines of a file", Call(head)),
    tells(
        &["tail"],
        "PATH",
        "Print the last ten lines of a file",
        Call(|workbench, words| piped(workbench, &words[0], "tail")),
    ),
    tells(
        &["head-n"],
        "LINES PATH",
        "Print the first lines of a file; with -N all but the last N",
        Call(|workbench, words| some_lines(workbench, words, "head")),
    ),
    tells(
        &["tail-n"],
        "LINES PATH",
        "Print the last lines of a file",
        Call(|workbench, words| some_lines(workbench, words, "tail")),
    ),
    tells(&["wc-l"], "PATH", "Count a file's lines", Call(|workbench, words| summed(workbench, &words[0], "wc -l"))),
    tells(&["wc-w"], "PATH", "Count a file's words", Call(|workbench, words| summed(workbench, &words[0], "wc -w"))),
    tells(&["wc-c"], "PATH", "Count a file's bytes", Call(|workbench, words| summed(workbench, &words[0], "wc -c"))),
    tells(
        &["grep"],
        "PATTERN PATH",
        "Print the lines that match a regular expression",
        Call(|workbench, words| grep(workbench, words, "")),
    ),
    tells(
        &["grepi"],
        "PATTERN PATH",
        "The same, whatever the case",
        Call(|workbench, words| grep(workbench, words, "-i")),
    ),
    tells(
        &["egrep"],
        "PATTERN PATH",
        "The same, with an extended regular expression",
        Call(|workbench, words| grep(workbench, words, "-E")),
    ),
    tells(
        &["fgrep"],
        "TEXT PATH",
        "Print the lines that hold a text",
        Call(|workbench, words| grep(workbench, words, "-F")),
    ),
    tells(
        &["checksum"],
        "KIND PATH",
        "Say a file's checksum: crc, md5, sha1, sha224, sha256, sha384 or sha512",
        Call(checksum),
    ),
    tells(&["read-file", "read-lines"], "PATH", "Print a file", Words(&["cat", "--", "$1"])),
    tells(&["hexdump"], "PATH", "Print a file's bytes in hexadecimal", Call(hexdump)),
    tells(&["strings"], "PATH", "Print what looks like text in a file", Call(strings)),
];

/// Prints a file of the image through a command of the host's shell.
fn piped(workbench: &mut Workbench, path: &OsStr, command: &str) -> Result<()> {
    let cat = ["cat".into(), "--".into(), path.to_owned()];
    pipe::into_own(OsStr::new(command), || workbench.perform(&cat))
}

/// Prints what a command of the host's shell says of a file of the image as a whole.
fn summed(workbench: &mut Workbench, path: &OsStr, command: &str) -> Result<()> {
    let cat = ["cat".into(), "--".into(), path.to_owned()];
    pipe::sum(OsStr::new(command), || workbench.perform(&cat))
}

fn page(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    piped(workbench, &words[0], "${PAGER:-more}")
}

fn head(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    piped(workbench, &words[0], "head")
}

/// `head-n` and `tail-n`: a number of lines, and a file.
fn some_lines(workbench: &mut Workbench, words: &[OsString], program: &str) -> Result<()> {
    match text(&words[0])?.parse::<i64>() {
        Ok(lines) => piped(workbench, &words[1], &format!("{program} -n {lines}")),
        Err(_) => bail!(UsageError(format!("{} is no number of lines", shown(&words[0])))),
    }
}

/// `checksum`: by guestfish's name, with the tools of everybody's machine.
fn checksum(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let program = match text(&words[0])? {
        "crc" => "cksum",
        "md5" => "md5sum",
        "sha1" => "sha1sum",
        "sha224" => "sha224sum",
        "sha256" => "sha256sum",
        "sha384" => "sha384sum",
        "sha512" => "sha512sum",
        other => bail!(UsageError(format!("{other}: crc, md5, sha1, sha224, sha256, sha384 and sha512 are known"))),
    };
    summed(workbench, &words[1], &format!("sum=$({program}) && echo \"${{sum%% *}}\""))
}

/// `grep` and its like: no line that matches is no failure.
fn grep(workbench: &mut Workbench, words: &[OsString], option: &str) -> Result<()> {
    let pattern = text(&words[0])?.replace('\'', "'\\''");
    piped(workbench, &words[1], &format!("grep {option} -e '{pattern}' || test $? = 1"))
}

/// `hexdump`: as `hexdump -C` has it.
fn hexdump(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let dump = Hexdump { output: BufWriter::new(io::stdout()), line: Vec::new(), at: 0, last: None, skips: false };
    let mut dump = read(workbench, &words[0], dump)?;
    dump.end_line()?;
    if dump.at > 0 {
        writeln!(dump.output, "{:08x}", dump.at)?;
    }
    Ok(dump.output.flush()?)
}

fn read<W: Write + Send + 'static>(workbench: &mut Workbench, path: &OsStr, output: W) -> Result<W> {
    let paths = vec![image_path(Path::new(path))];
    Ok(write_out(workbench.image()?, Operation::Read(Read { paths }), output)?)
}

struct Hexdump {
    output: BufWriter<io::Stdout>,
    line: Vec<u8>,
    /// Where the line ends.
    at: u64,
    /// The line before.
    last: Option<Vec<u8>>,
    /// Lines that are the same are left out.
    skips: bool,
}

impl Hexdump {
    fn end_line(&mut self) -> io::Result<()> {
        const BYTES: usize = 16;
        if self.line.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        if self.last.as_ref() == Some(&line) {
            if !self.skips {
                self.output.write_all(b"*\n")?;
            }
            self.skips = true;
            return Ok(());
        }
        write!(self.output, "{:08x} ", self.at - line.len() as u64)?;
        for index in 0..BYTES {
            let gap = if index % 8 == 0 { " " } else { "" };
            match line.get(index) {
                Some(byte) => write!(self.output, "{gap}{byte:02x} ")?,
                None => write!(self.output, "{gap}   ")?,
            }
        }
        let letters = line.iter().map(|&byte| if is_letter(byte) { char::from(byte) } else { '.' });
        writeln!(self.output, " |{}|", letters.collect::<String>())?;
        (self.last, self.skips) = (Some(line), false);
        Ok(())
    }
}

impl Write for Hexdump {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.line.push(byte);
            self.at += 1;
            if self.at.is_multiple_of(16) {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' '
}

/// `strings`: what looks like text, four letters or more, as strings(1) has it.
fn strings(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let output = BufWriter::new(io::stdout());
    let mut strings = read(workbench, &words[0], Strings { output, letters: Vec::new(), length: 0 })?;
    strings.end()?;
    Ok(strings.output.flush()?)
}

struct Strings {
    output: BufWriter<io::Stdout>,
    /// The first of them, until they are enough.
    letters: Vec<u8>,
    length: u64,
}

impl Strings {
    const LETTERS_MIN: u64 = 4;

    fn end(&mut self) -> io::Result<()> {
        if self.length >= Self::LETTERS_MIN {
            self.output.write_all(b"\n")?;
        }
        self.letters.clear();
        self.length = 0;
        Ok(())
    }
}

impl Write for Strings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if !(is_letter(byte) || byte == b'\t') {
                self.end()?;
                continue;
            }
            self.length += 1;
            self.letters.push(byte);
            if self.length >= Self::LETTERS_MIN {
                self.output.write_all(&self.letters)?;
                self.letters.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
