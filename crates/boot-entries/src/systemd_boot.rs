//! systemd-boot: loader.conf, and which entry it takes (loader.conf(5), systemd-boot(7)).

use crate::boot_loader_specification::{Candidate, entries};
use crate::files::{Image, Place};
use crate::{Entry, Loader, Problem};

/// Letters of a pattern that are compared: longer ones match nothing.
const PATTERN_LETTERS_MAX: usize = 256;

pub(crate) fn find(image: &Image<'_>) -> Result<Option<Entry>, Problem> {
    // It reads FAT only, and that is never the root of a Linux.
    let volumes: Vec<_> = image.boot_order().into_iter().filter(|&volume| volume != 0).collect();
    let configuration = |volume: &usize| Place::new(*volume, "/loader/loader.conf");
    let is_there = |volume: &&usize| {
        image.has(&configuration(volume)) || image.has_directory(&Place::new(**volume, "/EFI/systemd"))
    };
    let Some(volume) = volumes.iter().find(is_there) else { return Ok(None) };
    let all = entries(image, &volumes);
    let place = configuration(volume);
    let default = image.text(&place).and_then(|text| default_of(&text));
    let chosen = match &default {
        Some((_, pattern)) => all.iter().find(|entry| matches(pattern, &entry.id)),
        None => None,
    };
    // Where the pattern matches none, and what was chosen last is kept elsewhere: the first of the menu.
    let first = || all.iter().find(|entry| entry.is_linux());
    let Some(entry) = chosen.or_else(first) else { return Ok(None) };
    let mut entry = entry.entry(image, Loader::SystemdBoot)?;
    entry.notes.extend(note(image, &place, &default, chosen));
    Ok(Some(entry))
}

/// That loader.conf asks for something else.
fn note(
    image: &Image<'_>,
    place: &Place,
    default: &Option<(u32, String)>,
    chosen: Option<&Candidate>,
) -> Option<String> {
    let (line, pattern) = default.as_ref().filter(|_| chosen.is_none())?;
    let file = image.shown(place);
    let why = match pattern.as_str() {
        "@saved" => "what was chosen last, which the machine keeps and not the image".to_owned(),
        pattern => format!("{pattern}, which no entry is called"),
    };
    Some(format!("{file}, line {line}: the default is {why}; the first entry was taken"))
}

/// The pattern of the default entry, with its line.
fn default_of(text: &str) -> Option<(u32, String)> {
    let lines = (1..).zip(text.lines());
    let defaults = lines.filter_map(|(number, line)| {
        let (key, value) = line.trim().split_once([' ', '\t'])?;
        (key == "default").then(|| (number, value.trim().to_owned()))
    });
    defaults.last()
}

/// Whether a pattern with *, ? and [] stands for an entry's id, with its ending or without.
fn matches(pattern: &str, id: &str) -> bool {
    let letters = |text: &str| text.to_lowercase().chars().take(PATTERN_LETTERS_MAX + 1).collect::<Vec<_>>();
    let pattern = letters(pattern);
    let stem = id.rsplit_once('.').map_or(id, |(stem, _)| stem);
    pattern.len() <= PATTERN_LETTERS_MAX && [id, stem].iter().any(|name| matches_letters(&pattern, &letters(name)))
}

/// In a time that grows with the product of the lengths: a star takes as few letters as it can, and one more if what
/// follows does not match.
fn matches_letters(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut from, mut star) = (0, 0, None);
    while from < name.len() {
        match one_letter(&pattern[at..], name[from]) {
            Some(length) => (at, from) = (at + length, from + 1),
            None if pattern.get(at) == Some(&'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            None => match star {
                Some((behind, began)) => {
                    (at, from) = (behind, began + 1);
                    star = Some((behind, began + 1));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&letter| letter == '*')
}

/// How much of a pattern stands for this letter at its start.
fn one_letter(pattern: &[char], letter: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', set @ ..] => {
            let end = set.iter().position(|&letter| letter == ']')?;
            let has = set[..end].contains(&letter)
                || set[..end].windows(3).any(|range| range[1] == '-' && (range[0]..=range[2]).contains(&letter));
            has.then_some(end + 2)
        }
        ['*', ..] => None,
        [first, ..] => (*first == letter).then_some(1),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_entries() {
        for (pattern, id, wanted) in [
            ("arch.conf", "arch.conf", true),
            ("arch", "arch.conf", true),
            ("ARCH*", "arch-lts.conf", true),
            ("arch-*.conf", "arch-lts.conf", true),
            ("a?ch", "arch.conf", true),
            ("fedora-[0-9]*", "fedora-6.5.conf", true),
            ("fedora-[a-c]*", "fedora-6.5.conf", false),
            ("*-*-*b", "a-b-c-ab.conf", true),
            ("debian", "arch.conf", false),
            ("", "arch.conf", false),
            ("*", "arch.conf", true),
            ("[", "[", false),
        ] {
            assert_eq!(matches(pattern, id), wanted, "{pattern} {id}");
        }
    }

    #[test]
    fn fuzz_any_pattern_ends() {
        blockyard_fuzz::check!(20_000).with_type::<(String, String)>().for_each(|(pattern, id)| {
            matches(pattern, id);
            let _ = default_of(pattern);
        });
    }
}
