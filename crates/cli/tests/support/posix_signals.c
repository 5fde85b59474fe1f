/* Signals in the middle of calls on a disk, whose handlers read by themselves, or do not come back. The first argument
 * is the disk's name, the second says what they do. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define TIMES 300

static int disk;
static char what;
static sigjmp_buf back;
static volatile int handled;
static char bytes[1 << 20], of_handler[4096];

static void read_in_background(char *buffer, off_t offset)
{
	struct aiocb block = { .aio_fildes = disk, .aio_buf = buffer, .aio_nbytes = 4096, .aio_offset = offset };
	const struct aiocb *list = &block;
	CHECK(aio_read(&block) == 0);
	while (aio_suspend(&list, 1, NULL) != 0)
		CHECK(errno == EINTR);
	CHECK(aio_error(&block) == 0 && aio_return(&block) == 4096);
}

static void handle(int number, siginfo_t *information, void *context)
{
	int before = errno;
	sigset_t mask;
	CHECK(number == SIGALRM && information->si_signo == SIGALRM);
	/* As it was set: itself is blocked, and one of its choice. */
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGALRM) && sigismember(&mask, SIGUSR2));
	CHECK(!sigismember(&mask, SIGUSR1));
	handled++;
	if (what == 'a')
		read_in_background(of_handler, 8192);
	if (what == 'r')
		CHECK(pread(disk, of_handler, 4096, 4096) == 4096);
	errno = before;
	if (what == 'j')
		siglongjmp(back, 1);
}

int main(int count, char **words)
{
	CHECK(count == 3);
	what = *words[2];
	disk = open(words[1], O_RDWR);
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO };
	sigaddset(&action.sa_mask, SIGUSR2);
	CHECK(disk >= 0 && sigaction(SIGALRM, &action, NULL) == 0);
	struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { 0 };
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	volatile int round = 0;
	sigsetjmp(back, 1);
	while (handled < TIMES) {
		round++;
		CHECK(pread(disk, bytes, round % 3 ? 4096 : 300000, round % 100 * 4096) > 0);
		CHECK(pwrite(disk, bytes, round % 2 ? 4096 : 700, round % 100 * 4096) > 0);
		/* Such a request has its buffers on a stack that nobody comes back to. */
		if (what != 'j')
			read_in_background(bytes, 0);
	}
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	for (round = 0; round < 20; round++)
		CHECK(pread(disk, bytes, 4096, 0) == 4096 && pwrite(disk, bytes, 100, 0) == 100);
	CHECK(signal(SIGALRM, SIG_DFL) == (sighandler_t)handle && signal(SIGALRM, SIG_IGN) == SIG_DFL);
	return 0;
}
