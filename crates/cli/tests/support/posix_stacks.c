/* The first that a program does with a disk, on a stack that is as small as one may be. The first argument is the disk's
 * name, the second a file with its bytes. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096

static const char *name;
static char bytes[BLOCK], expected[BLOCK];
static int is_done;

static void *works(void *argument)
{
	struct stat found;
	static struct aiocb block;
	int disk = open(name, O_RDWR);
	CHECK(disk >= 0);
	CHECK(pread(disk, bytes, BLOCK, BLOCK) == BLOCK && memcmp(bytes, expected, BLOCK) == 0);
	CHECK(pwrite(disk, expected, BLOCK, BLOCK) == BLOCK);
	CHECK(pwrite(disk, expected + 100, 50, BLOCK + 100) == 50);
	for (int turn = 0; turn < 4; turn++)
		CHECK(write(disk, expected, BLOCK) == BLOCK);
	CHECK(fsync(disk) == 0 && fstat(disk, &found) == 0);
	block.aio_fildes = disk;
	block.aio_buf = bytes;
	block.aio_nbytes = BLOCK;
	block.aio_offset = BLOCK;
	CHECK(aio_read(&block) == 0);
	while (aio_error(&block) == EINPROGRESS)
		usleep(100);
	CHECK(aio_return(&block) == BLOCK && memcmp(bytes, expected, BLOCK) == 0);
	struct pollfd list = {.fd = disk, .events = POLLIN};
	CHECK(poll(&list, 1, 0) == 1);
	CHECK(fcntl(disk, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_len = 1}) == 0);
	CHECK(close(disk) == 0);
	is_done = 1;
	return NULL;
}

static void in_a_thread(size_t stack)
{
	pthread_attr_t attributes;
	pthread_t thread;
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, stack) == 0);
	CHECK(pthread_create(&thread, &attributes, works, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static void handler(int signal) { works(NULL); }

static void in_a_handler(size_t stack)
{
	char *place = mmap(NULL, stack + BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(place != MAP_FAILED && mprotect(place, BLOCK, PROT_NONE) == 0);
	stack_t alternate = {.ss_sp = place + BLOCK, .ss_size = stack};
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	CHECK(sigaltstack(&alternate, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
}

int main(int count, char **arguments)
{
	struct { void (*run)(size_t); size_t stack; } all[] = {
		{in_a_thread, 64 << 10}, {in_a_thread, PTHREAD_STACK_MIN}, {in_a_handler, SIGSTKSZ},
	};
	int status, file = open(arguments[2], O_RDONLY);
	name = arguments[1];
	CHECK(pread(file, expected, BLOCK, BLOCK) == BLOCK);
	for (int index = 0; index < 3; index++) {
		/* To each, it is the first. */
		pid_t child = fork();
		if (child == 0) {
			all[index].run(all[index].stack);
			_exit(!is_done);
		}
		CHECK(waitpid(child, &status, 0) == child);
		if (status != 0)
			fprintf(stderr, "%d, a stack of %zu bytes: %x\n", index, all[index].stack, status);
		CHECK(status == 0);
	}
	return 0;
}
