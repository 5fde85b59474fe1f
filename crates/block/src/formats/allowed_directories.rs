//! The gate through which every reference out of an image is opened.

use super::{ChainKeys, FoundJournal, ImageError, KeyFile, LocalName};
use crate::{FileDisk, FileDiskError, FileIdentity, FileOptions, OpenedFile, shown};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// Longest name that is looked for: the system takes no longer path.
const NAME_MAX_BYTES: usize = 4095;

/// Directories whose files an image may refer to: what `--allow-dir` names. An image's author otherwise decides which
/// of the host's files a guest reads and writes. And the keys that it and those may be opened by.
#[derive(Debug, Default)]
pub struct AllowedDirectories {
    /// Each with its path, symbolic links resolved.
    directories: Vec<(PathBuf, OwnedFd)>,
    /// The passphrases of the images that are encrypted.
    keys: ChainKeys,
}

impl AllowedDirectories {
    /// No directory: every reference is refused.
    pub fn none() -> Self {
        Self::default()
    }

    /// These directories, with all that is below them.
    ///
    /// # Errors
    /// When one of them is not a directory that can be opened.
    pub fn new<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ImageError> {
        let open = |path: &Path| -> io::Result<(PathBuf, OwnedFd)> {
            let path = path.canonicalize()?;
            let directory = openat(CWD, &path, DIRECTORY, Mode::empty())?;
            Ok((path, directory))
        };
        let directories = paths.iter().map(|path| {
            let path = path.as_ref();
            open(path).map_err(|source| ImageError::System {
                action: "open the allowed directory",
                path: path.to_owned(),
                source,
            })
        });
        Ok(Self { directories: directories.collect::<Result<_, _>>()?, keys: ChainKeys::default() })
    }

    /// The same, and what opens an image and those behind it that are encrypted.
    #[must_use]
    pub fn with_key(self, key: Option<KeyFile>) -> Self {
        self.with_keys(ChainKeys::new(key, BTreeMap::new()))
    }

    /// The same, by the key of each.
    #[must_use]
    pub fn with_keys(self, keys: ChainKeys) -> Self {
        Self { keys, ..self }
    }

    /// What opens those that are encrypted.
    pub(super) fn keys(&self) -> &ChainKeys {
        &self.keys
    }

    /// Their paths, symbolic links resolved.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.directories.iter().map(|(path, _)| path.as_path())
    }

    /// Opens the file that `image` calls `name`: for reading, and also for writing if `writable`, and locked then.
    /// Gives its path too, from which what it refers to in turn starts.
    pub(super) fn open(&self, image: &Path, name: &str, writable: bool) -> Result<(File, PathBuf), ImageError> {
        let found = self.find(image, name)?;
        let path = found.path().to_owned();
        found.open(writable, Some(&path))
    }

    /// Finds the file that `image` calls `name`.
    ///
    /// A name that is not absolute starts from the directory in the image's path, as QEMU has it: where that is a
    /// symbolic link, from where the link is. What the name means is found first; what is then opened is reached from
    /// an allowed directory without following any symbolic link, so nobody can put another file in its place meanwhile
    /// that lies elsewhere.
    pub(super) fn find(&self, image: &Path, name: &str) -> Result<FoundFile, ImageError> {
        let unusable = |problem: String| ImageError::Unusable { path: image.to_owned(), problem };
        if name.len() > NAME_MAX_BYTES {
            let (begins, bytes) = (name.chars().take(100).collect::<String>(), name.len());
            return Err(unusable(format!("refers to a file by an impossible name of {bytes} bytes, {begins:?}…")));
        }
        let local = LocalName::of(name).map_err(|problem| unusable(format!("refers to {name:?}: {problem}")))?;
        let (name, local) = (local.path.as_str(), &local);
        if name.is_empty() || name.contains('\0') {
            return Err(unusable(format!("refers to a file by an impossible name, {name:?}")));
        }
        let failed = failed(image, Path::new(name));
        let named = image.parent().unwrap_or(Path::new("")).join(name);
        // Whose symbolic links are followed is the kernel's to decide.
        let by_kernel = openat(CWD, &named, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let by_kernel = by_kernel.map_err(|errno| failed(errno.into()))?;
        let target = named.canonicalize().map_err(&failed)?;
        let covering = self.directories.iter().find_map(|(path, fd)| Some((fd, target.strip_prefix(path).ok()?)));
        let Some((fd, below)) = covering else {
            let directory = target.parent().unwrap_or(Path::new("/")).to_owned();
            return Err(ImageError::NotAllowed { image: image.to_owned(), target, directory });
        };
        let seen = find_below(fd, below).map_err(&failed)?;
        if !is_same(&seen, &by_kernel).map_err(&failed)? {
            return Err(failed(io::Error::other("it is being moved or replaced")));
        }
        Ok(FoundFile { seen, path: named, target, image: image.into(), name: name.into(), local: local.clone() })
    }
}

/// A file that an image refers to, and may.
pub(super) struct FoundFile {
    /// Open as a path only (`O_PATH`): opening it may have effects, which is for those that hold disks.
    seen: OwnedFd,
    path: PathBuf,
    /// The same, symbolic links resolved.
    target: PathBuf,
    /// The image that refers to it.
    image: PathBuf,
    /// As that calls it.
    name: PathBuf,
    local: LocalName,
}

impl FoundFile {
    /// Its path, symbolic links resolved.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Its path, from which what it refers to in turn starts.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it, as every disk is opened. If it is `writable`, it is locked under the name that `lock_as` gives it,
    /// before anything that somebody else may be about is judged. Gives its path too.
    pub(super) fn open(self, writable: bool, lock_as: Option<&Path>) -> Result<(File, PathBuf), ImageError> {
        let Self { seen, path, image, name, local, .. } = self;
        let failed = failed(&image, &name);
        let file = FileDisk::open_seen(seen, &path, !writable).map_err(|error| match error {
            FileDiskError::Open { source, .. } => failed(source),
            error => error.into(),
        })?;
        let opened = OpenedFile::new(file.try_clone().map_err(&failed)?, path.clone());
        local.check_alone(&opened).map_err(|problem| ImageError::Unusable {
            path: image.clone(),
            problem: format!("refers to {}: {problem}", shown(&name)),
        })?;
        if !writable {
            FoundJournal::refuse(&opened)?;
            return Ok((file, path));
        }
        if let Some(name) = lock_as {
            FileDisk::lock(&file, name, &FileOptions::default())?;
        }
        FoundJournal::refuse_to_write(&opened)?;
        Ok((file, path))
    }
}

fn failed(image: &Path, name: &Path) -> impl Fn(io::Error) -> ImageError {
    move |source| ImageError::Referred { image: image.to_owned(), name: name.to_owned(), source }
}

fn is_same(a: impl AsFd, b: impl AsFd) -> io::Result<bool> {
    Ok(FileIdentity::of_open(a)? == FileIdentity::of_open(b)?)
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Goes down `path` one name at a time, following nothing: what `openat2` does with RESOLVE_BENEATH and
/// RESOLVE_NO_SYMLINKS, also where a container's filter does not know that call. What is there is open as a path only.
fn find_below(directory: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let mut names = Vec::new();
    for component in path.components() {
        let Component::Normal(name) = component else { return Err(io::ErrorKind::InvalidInput.into()) };
        names.push(name);
    }
    let Some((last, parents)) = names.split_last() else { return Err(io::ErrorKind::IsADirectory.into()) };
    let mut below: Option<OwnedFd> = None;
    for name in parents {
        let from = below.as_ref().unwrap_or(directory).as_fd();
        below = Some(openat(from, *name, DIRECTORY, Mode::empty())?);
    }
    let from = below.as_ref().unwrap_or(directory).as_fd();
    Ok(openat(from, *last, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// What QEMU would take for a protocol in front of a file name: anything before a colon that no slash precedes.
pub(super) fn protocol(name: &str) -> Option<&str> {
    let (before, _) = name.split_once(':')?;
    (!before.contains('/')).then_some(before)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, PathBuf, AllowedDirectories) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().canonicalize().unwrap();
        fs::create_dir_all(path.join("images")).unwrap();
        fs::create_dir_all(path.join("bases/deep")).unwrap();
        fs::write(path.join("images/top"), "top").unwrap();
        fs::write(path.join("bases/base"), "base").unwrap();
        fs::write(path.join("bases/deep/base"), "deep").unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        let allowed = AllowedDirectories::new(&[path.join("bases")]).unwrap();
        (root, path, allowed)
    }

    #[test]
    fn what_an_allowed_directory_covers_opens() {
        let (_root, path, allowed) = tree();
        for name in ["../bases/base", "../bases/deep/base", "../bases/deep/../base"] {
            allowed.open(&path.join("images/top"), name, true).unwrap();
        }
        let absolute = path.join("bases/base").display().to_string();
        let (_, target) = allowed.open(&path.join("images/top"), &absolute, false).unwrap();
        assert_eq!(target, path.join("bases/base"));
    }

    #[test]
    fn everything_else_is_refused_and_the_error_says_what_to_give() {
        let (_root, path, allowed) = tree();
        symlink("../secret", path.join("bases/link")).unwrap();
        symlink("..", path.join("bases/up")).unwrap();
        for name in ["../secret", "../bases/../secret", "../bases/link", "../bases/up/secret"] {
            let error = allowed.open(&path.join("images/top"), name, false).unwrap_err();
            let wanted = format!(
                "{} refers to {}, which lies in no directory that was allowed; if you trust the image, allow {}",
                path.join("images/top").display(),
                path.join("secret").display(),
                path.display()
            );
            assert_eq!(error.to_string(), wanted, "{name}");
        }
        assert!(AllowedDirectories::none().open(&path.join("images/top"), "top", false).is_err());
    }

    #[test]
    fn a_link_to_what_is_allowed_is_as_good_as_a_name() {
        let (_root, path, allowed) = tree();
        symlink("../bases/base", path.join("images/link")).unwrap();
        allowed.open(&path.join("images/top"), "link", false).unwrap();
    }

    /// As QEMU has it, and as whoever names a backing file looks for it.
    #[test]
    fn what_an_image_refers_to_starts_where_its_name_is() {
        let (_root, path, allowed) = tree();
        symlink("../../images/top", path.join("bases/deep/link")).unwrap();
        let (file, found) = allowed.open(&path.join("bases/deep/link"), "base", false).unwrap();
        assert_eq!((io::read_to_string(file).unwrap(), found), ("deep".to_owned(), path.join("bases/deep/base")));
        assert!(allowed.open(&path.join("images/top"), "base", false).is_err());
    }

    #[test]
    fn the_way_down_follows_no_link() {
        let (_root, path, _) = tree();
        symlink("deep", path.join("bases/alias")).unwrap();
        let directory = openat(CWD, path.join("bases"), DIRECTORY, Mode::empty()).unwrap();
        let is_base = |found: OwnedFd| is_same(found, File::open(path.join("bases/deep/base")).unwrap()).unwrap();
        assert!(is_base(find_below(&directory, Path::new("deep/base")).unwrap()));
        for path in ["alias/base", "../secret", "/secret", ""] {
            assert!(find_below(&directory, Path::new(path)).is_err(), "{path}");
        }
        // A link is not what it leads to, and no disk.
        assert!(!is_base(find_below(&directory, Path::new("alias")).unwrap()));
    }

    #[test]
    fn protocols_are_no_files() {
        let (_root, path, allowed) = tree();
        for (name, wanted) in [
            ("json:{\"driver\":\"file\"}", "names no file"),
            ("nbd://host/disk", "has a protocol"),
            ("fat:rw:/etc", "has a protocol"),
            ("file:base", "an absolute path"),
        ] {
            let error = allowed.open(&path.join("images/top"), name, false).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
        let error = allowed.open(&path.join("images/top"), &"ä".repeat(10_000), false).unwrap_err().to_string();
        assert!(error.contains("an impossible name of 20000 bytes") && error.len() < 1000, "{error}");
        let base = path.join("bases/base").display().to_string();
        for (name, opens) in [
            (format!("file:{base}"), true),
            (format!("json:{{\"file\":{{\"driver\":\"file\",\"filename\":\"{base}\"}}}}"), true),
            (format!("file:{}", path.join("secret").display()), false),
            (format!("json:{{\"file.filename\":\"{}\"}}", path.join("secret").display()), false),
        ] {
            assert_eq!(allowed.open(&path.join("images/top"), &name, false).is_ok(), opens, "{name}");
        }
        assert_eq!(protocol("./a:b"), None);
    }

    /// Whoever opens a FIFO for writing is let in by its first reader: that would be an effect, as opening a device may
    /// have others.
    #[test]
    fn what_is_no_disk_is_not_opened() {
        let (_root, path, allowed) = tree();
        let fifo = path.join("bases/fifo");
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let writer = std::thread::spawn({
            let fifo = fifo.clone();
            move || openat(CWD, &fifo, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
        });
        for writable in [false, true] {
            let error = allowed.open(&path.join("images/top"), "../bases/fifo", writable).unwrap_err().to_string();
            assert!(error.contains("is a FIFO"), "{error}");
        }
        symlink("/dev/null", path.join("bases/null")).unwrap();
        let anywhere = AllowedDirectories::new(&[Path::new("/")]).unwrap();
        let error = anywhere.open(&path.join("images/top"), "../bases/null", true).unwrap_err().to_string();
        assert!(error.contains("is a character device"), "{error}");
        assert!(!writer.is_finished(), "somebody has opened the FIFO");
        let reader = openat(CWD, &fifo, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap();
        writer.join().unwrap().unwrap();
        drop(reader);
    }
}
