//! Images as qemu-img's `--image-opts` names them: `driver=qcow2,file.filename=disk.img`, and as JSON: `json:{…}`.

use super::secrets;
use crate::usage_error::{UsageError, UsageLines};
use anyhow::{Result, bail};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{LocalName, OpenedFile};
use std::path::Path;

/// The disk that `text` names, if it names one so: as a disk specification, no such text means anything.
pub(super) fn named(text: &str) -> Option<Result<DiskSpecification>> {
    if text.starts_with("json:") {
        return Some(parse_json(text));
    }
    let is_one = text.starts_with("driver=") || text.starts_with("file.driver=") || text.starts_with("file.filename=");
    is_one.then(|| parse(text))
}

fn parse_json(text: &str) -> Result<DiskSpecification> {
    let wrong = |problem: String| UsageError(format!("{text}: {problem}"));
    let local = LocalName::here(text).map_err(wrong)?;
    // One that is not there is an error when it is opened.
    let named = local.is_alone.then(|| OpenedFile::open(Path::new(&local.path), true)).and_then(Result::ok);
    named.map_or(Ok(()), |file| local.check_alone(&file)).map_err(wrong)?;
    of_file(local.path, local.format)
}

fn of_file(path: String, format: Option<String>) -> Result<DiskSpecification> {
    let named = DiskSpecification::of_file(path);
    match format {
        Some(format) => Ok(named.with_format_named(&format).map_err(UsageLines::from)?),
        None => Ok(named),
    }
}

fn parse(text: &str) -> Result<DiskSpecification> {
    let (mut path, mut format, mut secret, mut read_only, mut unlocked) = (None, None, None, false, false);
    for option in options(text) {
        let (key, value) = option.split_once('=').unwrap_or((&option, ""));
        let place = match (key, value) {
            ("driver", _) => &mut format,
            ("file.filename", _) => &mut path,
            ("key-secret" | "encrypt.key-secret", _) => &mut secret,
            // How it is encrypted, its header says.
            ("file.driver", "file" | "host_device") | ("encrypt.format", "luks" | "aes") => continue,
            ("read-only", "on" | "off") => {
                read_only = value == "on";
                continue;
            }
            ("force-share", "on" | "off") => {
                unlocked = value == "on";
                continue;
            }
            _ => bail!(UsageError(format!(
                "{text}: of qemu-img's image options there are driver=FORMAT, file.driver=file or host_device, \
                 file.filename=PATH, key-secret=, encrypt.key-secret=, read-only= and force-share=, and not {option}"
            ))),
        };
        if place.replace(value.to_owned()).is_some() {
            bail!(UsageError(format!("{text}: {key} is there twice")));
        }
    }
    let Some(path) = path else { bail!(UsageError(format!("{text} names no file: add file.filename=PATH"))) };
    let key = secret.map(|id| secrets::key_file(&id)).transpose();
    let key = key.map_err(|problem| UsageError(format!("{text}: {problem}")))?;
    let named = of_file(path, format)?;
    let named = if key.is_some() { named.with_key_file(key) } else { named };
    let named = if read_only { named.read_only() } else { named };
    Ok(if unlocked { named.unlocked() } else { named })
}

/// What stands between commas, of which two are one.
pub(super) fn options(text: &str) -> Vec<String> {
    let (mut options, mut rest) = (vec![String::new()], text.chars().peekable());
    while let Some(letter) = rest.next() {
        let is_comma = letter == ',';
        if is_comma && rest.next_if_eq(&',').is_none() {
            options.push(String::new());
        } else if let Some(last) = options.last_mut() {
            last.push(letter);
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_for_qemu_img() {
        secrets::declare("secret,id=of-names,file=/k").unwrap();
        for (text, wanted) in [
            ("driver=qcow2,file.filename=a", "a,format=qcow2"),
            ("driver=raw,file.driver=file,file.filename=a,,b", "a,,b,format=raw"),
            ("driver=raw,file.driver=host_device,file.filename=/dev/a", "/dev/a,format=raw"),
            ("driver=luks,key-secret=of-names,file.filename=a", "a,format=luks,key-file=/k"),
            (
                "driver=qcow2,encrypt.format=luks,encrypt.key-secret=of-names,file.filename=a",
                "a,format=qcow2,key-file=/k",
            ),
            ("file.filename=a.qcow2,read-only=on", "a.qcow2,ro"),
            ("driver=vpc,file.filename=/x/a=b", "/x/a=b,format=vpc"),
            (r#"json:{"driver":"qcow2","file":{"driver":"file","filename":"a,b"}}"#, "a,,b,format=qcow2"),
            (r#"json:{"file.filename":"/x/a.qcow2"}"#, "/x/a.qcow2"),
        ] {
            assert_eq!(named(text).unwrap().unwrap().to_string(), wanted);
        }
        for text in ["a.img", "file:a", "driver", "./driver=raw,ro", "filename=a"] {
            assert!(named(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_no_plain_file_is_refused() {
        for (text, wanted) in [
            ("driver=raw", "names no file"),
            ("driver=nbd,host=h", "and not host=h"),
            ("driver=raw,file.driver=nbd,file.filename=a", "and not file.driver=nbd"),
            ("driver=raw,file.filename=a,file.filename=b", "twice"),
            ("driver=luks,key-secret=s,file.filename=a", "there is no secret 's': add --object"),
            ("driver=luks,key-secret=of-names,key-secret=of-names,file.filename=a", "twice"),
            ("driver=no,file.filename=a", "no"),
            (r#"json:{"driver":"nbd","host":"h"}"#, "\"host\""),
            (r#"json:{"driver":"no","file.filename":"a"}"#, "no"),
            ("json:", "no JSON object"),
            ("driver=raw,file.filename=a,offset=1", "and not offset=1"),
        ] {
            let refused = named(text).unwrap().unwrap_err();
            assert!(refused.to_string().contains(wanted), "{refused}");
        }
    }
}
