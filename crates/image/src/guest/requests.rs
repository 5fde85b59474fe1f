//! Requests that name more files than a message has room for, as several.

use blockyard_protocol::appliance::{FRAME_BYTES_MAX, Operation};

/// Bytes of paths in a request: all else in it fits in beside them.
const PATHS_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;
/// What a path takes besides its bytes.
const PATH_OVERHEAD_BYTES: usize = 8;

/// The same as one request, or as several that do the same one after another. What cannot be done in parts stays whole.
pub fn split(mut operation: Operation) -> Vec<Operation> {
    let chunks = match operation.each_of() {
        Some(paths) => chunks(std::mem::take(paths)),
        None => return vec![operation],
    };
    let with = |paths| {
        let mut part = operation.clone();
        if let Some(all) = part.each_of() {
            *all = paths;
        }
        part
    };
    chunks.into_iter().map(with).collect()
}

/// The sources of a request that needs to know all of them, if they are more than it has room for: as a stream that
/// goes with it.
pub fn streamed_sources(operation: &mut Operation) -> Option<Vec<u8>> {
    let (sources, streamed) = match operation {
        Operation::CopyFiles(request) => (&mut request.sources, &mut request.streamed),
        Operation::Rename(request) => (&mut request.sources, &mut request.streamed),
        _ => return None,
    };
    let bytes: usize = sources.iter().map(|path| path.len() + PATH_OVERHEAD_BYTES).sum();
    if bytes <= PATHS_BYTES_MAX {
        return None;
    }
    *streamed = true;
    Some(std::mem::take(sources).into_iter().flat_map(|path| [path, vec![0]]).flatten().collect())
}

/// In order, and at least one.
fn chunks(paths: Vec<Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
    let (mut chunks, mut bytes) = (vec![Vec::new()], 0);
    for path in paths {
        let own = path.len() + PATH_OVERHEAD_BYTES;
        if bytes > 0 && bytes + own > PATHS_BYTES_MAX {
            chunks.push(Vec::new());
            bytes = 0;
        }
        bytes += own;
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(path);
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::appliance::{self, Remove, Rename, Request};

    #[test]
    fn requests_fit_a_message_and_have_all_paths_in_order() {
        for (count, length) in [(0, 0), (1, 4096), (4000, 20), (50_000, 0), (100, 4096), (7, 30_000)] {
            let path = |number: usize| [number.to_string().into_bytes(), vec![b'x'; length]].concat();
            let paths: Vec<_> = (0..count).map(path).collect();
            let parts = split(Operation::Remove(Remove { paths: paths.clone(), recursive: true, ..Remove::default() }));
            let mut seen = Vec::new();
            for part in parts {
                let Operation::Remove(remove) = &part else { panic!("another request") };
                assert!(remove.recursive);
                seen.extend(remove.paths.iter().cloned());
                let request = Request { number: u32::MAX, operation: part };
                appliance::encode(&request, &mut vec![0; FRAME_BYTES_MAX]).unwrap();
            }
            assert_eq!(seen, paths);
        }
        assert_eq!(split(Operation::Sync).len(), 1);
    }

    #[test]
    fn sources_that_do_not_fit_are_a_stream() {
        let rename = |sources| Operation::Rename(Rename { sources, target: b"/d".to_vec(), ..Rename::default() });
        let mut few = rename(vec![b"/a".to_vec(), b"/b".to_vec()]);
        assert_eq!((streamed_sources(&mut few), streamed_sources(&mut Operation::Sync)), (None, None));
        let mut many = rename(vec![b"/a\n".to_vec(); 10_000]);
        assert_eq!(streamed_sources(&mut many).unwrap(), b"/a\n\0".repeat(10_000));
        assert_eq!(streamed_sources(&mut many), None, "they are on their way");
        let Operation::Rename(many) = many else { panic!("another request") };
        assert!(many.streamed && many.sources.is_empty());
    }
}
