//! `cargo xtask generate`: the protocols' Rust code, from their .proto files.
//!
//! protox stands in for protoc, so nothing need be installed. What is generated is checked in, so that building
//! Blockyard needs neither.

use anyhow::{Context, bail};
use micropb_gen::{Config, Generator};
use std::fs;
use std::path::Path;

/// Bytes in a device's name: "input" or "output", with room to spare.
const DEVICE_NAME_MAX: u32 = 32;
/// Bytes in an error's sentence.
const ERROR_DETAIL_MAX: u32 = 200;
/// Devices in a configuration.
const DEVICES_MAX: u32 = 8;
/// Extents in a frame: 256 of at most 14 bytes and their framing are less than half of the 8 KiB that a frame may have.
const EXTENTS_MAX: u32 = 256;

/// A .proto file of `crates/protocol`, what becomes of it, and how.
struct Source {
    proto: &'static str,
    code: &'static str,
    configure: fn(&mut Generator),
}

const SOURCES: [Source; 2] = [
    Source { proto: "messages.proto", code: "src/messages.rs", configure: bounded },
    Source { proto: "appliance.proto", code: "src/appliance_messages.rs", configure: allocating },
];

/// Writes the code, or with `check` only says whether it is up to date.
///
/// # Errors
/// When a .proto file does not compile, a file cannot be written, or `check` finds it out of date.
pub(crate) fn generate(check: bool) -> anyhow::Result<()> {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/protocol");
    for source in &SOURCES {
        let output = protocol.join(source.code);
        let wanted = source.generated(&protocol)?;
        if !check {
            fs::write(&output, wanted).with_context(|| format!("cannot write {}", output.display()))?;
            continue;
        }
        let found = fs::read_to_string(&output).with_context(|| format!("cannot read {}", output.display()))?;
        if found != wanted {
            bail!("crates/protocol/{} is out of date: run `cargo xtask generate`", source.code);
        }
    }
    Ok(())
}

impl Source {
    fn generated(&self, protocol: &Path) -> anyhow::Result<String> {
        let proto = self.proto;
        let descriptors = protox::Compiler::new([protocol])
            .context("cannot read the protocol's directory")?
            .include_source_info(true)
            .open_file(proto)
            .with_context(|| format!("{proto} does not compile"))?
            .encode_file_descriptor_set();
        // micropb-gen goes from file to file.
        let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
        let descriptor_file = directory.path().join("descriptors");
        let code_file = directory.path().join("code.rs");
        fs::write(&descriptor_file, descriptors).context("cannot write the descriptors")?;

        let mut generator = Generator::with_warning_callback(|arguments| eprintln!("{arguments}"));
        generator.suffixed_package_names(false).configure(".", Config::new().no_accessors(true));
        (self.configure)(&mut generator);
        generator.compile_fdset_file(&descriptor_file, &code_file).context("cannot generate code")?;
        let code = fs::read_to_string(&code_file).context("cannot read what was generated")?;
        Ok(format!("// Generated from {proto} by `cargo xtask generate`: change that file, not this one.\n\n{code}"))
    }
}

/// The copy guest has no allocator: everything has a fixed room.
fn bounded(generator: &mut Generator) {
    generator
        .use_container_heapless()
        .single_oneof_msg_as_enum(true)
        .configure(".blockyard.DeviceConfig.name", Config::new().max_bytes(DEVICE_NAME_MAX))
        .configure(".blockyard.Capacity.device", Config::new().max_bytes(DEVICE_NAME_MAX))
        .configure(".blockyard.Error.device", Config::new().max_bytes(DEVICE_NAME_MAX))
        .configure(".blockyard.Error.detail", Config::new().max_bytes(ERROR_DETAIL_MAX))
        .configure(".blockyard.VmmConfig.devices", Config::new().max_len(DEVICES_MAX))
        .configure(".blockyard.Extents.extents", Config::new().max_len(EXTENTS_MAX));
}

/// The appliance has one. A frame has a longest length, and so has what is decoded from it.
fn allocating(generator: &mut Generator) {
    generator.use_container_alloc().single_oneof_msg_as_enum(true);
}
