/* Disks of Blockyard's as files of this program's, and by queues.
 *
 * A program that is linked to this library (pkg-config blockyard-posix), or started with it (LD_PRELOAD), opens a disk
 * by a name, and open(2), read(2), pwrite(2), fsync(2), lseek(2), aio_read(3) and the others do on it what they do on a
 * block device. Besides, a program that is linked to it has queues, which take many requests at once. */
#ifndef BLOCKYARD_POSIX_H
#define BLOCKYARD_POSIX_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on, what this process opens by `name`, byte by byte, is `disk`, as the command line of blockyard says it:
 * "vm.qcow2,partition=2", "session:vm.sock". Nothing is opened yet. The programs that it executes do not have it.
 *
 * Returns 0, or -1 with errno: EINVAL, if that is no disk or the name is empty; EEXIST, if another is called so; ENOSPC,
 * if there are 64; EFAULT. */
int blockyard_attach(const char *disk, const char *name);

/* Queues. A disk and its queues are the process's that has opened them: a child after fork(2) opens its own. A disk may
 * be used by several threads at once, a queue by one at a time. None of these functions may be called by a signal
 * handler. But for those that open and close, none allocates memory.
 *
 * Functions that return an int return -1 with errno if something is wrong, unless they say otherwise. EINVAL: a handle
 * or an address is NULL, or an argument is not as it is said here. */
struct blockyard_disk;
struct blockyard_queue;

/* Opens `disk`, as the command line of blockyard says it or by a name that it is attached by, with O_RDONLY or O_RDWR.
 * Each opening has the disk for itself: locks of its image, or a connection to its server.
 *
 * NULL with errno if it cannot be opened: EINVAL, if that is no disk or the flags are others; else the system's error, or
 * ENXIO if it has none. Why, in a sentence, is put to `reason` then, which has room for `reason_bytes` with the zero at
 * its end, or is NULL. */
struct blockyard_disk *blockyard_disk_open(const char *disk, int flags, char *reason, size_t reason_bytes);

/* Closes it; its queues go on until they are closed themselves. NULL is nothing. */
void blockyard_disk_close(struct blockyard_disk *disk);

/* Its bytes now: a server may change them. 0 of NULL. */
uint64_t blockyard_disk_capacity(const struct blockyard_disk *disk);

/* Bytes of which offsets and lengths are multiples: a power of two, at least 512. 0 of NULL. */
unsigned int blockyard_disk_logical_block(const struct blockyard_disk *disk);

/* 1 if writes are refused (EROFS), 0 if not or of NULL. */
int blockyard_disk_is_read_only(const struct blockyard_disk *disk);

/* Opens a queue that carries up to `depth` requests at once, 1024 at most, and makes memory of `memory_bytes` for them,
 * zeroed, which whoever serves the disk maps.
 *
 * NULL with errno: EINVAL, if one of them is 0; ENOMEM; or why the disk has no more queues. */
struct blockyard_queue *blockyard_queue_open(const struct blockyard_disk *disk, size_t memory_bytes, unsigned int depth);

/* Waits for all requests, and takes the queue away with its memory. NULL is nothing. */
void blockyard_queue_close(struct blockyard_queue *queue);

/* Where its memory begins, on a page. NULL of NULL. */
void *blockyard_queue_memory(const struct blockyard_queue *queue);

/* Requests that it carries at once: perhaps fewer than were asked for. 0 of NULL. */
unsigned int blockyard_queue_depth(const struct blockyard_queue *queue);

/* Each of these takes a request, which begins with the next blockyard_queue_submit. `token` comes back in its
 * completion. `offset` and `length` are bytes of the disk, of whole logical blocks, at least one. `address` up to its
 * end lies in the queue's memory, which is the request's until its completion was reaped; there, `length` is 64 MiB at
 * most.
 *
 * 0, or -1 with errno: EAGAIN, if as many as it carries are taken and not reaped; EINVAL. What the disk refuses is the
 * completion's error: a range that reaches past its end (ENOSPC), a change to a read-only one (EROFS), what it cannot
 * do (EOPNOTSUPP). */
int blockyard_queue_read(struct blockyard_queue *queue, uint64_t offset, void *address, size_t length, uint64_t token);
int blockyard_queue_write(struct blockyard_queue *queue, uint64_t offset, const void *address, size_t length,
			  uint64_t token);
/* Ends when all writes that were reaped before it was taken are on stable storage. */
int blockyard_queue_flush(struct blockyard_queue *queue, uint64_t token);
/* The range reads as anything from then on. */
int blockyard_queue_discard(struct blockyard_queue *queue, uint64_t offset, uint64_t length, uint64_t token);
/* The range reads as zeros from then on; with `may_unmap` other than 0, the disk may give its storage back. */
int blockyard_queue_write_zeroes(struct blockyard_queue *queue, uint64_t offset, uint64_t length, int may_unmap,
				 uint64_t token);

/* Hands all that was taken to the disk: whoever serves it is woken once, if at all.
 *
 * 0, or -1 with the system's error in errno; what the disk does not have then stays taken. */
int blockyard_queue_submit(struct blockyard_queue *queue);

/* How a request ended. */
struct blockyard_completion {
	uint64_t token;
	/* 0, or an errno. */
	int error;
};

/* Puts up to `max` completions to `completions`, in any order, and waits for `min` of them (`max` at most): until
 * `timeout` is over (NULL: without end), or no more requests are taken. Where it finds too few, it submits what was
 * taken. A signal does not end it.
 *
 * How many there are; or -1 with errno: EINVAL, if `max` is 0 or `timeout` is none; or the system's error. */
int blockyard_queue_reap(struct blockyard_queue *queue, struct blockyard_completion *completions, unsigned int max,
			 unsigned int min, const struct timespec *timeout);

#ifdef __cplusplus
}
#endif

#endif
