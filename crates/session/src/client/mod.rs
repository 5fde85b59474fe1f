//! A disk served by another process: `session:SOCKET` as a [`blockyard_block::Disk`].
