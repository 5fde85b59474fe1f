/* POSIX AIO on a file by its name: what its calls answer, of a disk of ours as of a file on the machine. The second
 * argument is the file's size, the third a file with its bytes; a fourth says that requests may be made after fork(2). What POSIX says (IEEE 1003.1, aio.h) is the model. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); exit(1); } } while (0)
#define COUNT 128
#define BYTES 4096

static const char *name;
static off_t size;
static char *expected;
static char buffers[COUNT][BYTES] __attribute__((aligned(4096)));
static struct aiocb blocks[COUNT];

static void prepare(int i, int disk, off_t offset, size_t bytes, int operation)
{
	memset(&blocks[i], 0, sizeof blocks[i]);
	blocks[i].aio_fildes = disk;
	blocks[i].aio_buf = buffers[i];
	blocks[i].aio_nbytes = bytes;
	blocks[i].aio_offset = offset;
	blocks[i].aio_lio_opcode = operation;
	blocks[i].aio_sigevent.sigev_notify = SIGEV_NONE;
}

static ssize_t finish(struct aiocb *block)
{
	const struct aiocb *list[2] = { NULL, block };
	while (aio_error(block) == EINPROGRESS)
		CHECK(aio_suspend(list, 2, NULL) == 0);
	return aio_return(block);
}

static void reads_and_writes(int disk)
{
	/* Blocks, parts of blocks, and over the end. */
	const struct { off_t offset; size_t bytes; ssize_t answer; } places[] = {
		{ 0, BYTES, BYTES }, { 8192, BYTES, BYTES }, { 777, 1000, 1000 }, { size - 100, BYTES, 100 }, { size, BYTES, 0 },
		{ 5, 0, 0 },
	};
	for (int i = 0; i < 6; i++) {
		prepare(i, disk, places[i].offset, places[i].bytes, 0);
		CHECK(aio_read(&blocks[i]) == 0);
	}
	for (int i = 0; i < 6; i++) {
		CHECK(finish(&blocks[i]) == places[i].answer && aio_error(&blocks[i]) == 0);
		CHECK(!memcmp(buffers[i], expected + places[i].offset, places[i].answer));
	}
	for (int i = 0; i < COUNT; i++) {
		memset(buffers[i], i + 1, BYTES);
		prepare(i, disk, (off_t)i * 2 * BYTES, BYTES, 0);
		CHECK(aio_write(&blocks[i]) == 0);
	}
	/* After all of them. */
	struct aiocb sync = { .aio_fildes = disk, .aio_sigevent.sigev_notify = SIGEV_NONE };
	CHECK(aio_fsync(O_DSYNC, &sync) == 0);
	CHECK(finish(&sync) == 0);
	for (int i = 0; i < COUNT; i++) {
		CHECK(aio_error(&blocks[i]) == 0 && aio_return(&blocks[i]) == BYTES);
		memset(expected + (off_t)i * 2 * BYTES, i + 1, BYTES);
	}
	/* A long one. */
	char *all = malloc(size);
	struct aiocb whole = { .aio_fildes = disk, .aio_buf = all, .aio_nbytes = size, .aio_sigevent.sigev_notify = SIGEV_NONE };
	CHECK(aio_read(&whole) == 0 && finish(&whole) == size && !memcmp(all, expected, size));
	free(all);
}

static void mistakes(int disk)
{
	int only_reads = open(name, O_RDONLY);
	prepare(0, only_reads, 0, BYTES, 0);
	CHECK(aio_write(&blocks[0]) == 0 && finish(&blocks[0]) == -1 && aio_error(&blocks[0]) == EBADF);
	CHECK(close(only_reads) == 0);
	prepare(0, disk, -1, BYTES, 0);
	CHECK(aio_read(&blocks[0]) == 0 && finish(&blocks[0]) == -1 && aio_error(&blocks[0]) == EINVAL);
	prepare(0, disk, 0, BYTES, 0);
	blocks[0].aio_reqprio = -1;
	CHECK(aio_read(&blocks[0]) == -1 && errno == EINVAL);
	CHECK(aio_fsync(-7, &blocks[0]) == -1 && errno == EINVAL);
	prepare(0, disk, 0, BYTES, LIO_READ);
	struct aiocb *list[1] = { &blocks[0] };
	CHECK(lio_listio(77, list, 1, NULL) == -1 && errno == EINVAL);
	CHECK(aio_cancel(disk, NULL) == AIO_ALLDONE);
	prepare(1, disk, 0, BYTES, 0);
	CHECK(aio_read(&blocks[1]) == 0);
	int cancelled = aio_cancel(disk, &blocks[1]);
	CHECK(cancelled == AIO_ALLDONE || cancelled == AIO_NOTCANCELED || cancelled == AIO_CANCELED);
	CHECK(cancelled == AIO_CANCELED || finish(&blocks[1]) == BYTES);
	CHECK(aio_cancel(disk, &blocks[1]) == AIO_ALLDONE);
	/* Memory that is not there. */
	char *gone = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int write = 0; write < 2; write++) {
		prepare(0, disk, 0, BYTES, 0);
		blocks[0].aio_buf = gone;
		CHECK((write ? aio_write : aio_read)(&blocks[0]) == 0);
		CHECK(finish(&blocks[0]) == -1 && aio_error(&blocks[0]) == EFAULT);
	}
	CHECK(munmap(gone, BYTES) == 0);
}

static void lists(int disk)
{
	struct aiocb *list[COUNT];
	for (int i = 0; i < COUNT; i++) {
		prepare(i, disk, (off_t)i * BYTES, BYTES, i % 3 == 2 ? LIO_NOP : LIO_READ);
		list[i] = i % 5 == 4 ? NULL : &blocks[i];
		memset(buffers[i], 0, BYTES);
	}
	CHECK(lio_listio(LIO_WAIT, list, COUNT, NULL) == 0);
	for (int i = 0; i < COUNT; i++)
		if (list[i] && blocks[i].aio_lio_opcode == LIO_READ)
			CHECK(aio_error(list[i]) == 0 && aio_return(list[i]) == BYTES && !memcmp(buffers[i], expected + (off_t)i * BYTES, BYTES));
	/* One fails: the others are done all the same. */
	prepare(0, disk, -5, BYTES, LIO_READ);
	prepare(1, disk, 0, BYTES, LIO_READ);
	CHECK(lio_listio(LIO_WAIT, list, 2, NULL) == -1 && errno == EIO);
	CHECK(aio_error(&blocks[0]) == EINVAL && aio_error(&blocks[1]) == 0 && aio_return(&blocks[1]) == BYTES);
	CHECK(lio_listio(LIO_WAIT, list, 0, NULL) == 0);
}

static volatile sig_atomic_t signals, last_value;

static void heard(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	CHECK(info->si_code == SI_ASYNCIO);
	last_value = info->si_value.sival_int;
	signals++;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int calls, sum;

static void called(union sigval value)
{
	sigset_t blocked;
	CHECK(pthread_sigmask(0, NULL, &blocked) == 0);
	for (int signal = 1; signal < 32; signal++)
		CHECK(!sigismember(&blocked, signal));
	pthread_mutex_lock(&mutex);
	calls++;
	sum += value.sival_int;
	pthread_cond_signal(&condition);
	pthread_mutex_unlock(&mutex);
}

static void notices(int disk)
{
	struct sigaction action = { .sa_sigaction = heard, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
	prepare(0, disk, 0, BYTES, 0);
	blocks[0].aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	blocks[0].aio_sigevent.sigev_signo = SIGRTMIN;
	blocks[0].aio_sigevent.sigev_value.sival_int = 42;
	CHECK(aio_read(&blocks[0]) == 0);
	/* Nobody asks how it stands. */
	while (!signals)
		usleep(1000);
	CHECK(last_value == 42 && aio_error(&blocks[0]) == 0 && aio_return(&blocks[0]) == BYTES);
	for (int i = 0; i < 8; i++) {
		prepare(i, disk, (off_t)i * BYTES, BYTES, 0);
		blocks[i].aio_sigevent.sigev_notify = SIGEV_THREAD;
		blocks[i].aio_sigevent.sigev_notify_function = called;
		blocks[i].aio_sigevent.sigev_value.sival_int = i;
		CHECK(aio_read(&blocks[i]) == 0);
	}
	pthread_mutex_lock(&mutex);
	while (calls < 8)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	CHECK(sum == 28);
	struct aiocb *list[8];
	for (int i = 0; i < 8; i++) {
		prepare(i, disk, (off_t)i * BYTES, BYTES, LIO_READ);
		list[i] = &blocks[i];
	}
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 7 };
	signals = 0;
	CHECK(lio_listio(LIO_NOWAIT, list, 8, &event) == 0);
	while (!signals)
		usleep(1000);
	CHECK(signals == 1 && last_value == 7);
	for (int i = 0; i < 8; i++)
		CHECK(aio_error(&blocks[i]) == 0 && aio_return(&blocks[i]) == BYTES);
}

static void *reader(void *argument)
{
	int disk = *(int *)argument;
	static __thread char bytes[BYTES] __attribute__((aligned(4096)));
	for (int i = 0; i < 2000; i++) {
		off_t offset = (off_t)(i * 7919 % (int)(size / BYTES)) * BYTES;
		struct aiocb block = { .aio_fildes = disk, .aio_buf = bytes, .aio_nbytes = BYTES, .aio_offset = offset,
			.aio_sigevent.sigev_notify = SIGEV_NONE };
		CHECK(aio_read(&block) == 0 && finish(&block) == BYTES && !memcmp(bytes, expected + offset, BYTES));
	}
	return NULL;
}

static void threads(int disk)
{
	pthread_t all[4];
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&all[i], NULL, reader, &disk) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
}

int main(int count, char **arguments)
{
	CHECK(count >= 4);
	name = arguments[1];
	size = atoll(arguments[2]);
	expected = malloc(size);
	int file = open(arguments[3], O_RDONLY);
	CHECK(read(file, expected, size) == size && close(file) == 0);
	int disk = open(name, O_RDWR);
	CHECK(disk >= 0);
	if (count == 5 && !strcmp(arguments[4], "long")) {
		/* Of a disk that takes its time, as many as short ones. */
		enum { LONG = 1 << 20, MANY = 200 };
		char *bytes = malloc(8 * LONG);
		struct aiocb *all = calloc(MANY, sizeof *all);
		for (int i = 0; i < MANY; i++) {
			all[i] = (struct aiocb){ .aio_fildes = disk, .aio_buf = bytes + i % 8 * LONG, .aio_nbytes = LONG,
				.aio_offset = i % 8 * LONG, .aio_sigevent.sigev_notify = SIGEV_NONE };
			CHECK(aio_read(&all[i]) == 0);
		}
		CHECK(aio_error(&all[MANY - 1]) == EINPROGRESS);
		for (int i = 0; i < MANY; i++)
			CHECK(finish(&all[i]) == LONG);
		CHECK(!memcmp(bytes, expected, 8 * LONG));
		_exit(0);
	}
	if (count == 5 && atoi(arguments[4])) {
		/* Of a disk that takes its time, so many at first, and one more for each that is done. */
		int most = atoi(arguments[4]), made = 0;
		for (prepare(0, disk, 0, BYTES, 0); made < COUNT - 1 && aio_read(&blocks[made]) == 0; prepare(made, disk, 0, BYTES, 0))
			made++;
		CHECK(errno == EAGAIN && made >= most && made < COUNT - 1);
		/* Another descriptor has as many of its own. */
		int other = open(name, O_RDONLY), more = 0;
		static struct aiocb others[COUNT];
		for (; more < COUNT - 1; more++) {
			others[more] = (struct aiocb){ .aio_fildes = other, .aio_buf = expected, .aio_nbytes = BYTES,
				.aio_sigevent.sigev_notify = SIGEV_NONE };
			if (aio_read(&others[more]) != 0)
				break;
		}
		CHECK(errno == EAGAIN && more >= most && more < COUNT - 1);
		CHECK(finish(&blocks[0]) == BYTES && finish(&blocks[made - most]) == BYTES && aio_read(&blocks[made]) == 0);
		_exit(0);
	}
	reads_and_writes(disk);
	mistakes(disk);
	lists(disk);
	notices(disk);
	threads(disk);
	/* A timeout that is over before anything is done, or not. */
	prepare(0, disk, 0, BYTES, 0);
	CHECK(aio_read(&blocks[0]) == 0);
	const struct aiocb *list[1] = { &blocks[0] };
	struct timespec none = { 0, 0 };
	int suspended = aio_suspend(list, 1, &none);
	CHECK(suspended == 0 || errno == EAGAIN);
	CHECK(finish(&blocks[0]) == BYTES);
	if (count == 4)
		return close(disk);
	/* A child has the disk, and none of its parent's requests. glibc's would wait for threads that it has not. */
	pid_t child = fork();
	if (child == 0) {
		threads(disk);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return close(disk);
}
