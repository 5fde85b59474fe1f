//! The example `put`, and what the library has for files, with a real guest.
//!
//! There is no test harness: the guest's kernel is this program, as the example has it.

#[path = "../examples/put.rs"]
mod put;

use blockyard_block::{FileDisk, FileOptions};
use blockyard_image::files::disk_usage::{DiskUsage, DiskUsageOptions};
use blockyard_image::files::find::{Actions, Expression, Found, Search, Test};
use blockyard_image::files::tar::{TarInOptions, TarOutOptions};
use blockyard_image::volumes::file_system_kind::{FileSystemKind, NewFileSystem};
use blockyard_image::{
    Access, Error, GetOptions, ImageDisk, ImageOptions, Nobody, OpenImage, PutOptions, PutSource, Resources, Result,
    WalkOptions,
};
use std::error::Error as _;
use std::fs::{self, File};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// Says that this program is to be the example, or the kernel that the example starts.
const EXAMPLE: &str = "BLOCKYARD_EXAMPLE";
const KERNEL: &str = "become-kernel";
/// Names an image to a program that opens it whatever its arguments are.
const FORGETFUL: &str = "BLOCKYARD_FORGETFUL";

fn main() -> ExitCode {
    if let Some(image) = std::env::var_os(FORGETFUL) {
        return forgets_to_become_the_kernel(Path::new(&image));
    }
    let is_kernel = std::env::args_os().nth(1).is_some_and(|first| first == KERNEL);
    if is_kernel || std::env::var_os(EXAMPLE).is_some() {
        return put::main();
    }
    files_go_in_and_come_out();
    println!("test files_go_in_and_come_out ... ok");
    a_program_that_does_not_become_the_kernel_is_told_so();
    println!("test a_program_that_does_not_become_the_kernel_is_told_so ... ok");
    ExitCode::SUCCESS
}

fn opened(image: &Path, access: Access) -> OpenImage {
    let disk = FileDisk::open(image, &FileOptions { read_only: access == Access::Read, ..FileOptions::default() });
    let disk = ImageDisk { disk: Arc::new(disk.unwrap()), name: "the image".into() };
    let resources = Resources::find(KERNEL).expect("it comes with the package user-mode-linux");
    ImageOptions::new(vec![disk]).access(access).boot(resources, Arc::new(Nobody)).unwrap()
}

fn mounted(image: &Path, access: Access) -> OpenImage {
    let mut image = opened(image, access);
    image.mount().unwrap();
    image
}

fn files_go_in_and_come_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let image = path("disk.img");
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let mut new = opened(&image, Access::Write);
    new.make_file_system(FileSystemKind::Ext4, "vda", NewFileSystem::default()).unwrap();
    new.close().unwrap();

    fs::create_dir(path("tree")).unwrap();
    fs::write(path("tree/small"), "small").unwrap();
    fs::write(path("hosts"), "127.0.0.1 localhost\n").unwrap();
    the_example_puts_them(&image, &[&path("hosts"), &path("tree")]);

    let mut open = mounted(&image, Access::Write);
    it_is_known_what_is_there(&mut open);
    streams_are_files_and_archives(&mut open);
    errors_have_their_sources(&mut open, directory.path());
    open.close().unwrap();

    let mut open = mounted(&image, Access::Read);
    fs::create_dir(path("out")).unwrap();
    open.get(["/tree", "/h*"], &path("out"), &GetOptions::default()).unwrap();
    assert_eq!(fs::read_to_string(path("out/tree/small")).unwrap(), "small");
    assert_eq!(fs::read_to_string(path("out/hosts")).unwrap(), "127.0.0.1 localhost\n");
    open.close().unwrap();
}

/// In a process of its own, as people have it.
fn the_example_puts_them(image: &Path, sources: &[&Path]) {
    let mut example = Command::new(std::env::current_exe().unwrap());
    let said = example.env(EXAMPLE, "1").arg(image).args(sources).arg("/").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let said = Command::new(std::env::current_exe().unwrap()).env(EXAMPLE, "1").arg(image).output().unwrap();
    assert_eq!((said.status.code(), &said.stderr[..]), (Some(1), &b"put IMAGE SOURCE... DIRECTORY\n"[..]));
}

fn a_program_that_does_not_become_the_kernel_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("disk.img");
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let forgetful = Command::new(std::env::current_exe().unwrap()).env(FORGETFUL, &image).output().unwrap();
    let sentence = "the appliance does not start: this program, started with become-kernel to become its kernel, has not called \
                    `become_kernel`, which comes first in `main`\n";
    // The second says so too, but on the line that its kernel's process has for that.
    assert_eq!(String::from_utf8_lossy(&forgetful.stderr), sentence);
    assert_eq!(fs::read_to_string(started(&image)).unwrap(), "started\nstarted\n");
}

/// Where each program that was started leaves a line.
fn started(image: &Path) -> PathBuf {
    image.with_extension("started")
}

fn forgets_to_become_the_kernel(image: &Path) -> ExitCode {
    let mut lines = File::options().create(true).append(true).open(started(image)).unwrap();
    lines.write_all(b"started\n").unwrap();
    if lines.metadata().unwrap().len() > 24 {
        return ExitCode::FAILURE;
    }
    let disk = FileDisk::open(image, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
    let disk = ImageDisk { disk: Arc::new(disk), name: "the image".into() };
    let resources = Resources::find(KERNEL).unwrap();
    if let Err(error) = ImageOptions::new(vec![disk]).access(Access::Read).boot(resources, Arc::new(Nobody)) {
        eprintln!("{}", error.in_one_line());
    }
    ExitCode::FAILURE
}

fn it_is_known_what_is_there(open: &mut OpenImage) {
    assert_eq!(open.read(["/hosts", "/tree/*"], Vec::new()).unwrap(), b"127.0.0.1 localhost\nsmall");
    let all = WalkOptions { depth: u32::MAX, ..WalkOptions::default() };
    let files = open.list(["/"], &all).unwrap();
    let paths: Vec<_> = files.iter().map(|file| String::from_utf8_lossy(&file.path)).collect();
    assert_eq!(paths, ["/hosts", "/lost+found", "/tree", "/tree/small"]);
    assert_eq!(files[3].entry.size, 5);
    let named = Expression::Test(Test::Name(b"s*".to_vec()));
    let found = open.find(search(named), Paths::default()).unwrap();
    assert_eq!(found, ["/tree/small"]);
    let sums = open.disk_usage(["/tree"], &DiskUsageOptions::default(), Paths::default()).unwrap();
    assert_eq!(sums, ["/tree 2048"]);
    assert_eq!(open.mounted().unwrap().len(), 1);
}

fn search(test: Expression<()>) -> Search<()> {
    Search {
        paths: vec![b"/".to_vec()],
        depth_min: 0,
        depth_max: u32::MAX,
        one_file_system: false,
        details: false,
        expression: Expression::All(vec![test, Expression::Action(())]),
    }
}

#[derive(Default)]
struct Paths(Vec<String>);

impl Actions<()> for Paths {
    type Output = Vec<String>;

    fn perform(&mut self, (): &(), found: &Found<'_>) -> io::Result<()> {
        self.0.push(String::from_utf8_lossy(found.path).into_owned());
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.0)
    }
}

impl DiskUsage for Paths {
    type Output = Vec<String>;

    fn takes(&mut self, path: &[u8], bytes: u64) -> io::Result<()> {
        self.0.push(format!("{} {bytes}", String::from_utf8_lossy(path)));
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.0)
    }
}

fn streams_are_files_and_archives(open: &mut OpenImage) {
    let stream = || PutSource::Stream { name: "a stream", open: Box::new(|| Ok(Box::new(Cursor::new("flow")))) };
    open.put([stream()], Path::new("/flow"), &PutOptions::default()).unwrap();
    assert_eq!(open.read(["/flow"], Vec::new()).unwrap(), b"flow");
    let error = open.put([stream()], Path::new("/"), &PutOptions::default()).unwrap_err();
    assert_eq!(error.in_one_line(), "a stream: /: a stream has no name to have in a directory");

    let archive = tempfile::tempfile().unwrap();
    let packed = open.tar_out(Path::new("/tree"), archive, &TarOutOptions::default()).unwrap();
    io::Seek::rewind(&mut &packed).unwrap();
    open.tar_in(packed, Path::new("/copy"), &TarInOptions::default()).unwrap();
    assert_eq!(open.read(["/copy/small"], Vec::new()).unwrap(), b"small");
}

fn errors_have_their_sources(open: &mut OpenImage, directory: &Path) {
    let put: Result<()> = open.put([&directory.join("missing")], Path::new("/"), &PutOptions::default());
    let error = put.unwrap_err();
    assert!(matches!(error.cause(), Error::System(error) if error.kind() == io::ErrorKind::NotFound), "{error:?}");
    assert!(error.source().is_some());
    let several = ["/hosts", "/flow"];
    let nowhere = directory.join("nowhere");
    let error = open.get(several, &nowhere, &GetOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with("there is no directory"), "{error}");
    let error = GetOptions::default().check(several.len(), &nowhere).unwrap_err();
    assert!(matches!(error, Error::Usage(_)));
}
