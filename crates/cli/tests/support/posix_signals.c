/* Signals in the middle of calls on a disk, whose handlers read by themselves, or do not come back. The first argument
 * is the disk's name, the second says what they do. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
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

static int ends[2];

static void let_go(int number)
{
	handled++;
	CHECK(write(ends[0], "l", 1) == 1);
}

/* Whoever waits for a lock hears a signal while it does, though that does not end it. */
static void wait_for_lock(const char *name)
{
	struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	pid_t child = fork();
	if (child == 0) {
		struct pollfd told = { .fd = ends[1], .events = POLLIN };
		int own = open(name, O_RDWR);
		CHECK(own >= 0 && (what == 'w' ? flock(own, LOCK_EX) : fcntl(own, F_SETLK, &all)) == 0);
		CHECK(write(ends[1], "k", 1) == 1);
		/* Else it would be for ever. */
		_exit(poll(&told, 1, 20000) != 1);
	}
	int status;
	struct itimerval soon = { { 0, 0 }, { 0, 100000 } };
	CHECK(child > 0 && read(ends[0], bytes, 1) == 1);
	CHECK(signal(SIGALRM, let_go) == SIG_DFL && setitimer(ITIMER_REAL, &soon, NULL) == 0);
	CHECK((what == 'w' ? flock(disk, LOCK_EX) : fcntl(disk, F_SETLKW, &all)) == 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0 && handled == 1);
}

int main(int count, char **words)
{
	CHECK(count == 3);
	what = *words[2];
	disk = open(words[1], O_RDWR);
	CHECK(disk >= 0);
	if (what == 'l' || what == 'w') {
		wait_for_lock(words[1]);
		return 0;
	}
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
