//! What a server offers and we take: the handshake.

use super::block_config::BlockConfig;
use super::connection::Connection;
use super::error::SessionError;
use super::limits::Limits;
use crate::vhost_user::{FEATURE_ALONE, FEATURE_FURTHER, FEATURE_PROTOCOL_FEATURES, TABLE_REGIONS_MAX, protocol};
use blockyard_block::EventFd;
use blockyard_block::Geometry;
use std::sync::Arc;
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};

/// A virtqueue's number has eight bits where a descriptor comes with it.
const QUEUES_MAX: u64 = 256;
/// Most memory regions that we keep account of.
const MEMORY_SLOTS_MAX: u64 = 512;

/// What we make use of.
const FEATURES: u64 = 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_EVENT_IDX
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | 1 << blk::VIRTIO_BLK_F_SIZE_MAX
    | 1 << blk::VIRTIO_BLK_F_SEG_MAX
    | 1 << blk::VIRTIO_BLK_F_RO
    | 1 << blk::VIRTIO_BLK_F_BLK_SIZE
    | 1 << blk::VIRTIO_BLK_F_FLUSH
    | 1 << blk::VIRTIO_BLK_F_TOPOLOGY
    | 1 << blk::VIRTIO_BLK_F_MQ
    | 1 << blk::VIRTIO_BLK_F_DISCARD
    | 1 << blk::VIRTIO_BLK_F_WRITE_ZEROES
    | FEATURE_PROTOCOL_FEATURES;

/// And where the disk is passed on: a server without what another one had is none that goes on with it.
const PASSED_ON: u64 = FEATURE_FURTHER | FEATURE_ALONE;

const PROTOCOL_FEATURES: u64 =
    protocol::MQ | protocol::REPLY_ACK | protocol::CONFIG | protocol::CONFIGURE_MEM_SLOTS | protocol::BACKEND_REQ;

/// What was negotiated with a server, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    pub(super) features: u64,
    pub(super) protocol: u64,
    /// Virtqueues: at least one.
    pub(super) queues: u16,
    /// Memory regions that it maps.
    pub(super) memory_slots: usize,
    pub(super) limits: Limits,
    pub(super) geometry: Geometry,
}

impl Offer {
    /// Whether regions are added and removed one by one.
    pub(super) fn adds_regions(&self) -> bool {
        self.protocol & protocol::CONFIGURE_MEM_SLOTS != 0
    }

    /// Whether nobody else changes the disk.
    pub(super) fn is_alone(&self) -> bool {
        self.features & FEATURE_ALONE != 0
    }

    /// Whether there may be further connections.
    pub(super) fn takes_further(&self) -> bool {
        self.features & FEATURE_FURTHER != 0
    }

    pub(super) fn event_idx(&self) -> bool {
        self.features & 1 << VIRTIO_RING_F_EVENT_IDX != 0
    }

    pub(super) fn indirect(&self) -> bool {
        self.features & 1 << VIRTIO_RING_F_INDIRECT_DESC != 0
    }

    /// Negotiates with a server on a new connection, of a disk that `is_passed_on` or not. `before` is what was agreed
    /// on the last one: no less will do, and no more is taken.
    pub(super) fn negotiate(
        connection: &mut Connection,
        stop: &Arc<EventFd>,
        is_passed_on: bool,
        before: Option<&Self>,
    ) -> Result<Self, SessionError> {
        let socket = Arc::clone(connection.name());
        let changed = |detail: &str| SessionError::Changed { socket: Arc::clone(&socket), detail: detail.to_owned() };
        let unusable = |detail: String| SessionError::NoBlockDevice { socket: Arc::clone(&socket), detail };
        connection.set_owner()?;
        let offered = connection.get_features()?;
        let wanted = FEATURES | if is_passed_on { PASSED_ON } else { 0 };
        let features = before.map_or(offered & wanted, |before| before.features);
        check_features(offered & features).map_err(|detail| unusable(detail.to_owned()))?;
        if features & !offered != 0 {
            return Err(changed("it lacks features that it had"));
        }
        if before.is_some() && offered & !features & 1 << blk::VIRTIO_BLK_F_RO != 0 {
            return Err(changed("it is read-only now"));
        }
        let offered = connection.get_protocol_features()?;
        let protocol = before.map_or(offered & PROTOCOL_FEATURES, |before| before.protocol);
        if protocol & !offered != 0 {
            return Err(changed("it lacks features that it had"));
        }
        if protocol & protocol::CONFIG == 0 {
            return Err(unusable("it has no configuration, which a disk must have".to_owned()));
        }
        connection.set_protocol_features(protocol)?;
        let mut offer = Self::ask(connection, features, protocol, stop)?;
        if let Some(before) = before {
            offer.memory_slots = offer.memory_slots.min(before.memory_slots);
            before.check_successor(&offer).map_err(changed)?;
        }
        Ok(offer)
    }

    fn ask(
        connection: &mut Connection,
        features: u64,
        protocol: u64,
        stop: &Arc<EventFd>,
    ) -> Result<Self, SessionError> {
        let has = |feature| protocol & feature != 0;
        let queues = if has(protocol::MQ) { connection.get_queue_count()?.min(QUEUES_MAX) } else { 1 };
        let memory_slots = match has(protocol::CONFIGURE_MEM_SLOTS) {
            true => connection.get_memory_slots()?.min(MEMORY_SLOTS_MAX) as usize,
            false => TABLE_REGIONS_MAX,
        };
        if has(protocol::BACKEND_REQ) {
            connection.open_backend_channel(stop)?;
        }
        connection.set_features(features)?;
        let config = BlockConfig::new(connection.get_block_config()?, features);
        let socket = Arc::clone(connection.name());
        let unusable = |detail| SessionError::NoBlockDevice { socket, detail };
        let described = config.geometry().and_then(|geometry| Ok((geometry, config.limits()?)));
        let (geometry, limits) = described.map_err(unusable)?;
        // Both say how many virtqueues there are; the fewer are sure to be there.
        let queues = (queues as u16).min(config.queues()).max(1);
        Ok(Self { features, protocol, queues, memory_slots, limits, geometry })
    }

    /// Whether a server with `next` can carry on what was begun with this one.
    fn check_successor(&self, next: &Self) -> Result<(), &'static str> {
        if next.geometry.capacity_bytes < self.geometry.capacity_bytes {
            return Err("it is smaller");
        }
        if next.geometry.logical_block_bytes != self.geometry.logical_block_bytes {
            return Err("its blocks have another size");
        }
        if next.queues < self.queues {
            return Err("it has fewer virtqueues");
        }
        if !next.limits.include(&self.limits) {
            return Err("it takes smaller requests");
        }
        Ok(())
    }
}

fn check_features(features: u64) -> Result<(), &'static str> {
    if features & FEATURE_PROTOCOL_FEATURES == 0 {
        return Err("it does not negotiate the protocol's features");
    }
    if features & 1 << VIRTIO_F_VERSION_1 == 0 {
        return Err("it is a legacy device, from before virtio 1.0");
    }
    Ok(())
}
