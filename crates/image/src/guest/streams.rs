//! Bytes that go out of the guest, and into it: as streams, or between it and a disk of this process.

use super::failures::each;
use super::{OpenImage, RecordTaker, requests};
use crate::error::{Context, Error, Result};
use blockyard_appliance::{StreamSink, StreamSource};
use blockyard_block::Disk;
use blockyard_protocol::appliance::{Operation, Response};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Has the appliance send a stream, and gives it to `output`.
///
/// # Errors
/// When it cannot be sent, or the output takes no more.
pub fn write_out<W: io::Write + Send + 'static>(image: &mut OpenImage, operation: Operation, output: W) -> Result<W> {
    let bytes_max = image.bytes_max();
    write_out_up_to(image, operation, output, bytes_max)
}

/// The same for a file or a pipe: it takes more of what is packed tightly.
///
/// # Errors
/// As [`write_out`].
pub fn write_out_into<W: io::Write + AsFd + Send + 'static>(
    image: &mut OpenImage,
    operation: Operation,
    output: W,
) -> Result<W> {
    let bytes_max = image.bytes_max_into(&output);
    write_out_up_to(image, operation, output, bytes_max)
}

/// The same for so many bytes at most.
///
/// # Errors
/// As [`write_out`].
pub fn write_out_up_to<W: io::Write + Send + 'static>(
    image: &mut OpenImage,
    operation: Operation,
    mut output: W,
    bytes_max: u64,
) -> Result<W> {
    let mut done = Vec::new();
    for part in requests::split(operation) {
        let sent;
        (output, sent) = write_part(image, part, output, bytes_max)?;
        done.push(sent);
    }
    each(done, |sent| sent).map(|()| output)
}

/// The output, unless it or the appliance is of no more use, and whether all was sent.
fn write_part<W: io::Write + Send + 'static>(
    image: &mut OpenImage,
    operation: Operation,
    output: W,
    bytes_max: u64,
) -> Result<(W, Result<()>)> {
    let sink = StreamSink::with_bytes_max(output, bytes_max).context("making a stream")?;
    image.appliance.bind_sink_stream(&sink);
    let done = image.call(operation);
    let finished = sink.finish();
    image.appliance.release();
    match (done, finished) {
        // The output's own failure is why the appliance failed.
        (_, Err(error)) if error.kind() != io::ErrorKind::UnexpectedEof => Err(Error::Output(error)),
        (Err(error), Err(_)) => Err(error),
        (Err(error), _) if error.appliance().is_some() => Err(error),
        (done, finished) => Ok((finished.map_err(Error::Output)?, done.map(drop))),
    }
}

/// Has the appliance take a stream.
///
/// # Errors
/// When it cannot be taken, or `input` fails.
pub fn read_in(image: &mut OpenImage, operation: Operation, input: impl io::Read + Send + 'static) -> Result<u64> {
    let source = StreamSource::new(input).context("making a stream")?;
    image.appliance.bind_source_stream(&source);
    let done = image.call(operation);
    let finished = source.finish();
    image.appliance.release();
    match (done, finished) {
        (_, Err(error)) => Err(Error::Refused(format!("cannot read the input: {error}"))),
        (done, Ok(())) => done.map(|response| response.bytes),
    }
}

/// What became of an operation that has both streams.
pub(crate) struct Exchanged<W> {
    /// What the appliance said; nobody has judged it.
    pub(crate) response: Response,
    /// The output, if it took everything.
    pub(crate) output: io::Result<W>,
    /// Whether the input did not fail.
    pub(crate) input: io::Result<()>,
}

impl OpenImage {
    /// Has the appliance do something that reads `input`, a piece as soon as it is there, and writes `output`. `ended`
    /// is called when it is done, so that nobody waits for more input.
    ///
    /// # Errors
    /// When the appliance is of no more use.
    pub(crate) fn exchange<W: io::Write + Send + 'static>(
        &mut self,
        operation: Operation,
        input: impl io::Read + Send + 'static,
        output: W,
        ended: impl FnOnce(),
    ) -> Result<Exchanged<W>> {
        let source = StreamSource::interactive(input).context("making a stream")?;
        let sink = StreamSink::new(output).context("making a stream")?;
        self.appliance.bind_source_stream(&source);
        self.appliance.bind_sink_stream(&sink);
        let response = self.appliance.call(operation);
        ended();
        let (output, input) = (sink.finish(), source.finish());
        self.appliance.release();
        Ok(Exchanged { response: response?, output, input })
    }

    /// As [`OpenImage::records`], of something that reads `input`.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn records_with_input<T, H>(
        &mut self,
        operation: Operation,
        input: impl io::Read + Send + 'static,
        take: H,
    ) -> Result<T>
    where
        T: Send + 'static,
        H: RecordTaker<Output = T>,
    {
        let source = StreamSource::new(input)?;
        self.appliance.bind_source_stream(&source);
        self.records(operation, take)
    }

    /// Has the appliance do something with the bytes of `disk`, which it reads.
    ///
    /// # Errors
    /// As [`OpenImage::call`].
    pub fn call_with_source(&mut self, disk: Arc<dyn Disk>, operation: Operation) -> Result<Response> {
        self.appliance.bind_source(disk);
        let done = self.call(operation);
        self.appliance.release();
        done
    }

    /// Has the appliance do something whose bytes it writes to `disk`.
    ///
    /// # Errors
    /// As [`OpenImage::call`].
    pub fn call_with_sink(&mut self, disk: Arc<dyn Disk>, operation: Operation) -> Result<Response> {
        self.appliance.bind_sink(disk);
        let done = self.call(operation);
        self.appliance.release();
        done
    }
}
