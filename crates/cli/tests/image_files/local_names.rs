//! Backing files that are named by `file:` and `json:`, as libvirt and others do.

use super::*;

#[test]
fn backing_files_that_are_named_as_for_qemu_are_opened_where_they_are_plain_files() {
    let yard = Yard::new();
    let raw = yard.random("disk.img", MIB, 11);
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img base.qcow2");
    let base = yard.path("base.qcow2").canonicalize().unwrap().display().to_string();
    let names = [
        format!("file:{base}"),
        format!(r#"json:{{"driver":"qcow2","file":{{"driver":"file","filename":"{base}"}}}}"#),
        format!(r#"json:{{"driver":"qcow2","file.driver":"file","file.filename":"{base}"}}"#),
        format!(r#"json:{{"file":{{"filename":"{base}"}}}}"#),
    ];
    for name in &names {
        qemu_img(&yard, &format!("create -q -f qcow2 -b {name} -F qcow2 theirs.qcow2"));
        image(&yard, ["create", "-q", "-b", name, "-F", "qcow2", "ours.qcow2"]).succeeded();
        for over in ["theirs.qcow2", "ours.qcow2"] {
            image(&yard, ["convert", "-q", over, "out.img"]).failed(1, &["which no --allow-dir covers"]);
            image(&yard, ["convert", "-q", "--allow-dir", ".", over, "out.img"]).succeeded();
            assert!(same(&yard.path("out.img"), &raw), "{name}");
            let safety = image(&yard, ["info", "--safety", "--json", over]).failed(1, &[]).json();
            assert_eq!(safety["safety"]["dangers"][0]["kind"], "backing-file", "{safety}");
            let chain =
                image(&yard, ["info", "--backing-chain", "--json", "--allow-dir", ".", over]).succeeded().json();
            let theirs = qemu_img(&yard, &format!("info --output=json {over}")).json();
            for key in ["backing-filename", "full-backing-filename", "backing-filename-format"] {
                assert_eq!(chain[key], theirs[key], "{key}");
            }
            assert_eq!(chain["backing-chain"][0]["filename"], base, "{chain}");
        }
    }
    // Another name for the same.
    for name in &names {
        image(&yard, ["rebase", "-q", "-b", name, "-F", "qcow2", "--allow-dir", ".", "ours.qcow2"]).succeeded();
        qemu_img(&yard, "compare -q -f qcow2 -F raw ours.qcow2 disk.img");
    }
    // What only the name says of the format.
    let mut bytes = fs::read(yard.path("ours.qcow2")).unwrap();
    let at = bytes.windows(4).position(|bytes| bytes == [0xe2, 0x79, 0x2a, 0xca]).unwrap();
    bytes[at] = 0;
    fs::write(yard.path("unsaid.qcow2"), &bytes).unwrap();
    let unsaid = ["convert", "-q", "--allow-dir", ".", "unsaid.qcow2", "out.img"];
    image(&yard, unsaid).failed(1, &["does not say in which format"]);
    image(&yard, ["rebase", "-q", "-u", "-b", &names[1], "-F", "qcow2", "ours.qcow2"]).succeeded();
    let mut bytes = fs::read(yard.path("ours.qcow2")).unwrap();
    bytes[at] = 0;
    fs::write(yard.path("unsaid.qcow2"), &bytes).unwrap();
    image(&yard, unsaid).succeeded();
    assert!(same(&yard.path("out.img"), &raw));
}

#[test]
fn other_names_that_are_for_qemu_are_refused_with_a_reason() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 12);
    let base = yard.path("base.img").canonicalize().unwrap().display().to_string();
    for (name, why) in [
        ("file:base.img".to_owned(), "depends on where QEMU is started"),
        (r#"json:{"file":{"filename":"base.img"}}"#.to_owned(), "depends on where QEMU is started"),
        ("nbd://localhost/x".to_owned(), "has a protocol (`nbd:`)"),
        (format!(r#"json:{{"file":{{"driver":"nbd","host":"h","filename":"{base}"}}}}"#), "host"),
        (format!(r#"json:{{"file":{{"driver":"host_device","filename":"{base}"}}}}"#), "host_device"),
        (format!(r#"json:{{"driver":"raw","offset":512,"file":{{"filename":"{base}"}}}}"#), "offset"),
        (format!(r#"json:{{"driver":"qcow2","file":{{"filename":"{base}"}}}}"#), "it is qcow2"),
        ("json:{".to_owned(), "no JSON object"),
    ] {
        image(&yard, ["create", "-q", "-u", "-b", &name, "-F", "raw", "over.qcow2", "1M"]).succeeded();
        image(&yard, ["convert", "--allow-dir", ".", "over.qcow2", "out.img"]).failed(1, &["over.qcow2", why]);
        let made = image(&yard, ["create", "-q", "-b", &name, "-F", "raw", "new.qcow2"]);
        let why = if why == "it is qcow2" { "it is qcow2, and not raw" } else { why };
        made.failed(2, &[why]);
    }
}
