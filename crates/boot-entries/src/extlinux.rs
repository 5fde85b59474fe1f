//! extlinux's and syslinux's configuration: labels, and which of them is the default.

use crate::files::{Image, Place};
use crate::{Entry, Loader, Problem};

/// Where the configuration lies: below the directory /boot, and below a file system's root.
const FILES: [&str; 5] =
    ["extlinux/extlinux.conf", "syslinux/syslinux.cfg", "syslinux/extlinux.conf", "extlinux.conf", "syslinux.cfg"];
/// Labels that are kept.
const LABELS_MAX: usize = 256;
/// Files that one may include, in all.
const INCLUDES_MAX: u32 = 16;

/// What a configuration says.
#[derive(Debug, Default)]
struct Configuration {
    default: String,
    /// What is appended where a label has nothing of its own.
    append: String,
    labels: Vec<Label>,
    included: u32,
}

#[derive(Debug, Default)]
struct Label {
    file: String,
    line: u32,
    name: String,
    title: String,
    kernel: Option<(u32, String)>,
    initrds: Vec<(u32, String)>,
    append: Option<String>,
    is_menus_default: bool,
}

pub(crate) fn find(image: &Image<'_>) -> Result<Option<Entry>, Problem> {
    let directories = image.boot_directories().into_iter();
    let roots = image.boot_order().into_iter().map(|volume| Place::new(volume, "/"));
    let places = directories.chain(roots).flat_map(|directory| FILES.map(|name| directory.join(name)));
    let mut found = places.filter_map(|place| Some((image.text(&place)?, place)));
    let Some((text, place)) = found.next() else { return Ok(None) };
    let mut configuration = Configuration::default();
    configuration.read(image, &place, &text);
    let Some(label) = configuration.chosen() else { return Ok(None) };
    configuration.entry(image, &place, label).map(Some)
}

impl Configuration {
    fn read(&mut self, image: &Image<'_>, place: &Place, text: &str) {
        let file = image.shown(place);
        for (line, words) in (1..).zip(text.lines().map(str::trim)) {
            let (key, value) = words.split_once([' ', '\t']).unwrap_or((words, ""));
            let (key, value) = (key.to_ascii_lowercase(), value.trim());
            if key == "label" && self.labels.len() < LABELS_MAX {
                self.labels.push(Label { file: file.clone(), line, name: value.to_owned(), ..Label::default() });
                continue;
            }
            match (key.as_str(), self.labels.last_mut()) {
                ("default", _) => self.default = value.to_owned(),
                ("include", _) => self.include(image, place, value),
                ("append", None) => self.append = value.to_owned(),
                ("append", Some(label)) => label.append = Some(value.to_owned()),
                ("kernel" | "linux", Some(label)) => label.kernel = Some((line, value.to_owned())),
                ("initrd", Some(label)) => {
                    label.initrds = value.split(',').map(|path| (line, path.trim().to_owned())).collect();
                }
                ("menu", Some(label)) => label.menu(value),
                _ => {}
            }
        }
    }

    fn include(&mut self, image: &Image<'_>, place: &Place, path: &str) {
        if self.included >= INCLUDES_MAX {
            return;
        }
        self.included += 1;
        let place = beside(image, place, path);
        if let Some(text) = image.text(&place) {
            self.read(image, &place, &text);
        }
    }

    /// The label that is booted when nobody chooses.
    fn chosen(&self) -> Option<&Label> {
        let labels = || self.labels.iter();
        let named = labels().find(|label| label.name == self.default);
        named.or_else(|| labels().find(|label| label.is_menus_default)).or_else(|| labels().next())
    }

    fn entry(&self, image: &Image<'_>, place: &Place, label: &Label) -> Result<Entry, Problem> {
        let problem = |line, sentence: String| Problem::new(label.file.as_str(), line, sentence);
        let piece = |(line, path): &(u32, String)| {
            let found = image.piece(beside(image, place, path));
            found.ok_or_else(|| problem(*line, format!("the image has no file {path}")))
        };
        let Some(kernel) = &label.kernel else {
            return Err(problem(label.line, format!("the label {} has no kernel", label.name)));
        };
        let append = match label.append.as_deref() {
            Some("-") => "",
            Some(append) => append,
            None => &self.append,
        };
        let mut initrds = label.initrds.clone();
        if let (true, Some(paths)) =
            (initrds.is_empty(), append.split(' ').find_map(|word| word.strip_prefix("initrd=")))
        {
            initrds = paths.split(',').map(|path| (kernel.0, path.to_owned())).collect();
        }
        let words = append.split(' ').filter(|word| !word.starts_with("initrd="));
        Ok(Entry {
            loader: Loader::Extlinux,
            file: label.file.clone(),
            line: label.line,
            title: if label.title.is_empty() { label.name.clone() } else { label.title.clone() },
            kernel: piece(kernel)?,
            initrds: initrds.iter().map(piece).collect::<Result<_, _>>()?,
            command_line: words.collect::<Vec<_>>().join(" "),
            notes: Vec::new(),
        })
    }
}

impl Label {
    /// MENU LABEL and MENU DEFAULT. A ^ stands before a letter's key.
    fn menu(&mut self, value: &str) {
        let (key, value) = value.split_once([' ', '\t']).unwrap_or((value, ""));
        match key.to_ascii_lowercase().as_str() {
            "label" => self.title = value.trim().replacen('^', "", 1),
            "default" => self.is_menus_default = true,
            _ => {}
        }
    }
}

/// A path from the file system's root, or from the configuration's directory.
fn beside(image: &Image<'_>, configuration: &Place, path: &str) -> Place {
    match path.starts_with('/') {
        true => image.resolve(configuration.volume, path),
        false => configuration.directory().join(path),
    }
}
