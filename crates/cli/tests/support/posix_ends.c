/* A process whose only thread ends past libc ends so, whatever threads its disk has. The arguments are the disk's name
 * and how it ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096
#define STACK_BYTES (1 << 20)

static const char *name;

static int use(void *argument)
{
	char bytes[BLOCK];
	int disk = open(name, O_RDWR);
	CHECK(disk >= 0 && pread(disk, bytes, BLOCK, 0) == BLOCK && pwrite(disk, bytes, BLOCK, 0) == BLOCK);
	return 7;
}

static void *use_in_thread(void *argument)
{
	use(argument);
	return NULL;
}

int main(int count, char **arguments)
{
	const char *how = arguments[2];
	name = arguments[1];
	if (strncmp(how, "clone", 5) == 0) {
		int status;
		char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(stack != MAP_FAILED);
		if (strcmp(how, "clone of a user") == 0)
			use(NULL);
		int child = clone(use, stack + STACK_BYTES, SIGCHLD, NULL);
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status));
		return WEXITSTATUS(status);
	}
	if (strcmp(how, "thread") == 0) {
		pthread_t user;
		CHECK(pthread_create(&user, NULL, use_in_thread, NULL) == 0 && pthread_join(user, NULL) == 0);
	} else {
		use(NULL);
	}
	if (strcmp(how, "seccomp") == 0) {
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) == 0);
		syscall(SYS_getpid);
	}
	syscall(SYS_exit, 3);
	return 1;
}
