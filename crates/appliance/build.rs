//! Builds the library that newer kernels are started with, which the crate embeds.

fn main() {
    let library = blockyard_guest_build::build_library_from_build_script("blockyard-guest-empty-path", "empty_path");
    println!("cargo::rustc-env=BLOCKYARD_EMPTY_PATH={}", library.display());
}
