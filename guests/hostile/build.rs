//! Links the guest as a flat binary.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../flat.ld");
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{script}");
    println!("cargo::rustc-link-arg-bins=-Wl,--oformat=binary");
}
