/* A program that writes one piece behind the other, with anything else in between, and sees what it has written. In the
 * end it writes once more so, and then does what the fourth argument says: whoever looks afterwards sees that, too. The
 * first argument is the disk's name, the second a file with its bytes, which is left as the disk is to be, the third
 * its size. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define ROOM (1 << 20)

static unsigned long state = 88172645463325252;
static off_t size;
static char *expected, *bytes;
static int disk;

static unsigned long below(unsigned long limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % limit;
}

/* So many writes from a place on. */
static void run(off_t at, size_t step, int writes)
{
	CHECK(lseek(disk, at, SEEK_SET) == at);
	for (; writes > 0 && at + step <= size; writes--, at += step) {
		memset(expected + at, below(256), step);
		CHECK(write(disk, expected + at, step) == step);
	}
}

static void compare(off_t at, size_t length)
{
	CHECK(pread(disk, bytes, length, at) == length && memcmp(bytes, expected + at, length) == 0);
}

static void request(off_t at, size_t length, int writes)
{
	struct aiocb block = { .aio_fildes = disk, .aio_buf = bytes, .aio_nbytes = length, .aio_offset = at };
	const struct aiocb *list = &block;
	if (writes)
		memset(bytes, below(256), length);
	CHECK((writes ? aio_write(&block) : aio_read(&block)) == 0 && aio_suspend(&list, 1, NULL) == 0);
	CHECK(aio_return(&block) == length);
	if (writes)
		memcpy(expected + at, bytes, length);
	CHECK(memcmp(bytes, expected + at, length) == 0);
}

static int child_sees_all(const char *name)
{
	pid_t child = fork();
	if (child == 0) {
		int other = open(name, O_RDONLY);
		for (off_t at = 0; at < size; at += ROOM)
			CHECK(pread(other, bytes, ROOM, at) == ROOM && memcmp(bytes, expected + at, ROOM) == 0);
		_exit(0);
	}
	int status;
	return waitpid(child, &status, 0) == child && status == 0;
}

int main(int count, char **words)
{
	CHECK(count == 5);
	size = atoll(words[3]);
	expected = malloc(size);
	bytes = malloc(ROOM);
	int file = open(words[2], O_RDWR);
	disk = open(words[1], O_RDWR);
	CHECK(file >= 0 && disk >= 0 && read(file, expected, size) == size);
	static const size_t steps[] = { 4096, 4096, 65536, 300 * 512, 4096 * 200, 1000 };
	for (int round = 0; round < 400; round++) {
		size_t step = steps[below(6)];
		off_t at = below(size / 4096) * 4096;
		run(at, step, 2 + below(40));
		/* Where that was, and elsewhere. */
		off_t place = below(2) ? at : below(size), left = size - place;
		size_t length = 1 + below(20000);
		length = length < left ? length : left;
		switch (below(7)) {
		case 0:
			compare(place, length);
			break;
		case 1:
			memset(expected + place, below(256), length);
			CHECK(pwrite(disk, expected + place, length, place) == length);
			compare(place, length);
			break;
		case 2:
			request(place - place % 4096, 4096, below(2));
			break;
		case 3:
			/* Whole blocks. */
			place -= place % 4096;
			length = (length + 4095) / 4096 * 4096;
			memset(expected + place, 0, length);
			CHECK(fallocate(disk, FALLOC_FL_ZERO_RANGE, place, length) == 0);
			break;
		case 4:
			CHECK(fdatasync(disk) == 0);
			break;
		case 5: {
			int other = open(words[1], O_RDWR | O_DSYNC);
			memset(expected + at, below(256), 4096);
			CHECK(pwrite(other, expected + at, 4096, at) == 4096 && close(other) == 0);
			break;
		}
		}
	}
	compare(size - ROOM, ROOM);
	run(0, 4096, 300);
	if (strcmp(words[4], "fork") == 0) {
		for (int round = 0; round < 3; round++) {
			CHECK(child_sees_all(words[1]));
			run(below(1000) * 4096, 4096, 100);
		}
	}
	CHECK(pwrite(file, expected, size, 0) == size);
	if (strcmp(words[4], "die") == 0)
		raise(SIGKILL);
	if (strcmp(words[4], "compare") == 0)
		execlp("cmp", "cmp", words[1], words[2], NULL);
	_exit(0);
}
