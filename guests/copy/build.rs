//! Links the guest as a flat binary.

use std::path::PathBuf;

fn main() {
    // Asked when it runs: what is compiled in would be wrong once somebody moves the checkout.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR for build scripts");
    let script = PathBuf::from(package).join("../flat.ld");
    let script = script.display();
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{script}");
    println!("cargo::rustc-link-arg-bins=-Wl,--oformat=binary");
}
