//! What a VMDK says of itself, under qemu-img's names.

use super::qcow2_report::FormatSpecific;
use blockyard_block::{VmdkExtent, VmdkInfo, printable};
use blockyard_image::whole::info::full_name;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The part of `image info` that only VMDKs have.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VmdkReport {
    format_specific: FormatSpecific<Data>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Data {
    cid: u32,
    parent_cid: u32,
    create_type: String,
    extents: Vec<Extent>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Extent {
    virtual_size: u64,
    /// None for zeros.
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<String>,
    format: &'static str,
}

impl VmdkReport {
    /// Of the image in `file`.
    pub fn of(file: Option<&Path>, info: VmdkInfo) -> Self {
        let VmdkInfo { cid, parent_cid, create_type, extents } = info;
        let full_name = |name: String| match file {
            Some(file) => full_name(file, &name),
            None => name,
        };
        let extent = |VmdkExtent { length_bytes, name, kind }| Extent {
            virtual_size: length_bytes,
            filename: name.map(full_name),
            format: kind,
        };
        let extents = extents.into_iter().map(extent).collect();
        Self {
            format_specific: FormatSpecific { r#type: "vmdk", data: Data { cid, parent_cid, create_type, extents } },
        }
    }

    /// For people.
    pub fn render(&self, text: &mut String) {
        let Data { cid, create_type, extents, .. } = &self.format_specific.data;
        let _ = writeln!(text, "create type: {}\ncid: {cid}", printable(create_type));
        for Extent { virtual_size, filename, format } in extents {
            let filename = filename.as_deref().map_or(String::new(), |name| format!(" in {}", printable(name)));
            let _ = writeln!(text, "extent: {virtual_size} bytes, {format}{filename}");
        }
    }
}
