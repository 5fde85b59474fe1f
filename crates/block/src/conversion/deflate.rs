//! zlib's compression of clusters, as small as zlib itself makes them.

use libz_rs_sys::{
    Z_DEFAULT_STRATEGY, Z_DEFLATED, Z_FINISH, Z_OK, Z_STREAM_END, deflate, deflateEnd, deflateInit2_, deflateReset,
    deflateTune, z_stream, zlibVersion,
};
use std::io;

/// The only level at which zlib-rs finds matches of three bytes, of which programs are full: without them they are a
/// twentieth larger than zlib makes them.
const LEVEL: i32 = 9;

/// How long that level looks for better matches, as little as makes things at most 0.8 % larger than zlib does at its
/// default, level 6. By itself the level takes half as much time again for as little less.
const GOOD_LENGTH: i32 = 8;
const LAZY_LENGTH_MAX: i32 = 16;
const NICE_LENGTH: i32 = 32;
const CHAIN_MAX: i32 = 24;

/// zlib's default.
const MEMORY_LEVEL: i32 = 8;

/// Compresses one piece at a time, without zlib's header.
pub(super) struct Deflate {
    /// In one place, whatever it keeps of that.
    stream: Box<z_stream>,
}

// SAFETY: what it points to is its own, but for buffers, which it forgets when a piece is done.
unsafe impl Send for Deflate {}

impl Deflate {
    /// For whoever inflates with a window of `1 << window_bits` bytes.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(window_bits: u8) -> io::Result<Self> {
        let mut stream = Box::new(z_stream::default());
        // Negative for no header.
        let window_bits = -i32::from(window_bits);
        let stream_bytes = size_of::<z_stream>() as i32;
        // SAFETY: the stream is a new one, and the version is that of what is called.
        let code = unsafe {
            deflateInit2_(
                &raw mut *stream,
                LEVEL,
                Z_DEFLATED,
                window_bits,
                MEMORY_LEVEL,
                Z_DEFAULT_STRATEGY,
                zlibVersion(),
                stream_bytes,
            )
        };
        if code == Z_OK { Ok(Self { stream }) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    /// How long `bytes` are, compressed into `packed`; `None` if that has not the room.
    pub(super) fn compress(&mut self, bytes: &[u8], packed: &mut [u8]) -> Option<usize> {
        let room = u32::try_from(packed.len()).unwrap_or(u32::MAX);
        let stream = &mut *self.stream;
        // SAFETY: it was initialized, and is not on its way to anything.
        let is_ready = unsafe {
            deflateReset(stream) == Z_OK
                && deflateTune(stream, GOOD_LENGTH, LAZY_LENGTH_MAX, NICE_LENGTH, CHAIN_MAX) == Z_OK
        };
        if !is_ready {
            return None;
        }
        (stream.next_in, stream.avail_in) = (bytes.as_ptr(), u32::try_from(bytes.len()).ok()?);
        (stream.next_out, stream.avail_out) = (packed.as_mut_ptr(), room);
        // SAFETY: both buffers are as long as is said, and borrowed until it returns.
        let code = unsafe { deflate(stream, Z_FINISH) };
        let length = room - stream.avail_out;
        (stream.next_in, stream.avail_in) = (std::ptr::null(), 0);
        (stream.next_out, stream.avail_out) = (std::ptr::null_mut(), 0);
        (code == Z_STREAM_END).then_some(length as usize)
    }
}

impl Drop for Deflate {
    fn drop(&mut self) {
        // SAFETY: it was initialized, and is not used any more.
        unsafe { deflateEnd(&raw mut *self.stream) };
    }
}
