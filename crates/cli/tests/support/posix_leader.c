/* A process goes on when its first thread has ended, and ends by itself with the last one, status 0, whatever threads
 * its disks have. The arguments are the disk's name and how the first thread ends. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096

static const char *name;
static char bytes[BLOCK];
static int disk, is_in_child;
static struct aiocb block;

/* Of a thread that nobody has joined: it is the last. */
static void told(union sigval value)
{
	CHECK(aio_error(&block) == 0 && aio_return(&block) == BLOCK);
	CHECK(write(1, "told ", 5) == 5);
}

static void at_exit(void)
{
	sigset_t blocked;
	CHECK(pread(disk, bytes, BLOCK, BLOCK) == BLOCK);
	CHECK(pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0 && sigismember(&blocked, SIGTERM) == 0);
	CHECK(write(1, "exit ", 5) == 5);
}

static void wait_for_the_end_of_the_first(void)
{
	char path[64], stat[256] = "";
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid());
	while (strstr(stat, ") Z ") == NULL) {
		int file = open(path, O_RDONLY);
		CHECK(file >= 0 && read(file, stat, sizeof stat - 1) > 0 && close(file) == 0);
		usleep(1000);
	}
}

static void *uses(void *argument)
{
	wait_for_the_end_of_the_first();
	/* As of any process, what is made for the disk now has high numbers. */
	disk = open(name, O_RDWR);
	int before = dup(0);
	CHECK(disk >= 0 && close(before) == 0 && pread(disk, bytes, BLOCK, 0) == BLOCK);
	int after = dup(0);
	CHECK(after == before);
	/* For longer than it takes to notice the end. */
	usleep(300000);
	CHECK(write(1, "used ", 5) == 5);
	block.aio_fildes = disk;
	block.aio_buf = bytes;
	block.aio_nbytes = BLOCK;
	block.aio_sigevent.sigev_notify = SIGEV_THREAD;
	block.aio_sigevent.sigev_notify_function = told;
	CHECK(aio_read(&block) == 0);
	return NULL;
}

static void *forks(void *argument)
{
	pthread_t thread;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(60);
		CHECK(pthread_create(&thread, NULL, uses, NULL) == 0);
		/* It is the first in the child. */
		return NULL;
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	_exit(0);
}

int main(int count, char **arguments)
{
	pthread_t thread;
	name = arguments[1];
	alarm(60);
	CHECK(atexit(at_exit) == 0);
	if (strcmp(arguments[2], "forked") == 0) {
		CHECK(pthread_create(&thread, NULL, forks, NULL) == 0 && pthread_join(thread, NULL) == 0);
		return 1;
	}
	CHECK(pthread_create(&thread, NULL, uses, NULL) == 0);
	if (strcmp(arguments[2], "cancelled") == 0) {
		CHECK(pthread_cancel(pthread_self()) == 0);
		pthread_testcancel();
	}
	pthread_exit(NULL);
}
