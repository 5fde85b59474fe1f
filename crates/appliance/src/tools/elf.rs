//! What an ELF file for x86-64 says of the files that it needs (System V ABI, "Object Files" and "Program Loading and
//! Dynamic Linking"; its supplement for x86-64). Everything in it is judged: a broken file is an error.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Most libraries that one file may need, and longest name of one: far above what anybody has.
const LIBRARIES_MAX: usize = 256;
const NAME_BYTES_MAX: usize = 4096;

const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const DYNAMIC_ENTRY_BYTES: usize = 16;

/// What a program or library needs when it is executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The program that loads it; `None` for a library, and for a program that needs no others.
    pub(crate) interpreter: Option<PathBuf>,
    /// Names of libraries, as DT_NEEDED has them.
    pub(crate) libraries: Vec<String>,
    /// DT_RPATH and DT_RUNPATH: directories with colons between.
    pub(crate) rpath: String,
    pub(crate) runpath: String,
}

/// A file is no program or library for this machine, or a broken one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It is something else.
    #[error("it is no ELF file for x86-64")]
    Other,
    /// It is not all there, or contradicts itself.
    #[error("it is a broken ELF file")]
    Broken,
}

/// Reads what `file` needs.
///
/// # Errors
/// When it is no ELF file of this machine's, or broken.
pub(crate) fn needs(file: &[u8]) -> Result<Needs, ElfError> {
    let segments = segments(file)?;
    let mut needs = Needs::default();
    if let Some(interpreter) = segments.iter().find(|segment| segment.kind == Segment::INTERPRETER) {
        let path = interpreter.bytes(file).ok_or(ElfError::Broken)?;
        needs.interpreter = Some(OsStr::from_bytes(until_zero(path)?).into());
    }
    if let Some(dynamic) = segments.iter().find(|segment| segment.kind == Segment::DYNAMIC) {
        read_dynamic(file, &segments, dynamic.bytes(file).ok_or(ElfError::Broken)?, &mut needs)?;
    }
    Ok(needs)
}

/// A part of the file that is loaded, or says how to.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    length: u64,
}

impl Segment {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const INTERPRETER: u32 = 3;

    fn bytes<'file>(&self, file: &'file [u8]) -> Option<&'file [u8]> {
        part(file, self.offset, self.length)
    }

    /// What is loaded at `address`, up to the segment's end.
    fn bytes_at<'file>(&self, file: &'file [u8], address: u64) -> Option<&'file [u8]> {
        let skipped = address.checked_sub(self.address).filter(|&skipped| skipped < self.length)?;
        part(file, self.offset.checked_add(skipped)?, self.length - skipped)
    }
}

fn segments(file: &[u8]) -> Result<Vec<Segment>, ElfError> {
    // Magic number, 64 bits, little endian, version 1.
    if !file.starts_with(b"\x7fELF\x02\x01\x01") {
        return Err(ElfError::Other);
    }
    let header = file.get(..HEADER_BYTES).ok_or(ElfError::Broken)?;
    let (kind, machine) = (u16_at(header, 16), u16_at(header, 18));
    // ET_EXEC or ET_DYN, EM_X86_64.
    if !matches!(kind, 2 | 3) || machine != 62 {
        return Err(ElfError::Other);
    }
    let (entry_bytes, count) = (usize::from(u16_at(header, 54)), u64::from(u16_at(header, 56)));
    if entry_bytes < PROGRAM_HEADER_BYTES {
        return Err(ElfError::Broken);
    }
    let table = part(file, u64_at(header, 32), count * entry_bytes as u64).ok_or(ElfError::Broken)?;
    let segment = |entry: &[u8]| Segment {
        kind: u32_at(entry, 0),
        offset: u64_at(entry, 8),
        address: u64_at(entry, 16),
        length: u64_at(entry, 32),
    };
    Ok(table.chunks_exact(entry_bytes).map(segment).collect())
}

fn read_dynamic(file: &[u8], segments: &[Segment], dynamic: &[u8], needs: &mut Needs) -> Result<(), ElfError> {
    const END: u64 = 0;
    const NEEDED: u64 = 1;
    const STRING_TABLE: u64 = 5;
    const RPATH: u64 = 15;
    const RUNPATH: u64 = 29;
    let entries = dynamic.chunks_exact(DYNAMIC_ENTRY_BYTES).map(|entry| (u64_at(entry, 0), u64_at(entry, 8)));
    let entries: Vec<_> = entries.take_while(|&(tag, _)| tag != END).collect();
    let Some(&(_, table)) = entries.iter().find(|&&(tag, _)| tag == STRING_TABLE) else { return Ok(()) };
    let mut loaded = segments.iter().filter(|segment| segment.kind == Segment::LOAD);
    let strings = loaded.find_map(|segment| segment.bytes_at(file, table)).ok_or(ElfError::Broken)?;
    let string = |at: u64| {
        let bytes = usize::try_from(at).ok().and_then(|at| strings.get(at..)).ok_or(ElfError::Broken)?;
        let text = std::str::from_utf8(until_zero(bytes)?).map_err(|_| ElfError::Broken)?;
        Ok::<_, ElfError>(text.to_owned())
    };
    for (tag, value) in entries {
        match tag {
            NEEDED if needs.libraries.len() == LIBRARIES_MAX => return Err(ElfError::Broken),
            NEEDED => needs.libraries.push(string(value)?),
            RPATH => needs.rpath = string(value)?,
            RUNPATH => needs.runpath = string(value)?,
            _ => {}
        }
    }
    Ok(())
}

fn part(file: &[u8], offset: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    file.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

fn until_zero(bytes: &[u8]) -> Result<&[u8], ElfError> {
    let bytes = &bytes[..bytes.len().min(NAME_BYTES_MAX)];
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(ElfError::Broken)?;
    Ok(&bytes[..end])
}

/// The number at `at`, or zeros where `bytes` ends before it: each caller has looked that it does not.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small ELF file: a loaded segment that is the whole file, with strings, dynamic entries and an interpreter.
    fn small(entries: &[(u64, u64)]) -> Vec<u8> {
        const STRINGS: &[u8] = b"\0libc.so.6\0liba.so\0/opt/lib:$ORIGIN\0/lib64/ld.so\0";
        let base = 0x1000u64;
        let (headers, strings_at) = (HEADER_BYTES, HEADER_BYTES + 3 * PROGRAM_HEADER_BYTES);
        let dynamic_at = (strings_at + STRINGS.len()).next_multiple_of(8);
        let interpreter_at = strings_at + STRINGS.len() - b"/lib64/ld.so\0".len();
        let mut dynamic = vec![(5, base + strings_at as u64)];
        dynamic.extend_from_slice(entries);
        dynamic.push((0, 0));
        let end = dynamic_at + dynamic.len() * DYNAMIC_ENTRY_BYTES;
        let mut file = vec![0; end];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        for (at, value) in [(16, 3), (18, 62), (54, PROGRAM_HEADER_BYTES as u16), (56, 3)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file[32..40].copy_from_slice(&(headers as u64).to_le_bytes());
        let segments = [
            (Segment::LOAD, 0, end),
            (Segment::DYNAMIC, dynamic_at, end - dynamic_at),
            (Segment::INTERPRETER, interpreter_at, 13),
        ];
        for (index, (kind, offset, length)) in segments.into_iter().enumerate() {
            let at = headers + index * PROGRAM_HEADER_BYTES;
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            for (field, value) in [(8, offset as u64), (16, base + offset as u64), (32, length as u64)] {
                file[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        file[strings_at..strings_at + STRINGS.len()].copy_from_slice(STRINGS);
        for (index, (tag, value)) in dynamic.into_iter().enumerate() {
            let at = dynamic_at + index * DYNAMIC_ENTRY_BYTES;
            file[at..at + 8].copy_from_slice(&tag.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
        }
        file
    }

    #[test]
    fn interpreter_libraries_and_directories_are_read() {
        let wanted = Needs {
            interpreter: Some("/lib64/ld.so".into()),
            libraries: vec!["libc.so.6".into(), "liba.so".into()],
            rpath: String::new(),
            runpath: "/opt/lib:$ORIGIN".into(),
        };
        assert_eq!(needs(&small(&[(1, 1), (1, 11), (29, 19)])), Ok(wanted));
    }

    #[test]
    fn what_is_no_program_is_told() {
        let good = small(&[(1, 1)]);
        assert_eq!(needs(b"#!/bin/sh\n"), Err(ElfError::Other));
        assert_eq!(needs(&good[..40]), Err(ElfError::Broken));
        // For 32 bits; for another processor.
        for (at, value) in [(4, 1), (18, 183)] {
            let mut other = good.clone();
            other[at] = value;
            assert_eq!(needs(&other), Err(ElfError::Other));
        }
        // A name outside of the strings, and too many names.
        assert_eq!(needs(&small(&[(1, 1 << 40)])), Err(ElfError::Broken));
        assert_eq!(needs(&small(&[(1, 1); LIBRARIES_MAX + 1])), Err(ElfError::Broken));
    }

    #[test]
    fn fuzz_a_broken_file_is_an_error_or_has_bounded_needs() {
        blockyard_fuzz::check!(50_000).with_type::<(Vec<(u64, u64)>, Vec<(u16, u8)>, u16)>().for_each(
            |(entries, spoiled, cut)| {
                let mut file = small(&entries[..entries.len().min(300)]);
                for &(at, value) in spoiled {
                    let at = usize::from(at) % file.len();
                    file[at] = value;
                }
                let end = if *cut == 0 { file.len() } else { usize::from(*cut) % (file.len() + 1) };
                if let Ok(needs) = needs(&file[..end]) {
                    assert!(needs.libraries.len() <= LIBRARIES_MAX);
                    assert!(needs.libraries.iter().all(|name| name.len() < NAME_BYTES_MAX));
                }
            },
        );
    }
}
