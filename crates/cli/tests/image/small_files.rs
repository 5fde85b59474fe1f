//! Small files of archives are made together: that shows nowhere.

use crate::rig::{Rig, noise, tool};
use crate::root::is_root;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Adds what is in `directory` to an archive, in the order of `names`.
fn append(archive: &Path, directory: &Path, names: &[&str]) {
    let mut arguments = vec!["--numeric-owner", "-C", directory.to_str().unwrap(), "-rf", archive.to_str().unwrap()];
    arguments.extend(["--no-recursion", "--"]);
    arguments.extend(names);
    tool("tar", "tar", arguments);
}

#[test]
fn the_last_of_several_files_with_one_name_counts() {
    let rig = Rig::empty(32);
    let archive = rig.path("a.tar");
    for (version, other) in [("first", "One"), ("second", "oNE"), ("third", "one")] {
        fs::create_dir(rig.path(version)).unwrap();
        fs::write(rig.path(version).join("name"), version).unwrap();
        fs::write(rig.path(version).join(other), version).unwrap();
        append(&archive, &rig.path(version), &["name", other]);
    }
    rig.run("tar-in", &["a.tar", "/"]);
    // Over those that are there already, too.
    rig.run("tar-in", &["a.tar", "/"]);
    assert_eq!(rig.run("cat", &["/name", "/One", "/oNE", "/one"]), "thirdfirstsecondthird");
    rig.check();
}

#[test]
fn files_land_where_a_link_leads_when_they_come() {
    let rig = Rig::empty(32);
    let (archive, tree) = (rig.path("a.tar"), rig.path("tree"));
    for directory in ["old", "new"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    append(&archive, &tree, &["old", "new"]);
    for target in ["old", "new"] {
        symlink(target, tree.join("way")).unwrap();
        append(&archive, &tree, &["way"]);
        fs::remove_file(tree.join("way")).unwrap();
        fs::create_dir(tree.join("way")).unwrap();
        fs::write(tree.join("way").join(target), target).unwrap();
        append(&archive, &tree, &[&format!("way/{target}")]);
        fs::remove_dir_all(tree.join("way")).unwrap();
    }
    rig.run("tar-in", &["a.tar", "/"]);
    assert_eq!(rig.run("ls", &["/old", "/new"]), "/old:\nold\n\n/new:\nnew\n");
    rig.check();
}

#[test]
fn directories_do_not_bequeath_what_an_archive_says_otherwise() {
    if !is_root() {
        return;
    }
    let rig = Rig::empty(32);
    rig.run("mkdir", &["/heirs"]);
    rig.run("chown", &["50:60", "/heirs"]);
    rig.run("chmod", &["2777", "/heirs"]);
    let tree = rig.path("tree");
    fs::create_dir(&tree).unwrap();
    let files = [("roots", 0o644, "0:0"), ("set-id", 0o6755, "0:0"), ("others", 0o4711, "70:80")];
    for (name, mode, owner) in files {
        fs::write(tree.join(name), noise(300)).unwrap();
        tool("chown", "coreutils", [owner, tree.join(name).to_str().unwrap()]);
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    append(&rig.path("a.tar"), &tree, &["roots", "set-id", "others"]);
    for directory in ["/heirs", "/plain"] {
        rig.run("tar-in", &["a.tar", directory]);
        for (name, mode, owner) in files {
            let stat = rig.debugfs(&format!("stat {directory}/{name}"));
            let (user, group) = owner.split_once(':').unwrap();
            let words: Vec<_> = stat.split_whitespace().collect();
            let after = |word: &str| words[words.iter().position(|found| *found == word).unwrap() + 1];
            assert_eq!((after("User:"), after("Group:")), (user, group), "{directory}/{name}");
            assert_eq!(u32::from_str_radix(after("Mode:"), 8), Ok(mode), "{directory}/{name}");
        }
    }
    rig.check();
}

#[test]
fn more_files_than_go_together_and_some_that_are_not_small() {
    let rig = Rig::empty(128);
    let tree = rig.path("tree");
    fs::create_dir_all(tree.join("deep/er")).unwrap();
    for number in 0..150 {
        fs::write(tree.join(format!("deep/{number}")), noise(number * 700)).unwrap();
    }
    for length in [0, 1, 4096, 16 << 10, (16 << 10) + 1, 128 << 10, (128 << 10) + 1, (1 << 20) + 5] {
        fs::write(tree.join(format!("deep/er/{length}")), noise(length)).unwrap();
    }
    tool("tar", "tar", ["-C", tree.to_str().unwrap(), "-cf", rig.path("a.tar").to_str().unwrap(), "deep"]);
    rig.run("tar-in", &["a.tar", "/"]);
    rig.check();
    rig.run("tar-out", &["/", "b.tar"]);
    let archive = rig.path("b.tar");
    tool(
        "tar",
        "tar",
        ["-C", tree.to_str().unwrap(), "--exclude=lost+found", "--compare", "-f", archive.to_str().unwrap()],
    );
    let count = |name: &str| {
        tool("tar", "tar", ["-tf", rig.path(name).to_str().unwrap()])
            .lines()
            .filter(|line| !line.contains("lost"))
            .count()
    };
    // The directory itself is in the second.
    assert_eq!(count("a.tar") + 1, count("b.tar"));
}
