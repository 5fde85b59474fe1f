//! Keys of encrypted volumes. They are in no argument, message or log.

use crate::error::{Error, Result};
use blockyard_block::{LineEnd, Remedy, SecretBytes, read_key_file};
use blockyard_protocol::appliance::Volume;
use blockyard_protocol::volume_name::kernel_name;
use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

/// Longest key: it goes to the appliance in one message.
const KEY_BYTES_MAX: usize = 32 << 10;

/// A key.
#[derive(Clone)]
pub struct Key(Arc<SecretBytes>);

impl Key {
    /// What was typed.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn typed(bytes: Vec<u8>) -> Result<Self> {
        keep_out_of_cores();
        Ok(Self(Arc::new(SecretBytes::taking(bytes)?)))
    }

    /// What is in a key file ([`read_key_file`]); of a single line of text, without the line's end.
    ///
    /// # Errors
    /// When it cannot be read, is for other users, too, or is too long.
    pub fn read(path: &Path) -> Result<Self> {
        keep_out_of_cores();
        Ok(Self(Arc::new(read_key_file(path, KEY_BYTES_MAX, LineEnd::IsLeftOut)?)))
    }

    /// What it is.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A core dump of this process has none of its memory from now on, be it a file or for a program that the system has
/// for them: copies of a key lie about in it.
fn keep_out_of_cores() {
    // Where there is no /proc, nobody is worse off than without this.
    let _ = fs::write("/proc/self/coredump_filter", "0");
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(secret)")
    }
}

/// Keys that are given, and those that were typed.
#[derive(Debug, Default)]
pub struct Keys {
    /// For which volume, as the user calls it, or `all`.
    given: Vec<(String, Key)>,
    /// What was typed and has opened something: it may open more.
    typed: RefCell<Vec<Key>>,
}

impl Keys {
    /// Looks whether keys are said as they have to be, before any file is read.
    ///
    /// # Errors
    /// What is wrong with one.
    pub fn check(given: &[String]) -> Result<()> {
        given.iter().try_for_each(|text| selected(text).map(drop))
    }

    /// `file` is for any volume; the others are `VOLUME:file:FILE`, where the volume may be `all`.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is something else; when a file cannot be read.
    pub fn read(file: Option<&Path>, keys: &[String]) -> Result<Self> {
        let mut given = Vec::new();
        for text in keys {
            let (volume, file) = selected(text)?;
            given.push((volume.to_owned(), Key::read(Path::new(file))?));
        }
        if let Some(file) = file {
            given.push(("all".to_owned(), Key::read(file)?));
        }
        Ok(Self { given, typed: RefCell::default() })
    }

    /// Those that may open `volume`.
    pub fn of(&self, volume: &Volume) -> Vec<Key> {
        let fits = self.given.iter().filter(|(name, _)| is_called(volume, name));
        fits.map(|(_, key)| key.clone()).collect()
    }

    /// What was typed for others.
    pub fn typed(&self) -> Vec<Key> {
        self.typed.borrow().clone()
    }

    /// What was typed has opened something.
    pub fn remember(&self, key: Key) {
        self.typed.borrow_mut().push(key);
    }
}

/// `VOLUME:file:FILE`.
fn selected(text: &str) -> Result<(&str, &str)> {
    let mut fields = text.splitn(3, ':');
    match (fields.next(), fields.next(), fields.next()) {
        (Some(volume), Some("file"), Some(file)) if !volume.is_empty() && !file.is_empty() => Ok((volume, file)),
        (_, Some("key"), _) => {
            // Whatever it is, it is not to be said again.
            Err(Error::usage(format!("{} …:key:…: others see a command's arguments; use …:file:FILE", Remedy::Key)))
        }
        _ => Err(Error::usage(format!(
            "{} {text}: it is VOLUME:file:FILE, where VOLUME may be a UUID or `all`",
            Remedy::Key
        ))),
    }
}

/// Whether a user may call a volume so: by a device name of ours or guestfish's, or by its UUID.
fn is_called(volume: &Volume, name: &str) -> bool {
    let uuid = name.strip_prefix("UUID=").unwrap_or(name);
    name == "all" || kernel_name(name) == volume.device || (!uuid.is_empty() && uuid.eq_ignore_ascii_case(&volume.uuid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_for_a_volume_by_any_of_its_names() {
        let volume = Volume { device: "vda3".into(), uuid: "ab-cd".into(), ..Volume::default() };
        for name in ["all", "vda3", "/dev/vda3", "/dev/sda3", "3", "AB-CD", "UUID=ab-cd"] {
            assert!(is_called(&volume, name), "{name}");
        }
        for name in ["", "vda", "/dev/sda30", "ab", "UUID="] {
            assert!(!is_called(&volume, name), "{name}");
        }
    }

    #[test]
    fn keys_are_files_and_no_arguments() {
        assert_eq!(selected("/dev/sda3:file:/key:1").unwrap(), ("/dev/sda3", "/key:1"));
        for bad in ["", "sda3", "sda3:file:", ":file:key", "sda3:clevis:"] {
            assert!(selected(bad).is_err(), "{bad}");
        }
        let said = selected("sda3:key:hush").unwrap_err().to_string();
        assert!(!said.contains("hush"), "{said}");
        assert_eq!(format!("{:?}", Key::typed(b"hush".to_vec()).unwrap()), "Key(secret)");
    }

    #[test]
    fn a_process_that_has_a_key_has_no_memory_in_its_core() {
        fs::write("/proc/self/coredump_filter", "33").unwrap();
        let _key = Key::typed(b"hush".to_vec());
        assert_eq!(fs::read_to_string("/proc/self/coredump_filter").unwrap().trim(), "00000000");
    }

    #[test]
    fn a_key_file_is_for_nobody_else_and_ends_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "word\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(Key::read(&path).unwrap_err().to_string().contains("chmod 600"));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Key::read(&path).unwrap().bytes(), b"word");
        fs::write(&path, vec![0; KEY_BYTES_MAX + 1]).unwrap();
        assert!(Key::read(&path).unwrap_err().to_string().contains("more than 32K bytes"));
    }
}
