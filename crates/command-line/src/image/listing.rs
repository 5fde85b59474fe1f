//! How files look in listings.

use blockyard_block::printable;
use blockyard_image::files::file_type::{is_device, type_letter};
use blockyard_protocol::appliance::Entry;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

/// A type for people.
pub fn type_name(mode: u32) -> &'static str {
    match type_letter(mode) {
        'd' => "directory",
        'l' => "symbolic link",
        'c' => "character special file",
        'b' => "block special file",
        'p' => "fifo",
        's' => "socket",
        _ => "regular file",
    }
}

/// `-rwxr-xr-x`.
pub fn mode_text(mode: u32) -> String {
    let mut text = String::from(type_letter(mode));
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A device's numbers where it is one, else its size.
pub fn size_text(entry: &Entry, human: bool) -> String {
    match entry.mode {
        mode if is_device(mode) => format!("{}, {}", entry.major, entry.minor),
        _ if human => human_size(entry.size),
        _ => entry.size.to_string(),
    }
}

/// As `ls -h` has it: rounded up, 1024 to a K.
pub fn human_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut unit = bytes.ilog2() as usize / 10;
    let tenths = |unit: usize| (u128::from(bytes) * 10).div_ceil(1 << (10 * unit));
    if tenths(unit) > 10230 && unit < 6 {
        unit += 1;
    }
    match tenths(unit) {
        small @ ..100 => format!("{}.{}{}", small / 10, small % 10, UNITS[unit]),
        large => format!("{}{}", large.div_ceil(10), UNITS[unit]),
    }
}

/// A name where there is one, else the number.
pub fn owner(name: &str, number: u32) -> String {
    if name.is_empty() { number.to_string() } else { printable(name) }
}

/// Seconds since 1970 as `2026-11-22 05:23`, UTC; with seconds if wanted.
pub fn time_text(seconds: i64, with_seconds: bool) -> String {
    let (days, rest) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let (year, month, day) = civil(days);
    let mut text = format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", rest / 3600, rest / 60 % 60);
    if with_seconds {
        // Writing to a string cannot fail.
        let _ = write!(text, ":{:02}", rest % 60);
    }
    text
}

/// Year, month and day of a number of days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
pub fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Stdout, where a terminal is not commanded by names out of an image.
pub struct Names {
    output: io::BufWriter<io::Stdout>,
    terminal: bool,
}

impl Names {
    /// Nothing is said yet.
    pub fn to_stdout() -> Self {
        let output = io::stdout();
        Self { terminal: output.is_terminal(), output: io::BufWriter::with_capacity(64 << 10, output) }
    }

    /// Text of our own.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.output.write_all(text.as_bytes())
    }

    /// Bytes of the user's.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes)
    }

    /// A name: as it is, except on a terminal.
    pub fn name(&mut self, name: &[u8]) -> io::Result<()> {
        if self.terminal {
            let name = printable(&String::from_utf8_lossy(name));
            return self.output.write_all(name.as_bytes());
        }
        self.output.write_all(name)
    }

    /// All is said.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_look_as_in_ls() {
        assert_eq!(mode_text(0o100_644), "-rw-r--r--");
        assert_eq!(mode_text(0o041_777), "drwxrwxrwt");
        assert_eq!(mode_text(0o104_711), "-rws--x--x");
        assert_eq!(mode_text(0o102_600), "-rw---S---");
    }

    #[test]
    fn sizes_look_as_in_ls() {
        let texts = [0, 1023, 1024, 1025, 10239, 10241, 1 << 20, (1 << 20) - 1, u64::MAX].map(human_size);
        assert_eq!(texts, ["0", "1023", "1.0K", "1.1K", "10K", "11K", "1.0M", "1.0M", "16E"]);
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(time_text(0, true), "1970-01-01 00:00:00");
        assert_eq!(time_text(951_782_400, false), "2000-02-29 00:00");
        assert_eq!(time_text(-1, true), "1969-12-31 23:59:59");
        assert_eq!(time_text(4_102_444_799, true), "2099-12-31 23:59:59");
    }
}
