//! Boot entries as files (UAPI Group, Boot Loader Specification): text in loader/entries, unified kernel images in
//! EFI/Linux.

use crate::files::{Image, Place};
use crate::{Entry, Loader, Problem, unified_kernel_image, version};
use std::cmp::Ordering;

/// Entries that are looked at.
const ENTRIES_MAX: usize = 512;
/// Longest entry.
const ENTRY_BYTES_MAX: usize = 64 << 10;

/// An entry that a loader can show.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// The file's name, without its count of attempts.
    pub(crate) id: String,
    pub(crate) place: Place,
    /// What it says.
    pub(crate) text: EntryText,
    /// It is a unified kernel image.
    is_unified: bool,
    /// All attempts to boot it were used up.
    is_bad: bool,
}

/// What an entry's file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryText {
    pub(crate) title: String,
    pub(crate) version: String,
    pub(crate) machine_id: String,
    pub(crate) sort_key: String,
    /// The kernel, with the number of its line.
    pub(crate) linux: Option<(u32, String)>,
    pub(crate) initrds: Vec<(u32, String)>,
    pub(crate) options: Vec<String>,
    pub(crate) architecture: String,
    /// It starts something else.
    pub(crate) program: Option<u32>,
    /// Bytes of all of it.
    pub(crate) bytes: usize,
}

impl EntryText {
    pub(crate) fn parse(text: &str) -> Self {
        let mut entry = Self { bytes: text.len(), ..Self::default() };
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            let Some((key, value)) = line.split_once([' ', '\t']).filter(|_| !line.starts_with('#')) else { continue };
            let value = value.trim();
            match key {
                "title" => entry.title = value.to_owned(),
                "version" => entry.version = value.to_owned(),
                "machine-id" => entry.machine_id = value.to_owned(),
                "sort-key" => entry.sort_key = value.to_owned(),
                "linux" => entry.linux = Some((number, value.to_owned())),
                "initrd" => entry.initrds.push((number, value.to_owned())),
                "options" => entry.options.push(value.to_owned()),
                "architecture" => entry.architecture = value.to_ascii_lowercase(),
                "efi" | "uki" | "uki-url" => entry.program = Some(number),
                _ => {}
            }
        }
        entry
    }
}

impl Candidate {
    /// What a menu calls it.
    fn title(&self) -> &str {
        if self.text.title.is_empty() { &self.id } else { &self.text.title }
    }

    /// The order of the menu (systemd-boot's, and the specification's).
    fn compare(&self, other: &Self) -> Ordering {
        let (one, two) = (&self.text, &other.text);
        let has_key = |text: &EntryText| !text.sort_key.is_empty();
        let by_key = || {
            let versions = version::compare(&two.version, &one.version);
            one.sort_key.cmp(&two.sort_key).then(one.machine_id.cmp(&two.machine_id)).then(versions)
        };
        self.is_bad
            .cmp(&other.is_bad)
            .then(has_key(two).cmp(&has_key(one)))
            .then_with(|| if has_key(one) && has_key(two) { by_key() } else { Ordering::Equal })
            .then_with(|| version::compare(&other.id, &self.id))
    }

    /// What is booted when this is chosen.
    pub(crate) fn entry(&self, image: &Image<'_>, loader: Loader) -> Result<Entry, Problem> {
        let file = image.shown(&self.place);
        if self.is_unified {
            let kernel = unified_kernel_image::read(image, &self.place);
            let kernel = kernel.map_err(|sentence| Problem::new(file.as_str(), 0, sentence))?;
            return Ok(Entry {
                loader,
                file,
                line: 0,
                title: self.title().to_owned(),
                kernel: kernel.linux,
                initrds: kernel.initrds,
                command_line: kernel.command_line,
                notes: Vec::new(),
            });
        }
        let piece = |(line, path): &(u32, String)| {
            let places =
                [image.resolve(self.place.volume, path), Place::new(self.place.volume, &format!("/boot/{path}"))];
            let found = places.into_iter().find_map(|place| image.piece(place));
            found.ok_or_else(|| Problem::new(file.as_str(), *line, format!("the image has no file {path}")))
        };
        let Some(linux) = &self.text.linux else {
            let line = self.text.program.unwrap_or_default();
            return Err(Problem::new(file, line, "the entry starts no Linux kernel"));
        };
        Ok(Entry {
            loader,
            line: 0,
            title: self.title().to_owned(),
            kernel: piece(linux)?,
            initrds: self.text.initrds.iter().map(piece).collect::<Result<_, _>>()?,
            command_line: self.text.options.join(" "),
            notes: Vec::new(),
            file,
        })
    }
}

/// The entries of a volume's directory loader/entries: `directory` is that.
pub(crate) fn text_entries(image: &Image<'_>, directory: &Place) -> Vec<Candidate> {
    let names = image.names(directory).into_iter().filter(|name| name.ends_with(".conf")).take(ENTRIES_MAX);
    let candidate = |name: String| {
        let place = directory.join(&name);
        let text = image.size(&place).filter(|&size| size <= ENTRY_BYTES_MAX as u64).and(image.text(&place))?;
        let text = EntryText::parse(&text);
        let (id, is_bad) = without_attempts(&name);
        let is_ours = text.architecture.is_empty() || text.architecture == "x64";
        is_ours.then_some(Candidate { id, place, text, is_unified: false, is_bad })
    };
    names.filter_map(candidate).collect()
}

/// The unified kernel images of a volume's directory EFI/Linux.
fn unified_entries(image: &Image<'_>, volume: usize) -> Vec<Candidate> {
    let directory = Place::new(volume, "/EFI/Linux");
    let is_image = |name: &String| name.to_ascii_lowercase().ends_with(".efi");
    let candidate = |name: String| {
        let place = directory.join(&name);
        let text = unified_kernel_image::release(image, &place);
        let (id, is_bad) = without_attempts(&name);
        Candidate { id, place, text, is_unified: true, is_bad }
    };
    image.names(&directory).into_iter().filter(is_image).take(ENTRIES_MAX).map(candidate).collect()
}

/// A name like arch+3-1.conf without how often it is to be tried, and whether no attempt is left.
fn without_attempts(name: &str) -> (String, bool) {
    let whole = || (name.to_owned(), false);
    let Some((stem, ending)) = name.rsplit_once('.') else { return whole() };
    let Some((stem, count)) = stem.rsplit_once('+') else { return whole() };
    let mut numbers = count.splitn(2, '-').map(|number| number.parse::<u32>().ok());
    let (left, done) = (numbers.next().flatten(), numbers.next());
    match (left, done) {
        (Some(left), None | Some(Some(_))) => (format!("{stem}.{ending}"), left == 0),
        _ => whole(),
    }
}

/// All entries of these volumes, as a menu has them.
pub(crate) fn entries(image: &Image<'_>, volumes: &[usize]) -> Vec<Candidate> {
    let of = |&volume: &usize| {
        let texts = text_entries(image, &Place::new(volume, "/loader/entries"));
        texts.into_iter().chain(unified_entries(image, volume))
    };
    let mut all: Vec<_> = volumes.iter().flat_map(of).collect();
    sort(&mut all);
    all
}

pub(crate) fn sort(entries: &mut [Candidate]) {
    entries.sort_by(Candidate::compare);
}

/// The first entry with a kernel, where no loader says which it takes.
pub(crate) fn find_without_loader(image: &Image<'_>) -> Result<Option<Entry>, Problem> {
    let mut all = entries(image, &image.boot_order());
    all.extend(text_entries(image, &Place::new(0, "/boot/loader/entries")));
    sort(&mut all);
    let first = all.iter().find(|entry| entry.is_unified || entry.text.linux.is_some());
    first.map(|entry| entry.entry(image, Loader::BootLoaderSpecification)).transpose()
}

impl Candidate {
    /// Whether it starts Linux.
    pub(crate) fn is_linux(&self) -> bool {
        self.is_unified || self.text.linux.is_some()
    }
}
