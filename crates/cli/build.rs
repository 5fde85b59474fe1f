//! Builds the copy guest and the appliance's agent, which the binary embeds.

fn main() {
    let guest = blockyard_guest_build::build_from_build_script("blockyard-guest-copy", "copy");
    println!("cargo::rustc-env=BLOCKYARD_COPY_GUEST={}", guest.display());
    let agent = blockyard_guest_build::build_agent_from_build_script();
    println!("cargo::rustc-env=BLOCKYARD_AGENT={}", agent.display());
}
