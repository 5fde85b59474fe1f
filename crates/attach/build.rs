//! Builds the library that programs are started with, which the crate embeds.

fn main() {
    let library = blockyard_guest_build::build_posix_from_build_script();
    println!("cargo::rustc-env=BLOCKYARD_POSIX={}", library.display());
}
