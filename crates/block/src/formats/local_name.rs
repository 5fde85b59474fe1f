//! Names of plain files in QEMU's other ways of writing them: `file:` before an absolute path, and `json:` before an
//! object that says which drivers open it. libvirt and others name backing files so.

use super::allowed_directories::protocol;
use super::chain_files::ChainFormat;
use super::{BlockMapInfo, Qcow2Info};
use crate::OpenedFile;
use serde_json::{Map, Value};

/// A file, as a name means it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalName {
    /// Its path.
    pub path: String,
    /// The word of its format, where the name says one.
    pub format: Option<String>,
    /// It says that nothing is behind the file, whatever that says itself (`"backing": null`).
    pub is_alone: bool,
}

impl LocalName {
    /// What a name means that is for QEMU.
    ///
    /// # Errors
    /// When it names no plain file; the sentence goes on after that somebody refers to it.
    pub fn of(name: &str) -> Result<Self, String> {
        let local = Self::by_drivers(name, &["file"])?;
        match protocol(name) {
            Some(_) => Ok(Self { path: absolute(&local.path)?, ..local }),
            None => Ok(local),
        }
    }

    /// The same of a name on the command line, where it is known in which directory it starts.
    ///
    /// # Errors
    /// As [`LocalName::of`].
    pub fn here(name: &str) -> Result<Self, String> {
        // Who names a device to QEMU may say that it is one.
        Self::by_drivers(name, &["file", "host_device"])
    }

    fn by_drivers(name: &str, drivers: &[&str]) -> Result<Self, String> {
        match protocol(name) {
            None => Ok(Self { path: name.to_owned(), format: None, is_alone: false }),
            Some("file") => {
                Ok(Self { path: name.trim_start_matches("file:").to_owned(), format: None, is_alone: false })
            }
            Some("json") => of_json(name.trim_start_matches("json:"), drivers),
            Some(protocol) => {
                Err(format!("of what has a protocol (`{protocol}:`), only file: and json: are supported"))
            }
        }
    }
}

impl LocalName {
    /// Whether an image says, too, that nothing is behind it, where the name does: what is behind it would show.
    ///
    /// # Errors
    /// When it says that something is; the sentence goes on after the name.
    pub fn check_alone(&self, image: &OpenedFile) -> Result<(), String> {
        let has_more = match self.format.as_deref().filter(|_| self.is_alone).and_then(ChainFormat::of_word) {
            Some(ChainFormat::Qcow2) => Qcow2Info::of_opened(image).is_ok_and(|info| info.backing_name.is_some()),
            Some(ChainFormat::BlockMap(format)) => {
                BlockMapInfo::of(image, format).is_ok_and(|info| info.parent.is_some())
            }
            Some(ChainFormat::Raw | ChainFormat::Luks) | None => false,
        };
        match has_more {
            false => Ok(()),
            true => {
                Err("\"backing\": null hides what is behind an image, which is not done here: leave it out, or take \
                         what is behind it away from a copy (image rebase -u -b '')"
                    .to_owned())
            }
        }
    }
}

/// Of what such a name says that is not absolute, QEMU thinks in the directory in which it is started.
fn absolute(path: &str) -> Result<String, String> {
    match path.starts_with('/') {
        true => Ok(path.to_owned()),
        false => Err("what it means depends on where QEMU is started: name it by an absolute path".to_owned()),
    }
}

fn of_json(text: &str, drivers: &[&str]) -> Result<LocalName, String> {
    let known = "only {\"driver\":FORMAT,\"file\":{\"driver\":\"file\",\"filename\":PATH}} is supported";
    let Ok(Value::Object(all)) = serde_json::from_str(text) else {
        let quotes = if text.contains('\'') { ", whose strings are in double quotes" } else { "" };
        return Err(format!("it is no JSON object{quotes}: {known}"));
    };
    let mut said = Said::default();
    take(&mut said, "", &all).map_err(|key| format!("of {key:?} nothing is known, or not twice: {known}"))?;
    if let Some(driver) = said.driver.filter(|driver| !drivers.contains(driver)) {
        return Err(format!("the driver {driver:?} is none of plain files: {known}"));
    }
    let path = said.path.ok_or_else(|| format!("it names no file: {known}"))?;
    Ok(LocalName { path: path.to_owned(), format: said.format.map(str::to_owned), is_alone: said.is_alone })
}

/// What is said, each once: by objects in objects, or by their keys with dots between.
#[derive(Default)]
struct Said<'a> {
    format: Option<&'a str>,
    driver: Option<&'a str>,
    path: Option<&'a str>,
    is_alone: bool,
}

/// Fails with a key that is not known, or there twice.
fn take<'a>(said: &mut Said<'a>, before: &str, object: &'a Map<String, Value>) -> Result<(), String> {
    for (key, value) in object {
        let key = format!("{before}{key}");
        let (place, text) = match (key.as_str(), value) {
            ("file", Value::Object(file)) => {
                take(said, "file.", file)?;
                continue;
            }
            ("backing", Value::Null) if !said.is_alone => {
                said.is_alone = true;
                continue;
            }
            ("driver", Value::String(text)) => (&mut said.format, text),
            ("file.driver", Value::String(text)) => (&mut said.driver, text),
            ("file.filename", Value::String(text)) => (&mut said.path, text),
            _ => return Err(key),
        };
        if place.replace(text).is_some() {
            return Err(key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_files_are_found_in_whatever_way_they_are_named() {
        let local = |path: &str, format: Option<&str>| LocalName {
            path: path.to_owned(),
            format: format.map(str::to_owned),
            is_alone: false,
        };
        for (name, wanted) in [
            ("a", local("a", None)),
            ("./a:b", local("./a:b", None)),
            ("file:/a b", local("/a b", None)),
            (r#"json:{"driver":"qcow2","file":{"driver":"file","filename":"/a"}}"#, local("/a", Some("qcow2"))),
            (r#"json:{"file.driver":"file", "driver":"raw", "file.filename":"/a"}"#, local("/a", Some("raw"))),
            (r#"json:{"file":{"filename":"/\u00e4,"}}"#, local("/ä,", None)),
        ] {
            assert_eq!(LocalName::of(name), Ok(wanted), "{name}");
        }
        let alone = r#"json:{"backing":null,"driver":"qcow2","file":{"driver":"file","filename":"/a"}}"#;
        assert_eq!(LocalName::of(alone), Ok(LocalName { is_alone: true, ..local("/a", Some("qcow2")) }));
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for (name, wanted) in [
            ("nbd://host/x", "(`nbd:`)"),
            ("file:a", "absolute"),
            ("file:", "absolute"),
            ("json:", "no JSON object"),
            ("json:[]", "no JSON object"),
            ("json:{'driver':'raw','file':{'filename':'/a'}}", "no JSON object, whose strings are in double quotes"),
            (r#"json:{"file":{"filename":"/a","backing":null}}"#, "\"file.backing\""),
            (r#"json:{"file":{"filename":"/a"},"backing":"node"}"#, "\"backing\""),
            ("json:{}", "names no file"),
            (r#"json:{"driver":"qcow2"}"#, "names no file"),
            (r#"json:{"file":{"filename":"a"}}"#, "absolute"),
            (r#"json:{"file":{"filename":"file:/a"}}"#, "absolute"),
            (r#"json:{"file":"node"}"#, "\"file\""),
            (r#"json:{"driver":"file","filename":"/a"}"#, "\"filename\""),
            (r#"json:{"file":{"driver":"nbd","filename":"/a"}}"#, "the driver \"nbd\""),
            (r#"json:{"file":{"driver":"host_device","filename":"/dev/sda"}}"#, "the driver \"host_device\""),
            (r#"json:{"file":{"filename":"/a"},"file.filename":"/b"}"#, "\"file.filename\""),
            (r#"json:{"file":{"filename":"/a","aio":"native"}}"#, "\"file.aio\""),
            (r#"json:{"file":{"file":{"filename":"/a"}}}"#, "\"file.file\""),
            (r#"json:{"driver":1,"file":{"filename":"/a"}}"#, "\"driver\""),
        ] {
            let refused = LocalName::of(name).unwrap_err();
            assert!(refused.contains(wanted), "{name}: {refused}");
        }
        let named = |path: &str, format: &str| LocalName {
            path: path.to_owned(),
            format: Some(format.to_owned()),
            is_alone: false,
        };
        let relative = named("a", "qcow2");
        assert_eq!(LocalName::here(r#"json:{"driver":"qcow2","file.filename":"a"}"#), Ok(relative));
        let device = named("/dev/a", "raw");
        let text = r#"json:{"driver":"raw","file":{"driver":"host_device","filename":"/dev/a"}}"#;
        assert_eq!(LocalName::here(text), Ok(device));
        let deep = format!("json:{}", "{\"file\":".repeat(200));
        assert!(LocalName::of(&deep).is_err());
    }
}
