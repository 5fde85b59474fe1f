//! Which packages an image's operating system has: by the databases of dpkg and apk, which are texts, and by its own
//! rpm, which has several.
//!
//! An image may say anything: what does not look like a package is left out, and text is cut and made harmless.

use crate::error::{Result, refuse};
use crate::guest::ENVIRONMENT;
use crate::guest::write_out;
use crate::guest::{OpenImage, RecordTaker};
use blockyard_block::printable;
use blockyard_protocol::appliance::{Execute, Operation, Read, Record};
use serde::Serialize;
use std::io::{self, Write};

/// Packages that are listed: more than any system has.
const PACKAGES_MAX: usize = 1 << 17;
/// Bytes of a database that are read.
const DATABASE_BYTES_MAX: usize = 64 << 20;
/// Letters of a name or a version.
const TEXT_LETTERS_MAX: usize = 200;
/// What rpm(8) is asked for, one package a line.
const RPM_FORMAT: &str = "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n";

/// A package that is installed. The names are virt-inspector's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Package {
    /// What it is called.
    pub name: String,
    /// Before a version's colon.
    #[serde(skip_serializing_if = "is_zero")]
    pub epoch: u32,
    /// Its version.
    pub version: String,
    /// Behind a version's last hyphen.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub release: String,
    /// The machine that it is for.
    pub arch: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Package {
    /// Out of a version as package managers write it, epoch:version-release.
    fn new(name: &str, version: &str, arch: &str) -> Option<Self> {
        let told = |text: &str| printable(&text.trim().chars().take(TEXT_LETTERS_MAX).collect::<String>());
        let (epoch, version) = version.split_once(':').unwrap_or(("0", version));
        let (version, release) = version.rsplit_once('-').unwrap_or((version, ""));
        let package = Self {
            name: told(name),
            epoch: epoch.trim().parse().unwrap_or(0),
            version: told(version),
            release: told(release),
            arch: told(arch),
        };
        (!package.name.is_empty() && !package.version.is_empty()).then_some(package)
    }

    /// As package managers write it.
    pub fn full_version(&self) -> String {
        let epoch = if self.epoch == 0 { String::new() } else { format!("{}:", self.epoch) };
        let release = if self.release.is_empty() { String::new() } else { format!("-{}", self.release) };
        format!("{epoch}{}{release}", self.version)
    }
}

impl OpenImage {
    /// The packages of the system that is mounted, in order of name, whose format is `format`; `None` for one that is
    /// not known here.
    ///
    /// # Errors
    /// When its database cannot be read.
    pub fn packages(&mut self, format: &str) -> Result<Option<Vec<Package>>> {
        let mut packages = match format {
            "deb" => dpkg(&self.database("/var/lib/dpkg/status")?),
            "apk" => apk(&self.database("/lib/apk/db/installed")?),
            "rpm" => rpm(&self.said_by_rpm()?),
            _ => return Ok(None),
        };
        packages.sort_by(|one, other| (&one.name, &one.arch).cmp(&(&other.name, &other.arch)));
        Ok(Some(packages))
    }

    fn database(&mut self, path: &str) -> Result<String> {
        let read = Read { paths: vec![path.as_bytes().to_vec()] };
        let Bounded(bytes) = write_out(self, Operation::Read(read), Bounded::default())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// rpm has had three formats, and the image's own knows its own.
    fn said_by_rpm(&mut self) -> Result<String> {
        let words = ["rpm", "--query", "--all", "--queryformat", RPM_FORMAT];
        let execute = Execute {
            arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            environment: ENVIRONMENT.iter().map(|variable| variable.as_bytes().to_vec()).collect(),
        };
        let Bounded(bytes) = self.records_with_input(Operation::Execute(execute), io::empty(), Said::default())?;
        if bytes.is_empty() {
            refuse!("its rpm lists no packages");
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Bytes, up to what a database may have.
#[derive(Debug, Default)]
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > DATABASE_BYTES_MAX {
            return Err(io::Error::other("a database of packages is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a program writes to its standard output.
#[derive(Default)]
struct Said(Bounded);

impl RecordTaker for Said {
    type Output = Bounded;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Output(output) if !output.is_error => self.0.write_all(&output.bytes),
            _ => Ok(()),
        }
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.0)
    }
}

/// The status of dpkg(1): paragraphs of fields.
fn dpkg(text: &str) -> Vec<Package> {
    let paragraph = |paragraph: &str| {
        let field = |name: &str| {
            let lines = paragraph.lines().filter_map(|line| line.split_once(": "));
            lines.filter(|(key, _)| *key == name).map(|(_, value)| value.trim()).next()
        };
        let installed = field("Status")?.ends_with(" installed");
        installed.then(|| Package::new(field("Package")?, field("Version")?, field("Architecture")?)).flatten()
    };
    text.split("\n\n").filter_map(paragraph).take(PACKAGES_MAX).collect()
}

/// apk's database: paragraphs of lines that begin with a letter.
fn apk(text: &str) -> Vec<Package> {
    let paragraph = |paragraph: &str| {
        let field = |name: &str| paragraph.lines().find_map(|line| line.strip_prefix(name));
        Package::new(field("P:")?, field("V:")?, field("A:")?)
    };
    text.split("\n\n").filter_map(paragraph).take(PACKAGES_MAX).collect()
}

/// What [`RPM_FORMAT`] prints.
fn rpm(text: &str) -> Vec<Package> {
    let line = |line: &str| {
        let mut fields = line.split('\t');
        Package::new(fields.next()?, fields.next()?, fields.next()?)
    };
    // Keys of signatures are no packages.
    text.lines().filter_map(line).filter(|package| package.name != "gpg-pubkey").take(PACKAGES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(packages: &[Package]) -> Vec<String> {
        packages.iter().map(|package| format!("{} {} {}", package.name, package.full_version(), package.arch)).collect()
    }

    #[test]
    fn databases_say_what_is_installed() {
        let status = "Package: bash\nStatus: install ok installed\nVersion: 5.2.15-2+b8\nArchitecture: amd64\nDescription: a shell\n \
                      Version: 9\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\nArchitecture: all\n\nPackage: dash\n\
                      Status: hold ok installed\nVersion: 1:0.5-12-3\nArchitecture: all\n\nPackage: odd\nStatus: install ok installed\n";
        assert_eq!(told(&dpkg(status)), ["bash 5.2.15-2+b8 amd64", "dash 1:0.5-12-3 all"]);
        let dash = &dpkg(status)[1];
        assert_eq!((dash.epoch, dash.version.as_str(), dash.release.as_str()), (1, "0.5-12", "3"));
        let installed =
            "C:Q1x\nP:musl\nV:1.2.4-r2\nA:x86_64\nF:lib\nR:libc.so\n\nP:broken\n\nP:busybox\nV:1.36.1-r5\nA:x86_64\n";
        assert_eq!(told(&apk(installed)), ["musl 1.2.4-r2 x86_64", "busybox 1.36.1-r5 x86_64"]);
        let said = "gpg-pubkey\t0:5a6340b3-6229229e\t(none)\nbash\t0:5.1.8-9.el9\tx86_64\nshadow-utils\t2:4.9-8.el9\tx86_64\nodd\n";
        assert_eq!(told(&rpm(said)), ["bash 5.1.8-9.el9 x86_64", "shadow-utils 2:4.9-8.el9 x86_64"]);
    }

    #[test]
    fn fuzz_whatever_a_database_says_is_told_in_harmless_text() {
        blockyard_fuzz::check!(10_000).with_type::<Vec<u8>>().for_each(|bytes| {
            let text = String::from_utf8_lossy(bytes).into_owned();
            for package in [dpkg(&text), apk(&text), rpm(&text)].concat() {
                for text in [package.name, package.version, package.release, package.arch] {
                    assert!(text.chars().count() <= TEXT_LETTERS_MAX && !text.contains(char::is_control), "{text:?}");
                }
            }
        });
    }
}
