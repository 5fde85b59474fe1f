//! Builds the appliance's agent, which the library embeds.

fn main() {
    let agent = blockyard_guest_build::build_agent_from_build_script();
    println!("cargo::rustc-env=BLOCKYARD_AGENT={}", agent.display());
}
