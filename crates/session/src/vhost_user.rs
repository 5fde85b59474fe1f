//! The numbers of the vhost-user protocol, for both of its ends (QEMU, docs/interop/vhost-user.rst).

/// Bytes of a message's header: request, flags and size of the body, 32 bits each.
pub(crate) const HEADER_BYTES: usize = 12;
/// The protocol's version, in a header's flags.
pub(crate) const VERSION: u32 = 1;
pub(crate) const VERSION_MASK: u32 = 3;
/// In the flags: this answers a request.
pub(crate) const REPLY: u32 = 1 << 2;
/// In the flags: whoever asks wants to hear whether it was done.
pub(crate) const NEED_REPLY: u32 = 1 << 3;
/// Memory regions that SET_MEM_TABLE may have, and so descriptors that a message may carry ("Multiple memory regions").
pub(crate) const TABLE_REGIONS_MAX: usize = 8;
/// Ahead of a region in ADD_MEM_REG and REM_MEM_REG, and ahead of the table in SET_MEM_TABLE.
pub(crate) const REGION_PREFIX_BYTES: usize = 8;
/// A region: guest address, size, user address and offset in the file.
pub(crate) const REGION_BYTES: usize = 32;
/// VHOST_USER_MAX_CONFIG_SIZE.
pub(crate) const CONFIG_BYTES_MAX: usize = 256;
/// Offset, size and flags, ahead of a piece of the configuration space.
pub(crate) const CONFIG_PREFIX_BYTES: usize = 12;
/// VHOST_USER_BACKEND_CONFIG_CHANGE_MSG: what a back end sends of its own accord.
pub(crate) const BACKEND_CONFIG_CHANGE: u32 = 2;
/// VHOST_USER_F_PROTOCOL_FEATURES, among the device's features.
pub(crate) const FEATURE_PROTOCOL_FEATURES: u64 = 1 << 30;
/// Among the device's features, not the specification's: the client may have further connections
/// ([`further`](crate::further)). Drivers leave features alone that they do not know, as virtio demands, while some
/// front ends (of the vhost crate) give up where there is a protocol feature that they do not know.
pub(crate) const FEATURE_FURTHER: u64 = 1 << 62;
/// The same: nobody but the client changes what it is served, for as long as it is there.
pub(crate) const FEATURE_ALONE: u64 = 1 << 63;

/// The protocol's own features ("Protocol features").
pub(crate) mod protocol {
    pub(crate) const MQ: u64 = 1 << 0;
    pub(crate) const REPLY_ACK: u64 = 1 << 3;
    pub(crate) const BACKEND_REQ: u64 = 1 << 5;
    pub(crate) const CONFIG: u64 = 1 << 9;
    pub(crate) const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub(crate) const RESET_DEVICE: u64 = 1 << 13;
    pub(crate) const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub(crate) const STATUS: u64 = 1 << 16;
}

/// What a front end asks ("Front-end message types").
pub(crate) mod code {
    macro_rules! codes {
        ($($name:ident = $code:literal,)*) => {
            $(pub(crate) const $name: u32 = $code;)*

            /// What the specification calls a request.
            pub(crate) fn name(code: u32) -> &'static str {
                match code {
                    $($code => stringify!($name),)*
                    _ => "an unknown request",
                }
            }
        };
    }

    codes! {
        GET_FEATURES = 1,
        SET_FEATURES = 2,
        SET_OWNER = 3,
        RESET_OWNER = 4,
        SET_MEM_TABLE = 5,
        SET_LOG_BASE = 6,
        SET_VRING_NUM = 8,
        SET_VRING_ADDR = 9,
        SET_VRING_BASE = 10,
        GET_VRING_BASE = 11,
        SET_VRING_KICK = 12,
        SET_VRING_CALL = 13,
        SET_VRING_ERR = 14,
        GET_PROTOCOL_FEATURES = 15,
        SET_PROTOCOL_FEATURES = 16,
        GET_QUEUE_NUM = 17,
        SET_VRING_ENABLE = 18,
        SET_BACKEND_REQ_FD = 21,
        GET_CONFIG = 24,
        SET_CONFIG = 25,
        GET_INFLIGHT_FD = 31,
        SET_INFLIGHT_FD = 32,
        RESET_DEVICE = 34,
        GET_MAX_MEM_SLOTS = 36,
        ADD_MEM_REG = 37,
        REM_MEM_REG = 38,
        SET_STATUS = 39,
        GET_STATUS = 40,
        // With FEATURE_FURTHER.
        ADD_CONNECTION = 1000,
        GET_CONNECTION_COUNTS = 1001,
        SETTLE_CONNECTIONS = 1002,
        GET_SETTLED_CONNECTIONS = 1003,
    }
}
