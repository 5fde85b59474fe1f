//! What `blockyard doctor` says of the programs that tests need.

mod support;

use support::{blockyard, run};

#[test]
fn programs_are_found_and_what_is_missing_has_a_remedy() {
    let doctor = run(blockyard().args(["doctor", "--json"])).succeeded().json();
    let mut poor = blockyard();
    poor.args(["doctor", "--json"]).env("PATH", "/nowhere").env("BLOCKYARD_UML", "/no/such/linux.uml");
    let poor = run(&mut poor).succeeded().json();
    for (name, here, remedy) in [
        ("uml", true, "user-mode-linux"),
        ("qemu-system-x86_64", true, "qemu-system-x86"),
        ("qemu-img", true, "qemu-utils"),
        ("qemu-storage-daemon", true, "qemu-system-common"),
    ] {
        let facility = |json: &serde_json::Value| {
            json["facilities"].as_array().unwrap().iter().find(|facility| facility["name"] == name).unwrap().clone()
        };
        assert_eq!(facility(&doctor)["usable"], here, "{doctor}");
        assert_eq!(facility(&poor)["usable"], false, "{poor}");
        assert!(facility(&poor)["remedy"].as_str().unwrap().contains(remedy), "{poor}");
    }
    // What the appliance runs is found without a PATH, where programs for root are.
    for package in ["e2fsprogs", "xfsprogs", "btrfs-progs", "dosfstools", "util-linux"] {
        let facilities = poor["facilities"].as_array().unwrap();
        let found = facilities.iter().find(|facility| facility["name"] == package).unwrap();
        assert_eq!(found["usable"], true, "{found}");
    }
}
