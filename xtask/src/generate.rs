//! `cargo xtask generate`: the Rust code of the copy guest's messages, from messages.proto.
//!
//! What is generated is checked in, and says in its first line of which sources it is and that it is whole: so that
//! neither building nor testing Blockyard takes the generator (`crates/protocol/generator`), which is a workspace of
//! its own.

use crate::{cargo, output, root};
use anyhow::{Context, bail};
use std::fs;
use std::path::Path;

const PROTOCOL: &str = "crates/protocol";
/// The program that prints the code.
pub(crate) const GENERATOR: &str = "crates/protocol/generator";
/// The code, below the protocol's directory, and what it is made of.
const CODE: &str = "src/messages.rs";
const SOURCES: [&str; 4] = ["messages.proto", "generator/Cargo.toml", "generator/Cargo.lock", "generator/src/main.rs"];

/// Writes the code.
///
/// # Errors
/// When the .proto file does not compile or the code cannot be written.
pub(crate) fn generate() -> anyhow::Result<()> {
    let protocol = root().join(PROTOCOL);
    let mut generator = cargo();
    generator.current_dir(root().join(GENERATOR));
    generator.args(["run", "--quiet", "--locked", "--target-dir"]).arg(root().join("target/generator"));
    let code = output(&mut generator)?;
    let file = protocol.join(CODE);
    fs::write(&file, format!("{}{code}", header(&protocol, &code)?))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Whether the code is of today's sources, as it was generated.
///
/// # Errors
/// When it is not, or cannot be read.
pub(crate) fn check() -> anyhow::Result<()> {
    let protocol = root().join(PROTOCOL);
    let found = read(&protocol.join(CODE))?;
    let code = found.split_once("\n\n").map_or("", |(_, code)| code);
    if found != format!("{}{code}", header(&protocol, code)?) {
        bail!("{PROTOCOL}/{CODE} is out of date: run `cargo xtask generate`");
    }
    Ok(())
}

/// What is before the code.
fn header(protocol: &Path, code: &str) -> anyhow::Result<String> {
    let mut digest = Digest::default();
    for source in SOURCES {
        digest.add(&read(&protocol.join(source))?);
    }
    digest.add(code);
    Ok(format!(
        "// Generated from messages.proto by `cargo xtask generate`: change that file, not this one. {:016x}\n\n",
        digest.0
    ))
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// FNV-1a: against mistakes, not against malice.
struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Adds a text and that it ends here.
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0xFF]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_texts_and_their_ends_apart() {
        let digest = |texts: &[&str]| {
            let mut digest = Digest::default();
            texts.iter().for_each(|text| digest.add(text));
            digest.0
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_ne!(digest(&["ab"]), digest(&["ba"]));
        assert_eq!(digest(&["ab", "c"]), digest(&["ab", "c"]));
    }
}
