//! Where results are kept: directories that are open from when they are made, so that no name leads elsewhere later.

use anyhow::{Context, Result, bail};
use blockyard_block::{not_planted, shown};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// A directory for results.
#[derive(Debug)]
pub struct Output {
    directory: OwnedFd,
    /// For messages.
    path: PathBuf,
}

impl Output {
    /// The directory at `path`, which is made if nothing is there.
    ///
    /// # Errors
    /// When it is none, cannot be made, or somebody else has put it or a link to it where everybody may.
    pub fn at(path: &Path) -> Result<Self> {
        let context = || format!("cannot make {}", shown(path));
        fs::create_dir_all(path).with_context(context)?;
        let own = not_planted(path).with_context(context)?;
        let directory = openat(CWD, &own, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()).with_context(context)?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// The directory of this name in it, which is made if nothing is there.
    ///
    /// # Errors
    /// When something else is there, or it cannot be made.
    pub fn below(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        let made = match mkdirat(&self.directory, name, MODE_OF_DIRECTORIES) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        };
        let opened = made.and_then(|()| openat(&self.directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()));
        let directory = opened.with_context(|| format!("cannot make {}", shown(&path)))?;
        Ok(Self { directory, path })
    }

    /// Refuses to have results of a step whose results are here already.
    ///
    /// # Errors
    /// When they are.
    pub fn refuse_results(&self, step: &str) -> Result<()> {
        for name in [step, &format!("{step}.log")] {
            if statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                bail!("{} is there already: results need a new directory", shown(&self.path.join(name)));
            }
        }
        Ok(())
    }

    /// A directory that is new.
    pub(crate) fn new_directory(&self, name: &str) -> Result<Self> {
        mkdirat(&self.directory, name, MODE_OF_DIRECTORIES)
            .with_context(|| format!("cannot make {}: results need a new directory", shown(&self.path.join(name))))?;
        self.below(name)
    }

    /// A file that is new.
    pub(crate) fn new_file(&self, name: &str) -> Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::from_raw_mode(0o666));
        Ok(File::from(file.with_context(|| format!("cannot make {}", shown(&self.path.join(name))))?))
    }

    /// The begin of a file that a guest has left there, and whether it goes on. What is no regular file is nothing.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> (Vec<u8>, bool) {
        // It may be a link to anywhere, or what blocks who opens it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut bytes = Vec::new();
        if let Ok(file) = openat(&self.directory, name, flags, Mode::empty()).map(File::from)
            && file.metadata().is_ok_and(|metadata| metadata.is_file())
        {
            // What was read before an error counts.
            _ = file.take(bytes_max + 1).read_to_end(&mut bytes);
        }
        let goes_on = bytes.len() as u64 > bytes_max;
        bytes.truncate(bytes_max as usize);
        (bytes, goes_on)
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const MODE_OF_DIRECTORIES: Mode = Mode::from_raw_mode(0o777);

/// The name by which another process of this user's opens the very file that this one has open, whatever has its own
/// name by then, for as long as it is open.
pub(crate) fn held_name(file: impl AsFd) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_fd().as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, mknodat};
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_guest_left_is_read_within_bounds_and_through_no_link() {
        let place = tempfile::tempdir().unwrap();
        let output = Output::at(&place.path().join("out/of/all")).unwrap().new_directory("step").unwrap();
        let at = |name: &str| place.path().join("out/of/all/step").join(name);
        fs::write(at("output"), "hello").unwrap();
        symlink("output", at("link")).unwrap();
        mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        File::create(at("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(output.read("output", 4), (b"hell".to_vec(), true));
        assert_eq!(output.read("output", 5), (b"hello".to_vec(), false));
        assert_eq!(output.read("huge", 9), (vec![0; 9], true));
        for name in ["link", "fifo", "none", "."] {
            assert_eq!(output.read(name, 4), (Vec::new(), false), "{name}");
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_that_somebody_put_there() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        let output = Output::at(&at("out")).unwrap();
        for name in ["machine", "step", "step.log"] {
            symlink(at("elsewhere"), at("out").join(name)).unwrap();
        }
        assert!(output.below("machine").is_err() && output.new_directory("step").is_err());
        assert!(output.new_file("step.log").is_err());
        // Whatever has the name later, results go where they were to go.
        let results = output.new_directory("other").unwrap();
        fs::rename(at("out/other"), at("moved")).unwrap();
        symlink(at("elsewhere"), at("out/other")).unwrap();
        drop(results.new_file("figures").unwrap());
        assert!(at("moved/figures").exists() && held_name(&results).join("figures").exists());
        assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);
    }
}
