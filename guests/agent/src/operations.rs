//! Which request is done where.

use crate::failures::{Failures, failure, refusal};
use crate::hand_over::{self, Successor};
use crate::mounts::Mounts;
use crate::stream::{SinkStream, TransferDisks};
use crate::tar_out::LeftOut;
use crate::{
    attributes, block_copy, boot_files, directory_walk, execution, file_changes, file_copy, file_making, file_queries,
    inspect, named_files, system, tar_in, tar_out, tools, trim, volume_list,
};
use blockyard_protocol::appliance::{Failure, HandOver, Operation, Request, Response};
use std::io::{self, Write};
use std::path::Path;

/// Carries out a request. Whatever happens to it, there is a response.
pub(crate) fn perform(request: Request, mounts: &mut Mounts, disks: &TransferDisks) -> Response {
    let mut response = Response { number: request.number, ..Response::default() };
    let mut failures = Failures::default();
    let done = mounts
        .finish_leaving()
        .and_then(|()| perform_operation(request.operation, mounts, disks, &mut failures, &mut response));
    if let Err(problem) = done {
        failures.add(problem);
    }
    response.failures = failures.first;
    response.failed = failures.count;
    response.modules = std::mem::take(&mut mounts.wanted);
    response
}

/// Looks for the system that is to take over: with its response, which has to be sent before it does.
pub(crate) fn prepare_hand_over(
    number: u32,
    request: &HandOver,
    disks: &TransferDisks,
) -> (Response, Option<Successor>) {
    let prepared = hand_over::prepare(request);
    let mut response = Response { number, closed: prepared.closed, modules: prepared.wanted, ..Response::default() };
    let mut failures = Failures::default();
    let system = prepared.system.and_then(|system| {
        let unplugged = disks.unplug();
        unplugged.map_err(|error| failure(Path::new(""), "cannot take the transfer disks away", &error))?;
        Ok(system)
    });
    let successor = match system {
        Ok((point, successor)) => {
            response.mounted.push(point);
            Some(successor)
        }
        Err(problem) => {
            failures.add(problem);
            None
        }
    };
    (response.failures, response.failed) = (failures.first, failures.count);
    (response, successor)
}

/// What is left of a response that cannot be sent.
pub(crate) fn without_names(response: &Response, error: &io::Error) -> Response {
    let mut failures = Failures { count: response.failed, ..Failures::default() };
    failures.add(failure(Path::new(""), "the answer cannot be sent", error));
    Response { number: response.number, failures: failures.first, failed: failures.count, ..Response::default() }
}

fn perform_operation(
    operation: Operation,
    mounts: &mut Mounts,
    disks: &TransferDisks,
    failures: &mut Failures,
    response: &mut Response,
) -> Result<(), Failure> {
    if operation.needs_a_mount() && !mounts.is_mounted() {
        return Err(refusal("nothing is mounted"));
    }
    match operation {
        Operation::Mount(mount) => {
            let mounted = mounts.mount(&mount);
            response.closed = mounts.closed;
            mounted?;
            response.mounted = mounts.mounted.iter().map(|mounted| mounted.point.clone()).collect();
            response.notes = mounts.notes.clone();
            Ok(())
        }
        Operation::Unmount => mounts.unmount(),
        Operation::Sync => system::sync().map_err(|error| failure(Path::new(""), "cannot sync", &error)),
        Operation::Inspect(request) => {
            response.bytes = to_sink(disks, |sink| inspect::inspect(mounts, &request, sink))?;
            Ok(())
        }
        Operation::Walk(walk) => {
            response.bytes = to_sink(disks, |sink| directory_walk::walk(&walk, sink))?;
            Ok(())
        }
        Operation::Usage => {
            response.bytes = to_sink(disks, |sink| directory_walk::usage(mounts, sink))?;
            Ok(())
        }
        Operation::Read(read) => {
            response.bytes = to_sink(disks, |sink| file_copy::read(&read, sink, failures))?;
            Ok(())
        }
        Operation::TarOut(request) => {
            let mut left_out = LeftOut::default();
            response.bytes = to_sink(disks, |sink| tar_out::write(&request, sink, failures, &mut left_out))?;
            response.notes = left_out.into_notes();
            Ok(())
        }
        Operation::TarIn(request) => tar_in::unpack(&request, disks, failures).map(|bytes| response.bytes = bytes),
        Operation::Store(store) => file_copy::store(&store, disks).map(|bytes| response.bytes = bytes),
        Operation::Discard(discard) => file_copy::discard(&discard, disks).map(|bytes| response.bytes = bytes),
        Operation::Fetch(fetch) => file_copy::fetch(&fetch, disks).map(|bytes| response.bytes = bytes),
        Operation::Remove(remove) => {
            file_changes::remove(&remove, failures);
            Ok(())
        }
        Operation::MakeDirectory(make) => {
            file_changes::make_directories(&make, failures);
            Ok(())
        }
        Operation::Rename(mut rename) => {
            rename.sources = named_files::names(rename.sources, rename.streamed, disks)?;
            file_changes::rename(&rename, failures)
        }
        Operation::CopyFiles(mut copy) => {
            copy.sources = named_files::names(copy.sources, copy.streamed, disks)?;
            file_making::copy(&copy, failures)
        }
        Operation::Fill(fill) => file_making::fill(&fill).map(|bytes| response.bytes = bytes),
        Operation::Touch(touch) => {
            file_making::touch(&touch, failures);
            Ok(())
        }
        Operation::CopyBlocks(copy) => block_copy::copy(&copy, mounts, disks).map(|bytes| response.bytes = bytes),
        Operation::ReadPartitions(read) => {
            block_copy::read_partitions(read.disks, failures);
            Ok(())
        }
        Operation::Execute(execute) => {
            response.program = Some(execution::execute(execute, mounts, disks)?);
            Ok(())
        }
        // What it is about is done.
        Operation::Interrupt => Ok(()),
        // Whoever serves requests does that, as it is the last one.
        Operation::HandOver(_) => Err(refusal("this is no time to hand over")),
        Operation::Link(link) => file_changes::link(&link),
        Operation::MakeNode(make) => file_making::make_node(&make),
        Operation::ReadAttributes(read) => {
            response.bytes = to_sink(disks, |sink| attributes::read(&read, sink))?;
            Ok(())
        }
        Operation::SetAttribute(set) => attributes::set(&set),
        Operation::ResolvePath(resolve) => {
            let resolved = file_queries::resolve(&resolve)?;
            response.bytes = to_sink(disks, |sink| sink.write_all(&resolved))?;
            Ok(())
        }
        Operation::FindBootFiles(request) => {
            response.bytes = to_sink(disks, |sink| boot_files::find(&request, mounts, sink, failures))?;
            Ok(())
        }
        Operation::Compare(compare) => file_queries::compare(&compare).map(|same| response.same = same),
        Operation::ChangeMode(change) => {
            attributes::change_mode(&change, failures);
            Ok(())
        }
        Operation::ChangeOwner(change) => attributes::change_owner(&change, failures),
        Operation::InstallTools => {
            response.bytes = tools::install(mounts, disks, failures)?;
            Ok(())
        }
        Operation::RunTool(request) => {
            response.program = Some(tools::run(request, mounts)?);
            Ok(())
        }
        Operation::ListVolumes(request) => {
            let volumes = volume_list::describe_all(&request, mounts);
            let written = volumes.as_deref().unwrap_or_default();
            response.bytes = to_sink(disks, |sink| volume_list::write(written, sink))?;
            volumes.map(drop)
        }
        Operation::Trim => {
            response.trimmed = trim::trim(mounts, failures);
            Ok(())
        }
    }
}

/// Whatever `write` does, the stream ends, so that the host does not wait for more.
fn to_sink(disks: &TransferDisks, write: impl FnOnce(&mut SinkStream) -> io::Result<()>) -> Result<u64, Failure> {
    let mut sink = SinkStream::open(&disks.sink);
    let bad = |error: io::Error| failure(Path::new(""), "cannot send the result", &error);
    let written = write(&mut sink);
    let finished = sink.finish();
    written.map_err(bad)?;
    finished.map_err(bad)
}
