//! Images for tests, and what other tools say of them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A directory with an image in it.
pub(crate) struct Rig {
    pub(crate) directory: TempDir,
    pub(crate) image: PathBuf,
}

impl Rig {
    /// An ext4 image with what `fill` puts into a directory.
    pub(crate) fn new(megabytes: u64, fill: impl FnOnce(&Path)) -> Self {
        Self::made(megabytes, &[], fill)
    }

    /// The same, with options of mke2fs's.
    pub(crate) fn made(megabytes: u64, options: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (image, root) = (directory.path().join("disk.img"), directory.path().join("root"));
        fs::create_dir(&root).unwrap();
        fill(&root);
        File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
        let mut arguments = vec![OsStr::new("-q"), "-t".as_ref(), "ext4".as_ref(), "-d".as_ref(), root.as_ref()];
        arguments.extend(options.iter().map(OsStr::new));
        arguments.push(image.as_ref());
        tool("mke2fs", "e2fsprogs", arguments);
        Self { directory, image }
    }

    /// An ext4 image with nothing in it.
    pub(crate) fn empty(megabytes: u64) -> Self {
        Self::new(megabytes, |_| {})
    }

    /// Another directory, with a copy of the image.
    pub(crate) fn twin(&self) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk.img");
        tool("cp", "coreutils", [OsStr::new("--sparse=always"), self.image.as_ref(), image.as_ref()]);
        Self { directory, image }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `blockyard image SUBCOMMAND [OPTIONS…] IMAGE ARGUMENTS…`, run in the directory: what one that is killed leaves
    /// goes with it.
    pub(crate) fn command(&self, subcommand: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["image", subcommand]).arg(&self.image).args(arguments).current_dir(self.directory.path());
        command.env("TMPDIR", self.directory.path());
        command
    }

    /// Runs it and expects success; what it printed.
    pub(crate) fn run(&self, subcommand: &str, arguments: &[&str]) -> String {
        let output = self.command(subcommand, arguments).output().unwrap();
        assert!(output.status.success(), "{subcommand} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs it and expects that it fails; what it says.
    pub(crate) fn fail(&self, subcommand: &str, arguments: &[&str]) -> String {
        failure(self.command(subcommand, arguments).output().unwrap())
    }

    /// The file system is in good order.
    pub(crate) fn check(&self) {
        let output = Command::new("e2fsck").arg("-fn").arg(&self.image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// What debugfs says to a request.
    pub(crate) fn debugfs(&self, request: &str) -> String {
        tool("debugfs", "e2fsprogs", [OsStr::new("-R"), request.as_ref(), self.image.as_ref()])
    }
}

/// What a command that failed as it should says: exit status 1, and a sentence.
pub(crate) fn failure(output: Output) -> String {
    failure_with(1, output)
}

/// As [`failure`], with another exit status: 130 after Ctrl-C.
pub(crate) fn failure_with(status: i32, output: Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.starts_with("blockyard: "), "{said}");
    said
}

/// Whether this is the lab, where the appliance is a machine on KVM, and /tmp in memory.
pub(crate) fn is_in_lab() -> bool {
    std::env::var_os("BLOCKYARD_LAB").is_some()
}

/// Runs a tool that a package brings; what it printed.
pub(crate) fn tool<I: IntoIterator<Item: AsRef<OsStr>>>(program: &str, package: &str, arguments: I) -> String {
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = command.output().unwrap_or_else(|error| panic!("{program} ({error}): it is in Debian's {package}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An archive's entry: type, name, content, and fields that are something else: place and text.
pub(crate) fn tar_entry(kind: u8, name: &str, content: &[u8], fields: &[(usize, &str)]) -> Vec<u8> {
    let mut header = [0u8; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    let size = format!("{:011o}", content.len());
    let usual = [(0, name), (100, "0000664"), (108, "0000000"), (116, "0000000"), (124, &size), (136, "00000000007")];
    usual.iter().chain(fields).for_each(|(at, text)| put(*at, text));
    put(148, "        ");
    put(257, "ustar  ");
    header[156] = kind;
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = [&header[..], content].concat();
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

/// A key file at `path`, for nobody else.
pub(crate) fn key_file(path: &Path, content: &str) {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(content.as_bytes()).unwrap();
}

/// Bytes that no compression or zero detection makes less, the same every time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| next().to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}
