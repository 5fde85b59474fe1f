//! File systems for tests.

use crate::files::{FileSystems, Place, Volume};
use std::collections::BTreeMap;

/// File systems in memory.
#[derive(Default)]
pub(crate) struct Trees {
    volumes: Vec<Volume>,
    files: BTreeMap<Place, Vec<u8>>,
}

impl Trees {
    /// With this volume as the root.
    pub(crate) fn new(root: Volume) -> Self {
        Self { volumes: vec![Volume { directory: Some("/".into()), ..root }], files: BTreeMap::new() }
    }

    /// With another volume.
    pub(crate) fn volume(mut self, volume: Volume) -> Self {
        self.volumes.push(volume);
        self
    }

    /// With files on a volume: their names, and what they hold.
    pub(crate) fn files(mut self, volume: usize, files: &[(&str, &str)]) -> Self {
        self.files.extend(files.iter().map(|(path, text)| (Place::new(volume, path), text.as_bytes().to_vec())));
        self
    }

    pub(crate) fn file(mut self, volume: usize, path: &str, bytes: Vec<u8>) -> Self {
        self.files.insert(Place::new(volume, path), bytes);
        self
    }
}

impl FileSystems for Trees {
    fn volumes(&self) -> &[Volume] {
        &self.volumes
    }

    fn size(&self, place: &Place) -> Option<u64> {
        self.files.get(place).map(|bytes| bytes.len() as u64)
    }

    fn read(&self, place: &Place, offset: u64, bytes_max: usize) -> Option<Vec<u8>> {
        let bytes = self.files.get(place)?.get(usize::try_from(offset).ok()?..)?;
        Some(bytes[..bytes.len().min(bytes_max)].to_vec())
    }

    fn is_directory(&self, place: &Place) -> bool {
        !self.names(place).is_empty()
    }

    fn names(&self, place: &Place) -> Vec<String> {
        let directory = format!("{}/", place.path.trim_end_matches('/'));
        let within = self.files.keys().filter(|file| file.volume == place.volume);
        let names = within.filter_map(|file| Some(file.path.strip_prefix(&directory)?.split('/').next()?.to_owned()));
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}
