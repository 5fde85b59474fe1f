/* Processes that use a disk in turn: whose turn it is finds all that the others have written, writes one piece behind
 * the other, and closes what it has open, or not, or is killed. The first argument is the disk's name, the second its
 * size, the third how many processes, the fourth how many turns, the fifth a number to begin with. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); exit(1); } } while (0)
#define BLOCK 4096
#define RUN 40

static unsigned long state;
static const char *name;
static unsigned blocks;
/* What each block is filled with: all processes see that. */
static unsigned char *expected;
static char bytes[RUN * BLOCK];

static unsigned long below(unsigned long limit)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (state >> 11) % limit;
}

static void compare(int disk, unsigned block)
{
	CHECK(pread(disk, bytes, BLOCK, (off_t)block * BLOCK) == BLOCK);
	for (int at = 0; at < BLOCK; at++)
		CHECK((unsigned char)bytes[at] == expected[block]);
}

/* One turn, with a disk that is open or not (-1): with what it is open in the end. */
static int turn(int disk)
{
	if (disk < 0)
		CHECK((disk = open(name, O_RDWR)) >= 0);
	unsigned first = below(blocks - 2 * RUN), count = 3 + below(RUN);
	for (unsigned block = first; block < first + count; block++)
		compare(disk, block);
	compare(disk, below(blocks));
	CHECK(lseek(disk, (off_t)first * BLOCK, SEEK_SET) >= 0);
	for (unsigned block = first; block < first + count; block++) {
		memset(bytes, expected[block] = below(256), BLOCK);
		CHECK(write(disk, bytes, BLOCK) == BLOCK);
	}
	struct aiocb request = { .aio_fildes = disk, .aio_buf = bytes, .aio_nbytes = BLOCK };
	const struct aiocb *list = &request;
	int other;
	switch (below(6)) {
	case 0:
		CHECK(close(disk) == 0);
		return -1;
	case 1:
		CHECK((other = open("/dev/null", O_RDWR)) >= 0 && dup2(other, disk) == disk && close(other) == 0);
		CHECK(close(disk) == 0);
		return -1;
	case 2:
		request.aio_offset = (off_t)first * BLOCK;
		memset(bytes, expected[first] = below(256), BLOCK);
		CHECK(aio_write(&request) == 0 && close(disk) == 0);
		CHECK(aio_suspend(&list, 1, NULL) == 0 && aio_return(&request) == BLOCK);
		return -1;
	case 3:
		CHECK((other = dup(disk)) >= 0 && close(disk) == 0);
		return other;
	}
	return disk;
}

/* A child of one that takes its turn with what that has open. */
static void child_turn(int disk)
{
	pid_t child = fork();
	if (child == 0) {
		turn(disk);
		raise(SIGKILL);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(int count, char **words)
{
	CHECK(count == 6);
	name = words[1];
	blocks = atoll(words[2]) / BLOCK;
	int processes = atoi(words[3]), turns = atoi(words[4]), pipes[processes][2];
	pid_t children[processes];
	expected = mmap(NULL, blocks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(expected != MAP_FAILED);
	for (int process = 0; process < processes; process++)
		CHECK(pipe(pipes[process]) == 0);
	for (int process = 0; process < processes; process++) {
		if ((children[process] = fork()) > 0)
			continue;
		state = atol(words[5]) * 1000 + process + 1;
		int left, disk = -1;
		while (read(pipes[process][0], &left, sizeof left) == sizeof left && left > 0) {
			disk = turn(disk);
			if (below(4) == 0)
				child_turn(disk);
			left--;
			CHECK(write(pipes[(process + 1 + below(processes - 1)) % processes][1], &left, sizeof left) == sizeof left);
		}
		/* The last one tells all. */
		left = 0;
		for (int other = 0; other < processes; other++)
			CHECK(write(pipes[other][1], &left, sizeof left) == sizeof left);
		exit(0);
	}
	CHECK(write(pipes[0][1], &turns, sizeof turns) == sizeof turns);
	int status, failed = 0;
	while (wait(&status) > 0)
		if (status != 0) {
			failed = 1;
			for (int process = 0; process < processes; process++)
				kill(children[process], SIGKILL);
		}
	if (failed)
		return 1;
	int disk = open(name, O_RDONLY);
	for (unsigned block = 0; block < blocks; block++)
		compare(disk, block);
	return 0;
}
