//! What a new user gets wrong, and what is said to it: held in tests/data/messages.txt.

use crate::expected;
use crate::support::{Yard, blockyard, run};
use std::fmt::Write;
use std::fs;

/// Command lines without `blockyard`: words in the wrong place, files that are not there or are none, options that there are not.
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
image tar-in notes a.img
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
image create
image create x.img
image create x.img 1M --part 1G
image create x.img 1G --table gpt --part 1G,type=moon
image create x.img 1G --table gpt --part big
image resize a.img
image commit a.img
image rebase a.img
image script nosuch
image find a.img -nonsense
image cat a.img
image run a.img
image ls a.img,partition=5
partitions nosuch
partitions directory
partitions a.img,partition=5
copy a.img
copy nosuch b.img
copy a.img,partition=5 b.img
serve a.img
serve nosuch --socket s
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
