//! Why the guest gives up.

use blockyard_guest_runtime::text::text;
use blockyard_protocol::messages::{Error, GuestOperation, String};
use core::fmt;

/// Bytes in a failure's sentence.
pub(crate) const DETAIL_BYTES_MAX: usize = 200;

/// What becomes an Error message.
pub(crate) struct Failure {
    operation: GuestOperation,
    device: &'static str,
    sector: u64,
    status: u8,
    detail: String<DETAIL_BYTES_MAX>,
}

impl Failure {
    /// A failure that concerns all of a device, or with an empty name none.
    pub(crate) const fn new(operation: GuestOperation, device: &'static str, detail: String<DETAIL_BYTES_MAX>) -> Self {
        Self { operation, device, sector: 0, status: 0, detail }
    }

    /// The VMM's frames say something that cannot be.
    pub(crate) fn config(detail: fmt::Arguments<'_>) -> Self {
        Self::new(GuestOperation::Config, "", text(detail))
    }

    /// The failure of a request at `sector`, to which the device said `status`.
    pub(crate) fn at(self, sector: u64, status: u8) -> Self {
        Self { sector, status, ..self }
    }

    pub(crate) fn into_message(self) -> Error {
        Error {
            operation: self.operation,
            device: text(format_args!("{}", self.device)),
            sector: self.sector,
            status: u32::from(self.status),
            detail: self.detail,
        }
    }
}
