//! What a check of an image may change, and what it finds: of every format that has tables.

/// What a check of an image found. The counts are `qemu-img check`'s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Things that are wrong, so that data may be lost, or be when the image is written to.
    pub corruptions: u64,
    /// Entries among what is wrong that lead to what begins behind the end of the file, or of the data file: it cannot
    /// be read.
    pub missing: u64,
    /// Clusters that nothing refers to and that are not free.
    pub leaks: u64,
    /// How many of the first were put right.
    pub corruptions_fixed: u64,
    /// How many clusters were freed.
    pub leaks_fixed: u64,
    /// Bytes of the disk, and of snapshots, that lay behind the end of the file, and became zeros.
    pub zeroed_bytes: u64,
    /// Clusters of the disk.
    pub total_clusters: u64,
    /// Those that have a place in the file.
    pub allocated_clusters: u64,
    /// Those that do not follow the one before them.
    pub fragmented_clusters: u64,
    /// Those that are compressed.
    pub compressed_clusters: u64,
    /// The end of what is in use in the file.
    pub image_end_bytes: u64,
}

/// What a check may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// Nothing.
    #[default]
    None,
    /// Clusters that nothing refers to are freed.
    Leaks,
    /// Refcounts and the marks that depend on them are put right, too.
    All,
}
