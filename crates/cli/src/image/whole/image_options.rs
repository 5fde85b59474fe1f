//! What `-o` says of a new image: qemu-img's names and values, as far as there is a choice here.

use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{
    BlockMapFormat, Preallocation, Qcow2Backing, Qcow2Features, VmdkAdapter, VmdkCreateOptions, size,
};
use blockyard_command_line::usage_error::UsageError;

/// Options of a new image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// Bytes in a cluster, or in a block.
    pub cluster_bytes: Option<u32>,
    /// Every block has its place from the start.
    pub is_fixed: bool,
    /// What a VMDK says besides.
    pub vmdk: VmdkCreateOptions,
    /// The disk has whole MiB, as Azure wants.
    pub is_whole_mib: bool,
    /// What is allocated from the start.
    pub preallocation: Option<Preallocation>,
    /// The backing file's name.
    pub backing_name: Option<String>,
    /// Its format.
    pub backing_format: Option<String>,
    /// The size of the disk.
    pub size_bytes: Option<u64>,
    /// What whoever uses a qcow2 image must know.
    pub features: Qcow2Features,
}

impl ImageOptions {
    /// The size of a new image's disk, which is to have at least so many bytes.
    pub fn size_for(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.size_unit_bytes()).unwrap_or(u64::MAX)
    }

    /// What that size is a multiple of.
    pub fn size_unit_bytes(&self) -> u64 {
        if self.is_whole_mib { 1 << 20 } else { 512 }
    }

    /// Reads `key=value,key=value`, each text as if all were one.
    ///
    /// # Errors
    /// [`UsageError`] for what there is not.
    pub fn parse(texts: &[String], format: Format) -> Result<Self> {
        let mut options = Self::default();
        for option in texts.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty()) {
            let Some((key, value)) = option.split_once('=') else {
                bail!(UsageError(format!("-o {option}: an option is KEY=VALUE, such as cluster_size=64K")));
            };
            options.set(key, value, format).map_err(|problem| UsageError(format!("-o {option}: {problem}")))?;
        }
        Ok(options)
    }

    /// The backing file that `name` and `format` say, or else these options. `refused`: why there cannot be one;
    /// `option`: how one is named.
    ///
    /// # Errors
    /// [`UsageError`] for one that there cannot be, and for half of what it takes.
    pub fn backing(
        &self,
        name: Option<&str>,
        format: Option<Format>,
        refused: Option<&str>,
        option: &str,
    ) -> Result<Option<Qcow2Backing>> {
        let name = name.or(self.backing_name.as_deref());
        let format = format.map(Format::word).or(self.backing_format.as_deref());
        match (name, format) {
            (None, None) => Ok(None),
            (None, Some(_)) => bail!(UsageError(format!("-F is for a backing file: add {option} FILE"))),
            (Some(name), format) => match (refused, format) {
                (Some(refused), _) => bail!(UsageError(refused.to_owned())),
                (None, Some(format)) => Ok(Some(Qcow2Backing { name: name.to_owned(), format: format.to_owned() })),
                (None, None) => Err(unsaid_format(name).into()),
            },
        }
    }

    fn set(&mut self, key: &str, value: &str, format: Format) -> Result<(), String> {
        match (key, format) {
            ("size", _) => self.size_bytes = Some(size::parse(value)?),
            ("preallocation", _) => self.preallocation = Some(preallocation(value, format)?),
            ("cluster_size", Format::Qcow2) => {
                let bytes = u32::try_from(size::parse(value)?).unwrap_or(u32::MAX);
                self.cluster_bytes = Some(bytes);
            }
            ("backing_file", Format::Qcow2) => self.backing_name = Some(value.to_owned()),
            ("backing_fmt", Format::Qcow2) => self.backing_format = Some(value.to_owned()),
            ("compat", Format::Qcow2) => {
                self.features.version = chosen(value, &[("0.10", 2), ("v2", 2), ("1.1", 3), ("v3", 3)])?;
            }
            ("refcount_bits", Format::Qcow2) => {
                let orders = [("1", 0), ("2", 1), ("4", 2), ("8", 3), ("16", 4), ("32", 5), ("64", 6)];
                self.features.refcount_order = chosen(value, &orders)?;
            }
            ("compression_type", Format::Qcow2) => {
                self.features.is_zstd = chosen(value, &[("zlib", false), ("zstd", true)])?;
            }
            ("extended_l2", Format::Qcow2) => self.features.has_extended_l2 = chosen(value, &SWITCH)?,
            ("lazy_refcounts", Format::Qcow2) => self.features.has_lazy_refcounts = chosen(value, &SWITCH)?,
            ("encryption", Format::Qcow2) => chosen(value, &[("off", ())])?,
            ("subformat", VMDK) => {
                self.vmdk.is_stream = chosen(value, &[("monolithicSparse", false), ("streamOptimized", true)])?;
            }
            ("adapter_type", VMDK) => {
                self.vmdk.adapter = chosen(value, &VmdkAdapter::ALL.map(|adapter| (adapter.word(), adapter)))?;
            }
            ("hwversion", VMDK) => {
                self.vmdk.hardware_version = value.parse().map_err(|_| "it is a number such as 13")?;
            }
            ("static", VDI) => self.is_fixed = chosen(value, &SWITCH)?,
            ("subformat", VHD | VHDX) => self.is_fixed = chosen(value, &[("dynamic", false), ("fixed", true)])?,
            ("force_size", VHD) => self.is_whole_mib = chosen(value, &SWITCH)?,
            ("block_size", VHDX) => {
                self.cluster_bytes = Some(u32::try_from(size::parse(value)?).unwrap_or(u32::MAX));
            }
            (
                "cluster_size" | "backing_file" | "backing_fmt" | "compat" | "refcount_bits" | "compression_type"
                | "extended_l2" | "lazy_refcounts" | "encryption" | "static" | "subformat" | "force_size"
                | "block_size" | "adapter_type" | "hwversion",
                _,
            ) => return Err(format!("{} images have no {key}", format.word())),
            _ => {
                return Err("the options are size, preallocation and, for qcow2, cluster_size, backing_file, \
                            backing_fmt, compat, refcount_bits, compression_type, extended_l2 and lazy_refcounts; \
                            for vmdk subformat, adapter_type and hwversion; for vdi static; for vpc subformat and \
                            force_size; for vhdx subformat and block_size"
                    .to_owned());
            }
        }
        Ok(())
    }
}

const VMDK: Format = Format::BlockMap(BlockMapFormat::Vmdk);
const VDI: Format = Format::BlockMap(BlockMapFormat::Vdi);
const VHD: Format = Format::BlockMap(BlockMapFormat::Vhd);
const VHDX: Format = Format::BlockMap(BlockMapFormat::Vhdx);

/// Words for yes and no.
const SWITCH: [(&str, bool); 2] = [("on", true), ("off", false)];

/// What a word stands for.
fn chosen<T: Copy>(word: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(known, _)| *known == word);
    found.map(|&(_, choice)| choice).ok_or_else(|| {
        let known: Vec<_> = choices.iter().map(|(known, _)| *known).collect();
        format!("it is {}", known.join(", "))
    })
}

/// That nobody says in which format a backing file is.
pub fn unsaid_format(name: &str) -> UsageError {
    UsageError(format!(
        "in which format is {name}? Add -F raw or -F qcow2: guessing would let whoever writes to it decide"
    ))
}

fn preallocation(word: &str, format: Format) -> Result<Preallocation, String> {
    match (word, format) {
        ("off", _) => Ok(Preallocation::Off),
        ("metadata", Format::Qcow2 | Format::BlockMap(_)) => Ok(Preallocation::Metadata),
        ("falloc", _) => Ok(Preallocation::Falloc),
        ("full", _) => Ok(Preallocation::Full),
        ("metadata", _) => Err("a raw image has no metadata: off, falloc or full".to_owned()),
        _ => Err("off, metadata (for qcow2), falloc or full".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, format: Format) -> Result<ImageOptions> {
        ImageOptions::parse(&[text.to_owned()], format)
    }

    #[test]
    fn qemu_imgs_options_are_understood() {
        let options =
            parse("cluster_size=4k,preallocation=metadata,compat=1.1,refcount_bits=16", Format::Qcow2).unwrap();
        assert_eq!((options.cluster_bytes, options.preallocation), (Some(4096), Some(Preallocation::Metadata)));
        let options = parse("backing_file=base.img,backing_fmt=raw,size=1G", Format::Qcow2).unwrap();
        assert_eq!(options.backing_name.as_deref(), Some("base.img"));
        assert_eq!((options.backing_format.as_deref(), options.size_bytes), (Some("raw"), Some(1 << 30)));
        assert_eq!(parse("preallocation=falloc", Format::Raw).unwrap().preallocation, Some(Preallocation::Falloc));
    }

    #[test]
    fn what_there_is_not_is_refused() {
        for (text, format) in [
            ("cluster_size=64K", Format::Raw),
            ("preallocation=metadata", Format::Raw),
            ("preallocation=some", Format::Qcow2),
            ("compat=1.0", Format::Qcow2),
            ("compat=1.1", Format::Raw),
            ("subformat=monolithicFlat", VMDK),
            ("adapter_type=scsi", VMDK),
            ("hwversion=-1", VMDK),
            ("hwversion=4", VDI),
            ("compression_type=lzma", Format::Qcow2),
            ("refcount_bits=3", Format::Qcow2),
            ("extended_l2=yes", Format::Qcow2),
            ("encryption=on", Format::Qcow2),
            ("no_such=1", Format::Qcow2),
            ("cluster_size", Format::Qcow2),
        ] {
            let error = parse(text, format).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(text), "{error}");
        }
    }
}
