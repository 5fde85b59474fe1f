//! Copies files and trees of this machine into an image: `put IMAGE SOURCE... DIRECTORY`.

use blockyard_block::specification::DiskSpecification;
use blockyard_image::{Error, ImageDisk, ImageOptions, Nobody, PutOptions, Resources, Result, become_kernel};
use blockyard_session::open::{OpenOptions, open_disk};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// The guest's kernel is this program once more, with this argument.
const KERNEL: &str = "become-kernel";

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error.in_one_line());
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Before anything else: a kernel has one thread, and none of this program's files.
    if let Some((first, rest)) = arguments.split_first()
        && first == KERNEL
    {
        match become_kernel(rest, KERNEL)? {}
    }
    let paths: Vec<PathBuf> = arguments.into_iter().map(PathBuf::from).collect();
    match &paths[..] {
        [image, sources @ .., directory] if !sources.is_empty() => put(image, sources, directory),
        _ => Err(Error::usage("put IMAGE SOURCE... DIRECTORY")),
    }
}

/// Copies what is at `sources` into a directory of an image, whose format is that of its name.
fn put(image: &Path, sources: &[PathBuf], directory: &Path) -> Result<()> {
    let disk = open_disk(&DiskSpecification::of_file(image), &OpenOptions::default())?.disk;
    let disk = ImageDisk { disk, name: image.to_string_lossy().into() };
    let mut image = ImageOptions::new(vec![disk]).boot(Resources::find(KERNEL)?, Arc::new(Nobody))?;
    image.mount()?;
    image.put(sources, directory, &PutOptions::default())?;
    image.close()
}
