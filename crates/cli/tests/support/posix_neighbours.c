/* Threads that begin to use a disk while others of their process get descriptors, of disks and of what connections
 * consist of: each has what it has got, closes it, and a child has what it is left. The first argument is the disk's
 * name, the second how many times. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096

static const char *name;
static volatile int is_done;

static void *begins(void *argument)
{
	char bytes[BLOCK];
	int disk = open(name, O_RDWR);
	CHECK(disk >= 0);
	for (int turn = 0; turn < 20; turn++)
		CHECK(pread(disk, bytes, BLOCK, turn * BLOCK) == BLOCK && pwrite(disk, bytes, BLOCK, turn * BLOCK) == BLOCK);
	CHECK(close(disk) == 0);
	return NULL;
}

static void are_there(int *ends)
{
	char byte = 0;
	CHECK(write(ends[0], "b", 1) == 1 && read(ends[1], &byte, 1) == 1 && byte == 'b');
}

static void *has_others(void *argument)
{
	while (!is_done) {
		int ends[2], event, copy, disk;
		struct stat found;
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && (event = eventfd(0, 0)) >= 0);
		CHECK((copy = dup(ends[0])) >= 0 && (disk = open(name, O_RDONLY)) >= 0);
		are_there(ends);
		pid_t child = fork();
		if (child == 0) {
			are_there(ends);
			_exit(fstat(event, &found) || fstat(copy, &found) || fstat(disk, &found));
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && close(event) == 0 && close(copy) == 0 && close(disk) == 0);
	}
	return NULL;
}

int main(int count, char **words)
{
	CHECK(count == 3);
	name = words[1];
	for (int times = atoi(words[2]); times > 0; times--) {
		/* In a child, which has no connection yet. */
		pid_t child = fork();
		if (child == 0) {
			pthread_t threads[6];
			for (int thread = 0; thread < 6; thread++)
				CHECK(pthread_create(&threads[thread], NULL, thread < 2 ? has_others : begins, NULL) == 0);
			for (int thread = 2; thread < 6; thread++)
				CHECK(pthread_join(threads[thread], NULL) == 0);
			is_done = 1;
			CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	return 0;
}
