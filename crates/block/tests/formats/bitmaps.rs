//! Bitmaps of what is written inside of images, changed and kept by us and by QEMU in turns. What is in them QEMU says.

use crate::rig::{Random, Rig, WRITE, check_clean, open_allowed, qemu_img, qemu_io, run, text};
use blockyard_block::{
    AllowedDirectories, Disk, FileOptions, ImageError, OpenedFile, Operation, Preallocation, Qcow2BitmapAction,
    Qcow2Disk, Qcow2Info, explain,
};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

const BLOCK: u64 = 512;
const DISK_BYTES: u64 = (3 << 20) + 512;
const STEPS: usize = 40;

fn to_change(path: &Path) -> OpenedFile {
    let image = OpenedFile::open(path, false).unwrap();
    image.lock(&FileOptions::default()).unwrap();
    image
}

fn change(path: &Path, name: &str, actions: &[Qcow2BitmapAction]) -> Result<(), ImageError> {
    Qcow2Disk::change_bitmap(&to_change(path), name, actions, None)
}

fn add(granularity_bytes: u64) -> Qcow2BitmapAction {
    Qcow2BitmapAction::Add { granularity_bytes: Some(granularity_bytes) }
}

fn merge(source: &str) -> Qcow2BitmapAction {
    Qcow2BitmapAction::Merge { source: source.to_owned() }
}

/// The blocks of 512 bytes whose bits are set, as QEMU reads them: of a copy, as it holds its lock for a moment.
fn set_blocks(path: &Path, name: &str, disk_bytes: u64) -> Vec<bool> {
    // A server that ends takes the name of its socket away, whosever that is by then.
    static SERVERS: AtomicUsize = AtomicUsize::new(0);
    let number = SERVERS.fetch_add(1, Ordering::Relaxed);
    let (copy, socket) = (path.with_extension(format!("copy{number}")), path.with_extension(format!("socket{number}")));
    std::fs::copy(path, &copy).unwrap();
    run("qemu-nbd", &["--fork", "-r", "-f", "qcow2", "-k", text(&socket), "-B", name, text(&copy)]);
    let place =
        format!("driver=nbd,server.type=unix,server.path={},x-dirty-bitmap=qemu:dirty-bitmap:{name}", text(&socket));
    let map = qemu_img(&["map", "--output=json", "--image-opts", &place]);
    let mut set = vec![false; disk_bytes.div_ceil(BLOCK) as usize];
    let runs: serde_json::Value = serde_json::from_str(&map).unwrap();
    for run in runs.as_array().unwrap().iter().filter(|run| run["data"] == false) {
        let (start, length) = (run["start"].as_u64().unwrap(), run["length"].as_u64().unwrap());
        set[(start / BLOCK) as usize..(start + length).div_ceil(BLOCK) as usize].fill(true);
    }
    set
}

#[derive(Clone)]
struct Model {
    name: String,
    granularity: u64,
    is_auto: bool,
    set: Vec<bool>,
}

impl Model {
    fn new(name: String, granularity: u64) -> Self {
        Self { name, granularity, is_auto: true, set: vec![false; DISK_BYTES.div_ceil(BLOCK) as usize] }
    }

    fn mark(&mut self, blocks: &Range<u64>) {
        let per_bit = self.granularity / BLOCK;
        let end = (blocks.end.div_ceil(per_bit) * per_bit).min(self.set.len() as u64);
        self.set[(blocks.start / per_bit * per_bit) as usize..end as usize].fill(true);
    }

    fn merge(&mut self, other: &Self) {
        for block in (0..other.set.len() as u64).filter(|&block| other.set[block as usize]) {
            self.mark(&(block..block + 1));
        }
    }
}

struct Twin {
    directory: tempfile::TempDir,
    models: Vec<Model>,
    random: Random,
    made: usize,
}

impl Twin {
    fn image(&self) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join("image")
    }

    fn new(options: &str, seed: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let this = Self { directory, models: Vec::new(), random: Random::new(seed), made: 0 };
        qemu_img(&["create", "-q", "-f", "qcow2", "-o", options, text(&this.image()), &DISK_BYTES.to_string()]);
        this
    }

    fn by_us(&mut self) -> bool {
        self.random.below(2) == 0
    }

    fn write(&mut self) {
        let (image, by_us) = (self.image(), self.by_us());
        let mut commands = Vec::new();
        let mut rig = by_us.then(|| Rig::new(open_allowed(&image, &FileOptions::default())));
        for _ in 0..1 + self.random.below(4) {
            let start = self.random.below(DISK_BYTES / BLOCK);
            let blocks = start..(start + 1 + self.random.below(200)).min(DISK_BYTES / BLOCK);
            let (offset, length_bytes) = (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
            let kind = self.random.below(3);
            match &mut rig {
                Some(rig) => match kind {
                    0 => rig.write_as(WRITE, offset, &vec![7; length_bytes as usize]).unwrap(),
                    1 => rig.perform(Operation::WriteZeroes { length_bytes, may_unmap: true }, offset, &[]).unwrap(),
                    _ => rig.perform(Operation::Discard { length_bytes }, offset, &[]).unwrap(),
                },
                None => commands
                    .push(format!("{} {offset} {length_bytes}", ["write", "write -z", "discard"][kind as usize])),
            }
            self.models.iter_mut().filter(|model| model.is_auto).for_each(|model| model.mark(&blocks));
        }
        if let Some(mut rig) = rig {
            // What is read is not written.
            rig.read_all();
        } else {
            qemu_io(text(&image), "qcow2", &commands.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    fn step(&mut self) {
        let (image, by_us) = (self.image(), self.by_us());
        let count = self.models.len().max(1) as u64;
        let (which, other) = (self.random.below(count) as usize, self.random.below(count) as usize);
        let qemu = |arguments: &[&str]| drop(qemu_img(&[&["bitmap"], arguments].concat()));
        let picked = self.models.get(which).map(|model| model.name.clone());
        match (self.random.below(8), picked) {
            (0, _) if self.models.len() < 5 => {
                let name = format!("made {}", self.made);
                self.made += 1;
                let granularity = 512 << self.random.below(9);
                match by_us {
                    true => change(&image, &name, &[add(granularity)]).unwrap(),
                    false => qemu(&["--add", "-g", &granularity.to_string(), text(&image), &name]),
                }
                self.models.push(Model::new(name, granularity));
            }
            (1, Some(name)) => {
                match by_us {
                    true => change(&image, &name, &[Qcow2BitmapAction::Remove]).unwrap(),
                    false => qemu(&["--remove", text(&image), &name]),
                }
                self.models.remove(which);
            }
            (2, Some(name)) => {
                match by_us {
                    true => change(&image, &name, &[Qcow2BitmapAction::Clear]).unwrap(),
                    false => qemu(&["--clear", text(&image), &name]),
                }
                self.models[which].set.fill(false);
            }
            (3, Some(name)) => {
                let is_auto = !self.models[which].is_auto;
                let (action, word) = match is_auto {
                    true => (Qcow2BitmapAction::Enable, "--enable"),
                    false => (Qcow2BitmapAction::Disable, "--disable"),
                };
                match by_us {
                    true => change(&image, &name, &[action]).unwrap(),
                    false => qemu(&[word, text(&image), &name]),
                }
                self.models[which].is_auto = is_auto;
            }
            (4, Some(name)) => {
                let source = self.models[other].clone();
                match by_us {
                    true => change(&image, &name, &[merge(&source.name)]).unwrap(),
                    false => qemu(&["--merge", &source.name, text(&image), &name]),
                }
                self.models[which].merge(&source);
            }
            _ => self.write(),
        }
    }

    fn is_whole(&self) {
        check_clean(text(&self.image()));
        let mut listed = Qcow2Info::of_opened(&OpenedFile::open(&self.image(), true).unwrap()).unwrap().bitmaps;
        listed.sort_by(|one, other| one.name.cmp(&other.name));
        let mut models: Vec<_> = self.models.iter().collect();
        models.sort_by(|one, other| one.name.cmp(&other.name));
        let found: Vec<_> = listed.iter().map(|one| (&one.name, one.granularity_bytes, one.is_auto)).collect();
        let wanted: Vec<_> = models.iter().map(|one| (&one.name, one.granularity, one.is_auto)).collect();
        assert_eq!(found, wanted);
        assert!(listed.iter().all(|bitmap| !bitmap.is_in_use && bitmap.can_be_kept));
    }

    fn is_what_qemu_finds(&self) {
        for model in &self.models {
            let found = set_blocks(&self.image(), &model.name, DISK_BYTES);
            let first = (0..found.len()).find(|&block| found[block] != model.set[block]);
            assert_eq!(first, None, "{} of {} bytes each", model.name, model.granularity);
        }
    }
}

#[test]
fn bitmaps_are_qemus_and_ours() {
    for (seed, options) in (1..).zip([
        "cluster_size=64k",
        "cluster_size=512",
        "cluster_size=512,lazy_refcounts=on",
        "cluster_size=16k,extended_l2=on",
        "cluster_size=4k,refcount_bits=1",
    ]) {
        let mut twin = Twin::new(options, seed);
        for _ in 0..STEPS {
            twin.step();
            twin.is_whole();
        }
        twin.is_what_qemu_finds();
    }
}

/// The header, its table of features' names and the name of a backing file are in the same sector as where bitmaps are.
#[test]
fn a_header_has_room_for_bitmaps_beside_all_else() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().canonicalize().unwrap().join("image");
    std::fs::write(directory.path().join("base"), vec![3; 1 << 20]).unwrap();
    for (clusters, name) in
        [("64k", "base".to_owned()), ("64k", format!("{}base", "./".repeat(500))), ("512", "base".into())]
    {
        let options = format!("cluster_size={clusters}");
        let backing = ["-o", &options, "-F", "raw", "-b", &name];
        qemu_img(&[&["create", "-q", "-f", "qcow2"], &backing[..], &[text(&image), "1M"]].concat());
        let shown = Rig::new(open_allowed(&image, &FileOptions::default())).read_all();
        for (bitmap, actions) in
            [("one", &[add(4096)][..]), ("two", &[add(512), merge("one"), Qcow2BitmapAction::Disable])]
        {
            Qcow2Disk::change_bitmap(&to_change(&image), bitmap, actions, None).unwrap();
        }
        check_clean(text(&image));
        let info = Qcow2Info::of_opened(&OpenedFile::open(&image, true).unwrap()).unwrap();
        assert_eq!((info.bitmaps.len(), info.backing_name.as_ref()), (2, Some(&name)));
        assert!(qemu_img(&["info", text(&image)]).contains(&name));
        assert!(Rig::new(open_allowed(&image, &FileOptions::default())).read_all() == shown);
    }
}

#[test]
fn bits_are_merged_from_another_image() {
    let (mut source, mut destination) = (Twin::new("cluster_size=4k", 1), Twin::new("cluster_size=512", 2));
    for (twin, granularity) in [(&mut source, 512), (&mut destination, 64 << 10)] {
        change(&twin.image(), "made 0", &[add(granularity)]).unwrap();
        twin.models.push(Model::new("made 0".into(), granularity));
        twin.write();
    }
    let from = OpenedFile::open(&source.image(), true).unwrap();
    let actions = [merge("made 0")];
    Qcow2Disk::change_bitmap(&to_change(&destination.image()), "made 0", &actions, Some(&from)).unwrap();
    destination.models[0].merge(&source.models[0].clone());
    destination.is_whole();
    destination.is_what_qemu_finds();
}

#[test]
fn what_cannot_be_done_to_a_bitmap_is_said_and_nothing_of_it_is_done() {
    let twin = Twin::new("cluster_size=64k", 1);
    let image = twin.image();
    change(&image, "there", &[add(4096)]).unwrap();
    // A program that was killed.
    let mut killed = Rig::new(open_allowed(&image, &FileOptions::default()));
    killed.write(0, &[1; 512]);
    let copy = image.with_extension("killed");
    std::fs::copy(&image, &copy).unwrap();
    drop(killed);
    let before = std::fs::read(&image).unwrap();
    for (name, actions, wanted) in [
        ("there", &[add(512)][..], "has a bitmap \"there\" already"),
        ("new", &[add(100)], "a granularity of 100 bytes is not possible"),
        ("new", &[add(1 << 32)], "a granularity of 4294967296 bytes is not possible"),
        ("new", &[Qcow2BitmapAction::Remove], "has no bitmap \"new\""),
        ("new", &[add(512), merge("other")], "has no bitmap \"other\""),
        ("there", &[Qcow2BitmapAction::Clear, merge("other")], "has no bitmap \"other\""),
        ("", &[add(512)], "a bitmap's name has 1 to 1023 bytes"),
    ] {
        let said = change(&image, name, actions).unwrap_err().to_string();
        assert!(said.contains(wanted), "{said}");
        assert!(std::fs::read(&image).unwrap().starts_with(&before[..512]), "{wanted}");
        check_clean(text(&image));
    }
    for action in [Qcow2BitmapAction::Clear, Qcow2BitmapAction::Enable, merge("there")] {
        let said = change(&copy, "there", &[action]).unwrap_err().to_string();
        assert!(said.contains("it can only be removed"), "{said}");
    }
    let resize =
        |path: &Path, size| Qcow2Disk::resize(&to_change(path), size, Preallocation::Off, &AllowedDirectories::none());
    assert!(resize(&copy, 4 << 20).unwrap_err().to_string().contains("it can only be removed"));
    change(&copy, "there", &[Qcow2BitmapAction::Remove]).unwrap();
    resize(&copy, 4 << 20).unwrap();
    qemu_img(&["snapshot", "-c", "one", text(&image)]);
    let said = Qcow2Disk::apply_snapshot(&to_change(&image), "one", &AllowedDirectories::none()).unwrap_err();
    assert!(said.to_string().contains("has bitmaps"), "{said}");
    // A header of one sector, full with a name.
    let (directory, name) = ("d".repeat(100), "n".repeat(249));
    let (full, backing) = (image.with_file_name("full"), format!("{directory}/{name}"));
    std::fs::create_dir(image.with_file_name(&directory)).unwrap();
    std::fs::write(image.with_file_name(&directory).join(&name), [1; 512]).unwrap();
    let create = ["create", "-q", "-f", "qcow2", "-o", "cluster_size=512", "-F", "raw", "-b", &backing];
    qemu_img(&[&create[..], &[text(&full), "1M"]].concat());
    let said = explain(&change(&full, "one", &[add(512)]).unwrap_err());
    assert!(said.contains("its first cluster has no room for that"), "{said}");
    check_clean(text(&full));
    let old = Twin::new("compat=0.10", 1);
    assert!(change(&old.image(), "one", &[add(512)]).unwrap_err().to_string().contains("is of version 2"));
}

#[test]
fn bitmaps_have_the_size_of_their_disk() {
    for cluster_size in ["cluster_size=512", "cluster_size=64k"] {
        let twin = Twin::new(cluster_size, 3);
        let image = twin.image();
        for (name, granularity) in [("fine", 512), ("coarse", 65536)] {
            change(&image, name, &[add(granularity)]).unwrap();
        }
        let mut rig = Rig::new(open_allowed(&image, &FileOptions::default()));
        rig.write((1 << 20) - 1024, &[5; 4096]);
        rig.write(3 << 20, &[5; 512]);
        drop(rig);
        let mut set = vec![false; (DISK_BYTES / BLOCK) as usize];
        set[2046..2054].fill(true);
        set[6144] = true;
        // Larger, smaller in the middle of a cluster of bits, and larger again: what is new was not written.
        for size in [40 << 20, 1 << 20, 2 << 20] {
            Qcow2Disk::resize(&to_change(&image), size, Preallocation::Off, &AllowedDirectories::none()).unwrap();
            set.resize((size / BLOCK) as usize, false);
            check_clean(text(&image));
            assert!(set_blocks(&image, "fine", size) == set, "{cluster_size}, {size}");
        }
        let coarse = set_blocks(&image, "coarse", 2 << 20);
        assert!((0..4096).all(|block| coarse[block] == (1920..2048).contains(&block)), "{cluster_size}");
        assert_eq!(open_allowed(&image, &FileOptions::default()).geometry().capacity_bytes, 2 << 20);
    }
}

#[test]
fn a_bitmap_that_nobody_kept_is_in_use_and_others_are_not() {
    let twin = Twin::new("cluster_size=64k", 1);
    let image = twin.image();
    change(&image, "kept", &[add(4096)]).unwrap();
    change(&image, "disabled", &[add(4096), Qcow2BitmapAction::Disable]).unwrap();
    let states = || {
        let info = Qcow2Info::of_opened(&OpenedFile::open(&image, true).unwrap()).unwrap();
        info.bitmaps.into_iter().map(|bitmap| (bitmap.name, bitmap.is_in_use)).collect::<Vec<_>>()
    };
    let of = |kept, disabled| [("kept".to_owned(), kept), ("disabled".to_owned(), disabled)];
    let mut rig = Rig::new(open_allowed(&image, &FileOptions::default()));
    rig.read_all();
    assert_eq!(states(), of(false, false), "nothing was written");
    rig.write(0, &[1; 512]);
    assert_eq!(states(), of(true, false), "before it is closed");
    drop(rig);
    assert_eq!(states(), of(false, false));
}

#[test]
fn copied_bitmaps_have_the_same_bits() {
    let mut twin = Twin::new("cluster_size=64k", 5);
    for (name, granularity) in [("one", 512), ("two", 4096)] {
        change(&twin.image(), name, &[add(granularity)]).unwrap();
        twin.models.push(Model::new(name.into(), granularity));
        twin.write();
    }
    let mut copy = Twin::new("cluster_size=512", 6);
    let source = OpenedFile::open(&twin.image(), true).unwrap();
    Qcow2Disk::copy_bitmaps(&to_change(&copy.image()), &source, false).unwrap();
    copy.models = twin.models;
    copy.is_whole();
    copy.is_what_qemu_finds();
}
