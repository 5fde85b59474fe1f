//! Calls on descriptors themselves.

use crate::calls::{OpenDisk, data, disk, duplicated};
use crate::description::Mapped;
use crate::errno::{Errno, answer_int};
use crate::guarded::{get, put};
use crate::next::calls;
use crate::signals::Busy;
use crate::{connection, fork, locks, own, setup, stat, stderr, table, transfer};
use blockyard_block::Operation;
use libc::{c_char, c_int, c_uint, c_ulong, c_void, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use std::sync::atomic::{AtomicBool, Ordering};

calls! {
    fn [close](descriptor: c_int) -> c_int |own| {
        if own::is_own(descriptor) && !setup::is_inside() {
            return answer_int::<c_int>(Err(Errno(libc::EBADF)));
        }
        let _busy = table::find(descriptor).map(|_| Busy::enter());
        let settled = settled(descriptor);
        // First, as the number may be another's as soon as it is closed.
        table::remove(descriptor);
        own::is_closed(descriptor);
        let closed = own();
        if settled.is_err() { answer_int(settled) } else { closed }
    }
    fn [close_range](first: c_uint, last: c_uint, flags: c_int) -> c_int |_own| {
        if first > last || flags & !(libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE) as c_int != 0 {
            return answer_int::<c_int>(Err(Errno(libc::EINVAL)));
        }
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
            table::remove_range(first, last);
        }
        own::around(first, last, |first, last| close_all(first, last, flags))
    }
    fn [closefrom](first: c_int) -> () |_own| {
        let first = first.max(0) as c_uint;
        table::remove_range(first, c_uint::MAX);
        own::around(first, c_uint::MAX, |first, last| close_all(first, last, 0));
    }
    fn [dup](descriptor: c_int) -> c_int |own| {
        passed_on(duplicated(descriptor, own()))
    }
    fn [dup2](descriptor: c_int, new: c_int) -> c_int |own| {
        passed_on(duplicated_to(descriptor, new, own))
    }
    fn [dup3](descriptor: c_int, new: c_int, flags: c_int) -> c_int |own| {
        let duplicate = duplicated_to(descriptor, new, own);
        if flags & libc::O_CLOEXEC == 0 { passed_on(duplicate) } else { duplicate }
    }
    fn [fcntl, fcntl64](descriptor: c_int, command: c_int, argument: usize) -> c_int |own| {
        controlled(descriptor, command, argument).unwrap_or_else(|| after(descriptor, command, argument, own()))
    }
    fn [flock](descriptor: c_int, operation: c_int) -> c_int |own| {
        let file = |disk: OpenDisk| locks::of_description(disk.mapped);
        disk(descriptor).map_or_else(own, |disk| {
            answer_int(disk.and_then(file).and_then(|file| locks::lock_all(file, operation)))
        })
    }
    fn [lockf, lockf64](descriptor: c_int, command: c_int, length: i64) -> c_int |own| {
        let locked = |disk: Result<OpenDisk, Errno>| disk.and_then(|disk| section_locked(disk, command, length));
        disk(descriptor).map_or_else(own, |disk| answer_int(locked(disk)))
    }
    fn [ioctl](descriptor: c_int, request: c_ulong, argument: usize) -> c_int |own| {
        if let libc::FIOCLEX | libc::FIONCLEX = request
            && table::has(descriptor)
        {
            // What the kernel knows of the descriptor itself, it does not say by an ioctl.
            let flags = if request == libc::FIOCLEX { libc::FD_CLOEXEC } else { 0 };
            // SAFETY: numbers.
            return unsafe { libc::fcntl(descriptor, libc::F_SETFD, flags) };
        }
        disk(descriptor).map_or_else(own, |disk| answer_int(disk.and_then(|disk| asked(disk, request, argument))))
    }
    fn [isatty](descriptor: c_int) -> c_int |own| {
        if !table::has(descriptor) {
            return own();
        }
        Errno(libc::ENOTTY).set();
        0
    }
    fn [tcgetattr](descriptor: c_int, found: *mut libc::termios) -> c_int |own| {
        if table::has(descriptor) { answer_int::<c_int>(Err(Errno(libc::ENOTTY))) } else { own() }
    }
    fn [fstat, fstat64](descriptor: c_int, found: *mut libc::stat) -> c_int |own| {
        disk(descriptor).map_or_else(own, |disk| answer_int(disk.and_then(|disk| stated(&disk, found))))
    }
    fn [__fxstat, __fxstat64](version: c_int, descriptor: c_int, found: *mut libc::stat) -> c_int |own| {
        disk(descriptor).map_or_else(own, |disk| answer_int(disk.and_then(|disk| stated(&disk, found))))
    }
    fn [mmap, mmap64](
        address: *mut c_void, length: usize, protection: c_int, flags: c_int, descriptor: c_int, offset: i64
    ) -> *mut c_void |own| {
        if flags & libc::MAP_ANONYMOUS == 0 && table::has(descriptor) { no_mapping() } else { own() }
    }
    fn [socket](domain: c_int, kind: c_int, protocol: c_int) -> c_int |own| {
        programs(own())
    }
    fn [accept](listener: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int |own| {
        programs(own())
    }
    fn [accept4](listener: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int |own| {
        programs(own())
    }
    fn [socketpair](domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int |own| {
        programs_pair(own(), pair)
    }
    fn [eventfd](count: c_uint, flags: c_int) -> c_int |own| {
        programs(own())
    }
    fn [pipe](pair: *mut c_int) -> c_int |own| {
        programs_pair(own(), pair)
    }
    fn [pipe2](pair: *mut c_int, flags: c_int) -> c_int |own| {
        programs_pair(own(), pair)
    }
    fn [daemon](keeps_directory: c_int, keeps_streams: c_int) -> c_int |own| {
        let made = own();
        look_at_streams();
        made
    }
    fn [login_tty](terminal: c_int) -> c_int |own| {
        let made = own();
        look_at_streams();
        made
    }
    fn [forkpty](
        controller: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void
    ) -> libc::pid_t |own| {
        let made = own();
        if made == 0 {
            look_at_streams();
        }
        made
    }
    fn [recvmsg](socket: c_int, message: *mut msghdr, flags: c_int) -> isize |own| {
        let received = own();
        if received >= 0 {
            // SAFETY: the kernel has filled it in.
            unsafe { passed(message) };
        }
        received
    }
    fn [recvmmsg](
        socket: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int |own| {
        let received = own();
        for index in 0..usize::try_from(received).unwrap_or(0) {
            // SAFETY: the kernel has filled so many in.
            unsafe { passed(&raw mut (*messages.add(index)).msg_hdr) };
        }
        received
    }
    fn [_Fork]() -> libc::pid_t |own| {
        fork::make(own)
    }
    fn [vfork]() -> libc::pid_t |_own| {
        // A child that shares its parent's memory would change what its parent's descriptors are: it has memory of its
        // own, as vfork(2) allows.
        // SAFETY: the caller's.
        unsafe { libc::fork() }
    }
}

/// A new descriptor of the program's. A disk that had that number was closed past this library.
fn programs(descriptor: c_int) -> c_int {
    table::remove(descriptor);
    own::is_programs(descriptor);
    descriptor
}

/// The same of two, where the kernel has made them.
fn programs_pair(made: c_int, pair: *const c_int) -> c_int {
    if made == 0 {
        // SAFETY: the kernel has put them there.
        unsafe { (programs(*pair), programs(*pair.add(1))) };
    }
    made
}

/// After what puts others in the place of the standard streams within libc: which of them are disks still.
fn look_at_streams() {
    (0..=2).filter(|&stream| table::has(stream) && !Mapped::is_on(stream)).for_each(|stream| _ = table::remove(stream));
}

/// Descriptors that somebody has passed to the program.
///
/// # Safety
/// The kernel has filled the message in.
unsafe fn passed(message: *const msghdr) {
    // SAFETY: the caller's; the kernel has said how long each part is.
    unsafe {
        let mut part = libc::CMSG_FIRSTHDR(message);
        while let Some(header) = part.as_ref() {
            if (header.cmsg_level, header.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(part).cast::<c_int>();
                let count = header.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize) / size_of::<c_int>();
                for descriptor in (0..count).map(|index| data.add(index).read_unaligned()) {
                    programs(descriptor);
                    if setup::has_disks() && !setup::is_inside() {
                        table::adopt_passed(descriptor);
                    }
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}

/// Closes a range of descriptors, none of which is this library's own.
fn close_all(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    // SAFETY: they are the program's, which wants them closed.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) as c_int }
}

/// As [`duplicated`], to a number that the program has chosen. Other threads, which may use it meanwhile, find what was
/// there or what is: a disk is known before the kernel is asked, and is forgotten afterwards.
fn duplicated_to(from: c_int, to: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    if own::is_own(to) {
        return answer_int::<c_int>(Err(Errno(libc::EBUSY)));
    }
    let _busy = (table::has(from) || table::has(to)).then(Busy::enter);
    let is_given =
        to >= 0 && to != from && !table::has(to) && table::find(from).is_some_and(|open| open.give_to(to).is_ok());
    let made = duplicate();
    if made < 0 {
        let error = Errno::last();
        if is_given {
            table::remove(to);
        }
        error.set();
        return made;
    }
    if is_given {
        own::is_programs(to);
        return made;
    }
    duplicated(from, made)
}

/// Programs that are executed have a descriptor: and so its description's locks.
fn passed_on(descriptor: c_int) -> c_int {
    if let Some(locks) = table::find(descriptor).and_then(|open| open.mapped().locks()) {
        own::pass_locks_on(locks);
    }
    descriptor
}

/// What was written before a descriptor is closed is done, and what failed of it is told.
fn settled(descriptor: c_int) -> Result<c_int, Errno> {
    let Some(open) = table::find(descriptor) else { return Ok(0) };
    let connection = connection::there(open.disk());
    connection.map_or(Ok(()), |connection| connection.behind.settle(connection)).map(|()| 0)
}

/// Locks or unlocks records, or says what is locked.
fn locked(disk: OpenDisk, command: c_int, lock: libc::flock) -> Result<libc::flock, Errno> {
    let description = disk.mapped.get();
    let may = match c_int::from(lock.l_type) {
        _ if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) => true,
        libc::F_RDLCK => description.may_read(),
        libc::F_WRLCK => description.may_write(),
        _ => true,
    };
    if !may {
        return Err(Errno(libc::EBADF));
    }
    if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
        locks::pass_on(disk.connection);
    }
    let wanted = locks::Wanted::new(disk.connection, disk.mapped, command, lock)?;
    // Signals come while it waits.
    drop(disk);
    wanted.carry_out()
}

/// The same, of a lock of the program's.
fn controlled_lock(disk: OpenDisk, command: c_int, place: *mut libc::flock) -> Result<c_int, Errno> {
    let found = locked(disk, command, get(place)?)?;
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) { put(place, found) } else { Ok(0) }
}

/// As lockf(3), from where the descriptor stands.
fn section_locked(disk: OpenDisk, command: c_int, length: i64) -> Result<c_int, Errno> {
    // SAFETY: all of it is numbers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    (lock.l_whence, lock.l_len, lock.l_type) = (libc::SEEK_CUR as i16, length, libc::F_WRLCK as i16);
    let command = match command {
        libc::F_LOCK => libc::F_SETLKW,
        libc::F_TLOCK => libc::F_SETLK,
        libc::F_ULOCK => {
            lock.l_type = libc::F_UNLCK as i16;
            libc::F_SETLK
        }
        libc::F_TEST => libc::F_GETLK,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let found = locked(disk, command, lock)?;
    // SAFETY: it cannot fail.
    let is_free = c_int::from(found.l_type) == libc::F_UNLCK || found.l_pid == unsafe { libc::getpid() };
    if command != libc::F_GETLK || is_free { Ok(0) } else { Err(Errno(libc::EACCES)) }
}

/// Flags that mean something when a file is opened, and nothing later.
const AT_OPENING: c_int = libc::O_CREAT | libc::O_EXCL | libc::O_NOCTTY | libc::O_TRUNC;

/// What fcntl(2) says of a disk, where that is not what the kernel says.
fn controlled(descriptor: c_int, command: c_int, argument: usize) -> Option<c_int> {
    let is_ours = matches!(
        command,
        libc::F_GETFL
            | libc::F_SETFL
            | libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW
    );
    let open = table::find(descriptor).filter(|_| is_ours)?;
    Some(match command {
        libc::F_GETFL => open.mapped().get().flags() & !AT_OPENING,
        libc::F_SETFL => {
            open.mapped().get().set_flags(argument as c_int);
            0
        }
        _ => {
            answer_int(OpenDisk::of(open).and_then(|disk| controlled_lock(disk, command, argument as *mut libc::flock)))
        }
    })
}

/// Once fcntl(2) has made another descriptor, it is open on the same; and who has one later may be another.
fn after(descriptor: c_int, command: c_int, argument: usize, result: c_int) -> c_int {
    match command {
        libc::F_DUPFD => passed_on(duplicated(descriptor, result)),
        libc::F_DUPFD_CLOEXEC => duplicated(descriptor, result),
        libc::F_SETFD if result == 0 && argument & libc::FD_CLOEXEC as usize == 0 => {
            passed_on(descriptor);
            result
        }
        _ => result,
    }
}

fn stated(disk: &OpenDisk, found: *mut libc::stat) -> Result<c_int, Errno> {
    put(found, stat::of(disk.connection, disk.number))
}

/// A disk is nowhere in memory.
fn no_mapping() -> *mut c_void {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if !IS_TOLD.swap(true, Ordering::Relaxed) {
        stderr::tell("a program wants a disk in its memory (mmap), which is not possible");
    }
    Errno(libc::ENODEV).set();
    libc::MAP_FAILED
}

/// Requests of block devices (linux/fs.h).
mod request {
    use libc::c_ulong;

    pub(super) const BLKROGET: c_ulong = 0x125e;
    pub(super) const BLKRRPART: c_ulong = 0x125f;
    pub(super) const BLKGETSIZE: c_ulong = 0x1260;
    pub(super) const BLKFLSBUF: c_ulong = 0x1261;
    pub(super) const BLKSSZGET: c_ulong = 0x1268;
    pub(super) const BLKRASET: c_ulong = 0x1262;
    pub(super) const BLKRAGET: c_ulong = 0x1263;
    pub(super) const BLKFRASET: c_ulong = 0x1264;
    pub(super) const BLKFRAGET: c_ulong = 0x1265;
    pub(super) const BLKSECTGET: c_ulong = 0x1267;
    pub(super) const BLKBSZGET: c_ulong = 0x8008_1270;
    pub(super) const BLKBSZSET: c_ulong = 0x4008_1271;
    pub(super) const BLKGETSIZE64: c_ulong = 0x8008_1272;
    pub(super) const BLKDISCARD: c_ulong = 0x1277;
    pub(super) const BLKIOMIN: c_ulong = 0x1278;
    pub(super) const BLKIOOPT: c_ulong = 0x1279;
    pub(super) const BLKALIGNOFF: c_ulong = 0x127a;
    pub(super) const BLKPBSZGET: c_ulong = 0x127b;
    pub(super) const BLKDISCARDZEROES: c_ulong = 0x127c;
    pub(super) const BLKSECDISCARD: c_ulong = 0x127d;
    pub(super) const BLKROTATIONAL: c_ulong = 0x127e;
    pub(super) const BLKZEROOUT: c_ulong = 0x127f;
    pub(super) const BLKGETZONESZ: c_ulong = 0x8004_1284;
    pub(super) const BLKGETNRZONES: c_ulong = 0x8004_1285;
}

fn asked(disk: OpenDisk, what: c_ulong, argument: usize) -> Result<c_int, Errno> {
    use request::*;

    let what = what & c_ulong::from(u32::MAX);
    let geometry = &disk.connection.geometry;
    let (capacity, logical, physical) =
        (geometry.capacity_bytes, geometry.logical_block_bytes, geometry.physical_block_bytes);
    match what {
        _ if setup::disks_look_like_files() => Err(Errno(libc::ENOTTY)),
        BLKFLSBUF => data::flush(&disk),
        BLKDISCARD | BLKZEROOUT => cleared(disk, what, argument),
        BLKSECDISCARD => Err(Errno(libc::EOPNOTSUPP)),
        BLKALIGNOFF | BLKDISCARDZEROES | BLKGETZONESZ | BLKGETNRZONES => put(argument as *mut _, 0_u32),
        BLKROTATIONAL => put(argument as *mut _, 0_u16),
        BLKROGET => put(argument as *mut _, u32::from(geometry.read_only)),
        BLKGETSIZE => put(argument as *mut _, capacity / 512),
        BLKGETSIZE64 => put(argument as *mut _, capacity),
        BLKSSZGET | BLKBSZGET => put(argument as *mut _, logical),
        // What the kernel's cache has it in: there is none.
        // Nor does it read ahead: what is set has no effect.
        BLKRAGET | BLKFRAGET | BLKBSZSET if argument == 0 => Err(Errno(libc::EINVAL)),
        BLKRAGET | BLKFRAGET => put(argument as *mut _, 0 as c_ulong),
        BLKRASET | BLKFRASET => Ok(0),
        BLKSECTGET => put(argument as *mut _, u16::MAX),
        BLKBSZSET => match get(argument as *const u32)? {
            bytes if bytes.is_power_of_two() && (logical..=CACHED_BLOCK_MAX.max(logical)).contains(&bytes) => Ok(0),
            _ => Err(Errno(libc::EINVAL)),
        },
        // Partitions of it are no devices.
        BLKRRPART => Ok(0),
        BLKPBSZGET | BLKIOMIN => put(argument as *mut _, physical),
        BLKIOOPT => put(argument as *mut _, geometry.optimal_io_bytes),
        _ => Err(Errno(libc::ENOTTY)),
    }
}

/// The largest block of the kernel's cache: where there are larger ones, not all file systems have them.
const CACHED_BLOCK_MAX: u32 = 4096;

/// Zeroes a range or gives its storage back.
fn cleared(disk: OpenDisk, what: c_ulong, argument: usize) -> Result<c_int, Errno> {
    let disk = disk.for_writing(libc::EBADF)?;
    let [offset, length] = get(argument as *const [u64; 2])?;
    let block = u64::from(disk.connection.geometry.logical_block_bytes);
    let end = offset.checked_add(length).filter(|end| *end <= disk.capacity()).ok_or(Errno(libc::EINVAL))?;
    if length == 0 || (offset | end) % block != 0 {
        return Err(Errno(libc::EINVAL));
    }
    match what {
        request::BLKZEROOUT => transfer::write_zeroes(disk.connection, offset, length, false)?,
        _ if !disk.connection.geometry.discard => return Err(Errno(libc::EOPNOTSUPP)),
        _ => transfer::perform(disk.connection, Operation::Discard { length_bytes: length }, offset)?,
    }
    Ok(0)
}
