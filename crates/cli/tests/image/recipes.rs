//! The recipes of docs/recipes.md, executed as they stand there.

use crate::rig::{Rig, tool};
use std::fs;
use std::path::Path;
use std::process::Command;

/// What stands in blocks that begin with `sh`, in order.
fn blocks(page: &str) -> Vec<String> {
    let parts = page.split("```sh\n").skip(1);
    parts.map(|part| part.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn recipes_work_as_they_are_written() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md")).unwrap();
    let rig = Rig::new(64, |root| {
        for directory in ["bin", "etc", "proc", "dev"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).expect("it is in Debian's busybox-static");
        for name in ["sh", "chmod"] {
            std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
        }
        fs::write(root.join("etc/os-release"), "ID=debian\nVERSION_ID=12\nPRETTY_NAME=\"A small system\"\n").unwrap();
        fs::write(root.join("etc/machine-id"), "0123\n").unwrap();
    });
    let root = rig.path("root");
    tool(
        "tar",
        "tar",
        ["-C".as_ref(), root.as_os_str(), "-cf".as_ref(), rig.path("root.tar").as_os_str(), ".".as_ref()],
    );
    let work = rig.path("work");
    fs::create_dir(&work).unwrap();
    fs::rename(&rig.image, work.join("vm.img")).unwrap();
    fs::rename(rig.path("root.tar"), work.join("root.tar")).unwrap();
    let blockyard = Path::new(env!("CARGO_BIN_EXE_blockyard")).parent().unwrap();
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", blockyard.display());
    let blocks = blocks(&page);
    assert_eq!(blocks.len(), 5, "recipes that are executed");
    let mut said = String::new();
    for block in &blocks {
        let output = Command::new("sh").args(["-euc", block]).current_dir(&work).env("PATH", &path).output().unwrap();
        said += &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    for part in ["A small system", "No errors were found", "web\n", "Images are identical.", "/etc/role"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(fs::metadata(work.join("small.qcow2")).unwrap().len() < 8 << 20);
    let names = tool("tar", "tar", ["-tf".as_ref(), work.join("rescued.tar").as_os_str()]);
    let has = |name: &str| names.lines().any(|line| line.trim_start_matches("./").trim_end_matches('/') == name);
    assert!(has("etc/role") && !has("etc/machine-id") && !has("lost+found"), "{names}");
}
