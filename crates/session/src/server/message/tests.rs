use super::*;
use crate::server::client_descriptor::{Closer, Closers};
use crate::server::session::Shared;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

fn descriptors(count: usize) -> Vec<ClientDescriptor> {
    static CLOSER: OnceLock<Closer> = OnceLock::new();
    let session = || Arc::new(Shared::new("disk".into(), 1).unwrap());
    let closer = CLOSER.get_or_init(|| Closers::new(1024).start(0, &session()).unwrap());
    (0..count).map(|_| closer.keep(std::io::stderr().as_fd().try_clone_to_owned().unwrap())).collect()
}

fn header(request: u32, payload_bytes: usize) -> Header {
    Header { request, flags: 1, payload_bytes }
}

fn parse(request: u32, payload: &[u8], count: usize) -> Result<Request, MessageError> {
    Request::parse(&header(request, payload.len()), payload, descriptors(count))
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[test]
fn headers() {
    let bytes = |request: u32, flags: u32, size: u32| {
        let mut bytes = [0; HEADER_BYTES];
        [request, flags, size]
            .iter()
            .zip(bytes.chunks_mut(4))
            .for_each(|(word, at)| at.copy_from_slice(&word.to_ne_bytes()));
        Header::parse(&bytes)
    };
    assert_eq!(bytes(24, 9, 8).unwrap(), Header { request: 24, flags: 9, payload_bytes: 8 });
    assert!(bytes(24, 9, 0).unwrap().wants_reply() && !bytes(24, 1, 0).unwrap().wants_reply());
    for flags in [0, 2, 3, 5, u32::MAX] {
        assert_eq!(bytes(1, flags, 0).unwrap_err(), MessageError::Flags { request: 1, flags });
    }
    assert!(bytes(1, 1, PAYLOAD_BYTES_MAX as u32).is_ok());
    for size in [PAYLOAD_BYTES_MAX as u32 + 1, u32::MAX] {
        assert_eq!(bytes(1, 1, size).unwrap_err(), MessageError::TooLong { request: 1, bytes: size });
    }
}

/// User-Mode Linux sends 72 bytes whatever the number of regions.
#[test]
fn a_memory_table_may_be_padded_but_not_cut() {
    let table = |count: u64, bytes: usize, descriptors: usize| {
        let mut payload = words(&[count, 1, 2, 3, 4, 5, 6, 7, 8]);
        payload.resize(bytes, 0);
        parse(code::SET_MEM_TABLE, &payload, descriptors)
    };
    let Ok(Request::SetMemoryTable(regions)) = table(1, 72, 1) else { panic!("a table of one region in 72 bytes") };
    let region = Region { guest_address: 1, length_bytes: 2, user_address: 3, file_offset_bytes: 4 };
    assert_eq!(regions.iter().map(|(region, _)| *region).collect::<Vec<_>>(), [region]);
    assert!(table(1, 40, 1).is_ok() && table(2, 72, 2).is_ok() && table(0, 8, 0).is_ok());
    let too_short = |needed| MessageError::TooShort { request: 5, bytes: needed - 1, needed };
    assert_eq!(table(1, 39, 1).unwrap_err(), too_short(40));
    assert_eq!(table(2, 71, 2).unwrap_err(), too_short(72));
    assert_eq!(table(9, 72, 8).unwrap_err(), MessageError::Regions(9));
    assert_eq!(table(u64::from(u32::MAX), 72, 8).unwrap_err(), MessageError::Regions(u32::MAX));
    for (regions, found) in [(1, 0), (1, 2), (2, 1), (0, 1)] {
        let expected = regions as usize;
        assert_eq!(table(regions, 72, found).unwrap_err(), MessageError::Descriptors { request: 5, found, expected });
    }
}

#[test]
fn descriptors_are_there_or_not_as_the_message_says() {
    assert!(matches!(parse(12, &words(&[3]), 1), Ok(Request::SetVringKick { index: 3, .. })));
    assert!(matches!(parse(13, &words(&[3]), 1), Ok(Request::SetVringCall { index: 3, call: Some(_) })));
    assert!(matches!(parse(13, &words(&[0x103]), 0), Ok(Request::SetVringCall { index: 3, call: None })));
    assert_eq!(parse(12, &words(&[0x103]), 0).unwrap_err(), MessageError::KickWithoutDescriptor(3));
    for (payload, found, expected) in [(3, 0, 1), (3, 2, 1), (0x103, 1, 0)] {
        let error = MessageError::Descriptors { request: 13, found, expected };
        assert_eq!(parse(13, &words(&[payload]), found).unwrap_err(), error);
    }
    let stray = parse(code::GET_FEATURES, &[], 1).unwrap_err();
    assert_eq!(stray, MessageError::Descriptors { request: 1, found: 1, expected: 0 });
    assert!(matches!(parse(999, &[1, 2, 3], 5), Ok(Request::Unknown)));
}

#[test]
fn configuration_lies_within_its_window() {
    let ask = |offset: u32, bytes: u32, payload: usize| {
        let mut message: Vec<u8> = [offset, bytes, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        message.resize(payload, 0);
        parse(code::GET_CONFIG, &message, 0)
    };
    assert!(matches!(ask(0, 60, 72), Ok(Request::GetConfig { offset: 0, bytes: 60 })));
    assert!(ask(200, 56, 68).is_ok());
    for (offset, bytes) in [(200, 57), (0, 257), (u32::MAX, 1), (1, u32::MAX)] {
        assert_eq!(ask(offset, bytes, 4096).unwrap_err(), MessageError::Config { offset, bytes });
    }
    assert!(matches!(ask(0, 60, 71), Err(MessageError::TooShort { needed: 72, .. })));
    assert_eq!(config_payload(&[7, 8, 9], 1, 4), [1, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 8, 9, 0, 0]);
}

/// Whatever the bytes: a request or a reason, and what is asked for is within bounds.
#[test]
fn fuzz_any_bytes_are_a_request_or_an_error() {
    blockyard_fuzz::check!(100_000).with_type::<([u8; HEADER_BYTES], u8, Vec<u8>)>().for_each(
        |(bytes, count, payload)| {
            let Ok(header) = Header::parse(bytes) else { return };
            match Request::parse(&header, payload, descriptors(usize::from(count % 10))) {
                Ok(Request::SetMemoryTable(regions)) => assert!(regions.len() <= TABLE_REGIONS_MAX),
                Ok(Request::GetConfig { offset, bytes }) => {
                    assert!(offset + bytes <= CONFIG_BYTES_MAX);
                    assert_eq!(config_payload(&[1; 60], offset, bytes).len(), CONFIG_PREFIX_BYTES + bytes);
                }
                Ok(Request::GetInFlight { payload_bytes, .. }) => assert!((20..=24).contains(&payload_bytes)),
                Ok(_) => {}
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        },
    );
}
