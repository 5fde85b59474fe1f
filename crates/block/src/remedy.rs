//! What would help, in the words of the program that says it.
//!
//! A library knows what would help, but not how people have it done: on a command line it is an option, elsewhere a
//! function. So an error says it by a [`Remedy`], which has plain words of its own. A program that has better ones
//! gives them by [`Remedy::say_as`].

use std::fmt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// What would help, as a part of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy<'a> {
    /// An image refers to a file in this directory, which was not allowed. Goes on with the file's name.
    AllowDirectory(&'a Path),
    /// Disks are missing.
    AddDisks,
    /// The key of an encrypted volume is missing.
    GiveKey,
    /// An image has no kernel that can be booted.
    GiveKernel,
    /// A kernel is one for a machine, and not a program.
    TakeKvm,
    /// A kernel is a program, and not one for a machine.
    TakeUserModeLinux,
    /// What a key is given by, as the beginning of a sentence.
    Key,
    /// The appliance has to have so many MiB.
    GiveMemory(u64),
    /// The appliance may have had too little memory.
    MoreMemory,
    /// It has had too little, and it was so many MiB.
    MoreMemoryThan(u64),
    /// The appliance's memory has no place.
    LessMemory,
    /// What says how long something may do nothing.
    Timeout,
    /// It has done nothing for too long.
    LongerTimeout,
    /// An image would become smaller.
    LetShrink,
    /// What says how much of a disk gets storage.
    Preallocation,
    /// An image is too small.
    LargerImage,
    /// A file system may be damaged, later.
    RepairFileSystem,
    /// What repairs an image's tables.
    RepairImage,
    /// How a change to an image that was cut off is completed.
    CompleteChange,
    /// How an image is changed that is changed as a whole or not at all.
    Atomically,
    /// How an image is changed that cannot be changed so.
    NotAtomically,
    /// Remains of a GPT could count.
    UseGpt,
    /// What stands before the name of the partition table that counts.
    ChooseTable,
    /// An image that is to be written can be read.
    OpenReadOnly,
    /// Nobody listens on a session's socket.
    StartServer,
    /// A server does not let this user in.
    LetUsersIn,
    /// A server of a partition does not let this user in.
    LetUserIn(u32),
    /// All of a server's queues are in use.
    MoreQueues,
    /// Two partitions of a disk are open at once.
    ServePartitions,
    /// A compressed file is read from its beginning to its end.
    ReadOnce,
    /// A compressed file becomes larger than it may.
    AllowMore,
    /// Somebody wants a disk to be a stream, and is told what a file of that name is called.
    CopyStreams,
}

type Words = fn(Remedy<'_>) -> Option<String>;

static WORDS: RwLock<Option<Words>> = RwLock::new(None);

impl Remedy<'_> {
    /// This program says remedies so from now on; `None`: in the plain words.
    pub fn say_as(words: Words) {
        *WORDS.write().unwrap_or_else(PoisonError::into_inner) = Some(words);
    }

    fn plain(self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::AllowDirectory(directory) => {
                return write!(
                    formatter,
                    "which lies in no directory that was allowed; if you trust the image, allow {}",
                    crate::shown(directory)
                );
            }
            Self::GiveMemory(mebibytes) => return write!(formatter, "the appliance has to have {mebibytes} MiB"),
            Self::MoreMemoryThan(mebibytes) => {
                return write!(formatter, "it can have more than {mebibytes} MiB");
            }
            Self::LetUserIn(uid) => return write!(formatter, "allow {uid}, if they shall"),
            Self::AddDisks => "add them",
            Self::GiveKey => "give its key, or have somebody asked for it",
            Self::GiveKernel => "give a kernel of your own",
            Self::TakeKvm => "have KVM boot it",
            Self::TakeUserModeLinux => "have it run as the program that it is",
            Self::Key => "key",
            Self::MoreMemory => "the appliance can have more",
            Self::LessMemory => "ask for less",
            Self::Timeout => "its timeout",
            Self::LongerTimeout => "its timeout can be longer",
            Self::LetShrink => "allow it to become smaller",
            Self::Preallocation => "preallocation",
            Self::LargerImage => "make the image larger first",
            Self::RepairFileSystem => {
                "a check of the file system repairs what is damaged, and as an atomic change such a one would be undone"
            }
            Self::RepairImage => "`Qcow2Check`",
            Self::CompleteChange => "by opening it as a disk, for writing",
            Self::Atomically => "as a whole",
            Self::NotAtomically => "change it in place",
            Self::UseGpt => "whoever asks for the GPT uses them all the same",
            Self::ChooseTable => "",
            Self::OpenReadOnly => "it can be opened for reading only",
            Self::StartServer => "is its server running?",
            Self::LetUsersIn => "have the server let you in",
            Self::MoreQueues => "serve it with more",
            Self::ServePartitions => "serve its partitions",
            Self::ReadOnce => "a conversion or a copy of all of it reads it",
            Self::AllowMore => "allow it more",
            Self::CopyStreams => "",
        };
        formatter.write_str(words)
    }
}

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = *WORDS.read().unwrap_or_else(PoisonError::into_inner);
        match words.and_then(|words| words(*self)) {
            Some(words) => formatter.write_str(&words),
            None => self.plain(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_name_no_option_and_no_command() {
        use Remedy as R;
        let directory = Path::new("/srv");
        let all = [
            [R::AllowDirectory(directory), R::AddDisks, R::GiveKey, R::Key, R::GiveMemory(512), R::MoreMemory],
            [R::MoreMemoryThan(256), R::LessMemory, R::Timeout, R::LongerTimeout, R::LetShrink, R::Preallocation],
            [R::LargerImage, R::RepairFileSystem, R::RepairImage, R::CompleteChange, R::Atomically, R::NotAtomically],
            [R::UseGpt, R::ChooseTable, R::StartServer, R::LetUsersIn, R::LetUserIn(7), R::MoreQueues],
        ];
        for remedy in all.into_iter().flatten().chain([
            R::ServePartitions,
            R::CopyStreams,
            R::GiveKernel,
            R::TakeKvm,
            R::TakeUserModeLinux,
            R::OpenReadOnly,
            R::ReadOnce,
            R::AllowMore,
        ]) {
            let words = remedy.to_string();
            assert!(!words.contains("--") && !words.contains("blockyard "), "{remedy:?}: {words}");
        }
    }
}
