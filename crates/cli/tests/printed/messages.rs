//! What a new user gets wrong, and what is said to it: held in tests/data/messages.txt.

use crate::expected;
use crate::support::{Yard, blockyard, run};
use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::symlink;

/// Command lines without `blockyard`: words in the wrong place, files that are not there or are none, options that
/// there are not.
const LINES: &str = "
convert a.img b.qcow2
info a.img
create x.img 1G
ls a.img
disk a.img
upload a.img
image partitions a.img
image upload
image upload a.img
image mount a.img sda1 /
image exit a.img
image nonsense a.img
image convert --progress a.img b.qcow2
copy a.img b.img --progress
image create --sector-size 4K x.img 1G
copy a.img b.img --sector-size 4K
image ls a.img --readonly
image put notes a.img /
image put a.img
image put a.img notes
image get a.img /notes
image cp a.img /a --boo /b
image mv a.img /a
image mkfs a.img
image mkfs a.img sda1
image measure
image mkfs a.img ext4 -- /dev/sdb
image tar-in notes a.img
image tar-in a.img directory notes
image tar-in a.img nosuch notes
image tar-in a.img directory
image dd if=a of=b
image dd a.img if=a of=b
image ls
image ls nosuch
image ls directory
image ls notes,colour=red
image info nosuch
image info nosuch,ro
image info directory
image map nosuch
image check nosuch
image measure nosuch
image compare a.img nosuch
image convert nosuch b.qcow2
image convert a.img
image convert a.img directory/none/b.img
image convert a.img a.img
image convert a.img link
image convert a.img -
image convert -f dmg a.img b.img
image convert -O qed a.img b.img
image convert -O parallels a.img b.img
image check session:s
image resize a.img,ro 2M
image create
image create x.img
image create -f parallels x.img 1M
image create -f qcwo2 x.img 1M
image create - 1M
image create x.img 1M --part 1G
image create x.img 1G --table gpt --part 1G,type=moon
image create x.img 1G --table gpt --part big
image resize a.img
image commit a.img
image rebase a.img
image script nosuch
image script a.img notes
image find a.img -nonsense
image cat a.img
image run a.img
image ls a.img,partition=5
partitions nosuch
partitions directory
partitions a.img,partition=5
copy a.img
copy nosuch b.img
copy a.img,ro a.img
copy - b.img
copy a.img,partition=5 b.img
copy a.img b.img format=raw
serve a.img
serve nosuch --socket s
serve a.img --once=yes
serve a.img --partition 5=s
bench disk nosuch
bench disk a.img --size 100
doctor now
";

#[test]
fn what_is_wrong_is_said_with_what_would_be_right() {
    let yard = Yard::new();
    yard.sparse("a.img", 1 << 20, &[], 1);
    fs::write(yard.path("notes"), "notes\n").unwrap();
    fs::create_dir(yard.path("directory")).unwrap();
    symlink("a.img", yard.path("link")).unwrap();
    let names = yard.names();
    let mut text = String::new();
    for line in LINES.lines().filter(|line| !line.is_empty()) {
        let mut command = blockyard();
        let outcome = run(command.current_dir(yard.path("")).args(line.split(' ')));
        let said = [outcome.stdout, outcome.stderr].concat();
        for twice in ["For more information", "partition 5"] {
            assert!(said.matches(twice).count() <= 1, "{line}: {said}");
        }
        let status = outcome.code.unwrap();
        assert_ne!(status, 0, "{line}: {said}");
        writeln!(text, "$ blockyard {line}\n{}\n[{status}]\n", said.trim_end()).unwrap();
    }
    assert_eq!(yard.names(), names, "something was made");
    expected::check("messages.txt", &text);
}

/// What a name does not say of a new image is said once.
#[test]
fn a_new_image_says_how_it_is_named_from_now_on() {
    let yard = Yard::new();
    yard.sparse("disk.img", 1 << 20, &[], 1);
    let told = |words: &str| {
        let mut command = blockyard();
        run(command.current_dir(yard.path("")).args(words.split(' '))).succeeded().stderr
    };
    let note = |name: &str, format: &str| {
        format!(
            "blockyard: {name} is {format}, which its name does not say: other commands want {name},format={format}\n"
        )
    };
    assert_eq!(told("image create -f qcow2 a.img 1M"), note("a.img", "qcow2"));
    assert_eq!(told("image create -f raw b.qcow2 1M"), note("b.qcow2", "raw"));
    assert_eq!(told("image convert -O qcow2 disk.img c"), note("c", "qcow2"));
    for silent in [
        "image create -q -f qcow2 d.img 1M",
        "image create -f qcow2 e.qcow2 1M",
        "image create f.img,format=qcow2 1M",
        "image create -f raw g 1M",
        "image convert -O qcow2 disk.img h.qcow2",
        "image convert -q -O qcow2 disk.img i",
        "image convert -n -O qcow2 disk.img a.img",
    ] {
        assert_eq!(told(silent), "", "{silent}");
    }
    // An MBR is one by each of its names.
    for table in ["mbr", "dos", "msdos"] {
        told(&format!("image create -q --table {table} --part rest {table}.img 8M"));
        told(&format!("partitions --table {table} {table}.img"));
        told(&format!("image measure {table}.img,partition=1,table={table}"));
    }
}

/// Commands with a word of the user's, `W`, that each of them has something against.
const WORDS: &str = "
W
W a.img
doctor W
copy a.img --input-sector-size W
copy a.img b.img,W
serve a.img,W --socket s
partitions a.img,partition=W
bench disk a.img --size W
bench copy --directory W
image W
image ls a.img --W
image ls a.img --ro=W
image ls a.img --timeout W
image ls a.img --key W
image ls a.img -m W:W
image commit W
image create W,format=W 1M
image create -b W x.qcow2
image create x.img 1M --table gpt --part W
image convert a.img b.img -o W
image chmod a.img W /f
image fill a.img W 1 /f
image fill a.img 1 W /f
image dd a.img bs=W if=sda of=-
image dd a.img W=W
image find a.img W -W
image find a.img -type W
image find a.img -size W
image find a.img -perm W
image mkfs a.img W
image mkfs a.img ext4 -- W
image put a.img W
image part-init a.img sda W
image part-list a.img W
image lvcreate a.img W W 1
image set-label a.img W W
image tar-in a.img W W compress:W
";

/// Runs those with that word, each of which fails, and not by a panic.
fn with_word(yard: &Yard, word: &[u8], mut look: impl FnMut(&str, &str)) {
    for line in WORDS.lines().filter(|line| !line.is_empty()) {
        let words = line.split(' ').map(|part| {
            let pieces: Vec<_> = part.split('W').map(str::as_bytes).collect();
            OsString::from_vec(pieces.join(word))
        });
        let outcome = run(blockyard().current_dir(yard.path("")).args(words));
        assert!(matches!(outcome.code, Some(1 | 2)), "{line}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{line}: {outcome:?}");
        look(line, &outcome.stderr);
    }
}

#[test]
fn the_users_own_words_end_no_line() {
    let yard = Yard::new();
    yard.sparse("a.img", 1 << 20, &[], 1);
    let begins_with_it = |said: &str| said.lines().any(|line| line.starts_with("INJECTED"));
    with_word(&yard, b"w\nINJECTED", |line, said| assert!(!begins_with_it(said), "{line}: {said}"));
}

#[test]
fn a_word_that_has_to_be_utf_8_is_named() {
    let yard = Yard::new();
    yard.sparse("a.img", 1 << 20, &[], 1);
    with_word(&yard, b"w\xff", |line, said| assert!(said.contains("w\u{fffd}"), "{line}: {said}"));
    // Of several the one that is wrong.
    let words = [b"chown".to_vec(), b"a.img".to_vec(), b"owner\xff".to_vec(), b"/file\xff".to_vec()];
    let outcome = run(blockyard().arg("image").args(words.map(OsString::from_vec)));
    let said = outcome.failed(2, &["it is owner\u{fffd}:"]).stderr;
    assert!(!said.contains("/file"), "{said}");
}
