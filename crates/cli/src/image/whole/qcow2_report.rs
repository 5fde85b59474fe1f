//! What a qcow2 image says of itself, under qemu-img's names.

use super::luks_report::Luks;
use blockyard_block::{Qcow2Bitmap, Qcow2Encryption, Qcow2Info, Qcow2Snapshot, printable};
use blockyard_image::whole::info::full_name;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The part of `image info` that only qcow2 images have.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Qcow2Report {
    cluster_size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    encrypted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_backing_filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename_format: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    snapshots: Vec<Snapshot>,
    format_specific: FormatSpecific<Data>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Snapshot {
    id: String,
    name: String,
    vm_state_size: u64,
    date_sec: u32,
    date_nsec: u32,
    vm_clock_sec: u64,
    vm_clock_nsec: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    icount: Option<u64>,
}

/// What only one format has.
#[derive(Serialize)]
pub struct FormatSpecific<D> {
    pub r#type: &'static str,
    pub data: D,
}

/// What only version 3 has is left out of version 2.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Data {
    compat: &'static str,
    compression_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lazy_refcounts: Option<bool>,
    refcount_bits: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    corrupt: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_l2: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_file_raw: Option<bool>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    bitmaps: Vec<Bitmap>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encrypt: Option<Encrypt>,
}

#[derive(Serialize)]
struct Bitmap {
    name: String,
    granularity: u64,
    flags: Vec<&'static str>,
}

#[derive(Serialize)]
struct Encrypt {
    format: String,
    #[serde(flatten)]
    luks: Option<Luks>,
}

impl Qcow2Report {
    /// Of the image in `file`.
    pub fn of(file: Option<&Path>, info: Qcow2Info) -> Self {
        let is_new = info.version >= 3;
        let full_name = file.zip(info.backing_name.as_ref()).map(|(file, name)| full_name(file, name));
        let data = Data {
            compat: if is_new { "1.1" } else { "0.10" },
            compression_type: match info.compression {
                0 => "zlib".to_owned(),
                1 => "zstd".to_owned(),
                other => other.to_string(),
            },
            lazy_refcounts: is_new.then_some(info.has_lazy_refcounts),
            refcount_bits: info.refcount_bits,
            corrupt: is_new.then_some(info.is_corrupt),
            extended_l2: is_new.then_some(info.has_extended_l2),
            data_file_raw: info.data_file.is_some().then_some(info.is_data_file_raw),
            data_file: info.data_file,
            bitmaps: info.bitmaps.into_iter().map(Bitmap::from).collect(),
            encrypt: info.encryption.map(Encrypt::from),
        };
        Self {
            cluster_size: info.cluster_bytes,
            encrypted: data.encrypt.is_some().then_some(true),
            full_backing_filename: full_name,
            backing_filename: info.backing_name,
            backing_filename_format: info.backing_format,
            snapshots: info.snapshots.into_iter().map(Snapshot::from).collect(),
            format_specific: FormatSpecific { r#type: "qcow2", data },
        }
    }

    /// For people.
    pub fn render(&self, text: &mut String) {
        let data = &self.format_specific.data;
        let mut line = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                let _ = writeln!(text, "{key}: {}", printable(&value));
            }
        };
        line("cluster_size", Some(self.cluster_size.to_string()));
        line("encrypted", self.encrypted.map(|_| "yes".to_owned()));
        // As qemu-img has it, for those who read this: from here, where the image's own word starts elsewhere.
        let backing = self.backing_filename.as_ref().map(|name| match &self.full_backing_filename {
            Some(full) if full != name => format!("{name} (actual path: {full})"),
            _ => name.clone(),
        });
        line("backing file", backing);
        line("backing file format", self.backing_filename_format.clone());
        for Snapshot { id, name, vm_state_size, .. } in &self.snapshots {
            line("snapshot", Some(format!("{id} {name}, {vm_state_size} bytes of a machine's state")));
        }
        line("compat", Some(data.compat.to_owned()));
        line("compression type", Some(data.compression_type.clone()));
        line("lazy refcounts", data.lazy_refcounts.map(|is| is.to_string()));
        line("refcount bits", Some(data.refcount_bits.to_string()));
        line("corrupt", data.corrupt.map(|is| is.to_string()));
        line("extended l2", data.extended_l2.map(|is| is.to_string()));
        line("data file", data.data_file.clone());
        line("data file raw", data.data_file_raw.map(|is| is.to_string()));
        for Bitmap { name, granularity, flags } in &data.bitmaps {
            line("bitmap", Some(format!("{name}, of {granularity} bytes each {}", flags.join(", "))));
        }
        if let Some(Encrypt { format, luks }) = &data.encrypt {
            let luks =
                luks.as_ref().map(|luks| format!(", {}-{}-{}", luks.cipher_alg, luks.cipher_mode, luks.ivgen_alg));
            line("encryption", Some(format!("{format}{}", luks.unwrap_or_default())));
        }
    }
}

impl From<Qcow2Snapshot> for Snapshot {
    fn from(snapshot: Qcow2Snapshot) -> Self {
        const SECOND_NS: u64 = 1_000_000_000;
        Self {
            id: snapshot.id,
            name: snapshot.name,
            vm_state_size: snapshot.vm_state_bytes,
            date_sec: snapshot.date.0,
            date_nsec: snapshot.date.1,
            vm_clock_sec: snapshot.vm_clock_ns / SECOND_NS,
            vm_clock_nsec: snapshot.vm_clock_ns % SECOND_NS,
            icount: snapshot.instructions,
        }
    }
}

impl From<Qcow2Bitmap> for Bitmap {
    fn from(bitmap: Qcow2Bitmap) -> Self {
        let flags = [(bitmap.is_in_use, "in-use"), (bitmap.is_auto, "auto")];
        Self {
            name: bitmap.name,
            granularity: bitmap.granularity_bytes,
            flags: flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect(),
        }
    }
}

impl From<Qcow2Encryption> for Encrypt {
    fn from(encryption: Qcow2Encryption) -> Self {
        match encryption {
            Qcow2Encryption::Aes => Self { format: "aes".to_owned(), luks: None },
            Qcow2Encryption::Luks(header) => Self { format: "luks".to_owned(), luks: header.map(Luks::from) },
            Qcow2Encryption::Other(number) => Self { format: number.to_string(), luks: None },
        }
    }
}
