//! Serving disks to vhost-user-blk clients.
