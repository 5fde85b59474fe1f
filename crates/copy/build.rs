//! Builds the copy guest, which the binary embeds.

fn main() {
    let guest = blockyard_guest_build::build_from_build_script("blockyard-guest-copy", "copy");
    println!("cargo::rustc-env=BLOCKYARD_COPY_GUEST={}", guest.display());
}
