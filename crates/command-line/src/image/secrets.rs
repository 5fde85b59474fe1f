//! Passphrases as qemu-img is told of them: `--object secret,id=ID,file=PATH`, and `key-secret=ID` where one is used.
//!
//! They are kept for one command line, as names of images refer to them wherever they stand. A passphrase is in a
//! file of its own; one on the command line could be read by everybody.

use blockyard_block::KeyFile;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

static DECLARED: Mutex<BTreeMap<String, KeyFile>> = Mutex::new(BTreeMap::new());

/// A secret that was declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    id: String,
    key: KeyFile,
}

/// Reads what `--object` says, and keeps it.
///
/// # Errors
/// When it is no passphrase in a file, or another has the same id.
pub fn declare(text: &str) -> Result<Declared, String> {
    let said = parse(text)?;
    let mut declared = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = declared.entry(said.id.clone()).or_insert_with(|| said.key.clone());
    match *kept == said.key {
        true => Ok(said),
        false => Err(format!("there are two secrets '{}'", said.id)),
    }
}

/// Forgets all that were declared: another command line begins, as in a shell of many.
pub fn forget() {
    DECLARED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// The file of the passphrase that was declared with this id. It is read once, whoever uses it: it may be a pipe.
///
/// # Errors
/// When none was.
pub fn key_file(id: &str) -> Result<KeyFile, String> {
    let declared = DECLARED.lock().unwrap_or_else(PoisonError::into_inner);
    match declared.get(id) {
        Some(key) => Ok(key.clone()),
        None => Err(format!("there is no secret '{id}': add --object secret,id={id},file=PATH")),
    }
}

fn parse(text: &str) -> Result<Declared, String> {
    let (mut id, mut path, mut is_secret) = (None, None, false);
    for (index, option) in super::image_opts::options(text).iter().enumerate() {
        match option.split_once('=') {
            None if index == 0 && option == "secret" => is_secret = true,
            Some(("qom-type", "secret")) => is_secret = true,
            None | Some(("qom-type", _)) if index == 0 => break,
            Some(("id", value)) if id.is_none() => id = Some(value.to_owned()),
            Some(("file", value)) if path.is_none() => path = Some(value.to_owned()),
            Some(("format", "raw")) => {}
            Some(("data", _)) => {
                return Err(
                    "on the command line everybody could read a passphrase: file=PATH names a file with it".into()
                );
            }
            Some(("format" | "keyid" | "iv", _)) => {
                return Err(format!(
                    "{option}: the file has the passphrase itself in it, and nothing else (format=raw)"
                ));
            }
            _ => return Err(format!("of {option} nothing is known, or not twice: it is secret,id=ID,file=PATH")),
        }
    }
    match (is_secret, id, path) {
        (true, Some(id), Some(path)) => Ok(Declared { id, key: KeyFile::new(path) }),
        (true, _, None) => Err("which file has the passphrase? It is secret,id=ID,file=PATH".to_owned()),
        (true, None, _) => Err("what is it called? It is secret,id=ID,file=PATH".to_owned()),
        (false, ..) => Err("of QEMU's objects there are passphrases: secret,id=ID,file=PATH".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passphrases_in_files_are_declared_once() {
        let wanted = Declared { id: "s0".to_owned(), key: KeyFile::new("/a,b") };
        for text in
            ["secret,id=s0,file=/a,,b", "secret,format=raw,file=/a,,b,id=s0", "qom-type=secret,id=s0,file=/a,,b"]
        {
            assert_eq!(parse(text).unwrap(), wanted);
        }
        declare("secret,id=of-this-test,file=/a").unwrap();
        declare("secret,id=of-this-test,file=/a").unwrap();
        assert!(declare("secret,id=of-this-test,file=/b").unwrap_err().contains("two secrets"));
        assert!(key_file("nobodys").unwrap_err().contains("--object secret,id=nobodys,file=PATH"));
    }

    #[test]
    fn everything_else_is_refused_with_what_to_do() {
        for (text, wanted) in [
            ("secret,id=s0,data=abc", "everybody could read"),
            ("secret,id=s0,file=a,format=base64", "format=raw"),
            ("secret,id=s0,file=a,keyid=m", "format=raw"),
            ("secret,id=s0", "which file"),
            ("secret,file=a", "what is it called"),
            ("secret,id=s0,file=a,file=b", "not twice"),
            ("tls-creds-x509,id=t,dir=/", "of QEMU's objects"),
            ("qom-type=iothread,id=t", "of QEMU's objects"),
            ("", "of QEMU's objects"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(wanted), "{text}: {refused}");
        }
    }
}
