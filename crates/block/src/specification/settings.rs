//! The parts of a specification, and the keys that stand in them.

use super::error::SpecificationError;
use super::keys::{Key, KeysTaken};
use std::ops::Range;

/// Why a disk has one of the two.
pub(super) const OVERLAY_OR_SNAPSHOT: &str =
    "changes go either to the overlay or nowhere lasting; leave one of the two out";

/// What is said of two keys that make no sense together.
pub(super) fn contradiction(one: &str, other: &str, reason: &str) -> String {
    format!("'{one}' and '{other}' contradict each other: {reason}")
}

/// What stands between two commas.
pub(super) struct Part {
    /// Where, in the specification.
    pub(super) span: Range<usize>,
    /// With one comma for two.
    pub(super) text: String,
}

/// Cuts at single commas. There is always at least one part.
pub(super) fn split(specification: &str) -> Vec<Part> {
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

/// The keys that are there.
pub(super) struct Settings<'s> {
    specification: &'s str,
    found: Vec<Setting>,
}

pub(super) struct Setting {
    key: &'static Key,
    key_span: Range<usize>,
    pub(super) value_span: Range<usize>,
    pub(super) value: String,
}

impl<'s> Settings<'s> {
    pub(super) fn read(specification: &'s str, keys: KeysTaken, parts: &[Part]) -> Result<Self, SpecificationError> {
        let mut settings = Self { specification, found: Vec::new() };
        for part in parts {
            let setting = settings.setting(keys, part)?;
            if !setting.key.may_repeat() && settings.get(setting.key.name).is_some() {
                return Err(settings.wrong(setting.key_span, keys.refused(setting.key.name)));
            }
            settings.found.push(setting);
        }
        Ok(settings)
    }

    fn setting(&self, keys: KeysTaken, part: &Part) -> Result<Setting, SpecificationError> {
        let (name, value) = match part.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part.text.as_str(), None),
        };
        // A comma written twice is no key's, so where one is in the name the whole part is wrong.
        let has_commas = name.contains(',');
        let name_end = if has_commas { part.span.end } else { part.span.start + name.len() };
        let key_span = part.span.start..name_end;
        let Some(key) = keys.find(name) else {
            return Err(self.wrong(key_span, keys.unknown(name)));
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

    pub(super) fn wrong(&self, span: Range<usize>, message: impl Into<String>) -> SpecificationError {
        SpecificationError::new(self.specification, span, message)
    }

    pub(super) fn get(&self, name: &str) -> Option<&Setting> {
        self.found.iter().find(|setting| setting.key.name == name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The key's value, read by `parse`; its complaint points at the value.
    pub(super) fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, SpecificationError> {
        let Some(setting) = self.get(name) else { return Ok(None) };
        parse(&setting.value)
            .map(Some)
            .map_err(|message| self.wrong(setting.value_span.clone(), format!("{name}: {message}")))
    }

    /// Reads each value of a key that may be there more than once; a complaint points at the value.
    pub(super) fn each(
        &self,
        name: &str,
        mut parse: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<(), SpecificationError> {
        self.found.iter().filter(|setting| setting.key.name == name).try_for_each(|setting| {
            parse(&setting.value)
                .map_err(|message| self.wrong(setting.value_span.clone(), format!("{name}: {message}")))
        })
    }

    /// Keys that are each right and make no sense together.
    pub(super) fn check_contradictions(&self) -> Result<(), SpecificationError> {
        let reasons = [
            ("overlay", "snapshot", OVERLAY_OR_SNAPSHOT),
            ("ro", "snapshot", "a disk that takes no changes needs nowhere to put them; leave one of the two out"),
        ];
        for (one, other, reason) in reasons {
            if let (Some(one), Some(other)) = (self.get(one), self.get(other)) {
                let later = if one.key_span.start > other.key_span.start { one } else { other };
                let message = contradiction(one.key.name, other.key.name, reason);
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
