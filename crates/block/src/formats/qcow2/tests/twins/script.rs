//! What is done to twins: drawn by chance, of what there is at the moment.

use super::Random;

/// What an image is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Making {
    pub(super) cluster_bits: u32,
    /// 2 or 3.
    pub(super) version: u32,
    pub(super) refcount_order: u32,
    pub(super) has_extended_l2: bool,
    pub(super) is_lazy: bool,
    pub(super) is_zstd: bool,
}

impl Making {
    pub(super) fn drawn(random: &mut Random) -> Self {
        let cluster_bits = if random.one_of(2) { 9 + random.below(13) } else { 12 + random.below(5) } as u32;
        if random.one_of(5) {
            let (is_lazy, is_zstd) = (false, false);
            return Self { cluster_bits, version: 2, refcount_order: 4, has_extended_l2: false, is_lazy, is_zstd };
        }
        let refcount_order = if random.one_of(2) { 4 } else { random.below(7) } as u32;
        let has_extended_l2 = cluster_bits >= 14 && random.one_of(2);
        let (is_lazy, is_zstd) = (random.one_of(4), random.one_of(3));
        Self { cluster_bits, version: 3, refcount_order, has_extended_l2, is_lazy, is_zstd }
    }

    /// For `qemu-img -o`.
    pub(super) fn options(&self) -> String {
        let cluster_size = 1 << self.cluster_bits;
        if self.version == 2 {
            return format!("cluster_size={cluster_size},compat=0.10");
        }
        let on = |is: bool| if is { "on" } else { "off" };
        format!(
            "cluster_size={cluster_size},compat=1.1,refcount_bits={},extended_l2={},lazy_refcounts={},compression_type={}",
            1 << self.refcount_order,
            on(self.has_extended_l2),
            on(self.is_lazy),
            if self.is_zstd { "zstd" } else { "zlib" },
        )
    }
}

/// What is behind an image in the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    Raw,
    Qcow2,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Write {
        offset: u64,
        length: u64,
        byte: u8,
    },
    Zero {
        offset: u64,
        length: u64,
        unmap: bool,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    Resize {
        size: u64,
    },
    Snapshot {
        change: SnapshotChange,
        name: String,
    },
    Bitmap {
        change: BitmapChange,
        name: String,
    },
    Commit,
    /// Another backing file, or none.
    Rebase {
        name: &'static str,
    },
    Convert {
        making: Making,
        compress: bool,
    },
    /// Other options; what is none stays as it is.
    Amend {
        version: Option<u32>,
        is_lazy: Option<bool>,
        refcount_order: Option<u32>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotChange {
    Make,
    Apply,
    Remove,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BitmapChange {
    Add { granularity_bytes: u64 },
    Remove,
    Clear,
    Enable,
    Disable,
    Merge { source: String },
}

impl Step {
    /// Whether it is a request to the disk.
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero { .. } | Self::Discard { .. })
    }

    /// For a disk of `size` bytes, whose image was made so and has these snapshots and bitmaps.
    pub(super) fn drawn(
        random: &mut Random,
        size: u64,
        making: &Making,
        snapshots: &[String],
        bitmaps: &[String],
    ) -> Self {
        let sectors = size / 512;
        let start = random.below(sectors);
        let length_max = if random.one_of(3) { sectors } else { 48 };
        let (offset, length) = (start * 512, (1 + random.below(length_max)).min(sectors - start) * 512);
        match random.below(42) {
            0..18 => Self::Write { offset, length, byte: 1 + random.below(250) as u8 },
            18..25 => Self::Zero { offset, length, unmap: random.one_of(2) },
            25..29 => Self::Discard { offset, length },
            29 | 30 => Self::Resize { size: (1 + random.below(2 * sectors.min(4096))) * 512 },
            31..34 => {
                let change =
                    [SnapshotChange::Make, SnapshotChange::Apply, SnapshotChange::Remove][random.below(3) as usize];
                match (change, snapshots) {
                    (SnapshotChange::Make, _) | (_, []) => {
                        let name = format!("snapshot {}", random.below(1000));
                        Self::Snapshot { change: SnapshotChange::Make, name }
                    }
                    _ => Self::Snapshot { change, name: random.of(snapshots).clone() },
                }
            }
            34..37 if bitmaps.is_empty() || random.one_of(3) => {
                let granularity_bytes = 512 << random.below(9);
                let change = BitmapChange::Add { granularity_bytes };
                Self::Bitmap { change, name: format!("bitmap {}", random.below(1000)) }
            }
            34..37 => {
                let source = random.of(bitmaps).clone();
                let change = match random.below(6) {
                    0 => BitmapChange::Remove,
                    1 => BitmapChange::Clear,
                    2 => BitmapChange::Enable,
                    3 => BitmapChange::Disable,
                    _ => BitmapChange::Merge { source },
                };
                Self::Bitmap { change, name: random.of(bitmaps).clone() }
            }
            37 => Self::Commit,
            38 => Self::Rebase { name: ["", "base", "other"][random.below(3) as usize] },
            39 => Self::Convert { making: Making::drawn(random), compress: random.one_of(2) },
            _ => {
                let version = random.one_of(2).then(|| 2 + random.below(2) as u32);
                let is_lazy = random.one_of(3).then(|| random.one_of(2));
                let order = random.below(7) as u32;
                // It takes qemu-img a second with twice as many refcounts in a block, and four with four times as many.
                let is_quick = making.cluster_bits + 3 - making.refcount_order <= 13;
                let refcount_order = (is_quick && (version.is_none() || random.one_of(3))).then_some(order);
                // Something is to change, or QEMU says that nothing was named.
                let is_lazy = if version.or(refcount_order).is_none() { is_lazy.or(Some(true)) } else { is_lazy };
                Self::Amend { version, is_lazy, refcount_order }
            }
        }
    }
}
