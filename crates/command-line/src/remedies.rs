//! What would help, in the command line's words: options and commands.

use blockyard_block::{Remedy, shell_word};

/// The libraries' errors name options and commands from now on.
pub fn name_options() {
    Remedy::say_as(words);
}

/// The same, and those of `blockyard run` where it has others.
pub fn name_options_of_run() {
    Remedy::say_as(|remedy| match remedy {
        Remedy::AddDisks => Some("name them with --disk".to_owned()),
        // A number alone would be bytes.
        Remedy::GiveMemory(mebibytes) => words(Remedy::GiveMemory(mebibytes)).map(|words| words + "M"),
        Remedy::OpenReadOnly => Some("--snapshot, or ',ro' behind its name, leaves it as it is".to_owned()),
        _ => words(remedy),
    });
}

fn words(remedy: Remedy<'_>) -> Option<String> {
    let words = match remedy {
        Remedy::AllowDirectory(directory) => {
            let directory = shell_word(&directory.to_string_lossy());
            return Some(format!("which no --allow-dir covers; if you trust the image, give --allow-dir {directory}"));
        }
        Remedy::GiveMemory(mebibytes) => return Some(format!("give it with --memory {mebibytes}")),
        Remedy::MoreMemoryThan(mebibytes) => return Some(format!("--memory gives it more than {mebibytes} MiB")),
        Remedy::LetUserIn(uid) => return Some(format!("--allow-uid or uid={uid} would let them")),
        Remedy::AddDisks => "--add them",
        Remedy::GiveKey => "give its key with --key-file or --key, or a terminal to type it at",
        Remedy::GiveKernel => "give a kernel of your own with `blockyard run --kernel`",
        Remedy::TakeKvm => "boot it with --backend kvm",
        Remedy::TakeUserModeLinux => "run it with --backend uml",
        Remedy::Key => "--key",
        Remedy::MoreMemory => "--memory gives the appliance more",
        Remedy::LessMemory => "ask for less (--memory)",
        Remedy::Timeout => "--timeout",
        Remedy::LongerTimeout => "--timeout gives it longer",
        Remedy::LetShrink => "add --shrink",
        Remedy::Preallocation => "--preallocation",
        Remedy::LargerImage => "`blockyard image resize` makes raw, qcow2 and LUKS images larger",
        Remedy::RepairFileSystem => {
            "`blockyard image fsck -y` repairs what is damaged, and with --atomic such a change would be undone"
        }
        Remedy::RepairImage => "`blockyard image check -r all`",
        Remedy::CompleteChange => "with `blockyard image check -r leaks` or any command that writes to it",
        Remedy::Atomically => "with --atomic",
        Remedy::NotAtomically => "leave out --atomic",
        Remedy::UseGpt => "--table gpt uses them all the same",
        Remedy::ChooseTable => "--table ",
        Remedy::StartServer => "is `blockyard serve` running?",
        Remedy::LetUsersIn => "have it served with --allow-uid",
        Remedy::MoreQueues => "serve it with more (--queues)",
        Remedy::ServePartitions => "serve its partitions (blockyard serve --partition)",
        Remedy::ReadOnce => "`blockyard image convert` and `blockyard copy` read it",
        Remedy::AllowMore => "--size-max allows it more",
        Remedy::CopyStreams => "`blockyard image dd` copies between them and a disk (if=-, of=-); ",
        _ => return None,
    };
    Some(words.to_owned())
}
