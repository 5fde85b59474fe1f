//! Which options `-o` has, by format: what `-o help` prints, and what is said of one that there is not.

use anyhow::Result;
use blockyard_block::BlockMapFormat;
use blockyard_block::specification::Format;
use blockyard_command_line::terminal::print;
use std::borrow::Cow;
use std::fmt::Write;

/// An option of `-o`.
pub struct ListedOption {
    formats: &'static [Format],
    name: &'static str,
    /// It says how data are encrypted: of a qcow2 image its name begins with [`ENCRYPTION`].
    is_of_encryption: bool,
    /// What it may be.
    values: &'static str,
    /// What it says.
    about: &'static str,
}

/// What the names of a qcow2 image's options begin with that a LUKS volume has, too.
pub const ENCRYPTION: &str = "encrypt.";

const QCOW2: &[Format] = &[Format::Qcow2];
const VMDK: Format = Format::BlockMap(BlockMapFormat::Vmdk);
const VDI: Format = Format::BlockMap(BlockMapFormat::Vdi);
const VHD: Format = Format::BlockMap(BlockMapFormat::Vhd);
const VHDX: Format = Format::BlockMap(BlockMapFormat::Vhdx);

const SWITCH: &str = "on|off";

const fn option(
    formats: &'static [Format],
    name: &'static str,
    values: &'static str,
    about: &'static str,
) -> ListedOption {
    ListedOption { formats, name, is_of_encryption: false, values, about }
}

/// Of qcow2 images and of LUKS volumes.
const fn encryption(name: &'static str, values: &'static str, about: &'static str) -> ListedOption {
    ListedOption { formats: &[Format::Qcow2, Format::Luks], name, is_of_encryption: true, values, about }
}

impl ListedOption {
    /// Its name, of images in this format.
    pub fn name(&self, format: Format) -> Cow<'static, str> {
        match self.is_of_encryption && format == Format::Qcow2 {
            true => Cow::Owned(format!("{ENCRYPTION}{}", self.name)),
            false => Cow::Borrowed(self.name),
        }
    }

    /// Whether that is its name, of images in some format.
    fn is_called(&self, name: &str) -> bool {
        self.formats.iter().any(|&format| self.name(format) == name)
    }
}

/// Of new images.
const NEW: [ListedOption; 34] = [
    option(&Format::ALL, "size", "SIZE", "size of the disk, of `create`"),
    option(
        &[Format::Qcow2, VMDK, VDI, VHD, VHDX],
        "preallocation",
        "off|metadata|falloc|full",
        "what has its place from the start",
    ),
    option(&[Format::Raw, Format::Luks], "preallocation", "off|falloc|full", "what has its place from the start"),
    option(QCOW2, "cluster_size", "SIZE", "unit of allocation, 512 to 2M"),
    option(QCOW2, "backing_file", "NAME", "what shows where the image holds nothing"),
    option(QCOW2, "backing_fmt", "FORMAT", "its format"),
    option(QCOW2, "data_file", "NAME", "a new file that has the data"),
    option(QCOW2, "data_file_raw", SWITCH, "it is a raw image of the disk"),
    option(QCOW2, "compat", "0.10|1.1", "version 2, or 3"),
    option(QCOW2, "refcount_bits", "1|2|4|8|16|32|64", "bits of a refcount"),
    option(QCOW2, "compression_type", "zlib|zstd", "how clusters are compressed"),
    option(QCOW2, "extended_l2", SWITCH, "clusters have 32 parts"),
    option(QCOW2, "lazy_refcounts", SWITCH, "whoever writes may be behind with refcounts"),
    option(QCOW2, "encryption", "off", "see encrypt.format"),
    option(QCOW2, "encrypt.format", "luks", "the data are encrypted: --key-file FILE"),
    encryption("cipher-alg", "aes-128|aes-192|aes-256", "cipher"),
    encryption("cipher-mode", "xts|cbc", "mode of the cipher"),
    encryption("ivgen-alg", "plain64|plain|essiv", "initial vectors"),
    encryption("ivgen-hash-alg", "sha256", "hash of essiv"),
    encryption("hash-alg", "HASH", "hash of passphrases"),
    encryption("iter-time", "MILLISECONDS", "time that a passphrase takes"),
    option(&[VMDK], "subformat", "monolithicSparse|streamOptimized", "to be written to, or compressed"),
    option(&[VMDK], "adapter_type", "ide|lsilogic|buslogic|legacyESX", "what the disk is attached to"),
    option(&[VMDK], "hwversion", "N", "version of the virtual hardware"),
    option(&[VMDK], "compat6", SWITCH, "hwversion=6"),
    option(&[VMDK], "zeroed_grain", SWITCH, "grains may be zeros by their entries alone"),
    option(&[VDI], "static", SWITCH, "every block has its place"),
    option(&[VHD, VHDX], "subformat", "dynamic|fixed", "fixed: every block has its place"),
    option(&[VHD], "force_size", SWITCH, "whole MiB, as Azure wants"),
    option(&[VHDX], "block_size", "SIZE", "unit of allocation, 1M to 256M; 0: as the size wants it"),
    option(&[VHDX], "log_size", "1M", "the log, which is empty"),
    option(&[VHDX], "block_state_zero", SWITCH, "how zeros are said, which nobody sees"),
    option(&Format::ALL, "nocow", SWITCH, "what is written again is written in its place (Btrfs)"),
    option(&Format::ALL, "extent_size_hint", "SIZE", "the file gets storage in pieces of this size (XFS)"),
];

/// Of images that are there.
const AMENDED: [ListedOption; 9] = [
    option(QCOW2, "size", "SIZE", "size of the disk"),
    option(QCOW2, "compat", "0.10|1.1", "version 2, or 3"),
    option(QCOW2, "refcount_bits", "1|2|4|8|16|32|64", "bits of a refcount"),
    option(QCOW2, "lazy_refcounts", SWITCH, "whoever writes may be behind with refcounts"),
    option(QCOW2, "data_file", "NAME", "another name of the file that has the data"),
    option(QCOW2, "data_file_raw", "off", "it may be no raw image of the disk any more"),
    encryption("state", "active|inactive", "a passphrase is added, or taken away"),
    encryption("keyslot", "N", "the key slot"),
    encryption("iter-time", "MILLISECONDS", "time that the passphrase takes"),
];

/// Those of a new image in this format.
pub fn of_new(format: Format) -> impl Iterator<Item = &'static ListedOption> {
    NEW.iter().filter(move |option| option.formats.contains(&format))
}

/// Those of an image in this format that is there.
pub fn of_amended(format: Format) -> impl Iterator<Item = &'static ListedOption> {
    AMENDED.iter().filter(move |option| option.formats.contains(&format))
}

/// Whether new images in some format have it.
pub fn is_known(name: &str) -> bool {
    NEW.iter().any(|option| option.is_called(name))
}

/// Whether it is on or off: its name alone turns it on.
pub fn is_switch(name: &str) -> bool {
    let is_switch = |option: &ListedOption| option.name == name && ["off", SWITCH].contains(&option.values);
    NEW.iter().any(is_switch)
}

/// Whether it can be off, by its name with `no` in front of it, too.
pub fn can_be_off(name: &str) -> bool {
    let can_be_off =
        |option: &ListedOption| option.name == name && option.values.split('|').any(|value| value == "off");
    NEW.iter().any(can_be_off)
}

/// Whether somebody asks which there are.
pub fn is_asked_for(texts: &[String]) -> bool {
    texts.iter().flat_map(|text| text.split(',')).any(|option| ["help", "?"].contains(&option))
}

/// Says which there are of an image in this format.
///
/// # Errors
/// When nobody listens.
pub fn list(title: &str, format: Format, options: impl Iterator<Item = &'static ListedOption>) -> Result<()> {
    let mut text = title.to_owned();
    for option in options {
        let said = format!("{}={}", option.name(format), option.values);
        let _ = write!(text, "\n  {said:<50} {}", option.about);
    }
    print(&text)
}
