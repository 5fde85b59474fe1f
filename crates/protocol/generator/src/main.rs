//! Prints the Rust code of the copy guest's messages, from `messages.proto`. `cargo xtask generate` runs it.
//!
//! protox stands in for protoc, so nothing need be installed.

use anyhow::Context;
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

const PROTO: &str = "messages.proto";

fn main() -> anyhow::Result<()> {
    let protocol = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let descriptors = protox::Compiler::new([&protocol])
        .context("cannot read the protocol's directory")?
        .include_source_info(true)
        .open_file(PROTO)
        .with_context(|| format!("{PROTO} does not compile"))?
        .encode_file_descriptor_set();
    // micropb-gen goes from file to file.
    let directory = tempfile::tempdir().context("cannot create a temporary directory")?;
    let descriptor_file = directory.path().join("descriptors");
    let code_file = directory.path().join("code.rs");
    fs::write(&descriptor_file, descriptors).context("cannot write the descriptors")?;

    let mut generator = Generator::with_warning_callback(|arguments| eprintln!("{arguments}"));
    generator.suffixed_package_names(false).configure(".", Config::new().no_accessors(true));
    bounded(&mut generator);
    generator.compile_fdset_file(&descriptor_file, &code_file).context("cannot generate code")?;
    print!("{}", fs::read_to_string(&code_file).context("cannot read what was generated")?);
    Ok(())
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
