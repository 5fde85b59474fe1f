//! Encrypted images, written by us and by QEMU in turns, and read by both; cryptsetup opens what we make.

use crate::rig::{Random, Rig, pattern, qemu_img, run, run_accepting, text};
use blockyard_block::specification::{DiskSpecification, OpenContext};
use blockyard_block::{
    AllowedDirectories, Disk, Engine, FileOptions, KeyFile, LuksDisk, LuksOptions, NewLuks, OpenedFile, Operation,
    Preallocation, Qcow2Backing, Qcow2Check, Qcow2CreateOptions, Qcow2Disk, Qcow2Features, Repair,
};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The end of the line belongs to it.
const PASSPHRASE: &[u8] = b"pass word\n";

struct Directory {
    directory: tempfile::TempDir,
}

impl Directory {
    fn new() -> Self {
        let this = Self { directory: tempfile::tempdir().unwrap() };
        this.key("key", PASSPHRASE);
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn key(&self, name: &str, passphrase: &[u8]) -> KeyFile {
        let path = self.path(name);
        fs::write(&path, passphrase).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        KeyFile::new(path)
    }

    fn secret(&self) -> String {
        format!("secret,id=s,file={}", text(&self.path("key")))
    }

    /// QEMU's words for an image.
    fn opts(&self, format: &str, image: &Path) -> String {
        let key = if format == "qcow2" { "encrypt.key-secret" } else { "key-secret" };
        format!("driver={format},{key}=s,file.filename={}", text(image))
    }

    /// Makes an image, of these options and others of encryption.
    fn create(&self, image: &Path, options: Qcow2CreateOptions, encryption: &[(&str, &str)]) {
        Qcow2Disk::create(image, &Qcow2CreateOptions { encryption: Some(self.encryption(encryption)), ..options })
            .unwrap();
    }

    fn create_luks(&self, image: &Path, size: u64, encryption: &[(&str, &str)]) {
        let file = File::create_new(image).unwrap();
        LuksDisk::create_in(&file, image, size, &self.encryption(encryption)).unwrap();
    }

    fn encryption(&self, values: &[(&str, &str)]) -> NewLuks {
        let mut options = LuksOptions::default();
        values.iter().chain(&[("iter-time", "10")]).for_each(|(name, value)| options.set(name, value).unwrap());
        NewLuks { key: KeyFile::new(self.path("key")), options }
    }

    /// The same by QEMU, which measures how fast it is for seconds, and may be too fast for its clock.
    fn create_by_qemu(&self, format: &str, options: &str, image: &Path, size: u64) {
        let (secret, size) = (self.secret(), size.to_string());
        let key = if format == "qcow2" { "encrypt.key-secret=s" } else { "key-secret=s" };
        let options = format!("{key},{options}");
        let arguments = ["create", "-q", "-f", format, "--object", &secret, "-o", &options, text(image), &size];
        for _ in 0..100 {
            let printed = run_accepting("qemu-img", &arguments, &[0, 1]);
            if printed.is_empty() {
                return;
            }
            assert!(printed.contains("Unable to get accurate CPU usage"), "{printed}");
        }
        panic!("{arguments:?}: QEMU's clock is too coarse");
    }

    fn check_clean(&self, image: &Path) {
        let printed = qemu_img(&["check", "--object", &self.secret(), "--image-opts", &self.opts("qcow2", image)]);
        assert!(printed.contains("No errors were found"), "{printed}");
        let opened = OpenedFile::open(image, true).unwrap();
        let mut check = Qcow2Check::open(&opened, false).unwrap();
        let report = check.run(Repair::None, &mut |line| panic!("{line}")).unwrap();
        assert_eq!((report.corruptions, report.leaks), (0, 0));
    }

    fn io(&self, format: &str, image: &Path, commands: &[String]) {
        let (secret, opts) = (self.secret(), self.opts(format, image));
        let mut arguments = vec!["--object", &secret, "--image-opts", &opts];
        commands.iter().for_each(|command| arguments.extend(["-c", command]));
        let printed = run("qemu-io", &arguments);
        assert!(!printed.contains("failed") && !printed.contains("error"), "{commands:?}: {printed}");
    }

    /// What QEMU reads.
    fn contents(&self, format: &str, image: &Path) -> Vec<u8> {
        let (secret, opts, raw) = (self.secret(), self.opts(format, image), self.path("raw.out"));
        qemu_img(&["convert", "--object", &secret, "--image-opts", &opts, "-O", "raw", text(&raw)]);
        fs::read(raw).unwrap()
    }

    fn allowed(&self) -> AllowedDirectories {
        let allowed = AllowedDirectories::new(&[self.path("")]).unwrap();
        allowed.with_key(Some(KeyFile::new(self.path("key"))))
    }

    fn open(&self, format: &str, image: &Path, options: &FileOptions) -> Rig {
        if format == "qcow2" {
            return Rig::new(Qcow2Disk::open(image, options, &self.allowed()).unwrap());
        }
        let key = KeyFile::new(self.path("key"));
        let file = File::options().read(true).write(true).open(image).unwrap();
        Rig::new(LuksDisk::open_in(file, image, Some(&key), options).unwrap())
    }
}

/// QEMU opens none with keys of 24 bytes, whose material is no whole sectors: it ends with an assertion.
const CIPHERS: [(&str, &str, &str, &str); 8] = [
    ("aes-256", "xts", "plain64", "sha256"),
    ("aes-128", "xts", "plain64", "sha1"),
    ("aes-256", "xts", "plain", "sha512"),
    ("aes-128", "xts", "plain64", "ripemd160"),
    ("aes-128", "cbc", "plain64", "sha224"),
    ("aes-256", "cbc", "plain", "sha384"),
    ("aes-256", "cbc", "essiv", "sha256"),
    ("aes-128", "cbc", "essiv", "sha512"),
];

/// Writes by both, in turns, and compares by both.
fn in_turns(directory: &Directory, format: &str, image: &Path, size: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut contents = directory.contents(format, image);
    assert_eq!(contents.len(), size);
    for turn in 0..2 {
        let mut rig = directory.open(format, image, &FileOptions::default());
        for _ in 0..6 {
            let sectors = size as u64 / 512;
            let start = random.below(sectors);
            let length = (1 + random.below(700)).min(sectors - start) as usize * 512;
            let at = start as usize * 512;
            if random.below(4) == 0 {
                let zeroes = Operation::WriteZeroes { length_bytes: length as u64, may_unmap: random.below(2) == 0 };
                rig.perform(zeroes, at as u64, &[]).unwrap();
                contents[at..at + length].fill(0);
            } else {
                let bytes = pattern(length, random.below(1 << 40));
                rig.write(at as u64, &bytes);
                contents[at..at + length].copy_from_slice(&bytes);
            }
        }
        assert!(rig.read_all()[..size] == contents, "{format} turn {turn}");
        drop(rig);
        assert!(directory.contents(format, image) == contents, "{format} turn {turn}, by QEMU");
        let commands: Vec<_> = (0..6)
            .map(|_| {
                let sectors = size as u64 / 512;
                let start = random.below(sectors);
                let length = (1 + random.below(700)).min(sectors - start) as usize * 512;
                let (at, byte) = (start as usize * 512, random.below(256) as u8);
                contents[at..at + length].fill(byte);
                format!("write -P {byte} {at} {length}")
            })
            .collect();
        directory.io(format, image, &commands);
    }
    let mut rig = directory.open(format, image, &FileOptions { read_only: true, ..FileOptions::default() });
    assert!(rig.read_all()[..size] == contents);
}

#[test]
fn every_cipher_and_hash_is_read_and_written_as_qemu_has_it() {
    for (seed, (cipher, mode, vectors, hash)) in (0..).zip(CIPHERS) {
        let directory = Directory::new();
        let (image, size) = (directory.path("image"), (3 << 20) + 512);
        let values = [("cipher-alg", cipher), ("cipher-mode", mode), ("ivgen-alg", vectors), ("hash-alg", hash)];
        let format = if seed % 2 == 0 { "qcow2" } else { "luks" };
        match format {
            "qcow2" => directory.create(&image, Qcow2CreateOptions::new(size as u64), &values),
            _ => directory.create_luks(&image, size as u64, &values),
        }
        in_turns(&directory, format, &image, size, seed);
        if format == "qcow2" {
            directory.check_clean(&image);
        }
    }
}

/// Of which none are made here.
#[test]
fn other_ciphers_are_read_and_written_as_qemu_has_them() {
    let directory = Directory::new();
    for (seed, options) in (40..).zip([
        "cipher-alg=serpent-256,cipher-mode=xts,ivgen-alg=plain64",
        "cipher-alg=twofish-256,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
        "cipher-alg=serpent-128,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256",
    ]) {
        let (image, size) = (directory.path(&format!("image-{seed}")), (3 << 20) + 512);
        directory.create_by_qemu("luks", &format!("{options},iter-time=10"), &image, size as u64);
        // Its contents are noise.
        directory.io("luks", &image, &[format!("write -z 0 {size}")]);
        in_turns(&directory, "luks", &image, size, seed);
    }
}

#[test]
fn what_qemu_makes_is_read_and_written() {
    let directory = Directory::new();
    let (image, size) = (directory.path("image"), (3 << 20) + 512);
    let options = "encrypt.format=luks,encrypt.iter-time=10,preallocation=metadata,extended_l2=on";
    directory.create_by_qemu("qcow2", options, &image, size as u64);
    in_turns(&directory, "qcow2", &image, size, 20);
    directory.check_clean(&image);
}

#[test]
fn every_cluster_size_is_read_and_written_as_qemu_has_it() {
    let of = |cluster_bytes: u32, has_extended_l2: bool, version: u32, preallocation: Preallocation| {
        let features = Qcow2Features { has_extended_l2, version, ..Qcow2Features::default() };
        Qcow2CreateOptions { cluster_bytes, features, preallocation, ..Qcow2CreateOptions::new((5 << 20) + 1024) }
    };
    for options in [
        of(512, false, 3, Preallocation::Off),
        of(4096, false, 3, Preallocation::Metadata),
        of(2 << 20, false, 3, Preallocation::Off),
        of(16 << 10, true, 3, Preallocation::Falloc),
        of(2 << 20, true, 3, Preallocation::Full),
        of(64 << 10, false, 2, Preallocation::Off),
    ] {
        let directory = Directory::new();
        let image = directory.path("image");
        let size = options.size_bytes as usize;
        directory.create(&image, options, &[]);
        assert!(directory.contents("qcow2", &image).iter().all(|&byte| byte == 0));
        in_turns(&directory, "qcow2", &image, size, 7);
        directory.check_clean(&image);
    }
}

/// cryptsetup's own look at what we make: its passphrase opens it, and what it says of it.
#[test]
fn cryptsetup_opens_what_is_made() {
    let directory = Directory::new();
    let (image, other) = (directory.path("image"), directory.path("other"));
    directory.create_luks(&image, 1 << 20, &[]);
    directory.create_luks(
        &other,
        1 << 20,
        &[("cipher-alg", "aes-192"), ("cipher-mode", "cbc"), ("hash-alg", "sha512")],
    );
    let key = format!("--key-file={}", text(&directory.path("key")));
    for image in [&image, &other] {
        run("cryptsetup", &["open", "--test-passphrase", "--type", "luks1", &key, text(image)]);
    }
    let dump = run("cryptsetup", &["luksDump", text(&image)]);
    for line in
        ["Cipher mode:   \txts-plain64", "Payload offset:\t4096", "MK bits:       \t512", "Key Slot 7: DISABLED"]
    {
        assert!(dump.contains(line), "{dump}");
    }
    let theirs = directory.path("theirs");
    fs::write(&theirs, vec![0; 4 << 20]).unwrap();
    let format = ["luksFormat", "-q", "--type", "luks1", "--pbkdf-force-iterations", "1000", "--key-file"];
    run("cryptsetup", &[&format[..], &[text(&directory.path("key")), text(&theirs)]].concat());
    in_turns(&directory, "luks", &theirs, 2 << 20, 9);
}

#[test]
fn every_engine_and_direct_io_carry_ciphertext() {
    let directory = Directory::new();
    for format in ["qcow2", "luks"] {
        let image = directory.path(format);
        match format {
            "qcow2" => directory.create(&image, Qcow2CreateOptions::new(4 << 20), &[]),
            _ => directory.create_luks(&image, 4 << 20, &[]),
        }
        let (secret, bytes) = (b"this is in the clear".repeat(1000), pattern(3 << 20, 5));
        for (engine, direct) in
            [(Engine::Sync, false), (Engine::Threads, false), (Engine::Uring, false), (Engine::Auto, true)]
        {
            let options = FileOptions { engine, direct, ..FileOptions::default() };
            let mut rig = directory.open(format, &image, &options);
            let block = rig.disk.geometry().logical_block_bytes as usize;
            let secret = &secret[..secret.len() / block.max(512) * block.max(512)];
            for _ in 0..2 {
                rig.write(512 << 10, &bytes[..1 << 20]);
                rig.write(1 << 20, secret);
            }
            assert!(rig.read(1 << 20, secret.len()) == secret);
            rig.perform(Operation::Flush, 0, &[]).unwrap();
            drop(rig);
            let read = directory.contents(format, &image);
            assert!(read[512 << 10..1 << 20] == bytes[..512 << 10] && read[1 << 20..][..secret.len()] == *secret);
        }
        let file = fs::read(&image).unwrap();
        assert!(!file.windows(20).any(|bytes| bytes == b"this is in the clear"));
    }
}

#[test]
fn a_chain_is_opened_by_one_key() {
    let directory = Directory::new();
    let (base, middle, top) = (directory.path("base"), directory.path("middle"), directory.path("top"));
    let of = |name: &str| {
        let backing = Some(Qcow2Backing { name: name.to_owned(), format: "qcow2".to_owned() });
        Qcow2CreateOptions { backing, ..Qcow2CreateOptions::new(2 << 20) }
    };
    directory.create(&base, Qcow2CreateOptions::new(2 << 20), &[("cipher-alg", "aes-128")]);
    directory.io("qcow2", &base, &["write -P 1 0 2M".to_owned()]);
    Qcow2Disk::create(&middle, &of("base")).unwrap();
    directory.create(&top, of("middle"), &[]);
    for image in [&middle, &top] {
        let mut rig = directory.open("qcow2", image, &FileOptions::default());
        let mut expected = rig.read_all();
        assert!(image == &top || expected.iter().all(|&byte| byte == 1));
        rig.write(70_144, &[7; 512]);
        expected[70_144..][..512].fill(7);
        assert!(rig.read_all() == expected);
        drop(rig);
        assert!(directory.open("qcow2", image, &FileOptions::default()).read_all() == expected);
    }
    let without = AllowedDirectories::new(&[directory.path("")]).unwrap();
    let error = Qcow2Disk::open(&middle, &FileOptions::default(), &without).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{} is encrypted", base.display())) && error.contains(",backing-key-file=1:FILE"),
        "{error}"
    );
}

#[test]
fn compressed_clusters_and_snapshots_of_encrypted_images_are_read() {
    let directory = Directory::new();
    let image = directory.path("image");
    directory.create(&image, Qcow2CreateOptions::new(2 << 20), &[]);
    directory.io("qcow2", &image, &["write -P 1 0 1M".to_owned()]);
    let changed = OpenedFile::open(&image, false).unwrap();
    changed.lock(&FileOptions::default()).unwrap();
    Qcow2Disk::make_snapshot(&changed, "before", &AllowedDirectories::none()).unwrap();
    drop(changed);
    directory.open("qcow2", &image, &FileOptions::default()).write(65_536 - 512, &[2; 1024]);
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let file = File::open(&image).unwrap();
    let before = Qcow2Disk::open_snapshot_in(file, &image, "before", &options, &directory.allowed()).unwrap();
    assert!(Rig::new(before).read(0, 1 << 20).iter().all(|&byte| byte == 1));
    let changed = OpenedFile::open(&image, false).unwrap();
    changed.lock(&FileOptions::default()).unwrap();
    Qcow2Disk::apply_snapshot(&changed, "before", &AllowedDirectories::none()).unwrap();
    drop(changed);
    directory.check_clean(&image);
    let contents = directory.contents("qcow2", &image);
    assert!(contents[..1 << 20].iter().all(|&byte| byte == 1) && contents[1 << 20..].iter().all(|&byte| byte == 0));
}

#[test]
fn an_image_is_resized_without_its_key_unless_data_change() {
    let directory = Directory::new();
    let image = directory.path("image");
    directory.create(&image, Qcow2CreateOptions::new(1 << 20), &[]);
    directory.io("qcow2", &image, &["write -P 1 0 1M".to_owned()]);
    let opened = OpenedFile::open(&image, false).unwrap();
    opened.lock(&FileOptions::default()).unwrap();
    let resize = |size, preallocation, allowed: &AllowedDirectories| {
        Qcow2Disk::resize(&opened, size, preallocation, allowed).map_err(|error| blockyard_block::explain(&error))
    };
    resize(2 << 20, Preallocation::Off, &AllowedDirectories::none()).unwrap();
    resize((1 << 20) - 512, Preallocation::Off, &AllowedDirectories::none()).unwrap();
    // What is behind the end of a cluster with data.
    let error = resize(3 << 20, Preallocation::Off, &AllowedDirectories::none()).unwrap_err();
    assert!(error.contains("Required key not available"), "{error}");
    resize(3 << 20, Preallocation::Off, &directory.allowed()).unwrap();
    resize(4 << 20, Preallocation::Metadata, &directory.allowed()).unwrap();
    drop(opened);
    directory.check_clean(&image);
    let contents = directory.contents("qcow2", &image);
    let (data, zeros) = contents.split_at((1 << 20) - 512);
    assert!(data.iter().all(|&byte| byte == 1) && zeros.iter().all(|&byte| byte == 0));
    assert_eq!(zeros.len(), (3 << 20) + 512);
}

#[test]
fn the_oldest_encryption_is_only_read() {
    let directory = Directory::new();
    let (image, plain) = (directory.path("image"), directory.path("plain"));
    directory.key("key", b"sixteen letters or more");
    let contents = pattern(1 << 20, 3);
    fs::write(&plain, &contents).unwrap();
    let options = "encrypt.format=aes,encrypt.key-secret=s";
    let (secret, target) = (directory.secret(), directory.opts("qcow2", &image));
    qemu_img(&["create", "-q", "-f", "qcow2", "--object", &secret, "-o", options, text(&image), "1M"]);
    let arguments = ["convert", "-n", "--object", &secret, "-f", "raw", "--target-image-opts", text(&plain), &target];
    qemu_img(&arguments);
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    assert!(directory.open("qcow2", &image, &options).read_all() == contents);
    let error = Qcow2Disk::open(&image, &FileOptions::default(), &directory.allowed()).unwrap_err().to_string();
    assert!(error.contains("only read: add ,ro"), "{error}");
}

#[test]
fn wrong_keys_and_missing_ones_are_said() {
    let directory = Directory::new();
    let (image, plain) = (directory.path("image"), directory.path("plain"));
    directory.create(&image, Qcow2CreateOptions::new(1 << 20), &[]);
    qemu_img(&["create", "-q", "-f", "qcow2", text(&plain), "1M"]);
    let refusal = |image: &Path, key: Option<KeyFile>| {
        let allowed = AllowedDirectories::none().with_key(key);
        Qcow2Disk::open(image, &FileOptions::default(), &allowed).unwrap_err().to_string()
    };
    assert!(refusal(&image, None).contains("is encrypted: name the file that has its passphrase"));
    let wrong = directory.key("wrong", b"pass word");
    assert!(refusal(&image, Some(wrong.clone())).contains("(all that it has, 1, were tried)"));
    let text = format!("{},format=qcow2,key-file={}", text(&plain), text(wrong.path()));
    let context = OpenContext { read_only: true, ..OpenContext::default() };
    let error = text.parse::<DiskSpecification>().unwrap().open(&context).err().unwrap();
    assert!(blockyard_block::explain(&error).contains("neither it nor an image behind it is encrypted"));
    let missing = KeyFile::new(directory.path("missing"));
    assert!(refusal(&image, Some(missing)).contains("cannot read the key file"));
}

/// QEMU refuses it, too: what is written to the disk would be over the keys.
#[test]
fn a_header_whose_key_slots_are_in_its_data_is_refused() {
    let directory = Directory::new();
    let image = directory.path("image");
    directory.create(&image, Qcow2CreateOptions::new(1 << 20), &[]);
    let mut bytes = fs::read(&image).unwrap();
    let at = bytes.windows(6).position(|bytes| bytes == b"LUKS\xba\xbe").unwrap();
    bytes[at + 104..at + 108].copy_from_slice(&8_u32.to_be_bytes());
    fs::write(&image, bytes).unwrap();
    for read_only in [true, false] {
        let options = FileOptions { read_only, ..FileOptions::default() };
        let allowed = AllowedDirectories::none().with_key(Some(KeyFile::new(directory.path("key"))));
        let error = Qcow2Disk::open(&image, &options, &allowed).unwrap_err().to_string();
        assert!(error.contains("its key slots reach into its data"), "{error}");
    }
}

/// Half a sector is decrypted by nobody.
#[test]
fn a_volume_that_ends_within_a_sector_says_so() {
    let directory = Directory::new();
    let image = directory.path("image");
    directory.create_luks(&image, 1 << 20, &[]);
    let length = image.metadata().unwrap().len();
    let open = || {
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        LuksDisk::open_in(File::open(&image).unwrap(), &image, Some(&KeyFile::new(directory.path("key"))), &options)
    };
    assert!(open().unwrap().notes().is_empty());
    File::options().write(true).open(&image).unwrap().set_len(length - 100).unwrap();
    let disk = open().unwrap();
    assert_eq!(disk.geometry().capacity_bytes, (1 << 20) - 512);
    assert!(disk.notes()[0].contains("it ends within a sector"), "{:?}", disk.notes());
}

#[test]
fn a_header_that_would_compute_for_an_hour_is_refused_at_once() {
    let directory = Directory::new();
    let image = directory.path("image");
    directory.create_luks(&image, 1 << 20, &[]);
    let good = fs::read(&image).unwrap();
    let refusal = |at: usize, value: u32| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        fs::write(&image, bytes).unwrap();
        let key = KeyFile::new(directory.path("key"));
        let file = File::open(&image).unwrap();
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        LuksDisk::open_in(file, &image, Some(&key), &options).err().unwrap().to_string()
    };
    for (at, value, wanted) in [
        (208 + 4, u32::MAX, "rounds of sha256 to open"),
        (164, u32::MAX, "rounds of sha256 to open"),
        (208 + 4, 0, "in no iteration"),
        (208 + 44, 1 << 30, "1073741824 stripes"),
        (208 + 44, 3999, "3999 stripes"),
        (208 + 40, u32::MAX, "its key slots reach into its data"),
        (108, 63, "no keys of 63 bytes"),
        (104, u32::MAX, "cut off"),
        (104, 0, "cut off"),
        (208, 0xdead, "all of its key slots are empty"),
        (6, 0x0002_6165, "is no LUKS 1 volume"),
    ] {
        let error = refusal(at, value);
        assert!(error.contains(wanted), "{at} {value}: {error}");
    }
}
