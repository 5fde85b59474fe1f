//! What the description of a virtual machine (OVF) says of its disks: `References` and `DiskSection`.

use super::OvaDisk;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use std::collections::HashMap;

const FILES_MAX: usize = 4096;
const DISKS_MAX: usize = 256;
const DEPTH_MAX: usize = 64;

/// Longest attribute.
const VALUE_MAX_BYTES: usize = 4096;

/// What was read of a description.
#[derive(Debug, Default)]
pub(super) struct Envelope {
    /// By their ids.
    files: HashMap<String, Referred>,
    disks: Vec<Named>,
}

/// A file that is referred to.
#[derive(Debug)]
struct Referred {
    name: String,
    packing: Option<String>,
}

#[derive(Debug)]
struct Named {
    id: String,
    file: Option<String>,
    capacity_bytes: Option<u64>,
    format: String,
}

impl Envelope {
    /// Reads the whole text. The error is a clause.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = Reader::from_str(text);
        let mut read = Self::default();
        // The local names of the elements that it is in.
        let mut path: Vec<Vec<u8>> = Vec::new();
        loop {
            let event = reader.read_event().map_err(|error| one_line(&error.to_string()))?;
            match event {
                Event::Start(element) => {
                    read.take(&element, path.last().map_or(&[][..], Vec::as_slice))?;
                    if path.len() == DEPTH_MAX {
                        return Err(format!("its elements are more than {DEPTH_MAX} deep"));
                    }
                    path.push(element.local_name().as_ref().to_vec());
                }
                Event::Empty(element) => read.take(&element, path.last().map_or(&[][..], Vec::as_slice))?,
                Event::End(_) => {
                    path.pop();
                }
                Event::DocType(_) => return Err("it has a DOCTYPE, which no description needs".into()),
                Event::Eof if path.is_empty() => return Ok(read),
                Event::Eof => return Err("it is cut off".into()),
                _ => {}
            }
        }
    }

    fn take(&mut self, element: &BytesStart<'_>, parent: &[u8]) -> Result<(), String> {
        match (parent, element.local_name().as_ref()) {
            (b"References", b"File") => {
                let [id, name, compression, chunk] = attributes(element, ["id", "href", "compression", "chunkSize"])?;
                let (Some(id), Some(name)) = (id, name) else { return Err("a file has no id or no name".into()) };
                let compression = compression.filter(|word| !word.is_empty() && word != "identity");
                let packing = compression.map(|word| format!("compressed ({})", one_line(&word)));
                let packing = packing.or(chunk.map(|_| "in several pieces".to_owned()));
                if self.files.len() == FILES_MAX {
                    return Err(format!("it refers to more than {FILES_MAX} files"));
                }
                match self.files.insert(id.clone(), Referred { name, packing }) {
                    Some(_) => Err(format!("two files have the id {id:?}")),
                    None => Ok(()),
                }
            }
            (b"DiskSection" | b"Section", b"Disk") => {
                let keys = ["diskId", "fileRef", "capacity", "capacityAllocationUnits", "format", "parentRef"];
                let [id, file, capacity, units, format, parent] = attributes(element, keys)?;
                let id = id.unwrap_or_default();
                if parent.is_some() {
                    return Err(format!("the disk {id:?} is a difference from another, which is not supported"));
                }
                if self.disks.len() == DISKS_MAX {
                    return Err(format!("it has more than {DISKS_MAX} disks"));
                }
                let capacity_bytes = capacity.and_then(|number| bytes_of(&number, units.as_deref()));
                self.disks.push(Named { id, file, capacity_bytes, format: format.unwrap_or_default() });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Its disks, with the names of their files. The error is a clause.
    pub(super) fn disks(self) -> Result<Vec<OvaDisk>, String> {
        let Self { files, disks } = self;
        let disks = disks.into_iter().map(|Named { id, file, capacity_bytes, format }| {
            let file = match file {
                Some(file) => Some(files.get(&file).ok_or_else(|| format!("there is no file {file:?}, of a disk"))?),
                None => None,
            };
            let (name, packing) = (file.map(|file| file.name.clone()), file.and_then(|file| file.packing.clone()));
            Ok(OvaDisk { id, name, capacity_bytes, format, packing })
        });
        disks.collect()
    }
}

/// The values of these, whatever namespace they are in.
fn attributes<const N: usize>(element: &BytesStart<'_>, keys: [&str; N]) -> Result<[Option<String>; N], String> {
    let mut values = [const { None }; N];
    // Looking for two of one name takes a time that is the square of how many there are.
    for attribute in element.attributes().with_checks(false) {
        let attribute = attribute.map_err(|error| one_line(&error.to_string()))?;
        let key = attribute.key.local_name();
        let Some(index) = keys.iter().position(|known| known.as_bytes() == key.as_ref()) else { continue };
        if attribute.value.len() > VALUE_MAX_BYTES {
            return Err(format!("{} is longer than {VALUE_MAX_BYTES} bytes", keys[index]));
        }
        let value = attribute.unescape_value().map_err(|error| one_line(&error.to_string()))?;
        values[index] = Some(value.into_owned());
    }
    Ok(values)
}

/// A number of units: `byte * 2^30`, or a word of the first version's.
fn bytes_of(number: &str, units: Option<&str>) -> Option<u64> {
    let number: u64 = number.trim().parse().ok()?;
    let unit = match units.map(|units| units.replace(' ', "")).as_deref() {
        None | Some("" | "byte") => 1,
        Some("KiloBytes") => 1 << 10,
        Some("MegaBytes") => 1 << 20,
        Some("GigaBytes") => 1 << 30,
        Some(units) => 1_u64.checked_shl(units.strip_prefix("byte*2^")?.parse().ok()?)?,
    };
    number.checked_mul(unit)
}

/// As much of what others say as a message takes.
fn one_line(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}
