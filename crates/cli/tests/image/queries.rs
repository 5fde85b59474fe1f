//! `find` as find(1) has it, and what listings say to programs.

use crate::rig::Rig;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Files that differ in all that `find` asks for, with whole seconds.
fn fill(root: &Path) {
    for directory in ["etc", "empty", "sub/deep", "a dir"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    let owner = fs::metadata(root).unwrap().uid();
    fs::write(root.join("etc/passwd"), format!("nobody-else:x:4242:1::/:\nmaker:x:{owner}:1::/:\n")).unwrap();
    for (name, mode, bytes, minutes) in [
        ("a", 0o644, 0, 1),
        ("ab", 0o4755, 513, 90),
        ("sub/b", 0o2640, 1024, 60 * 24 * 3),
        ("sub/deep/c", 0o666, 5000, 60 * 24 * 400),
        ("a dir/d", 0o600, 1, 60 * 24 * 2 - 60),
        ("old", 0o755, 3, 60 * 24 * 30),
    ] {
        let path = root.join(name);
        fs::write(&path, vec![b'x'; bytes]).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(now - minutes * 60 - 20);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::hard_link(root.join("ab"), root.join("sub/twin")).unwrap();
    symlink("../a", root.join("sub/link")).unwrap();
}

#[test]
fn find_finds_what_find_finds() {
    let rig = Rig::new(16, fill);
    let root = rig.path("root");
    let owner = fs::metadata(&root).unwrap().uid().to_string();
    for arguments in [
        "-perm -4000",
        "-perm /022",
        "-perm 644",
        "-perm u=rw,go=r",
        "-perm /u+s,g+s",
        "-type f -newer OLD",
        "-type f -mtime +2",
        "-type f -mtime 1",
        "-type f -mtime -2",
        "-type f -mmin -100",
        "-type f -mmin +100 -links 1",
        "-empty",
        "! -empty -type f",
        "-links 2 -type f",
        "-links +1 -type f",
        "( -name a* -o -size +1k ) -type f",
        "-type d ! -name s* -mindepth 1",
        "-maxdepth 1 -type f,l",
        "-path */sub/* -a -not -type l",
        "-type f ! -name passwd -printf [%-9P|%5s|%m|%M|%n|%d|%f|%y|%T@|%TY-%Tm-%Td|%t|%%]\\n",
        "-type l -printf %P|%l|%y|%m\\n",
        "-type f -name a -printf before\\n -o -type f -name ab -printf %h/%f\\n",
        &format!("-user {owner} -type f"),
        "-size -1025c -type f",
    ] {
        let words = |old: &str| arguments.split(' ').map(|word| word.replace("OLD", old)).collect::<Vec<_>>();
        let mut theirs = Command::new("find");
        theirs.arg(".").args(words("./old")).current_dir(&root).env("TZ", "UTC").env("LC_ALL", "C");
        let theirs = String::from_utf8(theirs.output().unwrap().stdout).unwrap();
        let words = words("/old");
        let ours = rig.run("find", &words.iter().map(String::as_str).collect::<Vec<_>>());
        let lines = |text: &str| -> BTreeSet<String> {
            let own = |line: &&str| !line.contains("lost+found");
            let from_root = |line: &str| match line.strip_prefix('.') {
                Some("") => "/".to_owned(),
                Some(rest) => rest.to_owned(),
                None => line.to_owned(),
            };
            text.lines().filter(own).map(from_root).collect()
        };
        assert_eq!(lines(&ours), lines(&theirs), "{arguments}");
        assert!(!lines(&ours).is_empty(), "{arguments}");
    }
    // By the names that the image has.
    assert!(rig.run("find", &["-user", "maker", "-name", "old"]).contains("/old"));
    assert_eq!(rig.run("find", &["-user", "nobody-else"]), "");
    assert_eq!(rig.run("find", &["/etc", "-type", "f", "-print0"]), "/etc/passwd\0");
    let long = rig.run("find", &["/sub/link", "-ls"]);
    let fields: Vec<_> = long.split_whitespace().collect();
    assert_eq!(
        (fields[2], fields[4], &fields[10..]),
        ("lrwxrwxrwx", "maker", &["/sub/link", "->", "../a"][..]),
        "{long}"
    );
    assert!(rig.fail("find", &["-newer", "/nothing"]).contains("no such file"));
}

#[test]
fn listings_are_json_for_programs() {
    let rig = Rig::new(16, |root| {
        fill(root);
        fs::write(root.join("odd\u{1b}[2J"), "12345").unwrap();
    });
    let json = |command: &str, arguments: &[&str]| -> Vec<Value> {
        let said = rig.run(command, arguments);
        assert!(!said.contains('\u{1b}'), "{said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    };
    let listed = json("ls", &["--json", "/"]);
    let paths: Vec<_> = listed.iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/ab") && paths.contains(&"/odd\u{1b}[2J") && !paths.contains(&"/sub/b"), "{paths:?}");
    let file = listed.iter().find(|file| file["path"] == "/ab").unwrap();
    assert_eq!((&file["mode"], &file["size"], &file["links"]), (&"4755".into(), &513.into(), &2.into()));
    assert_eq!((&file["type"], &file["user"]), (&"regular file".into(), &"maker".into()));
    let found = json("stat", &["--json", "/sub/link"]);
    assert_eq!((&found[0]["type"], &found[0]["target"]), (&"symbolic link".into(), &"../a".into()));
    let modified = fs::metadata(rig.path("root/old")).unwrap().mtime();
    let found = json("find", &["--json", "/", "-name", "old"]);
    let said = Command::new("date").args(["-d", found[0]["modified"].as_str().unwrap(), "+%s"]).output().unwrap();
    assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), modified.to_string());
    assert_eq!(json("find", &["--json", "-name", "nothing"]), Vec::<Value>::new());
    let used = json("du", &["--json", "/sub"]);
    let blocks: u64 = json("find", &["--json", "/sub"]).iter().map(|file| file["allocated"].as_u64().unwrap()).sum();
    assert_eq!((&used[1]["path"], &used[1]["bytes"]), (&"/sub".into(), &blocks.into()), "{used:?}");
    let space = json("df", &["--json"]);
    let kib: u64 = rig.run("df", &[]).split_whitespace().find_map(|word| word.parse().ok()).unwrap();
    assert_eq!((&space[0]["directory"], &space[0]["type"]), (&"/".into(), &"ext4".into()));
    assert_eq!(space[0]["size"].as_u64().unwrap().div_ceil(1024), kib);
}
