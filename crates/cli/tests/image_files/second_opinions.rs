//! What is written here, other people's readers read: libvhdi, libvmdk and libqcow, whose programs show a disk as a
//! file (FUSE), libluksde, and, by `cargo xtask second-opinions`, dissect.hypervisor. Differences of VHDs and VHDXs,
//! which qemu-img neither makes nor reads, they and we read as the same.

use super::*;
use crate::vhd_image::{self, VhdImage};
use crate::vhdx_image::{self, VhdxImage};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// A program that shows the disk in an image as a file of this name in a directory.
struct Reader {
    program: &'static str,
    package: &'static str,
    file: &'static str,
}

const VHDI: Reader = Reader { program: "vhdimount", package: "libvhdi-utils", file: "vhdi1" };
const VMDK: Reader = Reader { program: "vmdkmount", package: "libvmdk-utils", file: "vmdk1" };
const QCOW: Reader = Reader { program: "qcowmount", package: "libqcow-utils", file: "qcow1" };

/// A disk that is shown.
struct Shown {
    directory: PathBuf,
}

impl Drop for Shown {
    fn drop(&mut self) {
        // Lazily: what another thread starts has our open files for a moment. A test that fails has had its say.
        let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.directory).status();
    }
}

impl Reader {
    /// What it reads of an image.
    #[track_caller]
    fn read(&self, yard: &Yard, image: &str) -> Vec<u8> {
        let directory = yard.path(&format!("{image}-shown"));
        fs::create_dir(&directory).unwrap();
        tool(yard, self.package, &format!("{} {image} {image}-shown", self.program));
        let shown = Shown { directory };
        fs::read(shown.directory.join(self.file)).unwrap()
    }
}

/// The disk of every image, of whole MiB as a VHD of Azure is: with zeros, text and a whole block of nothing.
fn source(yard: &Yard) -> Vec<u8> {
    let path = yard.sparse("disk.img", 7 * MIB, &[(0, MIB + 512), (5 * MIB, 70_000)], 3);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&b"all work and no play ".repeat(20_000), 2 * MIB + 512).unwrap();
    fs::read(path).unwrap()
}

/// What is made of it: name, options, and who reads that.
const MADE: [(&str, &str, Reader); 10] = [
    ("dynamic.vhd", "-O vpc -o force_size=on", VHDI),
    ("fixed.vhd", "-O vpc -o subformat=fixed,force_size=on", VHDI),
    ("dynamic.vhdx", "-O vhdx", VHDI),
    ("fixed.vhdx", "-O vhdx -o subformat=fixed", VHDI),
    ("sparse.vmdk", "-O vmdk", VMDK),
    ("stream.vmdk", "-O vmdk -o subformat=streamOptimized", VMDK),
    ("2.qcow2", "-O qcow2 -o compat=0.10", QCOW),
    ("3.qcow2", "-O qcow2 -o cluster_size=4K", QCOW),
    ("large.qcow2", "-O qcow2 -o cluster_size=2M,refcount_bits=1", QCOW),
    ("zlib.qcow2", "-O qcow2 -c", QCOW),
];

fn make(yard: &Yard, name: &str, options: &str) {
    let words = ["convert", "-q"].into_iter().chain(options.split(' '));
    image(yard, words.chain(["disk.img", name])).succeeded();
}

#[test]
fn what_is_made_here_others_read() {
    let yard = Yard::new();
    let disk = source(&yard);
    for (name, options, reader) in MADE {
        make(&yard, name, options);
        assert!(reader.read(&yard, name) == disk, "{name}: {} reads something else", reader.program);
    }
}

/// Writes the disk of a volume whose passphrase is `secret` to stdout. Debian's luksdemount has no FUSE.
const LUKSDE: &str = r"
import pyluksde, sys
volume = pyluksde.volume()
volume.set_password('secret')
volume.open(sys.argv[1])
sys.stdout.buffer.write(volume.read_buffer(volume.get_size()))
";

/// All but AES with keys of 256 bits by XTS, which libluksde has no room for, nor for volumes of cryptsetup's.
#[test]
fn encrypted_volumes_are_what_libluksde_reads() {
    let yard = Yard::new();
    let disk = source(&yard);
    let key = yard.path("key");
    fs::write(&key, "secret").unwrap();
    fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
    for (name, cipher) in [
        ("a.luks", "cipher-alg=aes-128,hash-alg=sha256"),
        ("b.luks", "cipher-alg=aes-128,hash-alg=sha1"),
        ("c.luks", "cipher-mode=cbc,ivgen-alg=plain64,hash-alg=sha256"),
        ("d.luks", "cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256,hash-alg=sha512"),
    ] {
        make(&yard, name, &format!("-O luks -o iter-time=10,{cipher} --key-file key"));
        let mut command = Command::new("/usr/bin/python3");
        let output = command.args(["-c", LUKSDE]).arg(yard.path(name)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{cipher}: {said}: install python3-libluksde");
        assert!(output.stdout == disk, "{cipher}: libluksde reads something else");
    }
}

const BLOCK: usize = 1 << 20;

/// Of a block's sectors, those that a difference has: eight at a time, as libvhdi takes the bits of a byte as one.
fn is_there(sector: usize) -> bool {
    (sector / 8).is_multiple_of(5) || (64..128).contains(&sector)
}

/// What a disk shows whose difference has all of the first block, and some sectors of the second.
fn over(mut base: Vec<u8>, full: &[u8], part: &[u8]) -> Vec<u8> {
    base[..BLOCK].copy_from_slice(full);
    for at in (0..BLOCK).step_by(512).filter(|at| is_there(at / 512)) {
        base[BLOCK + at..][..512].copy_from_slice(&part[at..][..512]);
    }
    base
}

/// A base and a difference from it in each format; the disks that the differences show.
fn differences(yard: &Yard) -> [(&'static str, Vec<u8>); 2] {
    let blocks = || -> [Vec<u8>; 4] { [1, 2, 3, 4].map(|seed| random_bytes(BLOCK, seed)) };
    let ([one, two, three, _], [.., full]) = (blocks(), blocks());
    let part = random_bytes(BLOCK, 5);
    let base = [&one[..], &two, &three].concat();
    let size_bytes = base.len() as u64;

    let all = vhd_image::ALL;
    let parent_blocks = [&one, &two, &three].into_iter().enumerate().map(|(n, data)| (n, all, data.clone())).collect();
    let parent = VhdImage { id: [7; 16], blocks: parent_blocks, ..VhdImage::new(3, size_bytes, BLOCK as u32) };
    let name: Vec<u8> = r".\base.vhd".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let child = VhdImage {
        parent_id: [7; 16],
        locators: vec![(*b"W2ru", name)],
        parent_name: "base.vhd".into(),
        blocks: vec![(0, all, full.clone()), (1, is_there as vhd_image::Sectors, part.clone())],
        ..VhdImage::new(4, size_bytes, BLOCK as u32)
    };
    fs::write(yard.path("base.vhd"), parent.bytes()).unwrap();
    fs::write(yard.path("difference.vhd"), child.bytes()).unwrap();

    const PARENT: &str = "{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb}";
    let all = vhdx_image::ALL;
    let parent_blocks = [one, two, three].into_iter().enumerate().map(|(n, data)| (n, 6, all, data)).collect();
    let parent = VhdxImage {
        data_write_id: vhdx_image::guid(PARENT),
        blocks: parent_blocks,
        ..VhdxImage::new(size_bytes, BLOCK)
    };
    let entry = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let child = VhdxImage {
        flags: 2,
        locator: vec![
            entry("parent_linkage", PARENT),
            entry("relative_path", r".\base.vhdx"),
            entry("absolute_win32_path", r"C:\disks\base.vhdx"),
        ],
        blocks: vec![(0, 6, all, full.clone()), (1, 7, is_there as vhdx_image::Sectors, part.clone())],
        ..VhdxImage::new(size_bytes, BLOCK)
    };
    fs::write(yard.path("base.vhdx"), parent.bytes()).unwrap();
    fs::write(yard.path("difference.vhdx"), child.bytes()).unwrap();

    let shown = over(base, &full, &part);
    [("difference.vhd", shown.clone()), ("difference.vhdx", shown)]
}

#[test]
fn differences_show_us_what_they_show_others() {
    let yard = Yard::new();
    for (name, shown) in differences(&yard) {
        image(&yard, ["convert", "-q", "--allow-dir", ".", name, "back.img"]).succeeded();
        assert!(fs::read(yard.path("back.img")).unwrap() == shown, "{name} is read as something else here");
        // The parent is the first that it shows.
        let both = Reader { file: "vhdi2", ..VHDI };
        assert!(both.read(&yard, name) == shown, "{name} is read as something else by libvhdi");
    }
}

/// Reads the disk of each image that is named, and writes it beside the image, with `.read` behind its name.
const DISSECT: &str = r"
import shutil, sys
from pathlib import Path
from dissect.hypervisor.disk import qcow2, vdi, vhd, vhdx, vmdk
for name in sys.argv[1:]:
    path = Path(name)
    disk = {
        '.qcow2': lambda: qcow2.QCow2(path).open(),
        '.vdi': lambda: vdi.VDI(path).open(),
        '.vhd': lambda: vhd.VHD(path.open('rb')),
        '.vhdx': lambda: vhdx.VHDX(path),
        '.vmdk': lambda: vmdk.VMDK(path),
    }[path.suffix]()
    with open(name + '.read', 'wb') as file:
        shutil.copyfileobj(disk, file)
";

#[test]
#[ignore = "takes dissect.hypervisor of PyPI: cargo xtask second-opinions"]
fn dissect_reads_what_is_made_here() {
    let python = std::env::var_os("BLOCKYARD_DISSECT").expect("a Python that has dissect.hypervisor is named");
    let yard = Yard::new();
    let disk = source(&yard);
    // It cannot read extended L2 entries, QEMU's either.
    let more = [
        ("dynamic.vdi", "-O vdi"),
        ("fixed.vdi", "-O vdi -o static=on"),
        ("zstd.qcow2", "-O qcow2 -c -o compression_type=zstd"),
    ];
    let made = MADE.map(|(name, options, _)| (name, options));
    let images: Vec<_> = made.into_iter().chain(more).filter(|(name, _)| !name.ends_with(".luks")).collect();
    images.iter().for_each(|(name, options)| make(&yard, name, options));
    let [_, (difference, shown)] = differences(&yard);
    let names = || images.iter().map(|(name, _)| *name).chain([difference]);
    let output = Command::new(python).arg("-c").arg(DISSECT).args(names()).current_dir(yard.path("")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for name in names() {
        let wanted = if name == difference { &shown } else { &disk };
        assert!(fs::read(yard.path(&format!("{name}.read"))).unwrap() == *wanted, "{name} is read as something else");
    }
    println!("{} images were read as what they are", images.len() + 1);
}
