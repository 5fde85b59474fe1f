//! From text to a specification.

use super::keys::{self, KEYS, Key};
use super::{
    Backend, Delta, DiskSpecification, ENGINES, FileSpecification, Format, Kind, PartitionChoice, SessionSpecification,
    SpecificationError, TABLES,
};
use crate::layers::{Faults, Latency, ThrottleLimits};
use crate::partition_table::TableChoice;
use crate::{duration, size};
use std::num::{NonZeroU32, NonZeroU64};
use std::ops::{Range, RangeInclusive};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A file's length is at most 2^63 - 1; rounding it up to the largest block must not pass that.
const CAPACITY_BYTES_MAX: u64 = i64::MAX as u64 - 65535;
const IO_BUFFER_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;
const IOPS_MAX: u64 = 1_000_000_000;
/// What stands for stdin and stdout elsewhere.
const STANDARD: &str = "-";
const BURST_MAX: Duration = Duration::from_secs(3600);

impl FromStr for DiskSpecification {
    type Err = SpecificationError;

    fn from_str(text: &str) -> Result<Self, SpecificationError> {
        let mut parts = split(text);
        let first = parts.remove(0);
        let (kind, path) = kind_and_path(text, &first)?;
        let settings = Settings::read(text, kind, &parts)?;
        settings.check_contradictions()?;
        Ok(Self {
            backend: backend(kind, &path, &settings)?,
            read_only: settings.has("ro"),
            delta: delta(&settings)?,
            partition: partition(&settings)?,
            limits: limits(&settings)?,
            latency: settings.value("latency", Latency::from_str)?,
            faults: faults(&settings)?,
        })
    }
}

/// What stands between two commas.
struct Part {
    /// Where, in the specification.
    span: Range<usize>,
    /// With one comma for two.
    text: String,
}

/// Cuts at single commas. There is always at least one part.
fn split(specification: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut start, mut text) = (0, String::new());
    let mut letters = specification.char_indices().peekable();
    while let Some((index, letter)) = letters.next() {
        if letter != ',' || letters.next_if(|&(_, next)| next == ',').is_some() {
            text.push(letter);
        } else {
            parts.push(Part { span: start..index, text: std::mem::take(&mut text) });
            start = index + 1;
        }
    }
    parts.push(Part { span: start..specification.len(), text });
    parts
}

/// What follows the kind.
struct PathPart {
    span: Range<usize>,
    text: String,
}

fn kind_and_path(specification: &str, part: &Part) -> Result<(Kind, PathPart), SpecificationError> {
    let Part { span, text } = part;
    let wrong = |span, message: String| Err(SpecificationError::new(specification, span, message));
    let (kind, path, path_start) = match text.split_once(':') {
        Some((word, path)) if !word.contains('/') => {
            // Up to the colon, before which a comma may be written twice.
            let colon = span.start + specification[span.clone()].find(':').unwrap_or(0);
            match Kind::ALL.into_iter().find(|kind| kind.word() == word) {
                Some(kind) => (kind, path, colon + 1),
                None => return wrong(span.start..colon, unknown_kind(word, text)),
            }
        }
        _ => (Kind::File, text.as_str(), span.start),
    };
    let path_span = path_start..span.end;
    if path.is_empty() {
        let what = match kind {
            Kind::File => "the path of a file or block device",
            Kind::Session => "the path of a socket after 'session:'",
            Kind::Memory => "a size after 'mem:', such as mem:1G",
            Kind::Null => "a size after 'null:', such as null:8G",
        };
        return wrong(span.clone(), format!("a disk needs {what}"));
    }
    if text == STANDARD {
        let message = "stdin and stdout are no disks, which are read and written anywhere: `blockyard image dd` copies between them and a \
                       disk (if=-, of=-); a file of that name is ./-";
        return wrong(path_span, message.into());
    }
    if path.contains('\0') {
        return wrong(path_span, "a path cannot contain a zero byte".into());
    }
    Ok((kind, PathPart { span: path_span, text: path.into() }))
}

fn unknown_kind(word: &str, text: &str) -> String {
    let nearest = keys::nearest(word, Kind::ALL.into_iter().map(Kind::word));
    let meant = nearest.map_or(String::new(), |kind| format!("; did you mean '{kind}:'?"));
    let escaped = text.replace(',', ",,");
    format!(
        "there is no kind '{word}', only file, session, mem and null{}; a file of this name is written file:{escaped} or \
         ./{escaped}",
        meant.trim_end_matches('?'),
    )
}

/// The keys that are there.
struct Settings<'s> {
    specification: &'s str,
    found: Vec<Setting>,
}

struct Setting {
    key: &'static Key,
    key_span: Range<usize>,
    value_span: Range<usize>,
    value: String,
}

impl<'s> Settings<'s> {
    fn read(specification: &'s str, kind: Kind, parts: &[Part]) -> Result<Self, SpecificationError> {
        let mut settings = Self { specification, found: Vec::new() };
        for part in parts {
            let setting = settings.setting(kind, part)?;
            if settings.get(setting.key.name).is_some() {
                return Err(settings.wrong(setting.key_span, key_refused(setting.key.name, kind)));
            }
            settings.found.push(setting);
        }
        Ok(settings)
    }

    fn setting(&self, kind: Kind, part: &Part) -> Result<Setting, SpecificationError> {
        let (name, value) = match part.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part.text.as_str(), None),
        };
        // A comma written twice is no key's, so where one is in the name the whole part is wrong.
        let has_commas = name.contains(',');
        let name_end = if has_commas { part.span.end } else { part.span.start + name.len() };
        let key_span = part.span.start..name_end;
        let Some(key) = KEYS.iter().find(|key| key.name == name && key.kinds.contains(&kind)) else {
            return Err(self.wrong(key_span, unknown_key(name, kind)));
        };
        let value_span = (name_end + 1).min(part.span.end)..part.span.end;
        match (key.value, value) {
            (None, None) => {}
            (Some(_), Some(value)) if !value.is_empty() => {}
            (Some(what), _) => {
                return Err(self.wrong(part.span.clone(), format!("'{name}' needs a value: {name}={what}")));
            }
            (None, Some(_)) => {
                let message = format!("'{name}' takes no value; write it alone, or leave it out for the opposite");
                return Err(self.wrong(part.span.clone(), message));
            }
        }
        Ok(Setting { key, key_span, value_span, value: value.unwrap_or_default().into() })
    }

    fn wrong(&self, span: Range<usize>, message: impl Into<String>) -> SpecificationError {
        SpecificationError::new(self.specification, span, message)
    }

    fn get(&self, name: &str) -> Option<&Setting> {
        self.found.iter().find(|setting| setting.key.name == name)
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The key's value, read by `parse`; its complaint points at the value.
    fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SpecificationError> {
        let Some(setting) = self.get(name) else { return Ok(None) };
        parse(&setting.value)
            .map(Some)
            .map_err(|message| self.wrong(setting.value_span.clone(), format!("{name}: {message}")))
    }

    /// Keys that are each right and make no sense together.
    fn check_contradictions(&self) -> Result<(), SpecificationError> {
        let reasons = [
            ("overlay", "snapshot", "changes go either to the overlay or nowhere lasting; leave one of the two out"),
            ("ro", "snapshot", "a disk that takes no changes needs nowhere to put them; leave one of the two out"),
        ];
        for (one, other, reason) in reasons {
            if let (Some(one), Some(other)) = (self.get(one), self.get(other)) {
                let later = if one.key_span.start > other.key_span.start { one } else { other };
                let message = format!("'{}' and '{}' contradict each other: {reason}", one.key.name, other.key.name);
                return Err(self.wrong(later.key_span.clone(), message));
            }
        }
        let needs: [(&str, &[&str], &str); 2] = [
            ("burst", &["iops", "bps"], "'burst' says how far a limit may be passed; give iops= or bps= too"),
            ("table", &["partition"], "'table' says which table a partition is looked up in; give partition= too"),
        ];
        for (one, others, reason) in needs {
            if let Some(one) = self.get(one)
                && !others.iter().any(|other| self.has(other))
            {
                return Err(self.wrong(one.key_span.clone(), reason));
            }
        }
        Ok(())
    }
}

/// Why a key that there is cannot be said once more: it has been, or is not for this kind of disk.
pub(super) fn key_refused(name: &str, kind: Kind) -> String {
    match KEYS.iter().find(|key| key.name == name && key.kinds.contains(&kind)) {
        Some(_) => format!("the key '{name}' is there twice; once is enough"),
        None => unknown_key(name, kind),
    }
}

fn unknown_key(name: &str, kind: Kind) -> String {
    let kind_name = match kind {
        Kind::File => "a file".into(),
        kind => format!("a {}: disk", kind.word()),
    };
    let known = keys::names(kind);
    if name.is_empty() {
        return format!("there is nothing between two commas, or after the last; {kind_name} takes {known}");
    }
    if KEYS.iter().any(|key| key.name == name) {
        return format!("'{name}' is not for {kind_name}, which takes {known}");
    }
    let taken = KEYS.iter().filter(|key| key.kinds.contains(&kind)).map(|key| key.name);
    match keys::nearest(name, taken) {
        Some(nearest) => format!("there is no key '{name}'; did you mean '{nearest}'? {kind_name} takes {known}"),
        None => format!(
            "there is no key '{name}': {kind_name} takes {known}; a comma that belongs to the path is written twice"
        ),
    }
}

fn backend(kind: Kind, path: &PathPart, settings: &Settings<'_>) -> Result<Backend, SpecificationError> {
    let logical_block_bytes = settings.value("block-size", block_size)?;
    let capacity = || {
        capacity(&path.text).map_err(|message| settings.wrong(path.span.clone(), format!("{}: {message}", kind.word())))
    };
    Ok(match kind {
        Kind::File => Backend::File(FileSpecification {
            path: PathBuf::from(&path.text),
            format: settings.value("format", Format::from_str)?,
            direct: settings.has("direct"),
            engine: settings.value("engine", engine)?,
            cache_unsafe: settings.value("cache", cache)?.is_some(),
            logical_block_bytes,
            lock: true,
        }),
        Kind::Session => Backend::Session(SessionSpecification {
            path: PathBuf::from(&path.text),
            io_buffer_bytes: settings.value("io-buffer", io_buffer)?,
        }),
        Kind::Memory => Backend::Memory { capacity_bytes: capacity()?, logical_block_bytes },
        Kind::Null => Backend::Null { capacity_bytes: capacity()?, logical_block_bytes },
    })
}

fn delta(settings: &Settings<'_>) -> Result<Option<Delta>, SpecificationError> {
    let overlay = settings.value("overlay", |path| match path.contains('\0') {
        true => Err("a path cannot contain a zero byte".into()),
        false => Ok(Delta::Overlay(PathBuf::from(path))),
    })?;
    Ok(overlay.or(settings.has("snapshot").then_some(Delta::Snapshot)))
}

fn partition(settings: &Settings<'_>) -> Result<Option<PartitionChoice>, SpecificationError> {
    let number = settings.value("partition", partition_number)?;
    let table = settings.value("table", table)?.unwrap_or_default();
    Ok(number.map(|number| PartitionChoice { number, table }))
}

fn limits(settings: &Settings<'_>) -> Result<Option<ThrottleLimits>, SpecificationError> {
    let iops = settings.value("iops", iops)?;
    let bytes_per_second = settings.value("bps", bps)?;
    let burst = settings.value("burst", burst)?.unwrap_or(ThrottleLimits::BURST_DEFAULT);
    let any = iops.is_some() || bytes_per_second.is_some();
    Ok(any.then_some(ThrottleLimits { iops, bytes_per_second, burst }))
}

/// Faults know which of them is wrong.
fn faults(settings: &Settings<'_>) -> Result<Option<Faults>, SpecificationError> {
    let Some(Setting { value, value_span, .. }) = settings.get("faults") else { return Ok(None) };
    value.parse().map(Some).map_err(|error: crate::layers::FaultsError| {
        // With a comma in it, which is written twice, places in the value are not places in the specification.
        let verbatim = value.len() == value_span.len();
        let span = value_span.start + error.span.start..value_span.start + error.span.end;
        settings.wrong(if verbatim { span } else { value_span.clone() }, format!("faults: {error}"))
    })
}

fn capacity(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    let possible = (1..=CAPACITY_BYTES_MAX).contains(&bytes);
    possible
        .then_some(bytes)
        .ok_or_else(|| format!("'{text}' is no size of a disk: at least 1 byte, less than 8388608T"))
}

fn block_size(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text)?;
    let bytes = u32::try_from(bytes).ok().filter(|&bytes| crate::file::check_logical_block(bytes).is_ok());
    bytes.ok_or_else(|| format!("'{text}' is no block size: a power of two from 512 to 65536"))
}

pub(super) fn io_buffer(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text)?;
    IO_BUFFER_BYTES.contains(&bytes).then_some(bytes).ok_or_else(|| format!("'{text}' is not from 4K to 1G"))
}

fn engine(text: &str) -> Result<crate::Engine, String> {
    let found = ENGINES.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, engine)| engine).ok_or_else(|| format!("there is no '{text}', only auto, uring, threads and sync"))
}

fn cache(text: &str) -> Result<(), String> {
    let message = || format!("there is no '{text}', only unsafe; leave it out for flushes that flush");
    (text == "unsafe").then_some(()).ok_or_else(message)
}

fn partition_number(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("'{text}' is no partition's number: a whole number from 1"))
}

fn table(text: &str) -> Result<TableChoice, String> {
    let found = TABLES.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, table)| table).ok_or_else(|| format!("there is no '{text}', only mbr and gpt"))
}

fn iops(text: &str) -> Result<NonZeroU64, String> {
    let number = text.parse().ok().filter(|number: &NonZeroU64| number.get() <= IOPS_MAX);
    number.ok_or_else(|| format!("'{text}' is not a whole number from 1 to {IOPS_MAX}"))
}

fn bps(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(size::parse(text)?).ok_or_else(|| "no bytes a second would be no disk: at least 1".into())
}

fn burst(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text)?;
    let message = || format!("'{text}' is longer than {}", duration::exact(BURST_MAX));
    (time <= BURST_MAX).then_some(time).ok_or_else(message)
}
