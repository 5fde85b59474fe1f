"""Python on a file by its name. The first argument is the name, the second a file with the same bytes, to which all is
done, too: both answer the same, and have the same bytes in the end. The third is a file for copies."""

import ctypes
import errno
import fcntl
import io
import mmap
import os
import random
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

NAME, TWIN, COPY = sys.argv[1:]
SIZE = os.path.getsize(TWIN)


def bytes_of(count, seed):
    return random.Random(seed).randbytes(count)


def on_both(what):
    """What `what` returns, which is the same for both."""
    answers = [what(name) for name in (NAME, TWIN)]
    assert answers[0] == answers[1], (what, answers)
    return answers[0]


def refused(error, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError as refusal:
        assert refusal.errno == error, refusal
    else:
        raise AssertionError(f"{call} is not refused")


def descriptors(name):
    """os.open and the calls on its descriptor."""
    file = os.open(name, os.O_RDWR | os.O_CLOEXEC)
    seen = [os.lseek(file, 0, os.SEEK_END), os.lseek(file, -1000, os.SEEK_CUR), os.read(file, 5000), os.read(file, 1)]
    for offset, count in [(0, 512), (1, 1), (4095, 2), (777, 100_001), (SIZE - 10, 100), (SIZE, 5), (SIZE * 2, 5)]:
        seen.append(os.pread(file, count, offset))
    for offset, count in [(0, 512), (3, 1), (8191, 2), (1234567, 100_001), (SIZE - 10, 10)]:
        seen.append(os.pwrite(file, bytes_of(count, offset), offset))
    seen.append(os.lseek(file, 12345, os.SEEK_SET))
    seen += [os.write(file, b"written"), os.lseek(file, 0, os.SEEK_CUR)]
    buffers = [bytearray(7), bytearray(4096), bytearray(0), bytearray(513)]
    seen += [os.preadv(file, buffers, 12340), buffers, os.readv(file, buffers), buffers]
    seen.append(os.pwritev(file, [b"one", bytes_of(5000, 1), b"two"], 54321))
    seen.append(os.pwritev(file, [b"stable"], 99, os.RWF_DSYNC))
    os.fsync(file)
    os.fdatasync(file)
    os.posix_fadvise(file, 0, SIZE, os.POSIX_FADV_SEQUENTIAL)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    refused(errno.EINVAL, os.pread, file, 1, -1)
    refused(errno.EINVAL, os.lseek, file, -1, os.SEEK_SET)
    copy = os.dup(file)
    os.lseek(copy, 4000, os.SEEK_SET)
    seen += [os.read(file, 10), os.lseek(copy, 0, os.SEEK_CUR), os.get_inheritable(copy)]
    os.close(copy)
    os.close(file)
    refused(errno.EBADF, os.read, file, 1)
    only_reads = os.open(name, os.O_RDONLY)
    refused(errno.EBADF, os.write, only_reads, b"x")
    os.close(only_reads)
    return seen


def file_objects(name):
    """open() in each of its ways."""
    seen = []
    with open(name, "r+b") as file:
        seen += [file.seekable(), file.isatty(), file.seek(0, io.SEEK_END)]
        seen += [file.seek(1000), file.read(100), file.tell()]
        seen += [file.write(b"buffered"), file.read(20), file.seek(-30, io.SEEK_CUR), file.peek(4)[:4]]
        seen += [file.write(bytes_of(300_000, 9)), file.tell()]
        file.flush()
        os.fsync(file.fileno())
        buffer = bytearray(10_000)
        seen += [file.seek(200_000), file.readinto(buffer), buffer]
    with open(name, "r+b", buffering=0) as file:
        seen += [file.seek(333), file.read(1000), file.write(b"unbuffered"), file.tell()]
    with open(name, "wb") as file:
        # A file of the machine's is emptied by that.
        os.truncate(TWIN, SIZE)
        seen.append(file.write(bytes_of(SIZE, 3)))
    with open(name, "r+", encoding="latin-1", newline="\n") as file:
        seen += [file.write("line\nother line\n"), file.seek(0), file.readline(), file.readline()]
    with open(name, "rb") as file:
        seen += [file.readline(), next(file), sum(len(line) for line in file)]
        refused(errno.EBADF, os.write, file.fileno(), b"x")
    refused(errno.EEXIST, os.open, name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    return seen


def copies(name):
    """Whole files, in each way that Python has."""
    seen = []
    for length in (1000, 65536, 1 << 20):
        with open(name, "rb") as source, open(COPY, "wb") as target:
            shutil.copyfileobj(source, target, length)
        with open(COPY, "rb") as copy:
            seen.append(hash(copy.read()))
    with open(COPY, "wb") as target:
        target.write(bytes_of(SIZE - 12345, 77))
    with open(COPY, "rb") as source, open(name, "r+b") as target:
        target.seek(345)
        shutil.copyfileobj(source, target, 10_000)
        seen.append(target.tell())
    shutil.copyfile(name, COPY)
    with open(COPY, "rb") as copy:
        seen.append(hash(copy.read()))
    with open(name, "rb") as source, open(COPY, "wb") as target:
        seen.append(os.sendfile(target.fileno(), source.fileno(), 1111, 100_000))
    with open(COPY, "rb") as copy:
        seen.append(hash(copy.read()))
    with open(name, "r+b") as target, open(COPY, "rb") as source:
        seen.append(os.copy_file_range(source.fileno(), target.fileno(), 5000, 100, 40_000))
    return seen


def others(name):
    """Threads and processes."""
    file = os.open(name, os.O_RDWR)
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda i: hash(os.pread(file, 10_000, i * 9_999)), range(200)))
        seen += pool.map(lambda i: os.pwrite(file, bytes_of(4096, i), i * 8192), range(200))
    os.lseek(file, 100, os.SEEK_SET)
    seen.append(subprocess.run(["head", "-c", "50"], stdin=file, stdout=subprocess.PIPE, check=True).stdout)
    os.lseek(file, 200, os.SEEK_SET)
    subprocess.run(["sh", "-c", f"printf by-a-shell >&{file}"], pass_fds=[file], check=True)
    seen.append(os.lseek(file, 0, os.SEEK_CUR))
    child = os.fork()
    if child == 0:
        os._exit(0 if os.pwrite(file, b"by a child", 300) == 10 else 1)
    seen.append(os.waitpid(child, 0)[1])
    os.close(file)
    return seen


class SigEvent(ctypes.Structure):
    """struct sigevent, as glibc has it on x86-64."""

    _fields_ = [
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    ]


class ControlBlock(ctypes.Structure):
    """struct aiocb, the same."""

    _fields_ = [
        ("fildes", ctypes.c_int),
        ("lio_opcode", ctypes.c_int),
        ("reqprio", ctypes.c_int),
        ("buf", ctypes.c_void_p),
        ("nbytes", ctypes.c_size_t),
        ("sigevent", SigEvent),
        ("libc", ctypes.c_char * 32),
        ("offset", ctypes.c_int64),
        ("rest", ctypes.c_char * 32),
    ]


SIGEV_NONE, LIO_READ, LIO_WRITE, LIO_WAIT = 1, 0, 1, 0
COUNT, LENGTH = 32, 5000


def asynchronous(name):
    """aio_read and its kin, by ctypes."""
    assert ctypes.sizeof(SigEvent) == 64 and ctypes.sizeof(ControlBlock) == 168 and ControlBlock.offset.offset == 128
    libc = ctypes.CDLL(None, use_errno=True)
    libc.aio_return.restype = ctypes.c_ssize_t
    file = os.open(name, os.O_RDWR)
    buffers = [ctypes.create_string_buffer(LENGTH) for _ in range(COUNT)]
    blocks = [ControlBlock(fildes=file, buf=ctypes.addressof(buffer), nbytes=LENGTH) for buffer in buffers]
    for number, block in enumerate(blocks):
        block.offset, block.sigevent.notify = number * 8192, SIGEV_NONE
        block.nbytes = 4096 if number % 2 else LENGTH

    def wait(block):
        while libc.aio_error(ctypes.byref(block)) == errno.EINPROGRESS:
            libc.aio_suspend((ctypes.c_void_p * 2)(None, ctypes.addressof(block)), 2, None)
        return libc.aio_error(ctypes.byref(block)), libc.aio_return(ctypes.byref(block))

    def seen_of_all():
        return [(wait(block), buffer.raw[: block.nbytes]) for block, buffer in zip(blocks, buffers)]

    for block in blocks:
        assert libc.aio_read(ctypes.byref(block)) == 0
    seen = seen_of_all()
    for number, (block, buffer) in enumerate(zip(blocks, buffers)):
        buffer.raw = bytes_of(LENGTH, number)
        assert libc.aio_write(ctypes.byref(block)) == 0
    sync = ControlBlock(fildes=file)
    sync.sigevent.notify = SIGEV_NONE
    assert libc.aio_fsync(os.O_DSYNC, ctypes.byref(sync)) == 0
    seen += [wait(sync), seen_of_all()]
    for number, block in enumerate(blocks):
        block.lio_opcode, block.offset = (LIO_WRITE if number % 3 else LIO_READ), 1_000_000 + number * 12288
    all_blocks = (ctypes.c_void_p * COUNT)(*map(ctypes.addressof, blocks))
    assert libc.lio_listio(LIO_WAIT, all_blocks, COUNT, None) == 0
    seen += [seen_of_all(), libc.aio_cancel(file, None)]
    os.close(file)
    return seen


def locks(name):
    """What a child has of a descriptor that was to be closed: its lock, too."""
    file, other = (os.open(name, os.O_RDWR) for _ in range(2))
    fcntl.flock(file, fcntl.LOCK_EX)

    def flock(descriptor, **how):
        return subprocess.run(["flock", "-n", str(descriptor)], **how).returncode

    seen = [flock(0, stdin=file), flock(0, stdin=other), flock(file, pass_fds=[file]), flock(other, pass_fds=[other])]
    os.set_inheritable(file, True)
    seen += [os.get_inheritable(file), flock(file, close_fds=False)]
    # Nobody else keeps it.
    again = os.dup(file)
    with subprocess.Popen(["sh", "-c", "read word"], stdin=subprocess.PIPE) as child:
        os.close(file)
        os.close(again)
        seen.append(flock(0, stdin=other))
        child.stdin.close()
    os.close(other)
    return seen


def past_the_library(name):
    """libc's own calls, which know of no disk and reach no file by its descriptor."""
    libc = ctypes.CDLL("libc.so.6", use_errno=True)
    libc.pread.argtypes = libc.pwrite.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
    buffer = ctypes.create_string_buffer(100)
    file = os.open(name, os.O_RDWR)
    for call in (libc.pread, libc.pwrite):
        assert call(file, buffer, 100, 0) == -1 and ctypes.get_errno() == errno.EBADF
    block = ControlBlock(fildes=file, buf=ctypes.addressof(buffer), nbytes=100)
    block.sigevent.notify = SIGEV_NONE
    assert libc.aio_read(ctypes.byref(block)) == 0
    while libc.aio_error(ctypes.byref(block)) == errno.EINPROGRESS:
        libc.aio_suspend((ctypes.c_void_p * 1)(ctypes.addressof(block)), 1, None)
    assert libc.aio_error(ctypes.byref(block)) == errno.EBADF
    assert libc.open(name.encode(), os.O_RDWR) == -1 and ctypes.get_errno() == errno.ENOENT
    os.close(file)


def relative(name):
    """By a directory and the last part of the name."""
    parent, part = os.path.split(name)
    directory, elsewhere = os.open(parent, os.O_PATH), os.open("/proc", os.O_PATH)
    here = os.getcwd()
    with os.fdopen(os.open(part, os.O_RDWR, dir_fd=directory), "r+b") as file:
        seen = [file.read(10_000), os.pwrite(file.fileno(), b"relative", 5)]
    seen += [os.access(part, os.W_OK, dir_fd=directory), stat.S_IFMT(os.stat(part, dir_fd=directory).st_mode) != 0]
    refused(errno.ENOENT, os.open, part, os.O_RDONLY, dir_fd=elsewhere)
    refused(errno.ENOENT, os.open, part + "x", os.O_RDONLY, dir_fd=directory)
    refused(errno.ENOENT, os.open, part[:-1], os.O_RDONLY, dir_fd=directory)
    os.chdir(parent)
    with open(part, "rb") as file:
        seen.append(file.read(10_000))
    os.chdir("/proc")
    refused(errno.ENOENT, os.open, part, os.O_RDONLY)
    os.chdir(here)
    os.close(directory)
    os.close(elsewhere)
    return seen


def spawned(name):
    """What posix_spawn opens for a child."""
    before = sorted(os.listdir("/proc/self/fd"))
    reading, writing = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, name, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
    ]
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "head -c 100; flock -n 0 && echo locked"], os.environ, file_actions=actions)
    os.close(writing)
    with open(reading, "rb") as pipe:
        seen = [pipe.read()]
    assert os.waitpid(child, 0) == (child, 0) and sorted(os.listdir("/proc/self/fd")) == before
    return seen


assert stat.S_ISBLK(os.stat(NAME).st_mode) and os.access(NAME, os.R_OK | os.W_OK) and os.path.exists(NAME)
for what in (descriptors, file_objects, copies, others, locks, relative, spawned, asynchronous):
    on_both(what)
past_the_library(NAME)
with open(NAME, "r+b") as disk:
    refused(errno.ENODEV, mmap.mmap, disk.fileno(), 4096)
    refused(errno.EINVAL, disk.truncate, 4096)
refused(errno.EBUSY, os.unlink, NAME)
