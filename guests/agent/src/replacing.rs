//! Making something in the place of a file that may be there: that one is there until it is replaced.

use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::path::Path;

/// Has `make` make something at `path`; what is there goes when that has been made.
pub(crate) fn replacing(path: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    match (make(path), path.parent(), path.file_name()) {
        (Err(error), Some(parent), Some(name)) if error.kind() == io::ErrorKind::AlreadyExists => {
            let make = |name: &_| {
                make(&path.with_file_name(name)).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
            };
            Ok(blockyard_archive::make(File::open(parent)?, name, make)?)
        }
        (made, ..) => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
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
