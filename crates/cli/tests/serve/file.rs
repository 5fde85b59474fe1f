//! A disk that is served as a file.

use super::*;

#[test]
fn a_server_whose_file_was_taken_away_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let (image, path, errors) = (image(&directory), directory.path().join("file"), directory.path().join("errors"));
    let mut child = serve_file(&image, &path, &errors);
    assert!(Command::new("umount").arg(&path).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let said = fs::read_to_string(&errors).unwrap();
    assert!(said.contains("somebody else has unmounted it"), "{said}");
}

/// What a killed server left to take its file away does not take its successor's, however the two meet.
#[test]
fn a_file_outlives_the_end_of_its_killed_predecessor() {
    let directory = tempfile::tempdir().unwrap();
    let (image, path, errors) = (image(&directory), directory.path().join("file"), directory.path().join("errors"));
    // It is there before, so that nobody removes it.
    File::create(&path).unwrap();
    let mut child = serve_file(&image, &path, &errors);
    for _ in 0..20 {
        // Open, so that taking it away takes a while.
        let open = File::options().read(true).open(&path).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let _ = Command::new("umount").arg("-l").arg(&path).stderr(Stdio::null()).status().unwrap();
        child = serve_file(&image, &path, &errors);
        drop(open);
    }
    // Longer than an unmounter tries.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::metadata(&path).unwrap().len(), 8 << 20);
    assert!(child.try_wait().unwrap().is_none());
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_disk_is_a_file_until_the_server_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (image, path) = (image(&directory), directory.path().join("file"));
    let mut command = Command::new(BLOCKYARD);
    let mut child = command.arg("serve").arg(&image).arg("--fuse").arg(&path).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while fs::metadata(&path).map_or(0, |metadata| metadata.len()) != 8 << 20 {
        assert!(start.elapsed() < PATIENCE, "the file does not appear");
        thread::sleep(Duration::from_millis(5));
    }
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"an odd number of bytes", 4095).unwrap();
    file.sync_all().unwrap();
    drop(file);
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(!path.exists());
    assert_eq!(&fs::read(&image).unwrap()[4095..4117], b"an odd number of bytes");
}

/// What is written of a part of a cluster has the rest of it copied, by a thread that first looks at what is behind the
/// image then, when the process can make no io_uring any more.
#[test]
fn what_is_behind_an_image_is_copied_by_the_engine_that_was_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let base = image(&directory);
    let options = FileOptions { engine: Engine::Uring, lock: false, ..FileOptions::default() };
    let memory = MemoryMap::allocate(&[(0, 4096)]).unwrap();
    if let Err(error) = FileDisk::open(&base, &options).unwrap().open_queue(&memory, 1) {
        return eprintln!("no io_uring here ({error}): not tried");
    }
    File::options().write(true).open(&base).unwrap().write_all_at(&[7; 128 << 10], 0).unwrap();
    let (top, path, errors) = ("top.qcow2", directory.path().join("file"), directory.path().join("errors"));
    let mut create = Command::new(BLOCKYARD);
    create.current_dir(&directory).args(["image", "create", "-q", "-f", "qcow2", "-b", "disk.img", "-F", "raw", top]);
    assert!(create.status().unwrap().success());
    let mut command = Command::new(BLOCKYARD);
    command.current_dir(&directory).args(["serve", "top.qcow2,engine=uring", "--allow-dir", "."]);
    command.arg("--fuse").arg(&path).stderr(File::create(&errors).unwrap());
    let mut child = command.spawn().unwrap();
    says(&errors, "is the file");
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"an odd number of bytes", 70_001).unwrap();
    file.sync_all().unwrap();
    let mut cluster = [0; 64 << 10];
    file.read_exact_at(&mut cluster, 64 << 10).unwrap();
    drop(file);
    kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let mut expected = [7; 64 << 10];
    expected[70_001 - (64 << 10)..][..22].copy_from_slice(b"an odd number of bytes");
    assert!(cluster == expected);
}
