//! Scripts and the shell: many commands with one boot, as guestfish has them.

use crate::rig::{Rig, failure, noise, tool};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn blockyard(rig: &Rig, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.arg("image").args(arguments).current_dir(rig.directory.path());
    command
}

/// Runs a script that comes from stdin.
pub(crate) fn script(rig: &Rig, arguments: &[&str], text: &str) -> Output {
    let mut command = blockyard(rig, &[&["script", "-"], arguments].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It may have ended before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait_with_output().unwrap()
}

/// Runs a script that must succeed; what it printed.
pub(crate) fn good(rig: &Rig, arguments: &[&str], text: &str) -> String {
    let output = script(rig, arguments, text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const IMAGE: &[&str] = &["disk.img"];

/// libguestfs's upload benchmark (tests/data/upload-benchmark.sh) with its shebang and its options line changed,
/// smaller sizes, one run instead of five, and each of its commands that are commented out.
#[test]
fn guestfishs_upload_benchmark_runs() {
    let rig = Rig::empty(8);
    let theirs = include_str!("../data/upload-benchmark.sh");
    let file = noise(3 << 20);
    fs::write(rig.path("big.file"), &file).unwrap();
    tool(
        "tar",
        "tar",
        [
            "-C",
            rig.directory.path().to_str().unwrap(),
            "-czf",
            rig.path("big.file.tar.gz").to_str().unwrap(),
            "big.file",
        ],
    );
    let image = rig.path("test1.img");
    for (command, name, content) in [
        ("upload big.file /big.file", "/big.file", file.clone()),
        ("dd /dev/sdb /big.file", "/big.file", file.clone()),
        ("tgz-in big.file.tar.gz /", "/big.file", file.clone()),
        ("fill 1 1500M /big.file", "/big.file", vec![1; 15 << 20]),
        ("fill 0 1500M /big.file", "/big.file", vec![0; 15 << 20]),
    ] {
        let script = theirs
            .replace(
                "guestfish -a $disk_image",
                &format!("'{}' image shell -a $disk_image,format=qcow2", env!("CARGO_BIN_EXE_blockyard")),
            )
            .replace("disk_image=/dev/shm/test1.img", &format!("disk_image='{}'", image.display()))
            .replace("disk_image_size=2G", "disk_image_size=64M")
            .replace("    #add-ro big.file", "    add-ro big.file")
            .replace("    #smp 4", "    smp 4")
            .replace(&format!("    #{command}"), &format!("    {}", command.replace("1500M", "15M")))
            .replace("test\ntest\ntest\ntest\ntest\n\nrm -f $disk_image", "test\n");
        let output = Command::new("bash").arg("-c").arg(&script).current_dir(rig.directory.path()).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let seconds = String::from_utf8_lossy(&output.stdout).trim().lines().last().map(|line| line.parse::<f64>());
        assert!(matches!(seconds, Some(Ok(0.0..))), "{command}: {output:?}");
        let named = format!("{},format=qcow2", image.display());
        let found = blockyard(&rig, &["cat", &named, name]).output().unwrap().stdout;
        assert!(found == content, "{command}: {} bytes", found.len());
        tool("qemu-img", "qemu-utils", ["check", image.to_str().unwrap()]);
    }
}

#[test]
fn a_disk_is_made_filled_and_read_in_one_script() {
    let rig = Rig::empty(8);
    fs::write(rig.path("in.txt"), "from the host\n").unwrap();
    std::os::unix::fs::symlink("in.txt", rig.path("link-to-in.txt")).unwrap();
    let said = good(
        &rig,
        &[],
        r#"# Everything that people do every day.
            sparse new.img 64M
            run
            part-init /dev/sda gpt
            part-add /dev/sda p 2048 34815
            part-add /dev/sda p 34816 -2048
            list-partitions
            mkfs ext4 /dev/sda1 label:boot
            mkfs ext2 /dev/sda2
            vfs-type /dev/sda2
            vfs-label /dev/sda1
            mount /dev/sda2 /
            mkdir-p /boot/grub
            mount-options noatime /dev/sda1 /boot
            mkdir /boot/grub
            write /boot/grub/cfg "a\tb\n"
            write-append /boot/grub/cfg 'c'
            cat /boot/grub/cfg
            upload in.txt "/with blank"
            cp-a '/with blank' /copy
            chown 10 20 /copy
            chmod 0640 /copy
            ln-s copy /link
            ln /copy /hard
            mv "/with blank" /moved
            exists /moved
            is-dir /boot
            is-file /boot
            filesize /moved
            readlink /link
            fill-pattern abc 7 /pattern
            truncate-size /pattern 5
            mountpoints
            umount /boot
            -rmdir /boot/grub
            ls /
            rm-rf /boot
            !mkdir out
            copy-out /copy /link out
            lcd out
            download /pattern ../pattern
            ln-s /pattern /to-pattern
            download /to-pattern ../followed
            -download /lost+found ../directory
            upload ../link-to-in.txt /uploaded
            cat /uploaded
            rm /to-pattern /uploaded
            echo done | tr a-z A-Z
            part-get-parttype /dev/sda
            blockdev-getsize64 /dev/sda
            sync
            exit
            lcd this-is-never-done"#,
    );
    let expected = "/dev/sda1\n/dev/sda2\next2\nboot\na\tb\nctrue\ntrue\nfalse\n14\ncopy\n/dev/sda2: /\n/dev/sda1: /boot\n\
         boot\ncopy\nhard\nlink\nlost+found\nmoved\npattern\nfrom the host\nDONE\ngpt\n67108864\n";
    // mkfs may tell more.
    let lines: Vec<_> = said.lines().filter(|line| expected.lines().any(|known| known == *line)).collect();
    assert_eq!(lines, expected.lines().collect::<Vec<_>>(), "{said}");
    assert_eq!(fs::read_to_string(rig.path("out/copy")).unwrap(), "from the host\n");
    assert_eq!(fs::read_to_string(rig.path("pattern")).unwrap(), "abcab");
    assert_eq!(fs::read_to_string(rig.path("followed")).unwrap(), "abcab");
    assert!(!rig.path("followed").is_symlink() && !rig.path("directory").exists());
    tool("sfdisk", "fdisk", ["--verify", rig.path("new.img").to_str().unwrap()]);
    let partition = |start: u64, length: u64| {
        let bytes = fs::read(rig.path("new.img")).unwrap();
        fs::write(rig.path("part"), &bytes[start as usize..(start + length) as usize]).unwrap();
        tool("e2fsck", "e2fsprogs", ["-fn", rig.path("part").to_str().unwrap()]);
    };
    partition(1 << 20, 16 << 20);
    partition(17 << 20, 46 << 20);
    let stat = tool("debugfs", "e2fsprogs", ["-R", "stat /copy", rig.path("part").to_str().unwrap()]);
    assert!(
        stat.contains("Mode:  0640") && stat.contains("User:    10   Group:    20") && stat.contains("Links: 2"),
        "{stat}"
    );
}

#[test]
fn a_script_ends_with_the_first_line_that_fails_and_says_which() {
    let rig = Rig::new(16, |root| fs::write(root.join("a"), "a\n").unwrap());
    let output = script(&rig, IMAGE, "ls /\n\n-cat /nothing\ncat /a\ncat /nothing\nrm /a\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "a\nlost+found\na\n");
    let said = failure(output);
    assert!(said.contains("stdin:3: /nothing: cannot open") && said.contains("goes on"), "{said}");
    assert!(said.ends_with("blockyard: stdin:5: /nothing: cannot open: No such file or directory\n"), "{said}");
    // Mistakes are found before anything is done.
    for (text, problem) in [
        ("rm /a\nmount /dev/sda1\n", "job:2: mount: it is mount DEVICE DIR"),
        ("rm /a\n\nrn /a", "job:3: there is no command rn"),
        ("rm /a\nls --nope", "job:2: unexpected argument '--nope'"),
        ("rm /a\nls 'x", "job:2: a quote is not closed"),
    ] {
        fs::write(rig.path("job"), text).unwrap();
        let said = failure(blockyard(&rig, &["script", "job", "disk.img"]).output().unwrap());
        assert!(said.contains(problem), "{said}");
    }
    assert_eq!(rig.run("cat", &["/a"]), "a\n");
    // What was done before is done, and the image in good order.
    failure(script(&rig, IMAGE, "write /b b\nrmdir /b"));
    assert_eq!(rig.run("cat", &["/b"]), "b");
    rig.check();
}

#[test]
fn a_script_from_stdin_is_not_read_as_data() {
    let rig = Rig::empty(16);
    for command in ["put - /file", "tar-in - /", "dd if=- of=image:/file"] {
        let said = failure(script(&rig, &["disk.img"], &format!("{command}\ntouch /never\n")));
        assert!(said.contains("stdin is where the commands come from"), "{command}: {said}");
    }
    assert_eq!(rig.run("ls", &[]), "lost+found\n");
}

#[test]
fn disks_that_are_added_later_are_there_and_what_was_mounted_stays_so() {
    let rig = Rig::new(16, |root| fs::write(root.join("a"), "a\n").unwrap());
    fs::copy(&rig.image, rig.path("other.img")).unwrap();
    let said = good(
        &rig,
        IMAGE,
        "write /b b\nmkdir /other\nadd-ro other.img\nmount /dev/sdb /other\ncat /b\nls /other\n-touch /other/x\nls /other\nlist-drives\n",
    );
    assert_eq!(said, "ba\nlost+found\na\nlost+found\n/dev/sda: disk.img\n/dev/sdb: other.img (read-only)\n");
    rig.check();
}

#[test]
fn patterns_stand_for_files_of_the_image() {
    let rig = Rig::new(16, |root| {
        for name in ["etc/a.conf", "etc/b.conf", "etc/.c.conf", "etc/d", "srv/x.conf", "star*"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), name).unwrap();
        }
    });
    assert_eq!(rig.run("ls", &["/etc/*.conf"]), "/etc/a.conf\n/etc/b.conf\n");
    assert_eq!(rig.run("cat", &["/*/[bx].conf", "/star\\*"]), "etc/b.confsrv/x.confstar*");
    fs::create_dir(rig.path("out")).unwrap();
    rig.run("get", &["/etc/?.conf", "/s*", "out"]);
    assert!(
        rig.path("out/a.conf").is_file() && rig.path("out/srv/x.conf").is_file() && rig.path("out/star*").is_file()
    );
    rig.run("rm", &["/etc/*.conf"]);
    assert_eq!(rig.run("ls", &["-a", "/etc"]), ".c.conf\nd\n");
    assert!(rig.fail("rm", &["/etc/*.conf"]).contains("/etc/*.conf: no file matches"));
    rig.run("rm", &["-f", "/etc/*.conf"]);
    assert!(rig.fail("ls", &["/nothing/*"]).contains("no file matches"));
    rig.run("rm", &["/star\\*"]);
    rig.check();
}

#[test]
fn an_edited_file_keeps_its_owner_and_permissions() {
    let rig = Rig::new(16, |root| {
        fs::write(root.join("conf"), "one\n").unwrap();
        fs::set_permissions(root.join("conf"), fs::Permissions::from_mode(0o640)).unwrap();
    });
    rig.run("chown", &["7:8", "/conf"]);
    let edit =
        |editor: &str| rig.command("edit", &["/conf"]).env_remove("VISUAL").env("EDITOR", editor).output().unwrap();
    let output = edit("sed -i s/one/two/");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(rig.run("cat", &["/conf"]), "two\n");
    let stat = rig.debugfs("stat /conf");
    assert!(stat.contains("Mode:  0640") && stat.contains("User:     7   Group:     8"), "{stat}");
    assert!(String::from_utf8_lossy(&edit("true").stderr).contains("not changed"));
    // Nobody else can read the copy meanwhile.
    let seen = rig.path("seen");
    edit(&format!("f() {{ stat -c %a \"${{1%/*}}\" > {}; }}; f", seen.display()));
    assert_eq!(fs::read_to_string(seen).unwrap(), "700\n");
    assert!(failure(edit("sh -c 'echo three > \"$0\"; exit 3'")).contains("nothing was changed"));
    // The host's shell says something, too.
    let said = edit("no-such-editor").stderr;
    assert!(String::from_utf8_lossy(&said).contains("nothing was changed; name an editor that is there"));
    assert_eq!(rig.run("cat", &["/conf"]), "two\n");
    rig.check();
}

#[test]
fn blocks_go_between_disks_files_and_the_host() {
    let rig = Rig::empty(16);
    let content = noise(300_000);
    fs::write(rig.path("in"), &content).unwrap();
    rig.run("dd", &["if=in", "of=image:/file", "bs=1000", "skip=1", "count=200"]);
    assert_eq!(rig.run("ls", &["-l", "/file"]).split_whitespace().nth(4), Some("200000"));
    rig.run("dd", &["if=image:/file", "of=out", "bs=1000", "skip=2"]);
    assert!(fs::read(rig.path("out")).unwrap() == content[3000..201_000]);
    rig.run("dd", &["if=/dev/sda", "of=whole", "bs=1M"]);
    assert!(fs::read(rig.path("whole")).unwrap() == fs::read(&rig.image).unwrap());
    let said = good(
        &rig,
        &[],
        "add disk.img\nadd whole\ndd if=/dev/sda of=/dev/sdb bs=64K\nmount /dev/sda /\n-dd if=in of=/dev/sda\n",
    );
    assert!(said.contains("16777216 bytes (16.00 MiB) copied"), "{said}");
    rig.check();
    assert!(rig.fail("dd", &["if=nothing", "of=/dev/sda"]).contains("nothing: No such file"));
}

pub(crate) fn with_busybox() -> Rig {
    Rig::new(32, |root| {
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::copy("/bin/busybox", root.join("bin/busybox")).expect("it is in Debian's busybox-static");
        fs::hard_link(root.join("bin/busybox"), root.join("bin/sh")).unwrap();
    })
}

#[test]
fn a_program_of_the_image_runs_in_the_image() {
    let rig = with_busybox();
    let run = |arguments: &[&str], input: &[u8]| {
        let mut command = rig.command("run", &[&["/bin/sh", "-c"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (mut stdin, input) = (child.stdin.take().unwrap(), input.to_vec());
        // It may end before it has read everything.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    };
    let output = run(&["busybox cat; echo to-stderr >&2; exit 7"], &noise(3_000_000));
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == noise(3_000_000) && output.stderr == b"to-stderr\n");
    let output = run(&["echo made > /made; busybox test -e /proc/self/exe; echo $?; kill -9 $$"], b"");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(137), &b"0\n"[..]));
    // What it leaves behind keeps nothing mounted.
    assert!(run(&["busybox sleep 1000 & echo left"], b"").status.success());
    assert_eq!(rig.run("cat", &["/made"]), "made\n");
    // As a shell does.
    let missing = rig.command("run", &["/bin/none"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/bin/none: cannot execute: No such file"));
    // In a script, what comes from stdin is the script.
    assert_eq!(
        good(&rig, IMAGE, "run /bin/sh -c 'busybox cat; echo end'\nsh \"echo two words\"\ncat /made\n"),
        "end\ntwo words\nmade\n"
    );
    rig.check();
}

#[test]
fn ctrl_c_interrupts_the_program_and_the_image_is_closed() {
    let rig = with_busybox();
    let mut child = rig
        .command(
            "run",
            &["/bin/sh", "-c", "trap 'echo caught; exit 3' INT; echo ready; while :; do busybox sleep 0.1; done"],
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    output.read_exact(&mut ready).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (rest.as_str(), ended.status.code()),
        ("caught\n", Some(130)),
        "{}",
        String::from_utf8_lossy(&ended.stderr)
    );
    rig.check();
}

/// The shell with a terminal: what it says is read by a thread.
pub(crate) struct Terminal {
    keyboard: File,
    screen: mpsc::Receiver<Vec<u8>>,
    shown: String,
    /// All that was ever shown.
    pub(crate) all: String,
    child: std::process::Child,
}

impl Terminal {
    pub(crate) fn open(rig: &Rig, arguments: &[&str]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = || OwnedFd::from(File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap());
        // A terminal of its own, so that Ctrl-C is a signal to it.
        let mut command = Command::new("setsid");
        command.args(["-c", "-w", env!("CARGO_BIN_EXE_blockyard"), "image", "shell"]).args(arguments);
        command.current_dir(rig.directory.path()).env("XDG_STATE_HOME", rig.path("state")).env("TERM", "xterm");
        let child = command.stdin(theirs()).stdout(theirs()).stderr(theirs()).spawn().unwrap();
        let keyboard = File::from(ours);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(bytes @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..bytes].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { keyboard, screen, shown: String::new(), all: String::new(), child }
    }

    pub(crate) fn type_in(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Types `keys`, once in a while, until `text` is shown.
    fn type_until(&mut self, keys: &str, text: &str) {
        for _ in 0..10 {
            self.type_in(keys);
            let again = Instant::now() + Duration::from_secs(5);
            while let Ok(more) = self.screen.recv_timeout(again.saturating_duration_since(Instant::now())) {
                self.take(&more);
                if self.shown.contains(text) {
                    return self.wait_for(text);
                }
            }
        }
        panic!("no {text:?} in {:?}", self.shown);
    }

    /// Ends the shell, which waits for a command: whatever is typed before it does so, the terminal may drop.
    pub(crate) fn leave(&mut self) {
        self.type_in("\x04");
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not end: {}", self.all);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(self.child.wait().unwrap().success());
    }

    fn take(&mut self, more: &[u8]) {
        let more = String::from_utf8_lossy(more);
        self.shown.push_str(&more);
        self.all.push_str(&more);
    }

    /// Runs a command that takes long, and presses Ctrl-C; what is shown then. The appliance lives on.
    fn interrupt(&mut self, command: &str) {
        self.type_in(command);
        // The line is no longer edited.
        self.wait_for("\x1b[?2004l");
        self.type_until("\x03", "given up: Ctrl-C");
        self.wait_for("blockyard> ");
        assert!(!self.all.contains("the appliance is gone"), "{}", self.all);
    }

    /// Waits until `text` is shown, and forgets what came before.
    pub(crate) fn wait_for(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let more = self.screen.recv_timeout(Duration::from_secs(60));
            let more = more.unwrap_or_else(|error| panic!("no {text:?} ({error}) in {:?}", self.shown));
            self.take(&more);
        }
        let end = self.shown.find(text).unwrap() + text.len();
        self.shown.drain(..end);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended, unless a test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_shell_edits_completes_remembers_and_survives_ctrl_c() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("directory")).unwrap();
        fs::write(root.join("directory/unusual-name"), "content of it\n").unwrap();
    });
    let mut terminal = Terminal::open(&rig, &["disk.img"]);
    terminal.wait_for("blockyard> ");
    terminal.type_in("cat /dir\tunu\t\r");
    terminal.wait_for("content of it");
    terminal.wait_for("blockyard> ");
    terminal.type_in("nonsense\r");
    terminal.wait_for("there is no command nonsense");
    // Something that waits for us, and is not waited for. What is typed before it begins is for the line that is
    // edited.
    terminal.wait_for("blockyard> ");
    terminal.type_in("put - /typed\r");
    terminal.wait_for("\x1b[?2004l");
    terminal.type_until("\x03", "given up");
    terminal.wait_for("blockyard> ");
    terminal.type_in("write /after 'still the same appliance'\r");
    // The line is read, what it asks for is done, and the next one is asked for.
    terminal.wait_for("\x1b[?2004l");
    terminal.wait_for("blockyard> ");
    terminal.type_in("filesize /after | sed s/2/size:2/\r");
    terminal.wait_for("size:24");
    terminal.wait_for("blockyard> ");
    terminal.leave();
    assert!(fs::read_to_string(rig.path("state/blockyard/shell_history")).unwrap().contains("nonsense"));
    assert_eq!(rig.run("cat", &["/after"]), "still the same appliance");
    rig.check();
}

/// What comes in one piece is several lines all the same, but for what follows a command that Ctrl-C ends.
#[test]
fn lines_that_are_typed_ahead_are_done_one_after_the_other() {
    let rig = Rig::new(32, |_| {});
    let mut terminal = Terminal::open(&rig, &["disk.img"]);
    terminal.wait_for("blockyard> ");
    terminal.type_in("write /a first\rcp /a /b\r! printf 'a%sb' -third-\r! printf 'a%sb' -fou");
    terminal.wait_for("a-third-b");
    terminal.type_in("rth-\r");
    terminal.wait_for("a-fourth-b");
    terminal.wait_for("blockyard> ");
    // It says that it waits, and so has Ctrl-C to itself; but a shell that is about to start what it waits for forgets
    // it.
    terminal.type_in("! printf 'b%sc' -waits-; sleep 60\r! printf 'c%sd' -dropped-\r");
    terminal.wait_for("b-waits-c");
    terminal.type_until("\x03", "blockyard> ");
    terminal.type_in("! printf 'd%se' -goes-on-\r");
    terminal.wait_for("d-goes-on-e");
    terminal.wait_for("blockyard> ");
    terminal.leave();
    assert!(!terminal.all.contains("c-dropped-d"), "{}", terminal.all);
    assert_eq!(rig.run("cat", &["/b"]), "first");
}

/// A program of the host's may do with Ctrl-C what it likes, and a second one does not end the shell that waits for it.
#[test]
fn a_program_of_the_hosts_has_ctrl_c_to_itself() {
    let rig = Rig::new(32, |_| {});
    let mut terminal = Terminal::open(&rig, &["disk.img"]);
    terminal.wait_for("blockyard> ");
    terminal
        .type_in("! trap 'printf i%sj -hears-' INT; printf 'b%sc' -waits-; while [ ! -e done ]; do sleep 1; done\r");
    terminal.wait_for("b-waits-c");
    for _ in 0..3 {
        terminal.type_until("\x03", "i-hears-j");
        // Sooner, it is the same signal.
        std::thread::sleep(Duration::from_millis(1100));
    }
    fs::write(rig.path("done"), "").unwrap();
    terminal.wait_for("blockyard> ");
    terminal.type_in("! printf 'd%se' -goes-on-\r");
    terminal.wait_for("d-goes-on-e");
    terminal.wait_for("blockyard> ");
    terminal.leave();
}

#[test]
fn what_is_typed_and_pasted_is_what_is_seen() {
    let rig = Rig::new(32, |_| {});
    fs::create_dir_all(rig.path("state/blockyard")).unwrap();
    fs::write(rig.path("state/blockyard/shell_history"), "#V2\n! echo re\u{202e}membered\n! echo good\n").unwrap();
    let mut terminal = Terminal::open(&rig, &["disk.img"]);
    terminal.wait_for("blockyard> ");
    terminal.type_in("\x1b[200~! printf 'a%sb' \u{202e}-pas\x03\x15ted\u{85}\u{ad}\u{e0041}-\x1b[201~\r");
    terminal.wait_for("a-pasted-b");
    terminal.wait_for("blockyard> ");
    terminal.type_in("! printf 'a%sb' \u{202e}-ty\u{200b}ped\u{ad}-\x16\u{85}\r");
    terminal.wait_for("a-typed-b");
    terminal.wait_for("blockyard> ");
    terminal.type_in("\x1b[A\x1b[A\x1b[A\x1b[A\x1b[A\r");
    terminal.wait_for("good\r\n");
    terminal.wait_for("blockyard> ");
    terminal.leave();
    assert!(!terminal.all.contains(['\u{202e}', '\u{200b}', '\u{85}', '\u{ad}', '\u{e0041}']), "{:?}", terminal.all);
    assert!(terminal.all.contains('\x07') && !terminal.all.contains("membered"), "{:?}", terminal.all);
}

#[test]
fn lines_are_not_remembered_where_somebody_else_could_have_them_go_elsewhere() {
    let rig = Rig::new(32, |_| {});
    fs::create_dir(rig.path("state")).unwrap();
    fs::set_permissions(rig.path("state"), fs::Permissions::from_mode(0o777)).unwrap();
    let mut terminal = Terminal::open(&rig, &["disk.img"]);
    terminal.wait_for("blockyard> ");
    terminal.type_in("nonsense\r");
    terminal.wait_for("there is no command nonsense");
    terminal.wait_for("blockyard> ");
    terminal.leave();
    assert_eq!(fs::read_dir(rig.path("state")).unwrap().count(), 0);
}

/// On disks so slow that what is interrupted cannot have ended before.
#[test]
fn ctrl_c_ends_a_removal_and_a_tool_and_not_the_appliance() {
    let rig = Rig::new(32, |root| {
        fs::create_dir_all(root.join("tree/below")).unwrap();
        (0..800).for_each(|number| fs::write(root.join(format!("tree/below/{number}")), "x").unwrap());
    });
    File::create(rig.path("large.img")).unwrap().set_len(320 << 20).unwrap();
    let mut terminal = Terminal::open(&rig, &["--sync", "disk.img,faults=write-latency:30ms"]);
    terminal.wait_for("blockyard> ");
    terminal.interrupt("rm -r /tree\r");
    terminal.type_in("is-dir /tree/below\r");
    terminal.wait_for("true");
    terminal.wait_for("blockyard> ");
    terminal.leave();
    rig.check();

    let mut terminal = Terminal::open(&rig, &["-a", "large.img,faults=write-latency:300ms+zero-latency:300ms"]);
    terminal.wait_for("blockyard> ");
    terminal.type_in("mkfs xfs /dev/sda\r");
    terminal.wait_for("\x1b[?2004l");
    // Before it writes, it may be something else that is interrupted: the boot, for one.
    let began = std::time::Instant::now();
    while fs::metadata(rig.path("large.img")).unwrap().blocks() == 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "mkfs.xfs writes nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    terminal.type_until("\x03", "cannot make xfs on vda: mkfs.xfs was ended before it was done: given up: Ctrl-C");
    terminal.wait_for("blockyard> ");
    terminal.type_in("list-filesystems\r");
    terminal.wait_for("/dev/sda: ");
    terminal.wait_for("blockyard> ");
    assert!(!terminal.all.contains("the appliance is gone"), "{}", terminal.all);
    terminal.leave();
}

/// A disk that discards so slowly that not all can be discarded before an appliance is given up, and flushes as slowly.
#[test]
fn ctrl_c_ends_fstrim_and_umount_and_not_the_appliance() {
    // Each group of blocks of a file system of small blocks is discarded by itself: there are 16. Without a journal and
    // barriers, what is unmounted is flushed once.
    let rig = Rig::made(128, &["-b", "1024", "-m", "0", "-O", "^has_journal"], |_| {});
    let mut terminal =
        Terminal::open(&rig, &["-m", "sda:/:nobarrier", "disk.img,faults=discard-latency:1s+flush-latency:20s"]);
    terminal.wait_for("blockyard> ");
    terminal.interrupt("fstrim\r");
    terminal.type_in("write /f content\r");
    terminal.wait_for("\x1b[?2004l");
    terminal.wait_for("blockyard> ");
    terminal.interrupt("umount /\r");
    // It goes on, and is waited for.
    terminal.type_in("vfs-type /dev/sda\r");
    terminal.wait_for("ext4");
    terminal.wait_for("blockyard> ");
    terminal.leave();
    assert_eq!(rig.run("cat", &["/f"]), "content");
    rig.check();
}

/// guestfish's everyday lines, with its names and arguments.
#[test]
fn guestfishs_questions_have_its_answers() {
    let rig = Rig::empty(8);
    let lines = [
        ("sparse new.img 64M", ""),
        ("part-init /dev/sda gpt", ""),
        ("part-add /dev/sda p 2048 34815", ""),
        ("mkfs-b ext4 1024 /dev/sda1", ""),
        ("part-add /dev/sda p 34816 -34", ""),
        ("part-set-name /dev/sda 2 'my data'", ""),
        ("part-set-gpt-type /dev/sda 1 C12A7328-F81F-11D2-BA4B-00A0C93EC93B", ""),
        ("part-set-bootable /dev/sda 1 true", ""),
        ("-part-set-name /dev/sda 3 none", ""),
        ("part-get-name /dev/sda 2", "my data\n"),
        ("part-get-gpt-type /dev/sda 1", "C12A7328-F81F-11D2-BA4B-00A0C93EC93B\n"),
        ("part-get-bootable /dev/sda 1", "true\n"),
        ("part-get-bootable /dev/sda 2", "false\n"),
        ("part-to-dev /dev/sda2", "/dev/sda\n"),
        ("part-to-partnum /dev/sda2", "2\n"),
        ("nr-devices", "1\n"),
        ("device-index /dev/sda", "0\n"),
        ("blockdev-getsz /dev/sda1", "32768\n"),
        ("blockdev-getss /dev/sda", "512\n"),
        ("set-label /dev/sda1 boot", ""),
        ("blkid /dev/sda1 | grep -E '^(LABEL|TYPE)'", "LABEL: boot\nTYPE: ext4\n"),
        ("findfs-label boot", "/dev/sda1\n"),
        ("get-e2label /dev/sda1", "boot\n"),
        ("mkswap-L room /dev/sda2", ""),
        ("vfs-label /dev/sda2", "room\n"),
        ("zero /dev/sda2", ""),
        ("list-filesystems", "/dev/sda1: ext4\n/dev/sda2: unknown\n"),
        ("fsck ext4 /dev/sda1", "vda1 (ext4): clean\n"),
        ("zerofree /dev/sda1 | wc -l", "1\n"),
        ("mount /dev/sda1 /", ""),
        ("write /f \"it's one\\ntwo\\nTwo three\\n\"", ""),
        ("checksum md5 /f", "47a241d23fc35878eadebde6593aab6b\n"),
        ("checksum crc /f | wc -l", "1\n"),
        ("wc-l /f", "3\n"),
        ("wc-c /f", "23\n"),
        ("head-n 1 /f", "it's one\n"),
        ("tail-n 1 /f", "Two three\n"),
        ("grep \"it's\" /f", "it's one\n"),
        ("grepi ^two /f", "two\nTwo three\n"),
        ("egrep 'x|thr' /f", "Two three\n"),
        ("fgrep ^two /f", ""),
        ("read-file /f | head -c 4", "it's"),
        ("statns /f | grep -c ^st_", "15\n"),
        ("statns /f | grep ^st_size", "st_size: 23\n"),
        ("statvfs / | grep ^bsize", "bsize: 1024\n"),
        ("copy-file-to-file /f /g", "23 bytes (23 bytes) copied\n"),
        ("is-fifo /f", "false\n"),
        ("inspect-os", ""),
        ("cat /g | tail -n 1", "Two three\n"),
        ("inspect | tail -n 0", ""),
        ("is-file /g", "true\n"),
    ];
    let script: String = lines.iter().map(|(line, _)| format!("{line}\necho\n")).collect();
    let said = good(&rig, &[], &script);
    let wanted: String = lines.iter().map(|(_, answer)| format!("{answer}\n")).collect();
    assert_eq!(said, wanted);
    let dump = tool("sfdisk", "fdisk", ["--dump", rig.path("new.img").to_str().unwrap()]);
    assert!(dump.contains("name=\"my data\"") && dump.contains("attrs=\"LegacyBIOSBootable\""), "{dump}");
}

#[test]
fn every_command_of_the_shell_is_in_its_table() {
    let table = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shell.md")).unwrap();
    let rig = Rig::empty(8);
    let help = good(&rig, &[], "help\n");
    for name in help.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next()) {
        assert!(
            table.contains(&format!("`{name}`")) || table.contains(&format!("`{name} ")),
            "{name} is not in docs/shell.md"
        );
    }
}

#[test]
fn with_nothing_mounted_every_command_says_just_that() {
    let rig = Rig::empty(8);
    for line in [
        "ls /",
        "ll /",
        "find /",
        "df",
        "du /",
        "stat /",
        "edit /etc/hostname",
        "cat /etc/hostname",
        "copy-out / .",
        "tar-out / -",
        "command ls",
        "sh ls",
        "run -- ls",
        "write /one 1",
        "mkdir /d",
        "checksum md5 /one",
        "wc-l /one",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_blockyard"))
            .args(["image", "script", "-", "--add", "disk.img"])
            .current_dir(rig.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .and_then(|mut child| {
                let _ = child.stdin.take().unwrap().write_all(format!("run\n{line}\n").as_bytes());
                child.wait_with_output()
            })
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("nothing is mounted"), "{line}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
    }
}

#[test]
fn nothing_of_a_script_with_a_mistake_is_done_wherever_it_comes_from() {
    let rig = Rig::empty(8);
    let said = failure(script(&rig, IMAGE, "write /made x\n!touch touched\nno-such-command /\n"));
    assert!(said.contains("stdin:3: there is no command") && !said.contains("stdin:1"), "{said}");
    assert!(!rig.path("touched").exists() && !rig.run("ls", &["/"]).contains("made"));
    // The shell does each line as it comes.
    let mut command = blockyard(&rig, &["shell", "disk.img"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    for (line, answer) in [("exists /\n", "true\n"), ("exists /made\n", "false\n")] {
        input.write_all(line.as_bytes()).unwrap();
        let mut said = vec![0; answer.len()];
        output.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8(said).unwrap(), answer);
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_new_disk_is_the_file_that_was_made_whatever_it_is_called() {
    let rig = Rig::empty(8);
    for name in ["mem:1G", "-", "a,b", "null:1M"] {
        assert_eq!(good(&rig, &[], &format!("sparse {name} 1M\nblockdev-getsize64 /dev/sda\n")), "1048576\n", "{name}");
        assert_eq!(fs::metadata(rig.path(name)).unwrap().len(), 1 << 20, "{name}");
    }
}

#[test]
fn a_program_leaves_stdin_to_others_with_n() {
    let rig = with_busybox();
    let loops = |options: &str| {
        let text =
            format!("while read line; do \"$0\" image run {options} disk.img /bin/busybox cat; echo $line; done");
        let mut command = Command::new("sh");
        command.args(["-c", &text, env!("CARGO_BIN_EXE_blockyard")]).current_dir(rig.directory.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    assert_eq!(loops("-n"), "one\ntwo\n");
    assert_eq!(loops(""), "two\none\n");
}

#[test]
fn what_cannot_be_read_has_no_sum() {
    let rig = Rig::empty(8);
    for line in ["checksum md5 /none", "checksum crc /etc", "wc-l /none", "wc-w /etc", "wc-c /none"] {
        let output = script(&rig, IMAGE, &format!("-{line}\necho on\n"));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "on\n", "{line}");
        assert!(output.status.success(), "{line}");
    }
    assert_eq!(good(&rig, IMAGE, "write /four abcd\nwc-c /four\n"), "4\n");
}
