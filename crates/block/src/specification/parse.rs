//! From text to a specification.

use super::hindrances::Hindrances;
use super::keys;
use super::kinds::{Backend, BehindKind, Kind};
use super::settings::{Part, Settings, split};
use super::{Delta, DiskSpecification, PartitionChoice, SpecificationError, TABLES};
use crate::Remedy;
use crate::partition_table::TableChoice;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

/// What stands for stdin and stdout elsewhere.
const STANDARD: &str = "-";

impl FromStr for DiskSpecification {
    type Err = SpecificationError;

    fn from_str(text: &str) -> Result<Self, SpecificationError> {
        let mut parts = split(text);
        let first = parts.remove(0);
        let (kind, path) = kind_and_path(text, &first)?;
        let settings = Settings::read(text, kind.keys(), &parts)?;
        settings.check_contradictions()?;
        let backend = Backend::read(kind, &path, &settings)?;
        let delta = delta(&settings)?;
        if let (Backend::File(file), true) = (&backend, delta.is_some())
            && file.compressed().is_some()
        {
            let message = "what is in a compressed file is read from its beginning to its end, and never changed: leave \
                           overlay= and snapshot out, or decompress it first";
            return Err(SpecificationError::new(text, first.span.clone(), message));
        }
        Ok(Self {
            backend,
            read_only: settings.has("ro"),
            delta,
            partition: partition(&settings)?,
            hindrances: Hindrances::read(&settings)?,
        })
    }
}

fn kind_and_path(specification: &str, part: &Part) -> Result<(Kind, BehindKind), SpecificationError> {
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
        return wrong(span.clone(), format!("a disk needs {}", kind.needs()));
    }
    if text == STANDARD {
        let message = format!(
            "stdin and stdout are no disks, which are read and written anywhere: {}a file of that name is ./-",
            Remedy::CopyStreams
        );
        return wrong(path_span, message);
    }
    if path.contains('\0') {
        return wrong(path_span, "a path cannot contain a zero byte".into());
    }
    Ok((kind, BehindKind { span: path_span, text: path.into() }))
}

fn unknown_kind(word: &str, text: &str) -> String {
    let nearest = keys::nearest(word, Kind::ALL.into_iter().map(Kind::word));
    let meant = nearest.map_or(String::new(), |kind| format!("; did you mean '{kind}:'?"));
    let escaped = text.replace(',', ",,");
    format!(
        "there is no kind '{word}', only {}{}; a file of this name is written file:{escaped} or ./{escaped}",
        Kind::list(),
        meant.trim_end_matches('?'),
    )
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

fn partition_number(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| format!("'{text}' is no partition's number: a whole number from 1"))
}

fn table(text: &str) -> Result<TableChoice, String> {
    // As sfdisk and parted call it.
    let word = if matches!(text, "dos" | "msdos") { "mbr" } else { text };
    let found = TABLES.into_iter().find(|(own, _)| *own == word);
    found.map(|(_, table)| table).ok_or_else(|| format!("there is no '{text}', only mbr and gpt"))
}
