//! The image's files, as a boot loader sees them.

use crate::Piece;

/// Longest configuration file that is read.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;
/// Names of a directory that are looked at.
const NAMES_MAX: usize = 4096;

/// The file systems of an image, each with its own root.
pub trait FileSystems {
    /// The file systems. The first is the root of the operating system.
    fn volumes(&self) -> &[Volume];
    /// The size of a regular file, whatever links lead to it within its file system; `None` where there is none.
    fn size(&self, place: &Place) -> Option<u64>;
    /// Bytes of a regular file: from an offset on, so many at most, and fewer only at its end.
    fn read(&self, place: &Place, offset: u64, bytes_max: usize) -> Option<Vec<u8>>;
    /// Whether there is a directory.
    fn is_directory(&self, place: &Place) -> bool;
    /// The names in a directory, in any order; none where there is no directory.
    fn names(&self, place: &Place) -> Vec<String>;
}

/// A file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// As in vda1, or vg/root.
    pub name: String,
    /// As in ext4.
    pub kind: String,
    /// The file system's number; may be empty, as the next two may.
    pub uuid: String,
    /// The file system's name.
    pub label: String,
    /// The partition's number.
    pub partition_uuid: String,
    /// Where the operating system has it mounted; `None`: nowhere.
    pub directory: Option<String>,
    /// The subvolume that it is the root of, without slashes at its ends (Btrfs).
    pub subvolume: Option<String>,
    /// The number of its disk, from 0; `None`: it is on no one disk.
    pub disk: Option<u32>,
    /// The number of its partition, from 1; `None`: it is the whole disk.
    pub partition: Option<u32>,
    /// Whether that is a GPT's.
    pub is_gpt: bool,
}

/// A file of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which of [`FileSystems::volumes`].
    pub volume: usize,
    /// From the file system's root, with a slash before it.
    pub path: String,
}

impl Place {
    pub(crate) fn new(volume: usize, path: &str) -> Self {
        let slash = if path.starts_with('/') { "" } else { "/" };
        Self { volume, path: format!("{slash}{path}") }
    }

    /// A name in this directory.
    pub(crate) fn join(&self, name: &str) -> Self {
        Self { volume: self.volume, path: format!("{}/{}", self.path.trim_end_matches('/'), name.trim_matches('/')) }
    }

    /// The directory that it is in.
    pub(crate) fn directory(&self) -> Self {
        let end = self.path.trim_end_matches('/').rfind('/').unwrap_or(0);
        Self::new(self.volume, &self.path[..end])
    }

    /// Its name in there.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// The file systems with what every loader asks of them.
pub(crate) struct Image<'files> {
    files: &'files dyn FileSystems,
}

impl<'files> Image<'files> {
    pub(crate) fn new(files: &'files dyn FileSystems) -> Self {
        Self { files }
    }

    pub(crate) fn volumes(&self) -> &'files [Volume] {
        self.files.volumes()
    }

    /// What the operating system's root is on.
    pub(crate) fn root(&self) -> Option<&'files Volume> {
        self.volumes().first()
    }

    /// The numbers of the volumes, those first that a loader's files most likely lie on: what is mounted at /boot, the
    /// root, the others.
    pub(crate) fn boot_order(&self) -> Vec<usize> {
        let mut numbers: Vec<_> = (0..self.volumes().len()).collect();
        let rank = |number: usize| match self.volumes()[number].directory.as_deref() {
            Some("/boot") => 0,
            Some("/") => 1,
            _ => 2,
        };
        numbers.sort_by_key(|&number| rank(number));
        numbers
    }

    /// The directory /boot, and the others that a kernel may lie in instead.
    pub(crate) fn boot_directories(&self) -> Vec<Place> {
        let at_boot = self.volumes().iter().position(|volume| volume.directory.as_deref() == Some("/boot"));
        let own = at_boot.map(|volume| Place::new(volume, "/"));
        own.into_iter().chain([Place::new(0, "/boot")]).collect()
    }

    /// The name of a file for people: its path in the operating system, or with the volume's name.
    pub(crate) fn shown(&self, place: &Place) -> String {
        let volume = self.volumes().get(place.volume);
        match volume.and_then(|volume| volume.directory.as_deref()) {
            Some(directory) => format!("{}{}", directory.trim_end_matches('/'), place.path),
            None => format!("{}:{}", volume.map_or("", |volume| &volume.name), place.path),
        }
    }

    /// Where a path leads that a loader has from the root of a volume. On a Btrfs it may begin with the subvolume that
    /// is the root here.
    pub(crate) fn resolve(&self, volume: usize, path: &str) -> Place {
        let place = Place::new(volume, path);
        let subvolume = self.volumes().get(volume).and_then(|volume| volume.subvolume.as_deref());
        let within = subvolume.and_then(|name| place.path.trim_start_matches('/').strip_prefix(name));
        match within.filter(|rest| rest.starts_with('/')) {
            Some(rest) if !self.has(&place) => Place::new(volume, rest),
            _ => place,
        }
    }

    /// Whether there is a regular file.
    pub(crate) fn has(&self, place: &Place) -> bool {
        self.files.size(place).is_some()
    }

    pub(crate) fn has_directory(&self, place: &Place) -> bool {
        self.files.is_directory(place)
    }

    /// All of a file that is loaded.
    pub(crate) fn piece(&self, place: Place) -> Option<Piece> {
        let length = self.files.size(&place)?;
        Some(Piece { name: self.shown(&place), place, offset: 0, length })
    }

    /// A configuration file; `None` where there is none, or it is too long to be one.
    pub(crate) fn text(&self, place: &Place) -> Option<String> {
        let size = self.files.size(place)?;
        let bytes = (size <= TEXT_BYTES_MAX as u64).then(|| self.files.read(place, 0, TEXT_BYTES_MAX))??;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// So many bytes of a file, and no fewer.
    pub(crate) fn bytes(&self, place: &Place, offset: u64, length: usize) -> Option<Vec<u8>> {
        self.files.read(place, offset, length).filter(|bytes| bytes.len() == length)
    }

    pub(crate) fn size(&self, place: &Place) -> Option<u64> {
        self.files.size(place)
    }

    /// The names in a directory, in order.
    pub(crate) fn names(&self, place: &Place) -> Vec<String> {
        let mut names = self.files.names(place);
        names.sort();
        names.truncate(NAMES_MAX);
        names
    }
}
