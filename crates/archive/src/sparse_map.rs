//! Where the files of an archive have data, in each of GNU tar's ways to say so (its manual, "Storing Sparse Files").

use crate::fields::{BLOCK_BYTES, cut_short, decimal, fill, number};
use std::io::{self, Read};
use tar::{GnuExtSparseHeader, GnuSparseHeader, Header};

/// Places with data that a file may have: they are kept in memory.
const RANGES_MAX: usize = 1 << 20;

/// Where a file has data: offset and length, in order.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// A file with holes.
#[derive(Debug, Default)]
pub(crate) struct SparseMap {
    /// Its own: the archive's other name is for those who do not know of maps.
    pub(crate) name: Option<Vec<u8>>,
    /// Of the file.
    pub(crate) size: u64,
    pub(crate) ranges: Ranges,
}

impl SparseMap {
    fn push(&mut self, offset: u64, length: u64) -> io::Result<()> {
        if self.ranges.len() == RANGES_MAX {
            return Err(damaged());
        }
        self.ranges.push((offset, length));
        Ok(())
    }

    /// This map, if its ranges are of that file, in order, and their data have `stored` bytes.
    pub(crate) fn checked(self, stored: u64) -> io::Result<Self> {
        let (mut at, mut total) = (0, 0u64);
        for &(offset, length) in &self.ranges {
            // Only a file's end may leave a block of the archive half full.
            if offset < at || (length > 0 && !total.is_multiple_of(BLOCK_BYTES)) {
                return Err(damaged());
            }
            at = offset.checked_add(length).filter(|&end| end <= self.size).ok_or_else(damaged)?;
            total = total.checked_add(length).ok_or_else(damaged)?;
        }
        if total == stored { Ok(self) } else { Err(damaged()) }
    }
}

/// What is wrong with a file whose map is none.
pub(crate) const DAMAGED: &str = "the map of its holes does not fit it";

/// An error of the file alone: what follows it in the archive can be read.
fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, DAMAGED)
}

/// The map in a header of GNU tar's own format, and in those that follow it.
pub(crate) fn of_gnu_header(header: &Header, input: &mut impl Read) -> io::Result<SparseMap> {
    let gnu = header.as_gnu().ok_or_else(damaged)?;
    let mut map = SparseMap::default();
    let mut read = number(&gnu.realsize).and_then(|size| {
        map.size = u64::try_from(size).map_err(|_| damaged())?;
        push_all(&mut map, &gnu.sparse)
    });
    let mut is_extended = gnu.is_extended();
    // Whatever they say: the data come behind them.
    while is_extended {
        let mut more = GnuExtSparseHeader::new();
        if fill(input, more.as_mut_bytes())? < more.as_bytes().len() {
            return Err(cut_short());
        }
        read = read.and_then(|()| push_all(&mut map, &more.sparse));
        is_extended = more.is_extended();
    }
    read.map(|()| map)
}

fn push_all(map: &mut SparseMap, places: &[GnuSparseHeader]) -> io::Result<()> {
    for place in places.iter().filter(|place| !place.is_empty()) {
        let field = |field: &[u8]| u64::try_from(number(field)?).map_err(|_| damaged());
        map.push(field(&place.offset)?, field(&place.numbytes)?)?;
    }
    Ok(())
}

/// What the records of pax formats say of a file with holes: 0.0, 0.1, and 1.0, whose map comes before the file's data.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseRecords {
    name: Option<Vec<u8>>,
    size: Option<u64>,
    major: Option<u64>,
    /// As they came: offset, length, offset and so on.
    numbers: Vec<u64>,
    is_damaged: bool,
}

impl SparseRecords {
    /// Notes a record, whose key comes without `GNU.sparse.`.
    pub(crate) fn record(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = decimal(value),
            b"major" => self.major = decimal(value),
            b"offset" | b"numbytes" => self.number(value),
            b"map" if !value.is_empty() => value.split(|&byte| byte == b',').for_each(|value| self.number(value)),
            _ => {}
        }
    }

    fn number(&mut self, value: &[u8]) {
        match decimal(value) {
            Some(number) if self.numbers.len() < 2 * RANGES_MAX => self.numbers.push(number),
            _ => self.is_damaged = true,
        }
    }

    /// The map; `read` reads data of the file that has it.
    pub(crate) fn map(mut self, mut read: impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<SparseMap> {
        if self.major.is_some_and(|major| major > 1) {
            return Err(damaged());
        }
        if self.major == Some(1) {
            self.numbers = numbers_before_data(&mut read)?;
        }
        let size =
            self.size.filter(|_| !self.is_damaged && self.numbers.len().is_multiple_of(2)).ok_or_else(damaged)?;
        let ranges = self.numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        Ok(SparseMap { name: self.name, size, ranges })
    }
}

/// Decimal numbers on lines of their own, in whole blocks; the first is how many pairs follow it.
fn numbers_before_data(read: &mut impl FnMut(&mut [u8]) -> io::Result<()>) -> io::Result<Vec<u64>> {
    let (mut block, mut at) = ([0; BLOCK_BYTES as usize], BLOCK_BYTES as usize);
    let mut next = || {
        let mut number = None::<u64>;
        loop {
            if at == block.len() {
                read(&mut block)?;
                at = 0;
            }
            at += 1;
            match (block[at - 1], number) {
                (b'\n', Some(number)) => return Ok(number),
                (digit @ b'0'..=b'9', _) => {
                    let longer = number.unwrap_or(0).checked_mul(10);
                    number = longer.and_then(|longer| longer.checked_add(u64::from(digit - b'0')));
                    number.ok_or_else(damaged)?;
                }
                _ => return Err(damaged()),
            }
        }
    };
    let count = usize::try_from(next()?).ok().filter(|&count| count <= RANGES_MAX).ok_or_else(damaged)?;
    (0..2 * count).map(|_| next()).collect()
}
