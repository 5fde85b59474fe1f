//! Files of a kernel's modules, which distributions compress: Debian 13 and Fedora by xz, Ubuntu and Arch by zstd.

use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a module at most, decompressed: five times those of the largest that distributions have.
const MODULE_BYTES_MAX: u64 = 64 << 20;
/// Memory that decompressing may take: what xz takes for its largest preset, and half as much again.
const XZ_MEMORY_MAX: u64 = 96 << 20;

#[derive(Clone, Copy, Debug)]
enum Compression {
    Xz,
    Zstd,
}

/// What a module's name has after `.ko` when the file is compressed.
const ENDINGS: [(&str, Compression); 2] = [(".xz", Compression::Xz), (".zst", Compression::Zstd)];

/// The name that a module's file, or its path, has when it is not compressed, which ends with `.ko`; nothing if the
/// name is no module's.
pub fn uncompressed_name(name: &str) -> Option<&str> {
    let name = ENDINGS.iter().find_map(|(ending, _)| name.strip_suffix(ending)).unwrap_or(name);
    name.ends_with(".ko").then_some(name)
}

/// A module as its kernel takes it, decompressed by what the file's name ends with: not every kernel can do so itself.
///
/// # Errors
/// When the file cannot be read, is not compressed as its name says, or is too large for a module. The error names it.
pub fn read_module(path: &Path) -> io::Result<Vec<u8>> {
    named(path, File::open(path).and_then(|file| content(path, file)))
}

/// The same of one below a directory, out of which no link leads: the directory may be anybody's.
///
/// # Errors
/// As there.
pub(crate) fn read_module_below(directory: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let opened = || {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let root = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let file = File::from(openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
    };
    named(&directory.join(path), opened().and_then(|file| content(path, file)))
}

fn named(path: &Path, read: io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    read.map_err(|error| {
        let path = path.display();
        io::Error::new(error.kind(), format!("the kernel's module {path} cannot be read: {error}"))
    })
}

fn content(path: &Path, file: File) -> io::Result<Vec<u8>> {
    let ending = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let compression = ENDINGS.iter().find(|(known, _)| known[1..] == *ending).map(|(_, compression)| *compression);
    match compression {
        None => bounded(file),
        Some(Compression::Xz) => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY_MAX, CONCATENATED)?;
            bounded(XzDecoder::new_stream(file, stream))
        }
        Some(Compression::Zstd) => bounded(zstd::Decoder::new(file)?),
    }
}

fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    reader.take(MODULE_BYTES_MAX + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MODULE_BYTES_MAX {
        return Err(io::Error::other(format!("it has more than {} MiB", MODULE_BYTES_MAX >> 20)));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn a_module_is_told_by_its_name() {
        for name in ["fs/ext4.ko", "fs/ext4.ko.xz", "fs/ext4.ko.zst"] {
            assert_eq!(uncompressed_name(name), Some("fs/ext4.ko"), "{name}");
        }
        for name in ["", "ext4", "ext4.xz", "ext4.ko.gz", "ext4.ko.xz.zst", "modules.dep"] {
            assert_eq!(uncompressed_name(name), None, "{name}");
        }
    }

    /// Compressed as the kernel's own `make modules_install` does it (Linux, scripts/Makefile.modinst).
    #[test]
    fn a_module_is_read_as_its_distribution_compressed_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut expected = fs::read(std::env::current_exe().unwrap()).unwrap();
        expected.truncate(1 << 20);
        let plain = directory.path().join("of-tests.ko");
        fs::write(&plain, &expected).unwrap();
        let xz = Command::new("xz").args(["--check=crc32", "--lzma2=dict=1MiB", "--keep"]).arg(&plain).status();
        assert!(xz.expect("xz comes with the package xz-utils").success());
        let zstd = zstd::encode_all(&expected[..], 1).unwrap();
        fs::write(directory.path().join("of-tests.ko.zst"), zstd).unwrap();
        for name in ["of-tests.ko", "of-tests.ko.xz", "of-tests.ko.zst"] {
            assert!(read_module(&directory.path().join(name)).unwrap() == expected, "{name}");
        }
    }

    #[test]
    fn no_link_of_a_directory_leads_out_of_it() {
        let place = tempfile::tempdir().unwrap();
        let (directory, out) = (place.path().join("modules"), place.path().join("out.ko"));
        fs::create_dir(&directory).unwrap();
        fs::write(&out, "the host's").unwrap();
        fs::write(directory.join("own.ko"), "own").unwrap();
        symlink(&out, directory.join("out.ko")).unwrap();
        symlink("/own.ko", directory.join("in.ko")).unwrap();
        let read = |name: &str| read_module_below(&directory, Path::new(name));
        assert_eq!((read("in.ko").unwrap(), read("own.ko").unwrap()), (b"own".to_vec(), b"own".to_vec()));
        assert!(read("out.ko").unwrap_err().to_string().contains("modules/out.ko cannot be read"));
    }

    #[test]
    fn what_is_not_compressed_as_its_name_says_is_told_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["none.ko.xz", "none.ko.zst", "none.ko"] {
            let path = directory.path().join(name);
            if name != "none.ko" {
                fs::write(&path, "neither").unwrap();
            }
            let error = read_module(&path).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the kernel's module {} cannot be read: ", path.display())), "{error}");
        }
    }

    #[test]
    fn a_module_that_grows_without_end_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let endless = || io::repeat(0).take(MODULE_BYTES_MAX + 1);
        let mut xz = Vec::new();
        liblzma::read::XzEncoder::new(endless(), 0).read_to_end(&mut xz).unwrap();
        for (name, bytes) in [("large.ko.xz", xz), ("large.ko.zst", zstd::encode_all(endless(), 1).unwrap())] {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            let error = read_module(&path).unwrap_err().to_string();
            assert!(error.ends_with("it has more than 64 MiB"), "{error}");
        }
    }
}
