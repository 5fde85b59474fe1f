/* A program that reads one piece behind the other, while itself and another process change what comes next: it sees
 * each change. The first argument is the disk's name, the second a file with its bytes, which is left as the disk is to
 * be, the third its size. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); exit(1); } } while (0)

struct change { off_t at; size_t length; int byte; };

static unsigned long state = 88172645463325252;

static unsigned long below(unsigned long limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % limit;
}

static void make(int disk, struct change change, int way)
{
	static char bytes[1 << 16];
	memset(bytes, change.byte, change.length);
	if (way == 0) {
		CHECK(pwrite(disk, bytes, change.length, change.at) == change.length);
	} else if (way == 1) {
		struct aiocb block = { .aio_fildes = disk, .aio_buf = bytes, .aio_nbytes = change.length, .aio_offset = change.at };
		const struct aiocb *list = &block;
		CHECK(aio_write(&block) == 0 && aio_suspend(&list, 1, NULL) == 0 && aio_return(&block) == change.length);
	} else {
		CHECK(fallocate(disk, FALLOC_FL_ZERO_RANGE, change.at, change.length) == 0);
	}
}

int main(int count, char **words)
{
	CHECK(count == 4);
	off_t size = atoll(words[3]);
	char *expected = malloc(size), *bytes = malloc(1 << 20);
	int file = open(words[2], O_RDWR), disk = open(words[1], O_RDWR), to[2], from[2];
	CHECK(file >= 0 && disk >= 0 && read(file, expected, size) == size && pipe(to) == 0 && pipe(from) == 0);
	pid_t child = fork();
	if (child == 0) {
		struct change change;
		close(to[1]);
		int other = open(words[1], O_RDWR);
		for (int way = 0; read(to[0], &change, sizeof change) == sizeof change; way = (way + 1) % 2) {
			make(other, change, way);
			CHECK(write(from[1], "+", 1) == 1);
		}
		_exit(0);
	}
	static const size_t steps[] = { 512, 1000, 4096, 65536, 300000 };
	off_t at = 0;
	for (int round = 0; round < 1500; round++) {
		size_t step = steps[below(5)];
		for (int reads = 3 + below(8); reads > 0; reads--) {
			size_t length = step < size - at ? step : size - at;
			CHECK(read(disk, bytes, step) == length && memcmp(bytes, expected + at, length) == 0);
			at += length;
			if (at == size) {
				CHECK(read(disk, bytes, step) == 0 && lseek(disk, 0, SEEK_SET) == 0);
				at = 0;
			}
		}
		int way = below(5);
		struct change change = { .length = 1 + below(20000), .byte = below(256) };
		if (way == 2) {
			change.byte = 0;
			change.length = 4096 * (1 + below(4));
		} else if (way == 1)
			change.length = 512 * (1 + below(32));
		off_t next = at + below(300000);
		change.at = next < size - (1 << 16) ? next : below(size - (1 << 16));
		if (way == 1)
			change.at -= change.at % 512;
		else if (way == 2)
			change.at -= change.at % 4096;
		if (way < 3) {
			make(disk, change, way);
		} else {
			char answer;
			CHECK(write(to[1], &change, sizeof change) == sizeof change && read(from[0], &answer, 1) == 1);
		}
		memset(expected + change.at, change.byte, change.length);
	}
	close(to[1]);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(pwrite(file, expected, size, 0) == size);
	return 0;
}
