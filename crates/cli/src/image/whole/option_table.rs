//! Which options `-o` has, by format: what `-o help` prints, and what is said of one that there is not.

use anyhow::Result;
use blockyard_block::BlockMapFormat;
use blockyard_block::specification::Format;
use blockyard_command_line::terminal::print;
use std::fmt::Write;

/// An option of `-o`.
pub struct ListedOption {
    formats: &'static [Format],
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    values: &'static str,
    /// What it says.
    about: &'static str,
}

const QCOW2: &[Format] = &[Format::Qcow2];
const LUKS: &[Format] = &[Format::Luks];
const VMDK: Format = Format::BlockMap(BlockMapFormat::Vmdk);
const VDI: Format = Format::BlockMap(BlockMapFormat::Vdi);
const VHD: Format = Format::BlockMap(BlockMapFormat::Vhd);
const VHDX: Format = Format::BlockMap(BlockMapFormat::Vhdx);

const SWITCH: &str = "on|off";
const CIPHERS: &str = "aes-128|aes-192|aes-256";
const MODES: &str = "xts|cbc";
const VECTORS: &str = "plain64|plain|essiv";

const fn option(
    formats: &'static [Format],
    name: &'static str,
    values: &'static str,
    about: &'static str,
) -> ListedOption {
    ListedOption { formats, name, values, about }
}

/// Of new images.
const NEW: [ListedOption; 38] = [
    option(&Format::ALL, "size", "SIZE", "size of the disk"),
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
    option(QCOW2, "encrypt.cipher-alg", CIPHERS, "cipher"),
    option(QCOW2, "encrypt.cipher-mode", MODES, "mode of the cipher"),
    option(QCOW2, "encrypt.ivgen-alg", VECTORS, "initial vectors"),
    option(QCOW2, "encrypt.ivgen-hash-alg", "sha256", "hash of essiv"),
    option(QCOW2, "encrypt.hash-alg", "HASH", "hash of passphrases"),
    option(QCOW2, "encrypt.iter-time", "MILLISECONDS", "time that a passphrase takes"),
    option(LUKS, "cipher-alg", CIPHERS, "cipher"),
    option(LUKS, "cipher-mode", MODES, "mode of the cipher"),
    option(LUKS, "ivgen-alg", VECTORS, "initial vectors"),
    option(LUKS, "ivgen-hash-alg", "sha256", "hash of essiv"),
    option(LUKS, "hash-alg", "HASH", "hash of passphrases"),
    option(LUKS, "iter-time", "MILLISECONDS", "time that a passphrase takes"),
    option(&[VMDK], "subformat", "monolithicSparse|streamOptimized", "to be written to, or compressed"),
    option(&[VMDK], "adapter_type", "ide|lsilogic|buslogic|legacyESX", "what the disk is attached to"),
    option(&[VMDK], "hwversion", "N", "version of the virtual hardware"),
    option(&[VMDK], "compat6", SWITCH, "hwversion=6"),
    option(&[VMDK], "zeroed_grain", "off", "zeros take no room"),
    option(&[VDI], "static", SWITCH, "every block has its place"),
    option(&[VHD, VHDX], "subformat", "dynamic|fixed", "fixed: every block has its place"),
    option(&[VHD], "force_size", SWITCH, "whole MiB, as Azure wants"),
    option(&[VHDX], "block_size", "SIZE", "unit of allocation, 1M to 256M; 0: as the size wants it"),
    option(&[VHDX], "log_size", "1M", "the log, which is empty"),
    option(&[VHDX], "block_state_zero", SWITCH, "how zeros are said, which nobody sees"),
];

/// Of images that are there.
const AMENDED: [ListedOption; 12] = [
    option(QCOW2, "size", "SIZE", "size of the disk"),
    option(QCOW2, "compat", "0.10|1.1", "version 2, or 3"),
    option(QCOW2, "refcount_bits", "1|2|4|8|16|32|64", "bits of a refcount"),
    option(QCOW2, "lazy_refcounts", SWITCH, "whoever writes may be behind with refcounts"),
    option(QCOW2, "data_file", "NAME", "another name of the file that has the data"),
    option(QCOW2, "data_file_raw", "off", "it may be no raw image of the disk any more"),
    option(QCOW2, "encrypt.state", "active|inactive", "a passphrase is added, or taken away"),
    option(QCOW2, "encrypt.keyslot", "N", "the key slot"),
    option(QCOW2, "encrypt.iter-time", "MILLISECONDS", "time that the passphrase takes"),
    option(LUKS, "state", "active|inactive", "a passphrase is added, or taken away"),
    option(LUKS, "keyslot", "N", "the key slot"),
    option(LUKS, "iter-time", "MILLISECONDS", "time that the passphrase takes"),
];

/// Of every new image, as far as they say what is so anyway.
const OF_FILE_SYSTEMS: [&str; 1] = ["nocow"];

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
    NEW.iter().any(|option| option.name == name)
}

/// Whether it is on or off: its name alone turns it on.
pub fn is_switch(name: &str) -> bool {
    let is_switch = |option: &ListedOption| option.name == name && ["off", SWITCH].contains(&option.values);
    NEW.iter().any(is_switch) || OF_FILE_SYSTEMS.contains(&name)
}

/// Whether somebody asks which there are.
pub fn is_asked_for(texts: &[String]) -> bool {
    texts.iter().flat_map(|text| text.split(',')).any(|option| ["help", "?"].contains(&option))
}

/// Says which there are.
///
/// # Errors
/// When nobody listens.
pub fn list(title: &str, options: impl Iterator<Item = &'static ListedOption>) -> Result<()> {
    let mut text = title.to_owned();
    for ListedOption { name, values, about, .. } in options {
        let said = format!("{name}={values}");
        let _ = write!(text, "\n  {said:<50} {about}");
    }
    print(&text)
}
