//! Trees go through an archive as they are, and no archive makes anything outside of where it is unpacked.

use blockyard_archive::{Source, UnpackOptions, pack, set_user_attribute, unpack};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tar::{Builder, EntryType, Header};

fn options() -> UnpackOptions {
    UnpackOptions { root: (OsString::from("tree"), PathBuf::from("tree")), bytes_max: 1 << 20, entries_max: 10_000 }
}

/// Unpacks into `directory`; what was reported.
fn unpacked(archive: &[u8], directory: &Path, options: &UnpackOptions) -> (io::Result<u64>, Vec<String>) {
    let mut reported = Vec::new();
    let into = File::open(directory).unwrap();
    let result = unpack(archive, into.as_fd(), options, &mut |path, what, error| {
        reported.push(format!("{}: {what}: {error}", path.display()));
    });
    (result, reported)
}

/// An archive of entries: type, name, link's target, content.
fn archive(entries: &[(EntryType, &str, &str, &[u8])]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (kind, name, target, content) in entries {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_000_000);
        // As it is: the crate's own setters refuse what these tests are about.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_cksum();
        builder.append(&header, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("sub/empty")).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::hard_link(tree.join("file"), tree.join("sub/twin")).unwrap();
    symlink("../file", tree.join("sub/link")).unwrap();
    let mut sparse = File::create(tree.join("sparse")).unwrap();
    sparse.seek(io::SeekFrom::Start(512 << 10)).unwrap();
    sparse.write_all(b"end").unwrap();
    let sources = [Source { path: tree.clone(), name: "tree".into() }];
    let packed = pack(&sources, Vec::new(), &mut |path, what, error| panic!("{path:?} {what} {error}")).unwrap();

    let out = tempfile::tempdir().unwrap();
    let (result, reported) = unpacked(&packed, out.path(), &options());
    assert!(reported.is_empty(), "{reported:?}");
    assert!((7 + 3..7 + 4096 + 3).contains(&result.unwrap()), "holes are no data");
    let new = out.path().join("tree");
    assert_eq!(fs::read(new.join("file")).unwrap(), b"content");
    assert_eq!(fs::metadata(new.join("file")).unwrap().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(new.join("file")).unwrap().ino(), fs::metadata(new.join("sub/twin")).unwrap().ino());
    assert_eq!(fs::read_link(new.join("sub/link")).unwrap(), Path::new("../file"));
    assert!(new.join("sub/empty").is_dir());
    assert_eq!(fs::read(new.join("sparse")).unwrap(), fs::read(tree.join("sparse")).unwrap());
    assert!(fs::metadata(new.join("sparse")).unwrap().blocks() * 512 < 64 << 10, "holes stay holes");
    let times = [&tree, &new].map(|path| fs::metadata(path.join("sub")).unwrap().mtime());
    assert_eq!(times[0], times[1]);
}

/// What Blockyard says of files on the host, such as that an image is half-changed, no archive says.
#[test]
fn attributes_come_out_but_for_those_that_blockyard_sets_itself() {
    let attribute = |file: &File, name: &str| {
        let mut value = [0; 100];
        rustix::fs::fgetxattr(file, name, &mut value[..]).map(|length| value[..length].to_vec())
    };
    let own = ["user.blockyard.change", "user.blockyard.journal", "user.blockyard.later"];
    let out = tempfile::tempdir().unwrap();
    let file = File::create(out.path().join("single")).unwrap();
    set_user_attribute(&file, "user.color".as_ref(), b"blue").unwrap();
    if attribute(&file, "user.color").is_err() {
        eprintln!("no attributes here");
        return;
    }
    own.iter().for_each(|name| set_user_attribute(&file, name.as_ref(), &[1; 24]).unwrap());
    let mut builder = Builder::new(Vec::new());
    for (kind, name) in [(EntryType::Directory, "tree"), (EntryType::Regular, "tree/file")] {
        let marks = own.map(|name| (format!("SCHILY.xattr.{name}"), &[1; 24][..]));
        let color = [("SCHILY.xattr.user.color".to_owned(), &b"blue"[..])];
        let records: Vec<_> = color.into_iter().chain(marks).collect();
        builder.append_pax_extensions(records.iter().map(|(name, value)| (&**name, *value))).unwrap();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_size(0);
        header.set_path(name).unwrap();
        header.set_cksum();
        builder.append(&header, io::empty()).unwrap();
    }
    let (result, reported) = unpacked(&builder.into_inner().unwrap(), out.path(), &options());
    result.unwrap();
    assert!(reported.is_empty(), "{reported:?}");
    for name in ["single", "tree", "tree/file"] {
        let file = File::open(out.path().join(name)).unwrap();
        assert_eq!(attribute(&file, "user.color").unwrap(), b"blue", "{name}");
        for own in own {
            assert_eq!(attribute(&file, own), Err(rustix::io::Errno::NODATA), "{name}: {own}");
        }
    }
}

#[test]
fn names_that_lead_out_are_left_out() {
    for name in ["../evil", "/etc/evil", "tree/../../evil", "evil", "tree/../evil", "./../evil", ""] {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let archive = archive(&[
            (EntryType::Directory, "tree", "", b""),
            (EntryType::Regular, name, "", b"evil"),
            (EntryType::Regular, "tree/good", "", b"good"),
        ]);
        let (result, reported) = unpacked(&archive, &inner, &options());
        result.unwrap();
        assert_eq!(reported.len(), 1, "{name}: {reported:?}");
        assert_eq!(fs::read(inner.join("tree/good")).unwrap(), b"good");
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1, "{name}");
        assert_eq!(fs::read_dir(inner.join("tree")).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn links_of_the_archive_lead_nowhere() {
    let outer = tempfile::tempdir().unwrap();
    let (inner, victim) = (outer.path().join("inner"), outer.path().join("victim"));
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("secret"), "secret").unwrap();
    let away = victim.to_str().unwrap();
    let secret = format!("{away}/secret");
    let archive = archive(&[
        (EntryType::Directory, "tree", "", b""),
        (EntryType::Symlink, "tree/away", away, b""),
        (EntryType::Regular, "tree/away/evil", "", b"evil"),
        (EntryType::Directory, "tree/away/directory", "", b""),
        (EntryType::Symlink, "tree/to-file", &secret, b""),
        (EntryType::Regular, "tree/to-file", "", b"changed"),
        (EntryType::Link, "tree/stolen", &secret, b""),
        (EntryType::Link, "tree/through", "tree/away/secret", b""),
        (EntryType::Directory, "tree/away", "", b""),
    ]);
    let (result, reported) = unpacked(&archive, &inner, &options());
    result.unwrap();
    assert_eq!(reported.len(), 5, "{reported:?}");
    assert_eq!(fs::read(victim.join("secret")).unwrap(), b"secret");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    assert_eq!(fs::read(inner.join("tree/to-file")).unwrap(), b"changed", "it replaced the link");
    assert!(!inner.join("tree/stolen").exists() && !inner.join("tree/through").exists());
}

#[test]
fn hard_links_lead_to_what_was_unpacked_and_to_nothing_that_was_there() {
    let out = tempfile::tempdir().unwrap();
    fs::create_dir_all(out.path().join("tree/private")).unwrap();
    fs::write(out.path().join("tree/private/secret"), "secret").unwrap();
    symlink("/etc/passwd", out.path().join("tree/link")).unwrap();
    let archive = archive(&[
        (EntryType::Directory, "tree", "", b""),
        (EntryType::Link, "tree/stolen", "tree/private/secret", b""),
        (EntryType::Link, "tree/stolen-link", "tree/link", b""),
        (EntryType::Regular, "tree/file", "", b"one"),
        (EntryType::Link, "tree/other", "tree/file", b""),
        (EntryType::Symlink, "tree/away", "/nowhere", b""),
        (EntryType::Link, "tree/other-away", "tree/away", b""),
        // Its name is one that was there, and it is not.
        (EntryType::Regular, "tree/private/secret", "", b"new"),
        (EntryType::Link, "tree/new", "tree/private/secret", b""),
    ]);
    let (result, reported) = unpacked(&archive, out.path(), &options());
    result.unwrap();
    let why = "left out: a link to what was there before";
    assert_eq!(reported, [format!("tree/stolen: {why}"), format!("tree/stolen-link: {why}")]);
    let inode = |name: &str| out.path().join("tree").join(name).symlink_metadata().unwrap().ino();
    assert_eq!((inode("other"), inode("other-away")), (inode("file"), inode("away")));
    assert_eq!(fs::read(out.path().join("tree/new")).unwrap(), b"new");
}

/// Changes the size of the member of a name to something that is no number.
fn without_size(archive: &mut [u8], name: &str) {
    let (blocks, _) = archive.as_chunks_mut::<512>();
    let header = blocks.iter_mut().find(|block| block.starts_with(name.as_bytes())).unwrap();
    header[124..136].copy_from_slice(b"many bytes!\0");
    let mut header = Header::from_byte_slice(header).clone();
    header.set_cksum();
    let block = blocks.iter_mut().find(|block| block.starts_with(name.as_bytes())).unwrap();
    block.copy_from_slice(header.as_bytes());
}

#[test]
fn an_archive_goes_on_behind_a_file_of_which_nobody_knows_how_long_it_is() {
    let out = tempfile::tempdir().unwrap();
    let long = [7; 3000];
    let mut archive = archive(&[
        (EntryType::Directory, "tree", "", b""),
        (EntryType::Regular, "tree/before", "", b"before"),
        (EntryType::Regular, "tree/lost", "", &long),
        (EntryType::Regular, "tree/after", "", b"after"),
        (EntryType::Link, "tree/link", "tree/lost", b""),
        (EntryType::GNULongName, "longlink", "", b"tree/long name\0"),
        (EntryType::Regular, "tree/short", "", b"x"),
    ]);
    without_size(&mut archive, "tree/lost");
    without_size(&mut archive, "longlink");
    let mut gnu_tar = Command::new("tar").args(["-t"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    gnu_tar.stdin.take().unwrap().write_all(&archive).unwrap();
    let listed = String::from_utf8(gnu_tar.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(listed, "tree\ntree/before\ntree/after\ntree/link\ntree/short\n");
    let root = (OsString::new(), PathBuf::new());
    let (result, reported) = unpacked(&archive, out.path(), &UnpackOptions { root, ..options() });
    result.unwrap();
    let why = "left out: its size is no number, and what follows may be its contents";
    assert_eq!(
        reported,
        [format!("tree/lost: {why}"), format!("tree/link: {why}"), format!("longlink: {why}")],
        "a link to what was left out is left out for the same reason"
    );
    let mut names: Vec<_> = fs::read_dir(out.path().join("tree")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["after", "before", "short"]);
}

#[test]
fn a_destination_that_is_a_link_already_is_not_followed() {
    let outer = tempfile::tempdir().unwrap();
    let (inner, victim) = (outer.path().join("inner"), outer.path().join("victim"));
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&victim).unwrap();
    symlink(&victim, inner.join("tree")).unwrap();
    let archive = archive(&[(EntryType::Directory, "tree", "", b""), (EntryType::Regular, "tree/file", "", b"x")]);
    let (result, reported) = unpacked(&archive, &inner, &options());
    result.unwrap();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

#[test]
fn devices_are_left_out_and_set_id_bits_too() {
    let out = tempfile::tempdir().unwrap();
    let mut builder = Builder::new(Vec::new());
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o6755);
    header.set_size(1);
    builder.append_data(&mut header, "tree", &b"x"[..]).unwrap();
    for kind in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
        header.set_entry_type(kind);
        header.set_size(0);
        builder.append_data(&mut header, "tree/device", &b""[..]).unwrap();
    }
    let (result, reported) = unpacked(&builder.into_inner().unwrap(), out.path(), &options());
    result.unwrap();
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert_eq!(fs::metadata(out.path().join("tree")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn an_archive_that_is_too_much_or_cut_short_ends_without_half_a_file() {
    let out = tempfile::tempdir().unwrap();
    let whole = archive(&[(EntryType::Regular, "tree", "", &[7; 4000])]);
    let small = UnpackOptions { bytes_max: 3999, ..options() };
    let (result, _) = unpacked(&whole, out.path(), &small);
    assert!(result.unwrap_err().to_string().contains("more than 3999 bytes"));
    let (result, _) = unpacked(&whole[..2000], out.path(), &options());
    assert!(result.is_err());
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}

#[test]
fn a_name_without_end_does_not_fill_the_memory() {
    let out = tempfile::tempdir().unwrap();
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::GNULongName);
    header.set_size(1 << 40);
    header.set_cksum();
    let endless = io::Cursor::new(header.as_bytes().to_vec()).chain(io::repeat(b'x'));
    let into = File::open(out.path()).unwrap();
    let result = unpack(endless, into.as_fd(), &options(), &mut |_, _, _| {});
    assert!(result.unwrap_err().to_string().contains("too long"));
}

#[test]
fn an_archive_without_end_of_empty_files_ends() {
    let out = tempfile::tempdir().unwrap();
    let whole = archive(&[(EntryType::Regular, "tree", "", b"")]);
    let endless = std::iter::repeat_with(|| io::Cursor::new(whole[..512].to_vec()));
    struct Endless<I>(I, io::Cursor<Vec<u8>>);
    impl<I: Iterator<Item = io::Cursor<Vec<u8>>>> Read for Endless<I> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            match self.1.read(into)? {
                0 => {
                    self.1 = self.0.next().unwrap();
                    self.1.read(into)
                }
                bytes => Ok(bytes),
            }
        }
    }
    let into = File::open(out.path()).unwrap();
    let few = UnpackOptions { entries_max: 100, ..options() };
    let result = unpack(Endless(endless, io::Cursor::default()), into.as_fd(), &few, &mut |_, _, _| {});
    assert!(result.unwrap_err().to_string().contains("more than 100 files"));
}

#[test]
fn what_is_replaced_is_whole_until_its_replacement_is() {
    let out = tempfile::tempdir().unwrap();
    fs::write(out.path().join("tree"), "old").unwrap();
    let whole = archive(&[(EntryType::Regular, "tree", "", &[7; 4000])]);
    let (result, _) = unpacked(&whole[..2000], out.path(), &options());
    assert!(result.is_err());
    assert_eq!(fs::read(out.path().join("tree")).unwrap(), b"old");
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
    let (result, reported) = unpacked(&whole, out.path(), &options());
    assert_eq!((result.unwrap(), reported.len()), (4000, 0));
    assert_eq!(fs::read(out.path().join("tree")).unwrap(), [7; 4000]);
    // Links replace too, and what is linked to itself stays.
    let links = archive(&[
        (EntryType::Regular, "tree", "", b"new"),
        (EntryType::Link, "tree", "tree", b""),
        (EntryType::Symlink, "tree", "away", b""),
        (EntryType::Symlink, "tree", "farther", b""),
    ]);
    let (result, reported) = unpacked(&links, out.path(), &options());
    assert_eq!((result.unwrap(), reported.len()), (3, 0), "{reported:?}");
    assert_eq!(fs::read_link(out.path().join("tree")).unwrap(), Path::new("farther"));
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_in_the_way_stays() {
    let out = tempfile::tempdir().unwrap();
    fs::create_dir(out.path().join("tree")).unwrap();
    let (result, reported) = unpacked(&archive(&[(EntryType::Regular, "tree", "", b"x")]), out.path(), &options());
    result.unwrap();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(out.path().join("tree").is_dir());
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 1);
}

/// A file that is cut short while it is packed: by the packer's own output, so that it is in the middle of it.
#[test]
fn a_file_that_shrinks_while_it_is_packed_keeps_its_length() {
    struct Shrinks<'a>(Vec<u8>, &'a File, usize);
    impl Write for Shrinks<'_> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.0.extend_from_slice(from);
            if self.0.len() > self.2 {
                self.1.set_len(1000)?;
            }
            Ok(from.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for (length, hole) in [(1 << 20, 0), (1 << 20, 1 << 20), (300_000, 0)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tree");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.set_len(length + hole).unwrap();
        let sources = [Source { path, name: "tree".into() }];
        let mut reported = Vec::new();
        let output = Shrinks(Vec::new(), &file, 100_000);
        let packed = pack(&sources, output, &mut |_, what, error| reported.push(format!("{what}: {error}"))).unwrap();
        assert!(reported.len() == 1 && reported[0].contains("became shorter"), "{reported:?}");
        let out = tempfile::tempdir().unwrap();
        let roomy = UnpackOptions { bytes_max: 4 << 20, ..options() };
        let (result, reported) = unpacked(&packed.0, out.path(), &roomy);
        assert!(result.unwrap() <= length + hole && reported.is_empty());
        let content = fs::read(out.path().join("tree")).unwrap();
        assert_eq!(content.len() as u64, length + hole);
        assert!(content[..1000].iter().all(|&byte| byte == 7) && content.ends_with(&[0; 512]));
    }
}

#[test]
fn a_file_with_many_holes_comes_out_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tree");
    let mut file = File::create(&path).unwrap();
    for piece in 0..60u64 {
        file.seek(io::SeekFrom::Start(piece * 16384)).unwrap();
        file.write_all(&[piece as u8 + 1; 4096]).unwrap();
    }
    file.set_len(60 * 16384 + 5000).unwrap();
    let sources = [Source { path: path.clone(), name: "tree".into() }];
    let packed = pack(&sources, Vec::new(), &mut |_, what, error| panic!("{what}: {error}")).unwrap();
    let out = tempfile::tempdir().unwrap();
    let (result, reported) = unpacked(&packed, out.path(), &UnpackOptions { bytes_max: 4 << 20, ..options() });
    assert_eq!((result.unwrap(), reported.len()), (60 * 4096, 0), "{reported:?}");
    assert!(fs::read(out.path().join("tree")).unwrap() == fs::read(path).unwrap());
}
