//! Chains of images in several formats: what is behind a qcow2 image, read as QEMU reads it.

use crate::rig::{Rig, check_clean, pattern, qemu_img, qemu_io, read_only, run, text};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, ChainKeys, FileOptions, KeyFile, LuksDisk, LuksOptions, NewLuks,
    OpenedFile, Operation, Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, Qcow2Held, ReplacementFile, explain,
};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// What qemu-img makes of each format.
const FORMATS: [(&str, &str); 9] = [
    ("vmdk", "subformat=monolithicSparse"),
    ("vmdk", "subformat=monolithicFlat"),
    ("vmdk", "subformat=streamOptimized"),
    ("vpc", "subformat=dynamic"),
    ("vpc", "subformat=fixed"),
    ("vhdx", "subformat=dynamic"),
    ("vdi", "static=off"),
    ("qed", "cluster_size=64k"),
    ("parallels", ""),
];

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn allowed(path: &Path) -> AllowedDirectories {
    AllowedDirectories::new(&[path]).unwrap()
}

fn refusal(image: &Path, allowed: &AllowedDirectories) -> String {
    let error = explain(&Qcow2Disk::open(image, &read_only(), allowed).expect_err("this must not open"));
    assert!(!error.contains('\n'), "{error}");
    error
}

/// What the disk at `image` holds, as QEMU has it.
fn by_qemu(image: &Path) -> Vec<u8> {
    let raw = image.with_extension("raw");
    qemu_img(&["convert", "-f", "qcow2", "-O", "raw", text(image), text(&raw)]);
    fs::read(raw).unwrap()
}

/// A base of this format with some data, and an empty image over it that is longer.
fn over(path: &Path, word: &str, options: &str) -> PathBuf {
    let (raw, base, top) = (path.join("raw"), path.join("base"), path.join("top.qcow2"));
    let mut bytes = vec![0; 6 << 20];
    bytes[..1 << 20].copy_from_slice(&pattern(1 << 20, 1));
    bytes[3 << 20..(3 << 20) + 70_000].copy_from_slice(&pattern(70_000, 2));
    fs::write(&raw, bytes).unwrap();
    let mut convert = vec!["convert", "-f", "raw", "-O", word];
    if !options.is_empty() {
        convert.extend(["-o", options]);
    }
    qemu_img(&[&convert[..], &[text(&raw), text(&base)]].concat());
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "base", "-F", word, text(&top), "8M"]);
    top
}

/// Else what somebody else changes of it meanwhile would be read by the header that it had before.
#[test]
fn what_is_behind_an_image_is_locked_before_it_is_read() {
    let (_directory, path) = directory();
    let top = over(&path, "qcow2", "");
    let base = path.join("base");
    let others = OpenedFile::open(&base, false).unwrap();
    others.lock(&FileOptions::default()).unwrap();
    // Whoever reads it now finds no image.
    fs::write(&base, [0; 512]).unwrap();
    let said = refusal(&top, &allowed(&path));
    assert!(said.contains("in use"), "{said}");
    drop(others);
    let said = refusal(&top, &allowed(&path));
    assert!(said.contains("not a qcow2"), "{said}");
}

#[test]
fn whatever_format_is_behind_an_image_shows() {
    for (word, options) in FORMATS {
        let (_directory, path) = directory();
        let top = over(&path, word, options);
        let before = fs::read(path.join("base")).unwrap();
        qemu_io(text(&top), "qcow2", &["write -P 7 100k 3k", "write -z 3M 64k", "write -P 8 7M 5k"]);
        let mut wanted = by_qemu(&top);
        let mut rig = Rig::new(Qcow2Disk::open(&top, &FileOptions::default(), &allowed(&path)).unwrap());
        assert!(rig.read_all() == wanted, "{word} {options}");
        // Parts of clusters, whose rest is copied up.
        for (at, length, seed) in [(512, 1024, 3), (3 * MIB + 65536, 512, 4), (6 * MIB - 512, 1024, 5)] {
            let bytes = pattern(length, seed);
            rig.write(at, &bytes);
            wanted[at as usize..][..length].copy_from_slice(&bytes);
        }
        let zeros = Operation::WriteZeroes { length_bytes: 70_000 / 512 * 512, may_unmap: true };
        rig.perform(zeros, 512 * 1024, &[]).unwrap();
        wanted[512 * 1024..][..70_000 / 512 * 512].fill(0);
        assert!(rig.read_all() == wanted, "{word} {options}");
        drop(rig);
        check_clean(text(&top));
        assert!(by_qemu(&top) == wanted, "{word} {options}, by QEMU");
        assert!(fs::read(path.join("base")).unwrap() == before, "{word} {options}: the base has changed");
        let error = refusal(&top, &AllowedDirectories::none());
        assert!(error.contains("lies in no directory that was allowed"), "{error}");
    }
}

/// Of a difference, what is behind that too.
#[test]
fn what_is_behind_the_backing_file_shows() {
    let (_directory, path) = directory();
    let at = |name: &str| path.join(name);
    qemu_img(&["create", "-q", "-f", "vmdk", text(&at("one.vmdk")), "4M"]);
    qemu_io(text(&at("one.vmdk")), "vmdk", &["write -P 1 0 2M"]);
    qemu_img(&["create", "-q", "-f", "vmdk", "-b", "one.vmdk", "-F", "vmdk", text(&at("two.vmdk"))]);
    qemu_io(text(&at("two.vmdk")), "vmdk", &["write -P 2 1M 2M"]);
    let top = at("top.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", "two.vmdk", "-F", "vmdk", text(&top)]);
    qemu_io(text(&top), "qcow2", &["write -P 3 3M 64k"]);
    let disk = Qcow2Disk::open(&top, &read_only(), &allowed(&path)).unwrap();
    let names: Vec<_> = disk.files().map(|file| file.file_name().unwrap().to_owned()).collect();
    assert_eq!(names, ["top.qcow2", "two.vmdk", "one.vmdk"]);
    let places = [(0, 2, Some(2)), (MIB, 1, Some(1)), (3 * MIB, 0, Some(0))];
    for (offset, depth, file) in places {
        let (mapping, found) = disk.map(offset..4 * MIB).unwrap();
        assert_eq!((mapping.depth, found), (depth, file), "{offset}");
    }
    assert!(Rig::new(disk).read_all() == by_qemu(&top));
}

#[test]
fn no_chain_ends_where_it_began_or_is_too_long_whatever_its_formats() {
    let (_directory, path) = directory();
    let create = |name: &str, format: &str, base: &str, base_format: &str| {
        let image = path.join(name);
        qemu_img(&["create", "-q", "-u", "-f", format, "-b", base, "-F", base_format, text(&image), "1M"]);
        image
    };
    let top = create("top.qcow2", "qcow2", "middle.qed", "qed");
    create("middle.qed", "qed", "top.qcow2", "qcow2");
    let error = refusal(&top, &allowed(&path));
    assert!(error.contains("top.qcow2 depends on itself"), "{error}");
    // 31 images and a raw disk are a chain, one more is none.
    let format = |n| if n < 15 { "qcow2" } else { "qed" };
    let name = |n| format!("{n}.{}", format(n));
    for n in 0..31 {
        create(&name(n), format(n), &name(n + 1), format(n + 1));
    }
    create(&name(31), "qed", "raw.img", "raw");
    fs::write(path.join("raw.img"), vec![9; 1 << 20]).unwrap();
    let error = refusal(&path.join("0.qcow2"), &allowed(&path));
    assert!(error.contains("raw.img is one of more than 32 files"), "{error}");
    let first = Qcow2Disk::open(&path.join("1.qcow2"), &read_only(), &allowed(&path)).unwrap();
    assert!(Rig::new(first).read_all() == vec![9; 1 << 20]);
    // What waits for what waits for another is bounded by the system.
    create("one.qcow2", "qcow2", "two.qed", "qed");
    create("two.qed", "qed", "three.qcow2", "qcow2");
    create("three.qcow2", "qcow2", "four.qed", "qed");
    create("four.qed", "qed", "raw.img", "raw");
    assert!(
        refusal(&path.join("one.qcow2"), &allowed(&path)).contains("four.qed is behind qcow2 images and images of")
    );
    let two = BlockMapDisk::open(&path.join("two.qed"), BlockMapFormat::Qed, &read_only(), &allowed(&path)).unwrap();
    assert!(Rig::new(two).read_all() == vec![9; 1 << 20]);
}

/// A backing file's own references are judged as the image's are.
#[test]
fn a_backing_file_opens_nothing_that_was_not_allowed() {
    let (_directory, path) = directory();
    let (inside, outside) = (path.join("inside"), path.join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), vec![5; 1 << 20]).unwrap();
    let descriptor = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
                      RW 2048 FLAT \"../outside/secret\" 0\nddb.adapterType = \"ide\"\n";
    fs::write(inside.join("base.vmdk"), descriptor).unwrap();
    let top = inside.join("top.qcow2");
    let backing = |format: &str| Some(Qcow2Backing { name: "base.vmdk".into(), format: format.into() });
    let create = |format: &str| {
        Qcow2Disk::create(&top, &Qcow2CreateOptions { backing: backing(format), ..Qcow2CreateOptions::new(MIB) })
            .unwrap();
    };
    create("vmdk");
    let error = refusal(&top, &allowed(&inside));
    assert!(error.contains("secret") && error.contains("lies in no directory that was allowed"), "{error}");
    Qcow2Disk::open(&top, &read_only(), &allowed(&path)).unwrap();
    // What is no image in its format is none, whatever it is called.
    create("vhdx");
    assert!(refusal(&top, &allowed(&path)).contains("is no VHDX image"));
    let unknown = Qcow2CreateOptions { backing: backing("dmg"), ..Qcow2CreateOptions::new(MIB) };
    assert!(Qcow2Disk::create(&top, &unknown).unwrap_err().to_string().contains("cannot be a backing file"));
}

fn key(path: &Path, name: &str) -> KeyFile {
    let path = path.join(name);
    fs::write(&path, name).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    KeyFile::new(path)
}

fn encryption(key: &KeyFile) -> NewLuks {
    let mut options = LuksOptions::default();
    options.set("iter-time", "10").unwrap();
    NewLuks { key: key.clone(), options }
}

#[test]
fn each_image_of_a_chain_is_opened_by_its_own_key() {
    let (_directory, path) = directory();
    let (own, middle, base) = (key(&path, "own"), key(&path, "middle"), key(&path, "base"));
    let volume = path.join("base.luks");
    let file = File::options().read(true).write(true).create_new(true).open(&volume).unwrap();
    LuksDisk::create_in(&file, &volume, 2 * MIB, &encryption(&base)).unwrap();
    let disk = LuksDisk::open_in(file, &volume, Some(&base), &FileOptions::default()).unwrap();
    let bytes = pattern(1 << 20, 9);
    Rig::new(disk).write(MIB, &bytes);
    let image = |name: &str, behind: &str, format: &str, key: &KeyFile| {
        let backing = Some(Qcow2Backing { name: behind.into(), format: format.into() });
        let options = Qcow2CreateOptions::new(2 * MIB);
        let options = Qcow2CreateOptions { backing, encryption: Some(encryption(key)), ..options };
        Qcow2Disk::create(&path.join(name), &options).unwrap();
        path.join(name)
    };
    image("middle.qcow2", "base.luks", "luks", &middle);
    let top = image("top.qcow2", "middle.qcow2", "qcow2", &own);
    let keyed = |own: Option<&KeyFile>, behind: &[(usize, &KeyFile)]| {
        let behind = behind.iter().map(|&(depth, key)| (depth, key.clone())).collect();
        allowed(&path).with_keys(ChainKeys::new(own.cloned(), behind))
    };
    let all = keyed(Some(&own), &[(1, &middle), (2, &base)]);
    let mut rig = Rig::new(Qcow2Disk::open(&top, &FileOptions::default(), &all).unwrap());
    rig.write(512, &bytes[..4096]);
    let held = rig.read_all();
    assert!(held[1 << 20..] == bytes && held[512..4608] == bytes[..4096]);
    drop(rig);
    // Without a key, nothing of it is read, and nothing is replaced meanwhile.
    let opened = OpenedFile::open(&top, true).unwrap();
    let in_use = Qcow2Held::of(&opened, &allowed(&path)).unwrap();
    assert_eq!(in_use.size_bytes(), 2 * MIB);
    for file in [&top, &path.join("middle.qcow2"), &volume] {
        let error = ReplacementFile::create(file).unwrap_err().to_string();
        assert!(error.contains("is in use"), "{error}");
    }
    drop((in_use, opened));
    let secrets = ["own", "middle", "base"].map(|name| format!("secret,id={name},file={}", text(&path.join(name))));
    let options = format!(
        "driver=qcow2,encrypt.key-secret=own,file.filename={},backing.driver=qcow2,backing.encrypt.key-secret=middle,\
         backing.file.filename={},backing.backing.driver=luks,backing.backing.key-secret=base,\
         backing.backing.file.filename={}",
        text(&top),
        text(&path.join("middle.qcow2")),
        text(&volume)
    );
    let objects = secrets.iter().flat_map(|secret| ["--object", secret]);
    let raw = path.join("raw");
    let mut arguments = vec!["convert"];
    arguments.extend(objects);
    arguments.extend(["--image-opts", &options, "-O", "raw", text(&raw)]);
    run("qemu-img", &arguments);
    assert!(fs::read(&raw).unwrap() == held, "QEMU reads something else");
    for (allowed, said) in [
        (keyed(Some(&own), &[]), "middle.qcow2 is encrypted by another passphrase"),
        (keyed(None, &[(1, &middle), (2, &base)]), "top.qcow2 is encrypted: name the file"),
        (keyed(Some(&own), &[(1, &middle)]), "base.luks is encrypted: name the file"),
        (keyed(Some(&own), &[(2, &base)]), "by ,backing-key-file=1:FILE of the image in front"),
        (keyed(Some(&own), &[(1, &base), (2, &middle)]), "is encrypted by another passphrase"),
    ] {
        let error = refusal(&top, &allowed);
        assert!(error.contains(said), "{error}");
    }
}
