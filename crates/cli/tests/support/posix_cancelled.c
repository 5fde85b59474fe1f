/* Threads that are cancelled while they work on a disk: each ends, its handler is called, and the disk is there for
 * others. The first argument is the disk's name, the second its size. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096
#define ROUNDS 100

static const char *name;
static off_t blocks;
static int disk, ends[2];
static volatile int turns, cleaned;
static char bytes[BLOCK], piped[8];
static struct aiocb request, from_pipe;

static void clean(void *argument)
{
	cleaned++;
}

static void read_and_write(off_t turn)
{
	off_t at = turn % blocks * BLOCK;
	CHECK(pread(disk, bytes, BLOCK, at) == BLOCK && pwrite(disk, bytes, BLOCK, at) == BLOCK);
}

static void write_on(off_t turn)
{
	if (turn % blocks == 0)
		CHECK(lseek(disk, 0, SEEK_SET) == 0);
	CHECK(write(disk, bytes, BLOCK) == BLOCK);
}

static void open_anew(off_t turn)
{
	int other = open(name, O_RDONLY);
	CHECK(other >= 0 && pread(other, bytes, BLOCK, 0) == BLOCK && close(other) == 0);
}

static void wait_for_a_request(off_t turn)
{
	const struct aiocb *list = &request;
	request = (struct aiocb){ .aio_fildes = disk, .aio_buf = bytes, .aio_nbytes = BLOCK };
	CHECK(aio_read(&request) == 0 && aio_suspend(&list, 1, NULL) == 0 && aio_return(&request) == BLOCK);
}

/* For ever: nobody writes to the pipe. */
static void wait_for_a_pipe_too(off_t turn)
{
	const struct aiocb *list[2] = { &from_pipe, &request };
	request = (struct aiocb){ .aio_fildes = disk, .aio_buf = bytes, .aio_nbytes = BLOCK };
	CHECK(aio_read(&request) == 0);
	while (aio_error(&request) == EINPROGRESS)
		pthread_testcancel();
	aio_suspend(list, 1, NULL);
}

static void read_a_stream(off_t turn)
{
	static FILE *stream;
	if (turn == 0)
		CHECK((stream = fopen(name, "r")) != NULL);
	CHECK(fseek(stream, turn % blocks * BLOCK, SEEK_SET) == 0 && fread(bytes, BLOCK, 1, stream) == 1);
}

static void (*const works[])(off_t) = {
	read_and_write, write_on, open_anew, wait_for_a_request, wait_for_a_pipe_too, read_a_stream
};

static void *work(void *argument)
{
	pthread_cleanup_push(clean, NULL);
	for (;; turns++)
		((void (*)(off_t))argument)(turns);
	pthread_cleanup_pop(0);
	return NULL;
}

/* Cancelled before it begins anything. */
static void *begin_late(void *argument)
{
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
	turns = 1;
	while (turns < 2)
		usleep(100);
	CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL) == 0);
	pthread_cleanup_push(clean, NULL);
	disk = open(name, O_RDWR);
	pread(disk, bytes, BLOCK, 0);
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(pthread_t thread)
{
	void *result;
	CHECK(pthread_cancel(thread) == 0);
	turns++;
	CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned == 1);
	cleaned = 0;
}

int main(int count, char **words)
{
	CHECK(count == 3 && pipe(ends) == 0);
	name = words[1];
	blocks = atoll(words[2]) / BLOCK;
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, begin_late, NULL) == 0);
	while (turns == 0)
		usleep(100);
	cancel(thread);
	CHECK((disk = open(name, O_RDWR)) >= 0);
	from_pipe = (struct aiocb){ .aio_fildes = ends[0], .aio_buf = piped, .aio_nbytes = sizeof piped };
	CHECK(aio_read(&from_pipe) == 0);
	for (int round = 0; round < ROUNDS; round++) {
		turns = 0;
		void (*what)(off_t) = works[round % (sizeof works / sizeof *works)];
		CHECK(pthread_create(&thread, NULL, work, what) == 0);
		if (what != wait_for_a_pipe_too)
			while (turns < 1 + round % 10)
				usleep(10);
		cancel(thread);
		while (aio_error(&request) == EINPROGRESS)
			usleep(10);
		CHECK(pread(disk, bytes, BLOCK, 0) == BLOCK && fsync(disk) == 0);
	}
	return 0;
}
