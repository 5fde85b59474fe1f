//! Builds the library that kernels are started with, which the crate embeds.

fn main() {
    let library = blockyard_guest_build::build_library_from_build_script("blockyard-guest-preload", "preload");
    println!("cargo::rustc-env=BLOCKYARD_PRELOAD={}", library.display());
}
