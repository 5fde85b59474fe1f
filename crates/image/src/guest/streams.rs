//! Bytes that go out of the guest, and into it.

use super::OpenImage;
use super::failures::first_few;
use super::requests;
use crate::error::{Context, Error, Result};
use blockyard_appliance::{StreamSink, StreamSource};
use blockyard_protocol::appliance::Operation;
use std::io;
use std::os::fd::AsFd;

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

/// Does something with each, also when it failed with one before, unless the appliance is of no more use.
///
/// # Errors
/// A line for each of the first few failures.
fn each<T>(items: impl IntoIterator<Item = T>, mut act: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut failed: Vec<Error> = Vec::new();
    for item in items {
        if let Err(error) = act(item) {
            let is_the_end = error.appliance().is_some();
            failed.push(error);
            if is_the_end {
                break;
            }
        }
    }
    let Some(last) = failed.pop() else { return Ok(()) };
    if failed.is_empty() {
        return Err(last);
    }
    let lines = first_few(failed.iter().map(Error::in_one_line), failed.len() as u64);
    // What it is the context of comes after a colon, in a line of its own.
    Err(last.context(format!("{}\nblockyard", lines.join("\nblockyard: "))))
}
