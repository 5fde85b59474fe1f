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
    /// Of grains in the file itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_size: Option<u64>,
    /// What the image calls the one that it is a difference from.
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_backing_filename: Option<String>,
    /// No other can be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename_format: Option<&'static str>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compressed: Option<bool>,
}

impl VmdkReport {
    /// Of the image in `file`.
    pub fn of(file: Option<&Path>, info: VmdkInfo) -> Self {
        let VmdkInfo { cid, parent_cid, parent, create_type, extents, .. } = info;
        let full_name = |name: String| match file {
            Some(file) => full_name(file, &name),
            None => name,
        };
        let extent = |VmdkExtent { length_bytes, name, kind, grains }| Extent {
            virtual_size: length_bytes,
            // Grains without a name are in the file itself.
            filename: name.map(&full_name).or_else(|| Some(file.filter(|_| grains.is_some())?.display().to_string())),
            format: kind,
            cluster_size: grains.map(|(bytes, _)| bytes),
            compressed: grains.filter(|(_, is_compressed)| *is_compressed).map(|_| true),
        };
        let extents: Vec<_> = extents.into_iter().map(extent).collect();
        Self {
            cluster_size: extents.iter().find_map(|extent| extent.cluster_size),
            full_backing_filename: parent.clone().map(&full_name),
            backing_filename_format: parent.as_ref().map(|_| "vmdk"),
            backing_filename: parent,
            format_specific: FormatSpecific { r#type: "vmdk", data: Data { cid, parent_cid, create_type, extents } },
        }
    }

    /// For people.
    pub fn render(&self, text: &mut String) {
        let Data { cid, create_type, extents, .. } = &self.format_specific.data;
        let _ = writeln!(text, "create type: {}\ncid: {cid}", printable(create_type));
        if let Some(parent) = &self.backing_filename {
            let _ = writeln!(text, "backing file: {}", printable(parent));
        }
        for Extent { virtual_size, filename, format, cluster_size, compressed } in extents {
            let filename = filename.as_deref().map_or(String::new(), |name| format!(" in {}", printable(name)));
            let packed = if *compressed == Some(true) { "compressed " } else { "" };
            let grains = cluster_size.map_or(String::new(), |bytes| format!(", {packed}clusters of {bytes} bytes"));
            let _ = writeln!(text, "extent: {virtual_size} bytes, {format}{filename}{grains}");
        }
    }
}
