//! The regular members of a tar, where they lie.

use super::TEXT_MAX_BYTES;
use crate::formats::ImageError;
use crate::formats::block_map::ImageFile;

const BLOCK_BYTES: usize = 512;

/// Most headers that are looked at.
const HEADERS_MAX: usize = 4096;

/// Longest name, and longest record of what the next header has no room for.
const EXTENSION_MAX_BYTES: u64 = 64 << 10;

/// A regular member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// Where its bytes lie in the archive.
    pub(super) offset_bytes: u64,
    pub(super) length_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Members(Vec<Member>);

/// What a header says.
struct Header {
    kind: u8,
    name: Vec<u8>,
    length_bytes: u64,
}

/// What was said of the next member in front of its header.
#[derive(Default)]
struct Ahead {
    name: Option<Vec<u8>>,
    length_bytes: Option<u64>,
}

impl Members {
    /// Those of an archive.
    pub(super) fn read(file: &ImageFile) -> Result<Self, ImageError> {
        let unusable = |problem: String| file.unusable(problem);
        let (mut members, mut ahead, mut at) = (Vec::new(), Ahead::default(), 0_u64);
        for _ in 0..HEADERS_MAX {
            let block = file.read_up_to(at, BLOCK_BYTES)?;
            // Two blocks of zeros end it, or the file's end.
            if block.iter().all(|&byte| byte == 0) {
                return Ok(Self(members));
            }
            let header = Header::parse(&block).map_err(|problem| unusable(format!("{problem}, at {at}")))?;
            let is_extension = matches!(header.kind, b'x' | b'g' | b'L' | b'K');
            let length_bytes =
                if is_extension { header.length_bytes } else { ahead.length_bytes.unwrap_or(header.length_bytes) };
            let offset_bytes = at + BLOCK_BYTES as u64;
            let end = offset_bytes.checked_add(length_bytes).filter(|&end| end <= file.length_bytes());
            let end = end.ok_or_else(|| unusable(format!("is cut off: its member at {at} reaches behind its end")))?;
            at = end.next_multiple_of(BLOCK_BYTES as u64);
            if is_extension {
                if length_bytes > EXTENSION_MAX_BYTES {
                    return Err(unusable(format!("has a name or record of {length_bytes} bytes, which is too long")));
                }
                let bytes = file.read_up_to(offset_bytes, length_bytes as usize)?;
                match header.kind {
                    b'L' => ahead.name = Some(bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()),
                    b'x' => ahead.read_records(&bytes).map_err(unusable)?,
                    _ => {}
                }
                continue;
            }
            let Ahead { name, .. } = std::mem::take(&mut ahead);
            // Links, devices, directories and what only one tar knows are none of ours.
            if matches!(header.kind, b'0' | 0 | b'7') {
                let name = String::from_utf8_lossy(&name.unwrap_or(header.name)).into_owned();
                let name = name.strip_prefix("./").map(str::to_owned).unwrap_or(name);
                members.push(Member { name, offset_bytes, length_bytes });
            }
        }
        Err(unusable(format!("has more than {HEADERS_MAX} members")))
    }

    /// The member of this name. The error goes on after the archive's path.
    pub(super) fn find(&self, name: &str) -> Result<Option<&Member>, String> {
        only(self.0.iter().filter(|member| member.name == name), || format!("are {name:?}"))
    }

    /// The name of the member that a reference means, which is a URI: `%20` is a blank, unless a member is called so.
    /// The error goes on after the archive's path.
    pub(super) fn meant(&self, reference: &str) -> Result<String, String> {
        let is_there = |name: &str| self.0.iter().any(|member| member.name == name);
        match decoded(reference).filter(|name| name != reference && is_there(name)) {
            Some(_) if is_there(reference) => Err(format!("has two members that {reference:?} can mean")),
            Some(name) => Ok(name),
            None => Ok(reference.to_owned()),
        }
    }

    /// The member whose name ends so.
    pub(super) fn only_one_called(&self, ending: &str) -> Result<Option<&Member>, String> {
        let ends = |member: &&Member| member.name.to_ascii_lowercase().ends_with(ending);
        only(self.0.iter().filter(ends), || format!("end with {ending}"))
    }

    /// What a member holds, which is text.
    pub(super) fn text(&self, file: &ImageFile, member: &Member) -> Result<String, ImageError> {
        let Member { name, offset_bytes, length_bytes } = member;
        let unusable = |problem: &str| file.unusable(format!("has a member {name:?} {problem}"));
        if *length_bytes > TEXT_MAX_BYTES {
            return Err(unusable(&format!("of {length_bytes} bytes, and at most {TEXT_MAX_BYTES} are read")));
        }
        let bytes = file.read_up_to(*offset_bytes, *length_bytes as usize)?;
        String::from_utf8(bytes).map_err(|_| unusable("that is no text in UTF-8"))
    }
}

fn only<'a>(
    mut found: impl Iterator<Item = &'a Member>,
    names: impl Fn() -> String,
) -> Result<Option<&'a Member>, String> {
    match (found.next(), found.next()) {
        (_, Some(_)) => Err(format!("has two members whose names {}", names())),
        (found, None) => Ok(found),
    }
}

/// A reference with each `%` and the two digits behind it as the byte that they are (RFC 3986, section 2.1); `None`:
/// it is none.
fn decoded(reference: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(reference.len()), reference.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        let Some((digits, behind)) = behind.split_first_chunk::<2>().filter(|_| byte == b'%') else {
            bytes.push(Some(byte).filter(|&byte| byte != b'%')?);
            continue;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        bytes.push(digit(digits[0])? << 4 | digit(digits[1])?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

impl Header {
    /// The error goes on after the archive's path.
    fn parse(block: &[u8]) -> Result<Self, String> {
        let block: &[u8; BLOCK_BYTES] = block.try_into().map_err(|_| "is cut off in a header")?;
        // The sum of all bytes, with spaces in its own place.
        let sum: u64 = block.iter().map(|&byte| u64::from(byte)).sum();
        let own: u64 = block[148..156].iter().map(|&byte| u64::from(byte)).sum();
        if number(&block[148..156]) != Some(sum - own + 8 * u64::from(b' ')) {
            return Err("is damaged: the checksum of a header is wrong".into());
        }
        let length_bytes = number(&block[124..136]).ok_or("is damaged: a member has a length that is no number")?;
        let text = |bytes: &[u8]| bytes.split(|&byte| byte == 0).next().unwrap_or_default().to_vec();
        let mut name = text(&block[..100]);
        let prefix = if block[257..263] == *b"ustar\0" { text(&block[345..500]) } else { Vec::new() };
        if !prefix.is_empty() {
            name = [&prefix[..], b"/", &name[..]].concat();
        }
        Ok(Self { kind: block[156], name, length_bytes })
    }
}

/// Octal digits, or, if the highest bit is set, the bytes of a number.
fn number(field: &[u8]) -> Option<u64> {
    match field.split_first()? {
        (0x80, rest) => {
            let (high, low) = rest.split_last_chunk::<8>()?;
            high.iter().all(|&byte| byte == 0).then(|| u64::from_be_bytes(*low)).filter(|&number| number >> 63 == 0)
        }
        _ => {
            let text = std::str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
            u64::from_str_radix(text, 8).ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
        }
    }
}

impl Ahead {
    /// Lines of pax: how long the line is, a key and a value.
    fn read_records(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let bad = || "is damaged: a record in front of a member cannot be understood".to_owned();
        while !bytes.is_empty() {
            let space = bytes.iter().position(|&byte| byte == b' ').ok_or_else(bad)?;
            let length = bytes.get(..space).and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            let (line, rest) = length.and_then(|length| bytes.split_at_checked(length)).ok_or_else(bad)?;
            let record = line.get(space + 1..).and_then(|record| record.strip_suffix(b"\n")).ok_or_else(bad)?;
            let equals = record.iter().position(|&byte| byte == b'=').ok_or_else(bad)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"size" => {
                    let value = std::str::from_utf8(value).ok().and_then(|value| value.parse().ok());
                    self.length_bytes = Some(value.ok_or_else(bad)?);
                }
                _ => {}
            }
            bytes = rest;
        }
        Ok(())
    }
}
