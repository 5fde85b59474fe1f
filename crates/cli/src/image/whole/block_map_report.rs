//! What an image in another hypervisor's format says of itself, under qemu-img's names where it has them.

use super::qcow2_report::FormatSpecific;
use blockyard_block::{BlockMapInfo, printable};
use serde::Serialize;
use std::fmt::Write;

/// The part of `image info` that only such images have.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BlockMapReport {
    /// None where the disk lies in one piece.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_size: Option<u64>,
    /// What the image calls the one that it is a difference from.
    #[serde(skip_serializing_if = "Option::is_none")]
    backing_filename: Option<String>,
    format_specific: FormatSpecific<Data>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Data {
    subformat: &'static str,
    /// Bytes of the disk's logical sector, where the image says them.
    #[serde(skip_serializing_if = "Option::is_none")]
    logical_sector_size: Option<u64>,
}

impl BlockMapReport {
    /// Of an image in the format of this word.
    pub fn of(format: &'static str, info: BlockMapInfo) -> Self {
        let data = Data { subformat: info.subformat, logical_sector_size: info.sector_bytes };
        let BlockMapInfo { block_bytes, parent, .. } = info;
        let format_specific = FormatSpecific { r#type: format, data };
        Self { cluster_size: block_bytes, backing_filename: parent, format_specific }
    }

    /// For people.
    pub fn render(&self, text: &mut String) {
        let _ = writeln!(text, "subformat: {}", self.format_specific.data.subformat);
        if let Some(bytes) = self.cluster_size {
            let _ = writeln!(text, "cluster size: {bytes} bytes");
        }
        if let Some(bytes) = self.format_specific.data.logical_sector_size {
            let _ = writeln!(text, "logical sector size: {bytes} bytes");
        }
        if let Some(parent) = &self.backing_filename {
            let _ = writeln!(text, "backing file: {}", printable(parent));
        }
    }
}
