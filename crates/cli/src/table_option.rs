//! `--table`: which partition table counts.

use blockyard_block::partition_table::TableChoice;
use clap::ValueEnum;

/// A table by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableOption {
    /// The MBR.
    #[value(alias = "dos", alias = "msdos")]
    Mbr,
    /// The GPT.
    Gpt,
}

impl TableOption {
    /// What the option, or its absence, chooses.
    pub fn choice(option: Option<Self>) -> TableChoice {
        match option {
            None => TableChoice::Auto,
            Some(Self::Mbr) => TableChoice::Mbr,
            Some(Self::Gpt) => TableChoice::Gpt,
        }
    }
}
