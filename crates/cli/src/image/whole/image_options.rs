//! What `-o` says of a new image: qemu-img's names and values, as far as there is a choice here.

use super::option_table;
use anyhow::{Result, bail};
use blockyard_block::specification::Format;
use blockyard_block::{
    BlockMapFormat, FileHints, KeyFile, LuksOptions, NewLuks, Preallocation, Qcow2Backing, Qcow2DataFile,
    Qcow2Features, VmdkAdapter, VmdkCreateOptions, size,
};
use blockyard_command_line::image::named_image::backing_word;
use blockyard_command_line::image::secrets;
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
    /// A VMDK is for version 6 of the virtual hardware.
    is_vmdk_6: bool,
    /// The disk has whole MiB, as Azure wants.
    pub is_whole_mib: bool,
    /// What is allocated from the start.
    pub preallocation: Option<Preallocation>,
    /// The backing file's name.
    pub backing_name: Option<String>,
    /// Its format.
    pub backing_format: Option<String>,
    /// The data file's name.
    data_file_name: Option<String>,
    /// It is said whether that is a raw image of the disk.
    is_data_file_raw: Option<bool>,
    /// The size of the disk.
    pub size_bytes: Option<u64>,
    /// What whoever uses a qcow2 image must know.
    pub features: Qcow2Features,
    /// How a qcow2 image is encrypted, where it is said that it is, or a LUKS volume, where that is said.
    luks: LuksOptions,
    /// The first option that says how.
    says_how: Option<String>,
    /// It is said that a qcow2 image is.
    pub is_encrypted: bool,
    /// The file of its passphrase, where that was declared as QEMU's object.
    secret: Option<KeyFile>,
    /// What the file system is told of its files.
    pub hints: FileHints,
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
        for pair in pairs(texts) {
            let (option, key, value) = pair?;
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
            (Some(""), _) => {
                bail!(UsageError(format!("{option} takes the name of a file, and '' is none: leave it out")))
            }
            (Some(name), format) => match (refused, format) {
                (Some(refused), _) => bail!(UsageError(refused.to_owned())),
                (None, Some(format)) => Ok(Some(Qcow2Backing { name: name.to_owned(), format: format.to_owned() })),
                (None, None) => Err(unsaid_format(name).into()),
            },
        }
    }

    /// The file in which a new image has its data, if it is one of their own.
    ///
    /// # Errors
    /// [`UsageError`] when it is only said how it is.
    pub fn data_file(&self) -> Result<Option<Qcow2DataFile>> {
        match (&self.data_file_name, self.is_data_file_raw) {
            (Some(name), is_raw) => Ok(Some(Qcow2DataFile { name: name.clone(), is_raw: is_raw.unwrap_or_default() })),
            (None, Some(true)) => bail!(UsageError("-o data_file_raw=on: add data_file=FILE".to_owned())),
            (None, _) => Ok(None),
        }
    }

    /// How a new image in this format is encrypted, by the passphrase in `key_file`, if it is.
    ///
    /// # Errors
    /// [`UsageError`] when the one is said without the other, or the options do not go together.
    pub fn encryption(&self, format: Format, key_file: Option<KeyFile>) -> Result<Option<NewLuks>> {
        let is_encrypted = self.is_encrypted || format == Format::Luks;
        if key_file.is_some() && self.secret.is_some() {
            bail!(UsageError("the passphrase is said twice: leave key-secret or the key file out".to_owned()));
        }
        let key_file = key_file.or_else(|| self.secret.clone());
        match (is_encrypted, key_file, &self.says_how) {
            (true, Some(key), _) => {
                self.check_encryption(format)?;
                Ok(Some(NewLuks { key, options: self.luks.clone() }))
            }
            (true, None, _) => {
                bail!(UsageError("by which passphrase? Add --key-file FILE, a file that has nothing else in it".into()))
            }
            (false, _, Some(_)) => self.check_encryption(format).map(|()| None),
            (false, Some(_), None) => bail!(UsageError(
                "--key-file is for an encrypted image: add -o encrypt.format=luks (qcow2), or -f luks".into()
            )),
            (false, None, None) => Ok(None),
        }
    }

    /// Whether what is said of encryption goes together.
    ///
    /// # Errors
    /// [`UsageError`] when it does not.
    pub fn check_encryption(&self, format: Format) -> Result<()> {
        let before = if format == Format::Luks { "" } else { option_table::ENCRYPTION };
        let is_encrypted = self.is_encrypted || format == Format::Luks;
        match &self.says_how {
            Some(option) if !is_encrypted => {
                bail!(UsageError(format!("-o {before}{option} is for an encrypted image: add -o encrypt.format=luks")))
            }
            _ => Ok(self.luks.check().map_err(|problem| UsageError(format!("-o {before}{problem}")))?),
        }
    }

    fn set_luks(&mut self, name: &str, value: &str) -> Result<(), String> {
        if name == "key-secret" {
            let key =
                secrets::key_file(value).map_err(|problem| format!("{problem}, or say --key-file FILE instead"))?;
            self.secret = Some(key);
            return Ok(());
        }
        self.says_how = Some(name.to_owned());
        self.luks.set(name, value)
    }

    fn set(&mut self, key: &str, value: &str, format: Format) -> Result<(), String> {
        match (key, format) {
            ("size", _) => self.size_bytes = Some(size::parse(value)?),
            ("preallocation", _) => self.preallocation = Some(preallocation(value, format)?),
            ("cluster_size", Format::Qcow2) => {
                let bytes = u32::try_from(size::parse(value)?).unwrap_or(u32::MAX);
                self.cluster_bytes = Some(bytes);
            }
            ("backing_file", Format::Qcow2) if value.is_empty() => return Err("it is the name of a file".to_owned()),
            ("backing_file", Format::Qcow2) => self.backing_name = Some(value.to_owned()),
            ("backing_fmt", Format::Qcow2) => self.backing_format = Some(backing_word(value).to_owned()),
            ("data_file", Format::Qcow2) if value.is_empty() => return Err("it is the name of a new file".to_owned()),
            ("data_file", Format::Qcow2) => self.data_file_name = Some(value.to_owned()),
            ("data_file_raw", Format::Qcow2) => self.is_data_file_raw = Some(switch(value)?),
            ("compat", Format::Qcow2) => {
                self.features.version = chosen(value, &VERSIONS)?;
            }
            ("refcount_bits", Format::Qcow2) => {
                self.features.refcount_order = chosen(value, &REFCOUNT_ORDERS)?;
            }
            ("compression_type", Format::Qcow2) => {
                self.features.is_zstd = chosen(value, &[("zlib", false), ("zstd", true)])?;
            }
            ("extended_l2", Format::Qcow2) => self.features.has_extended_l2 = switch(value)?,
            ("lazy_refcounts", Format::Qcow2) => self.features.has_lazy_refcounts = switch(value)?,
            ("encryption", Format::Qcow2) => match switch(value)? {
                false => {}
                true => return Err("it is encrypt.format=luks".to_owned()),
            },
            ("subformat", VMDK) if SEVERAL_FILES.contains(&value) => {
                return Err("VMDKs in several files are read and written, and not made: monolithicSparse \
                            holds the same in one"
                    .to_owned());
            }
            ("subformat", VMDK) => {
                self.vmdk.is_stream = chosen(value, &[("monolithicSparse", false), ("streamOptimized", true)])?;
            }
            ("adapter_type", VMDK) => {
                self.vmdk.adapter = chosen(value, &VmdkAdapter::ALL.map(|adapter| (adapter.word(), adapter)))?;
            }
            ("hwversion", VMDK) => {
                if self.is_vmdk_6 {
                    return Err(COMPAT6.to_owned());
                }
                self.vmdk.hardware_version = value.parse().map_err(|_| "it is a number such as 13")?;
            }
            ("compat6", VMDK) => {
                self.is_vmdk_6 = switch(value)?;
                match self.vmdk.hardware_version {
                    version if !self.is_vmdk_6 || version == VmdkCreateOptions::default().hardware_version => {}
                    _ => return Err(COMPAT6.to_owned()),
                }
                if self.is_vmdk_6 {
                    self.vmdk.hardware_version = 6;
                }
            }
            ("zeroed_grain", VMDK) => self.vmdk.has_zeroed_grains = switch(value)?,
            ("toolsversion", VMDK) => {
                return Err("a new image says that no tools of VMware's are known of: the machine sets it".to_owned());
            }
            ("backing_file" | "backing_fmt", VMDK) => {
                return Err(
                    "differences are made by what runs the machine; convert -B makes a qcow2 image over a VMDK"
                        .to_owned(),
                );
            }
            ("encrypt.format", Format::Qcow2) if value == "aes" => {
                return Err("AES without LUKS does not hide data well, and is not made: take luks".to_owned());
            }
            ("encrypt.format", Format::Qcow2) => self.is_encrypted = chosen(value, &[("luks", true)])?,
            (name, Format::Luks) if name == "key-secret" || LuksOptions::NAMES.contains(&name) => {
                self.set_luks(name, value)?;
            }
            ("static", VDI) => self.is_fixed = switch(value)?,
            ("subformat", VHD | VHDX) => self.is_fixed = chosen(value, &[("dynamic", false), ("fixed", true)])?,
            ("force_size", VHD) => self.is_whole_mib = switch(value)?,
            ("block_size", VHDX) => {
                // 0: as the size of the disk wants it.
                let bytes = u32::try_from(size::parse(value)?).unwrap_or(u32::MAX);
                self.cluster_bytes = (bytes > 0).then_some(bytes);
            }
            ("log_size", VHDX) => match size::parse(value)? {
                VHDX_LOG_BYTES => {}
                _ => return Err("the log of a new image, which is empty, has 1 MiB".to_owned()),
            },
            // Nobody sees which: a block without a place is zeros.
            ("block_state_zero", VHDX) => _ = switch(value)?,
            ("nocow", _) => self.hints.no_cow = switch(value)?,
            ("extent_size_hint", _) => {
                let bytes = u32::try_from(size::parse(value)?).map_err(|_| "it is less than 4 GiB")?;
                self.hints.extent_bytes = (bytes > 0).then_some(bytes);
            }
            (name, Format::Qcow2) if name.starts_with(option_table::ENCRYPTION) => {
                self.set_luks(&name[option_table::ENCRYPTION.len()..], value)?;
            }
            _ if option_table::is_known(key) => return Err(format!("{} images have no {key}", format.word())),
            _ => {
                let names: Vec<_> = option_table::of_new(format).map(|option| option.name(format)).collect();
                return Err(format!("the options of {} images are {}", format.word(), names.join(", ")));
            }
        }
        Ok(())
    }
}

/// VMDKs that are no one file.
const SEVERAL_FILES: [&str; 3] = ["monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat"];

const COMPAT6: &str = "compat6 is hwversion=6: leave the one or the other out";

/// What the log of a new VHDX has.
const VHDX_LOG_BYTES: u64 = 1 << 20;

const VMDK: Format = Format::BlockMap(BlockMapFormat::Vmdk);
const VDI: Format = Format::BlockMap(BlockMapFormat::Vdi);
const VHD: Format = Format::BlockMap(BlockMapFormat::Vhd);
const VHDX: Format = Format::BlockMap(BlockMapFormat::Vhdx);

/// Each `key=value` of these texts: as a whole, and its parts. Of a switch, the key alone turns it on, and with `no` in
/// front of it off; so does that of all else that may be off.
pub fn pairs(texts: &[String]) -> impl Iterator<Item = Result<(&str, &str, &str)>> {
    let options = texts.iter().flat_map(|text| text.split(',')).filter(|option| !option.is_empty());
    options.map(|option| match option.split_once('=') {
        Some((key, value)) => Ok((option, key, value)),
        None if option_table::is_switch(option) => Ok((option, option, "on")),
        None => match option.strip_prefix("no").filter(|key| option_table::can_be_off(key)) {
            Some(key) => Ok((option, key, "off")),
            None => bail!(UsageError(format!("-o {option}: an option is KEY=VALUE, such as cluster_size=64K"))),
        },
    })
}

/// Words for versions of qcow2.
pub const VERSIONS: [(&str, u32); 4] = [("0.10", 2), ("v2", 2), ("1.1", 3), ("v3", 3)];

/// Numbers of bits in a refcount, and their logarithms.
pub const REFCOUNT_ORDERS: [(&str, u32); 7] = [("1", 0), ("2", 1), ("4", 2), ("8", 3), ("16", 4), ("32", 5), ("64", 6)];

/// Reads yes or no, in all of QEMU's words.
pub fn switch(word: &str) -> Result<bool, String> {
    match word {
        "on" | "yes" | "true" | "y" => Ok(true),
        "off" | "no" | "false" | "n" => Ok(false),
        _ => Err("it is on, off".to_owned()),
    }
}

/// What a word stands for.
pub fn chosen<T: Clone>(word: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(known, _)| *known == word);
    found.map(|(_, choice)| choice.clone()).ok_or_else(|| {
        let known: Vec<_> = choices.iter().map(|(known, _)| *known).collect();
        format!("it is {}", known.join(", "))
    })
}

/// That nobody says in which format a backing file is.
pub fn unsaid_format(name: &str) -> UsageError {
    UsageError(format!(
        "in which format is {name}? Add -F FORMAT, such as raw or qcow2: guessing would let whoever writes to it decide"
    ))
}

fn preallocation(word: &str, format: Format) -> Result<Preallocation, String> {
    match (word, format) {
        ("off", _) => Ok(Preallocation::Off),
        ("metadata", Format::Qcow2 | Format::BlockMap(_)) => Ok(Preallocation::Metadata),
        ("falloc", _) => Ok(Preallocation::Falloc),
        ("full", _) => Ok(Preallocation::Full),
        ("metadata", _) => Err(format!("{} images have no metadata: off, falloc or full", format.word())),
        _ => Err("it is off, metadata (but for raw and luks), falloc or full".to_owned()),
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
        for switch in ["lazy_refcounts", "lazy_refcounts=yes", "lazy_refcounts=true", "lazy_refcounts=y"] {
            assert!(parse(switch, Format::Qcow2).unwrap().features.has_lazy_refcounts, "{switch}");
        }
        for switch in ["nolazy_refcounts", "lazy_refcounts,nolazy_refcounts", "lazy_refcounts=no"] {
            assert!(!parse(switch, Format::Qcow2).unwrap().features.has_lazy_refcounts, "{switch}");
        }
        assert_eq!(parse("nopreallocation", Format::Qcow2).unwrap().preallocation, Some(Preallocation::Off));
        assert_eq!(parse("static,nostatic,nonocow", VDI).unwrap(), ImageOptions::default());
        parse("nocompat6,nozeroed_grain", VMDK).unwrap();
        assert!(parse("force_size,subformat=fixed", VHD).unwrap().is_whole_mib);
        assert_eq!(parse("block_size=0,log_size=1M,block_state_zero=no", VHDX).unwrap().cluster_bytes, None);
        for format in Format::ALL {
            parse("nocow=off,extent_size_hint=0,preallocation=off", format).unwrap();
        }
        let hints = FileHints { no_cow: true, extent_bytes: Some(1 << 20) };
        assert_eq!(parse("nocow,extent_size_hint=1M", Format::Raw).unwrap().hints, hints);
        assert_eq!(parse("preallocation=falloc", Format::Raw).unwrap().preallocation, Some(Preallocation::Falloc));
    }

    #[test]
    fn an_encrypted_image_takes_a_key_file_and_that_an_encrypted_image() {
        let encryption = |text: &str, format: Format, key: bool| {
            let key = key.then(|| KeyFile::new("key"));
            parse(text, format).unwrap().encryption(format, key).map_err(|error| error.to_string())
        };
        let luks = "encrypt.format=luks,encrypt.cipher-alg=aes-128,encrypt.iter-time=10";
        assert!(encryption(luks, Format::Qcow2, true).unwrap().is_some());
        assert!(encryption("iter-time=10", Format::Luks, true).unwrap().is_some());
        assert_eq!(encryption("", Format::Qcow2, false), Ok(None));
        for (text, format, key, wanted) in [
            (luks, Format::Qcow2, false, "by which passphrase?"),
            ("", Format::Luks, false, "by which passphrase?"),
            ("", Format::Raw, true, "--key-file is for an encrypted image"),
            ("encrypt.iter-time=10", Format::Qcow2, true, "add -o encrypt.format=luks"),
            ("cipher-mode=cbc,cipher-alg=aes-192,ivgen-hash-alg=sha256", Format::Luks, true, "ivgen-alg=essiv"),
        ] {
            let error = encryption(text, format, key).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }

    #[test]
    fn what_there_is_not_is_refused() {
        for (text, format) in [
            ("encrypt.format=aes", Format::Qcow2),
            ("encrypt.key-secret=s", Format::Qcow2),
            ("key-secret=s", Format::Luks),
            ("encrypt.format=luks", Format::Raw),
            ("encrypt.cipher-alg=serpent-256", Format::Qcow2),
            ("cipher-alg=aes-256", Format::Qcow2),
            ("cluster_size=64K", Format::Raw),
            ("preallocation=metadata", Format::Raw),
            ("preallocation=some", Format::Qcow2),
            ("compat=1.0", Format::Qcow2),
            ("compat=1.1", Format::Raw),
            ("subformat=monolithicFlat", VMDK),
            ("toolsversion=3", VMDK),
            ("backing_file=a.vmdk", VMDK),
            ("log_size=2M", VHDX),
            ("log_size=1M", VHD),
            ("nocow=1", Format::Raw),
            ("extent_size_hint=4G", Format::Qcow2),
            ("adapter_type=scsi", VMDK),
            ("hwversion=-1", VMDK),
            ("hwversion=4", VDI),
            ("compression_type=lzma", Format::Qcow2),
            ("refcount_bits=3", Format::Qcow2),
            ("extended_l2=1", Format::Qcow2),
            ("encryption=on", Format::Qcow2),
            ("encryption", Format::Qcow2),
            ("backing_file=", Format::Qcow2),
            ("lazy_refcounts", Format::Raw),
            ("no_such=1", Format::Qcow2),
            ("cluster_size", Format::Qcow2),
            ("nocluster_size", Format::Qcow2),
            ("noforce_size", Format::Qcow2),
            ("nolazy_refcounts=on", Format::Qcow2),
            ("noencrypt.format", Format::Qcow2),
            ("no", Format::Qcow2),
        ] {
            let error = parse(text, format).unwrap_err();
            assert!(error.is::<UsageError>() && error.to_string().contains(text), "{error}");
        }
    }
}
