//! What is done with a guest's requests.

use crate::handles::{Handle, Handles, OpenFile};
use crate::limits::Limits;
use crate::message::{NewAttributes, Range, Request};
use crate::nodes::{Node, Nodes};
use crate::reply::{DirectoryEntry, Reply, TRANSFER_BYTES_MAX};
use crate::room::Room;
use crate::scratch::Scratch;
use crate::tree::Tree;
use blockyard_devices::virtio::Message;
use rustix::fs::{
    Access, AtFlags, FallocateFlags, FileType, RawDir, SeekFrom, Stat, accessat, copy_file_range, fallocate, fdatasync,
    fstat, fstatvfs, fsync, ftruncate, seek,
};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What one request copies from file to file at most: the guest asks again for the rest, and others' turns come
/// between.
const COPY_BYTES_MAX: u64 = 16 << 20;
/// What fallocate(2) may do here. What moves the rest of a file is not for every file system.
const ALLOCATE_MODES: FallocateFlags =
    FallocateFlags::KEEP_SIZE.union(FallocateFlags::PUNCH_HOLE).union(FallocateFlags::ZERO_RANGE);

/// What is left to be answered.
pub(crate) enum Answer {
    /// What was put into the reply.
    Reply,
    /// So many bytes are in the guest's memory already, behind the header's place.
    Data(usize),
    /// Nothing: nobody waits for it.
    Nothing,
}

/// A shared directory, with what a guest knows of it. Its queues share it.
#[derive(Debug)]
pub(crate) struct FileSystem {
    tree: Tree,
    nodes: Mutex<Nodes>,
    handles: Mutex<Handles>,
    /// Changes are refused with EROFS, as a guest expects. That there are none is not up to this: the kernel refuses
    /// them to a process that serves for reading only.
    read_only: bool,
    room: Room,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl FileSystem {
    /// What is below `directory`. To be called before the process gives up opening files by their names.
    ///
    /// # Errors
    /// As [`Tree::new`].
    pub(crate) fn open(directory: &OwnedFd, read_only: bool, limits: Limits) -> Result<Self, Errno> {
        let nodes = Nodes::new(Tree::root(directory)?, limits.nodes);
        let handles = Mutex::new(Handles::new(limits.handles));
        Ok(Self {
            tree: Tree::new(directory, read_only)?,
            nodes: Mutex::new(nodes),
            handles,
            read_only,
            room: Room::default(),
        })
    }

    /// The same, in which a guest may take so many bytes of storage in all.
    pub(crate) fn with_limit(self, limit: Option<u64>) -> Self {
        Self { room: Room::of(limit), ..self }
    }

    /// Does what is asked of `node`. `message` has the data of what is read and written.
    ///
    /// # Errors
    /// What the guest is to hear.
    pub(crate) fn perform(
        &self,
        node: u64,
        request: &Request<'_>,
        message: &Message<'_>,
        scratch: &mut Scratch,
    ) -> Result<Answer, Errno> {
        if self.read_only && request.changes() {
            return Err(Errno::ROFS);
        }
        self.room.take(request.blocks_of_names())?;
        let reply = &mut scratch.reply;
        match *request {
            Request::Init(ref asked) => {
                self.forget_everything();
                reply.init(asked);
            }
            Request::Destroy => self.forget_everything(),
            Request::Forget(count) => {
                lock(&self.nodes).forget(node, count);
                return Ok(Answer::Nothing);
            }
            Request::ForgetMany(pairs) => {
                self.forget_many(pairs);
                return Ok(Answer::Nothing);
            }
            Request::Interrupt => return Ok(Answer::Nothing),
            Request::Flush => {}
            Request::Read(range) => return self.read(range, message),
            Request::Write { range, appends } => self.write(range, appends, message, reply)?,
            Request::Release(handle) => {
                // It is closed here, and not with the table locked.
                let _closed = lock(&self.handles).remove(handle);
            }
            Request::Sync(handle, data) => self.sync(handle, data)?,
            Request::Allocate { range, mode } => self.allocate(range, mode)?,
            Request::Seek { handle, offset, whence } => reply.place(self.seek(handle, offset, whence)?),
            Request::CopyRange { from, to_handle, to_offset } => {
                reply.count(self.copy(from, to_handle, to_offset)?);
            }
            Request::ReadDirectory { range, looks_up } => self.read_directory(node, range, looks_up, scratch)?,
            _ => self.perform_on_node(&*self.node(node)?, request, scratch)?,
        }
        Ok(Answer::Reply)
    }

    /// What is about the node itself, or about names in it.
    fn perform_on_node(&self, node: &Node, request: &Request<'_>, scratch: &mut Scratch) -> Result<(), Errno> {
        let Scratch { reply, space, .. } = scratch;
        match *request {
            Request::Lookup(name) => self.tell_of(node, name.as_c_str(), reply)?,
            Request::GetAttributes => reply.attributes_of(&fstat(node)?),
            Request::SetAttributes(ref new) => self.set_attributes(node, new, reply)?,
            Request::Access(mask) => self.access(node, mask)?,
            Request::ReadLink => {
                let mut text = [0; crate::message::LINK_BYTES_MAX];
                reply.raw(self.tree.link_text(node, &mut text)?);
            }
            Request::Symlink(name, text) => {
                self.tree.make_link(node, name, text)?;
                self.tell_of(node, name.as_c_str(), reply)?;
            }
            Request::MakeFile(name, mode) => {
                if FileType::from_raw_mode(mode) != FileType::RegularFile {
                    return Err(Errno::PERM);
                }
                let new = rustix::fs::OFlags::EXCL.bits();
                let (node, stat, _) = self.tree.create(node, name, new, mode)?;
                reply.entry(self.remember(node)?, &stat);
            }
            Request::MakeDirectory(name, mode) => {
                self.tree.make_directory(node, name, mode)?;
                self.tell_of(node, name.as_c_str(), reply)?;
            }
            Request::Unlink(name) => self.tree.remove(node, name, false)?,
            Request::RemoveDirectory(name) => self.tree.remove(node, name, true)?,
            Request::Rename { name, new_directory, new_name, flags } => {
                self.tree.rename((node, name), (&*self.node(new_directory)?, new_name), flags)?;
            }
            Request::Link(of, name) => {
                self.tree.link(&*self.node(of)?, node, name)?;
                self.tell_of(node, name.as_c_str(), reply)?;
            }
            Request::Open(flags) => {
                lock(&self.handles).has_room()?;
                let file = Arc::new(OpenFile::new(self.tree.open(node, flags)?));
                reply.opened(lock(&self.handles).insert(Handle::File(file))?);
            }
            Request::Create { name, flags, mode } => {
                lock(&self.handles).has_room()?;
                let (node, stat, file) = self.tree.create(node, name, flags, mode)?;
                // What cannot be told of is not kept.
                let handle = lock(&self.handles).insert(Handle::File(Arc::new(OpenFile::new(file))))?;
                let number = self.remember(node).inspect_err(|_| drop(lock(&self.handles).remove(handle)))?;
                reply.entry(number, &stat);
                reply.opened(handle);
            }
            Request::OpenDirectory => {
                lock(&self.handles).has_room()?;
                let directory = Arc::new(Mutex::new(self.tree.open_directory(node)?));
                reply.opened(lock(&self.handles).insert(Handle::Directory(directory))?);
            }
            Request::FileSystem => reply.file_system(&fstatvfs(node)?),
            Request::GetAttribute { name, bytes } => {
                let value = self.tree.attribute(node, name, space)?;
                answer_with(value, bytes, reply)?;
            }
            Request::SetAttribute { name, value, flags } => self.tree.set_attribute(node, name, value, flags)?,
            Request::RemoveAttribute(name) => self.tree.remove_attribute(node, name)?,
            Request::ListAttributes { bytes } => self.list_attributes(node, bytes, scratch)?,
            // The others were done before.
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }

    fn node(&self, number: u64) -> Result<Arc<Node>, Errno> {
        lock(&self.nodes).get(number)
    }

    fn remember(&self, node: Node) -> Result<u64, Errno> {
        lock(&self.nodes).remember(node)
    }

    fn forget_everything(&self) {
        lock(&self.handles).clear();
        lock(&self.nodes).clear();
    }

    fn forget_many(&self, pairs: &[u8]) {
        let mut nodes = lock(&self.nodes);
        for pair in pairs.chunks_exact(16) {
            let word = |at: usize| pair[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            nodes.forget(word(0), word(8));
        }
    }

    /// Answers with what has this name in a directory.
    fn tell_of(&self, directory: &Node, name: &std::ffi::CStr, reply: &mut Reply) -> Result<(), Errno> {
        let (node, stat) = self.tree.find(directory, name)?;
        reply.entry(self.remember(node)?, &stat);
        Ok(())
    }

    fn set_attributes(&self, node: &Node, new: &NewAttributes, reply: &mut Reply) -> Result<(), Errno> {
        let stat = fstat(node)?;
        // Whose a file is, is the host's to say. That it shall be whose it is does no harm.
        let keeps_owner = new.uid.is_none_or(|uid| uid == stat.st_uid) && new.gid.is_none_or(|gid| gid == stat.st_gid);
        if !keeps_owner {
            return Err(Errno::PERM);
        }
        if let Some(size) = new.size {
            match new.handle {
                Some(handle) => {
                    // The table is not locked meanwhile.
                    let file = lock(&self.handles).file(handle)?;
                    ftruncate(&*file, size)?;
                }
                None => ftruncate(self.tree.open(node, rustix::fs::OFlags::WRONLY.bits())?, size)?,
            }
        }
        if let Some(mode) = new.mode {
            self.tree.set_mode(node, mode)?;
        }
        if new.accessed.is_some() || new.modified.is_some() {
            self.tree.set_times(node, new.accessed, new.modified)?;
        }
        reply.attributes_of(&fstat(node)?);
        Ok(())
    }

    fn access(&self, node: &Node, mask: u32) -> Result<(), Errno> {
        let access = Access::from_bits(mask).ok_or(Errno::INVAL)?;
        if self.read_only && access.contains(Access::WRITE_OK) {
            return Err(Errno::ROFS);
        }
        accessat(node, c"", access, AtFlags::EMPTY_PATH)
    }

    fn read(&self, range: Range, message: &Message<'_>) -> Result<Answer, Errno> {
        let file = lock(&self.handles).file(range.handle)?;
        let header_bytes = crate::reply::HEADER_BYTES as u64;
        let room_bytes = message.writable_bytes().saturating_sub(header_bytes);
        let length_bytes = range.length.min(room_bytes).min(TRANSFER_BYTES_MAX.into()) as usize;
        let place = message.writable_from(header_bytes);
        let read = message.memory.read_from_file(&*file, range.offset, place, length_bytes);
        read.map(Answer::Data).map_err(errno)
    }

    fn write(&self, range: Range, appends: bool, message: &Message<'_>, reply: &mut Reply) -> Result<(), Errno> {
        let file = lock(&self.handles).file(range.handle)?;
        let prefix_bytes = crate::message::WRITE_PREFIX_BYTES as u64;
        let given_bytes = message.readable_bytes().saturating_sub(prefix_bytes);
        if range.length != given_bytes || given_bytes > TRANSFER_BYTES_MAX.into() {
            return Err(Errno::INVAL);
        }
        let offset = if appends && self.room.is_bounded() { fstat(&*file)?.st_size as u64 } else { range.offset };
        self.room.take_range(&file.last_block, offset, range.length)?;
        let (place, data) = ((!appends).then_some(range.offset), message.readable_from(prefix_bytes));
        let written = message.memory.write_to_file(&*file, place, data, range.length as usize).map_err(errno)?;
        reply.count(written as u32);
        Ok(())
    }

    fn sync(&self, handle: u64, data: bool) -> Result<(), Errno> {
        let handle = lock(&self.handles).get(handle)?;
        let sync = |descriptor: BorrowedFd<'_>| if data { fdatasync(descriptor) } else { fsync(descriptor) };
        match handle {
            Handle::File(file) => sync(file.as_fd()),
            Handle::Directory(directory) => sync(lock(&directory).as_fd()),
        }
    }

    fn allocate(&self, range: Range, mode: u32) -> Result<(), Errno> {
        let file = lock(&self.handles).file(range.handle)?;
        let mode = FallocateFlags::from_bits_retain(mode);
        if !ALLOCATE_MODES.contains(mode) {
            return Err(Errno::OPNOTSUPP);
        }
        if !mode.contains(FallocateFlags::PUNCH_HOLE) {
            self.room.take_range(&file.last_block, range.offset, range.length)?;
        }
        fallocate(&*file, mode, range.offset, range.length)
    }

    fn seek(&self, handle: u64, offset: u64, whence: u32) -> Result<u64, Errno> {
        const SEEK_DATA: u32 = 3;
        const SEEK_HOLE: u32 = 4;
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        // Nothing else depends on where the file stands.
        let file = lock(&self.handles).file(handle)?;
        seek(&*file, to)
    }

    fn copy(&self, from: Range, to_handle: u64, to_offset: u64) -> Result<u32, Errno> {
        let (source, target) = {
            let handles = lock(&self.handles);
            (handles.file(from.handle)?, handles.file(to_handle)?)
        };
        let (mut offset, mut to_offset) = (from.offset, to_offset);
        let mut bytes = from.length.min(COPY_BYTES_MAX);
        if self.room.is_bounded() {
            // Whoever copies a whole file asks for more than there is.
            bytes = bytes.min((fstat(&*source)?.st_size as u64).saturating_sub(offset));
            self.room.take_range(&target.last_block, to_offset, bytes)?;
        }
        Ok(copy_file_range(&*source, Some(&mut offset), &*target, Some(&mut to_offset), bytes as usize)? as u32)
    }

    fn read_directory(&self, number: u64, range: Range, looks_up: bool, scratch: &mut Scratch) -> Result<(), Errno> {
        let node = self.node(number)?;
        let Handle::Directory(directory) = lock(&self.handles).get(range.handle)? else { return Err(Errno::NOTDIR) };
        let directory = lock(&directory);
        let Scratch { reply, space, .. } = scratch;
        let room_bytes = scratch.room_bytes.min(range.length as usize);
        seek(&*directory, SeekFrom::Start(range.offset))?;
        // No more than fit into the reply, or the rest is read in vain.
        let length = space.len().min(room_bytes);
        let mut entries = RawDir::new(&*directory, &mut space[..length]);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            let found = match looks_up && !matches!(name.to_bytes(), b"." | b"..") {
                true => self.found(&node, name),
                false => None,
            };
            let told = found.as_ref().map(|(number, _)| *number);
            let entry = DirectoryEntry {
                inode: entry.ino(),
                next_offset: entry.next_entry_cookie(),
                kind: directory_entry_kind(entry.file_type()),
                name: name.to_bytes(),
                has_attributes: looks_up,
                found,
            };
            if !reply.directory_entry(&entry, room_bytes) {
                // The guest has not heard of it.
                if let Some(number) = told {
                    lock(&self.nodes).forget(number, 1);
                }
                // An empty answer would be the directory's end.
                return if reply.bytes().is_empty() { Err(Errno::INVAL) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// What has this name, if it is still there and there is room to remember it: else the guest looks it up itself
    /// when it needs it.
    fn found(&self, directory: &Node, name: &std::ffi::CStr) -> Option<(u64, Stat)> {
        let (node, stat) = self.tree.find(directory, name).ok()?;
        Some((self.remember(node).ok()?, stat))
    }

    fn list_attributes(&self, node: &Node, bytes: u32, scratch: &mut Scratch) -> Result<(), Errno> {
        let Scratch { reply, space, .. } = scratch;
        self.tree.attribute_names(node, space, |name| reply.raw(name))?;
        let length = reply.bytes().len();
        if bytes == 0 {
            reply.clear();
            reply.count(length as u32);
        } else if length > bytes as usize {
            return Err(Errno::RANGE);
        }
        Ok(())
    }

    /// How many nodes the guest knows.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> usize {
        lock(&self.nodes).count()
    }
}

/// A value for which the guest has `bytes`, or its length where it has none.
fn answer_with(value: &[u8], bytes: u32, reply: &mut Reply) -> Result<(), Errno> {
    match bytes as usize {
        0 => reply.count(value.len() as u32),
        room if value.len() > room => return Err(Errno::RANGE),
        _ => reply.raw(value),
    }
    Ok(())
}

/// As in `struct dirent`: DT_REG and the like, which are the types of modes without their low bits.
fn directory_entry_kind(kind: FileType) -> u32 {
    match kind {
        FileType::Unknown => 0,
        kind => kind.as_raw_mode() >> 12,
    }
}
