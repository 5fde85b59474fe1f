//! A disk as a file, by FUSE.
