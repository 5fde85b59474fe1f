//! The vhost-user messages that a client sends, parsed once.
//!
//! The format is the vhost-user specification's (QEMU, docs/interop/vhost-user.rst): a header of request, flags and
//! size, 32 bits each, then the payload; integers as the machine has them, which is little-endian here. We are lenient
//! about payloads longer than they need be, because User-Mode Linux always sends room for two memory regions, and
//! strict about the rest.

use super::client_descriptor::ClientDescriptor;
use crate::vhost_user::{
    BACKEND_CONFIG_CHANGE, CONFIG_BYTES_MAX, CONFIG_PREFIX_BYTES, HEADER_BYTES, NEED_REPLY, REGION_BYTES,
    REGION_PREFIX_BYTES, REPLY, TABLE_REGIONS_MAX, VERSION, VERSION_MASK, code,
};

/// No payload that we know is nearly as long.
pub(super) const PAYLOAD_BYTES_MAX: usize = 4096;
/// In the index of SET_VRING_KICK, CALL and ERR: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;

/// What a message says before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) request: u32,
    flags: u32,
    pub(super) payload_bytes: usize,
}

/// Why bytes are no message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageError {
    #[error("message {request} has flags {flags:#x}: not a request of version 1")]
    Flags { request: u32, flags: u32 },
    #[error("message {request} announces {bytes} bytes, more than any message has")]
    TooLong { request: u32, bytes: u32 },
    #[error("message {request} has {bytes} bytes, fewer than the {needed} that it takes")]
    TooShort { request: u32, bytes: usize, needed: usize },
    #[error("message {request} came with {found} descriptors instead of {expected}")]
    Descriptors { request: u32, found: usize, expected: usize },
    #[error("a memory table of {0} regions, more than the 8 that one may have")]
    Regions(u32),
    #[error("a piece of {bytes} bytes at {offset} of the configuration space, which ends at 256")]
    Config { offset: u32, bytes: u32 },
    #[error("queue {0} is to be rung without a descriptor, which would take polling for ever")]
    KickWithoutDescriptor(u64),
    #[error("the client says {value} where message {request} has yes or no")]
    NotBoolean { request: u32, value: u32 },
}

impl Header {
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, MessageError> {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (request, flags, bytes) = (word(0), word(4), word(8));
        if flags & VERSION_MASK != VERSION || flags & REPLY != 0 {
            return Err(MessageError::Flags { request, flags });
        }
        if bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(MessageError::TooLong { request, bytes });
        }
        Ok(Self { request, flags, payload_bytes: bytes as usize })
    }

    /// Whether the client wants to hear whether the request was done, if it negotiated REPLY_ACK.
    pub(super) fn wants_reply(&self) -> bool {
        self.flags & NEED_REPLY != 0
    }

    /// A whole reply to this request.
    pub(super) fn reply(&self, payload: &[u8]) -> Vec<u8> {
        message(self.request, VERSION | REPLY, payload)
    }
}

/// What the server sends of its own accord.
pub(super) fn config_change() -> Vec<u8> {
    message(BACKEND_CONFIG_CHANGE, VERSION, &[])
}

fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = [request, flags, payload.len() as u32];
    header.iter().flat_map(|word| word.to_ne_bytes()).chain(payload.iter().copied()).collect()
}

/// A region of the client's memory, as it describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) guest_address: u64,
    pub(super) length_bytes: u64,
    /// Where the client itself has it: what SET_VRING_ADDR counts in.
    pub(super) user_address: u64,
    pub(super) file_offset_bytes: u64,
}

/// Where the client keeps a record of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlightArea {
    pub(super) length_bytes: u64,
    pub(super) file_offset_bytes: u64,
    pub(super) queues: u16,
    pub(super) queue_size: u16,
}

/// A request. Indices, addresses and sizes are still only what the client says.
#[derive(Debug)]
pub(super) enum Request {
    GetFeatures,
    SetFeatures(u64),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    SetOwner,
    /// RESET_OWNER or RESET_DEVICE.
    Reset,
    GetQueueCount,
    GetMemorySlots,
    SetMemoryTable(Vec<(Region, ClientDescriptor)>),
    AddRegion(Region, ClientDescriptor),
    RemoveRegion(Region),
    SetVringSize {
        index: u32,
        size: u32,
    },
    SetVringAddresses {
        index: u32,
        descriptor_table: u64,
        used_ring: u64,
        available_ring: u64,
    },
    SetVringBase {
        index: u32,
        next_available: u32,
    },
    GetVringBase {
        index: u32,
    },
    SetVringKick {
        index: u32,
        kick: ClientDescriptor,
    },
    SetVringCall {
        index: u32,
        call: Option<ClientDescriptor>,
    },
    SetVringError {
        index: u32,
        error: Option<ClientDescriptor>,
    },
    SetVringEnable {
        index: u32,
        enable: bool,
    },
    GetConfig {
        offset: usize,
        bytes: usize,
    },
    SetConfig,
    SetBackendRequests(ClientDescriptor),
    /// `payload_bytes` is as long as the client's own description is.
    GetInFlight {
        queues: u16,
        queue_size: u16,
        payload_bytes: usize,
    },
    SetInFlight(InFlightArea, ClientDescriptor),
    AddConnection(ClientDescriptor),
    GetConnectionCounts,
    SettleConnections,
    GetSettledConnections,
    GetStatus,
    SetStatus(u64),
    /// With a descriptor of the log: who sends that waits for an answer.
    SetLogBase,
    /// Whatever else: what came with it is closed.
    Unknown,
}

impl Request {
    /// Parses a message whose payload is whole.
    pub(super) fn parse(
        header: &Header,
        payload: &[u8],
        descriptors: Vec<ClientDescriptor>,
    ) -> Result<Self, MessageError> {
        let mut message = Message { request: header.request, payload, descriptors };
        message.parse()
    }
}

struct Message<'a> {
    request: u32,
    payload: &'a [u8],
    descriptors: Vec<ClientDescriptor>,
}

impl Message<'_> {
    fn parse(&mut self) -> Result<Request, MessageError> {
        let parsed = match self.request {
            code::GET_FEATURES => Request::GetFeatures,
            code::SET_FEATURES => Request::SetFeatures(self.u64(0)?),
            code::GET_PROTOCOL_FEATURES => Request::GetProtocolFeatures,
            code::SET_PROTOCOL_FEATURES => Request::SetProtocolFeatures(self.u64(0)?),
            code::SET_OWNER => Request::SetOwner,
            code::RESET_OWNER | code::RESET_DEVICE => Request::Reset,
            code::GET_QUEUE_NUM => Request::GetQueueCount,
            code::GET_MAX_MEM_SLOTS => Request::GetMemorySlots,
            code::SET_MEM_TABLE => return self.memory_table(),
            code::ADD_MEM_REG => {
                return Ok(Request::AddRegion(self.region(REGION_PREFIX_BYTES)?, self.only_descriptor()?));
            }
            // Old clients send the region's descriptor, too.
            code::REM_MEM_REG => return Ok(Request::RemoveRegion(self.region(REGION_PREFIX_BYTES)?)),
            code::SET_VRING_NUM => Request::SetVringSize { index: self.u32(0)?, size: self.u32(4)? },
            // Behind the index are flags, for logging, which is not offered; and behind the rings, where to log.
            code::SET_VRING_ADDR => Request::SetVringAddresses {
                index: self.u32(0)?,
                descriptor_table: self.u64(8)?,
                used_ring: self.u64(16)?,
                available_ring: self.u64(24)?,
            },
            code::SET_VRING_BASE => Request::SetVringBase { index: self.u32(0)?, next_available: self.u32(4)? },
            code::GET_VRING_BASE => Request::GetVringBase { index: self.u32(0)? },
            code::SET_VRING_KICK => {
                let (index, kick) = self.index_and_descriptor()?;
                let kick = kick.ok_or(MessageError::KickWithoutDescriptor(index.into()))?;
                return Ok(Request::SetVringKick { index, kick });
            }
            code::SET_VRING_CALL => {
                let (index, call) = self.index_and_descriptor()?;
                return Ok(Request::SetVringCall { index, call });
            }
            code::SET_VRING_ERR => {
                let (index, error) = self.index_and_descriptor()?;
                return Ok(Request::SetVringError { index, error });
            }
            code::SET_VRING_ENABLE => Request::SetVringEnable { index: self.u32(0)?, enable: self.boolean(4)? },
            code::GET_CONFIG => self.config()?,
            code::SET_CONFIG => Request::SetConfig,
            code::SET_BACKEND_REQ_FD => return Ok(Request::SetBackendRequests(self.only_descriptor()?)),
            code::GET_INFLIGHT_FD => {
                let InFlightArea { queues, queue_size, .. } = self.in_flight_area()?;
                Request::GetInFlight { queues, queue_size, payload_bytes: self.payload.len().min(24) }
            }
            code::SET_INFLIGHT_FD => return Ok(Request::SetInFlight(self.in_flight_area()?, self.only_descriptor()?)),
            code::ADD_CONNECTION => return Ok(Request::AddConnection(self.only_descriptor()?)),
            code::GET_CONNECTION_COUNTS => Request::GetConnectionCounts,
            code::SETTLE_CONNECTIONS => Request::SettleConnections,
            code::GET_SETTLED_CONNECTIONS => Request::GetSettledConnections,
            code::GET_STATUS => Request::GetStatus,
            code::SET_STATUS => Request::SetStatus(self.u64(0)?),
            code::SET_LOG_BASE if !self.descriptors.is_empty() => return Ok(Request::SetLogBase),
            _ => return Ok(Request::Unknown),
        };
        self.expect_descriptors(0)?;
        Ok(parsed)
    }

    fn bytes<const N: usize>(&self, at: usize) -> Result<[u8; N], MessageError> {
        let bytes = self.payload.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(MessageError::TooShort { request: self.request, bytes: self.payload.len(), needed: at + N })
    }

    fn u16(&self, at: usize) -> Result<u16, MessageError> {
        self.bytes(at).map(u16::from_ne_bytes)
    }

    fn u32(&self, at: usize) -> Result<u32, MessageError> {
        self.bytes(at).map(u32::from_ne_bytes)
    }

    fn u64(&self, at: usize) -> Result<u64, MessageError> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    fn boolean(&self, at: usize) -> Result<bool, MessageError> {
        match self.u32(at)? {
            value @ 0..=1 => Ok(value == 1),
            value => Err(MessageError::NotBoolean { request: self.request, value }),
        }
    }

    fn expect_descriptors(&self, expected: usize) -> Result<(), MessageError> {
        let found = self.descriptors.len();
        let error = MessageError::Descriptors { request: self.request, found, expected };
        (found == expected).then_some(()).ok_or(error)
    }

    fn only_descriptor(&mut self) -> Result<ClientDescriptor, MessageError> {
        self.expect_descriptors(1)?;
        let missing = MessageError::Descriptors { request: self.request, found: 0, expected: 1 };
        self.descriptors.pop().ok_or(missing)
    }

    fn index_and_descriptor(&mut self) -> Result<(u32, Option<ClientDescriptor>), MessageError> {
        let word = self.u64(0)?;
        let index = (word & 0xff) as u32;
        if word & NO_DESCRIPTOR != 0 {
            self.expect_descriptors(0)?;
            return Ok((index, None));
        }
        Ok((index, Some(self.only_descriptor()?)))
    }

    fn region(&self, at: usize) -> Result<Region, MessageError> {
        Ok(Region {
            guest_address: self.u64(at)?,
            length_bytes: self.u64(at + 8)?,
            user_address: self.u64(at + 16)?,
            file_offset_bytes: self.u64(at + 24)?,
        })
    }

    fn memory_table(&mut self) -> Result<Request, MessageError> {
        let count = self.u32(0)?;
        if count as usize > TABLE_REGIONS_MAX {
            return Err(MessageError::Regions(count));
        }
        let regions = (0..count as usize).map(|index| self.region(REGION_PREFIX_BYTES + REGION_BYTES * index));
        let regions = regions.collect::<Result<Vec<_>, _>>()?;
        self.expect_descriptors(regions.len())?;
        Ok(Request::SetMemoryTable(regions.into_iter().zip(self.descriptors.drain(..)).collect()))
    }

    fn config(&self) -> Result<Request, MessageError> {
        let (offset, bytes) = (self.u32(0)?, self.u32(4)?);
        let end = offset.checked_add(bytes).filter(|end| *end as usize <= CONFIG_BYTES_MAX);
        end.ok_or(MessageError::Config { offset, bytes })?;
        let (found, needed) = (self.payload.len(), CONFIG_PREFIX_BYTES + bytes as usize);
        if found < needed {
            return Err(MessageError::TooShort { request: self.request, bytes: found, needed });
        }
        Ok(Request::GetConfig { offset: offset as usize, bytes: bytes as usize })
    }

    fn in_flight_area(&self) -> Result<InFlightArea, MessageError> {
        Ok(InFlightArea {
            length_bytes: self.u64(0)?,
            file_offset_bytes: self.u64(8)?,
            queues: self.u16(16)?,
            queue_size: self.u16(18)?,
        })
    }
}

/// The payload that answers GET_CONFIG: the piece of `config` asked for, with zeros where the space has ended.
pub(super) fn config_payload(config: &[u8], offset: usize, bytes: usize) -> Vec<u8> {
    let header = [offset as u32, bytes as u32, 0];
    let piece = (offset..offset + bytes).map(|at| config.get(at).copied().unwrap_or(0));
    header.iter().flat_map(|word| word.to_ne_bytes()).chain(piece).collect()
}

/// The payload that answers GET_INFLIGHT_FD, as long as the question's.
pub(super) fn in_flight_payload(area: &InFlightArea, payload_bytes: usize) -> Vec<u8> {
    let mut payload = Vec::with_capacity(24);
    payload.extend(area.length_bytes.to_ne_bytes());
    payload.extend(area.file_offset_bytes.to_ne_bytes());
    payload.extend(area.queues.to_ne_bytes());
    payload.extend(area.queue_size.to_ne_bytes());
    payload.resize(payload_bytes.max(20), 0);
    payload
}

#[cfg(test)]
mod tests;
