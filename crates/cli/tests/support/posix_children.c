/* Children that libc's fork has not made, or tells nobody of: each has the disk for itself, beside its parent. The first
 * argument is the disk's name, the second a file with the disk's bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096
#define ROUNDS 12
#define TURNS 150

static const char *name;
static char *expected;
static long blocks;
static int descriptors;

static void compare(int disk, unsigned seed)
{
	char found[BLOCK];
	for (int turn = 0; turn < TURNS; turn++) {
		seed = seed * 1103515245 + 12345;
		/* The first ones are written to. */
		long block = ROUNDS + (seed >> 8) % (blocks - ROUNDS);
		CHECK(pread(disk, found, BLOCK, block * BLOCK) == BLOCK);
		CHECK(memcmp(found, expected + block * BLOCK, BLOCK) == 0);
	}
}

static pid_t forked(void) { return _Fork(); }
static pid_t by_number(void) { return syscall(SYS_fork); }
static pid_t cloned(void) { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static int count_descriptors(void)
{
	int descriptors = 0;
	for (int number = 0; number < 4096; number++)
		descriptors += syscall(SYS_fcntl, number, F_GETFD) >= 0;
	return descriptors;
}

static void child(int disk, int round)
{
	char bytes[BLOCK], found[BLOCK];
	/* Where it waits for what never comes. */
	alarm(200);
	switch (round % 4) {
	case 1:
		CHECK(close(disk) == 0);
		disk = open(name, O_RDWR);
		CHECK(disk >= 0);
		break;
	case 2:
		CHECK(dup2(open("/dev/null", O_RDWR), disk) == disk);
		disk = open(name, O_RDWR);
		break;
	case 3:
		/* Nothing of its parent's is to be said that it has ended. */
		CHECK(close_range(disk, disk, 0) == 0);
		_exit(0);
	}
	memset(bytes, round + 1, BLOCK);
	CHECK(pwrite(disk, bytes, BLOCK, round * BLOCK) == BLOCK);
	compare(disk, round + 2);
	CHECK(pread(disk, found, BLOCK, round * BLOCK) == BLOCK && memcmp(found, bytes, BLOCK) == 0);
	/* Its parent's are closed, but for what has another's number: its own are as many. */
	CHECK(count_descriptors() <= descriptors + 5);
	_exit(0);
}

/* What it shares with its parent stays open. */
static void beside_a_child_with_the_same_descriptors(int disk)
{
	int status;
	for (int round = 0; round < 3; round++) {
		pid_t made = syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0);
		CHECK(made >= 0);
		if (made == 0) {
			alarm(200);
			compare(disk, round + 5);
			int other = open(name, O_RDWR);
			CHECK(other >= 0);
			compare(other, round + 6);
			CHECK(close(other) == 0);
			_exit(0);
		}
		CHECK(waitpid(made, &status, 0) == made && status == 0);
		compare(disk, round + 7);
		CHECK(fsync(disk) == 0);
	}
}

int main(int count, char **arguments)
{
	pid_t (*makers[])(void) = {forked, by_number, cloned};
	int status, file = open(arguments[2], O_RDONLY), disk = open(arguments[1], O_RDWR);
	name = arguments[1];
	blocks = lseek(file, 0, SEEK_END) / BLOCK;
	expected = mmap(NULL, blocks * BLOCK, PROT_READ, MAP_PRIVATE, file, 0);
	CHECK(expected != MAP_FAILED && disk >= 0);
	alarm(250);
	compare(disk, 1);
	descriptors = count_descriptors();
	for (int maker = 0; maker < 3; maker++)
		for (int round = 0; round < ROUNDS; round++) {
			pid_t made = makers[maker]();
			CHECK(made >= 0);
			if (made == 0)
				child(disk, round);
			compare(disk, round + 77);
			CHECK(waitpid(made, &status, 0) == made);
			if (status != 0)
				fprintf(stderr, "maker %d, round %d: %x\n", maker, round, status);
			CHECK(status == 0);
		}
	beside_a_child_with_the_same_descriptors(disk);
	return 0;
}
