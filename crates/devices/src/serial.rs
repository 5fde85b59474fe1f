//! Serial ports.

mod line_buffer;
mod port;

pub use line_buffer::LineBuffer;
pub use port::{NoInput, SerialInput, SerialOutput, SerialPort};
