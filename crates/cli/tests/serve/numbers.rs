//! Numbers of what a server does, for Prometheus.

use super::*;

/// An address that is free, of those that nobody else takes ports of.
fn free_address(host: &str) -> SocketAddr {
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_disk_that_is_a_file_has_numbers_too() {
    let directory = tempfile::tempdir().unwrap();
    let (image, file, errors) = (image(&directory), directory.path().join("file"), directory.path().join("errors"));
    let address = free_address("127.77.3.2");
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--fuse").arg(&file).args(["--metrics", &address.to_string()]);
    let mut child = command.stderr(File::create(&errors).unwrap()).spawn().unwrap();
    says(&errors, "is the file");
    let disk = File::options().write(true).open(&file).unwrap();
    disk.write_all_at(&[1; 4096], 8192).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("operation=\"write\"} 4096\n"), "{answer}");
    let pid = rustix::process::Pid::from_child(&child);
    kill_process(pid, Signal::USR1).unwrap();
    says(&errors, "1 × write, 4.00 KiB");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn numbers_are_to_be_had_over_http_and_by_signal() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket, errors) = (image(&directory), directory.path().join("s"), directory.path().join("errors"));
    let address = free_address("127.77.3.1");
    let mut command = Command::new(BLOCKYARD);
    command.arg("serve").arg(&image).arg("--socket").arg(&socket).args(["--metrics", &address.to_string()]);
    let mut child = command.stderr(File::create(&errors).unwrap()).spawn().unwrap();
    let disk = connect(&socket);
    perform(&disk, WRITE, 0, 1).unwrap();
    let ask = |request: &str| ask(address, request);
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("operation=\"write\"} 4096\n"), "{answer}");
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let pid = rustix::process::Pid::from_child(&child);
    kill_process(pid, Signal::USR1).unwrap();
    says(&errors, "1 × write, 4.00 KiB");
    // Who has left has done what it did, and the next one's requests come to that.
    drop(disk);
    says(&errors, "the session is over");
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("operation=\"write\"} 4096\n"), "{answer}");
    let disk = connect(&socket);
    perform(&disk, WRITE, 0, 1).unwrap();
    let answer = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.contains("operation=\"write\"} 8192\n"), "{answer}");
    kill_process(pid, Signal::USR1).unwrap();
    says(&errors, "2 × write, 8.00 KiB");
    kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn who_asks_for_numbers_slowly_keeps_nobody_from_them() {
    let directory = tempfile::tempdir().unwrap();
    let (image, socket) = (image(&directory), directory.path().join("s"));
    let address = free_address("127.77.3.3");
    let metrics = address.to_string();
    let arguments =
        [image.as_os_str(), "--socket".as_ref(), socket.as_os_str(), "--metrics".as_ref(), metrics.as_ref()];
    let server = Server::start(&arguments, &socket);
    thread::scope(|scope| {
        // Each says a letter now and then, and never all; more of them than are answered at once.
        let slow: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        let ask_slowly = |mut stream: TcpStream| {
            let start = Instant::now();
            while stream.write_all(b"G").is_ok() {
                assert!(start.elapsed() < PATIENCE, "a client has as much time as it likes");
                thread::sleep(Duration::from_millis(100));
            }
        };
        // All of them are left at some time, though none was silent for long.
        let slow: Vec<_> = slow.into_iter().map(|stream| scope.spawn(move || ask_slowly(stream))).collect();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        slow.into_iter().for_each(|thread| thread.join().unwrap());
    });
    server.stop();
}
