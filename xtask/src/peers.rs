//! `cargo xtask peers`: what we write into images guestfish reads, and the other way round.
//!
//! guestfish is too large for `setup`: about 100 MB of packages, and half a minute a boot where there is no KVM. So
//! this is a task of its own.

use crate::build::Workspace;
use crate::{cargo, lab, output, packages, run};
use anyhow::{Context, bail};
use blockyard_linux_guest::DebianKernel;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Beyond what the tests need: guestfish, and depmod for the kernel that its machine boots.
const PACKAGES: [(&str, &str); 2] = [("libguestfs-tools", "guestfish"), ("kmod", "depmod")];
/// Images that both make: file system, format. All have owners, permissions and links.
const IMAGES: [(&str, &str); 4] = [("ext2", "raw"), ("ext3", "qcow2"), ("ext4", "raw"), ("btrfs", "qcow2")];
/// Bytes of each: btrfs takes no less.
const IMAGE_BYTES: u64 = 256 << 20;

/// Compares both ways.
///
/// # Errors
/// When something differs, or guestfish cannot be had.
pub(crate) fn peers() -> anyhow::Result<()> {
    packages::install(&PACKAGES)?;
    let kernel = lab::fetch_kernel()?;
    let workspace = Workspace::load()?;
    run(cargo().args(["build", "--locked", "--quiet", "--package", "blockyard", "--bin", "blockyard"]))?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let peers = Peers {
        blockyard: workspace.target_directory.join("x86_64-unknown-linux-gnu/debug/blockyard"),
        kernel_directory: workspace.target_directory.join("lab/kernel"),
        kernel,
        directory: directory.path().to_owned(),
    };
    peers.make_tree()?;
    peers.guestfish_reads_ours()?;
    peers.we_read_guestfishs()
}

struct Peers {
    blockyard: PathBuf,
    kernel_directory: PathBuf,
    kernel: DebianKernel,
    directory: PathBuf,
}

impl Peers {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// What goes in, as files and as an archive.
    fn make_tree(&self) -> anyhow::Result<()> {
        let tree = self.path("tree");
        fs::create_dir_all(tree.join("directory/below it"))?;
        for (name, bytes, mode) in [
            ("empty", 0, 0o644),
            ("one", 1, 0o600),
            ("page", 4096, 0o4755),
            ("directory/below it/größer", 3 << 20, 0o640),
        ] {
            // Nothing that repeats where a block does.
            let data: Vec<u8> = (0..bytes as u32).map(|at| (at % 251) as u8 ^ (at >> 12) as u8).collect();
            fs::write(tree.join(name), data)?;
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode))?;
        }
        for number in 0..300 {
            fs::write(tree.join(format!("directory/{number}")), format!("number {number}\n"))?;
        }
        symlink("directory/below it", tree.join("link"))?;
        fs::hard_link(tree.join("one"), tree.join("another name"))?;
        run(Command::new("tar").arg("-C").arg(&tree).arg("-cf").arg(self.path("tree.tar")).arg("."))
    }

    fn guestfish_reads_ours(&self) -> anyhow::Result<()> {
        let (mut disks, mut reads) = (String::new(), String::new());
        for (letter, (file_system, format)) in ('a'..).zip(IMAGES) {
            let image = self.path(&format!("ours-{file_system}.{format}"));
            let part = format!("rest,fs={file_system}");
            run(self
                .image(&["create", "--quiet", "--table", "gpt", "--part", &part, "--format", format])
                .arg(&image)
                .arg(IMAGE_BYTES.to_string()))?;
            run(self.image(&["tar-in"]).arg(&image).arg(self.path("tree.tar")).arg("/"))?;
            writeln!(disks, "add {} readonly:true format:{format}", image.display())?;
            let archive = self.path(&format!("ours-{file_system}.tar"));
            writeln!(reads, "mount-ro /dev/sd{letter}1 /\ntar-out / {}\numount /", archive.display())?;
        }
        self.guestfish(&format!("{disks}run\n{reads}"))?;
        IMAGES.iter().try_for_each(|(file_system, format)| {
            self.compare(&self.path(&format!("ours-{file_system}.tar")))
                .with_context(|| format!("guestfish reads our {file_system} in {format} otherwise"))?;
            eprintln!("peers: guestfish reads our {file_system} in {format}");
            Ok(())
        })
    }

    fn we_read_guestfishs(&self) -> anyhow::Result<()> {
        let (mut disks, mut writes) = (String::new(), String::new());
        for (letter, (file_system, format)) in ('a'..).zip(IMAGES) {
            let image = self.path(&format!("theirs-{file_system}.{format}"));
            let (image, archive) = (image.display(), self.path("tree.tar"));
            writeln!(disks, "disk-create {image} {format} {IMAGE_BYTES}\nadd {image} format:{format}")?;
            writeln!(writes, "part-disk /dev/sd{letter} mbr\nmkfs {file_system} /dev/sd{letter}1")?;
            writeln!(writes, "mount /dev/sd{letter}1 /\ntar-in {} /\numount /", archive.display())?;
        }
        self.guestfish(&format!("{disks}run\n{writes}"))?;
        for (file_system, format) in IMAGES {
            let image = self.path(&format!("theirs-{file_system}.{format}"));
            let archive = self.path(&format!("theirs-{file_system}.tar"));
            run(self.image(&["tar-out"]).arg(&image).arg("/").arg(&archive))?;
            self.compare(&archive)
                .with_context(|| format!("we read guestfish's {file_system} in {format} otherwise"))?;
            eprintln!("peers: we read guestfish's {file_system} in {format}");
        }
        Ok(())
    }

    fn image(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.blockyard);
        command.arg("image").args(words);
        command
    }

    /// Runs a script.
    fn guestfish(&self, script: &str) -> anyhow::Result<()> {
        let modules = self.kernel_directory.join("lib/modules").join(&self.kernel.version);
        run(Command::new("depmod").arg("-b").arg(&self.kernel_directory).arg(&self.kernel.version))?;
        // supermin looks when it was changed, whichever kernel it takes.
        fs::create_dir_all("/lib/modules").context("cannot make /lib/modules")?;
        let mut command = Command::new("guestfish");
        command
            .envs([("LIBGUESTFS_BACKEND", "direct"), ("LIBGUESTFS_BACKEND_SETTINGS", "force_tcg")])
            .env("LIBGUESTFS_CACHEDIR", &self.directory)
            .env("SUPERMIN_KERNEL", &self.kernel.image)
            .env("SUPERMIN_KERNEL_VERSION", &self.kernel.version)
            .env("SUPERMIN_MODULES", modules)
            .stdin(Stdio::piped());
        let mut guestfish = command.spawn().context("cannot run guestfish")?;
        // If it does not read on, it has failed, and says why.
        let _ = guestfish.stdin.take().map(|mut stdin| stdin.write_all(script.as_bytes()));
        let status = guestfish.wait().context("cannot wait for guestfish")?;
        if !status.success() {
            bail!("guestfish failed: {status}");
        }
        Ok(())
    }

    /// Whether an archive has what went in: no less, no more, nothing otherwise.
    fn compare(&self, archive: &Path) -> anyhow::Result<()> {
        let (went_in, came_out) = (names(&self.path("tree.tar"))?, names(archive)?);
        if let Some(name) = went_in.symmetric_difference(&came_out).next() {
            bail!("{name} is on one side only");
        }
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(self.path("tree")).args(["--compare", "--exclude=lost+found", "--file"]).arg(archive);
        run(&mut tar)
    }
}

fn names(archive: &Path) -> anyhow::Result<BTreeSet<String>> {
    let list = output(Command::new("tar").arg("-tf").arg(archive))?;
    let name = |line: &str| line.trim_start_matches("./").trim_end_matches('/').to_owned();
    Ok(list.lines().map(name).filter(|name| !["", ".", "lost+found"].contains(&name.as_str())).collect())
}
