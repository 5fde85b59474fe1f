//! Builds the `user` backend's trap stub, and tells the crate where its ELF file is.

fn main() {
    let stub = blockyard_guest_build::build_from_build_script("blockyard-guest-stub", "stub");
    println!("cargo::rustc-env=BLOCKYARD_STUB={}", stub.display());
}
