//! A stream of records, as it comes from the appliance.

use blockyard_protocol::appliance::{self, Attribute, Entry, Failure, Record};
use blockyard_protocol::frame::LENGTH_BYTES;
use std::io::{self, Write};

/// Somebody who takes the records of a listing.
pub trait RecordTaker: Send + 'static {
    /// What comes of it.
    type Output;
    /// Takes the next one.
    ///
    /// # Errors
    /// When its output fails.
    fn take(&mut self, record: Record) -> io::Result<()>;
    /// There are no more.
    ///
    /// # Errors
    /// When its output fails.
    fn finish(self) -> io::Result<Self::Output>;
}

/// Failures that are kept.
const FAILURES_MAX: usize = 16;
/// Longest path that Linux takes, and longest one that is told: that of a directory that cannot be looked into.
const PATH_BYTES_MAX: usize = 4096 + NAME_BYTES_MAX + 1;
/// Longest name in a directory.
const NAME_BYTES_MAX: usize = 255;

/// Bytes of records that are kept until all are there: an image may list any number of files, with attributes and long
/// names.
const KEPT_BYTES_MAX: usize = 512 << 20;

/// Room for records that are kept.
#[derive(Debug)]
pub struct Room {
    left_bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self { left_bytes: KEPT_BYTES_MAX }
    }
}

impl Room {
    /// Room for so many bytes.
    pub fn of(left_bytes: usize) -> Self {
        Self { left_bytes }
    }

    /// Takes so many bytes of it.
    ///
    /// # Errors
    /// When it has no more.
    pub fn take(&mut self, bytes: usize) -> io::Result<()> {
        let left = self.left_bytes.checked_sub(bytes);
        self.left_bytes = left.ok_or_else(|| io::Error::other("the list is too long to be kept"))?;
        Ok(())
    }

    /// The same for an entry.
    ///
    /// # Errors
    /// As there.
    pub fn take_entry(&mut self, entry: &Entry) -> io::Result<()> {
        self.take(entry_bytes(entry))
    }
}

/// What an entry takes.
pub fn entry_bytes(entry: &Entry) -> usize {
    let attributes = entry.attributes.iter().map(attribute_bytes).sum::<usize>();
    let names = [entry.name.len(), entry.target.len(), entry.user.len(), entry.group.len()];
    size_of::<Entry>() + names.iter().sum::<usize>() + attributes
}

/// What an extended attribute takes.
pub fn attribute_bytes(attribute: &Attribute) -> usize {
    size_of::<Attribute>() + attribute.name.len() + attribute.value.len()
}

/// Keeps what `of` takes out of records, so many at most: what else comes is left out.
pub(super) struct Kept<T> {
    kept: Vec<T>,
    most: usize,
    of: fn(Record) -> Option<T>,
}

impl<T> Kept<T> {
    pub(super) fn new(most: usize, of: fn(Record) -> Option<T>) -> Self {
        Self { kept: Vec::new(), most, of }
    }
}

impl<T: Send + 'static> RecordTaker for Kept<T> {
    type Output = Vec<T>;

    fn take(&mut self, record: Record) -> io::Result<()> {
        if self.kept.len() < self.most {
            self.kept.extend((self.of)(record));
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.kept)
    }
}

/// Takes the bytes of a stream and gives the records in it to somebody; failures it keeps itself.
pub struct RecordStream<T> {
    taker: T,
    failures: Vec<Failure>,
    partial: Vec<u8>,
}

impl<T: RecordTaker> RecordStream<T> {
    /// `taker` gets the records.
    pub fn new(taker: T) -> Self {
        Self { taker, failures: Vec::new(), partial: Vec::new() }
    }

    /// Who took the records, and what could not be listed.
    pub fn into_parts(self) -> (T, Vec<Failure>) {
        (self.taker, self.failures)
    }

    /// Takes the whole records that `bytes` begins with; how many bytes they have.
    fn take_whole(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        while let Some((length, rest)) = bytes[taken..].split_first_chunk::<LENGTH_BYTES>() {
            let length = appliance::message_bytes(*length).map_err(io::Error::other)?;
            let Some(body) = rest.get(..length) else { break };
            let record: Record = appliance::decode(body).map_err(io::Error::other)?;
            if !is_possible(&record) {
                return Err(io::Error::other("the appliance lists a file of an impossible name"));
            }
            match record {
                Record::Failure(failure) if self.failures.len() < FAILURES_MAX => self.failures.push(failure),
                Record::Failure(_) => {}
                record => self.taker.take(record)?,
            }
            taken += LENGTH_BYTES + length;
        }
        Ok(taken)
    }
}

/// Whether a record's names are names: whoever takes them relies on that, and on how long they are.
fn is_possible(record: &Record) -> bool {
    let is_path = |path: &[u8]| path.starts_with(b"/") && path.len() <= PATH_BYTES_MAX && !path.contains(&0);
    match record {
        Record::Entry(Entry { name, target, .. }) => {
            let is_name = !name.contains(&b'/') && !name.contains(&0) && (1..=NAME_BYTES_MAX).contains(&name.len());
            // A path that was asked for comes back as it is.
            (is_name || is_path(name)) && target.len() <= PATH_BYTES_MAX
        }
        Record::Directory(directory) => is_path(&directory.path),
        _ => true,
    }
}

impl<T: RecordTaker> Write for RecordStream<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.partial.is_empty() {
            let taken = self.take_whole(bytes)?;
            self.partial.extend_from_slice(&bytes[taken..]);
        } else {
            let mut together = std::mem::take(&mut self.partial);
            together.extend_from_slice(bytes);
            let taken = self.take_whole(&together)?;
            together.drain(..taken);
            self.partial = together;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.partial.is_empty() {
            Ok(())
        } else {
            Err(io::Error::other("the appliance's listing ends in the middle"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::appliance::{Directory, FRAME_BYTES_MAX};

    #[derive(Default)]
    struct Depths(Vec<u32>);

    impl RecordTaker for Depths {
        type Output = Vec<u32>;

        fn take(&mut self, record: Record) -> io::Result<()> {
            if let Record::Directory(directory) = record {
                self.0.push(directory.depth);
            }
            Ok(())
        }

        fn finish(self) -> io::Result<Vec<u32>> {
            Ok(self.0)
        }
    }

    #[test]
    fn records_come_out_of_any_pieces_and_half_a_one_is_an_error() {
        let mut bytes = Vec::new();
        for depth in 1..=3 {
            let mut buffer = [0; 64];
            let record = Record::Directory(Directory { path: b"/xxxxxxxx".to_vec(), depth });
            bytes.extend_from_slice(appliance::encode(&record, &mut buffer).unwrap());
        }
        for piece in 1..=bytes.len() {
            let mut stream = RecordStream::new(Depths::default());
            bytes.chunks(piece).for_each(|piece| stream.write_all(piece).unwrap());
            stream.flush().unwrap();
            assert_eq!(stream.into_parts().0.0, [1, 2, 3]);
        }
        let mut stream = RecordStream::new(Depths::default());
        stream.write_all(&bytes[..5]).unwrap();
        assert!(stream.flush().is_err());
        assert!(RecordStream::new(Depths::default()).write(&[2, 0, 0xff, 0xff]).is_err());
    }

    #[test]
    fn names_are_names() {
        let long = vec![b'x'; 256];
        for name in [&b""[..], b"a/b", b"a\0", b"..\0", &long] {
            assert!(!is_possible(&Record::Entry(Entry { name: name.to_vec(), ..Entry::default() })), "{name:?}");
        }
        for name in [&b"a"[..], b"/a/b", &long[..255]] {
            assert!(is_possible(&Record::Entry(Entry { name: name.to_vec(), ..Entry::default() })), "{name:?}");
        }
        for path in [&b""[..], b"a", &[b'/'; 5000]] {
            assert!(!is_possible(&Record::Directory(Directory { path: path.to_vec(), depth: 1 })));
        }
    }

    /// Everything that was taken.
    #[derive(Default)]
    struct All(Vec<Record>);

    impl RecordTaker for All {
        type Output = ();

        fn take(&mut self, record: Record) -> io::Result<()> {
            self.0.push(record);
            Ok(())
        }

        fn finish(self) -> io::Result<()> {
            Ok(())
        }
    }

    fn taken(pieces: &[&[u8]]) -> (Vec<Record>, usize, Option<String>) {
        let mut stream = RecordStream::new(All::default());
        let said = pieces.iter().try_for_each(|piece| stream.write_all(piece)).and_then(|()| stream.flush());
        assert!(stream.partial.len() < FRAME_BYTES_MAX);
        let (All(records), failures) = stream.into_parts();
        (records, failures.len(), said.err().map(|error| error.to_string()))
    }

    #[test]
    fn an_entry_takes_all_that_comes_with_it() {
        let attribute = Attribute { name: vec![0; 10], value: vec![0; 1000] };
        let entry = Entry {
            name: vec![0; 100],
            target: vec![0; 200],
            user: "u".repeat(300),
            attributes: vec![attribute],
            ..Entry::default()
        };
        let bytes = entry_bytes(&entry);
        assert!(bytes >= 1610, "{bytes}");
        let mut room = Room::of(2 * bytes);
        room.take_entry(&entry).unwrap();
        room.take_entry(&entry).unwrap();
        assert!(room.take_entry(&entry).is_err());
    }

    #[test]
    fn fuzz_any_bytes_are_records_or_an_error_whatever_the_pieces() {
        blockyard_fuzz::check!(10_000).with_type::<(Vec<Vec<u8>>, Vec<u8>)>().for_each(|(bodies, lengths)| {
            let frame = |body: &Vec<u8>| [&(body.len() as u16).to_le_bytes(), &body[..]].concat();
            let bytes: Vec<u8> = bodies.iter().flat_map(frame).collect();
            let (mut left, mut pieces) = (&bytes[..], Vec::new());
            for &length in lengths {
                let (piece, rest) = left.split_at(left.len().min(usize::from(length)));
                pieces.push(piece);
                left = rest;
            }
            pieces.push(left);
            let whole = taken(&[&bytes]);
            assert!(whole.0.iter().all(is_possible));
            assert_eq!(taken(&pieces), whole);
        });
    }
}
