/* What POSIX demands of asynchronous I/O (IEEE 1003.1, aio.h), a function a demand, in the order of the cases of the
 * Open POSIX Test Suite. Each says on a line of its own whether the demand is kept, and what it has seen where POSIX
 * leaves a choice. The arguments are a file's name, its size and, if not all are to be looked at, one demand. The
 * program ends with 1 if a demand is not kept.
 *
 * What is under way and what is done already at some moment depends on the machine: a case that needs a request that is
 * surely under way reads an empty pipe. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <time.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT 16
#define BYTES 4096
#define MANY 3000

static const char *name, *broken;
static int broken_line;
static off_t size;
static char said[512];
static char before[COUNT * BYTES], buffers[COUNT][BYTES] __attribute__((aligned(4096)));
static struct aiocb blocks[COUNT], *list[COUNT];

/* A demand that is not kept ends the case. */
#define DEMAND(condition) \
	do { if (!(condition)) { if (!broken) broken = #condition, broken_line = __LINE__; return; } } while (0)

/* What is seen, and may differ. */
static void say(const char *format, ...)
{
	size_t length = strlen(said);
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(said + length, sizeof said - length, format, arguments);
	va_end(arguments);
}

static const char *error_name(int error)
{
	return error == 0 ? "no error" : strerrorname_np(error);
}

/* The file, opened, with the same bytes for every case. */
static int opened(int flags)
{
	int file = open(name, flags);
	if (file < 0)
		perror(name), exit(2);
	return file;
}

static void prepare(struct aiocb *block, int file, void *buffer, size_t bytes, off_t offset)
{
	memset(block, 0, sizeof *block);
	block->aio_fildes = file;
	block->aio_buf = buffer;
	block->aio_nbytes = bytes;
	block->aio_offset = offset;
	block->aio_sigevent.sigev_notify = SIGEV_NONE;
}

/* A block of each, all of them with the same operation. */
static void prepare_all(int file, int count, int operation)
{
	for (int i = 0; i < count; i++) {
		prepare(&blocks[i], file, buffers[i], BYTES, (off_t)i * BYTES);
		blocks[i].aio_lio_opcode = operation;
		memset(buffers[i], operation == LIO_WRITE ? 'A' + i : 0, BYTES);
		list[i] = &blocks[i];
	}
}

/* Waits for a request: its error. */
static int error_of(struct aiocb *block)
{
	const struct aiocb *one[1] = { block };
	while (aio_error(block) == EINPROGRESS)
		aio_suspend(one, 1, NULL);
	return aio_error(block);
}

/* The same where it may have been refused at once, too: `made` is what the call has answered. */
static int error_of_made(int made, struct aiocb *block)
{
	if (made != 0)
		return errno;
	int error = error_of(block);
	if (error != 0 && aio_return(block) != -1)
		return -1;
	return error;
}

static int ended(struct aiocb *block, ssize_t bytes)
{
	return error_of(block) == 0 && aio_return(block) == bytes;
}

static int has(off_t offset, const void *bytes, size_t length)
{
	int file = opened(O_RDONLY);
	char *there = malloc(length);
	int same = pread(file, there, length, offset) == (ssize_t)length && !memcmp(there, bytes, length);
	free(there);
	close(file);
	return same;
}

static int all_are(const char *bytes, size_t length, char value)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != value)
			return 0;
	return 1;
}

/* Signals and calls, by which a program is told of ends. */
static volatile sig_atomic_t signals, codes_wrong;
static volatile sig_atomic_t values[COUNT];

static void heard(int number, siginfo_t *information, void *context)
{
	(void)number, (void)context;
	if (information->si_code != SI_ASYNCIO)
		codes_wrong++;
	int value = information->si_value.sival_int;
	if (value >= 0 && value < COUNT)
		values[value]++;
	signals++;
}

static void listen_for(int number)
{
	struct sigaction action = { .sa_sigaction = heard, .sa_flags = SA_SIGINFO };
	sigaction(number, &action, NULL);
	signals = codes_wrong = 0;
	memset((void *)values, 0, sizeof values);
}

/* Nobody asks how the requests stand. */
static void wait_for_signals(int count)
{
	while (signals < count)
		usleep(500);
}

static void tell_by_signal(struct sigevent *event, int number, int value)
{
	memset(event, 0, sizeof *event);
	event->sigev_notify = SIGEV_SIGNAL;
	event->sigev_signo = number;
	event->sigev_value.sival_int = value;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int calls, sum, in_same_thread, unfinished;
static pthread_t main_thread;

static void called(union sigval value)
{
	pthread_mutex_lock(&mutex);
	calls++;
	sum += value.sival_int;
	in_same_thread += pthread_equal(pthread_self(), main_thread);
	if (value.sival_int < COUNT)
		unfinished += aio_error(&blocks[value.sival_int]) == EINPROGRESS;
	pthread_cond_signal(&condition);
	pthread_mutex_unlock(&mutex);
}

static void wait_for_calls(int count)
{
	pthread_mutex_lock(&mutex);
	while (calls < count)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
}

static void tell_by_thread(struct sigevent *event, pthread_attr_t *attributes, int value)
{
	memset(event, 0, sizeof *event);
	event->sigev_notify = SIGEV_THREAD;
	event->sigev_notify_function = called;
	event->sigev_notify_attributes = attributes;
	event->sigev_value.sival_int = value;
}

static void forget_calls(void)
{
	calls = sum = in_same_thread = unfinished = 0;
}

/* A request that is under way until somebody writes to the pipe: glibc's, whatever the file is. */
static int pipe_ends[2];
static struct aiocb from_pipe;
static char piped[8];

static int begin_reading_a_pipe(void)
{
	if (pipe(pipe_ends) != 0)
		return -1;
	prepare(&from_pipe, pipe_ends[0], piped, sizeof piped, 0);
	return aio_read(&from_pipe);
}

static int end_reading_a_pipe(void)
{
	int done = write(pipe_ends[1], "12345678", sizeof piped) == sizeof piped && ended(&from_pipe, sizeof piped);
	close(pipe_ends[0]), close(pipe_ends[1]);
	return done;
}

/* A request on a pipe, too, whose descriptor is another file's by the time that it is under way. */
#define LONG (1 << 18)

static struct aiocb to_pipe;
static char *written_to_pipe;

static int begin_writing_to_a_pipe(int file)
{
	int there = 0;
	if (pipe(pipe_ends) != 0 || !(written_to_pipe = calloc(1, LONG)))
		return -1;
	prepare(&to_pipe, pipe_ends[1], written_to_pipe, LONG, 0);
	if (aio_write(&to_pipe) != 0)
		return -1;
	/* More than the pipe has room for: whoever writes is in the middle of it once there is something. */
	while (ioctl(pipe_ends[0], FIONREAD, &there) == 0 && there == 0)
		usleep(500);
	return dup2(file, pipe_ends[1]) == pipe_ends[1] ? 0 : -1;
}

static void *reads_from_the_pipe(void *wait)
{
	static char bytes[LONG];
	usleep(wait ? 400000 : 0);
	for (size_t left = sizeof bytes; left > 0;) {
		ssize_t count = read(pipe_ends[0], bytes, left);
		if (count <= 0)
			return NULL;
		left -= count;
	}
	return bytes;
}

/* aio_cancel */

static void cancel_one(int file)
{
	prepare_all(file, 1, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0);
	int answer = aio_cancel(file, &blocks[0]);
	DEMAND(answer == AIO_CANCELED || answer == AIO_NOTCANCELED || answer == AIO_ALLDONE);
	int error = error_of(&blocks[0]);
	/* Either it has not been, or it has been as a whole. */
	DEMAND(answer == AIO_CANCELED ? error == ECANCELED && aio_return(&blocks[0]) == -1
		: error == 0 && aio_return(&blocks[0]) == BYTES);
	DEMAND(has(0, answer == AIO_CANCELED ? before : buffers[0], BYTES));
}

static void cancel_all(int file)
{
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_write(&blocks[i]) == 0);
	int answer = aio_cancel(file, NULL);
	DEMAND(answer == AIO_CANCELED || answer == AIO_NOTCANCELED || answer == AIO_ALLDONE);
	int cancelled = 0;
	for (int i = 0; i < COUNT; i++) {
		int error = error_of(&blocks[i]);
		DEMAND(error == 0 || error == ECANCELED);
		cancelled += error == ECANCELED;
		DEMAND(aio_return(&blocks[i]) == (error == 0 ? BYTES : -1));
		DEMAND(has((off_t)i * BYTES, error == 0 ? buffers[i] : before + i * BYTES, BYTES));
	}
	/* What was done before does not count. */
	DEMAND(answer != AIO_ALLDONE || cancelled == 0);
	DEMAND(answer != AIO_CANCELED || cancelled > 0);
	DEMAND(aio_cancel(file, NULL) == AIO_ALLDONE);
}

static void cancel_tells(int file)
{
	listen_for(SIGRTMIN);
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i++)
		tell_by_signal(&blocks[i].aio_sigevent, SIGRTMIN, i);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_write(&blocks[i]) == 0);
	DEMAND(aio_cancel(file, NULL) != -1);
	wait_for_signals(COUNT);
	for (int i = 0; i < COUNT; i++) {
		DEMAND(values[i] == 1);
		DEMAND(error_of(&blocks[i]) == 0 || error_of(&blocks[i]) == ECANCELED);
	}
}

static void cancel_leaves_blocks(int file)
{
	struct aiocb copies[COUNT];
	prepare_all(file, COUNT, LIO_WRITE);
	memcpy(copies, blocks, sizeof copies);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_write(&blocks[i]) == 0);
	DEMAND(aio_cancel(file, NULL) != -1);
	for (int i = 0; i < COUNT; i++) {
		DEMAND(error_of(&blocks[i]) == 0 || error_of(&blocks[i]) == ECANCELED);
		DEMAND(blocks[i].aio_fildes == copies[i].aio_fildes && blocks[i].aio_buf == copies[i].aio_buf);
		DEMAND(blocks[i].aio_nbytes == copies[i].aio_nbytes && blocks[i].aio_offset == copies[i].aio_offset);
		DEMAND(blocks[i].aio_reqprio == copies[i].aio_reqprio);
		DEMAND(!memcmp(&blocks[i].aio_sigevent, &copies[i].aio_sigevent, sizeof copies[i].aio_sigevent));
	}
}

static void cancel_of_a_pipe(int file)
{
	/* The first is under way, the second waits for it. */
	struct aiocb second;
	char bytes[8];
	DEMAND(begin_reading_a_pipe() == 0);
	prepare(&second, pipe_ends[0], bytes, sizeof bytes, 0);
	DEMAND(aio_read(&second) == 0);
	prepare_all(file, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0);
	DEMAND(aio_cancel(pipe_ends[0], &second) == AIO_CANCELED);
	DEMAND(aio_error(&second) == ECANCELED && aio_return(&second) == -1);
	DEMAND(aio_error(&from_pipe) == EINPROGRESS);
	/* Another descriptor's are left alone. */
	DEMAND(ended(&blocks[0], BYTES) && !memcmp(buffers[0], before, BYTES));
	DEMAND(end_reading_a_pipe());
}

static void cancel_when_done(int file)
{
	prepare_all(file, 1, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0 && error_of(&blocks[0]) == 0);
	DEMAND(aio_cancel(file, &blocks[0]) == AIO_ALLDONE && aio_cancel(file, NULL) == AIO_ALLDONE);
	DEMAND(aio_return(&blocks[0]) == BYTES);
}

static void cancel_of_nothing(int file)
{
	DEMAND(aio_cancel(file, NULL) == AIO_ALLDONE);
}

static void cancel_of_another(int file)
{
	int other = opened(O_RDWR);
	prepare_all(file, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0 && error_of(&blocks[0]) == 0);
	errno = 0;
	int answer = aio_cancel(other, &blocks[0]);
	say("%d %s", answer, error_name(errno));
	DEMAND(aio_cancel(other, NULL) == AIO_ALLDONE);
	close(other);
	DEMAND(aio_return(&blocks[0]) == BYTES);
}

static void cancel_by_a_number_that_is_anothers(int file)
{
	int other = dup(file);
	DEMAND(begin_writing_to_a_pipe(file) == 0);
	DEMAND(aio_cancel(pipe_ends[1], &to_pipe) == AIO_NOTCANCELED && aio_error(&to_pipe) == EINPROGRESS);
	DEMAND(reads_from_the_pipe(NULL) && ended(&to_pipe, LONG));
	DEMAND(aio_cancel(pipe_ends[1], &to_pipe) == AIO_ALLDONE);
	free(written_to_pipe);
	prepare_all(other, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_read(&blocks[i]) == 0);
	DEMAND(dup2(pipe_ends[0], other) == other);
	/* What is said to be done is. */
	for (int i = COUNT - 1; i >= 0; i--) {
		int answer = aio_cancel(other, &blocks[i]), error = aio_error(&blocks[i]);
		DEMAND(answer == AIO_NOTCANCELED || (answer == AIO_CANCELED ? error == ECANCELED : error == 0));
		DEMAND(error_of(&blocks[i]) == (answer == AIO_CANCELED ? ECANCELED : 0));
	}
	close(other), close(pipe_ends[0]), close(pipe_ends[1]);
}

static void cancel_without_descriptor(int file)
{
	errno = 0;
	DEMAND(aio_cancel(-1, NULL) == -1 && errno == EBADF);
	int closed = dup(file);
	close(closed);
	errno = 0;
	DEMAND(aio_cancel(closed, NULL) == -1 && errno == EBADF);
}

/* aio_error, aio_return */

static void error_is_the_requests(int file)
{
	prepare_all(file, 1, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0);
	int error = aio_error(&blocks[0]);
	DEMAND(error == EINPROGRESS || error == 0);
	DEMAND(ended(&blocks[0], BYTES));
}

static void error_of_many(int file)
{
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_write(&blocks[i]) == 0);
	/* What is done once stays so. */
	int done[COUNT] = { 0 }, left = COUNT;
	while (left > 0) {
		for (int i = 0; i < COUNT; i++) {
			int error = aio_error(&blocks[i]);
			DEMAND(error == 0 || (error == EINPROGRESS && !done[i]));
			left -= error == 0 && !done[i];
			done[i] |= error == 0;
		}
	}
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_return(&blocks[i]) == BYTES && has((off_t)i * BYTES, buffers[i], BYTES));
}

static void error_under_way(int file)
{
	(void)file;
	DEMAND(begin_reading_a_pipe() == 0);
	DEMAND(aio_error(&from_pipe) == EINPROGRESS);
	DEMAND(end_reading_a_pipe());
}

static void error_of_no_request(int file)
{
	prepare_all(file, 1, LIO_WRITE);
	errno = 0;
	int error = aio_error(&blocks[0]);
	DEMAND(error == 0 || error == EINVAL || (error == -1 && errno == EINVAL));
	say("%d", error);
}

static void return_is_the_requests(int file)
{
	static const size_t lengths[] = { 1, 111, 512, 1024, 4095, 4096, 4097, 10000, 0 };
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		prepare(&blocks[0], file, buffers, lengths[i], 0);
		memset(buffers, 'r', lengths[i]);
		DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], lengths[i]));
		DEMAND(has(0, buffers, lengths[i]));
	}
}

static void return_twice(int file)
{
	prepare_all(file, 1, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	errno = 0;
	ssize_t again = aio_return(&blocks[0]);
	DEMAND(again == BYTES || again == 0 || (again == -1 && errno == EINVAL));
	say("%zd", again);
}

static void return_of_no_request(int file)
{
	prepare_all(file, 2, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	errno = 0;
	ssize_t answer = aio_return(&blocks[1]);
	DEMAND(answer == 0 || (answer == -1 && errno == EINVAL));
	say("%zd", answer);
}

static void block_is_used_again(int file)
{
	prepare_all(file, 1, LIO_WRITE);
	for (int turn = 0; turn < 20; turn++) {
		memset(buffers[0], 'a' + turn, BYTES);
		DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
		memset(buffers[0], 0, BYTES);
		DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES) && all_are(buffers[0], BYTES, 'a' + turn));
		DEMAND(aio_fsync(O_SYNC, &blocks[0]) == 0 && ended(&blocks[0], 0));
		/* After one that fails, too. */
		blocks[0].aio_offset = -1;
		DEMAND(error_of_made(aio_read(&blocks[0]), &blocks[0]) == EINVAL);
		blocks[0].aio_offset = 0;
	}
}

/* aio_fsync */

static void sync_ends(int file)
{
	static const int operations[] = { O_SYNC, O_DSYNC };
	for (int which = 0; which < 2; which++) {
		struct aiocb sync;
		prepare_all(file, COUNT, LIO_WRITE);
		for (int i = 0; i < COUNT; i++)
			DEMAND(aio_write(&blocks[i]) == 0);
		prepare(&sync, file, NULL, 0, 0);
		DEMAND(aio_fsync(operations[which], &sync) == 0);
		int error = aio_error(&sync);
		DEMAND(error == EINPROGRESS || error == 0);
		DEMAND(ended(&sync, 0));
		/* All that was queued before is done. */
		for (int i = 0; i < COUNT; i++)
			DEMAND(aio_error(&blocks[i]) == 0 && aio_return(&blocks[i]) == BYTES);
		for (int i = 0; i < COUNT; i++)
			DEMAND(has((off_t)i * BYTES, buffers[i], BYTES));
	}
}

static void sync_between_writes(int file)
{
	struct aiocb syncs[3];
	prepare_all(file, 12, LIO_WRITE);
	for (int turn = 0; turn < 3; turn++) {
		for (int i = 0; i < 4; i++)
			DEMAND(aio_write(&blocks[turn * 4 + i]) == 0);
		prepare(&syncs[turn], file, NULL, 0, 0);
		DEMAND(aio_fsync(turn % 2 ? O_SYNC : O_DSYNC, &syncs[turn]) == 0);
	}
	for (int turn = 2; turn >= 0; turn--) {
		DEMAND(error_of(&syncs[turn]) == 0);
		for (int i = 0; i < turn * 4 + 4; i++)
			DEMAND(aio_error(&blocks[i]) == 0);
		for (int i = 0; i < turn; i++)
			DEMAND(aio_error(&syncs[i]) == 0);
	}
	for (int i = 0; i < 12; i++)
		DEMAND(aio_return(&blocks[i]) == BYTES);
	for (int turn = 0; turn < 3; turn++)
		DEMAND(aio_return(&syncs[turn]) == 0);
}

static void sync_of_nothing(int file)
{
	struct aiocb sync;
	prepare(&sync, file, NULL, 0, 0);
	DEMAND(aio_fsync(O_SYNC, &sync) == 0 && ended(&sync, 0));
	DEMAND(aio_fsync(O_DSYNC, &sync) == 0 && ended(&sync, 0));
}

static void sync_ignores_members(int file)
{
	struct aiocb sync;
	for (int member = 0; member < 5; member++) {
		prepare(&sync, file, NULL, 0, 0);
		if (member == 0)
			sync.aio_offset = -1;
		if (member == 1)
			sync.aio_buf = (void *)-1;
		if (member == 2)
			sync.aio_reqprio = -1;
		if (member == 3)
			sync.aio_lio_opcode = -1;
		if (member == 4)
			sync.aio_nbytes = SIZE_MAX;
		DEMAND(aio_fsync(O_SYNC, &sync) == 0 && ended(&sync, 0));
	}
}

static void sync_tells(int file)
{
	struct aiocb sync;
	listen_for(SIGRTMIN);
	prepare(&sync, file, NULL, 0, 0);
	tell_by_signal(&sync.aio_sigevent, SIGRTMIN, 5);
	DEMAND(aio_fsync(O_SYNC, &sync) == 0);
	wait_for_signals(1);
	DEMAND(values[5] == 1 && codes_wrong == 0 && aio_error(&sync) == 0 && aio_return(&sync) == 0);
	forget_calls();
	tell_by_thread(&sync.aio_sigevent, NULL, 100);
	DEMAND(aio_fsync(O_DSYNC, &sync) == 0);
	wait_for_calls(1);
	DEMAND(sum == 100 && in_same_thread == 0 && aio_error(&sync) == 0 && aio_return(&sync) == 0);
}

static void sync_without_descriptor(int file)
{
	struct aiocb sync;
	prepare(&sync, -1, NULL, 0, 0);
	errno = 0;
	DEMAND(aio_fsync(O_SYNC, &sync) == -1 && errno == EBADF);
	int closed = dup(file);
	close(closed);
	sync.aio_fildes = closed;
	errno = 0;
	DEMAND(aio_fsync(O_SYNC, &sync) == -1 && errno == EBADF);
}

static void sync_where_nobody_may_write(int file)
{
	struct aiocb sync;
	int reads = opened(O_RDONLY);
	(void)file;
	prepare(&sync, reads, NULL, 0, 0);
	int error = error_of_made(aio_fsync(O_SYNC, &sync), &sync);
	say("%s", error_name(error));
	DEMAND(error == 0 || error == EBADF);
	close(reads);
}

static void sync_by_other_operations(int file)
{
	static const int operations[] = { -1, 0, -7, O_RDWR, O_SYNC | O_RDWR };
	struct aiocb sync;
	for (int i = 0; i < 5; i++) {
		prepare(&sync, file, NULL, 0, 0);
		errno = 0;
		DEMAND(aio_fsync(operations[i], &sync) == -1 && errno == EINVAL);
	}
}

/* aio_read, aio_write */

static void read_into_the_buffer(int file)
{
	prepare_all(file, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_read(&blocks[i]) == 0);
	for (int i = COUNT - 1; i >= 0; i--)
		DEMAND(ended(&blocks[i], BYTES) && !memcmp(buffers[i], before + i * BYTES, BYTES));
}

static void read_at_odd_places(int file)
{
	static const off_t offsets[] = { 0, 1, 511, 512, 513, 4095, 4096, 20000 };
	static const size_t lengths[] = { 1, 511, 512, 513, 4096, 4097, 12345 };
	char bytes[12345 + 1];
	for (int i = 0; i < 8; i++)
		for (int j = 0; j < 7; j++) {
			memset(bytes, '-', sizeof bytes);
			prepare(&blocks[0], file, bytes + (i & 1), lengths[j], offsets[i]);
			DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], lengths[j]));
			DEMAND(!memcmp(bytes + (i & 1), before + offsets[i], lengths[j]));
			/* Nothing beside it. */
			DEMAND((i & 1) == 0 || bytes[0] == '-');
			DEMAND(all_are(bytes + (i & 1) + lengths[j], sizeof bytes - (i & 1) - lengths[j], '-'));
		}
}

static void read_over_the_end(int file)
{
	for (int short_by = 0; short_by <= BYTES; short_by += 512) {
		memset(buffers[0], '-', BYTES);
		prepare(&blocks[0], file, buffers[0], BYTES, size - BYTES + short_by);
		DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES - short_by));
		DEMAND(all_are(buffers[0] + BYTES - short_by, short_by, '-'));
	}
	prepare(&blocks[0], file, buffers[0], BYTES, size - 100);
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], 100));
	static const off_t beyond[] = { 1, 4096, 1 << 20, (off_t)1 << 40 };
	for (int i = 0; i < 4; i++) {
		prepare(&blocks[0], file, buffers[0], BYTES, size + beyond[i]);
		DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], 0));
	}
}

static void read_leaves_the_place(int file)
{
	DEMAND(lseek(file, 1234, SEEK_SET) == 1234);
	prepare_all(file, 2, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	blocks[1].aio_offset = 777;
	DEMAND(aio_read(&blocks[1]) == 0 && ended(&blocks[1], BYTES));
	say("%jd", (intmax_t)lseek(file, 0, SEEK_CUR));
}

static void operation_is_ignored(int file)
{
	prepare_all(file, 1, LIO_READ);
	blocks[0].aio_lio_opcode = LIO_WRITE;
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES) && !memcmp(buffers[0], before, BYTES));
	prepare_all(file, 1, LIO_WRITE);
	blocks[0].aio_lio_opcode = LIO_READ;
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	DEMAND(all_are(buffers[0], BYTES, 'A') && has(0, buffers[0], BYTES));
	blocks[0].aio_lio_opcode = LIO_NOP;
	memset(buffers[0], 'N', BYTES);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], BYTES) && has(0, buffers[0], BYTES));
}

static void write_between_others(int file)
{
	char expected[2048];
	memset(buffers[0], 0, 2048);
	DEMAND(pwrite(file, buffers[0], 2048, 0) == 2048);
	memset(buffers[0], 0xaa, 1024);
	prepare(&blocks[0], file, buffers[0], 1024, 512);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], 1024));
	memset(expected, 0, sizeof expected);
	memset(expected + 512, 0xaa, 1024);
	DEMAND(has(0, expected, sizeof expected));
	/* Parts of blocks. */
	memset(buffers[0], 0xbb, 700);
	prepare(&blocks[0], file, buffers[0], 700, 333);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], 700));
	memset(expected + 333, 0xbb, 700);
	DEMAND(has(0, expected, sizeof expected) && has(2048, before + 2048, BYTES));
}

static void write_stably(int file)
{
	static const int flags[] = { O_SYNC, O_DSYNC };
	(void)file;
	for (int i = 0; i < 2; i++) {
		int stable = opened(O_RDWR | flags[i]);
		prepare_all(stable, 4, LIO_WRITE);
		blocks[3].aio_nbytes = 777;
		for (int j = 0; j < 4; j++)
			DEMAND(aio_write(&blocks[j]) == 0);
		for (int j = 0; j < 4; j++)
			DEMAND(ended(&blocks[j], blocks[j].aio_nbytes) && has(blocks[j].aio_offset, buffers[j], blocks[j].aio_nbytes));
		close(stable);
	}
}

static void append_is_done_in_order(int file)
{
	int appends = opened(O_RDWR | O_APPEND);
	struct stat found;
	DEMAND(fstat(appends, &found) == 0);
	/* On a device, where nothing can be behind the end, each is written where it says. */
	off_t end = S_ISBLK(found.st_mode) ? 0 : size;
	prepare_all(appends, 3, LIO_WRITE);
	for (int i = 0; i < 3; i++) {
		blocks[i].aio_nbytes = BYTES / (i + 1);
		blocks[i].aio_offset = end ? 0 : i * BYTES;
		DEMAND(aio_write(&blocks[i]) == 0);
	}
	for (int i = 0; i < 3; i++) {
		int error = error_of(&blocks[i]);
		say("%s%s", i ? ", " : "", error_name(error));
		ssize_t bytes = blocks[i].aio_nbytes;
		DEMAND(error == 0 && aio_return(&blocks[i]) == bytes && has(end ? end : i * BYTES, buffers[i], bytes));
		end += end ? bytes : 0;
	}
	if (end)
		DEMAND(has(0, before, BYTES));
	else
		DEMAND(pwrite(file, before, 3 * BYTES, 0) == 3 * BYTES);
	close(appends);
}

static void write_over_the_end(int file)
{
	memset(buffers[0], 'e', BYTES);
	prepare(&blocks[0], file, buffers[0], BYTES, size - 512);
	DEMAND(aio_write(&blocks[0]) == 0 && error_of(&blocks[0]) == 0);
	ssize_t bytes = aio_return(&blocks[0]);
	say("%zd bytes", bytes);
	DEMAND(bytes >= 512 && has(size - 512, buffers[0], bytes));
	prepare(&blocks[0], file, buffers[0], BYTES, size + BYTES);
	DEMAND(aio_write(&blocks[0]) == 0);
	int error = error_of(&blocks[0]);
	say(", %s", error_name(error));
	DEMAND(error == 0 || error == ENOSPC || error == EFBIG);
	prepare(&blocks[0], file, buffers[0], 0, size);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], 0));
}

static void answer_is_zero(int file)
{
	prepare_all(file, 2, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0);
	DEMAND(aio_read(&blocks[1]) == 0);
	DEMAND(ended(&blocks[0], BYTES) && ended(&blocks[1], BYTES));
}

static void no_bytes(int file)
{
	prepare(&blocks[0], file, NULL, 0, 0);
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], 0));
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], 0));
	DEMAND(has(0, before, BYTES));
}

static void priority_is_out_of_range(int file)
{
	static const int priorities[] = { -1, INT_MIN, 21, INT_MAX };
	for (int i = 0; i < 4; i++)
		for (int write = 0; write < 2; write++) {
			prepare_all(file, 1, LIO_WRITE);
			blocks[0].aio_reqprio = priorities[i];
			errno = 0;
			int made = (write ? aio_write : aio_read)(&blocks[0]);
			int error = error_of_made(made, &blocks[0]);
			say("%s%d %s", i || write ? ", " : "", made, error_name(error));
			DEMAND(error == EINVAL);
		}
	DEMAND(has(0, before, BYTES));
	prepare_all(file, 1, LIO_READ);
	blocks[0].aio_reqprio = 20;
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
}

static void offset_is_wrong(int file)
{
	static const off_t offsets[] = { -1, -BYTES, INT64_MIN };
	for (int i = 0; i < 3; i++)
		for (int write = 0; write < 2; write++) {
			prepare_all(file, 1, LIO_WRITE);
			blocks[0].aio_offset = offsets[i];
			DEMAND(error_of_made((write ? aio_write : aio_read)(&blocks[0]), &blocks[0]) == EINVAL);
		}
	DEMAND(has(0, before, BYTES));
}

static void offset_is_at_the_maximum(int file)
{
	static const off_t offsets[] = { INT64_MAX, INT64_MAX - BYTES + 1, INT64_MAX - BYTES };
	for (int i = 0; i < 3; i++)
		for (int write = 0; write < 2; write++) {
			prepare_all(file, 1, LIO_WRITE);
			blocks[0].aio_offset = offsets[i];
			int error = error_of_made((write ? aio_write : aio_read)(&blocks[0]), &blocks[0]);
			say("%s%s", i || write ? ", " : "", error_name(error));
			DEMAND(write ? error == EINVAL || error == EFBIG || error == ENOSPC
				: error == EINVAL || error == EOVERFLOW || (error == 0 && aio_return(&blocks[0]) == 0));
		}
}

static void length_is_wrong(int file)
{
	static const size_t lengths[] = { SIZE_MAX, (size_t)SSIZE_MAX + 1 };
	for (int i = 0; i < 2; i++)
		for (int write = 0; write < 2; write++) {
			prepare_all(file, 1, LIO_READ);
			memset(buffers, '-', sizeof buffers);
			blocks[0].aio_nbytes = lengths[i];
			int error = error_of_made((write ? aio_write : aio_read)(&blocks[0]), &blocks[0]);
			say("%s%s", i || write ? ", " : "", error_name(error));
			DEMAND(error == EINVAL || error == EFAULT);
			DEMAND(all_are(buffers[0], sizeof buffers, '-'));
		}
	DEMAND(has(0, before, BYTES));
}

static void descriptor_is_none(int file)
{
	int closed = dup(file);
	close(closed);
	for (int which = 0; which < 2; which++)
		for (int write = 0; write < 2; write++) {
			prepare_all(which ? closed : -1, 1, LIO_WRITE);
			int made = (write ? aio_write : aio_read)(&blocks[0]);
			say("%s%d", which || write ? ", " : "", made);
			DEMAND(error_of_made(made, &blocks[0]) == EBADF);
		}
}

static void descriptor_is_of_the_other_kind(int file)
{
	int reads = opened(O_RDONLY), writes = opened(O_WRONLY);
	(void)file;
	prepare_all(reads, 1, LIO_WRITE);
	int made = aio_write(&blocks[0]);
	DEMAND(error_of_made(made, &blocks[0]) == EBADF);
	say("%d", made);
	prepare_all(writes, 1, LIO_READ);
	made = aio_read(&blocks[0]);
	DEMAND(error_of_made(made, &blocks[0]) == EBADF);
	say(", %d", made);
	DEMAND(has(0, before, BYTES));
	prepare_all(reads, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	prepare_all(writes, 1, LIO_WRITE);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	close(reads), close(writes);
}

static void descriptor_is_closed_meanwhile(int file)
{
	int other = dup(file);
	prepare_all(other, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_write(&blocks[i]) == 0);
	DEMAND(close(other) == 0);
	for (int i = 0; i < COUNT; i++) {
		const struct aiocb *one[1] = { &blocks[i] };
		/* Whoever waits hears of it when it is done, and not before. */
		DEMAND(aio_suspend(one, 1, NULL) == 0);
		int error = aio_error(&blocks[i]);
		DEMAND(error == 0 || error == ECANCELED || error == EBADF);
		DEMAND(aio_return(&blocks[i]) == (error == 0 ? BYTES : -1));
		DEMAND(has((off_t)i * BYTES, error == 0 ? buffers[i] : before + i * BYTES, BYTES));
	}
}

/* More than there is room for: those that are refused are, and the others are done. */
static void more_than_there_is_room_for(int file)
{
	static struct aiocb many[MANY];
	static char bytes[MANY][512];
	int refused[MANY];
	for (int i = 0; i < MANY; i++) {
		prepare(&many[i], file, bytes[i], 512, (off_t)(i % 128) * 512);
		errno = 0;
		refused[i] = aio_read(&many[i]);
		DEMAND(refused[i] == 0 || (refused[i] == -1 && errno == EAGAIN));
	}
	for (int i = 0; i < MANY; i++)
		DEMAND(refused[i] || (ended(&many[i], 512) && !memcmp(bytes[i], before + (i % 128) * 512, 512)));
	/* There is room again. */
	DEMAND(aio_read(&many[0]) == 0 && ended(&many[0], 512));
}

static void told_by_signals_with_values(int file)
{
	listen_for(SIGRTMIN + 1);
	prepare_all(file, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++) {
		tell_by_signal(&blocks[i].aio_sigevent, SIGRTMIN + 1, i);
		DEMAND(aio_read(&blocks[i]) == 0);
	}
	wait_for_signals(COUNT);
	for (int i = 0; i < COUNT; i++)
		DEMAND(values[i] == 1 && aio_error(&blocks[i]) == 0 && aio_return(&blocks[i]) == BYTES);
	DEMAND(codes_wrong == 0 && signals == COUNT);
}

static void told_by_a_signal_that_is_blocked(int file)
{
	sigset_t set;
	siginfo_t information;
	sigemptyset(&set), sigaddset(&set, SIGRTMIN + 2);
	DEMAND(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i++) {
		tell_by_signal(&blocks[i].aio_sigevent, SIGRTMIN + 2, i);
		DEMAND(aio_write(&blocks[i]) == 0);
	}
	int seen = 0;
	for (int i = 0; i < COUNT; i++) {
		DEMAND(sigwaitinfo(&set, &information) == SIGRTMIN + 2 && information.si_code == SI_ASYNCIO);
		int value = information.si_value.sival_int;
		DEMAND(value >= 0 && value < COUNT && !(seen & 1 << value));
		seen |= 1 << value;
		DEMAND(aio_error(&blocks[value]) == 0 && aio_return(&blocks[value]) == BYTES);
	}
	DEMAND(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static void told_of_what_fails(int file)
{
	listen_for(SIGRTMIN);
	prepare_all(file, 2, LIO_READ);
	blocks[0].aio_offset = -1;
	tell_by_signal(&blocks[0].aio_sigevent, SIGRTMIN, 3);
	DEMAND(aio_read(&blocks[0]) == 0);
	wait_for_signals(1);
	DEMAND(values[3] == 1 && aio_error(&blocks[0]) == EINVAL && aio_return(&blocks[0]) == -1);
}

static void told_by_threads(int file)
{
	/* Not on the stack: pthread_create may look at them still when the thread that it has made has been called. */
	static pthread_attr_t attributes;
	DEMAND(pthread_attr_init(&attributes) == 0);
	DEMAND(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
	DEMAND(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
	forget_calls();
	prepare_all(file, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++)
		tell_by_thread(&blocks[i].aio_sigevent, i % 2 ? &attributes : NULL, i);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_read(&blocks[i]) == 0);
	wait_for_calls(COUNT);
	DEMAND(sum == COUNT * (COUNT - 1) / 2 && in_same_thread == 0 && unfinished == 0);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_error(&blocks[i]) == 0 && aio_return(&blocks[i]) == BYTES);
}

/* aio_suspend */

static void suspend_until_one_is_done(int file)
{
	prepare_all(file, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_read(&blocks[i]) == 0);
	const struct aiocb *one[2] = { NULL, &blocks[COUNT / 2] };
	DEMAND(aio_suspend(one, 2, NULL) == 0);
	DEMAND(aio_error(&blocks[COUNT / 2]) == 0 && aio_return(&blocks[COUNT / 2]) == BYTES);
	for (int i = 0; i < COUNT; i++)
		DEMAND(i == COUNT / 2 || ended(&blocks[i], BYTES));
}

static void suspend_until_any_is_done(int file)
{
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_write(&blocks[i]) == 0);
	for (int left = COUNT; left > 0;) {
		DEMAND(aio_suspend((const struct aiocb *const *)list, COUNT, NULL) == 0);
		int found = 0;
		for (int i = 0; i < COUNT; i++)
			if (list[i] && aio_error(list[i]) != EINPROGRESS) {
				DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES);
				list[i] = NULL;
				found++;
			}
		DEMAND(found > 0);
		left -= found;
	}
}

static void suspend_on_what_is_done(int file)
{
	struct timespec none = { 0, 0 };
	const struct aiocb *both[3] = { &from_pipe, NULL, &blocks[0] };
	prepare_all(file, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0 && error_of(&blocks[0]) == 0);
	DEMAND(begin_reading_a_pipe() == 0);
	DEMAND(aio_suspend(both, 3, NULL) == 0 && aio_suspend(both, 3, &none) == 0);
	DEMAND(aio_return(&blocks[0]) == BYTES);
	DEMAND(end_reading_a_pipe());
}

static void suspend_on_both_kinds(int file)
{
	const struct aiocb *both[3] = { &from_pipe, NULL, &blocks[0] };
	DEMAND(begin_reading_a_pipe() == 0);
	prepare_all(file, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0);
	DEMAND(aio_suspend(both, 3, NULL) == 0);
	DEMAND(aio_error(&from_pipe) == EINPROGRESS && aio_error(&blocks[0]) == 0 && aio_return(&blocks[0]) == BYTES);
	DEMAND(end_reading_a_pipe());
}

static void suspend_on_nothing(int file)
{
	const struct aiocb *none[4] = { NULL, NULL, NULL, NULL };
	struct timespec soon = { 0, 1000000 };
	(void)file;
	errno = 0;
	int answer = aio_suspend(none, 4, &soon);
	DEMAND(answer == 0 || errno == EAGAIN);
	say("%d", answer);
	errno = 0;
	DEMAND(aio_suspend(none, -1, &soon) == -1 && errno == EINVAL);
}

static void suspend_until_a_timeout(int file)
{
	const struct aiocb *waited[2] = { &from_pipe, NULL };
	struct timespec soon = { 0, 20000000 }, none = { 0, 0 }, start, end;
	DEMAND(begin_reading_a_pipe() == 0);
	/* Beside requests on the file, which are not waited for. */
	prepare_all(file, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_read(&blocks[i]) == 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	errno = 0;
	DEMAND(aio_suspend(waited, 2, &soon) == -1 && errno == EAGAIN);
	clock_gettime(CLOCK_MONOTONIC, &end);
	DEMAND((end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec >= soon.tv_nsec);
	errno = 0;
	DEMAND(aio_suspend(waited, 2, &none) == -1 && errno == EAGAIN);
	DEMAND(aio_error(&from_pipe) == EINPROGRESS);
	for (int i = 0; i < COUNT; i++)
		DEMAND(ended(&blocks[i], BYTES));
	DEMAND(end_reading_a_pipe());
	/* Of the file's, either is possible. */
	DEMAND(aio_read(&blocks[0]) == 0);
	waited[0] = &blocks[0];
	errno = 0;
	DEMAND(aio_suspend(waited, 1, &none) == 0 || errno == EAGAIN);
	DEMAND(ended(&blocks[0], BYTES));
}

static void suspend_until_a_signal(int file)
{
	/* It comes again and again, as one may come before anybody waits. */
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	const struct aiocb *waited[2] = { &from_pipe, NULL };
	listen_for(SIGALRM);
	DEMAND(begin_reading_a_pipe() == 0);
	prepare_all(file, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0);
	DEMAND(setitimer(ITIMER_REAL, &often, NULL) == 0);
	errno = 0;
	int answer = aio_suspend(waited, 2, NULL), error = errno;
	DEMAND(setitimer(ITIMER_REAL, &never, NULL) == 0);
	DEMAND(answer == -1 && error == EINTR && signals > 0);
	DEMAND(ended(&blocks[0], BYTES));
	DEMAND(end_reading_a_pipe());
}

/* What a handler does that was set to have calls go on: in the end, it lets the request on the pipe end. */
static void lets_the_pipe_go(int number)
{
	(void)number;
	if (++signals == 5 && write(pipe_ends[1], "12345678", sizeof piped) != sizeof piped)
		abort();
}

static void suspend_goes_on_after_a_signal(int file)
{
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = lets_the_pipe_go, .sa_flags = SA_RESTART };
	struct timespec minute = { 60, 0 };
	for (int timed = 0; timed < 2; timed++) {
		signals = 0;
		sigaction(SIGALRM, &action, NULL);
		DEMAND(begin_reading_a_pipe() == 0);
		prepare_all(file, 1, LIO_READ);
		DEMAND(aio_read(&blocks[0]) == 0);
		DEMAND(setitimer(ITIMER_REAL, &often, NULL) == 0);
		/* Beside a request that has ended, the first alone decides. */
		DEMAND(error_of(&blocks[0]) == 0);
		const struct aiocb *waited[1] = { &from_pipe };
		errno = 0;
		int answer = aio_suspend(waited, 1, timed ? &minute : NULL);
		say("%s%d %s", timed ? ", " : "", answer, error_name(errno));
		DEMAND(timed ? answer == -1 && errno == EINTR : answer == 0 && signals >= 5);
		while (signals < 5)
			usleep(500);
		DEMAND(setitimer(ITIMER_REAL, &never, NULL) == 0);
		DEMAND(ended(&blocks[0], BYTES) && ended(&from_pipe, sizeof piped));
		close(pipe_ends[0]), close(pipe_ends[1]);
	}
}

static void suspend_on_one_whose_number_is_anothers(int file)
{
	const struct aiocb *waited[1] = { &to_pipe };
	struct timespec minute = { 60, 0 };
	pthread_t reader;
	void *read_all;
	DEMAND(begin_writing_to_a_pipe(file) == 0);
	prepare_all(file, COUNT, LIO_READ);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_read(&blocks[i]) == 0);
	DEMAND(aio_error(&to_pipe) == EINPROGRESS);
	DEMAND(pthread_create(&reader, NULL, reads_from_the_pipe, &to_pipe) == 0);
	time_t start = time(NULL);
	DEMAND(aio_suspend(waited, 1, &minute) == 0 && ended(&to_pipe, LONG));
	/* Not because its time was over. */
	DEMAND(time(NULL) - start < minute.tv_sec - 1);
	for (int i = 0; i < COUNT; i++)
		DEMAND(ended(&blocks[i], BYTES));
	DEMAND(pthread_join(reader, &read_all) == 0 && read_all);
	close(pipe_ends[0]), close(pipe_ends[1]);
	free(written_to_pipe);
}

static void suspend_for_wrong_times(int file)
{
	static const struct timespec times[] = { { 0, -1 }, { -1, 0 } };
	const struct aiocb *waited[2] = { &blocks[0], &from_pipe };
	DEMAND(begin_reading_a_pipe() == 0);
	prepare_all(file, 1, LIO_READ);
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], BYTES));
	for (int i = 0; i < 2; i++) {
		errno = 0;
		DEMAND(aio_suspend(waited + 1, 1, &times[i]) == -1);
		say("%s%s", i ? ", " : "", error_name(errno));
		DEMAND(errno == EINVAL || errno == EAGAIN);
	}
	DEMAND(end_reading_a_pipe());
}

static void *waits_for_the_first(void *argument)
{
	(void)argument;
	return (void *)(intptr_t)error_of(&blocks[0]);
}

static void suspend_of_several_threads(int file)
{
	for (int turn = 0; turn < 50; turn++) {
		pthread_t threads[4];
		void *error;
		prepare_all(file, 1, LIO_READ);
		DEMAND(aio_read(&blocks[0]) == 0);
		for (int i = 0; i < 4; i++)
			DEMAND(pthread_create(&threads[i], NULL, waits_for_the_first, NULL) == 0);
		for (int i = 0; i < 4; i++)
			DEMAND(pthread_join(threads[i], &error) == 0 && error == NULL);
		DEMAND(aio_return(&blocks[0]) == BYTES && !memcmp(buffers[0], before, BYTES));
	}
}

/* lio_listio */

static void list_waits(int file)
{
	struct sigevent event;
	listen_for(SIGRTMIN);
	tell_by_signal(&event, SIGRTMIN, 0);
	prepare_all(file, COUNT, LIO_WRITE);
	DEMAND(lio_listio(LIO_WAIT, list, COUNT, &event) == 0);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES && has((off_t)i * BYTES, buffers[i], BYTES));
	/* Whom it would have told is not. */
	DEMAND(signals == 0);
}

static void list_does_not_wait(int file)
{
	/* It ends although one of its requests cannot. */
	struct sigevent event;
	listen_for(SIGRTMIN);
	tell_by_signal(&event, SIGRTMIN, 1);
	DEMAND(pipe(pipe_ends) == 0);
	prepare_all(file, COUNT, LIO_READ);
	prepare(&from_pipe, pipe_ends[0], piped, sizeof piped, 0);
	from_pipe.aio_lio_opcode = LIO_READ;
	list[COUNT / 2] = &from_pipe;
	DEMAND(lio_listio(LIO_NOWAIT, list, COUNT, &event) == 0);
	for (int i = 0; i < COUNT; i++)
		DEMAND(i == COUNT / 2 || ended(list[i], BYTES));
	DEMAND(aio_error(&from_pipe) == EINPROGRESS && signals == 0);
	DEMAND(end_reading_a_pipe());
	wait_for_signals(1);
	DEMAND(signals == 1 && values[1] == 1 && codes_wrong == 0);
}

static void list_tells_by_a_signal(int file)
{
	struct sigevent event;
	listen_for(SIGRTMIN);
	tell_by_signal(&event, SIGRTMIN, 2);
	prepare_all(file, COUNT, LIO_WRITE);
	DEMAND(lio_listio(LIO_NOWAIT, list, COUNT, &event) == 0);
	wait_for_signals(1);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES);
	DEMAND(signals == 1 && values[2] == 1 && codes_wrong == 0);
}

static void list_tells_by_a_thread(int file)
{
	struct sigevent event;
	forget_calls();
	tell_by_thread(&event, NULL, 1000);
	prepare_all(file, COUNT, LIO_READ);
	DEMAND(lio_listio(LIO_NOWAIT, list, COUNT, &event) == 0);
	wait_for_calls(1);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES);
	DEMAND(calls == 1 && sum == 1000 && in_same_thread == 0);
}

static void list_and_its_requests_tell(int file)
{
	struct sigevent event;
	listen_for(SIGRTMIN);
	tell_by_signal(&event, SIGRTMIN, COUNT - 1);
	prepare_all(file, COUNT - 1, LIO_READ);
	for (int i = 0; i < COUNT - 1; i++)
		tell_by_signal(&blocks[i].aio_sigevent, SIGRTMIN, i);
	DEMAND(lio_listio(LIO_NOWAIT, list, COUNT - 1, &event) == 0);
	wait_for_signals(COUNT);
	for (int i = 0; i < COUNT; i++)
		DEMAND(values[i] == 1);
	/* Those of one that waits, too: a signal would end that, so it comes later. */
	sigset_t set;
	sigemptyset(&set), sigaddset(&set, SIGRTMIN);
	listen_for(SIGRTMIN);
	DEMAND(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
	DEMAND(lio_listio(LIO_WAIT, list, COUNT - 1, NULL) == 0);
	DEMAND(pthread_sigmask(SIG_UNBLOCK, &set, NULL) == 0);
	wait_for_signals(COUNT - 1);
	for (int i = 0; i < COUNT - 1; i++)
		DEMAND(values[i] == 1 && aio_return(list[i]) == BYTES);
}

static void list_has_gaps(int file)
{
	for (int waits = 0; waits < 2; waits++) {
		prepare_all(file, COUNT, LIO_WRITE);
		for (int i = 0; i < COUNT; i += 3)
			list[i] = NULL;
		DEMAND(lio_listio(waits ? LIO_WAIT : LIO_NOWAIT, list, COUNT, NULL) == 0);
		for (int i = 0; i < COUNT; i++)
			if (list[i])
				DEMAND(ended(list[i], BYTES) && has((off_t)i * BYTES, buffers[i], BYTES));
			else
				DEMAND(has((off_t)i * BYTES, before + i * BYTES, BYTES));
	}
}

static void list_does_nothing(int file)
{
	struct sigevent event;
	for (int waits = 0; waits < 2; waits++) {
		prepare_all(file, COUNT, LIO_WRITE);
		for (int i = 0; i < COUNT; i += 2)
			list[i]->aio_lio_opcode = LIO_NOP;
		/* What it says does not matter. */
		list[0]->aio_fildes = -1, list[2]->aio_offset = -1, list[4]->aio_reqprio = -1;
		DEMAND(lio_listio(waits ? LIO_WAIT : LIO_NOWAIT, list, COUNT, NULL) == 0);
		for (int i = 1; i < COUNT; i += 2)
			DEMAND(ended(list[i], BYTES) && has((off_t)i * BYTES, buffers[i], BYTES));
		for (int i = 0; i < COUNT; i += 2)
			DEMAND(has((off_t)i * BYTES, before + i * BYTES, BYTES));
		/* Nothing at all. */
		for (int i = 0; i < COUNT; i++)
			list[i]->aio_lio_opcode = LIO_NOP;
		DEMAND(lio_listio(waits ? LIO_WAIT : LIO_NOWAIT, list, COUNT, NULL) == 0);
		DEMAND(lio_listio(waits ? LIO_WAIT : LIO_NOWAIT, list, 0, NULL) == 0);
	}
	listen_for(SIGRTMIN);
	tell_by_signal(&event, SIGRTMIN, 4);
	DEMAND(lio_listio(LIO_NOWAIT, list, COUNT, &event) == 0);
	wait_for_signals(1);
	DEMAND(values[4] == 1);
}

static void list_reads_and_writes(int file)
{
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i += 2)
		list[i]->aio_lio_opcode = LIO_READ;
	DEMAND(lio_listio(LIO_WAIT, list, COUNT, NULL) == 0);
	for (int i = 0; i < COUNT; i++) {
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES && has((off_t)i * BYTES, buffers[i], BYTES));
		DEMAND(i % 2 || !memcmp(buffers[i], before + i * BYTES, BYTES));
	}
}

static void list_of_several_files(int file)
{
	FILE *other = tmpfile();
	int reads = opened(O_RDONLY);
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < COUNT; i += 4)
		list[i]->aio_fildes = fileno(other), list[i + 1]->aio_fildes = reads, list[i + 1]->aio_lio_opcode = LIO_READ;
	DEMAND(lio_listio(LIO_WAIT, list, COUNT, NULL) == 0);
	for (int i = 0; i < COUNT; i++)
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES);
	for (int i = 0; i < COUNT; i += 4) {
		char bytes[BYTES];
		DEMAND(pread(fileno(other), bytes, BYTES, (off_t)i * BYTES) == BYTES && !memcmp(bytes, buffers[i], BYTES));
		DEMAND(!memcmp(buffers[i + 1], before + (i + 1) * BYTES, BYTES));
		DEMAND(has((off_t)i * BYTES, before + i * BYTES, BYTES));
	}
	close(reads), fclose(other);
}

/* Each has one request that fails, the third. */
static void list_has_an_unknown_operation(int file)
{
	static const int operations[] = { -1, 77 };
	for (int i = 0; i < 2; i++)
		for (int elsewhere = 0; elsewhere < 2; elsewhere++) {
			FILE *other = tmpfile();
			prepare_all(file, 6, LIO_WRITE);
			list[2]->aio_lio_opcode = operations[i];
			if (elsewhere)
				list[2]->aio_fildes = fileno(other);
			errno = 0;
			DEMAND(lio_listio(LIO_WAIT, list, 6, NULL) == -1 && (errno == EIO || errno == EINVAL));
			say("%s%s", i || elsewhere ? ", " : "", error_name(errno));
			DEMAND(aio_error(list[2]) == EINVAL && aio_return(list[2]) == -1);
			for (int j = 0; j < 6; j++)
				DEMAND(j == 2 || (ended(list[j], BYTES) && has((off_t)j * BYTES, buffers[j], BYTES)));
			DEMAND(has(2 * BYTES, before + 2 * BYTES, BYTES));
			DEMAND(lseek(fileno(other), 0, SEEK_END) == 0);
			fclose(other);
		}
}

static void list_has_one_that_fails(int file)
{
	int reads = opened(O_RDONLY);
	for (int how = 0; how < 4; how++)
		for (int waits = 0; waits < 2; waits++) {
			struct sigevent event;
			listen_for(SIGRTMIN);
			tell_by_signal(&event, SIGRTMIN, 6);
			prepare_all(file, 6, LIO_WRITE);
			if (how == 0)
				list[2]->aio_fildes = -1;
			if (how == 1)
				list[2]->aio_fildes = reads;
			if (how == 2)
				list[2]->aio_offset = -1;
			if (how == 3)
				list[2]->aio_reqprio = -1;
			int expected = how < 2 ? EBADF : EINVAL;
			errno = 0;
			int answer = lio_listio(waits ? LIO_WAIT : LIO_NOWAIT, list, 6, waits ? NULL : &event), error = answer ? errno : 0;
			say("%s%s", how || waits ? ", " : "", error_name(error));
			DEMAND(!waits || (answer == -1 && (error == EIO || error == EAGAIN || error == expected)));
			/* The others are done all the same. */
			for (int j = 0; j < 6; j++)
				DEMAND(j == 2 || (ended(list[j], BYTES) && has((off_t)j * BYTES, buffers[j], BYTES)));
			DEMAND(error_of(list[2]) == expected && aio_return(list[2]) == -1);
			/* It is told of, too. */
			if (!waits) {
				wait_for_signals(1);
				DEMAND(signals == 1 && values[6] == 1);
			}
		}
	close(reads);
}

static void list_has_the_errors_of_its_requests(int file)
{
	prepare_all(file, 4, LIO_READ);
	list[0]->aio_offset = size - 512;
	list[1]->aio_offset = size;
	list[2]->aio_nbytes = 0;
	list[3]->aio_nbytes = 777;
	DEMAND(lio_listio(LIO_WAIT, list, 4, NULL) == 0);
	static const ssize_t answers[] = { 512, 0, 0, 777 };
	for (int i = 0; i < 4; i++)
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == answers[i]);
}

static void list_of_many(int file)
{
	static struct aiocb many[MANY], *all[MANY];
	static char bytes[MANY][512];
	for (int i = 0; i < MANY; i++) {
		prepare(&many[i], file, bytes[i], 512, (off_t)(i % 128) * 512);
		many[i].aio_lio_opcode = LIO_READ;
		all[i] = &many[i];
	}
	errno = 0;
	int answer = lio_listio(LIO_WAIT, all, MANY, NULL);
	DEMAND(answer == 0 || (answer == -1 && (errno == EAGAIN || errno == EIO)));
	int refused = 0;
	for (int i = 0; i < MANY; i++) {
		int error = aio_error(all[i]);
		DEMAND(error == 0 || error == EAGAIN);
		refused += error != 0;
		DEMAND(error != 0 || (aio_return(all[i]) == 512 && !memcmp(bytes[i], before + (i % 128) * 512, 512)));
	}
	DEMAND((answer == 0) == (refused == 0));
}

static void list_is_wrong(int file)
{
	static const int modes[] = { -1, 2, 77 };
	prepare_all(file, COUNT, LIO_WRITE);
	for (int i = 0; i < 3; i++) {
		errno = 0;
		DEMAND(lio_listio(modes[i], list, COUNT, NULL) == -1 && errno == EINVAL);
	}
	errno = 0;
	int answer = lio_listio(LIO_WAIT, list, -1, NULL);
	say("%s", error_name(answer == 0 ? 0 : errno));
	DEMAND(answer == 0 || errno == EINVAL);
	/* Nothing was begun. */
	DEMAND(has(0, before, sizeof before));
}

static void list_goes_on_after_a_signal(int file)
{
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_handler = lets_the_pipe_go, .sa_flags = SA_RESTART };
	signals = 0;
	sigaction(SIGALRM, &action, NULL);
	DEMAND(pipe(pipe_ends) == 0);
	prepare_all(file, COUNT, LIO_READ);
	prepare(&from_pipe, pipe_ends[0], piped, sizeof piped, 0);
	from_pipe.aio_lio_opcode = LIO_READ;
	list[0] = &from_pipe;
	DEMAND(setitimer(ITIMER_REAL, &often, NULL) == 0);
	int answer = lio_listio(LIO_WAIT, list, COUNT, NULL);
	DEMAND(setitimer(ITIMER_REAL, &never, NULL) == 0);
	DEMAND(answer == 0 && signals >= 5 && aio_error(&from_pipe) == 0 && aio_return(&from_pipe) == sizeof piped);
	for (int i = 1; i < COUNT; i++)
		DEMAND(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES);
	close(pipe_ends[0]), close(pipe_ends[1]);
}

/* The last of all: glibc's list, which the call has left behind, is on a stack that others use, and so the request on
 * the pipe is not to end. */
static void list_waits_until_a_signal(int file)
{
	struct itimerval often = { { 0, 2000 }, { 0, 2000 } }, never = { { 0, 0 }, { 0, 0 } };
	listen_for(SIGALRM);
	DEMAND(pipe(pipe_ends) == 0);
	prepare(&from_pipe, pipe_ends[0], piped, sizeof piped, 0);
	from_pipe.aio_lio_opcode = LIO_READ;
	prepare_all(file, 1, LIO_READ);
	list[1] = &from_pipe;
	DEMAND(setitimer(ITIMER_REAL, &often, NULL) == 0);
	errno = 0;
	int answer = lio_listio(LIO_WAIT, list, 2, NULL), error = errno;
	DEMAND(setitimer(ITIMER_REAL, &never, NULL) == 0);
	DEMAND(answer == -1 && error == EINTR && signals > 0);
	DEMAND(aio_error(&from_pipe) == EINPROGRESS);
}

/* Of a file that is long enough: more than a disk has room for at a time. */
static void longer_than_there_is_room_for(int file)
{
	size_t bytes = (129 << 20) + 512;
	if (size < (off_t)bytes)
		return;
	char *all = malloc(bytes);
	memset(all, 'l', bytes);
	prepare(&blocks[0], file, all, bytes, 0);
	DEMAND(aio_write(&blocks[0]) == 0 && ended(&blocks[0], bytes));
	memset(all, 0, bytes);
	DEMAND(aio_read(&blocks[0]) == 0 && ended(&blocks[0], bytes) && all_are(all, bytes, 'l'));
	free(all);
}

static const struct { const char *name; void (*demand)(int file); } cases[] = {
#define CASE(function) { #function, function }
	CASE(cancel_one), CASE(cancel_all), CASE(cancel_tells), CASE(cancel_leaves_blocks), CASE(cancel_of_a_pipe),
	CASE(cancel_when_done), CASE(cancel_of_nothing), CASE(cancel_of_another), CASE(cancel_by_a_number_that_is_anothers),
	CASE(cancel_without_descriptor),	CASE(error_is_the_requests), CASE(error_of_many), CASE(error_under_way), CASE(error_of_no_request),
	CASE(return_is_the_requests), CASE(return_twice), CASE(return_of_no_request), CASE(block_is_used_again),
	CASE(sync_ends), CASE(sync_between_writes), CASE(sync_of_nothing), CASE(sync_ignores_members), CASE(sync_tells),
	CASE(sync_without_descriptor), CASE(sync_where_nobody_may_write), CASE(sync_by_other_operations),
	CASE(read_into_the_buffer), CASE(read_at_odd_places), CASE(read_over_the_end), CASE(read_leaves_the_place),
	CASE(operation_is_ignored), CASE(write_between_others), CASE(write_stably), CASE(append_is_done_in_order),
	CASE(write_over_the_end), CASE(answer_is_zero), CASE(no_bytes), CASE(priority_is_out_of_range), CASE(offset_is_wrong),
	CASE(offset_is_at_the_maximum), CASE(length_is_wrong), CASE(descriptor_is_none), CASE(descriptor_is_of_the_other_kind),
	CASE(descriptor_is_closed_meanwhile), CASE(more_than_there_is_room_for), CASE(told_by_signals_with_values),
	CASE(told_by_a_signal_that_is_blocked), CASE(told_of_what_fails), CASE(told_by_threads),
	CASE(suspend_until_one_is_done), CASE(suspend_until_any_is_done), CASE(suspend_on_what_is_done),
	CASE(suspend_on_both_kinds), CASE(suspend_on_nothing), CASE(suspend_until_a_timeout), CASE(suspend_until_a_signal),
	CASE(suspend_goes_on_after_a_signal), CASE(suspend_on_one_whose_number_is_anothers),
	CASE(suspend_for_wrong_times), CASE(suspend_of_several_threads), CASE(list_waits), CASE(list_does_not_wait),
	CASE(list_tells_by_a_signal), CASE(list_tells_by_a_thread), CASE(list_and_its_requests_tell), CASE(list_has_gaps),
	CASE(list_does_nothing), CASE(list_reads_and_writes), CASE(list_of_several_files), CASE(list_has_an_unknown_operation),
	CASE(list_has_one_that_fails), CASE(list_has_the_errors_of_its_requests), CASE(list_of_many), CASE(list_is_wrong),
	CASE(longer_than_there_is_room_for), CASE(list_goes_on_after_a_signal), CASE(list_waits_until_a_signal),
};

int main(int count, char **arguments)
{
	int status = 0;
	if (count < 3)
		return 2;
	name = arguments[1];
	size = atoll(arguments[2]);
	main_thread = pthread_self();
	for (size_t i = 0; i < sizeof before; i++)
		before[i] = 'a' + i / 7 % 26 + i / BYTES;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (count > 3 && strcmp(arguments[3], cases[i].name))
			continue;
		int file = opened(O_RDWR);
		if (pwrite(file, before, sizeof before, 0) != sizeof before)
			perror(name), exit(2);
		*said = 0, broken = NULL;
		cases[i].demand(file);
		/* What has grown is as long as it was. */
		if (ftruncate(file, size) != 0 && errno != EINVAL)
			perror(name), exit(2);
		close(file);
		if (broken)
			printf("%s: line %d: not %s (%s)\n", cases[i].name, broken_line, broken, said), status = 1;
		else
			printf("%s: kept%s%s\n", cases[i].name, *said ? ": " : "", said);
		fflush(stdout);
	}
	return status;
}
