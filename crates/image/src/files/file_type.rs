//! Types of files, as they are in a mode (inode(7)).

const TYPE: u32 = 0o170_000;
const FIFO: u32 = 0o010_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const DIRECTORY: u32 = 0o040_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const SOCKET: u32 = 0o140_000;

/// Whether a mode is a directory's.
pub fn is_directory(mode: u32) -> bool {
    mode & TYPE == DIRECTORY
}

/// Whether a mode is a symbolic link's.
pub fn is_link(mode: u32) -> bool {
    mode & TYPE == LINK
}

/// Whether a mode is a regular file's.
pub fn is_regular(mode: u32) -> bool {
    mode & TYPE == REGULAR
}

/// Whether a mode is that of a file that is a device.
pub fn is_device(mode: u32) -> bool {
    matches!(mode & TYPE, CHARACTER_DEVICE | BLOCK_DEVICE)
}

/// The letter that find(1) and ls(1) have for a type: `-` for regular files.
pub fn type_letter(mode: u32) -> char {
    match mode & TYPE {
        DIRECTORY => 'd',
        LINK => 'l',
        CHARACTER_DEVICE => 'c',
        BLOCK_DEVICE => 'b',
        FIFO => 'p',
        SOCKET => 's',
        _ => '-',
    }
}
