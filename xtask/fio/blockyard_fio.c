// SPDX-License-Identifier: GPL-2.0-only
/*
 * An engine for fio: requests to a disk of Blockyard's, by a queue of libblockyard_posix.so.
 *
 * This file is under fio's licence, as it is built with fio's headers and loaded by fio; nothing else of Blockyard is.
 * `cargo xtask fio-engine` builds it. Each job has a queue whose memory is fio's buffers: what is asked for goes to
 * whoever serves the disk as it lies there. Jobs that are threads of one process share what they have opened, as a
 * session has one client; those that are processes open the disk each.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fio.h"
#include "optgroup.h"

#include "blockyard_posix.h"

/* What `fio --version` says of the fio that this is built for. */
#ifndef BLOCKYARD_FIO_VERSION
#error "cargo xtask fio-engine says which fio this is for"
#endif

#define REASON_BYTES 1024
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct blockyard_options {
	/* An option's place cannot be the first. */
	void *first;
	char *disk;
};

static struct fio_option options[] = {
	{
		.name = "blockyard_disk",
		.lname = "Disk",
		.type = FIO_OPT_STR_STORE,
		.off1 = offsetof(struct blockyard_options, disk),
		.help = "The disk, as blockyard's command line takes it: session:vm.sock, vm.qcow2,partition=1",
		.category = FIO_OPT_C_ENGINE,
		.group = FIO_OPT_G_INVALID,
	},
	{ .name = NULL },
};

/* A disk that jobs of this process have: by what it is called. */
struct shared_disk {
	struct shared_disk *next;
	char *called;
	/* Whether one of them writes. */
	bool changes;
	/* NULL while nobody uses it. */
	struct blockyard_disk *disk;
	unsigned int users;
	/* 0 until it was asked for. */
	uint64_t capacity;
};

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shared_disk *shared_disks;

/* A job's. */
struct blockyard_job {
	struct shared_disk *shared;
	struct blockyard_queue *queue;
	/* Requests that were taken since the last commit. */
	struct io_u **taken;
	unsigned int taken_count;
	/* What was reaped last. */
	struct blockyard_completion *completions;
	unsigned int depth;
};

/*
 * Whether the fio that has loaded this is the one that it was built for, by its version and by where it keeps options
 * of a job: all that is read below would be something else in another.
 */
static bool is_that_fio(void)
{
	const char *version = dlsym(RTLD_DEFAULT, "fio_version_string");
	const struct fio_option *option = dlsym(RTLD_DEFAULT, "fio_options");
	const struct { const char *name; size_t place; } places[] = {
		{ "iodepth", offsetof(struct thread_options, iodepth) },
		{ "end_fsync", offsetof(struct thread_options, end_fsync) },
		{ "log_unix_epoch", offsetof(struct thread_options, log_unix_epoch) },
	};
	size_t i, found = 0;

	if (!version || strcmp(version, BLOCKYARD_FIO_VERSION)) {
		log_err("blockyard: this engine was built for %s, and this is %s: build it again "
			"(cargo xtask fio-engine)\n",
			BLOCKYARD_FIO_VERSION, version ? version : "another fio");
		return false;
	}
	for (; option && option->name; option++)
		for (i = 0; i < COUNT(places); i++)
			if (!strcmp(option->name, places[i].name) && option->off1 == places[i].place)
				found++;
	if (found == COUNT(places))
		return true;
	log_err("blockyard: this %s was built in another way than the one that this engine is for: build it again "
		"(cargo xtask fio-engine)\n", version);
	return false;
}

static bool makes_changes(const struct thread_data *td)
{
	return td_write(td) || td_trim(td);
}

/* The disk that a job is to have, with the lock held. */
static struct shared_disk *find_disk(struct thread_data *td)
{
	const struct blockyard_options *wanted = td->eo;
	struct shared_disk *shared;

	if (!wanted->disk || !*wanted->disk) {
		log_err("blockyard: which disk? --blockyard_disk=session:vm.sock\n");
		td_verror(td, EINVAL, "blockyard_disk");
		return NULL;
	}
	for (shared = shared_disks; shared && strcmp(shared->called, wanted->disk);)
		shared = shared->next;
	if (!shared) {
		shared = calloc(1, sizeof(*shared));
		if (!shared || !(shared->called = strdup(wanted->disk))) {
			free(shared);
			td_verror(td, ENOMEM, "blockyard_disk");
			return NULL;
		}
		shared->next = shared_disks;
		shared_disks = shared;
	}
	shared->changes |= makes_changes(td);
	return shared;
}

static struct blockyard_disk *open_disk(struct thread_data *td, const struct shared_disk *shared, int flags)
{
	char reason[REASON_BYTES];
	struct blockyard_disk *disk = blockyard_disk_open(shared->called, flags, reason, sizeof(reason));

	if (!disk) {
		int error = errno;

		log_err("blockyard: %s: %s\n", shared->called, reason);
		if (error == ENXIO && thread_number > 1 && !td->o.use_thread)
			log_err("blockyard: jobs that are processes open the disk each, and a session has one client: "
				"with --thread they share it\n");
		td_verror(td, error, "blockyard_disk_open");
	}
	return disk;
}

/* Has a job use its disk. */
static int begin_use(struct thread_data *td, struct blockyard_job *job)
{
	struct shared_disk *shared;
	int error = 0;

	pthread_mutex_lock(&shared_lock);
	shared = find_disk(td);
	if (!shared) {
		error = td->error;
	} else if (!shared->users) {
		shared->disk = open_disk(td, shared, shared->changes ? O_RDWR : O_RDONLY);
		if (!shared->disk)
			error = td->error;
	}
	if (!error && makes_changes(td) && blockyard_disk_is_read_only(shared->disk)) {
		log_err("blockyard: %s: the disk is read-only\n", shared->called);
		error = EROFS;
		if (!shared->users) {
			blockyard_disk_close(shared->disk);
			shared->disk = NULL;
		}
	}
	if (!error) {
		shared->users++;
		job->shared = shared;
	}
	pthread_mutex_unlock(&shared_lock);
	return error;
}

static void end_use(struct blockyard_job *job)
{
	struct shared_disk *shared = job->shared;

	if (!shared)
		return;
	pthread_mutex_lock(&shared_lock);
	if (!--shared->users) {
		blockyard_disk_close(shared->disk);
		shared->disk = NULL;
	}
	pthread_mutex_unlock(&shared_lock);
	job->shared = NULL;
}

/* The disk's size. In fio's own process, before it forks, it is open no longer than it takes to ask for that. */
static uint64_t capacity_of(struct thread_data *td)
{
	struct shared_disk *shared;
	uint64_t capacity = 0;

	pthread_mutex_lock(&shared_lock);
	shared = find_disk(td);
	if (shared && !shared->capacity) {
		struct blockyard_disk *disk = shared->users ? shared->disk : open_disk(td, shared, O_RDONLY);

		shared->capacity = blockyard_disk_capacity(disk);
		if (!shared->users)
			blockyard_disk_close(disk);
	}
	if (shared)
		capacity = shared->capacity;
	pthread_mutex_unlock(&shared_lock);
	return capacity;
}

static void set_size(struct fio_file *file, uint64_t capacity)
{
	/* A block device, which nobody makes longer. */
	file->filetype = FIO_TYPE_BLOCK;
	file->real_file_size = capacity;
	fio_file_set_size_known(file);
}

static int blockyard_setup(struct thread_data *td)
{
	struct fio_file *file;
	uint64_t capacity;
	unsigned int i;

	if (!is_that_fio()) {
		td_verror(td, EINVAL, "blockyard_setup");
		return 1;
	}
	if (td->files_index > 1) {
		log_err("blockyard: a job has one disk, and so one file\n");
		td_verror(td, EINVAL, "blockyard_setup");
		return 1;
	}
	capacity = capacity_of(td);
	if (td->error)
		return 1;
	for_each_file(td, file, i)
		set_size(file, capacity);
	return 0;
}

static int blockyard_init(struct thread_data *td)
{
	struct blockyard_job *job = calloc(1, sizeof(*job));

	if (!job)
		return ENOMEM;
	td->io_ops_data = job;
	job->depth = td->o.iodepth;
	job->taken = calloc(job->depth, sizeof(*job->taken));
	job->completions = calloc(job->depth, sizeof(*job->completions));
	if (!job->taken || !job->completions)
		return ENOMEM;
	return begin_use(td, job);
}

static int open_queue(struct thread_data *td, size_t memory_bytes)
{
	struct blockyard_job *job = td->io_ops_data;

	job->queue = blockyard_queue_open(job->shared->disk, memory_bytes, job->depth);
	if (job->queue)
		return 0;
	log_err("blockyard: %s: no queue for a job: %s (a session's server says how many it has: serve --queues)\n",
		job->shared->called, strerror(errno));
	td_verror(td, errno, "blockyard_queue_open");
	return 1;
}

static int blockyard_iomem_alloc(struct thread_data *td, size_t bytes)
{
	struct blockyard_job *job = td->io_ops_data;

	if (open_queue(td, bytes))
		return 1;
	td->orig_buffer = blockyard_queue_memory(job->queue);
	return 0;
}

static void blockyard_iomem_free(struct thread_data *td)
{
	struct blockyard_job *job = td->io_ops_data;

	if (job) {
		blockyard_queue_close(job->queue);
		job->queue = NULL;
	}
}

/* A job that moves no bytes has no buffers, and one that could have none goes no further. */
static int blockyard_post_init(struct thread_data *td)
{
	struct blockyard_job *job = td->io_ops_data;

	if (td->error)
		return 1;
	return job->queue ? 0 : open_queue(td, 1);
}

static void blockyard_cleanup(struct thread_data *td)
{
	struct blockyard_job *job = td->io_ops_data;

	if (!job)
		return;
	blockyard_queue_close(job->queue);
	end_use(job);
	free(job->completions);
	free(job->taken);
	free(job);
	td->io_ops_data = NULL;
}

/* There is no file: the job has its disk. */
static int blockyard_open_file(struct thread_data *td, struct fio_file *file)
{
	return 0;
}

static int blockyard_close_file(struct thread_data *td, struct fio_file *file)
{
	return 0;
}

static int blockyard_get_file_size(struct thread_data *td, struct fio_file *file)
{
	uint64_t capacity = capacity_of(td);

	if (!capacity)
		return 1;
	set_size(file, capacity);
	return 0;
}

static enum fio_q_status blockyard_queue_io(struct thread_data *td, struct io_u *io_u)
{
	struct blockyard_job *job = td->io_ops_data;
	uint64_t token = (uintptr_t) io_u;
	int failed;

	fio_ro_check(td, io_u);
	if (job->taken_count == job->depth)
		return FIO_Q_BUSY;
	switch (io_u->ddir) {
	case DDIR_READ:
		failed = blockyard_queue_read(job->queue, io_u->offset, io_u->xfer_buf, io_u->xfer_buflen, token);
		break;
	case DDIR_WRITE:
		failed = blockyard_queue_write(job->queue, io_u->offset, io_u->xfer_buf, io_u->xfer_buflen, token);
		break;
	case DDIR_TRIM:
		failed = blockyard_queue_discard(job->queue, io_u->offset, io_u->xfer_buflen, token);
		break;
	case DDIR_SYNC:
	case DDIR_DATASYNC:
	case DDIR_SYNC_FILE_RANGE:
		failed = blockyard_queue_flush(job->queue, token);
		break;
	default:
		errno = EINVAL;
		failed = -1;
	}
	if (!failed) {
		job->taken[job->taken_count++] = io_u;
		return FIO_Q_QUEUED;
	}
	if (errno == EAGAIN)
		return FIO_Q_BUSY;
	io_u->error = errno;
	return FIO_Q_COMPLETED;
}

/* All that was taken begins at one time, so the clock is read once. */
static int blockyard_commit(struct thread_data *td)
{
	struct blockyard_job *job = td->io_ops_data;
	struct timespec now;
	unsigned int i;

	if (!job->taken_count)
		return 0;
	if (fio_fill_issue_time(td)) {
		fio_gettime(&now, NULL);
		for (i = 0; i < job->taken_count; i++) {
			job->taken[i]->issue_time = now;
			io_u_queued(td, job->taken[i]);
		}
		/* For a log of what is replayed. */
		if (td->o.read_iolog_file)
			td->last_issue = now;
	}
	io_u_mark_submit(td, job->taken_count);
	job->taken_count = 0;
	return blockyard_queue_submit(job->queue) ? -errno : 0;
}

static int blockyard_getevents(struct thread_data *td, unsigned int min, unsigned int max, const struct timespec *timeout)
{
	struct blockyard_job *job = td->io_ops_data;
	int count;

	if (max > job->depth)
		max = job->depth;
	if (!max)
		return 0;
	count = blockyard_queue_reap(job->queue, job->completions, max, min < max ? min : max, timeout);
	return count < 0 ? -errno : count;
}

static struct io_u *blockyard_event(struct thread_data *td, int event)
{
	struct blockyard_job *job = td->io_ops_data;
	const struct blockyard_completion *completion = &job->completions[event];
	struct io_u *io_u = (struct io_u *) (uintptr_t) completion->token;

	io_u->error = completion->error;
	io_u->resid = completion->error ? io_u->xfer_buflen : 0;
	return io_u;
}

/* fio's name for what it looks for. */
struct ioengine_ops ioengine = {
	.name = "blockyard",
	.version = FIO_IOOPS_VERSION,
	.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL | FIO_NO_OFFLOAD | FIO_ASYNCIO_SETS_ISSUE_TIME,
	.setup = blockyard_setup,
	.init = blockyard_init,
	.post_init = blockyard_post_init,
	.queue = blockyard_queue_io,
	.commit = blockyard_commit,
	.getevents = blockyard_getevents,
	.event = blockyard_event,
	.cleanup = blockyard_cleanup,
	.open_file = blockyard_open_file,
	.close_file = blockyard_close_file,
	.get_file_size = blockyard_get_file_size,
	.iomem_alloc = blockyard_iomem_alloc,
	.iomem_free = blockyard_iomem_free,
	.option_struct_size = sizeof(struct blockyard_options),
	.options = options,
};
