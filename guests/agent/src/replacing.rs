//! Making something in the place of a file that may be there: that one is there until it is replaced.

use std::fs;
use std::io;
use std::path::Path;

/// Names that are tried for what is not in its place yet.
const NAMES_MAX: u32 = 100;

/// Has `make` make something at `path`; what is there goes when that has been made.
pub(crate) fn replacing(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    match make(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => beside(path, make),
        made => made,
    }
}

fn beside(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut made = Err(io::ErrorKind::AlreadyExists.into());
    for number in 0..NAMES_MAX {
        let new = path.with_file_name(format!(".blockyard-new-{number}"));
        made = make(&new).and_then(|()| {
            let renamed = fs::rename(&new, path);
            // Nothing is renamed to another name of the same file.
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => renamed.and(Err(error)),
                _ => renamed,
            }
        });
        if !matches!(&made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
            return made;
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_there_stays_when_nothing_can_take_its_place() {
        let directory = std::env::temp_dir().join(format!("blockyard-replacing-{}", std::process::id()));
        fs::create_dir_all(directory.join("full/x")).unwrap();
        let (file, other) = (directory.join("file"), directory.join("other"));
        fs::write(&file, "old").unwrap();
        fs::write(&other, "other").unwrap();
        replacing(&file, |path| fs::hard_link(&directory, path)).unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), b"old");
        replacing(&file, |path| fs::hard_link(&other, path)).unwrap();
        replacing(&file, |path| fs::hard_link(&other, path)).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"other");
        replacing(&file, |path| symlink("to", path)).unwrap();
        assert_eq!(fs::read_link(&file).unwrap(), Path::new("to"));
        replacing(&directory.join("full"), |path| symlink("to", path)).unwrap_err();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_dir_all(&directory).unwrap();
    }
}
