//! Links the stub where guest-physical addresses never are.

fn main() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/stub.ld");
    println!("cargo::rerun-if-changed={script}");
    println!("cargo::rustc-link-arg-bins=-Wl,-T,{script}");
    println!("cargo::rustc-link-arg-bins=-Wl,-z,noexecstack");
    println!("cargo::rustc-link-arg-bins=-Wl,--gc-sections");
}
