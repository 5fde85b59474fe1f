/* Addresses at which nothing is, in all that a call on a disk is given: each is an error, and the program goes on, also
 * where a thread has blocked the signals by which that is noticed. The argument is the disk's name; with a second one,
 * only what goes behind what is there is looked at. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define FAULTS(call) \
	do { errno = 0; long answer = (call); if (answer != -1 || errno != EFAULT) { \
		fprintf(stderr, "line %d: %s is %ld (errno %d)\n", __LINE__, #call, answer, errno); _exit(1); } } while (0)
#define BLOCK 4096

static const char *name;
static int disk, handled;
static sigjmp_buf place;
/* Nothing, nothing that may be read, and nothing that may be written. */
static void *none = (void *)BLOCK;
static char *unreadable, *unwritable;

static void transfers(void)
{
	char bytes[2 * BLOCK], before[2 * BLOCK];
	CHECK(pread(disk, before, 2 * BLOCK, 0) == 2 * BLOCK);
	FAULTS(read(disk, none, BLOCK));
	FAULTS(pread(disk, unreadable, BLOCK, 0));
	FAULTS(pread(disk, unwritable, BLOCK, 0));
	FAULTS(pread(disk, none, 100, 50));
	FAULTS(write(disk, none, BLOCK));
	FAULTS(pwrite(disk, unreadable, BLOCK, 0));
	FAULTS(pwrite(disk, unreadable, 100, 50));
	FAULTS(readv(disk, none, 1));
	FAULTS(writev(disk, (void *)unreadable, 1));
	FAULTS(open((char *)none, O_RDONLY));
	CHECK(pwrite(disk, before, 2 * BLOCK, 0) == 2 * BLOCK);
	CHECK(pread(disk, bytes, 2 * BLOCK, 0) == 2 * BLOCK && memcmp(bytes, before, 2 * BLOCK) == 0);
}

/* What was carried out before is said. */
static void parts(void)
{
	size_t good = 1 << 20;
	char *before = malloc(2 * good), *found = malloc(2 * good);
	char *all = mmap(NULL, 2 * good, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct iovec list[] = {{all, good}, {unreadable, BLOCK}};
	CHECK(before != NULL && found != NULL && all != MAP_FAILED && munmap(all + good, good) == 0);
	CHECK(pread(disk, before, 2 * good, 0) == 2 * good);
	for (size_t at = 0; at < good; at++)
		all[at] = ~before[at];
	CHECK(pwrite(disk, all, good + BLOCK, 0) == good);
	CHECK(pread(disk, found, 2 * good, 0) == 2 * good);
	CHECK(memcmp(found, all, good) == 0 && memcmp(found + good, before + good, good) == 0);
	memset(all, 0, good);
	CHECK(lseek(disk, 100, SEEK_SET) == 100 && read(disk, all, good + BLOCK) > 0);
	long reached = lseek(disk, 0, SEEK_CUR) - 100;
	CHECK(reached > 0 && reached <= good && memcmp(all, found + 100, reached) == 0);
	CHECK(preadv(disk, list, 2, 0) == good && memcmp(all, found, good) == 0);
	CHECK(pwrite(disk, before, 2 * good, 0) == 2 * good);
	/* One behind the other, as they are read ahead. */
	CHECK(lseek(disk, 0, SEEK_SET) == 0);
	for (int turn = 0; turn < 4; turn++)
		CHECK(read(disk, found, good / 4) == good / 4);
	CHECK(lseek(disk, 0, SEEK_CUR) == good && readv(disk, list, 2) == good && lseek(disk, 0, SEEK_CUR) == 2 * good);
	CHECK(memcmp(all, before + good, good) == 0);
	CHECK(munmap(all, good) == 0);
	free(before);
	free(found);
}

static void block(int how)
{
	sigset_t faults;
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	sigaddset(&faults, SIGBUS);
	CHECK(pthread_sigmask(how, &faults, NULL) == 0);
}

static void *thread(void *argument)
{
	transfers();
	return NULL;
}

static void handler(int signal)
{
	transfers();
	handled++;
	if (signal == SIGUSR2)
		siglongjmp(place, 1);
}

static void in_handlers(void)
{
	struct sigaction action = {.sa_handler = handler};
	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGUSR2, &action, NULL) == 0);
	CHECK(raise(SIGUSR1) == 0);
	transfers();
	if (sigsetjmp(place, 1) == 0)
		raise(SIGUSR2);
	transfers();
	CHECK(handled == 2);
	handled = 0;
}

static void left_by_handler(int signal)
{
	transfers();
	_exit(0);
}

static void handled_by(int signal)
{
	struct sigaction action = {.sa_handler = left_by_handler};
	CHECK(sigaction(signal, &action, NULL) == 0);
}

static void blocked_in_handler(void)
{
	struct sigaction action = {.sa_handler = left_by_handler};
	sigfillset(&action.sa_mask);
	CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && raise(SIGUSR1) == 0);
}

static void blocked_by_its_own(void)
{
	handled_by(SIGSEGV);
	*(volatile char *)none = 0;
}

static void blocked_while_it_waits(void)
{
	sigset_t all, one;
	handled_by(SIGUSR1);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	sigfillset(&all);
	sigdelset(&all, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0 && raise(SIGUSR1) == 0);
	sigsuspend(&all);
}

static void blocked_of_old(void)
{
	sigblock(~0);
	transfers();
	_exit(0);
}

static void held(void)
{
	CHECK(sighold(SIGSEGV) == 0);
	transfers();
	_exit(0);
}

static void blocked_from_a_threads_beginning(void)
{
	pthread_t other;
	pthread_attr_t attributes;
	sigset_t all;
	sigfillset(&all);
	CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setsigmask_np(&attributes, &all) == 0);
	CHECK(pthread_create(&other, &attributes, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
	_exit(0);
}

static void blocked_in_a_context(void)
{
	static volatile int turns;
	ucontext_t context;
	CHECK(getcontext(&context) == 0);
	if (turns++ == 0) {
		sigfillset(&context.uc_sigmask);
		setcontext(&context);
	}
	CHECK(turns == 2);
	transfers();
	_exit(0);
}

static void blocked_before_it_began(void)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	execl("/proc/self/exe", "faults", name, "transfers", NULL);
}

/* Each of them in a process in which nobody has blocked them before. */
static void ways(void)
{
	void (*each[])(void) = {
		blocked_in_handler, blocked_by_its_own, blocked_while_it_waits, blocked_of_old, held,
		blocked_from_a_threads_beginning, blocked_in_a_context, blocked_before_it_began,
	};
	for (size_t way = 0; way < sizeof each / sizeof *each; way++) {
		int status, child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			each[way]();
			_exit(1);
		}
		CHECK(waitpid(child, &status, 0) == child);
		if (status != 0) {
			fprintf(stderr, "way %zu: %#x\n", way, status);
			_exit(1);
		}
	}
}

static void waits(void)
{
	struct pollfd list[2] = {{.fd = disk, .events = POLLIN}, {.fd = 0, .events = 0}}, *kept = (void *)unwritable;
	struct timespec now = {0};
	struct timeval at_once = {0};
	fd_set set;
	CHECK(poll(list, 2, 0) == 1 && list[0].revents == POLLIN && list[0].fd == disk);
	FAULTS(poll(none, 1, 0));
	FAULTS(poll((void *)unreadable, 1, 0));
	/* What is ready cannot be told. */
	CHECK(mprotect(unwritable, BLOCK, PROT_READ | PROT_WRITE) == 0);
	memcpy(kept, list, sizeof list);
	CHECK(mprotect(unwritable, BLOCK, PROT_READ) == 0);
	FAULTS(poll(kept, 2, 0));
	FAULTS(ppoll(kept, 2, &now, NULL));
	FAULTS(ppoll(none, 1, &now, NULL));
	FD_ZERO(&set);
	FD_SET(disk, &set);
	CHECK(select(disk + 1, &set, NULL, NULL, &at_once) == 1 && FD_ISSET(disk, &set));
	FAULTS(select(disk + 1, none, NULL, NULL, &at_once));
	FAULTS(select(disk + 1, &set, (void *)unreadable, NULL, &at_once));
	CHECK(FD_ISSET(disk, &set));
	FAULTS(pselect(disk + 1, NULL, NULL, none, &now, NULL));
	CHECK(mprotect(unwritable, BLOCK, PROT_READ | PROT_WRITE) == 0);
	memcpy(unwritable, &set, sizeof set);
	CHECK(mprotect(unwritable, BLOCK, PROT_READ) == 0);
	FAULTS(select(disk + 1, (void *)unwritable, NULL, NULL, &at_once));
}

static void places(void)
{
	int other = memfd_create("other", 0);
	char bytes[BLOCK];
	struct stat found;
	CHECK(other >= 0 && write(other, bytes, BLOCK) == BLOCK);
	FAULTS(sendfile(other, disk, none, 512));
	FAULTS(sendfile(other, disk, (void *)unreadable, 512));
	FAULTS(copy_file_range(disk, none, other, NULL, 512, 0));
	FAULTS(copy_file_range(other, NULL, disk, none, 512, 0));
	memset(bytes, 0, sizeof bytes);
	CHECK(mprotect(unwritable, BLOCK, PROT_READ | PROT_WRITE) == 0);
	memset(unwritable, 0, BLOCK);
	CHECK(mprotect(unwritable, BLOCK, PROT_READ) == 0);
	FAULTS(sendfile(other, disk, (void *)unwritable, 512));
	for (unsigned request, index = 0; index < 8; index++) {
		unsigned requests[] = {BLKGETSIZE64, BLKGETSIZE, BLKSSZGET, BLKROGET, BLKRAGET, BLKSECTGET, BLKZEROOUT, BLKBSZSET};
		FAULTS(ioctl(disk, requests[index], none));
	}
	FAULTS(fstat(disk, none));
	FAULTS(stat(name, none));
	FAULTS(lstat(name, none));
	FAULTS(fstatat(AT_FDCWD, name, none, 0));
	FAULTS(statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, none));
	FAULTS(statx(disk, "", AT_EMPTY_PATH, STATX_BASIC_STATS, none));
	FAULTS(fcntl(disk, F_GETLK, none));
	FAULTS(fcntl(disk, F_OFD_SETLK, none));
	FAULTS(stat(none, &found));
}

static void told(union sigval value) {}

/* A thread that is nobody's fills what is not there. */
static void in_the_background(void)
{
	struct aiocb block = {.aio_fildes = disk, .aio_buf = unwritable, .aio_nbytes = BLOCK};
	const struct aiocb *list[] = {&block};
	block.aio_sigevent.sigev_notify = SIGEV_THREAD;
	block.aio_sigevent.sigev_notify_function = told;
	CHECK(aio_read(&block) == 0);
	for (int times = 0; aio_error(&block) == EINPROGRESS; times++)
		usleep(1000);
	CHECK(aio_error(&block) == EFAULT && aio_return(&block) == -1);
}

int main(int count, char **arguments)
{
	pthread_t other;
	name = arguments[1];
	disk = open(name, O_RDWR);
	unreadable = mmap(NULL, BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unwritable = mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(disk >= 0 && unreadable != MAP_FAILED && unwritable != MAP_FAILED);
	transfers();
	if (count > 2 && strcmp(arguments[2], "transfers") == 0)
		return 0;
	parts();
	if (count > 2)
		return 0;
	ways();
	waits();
	places();
	in_the_background();
	in_handlers();
	block(SIG_BLOCK);
	transfers();
	parts();
	waits();
	places();
	in_the_background();
	CHECK(pthread_create(&other, NULL, thread, NULL) == 0 && pthread_join(other, NULL) == 0);
	in_handlers();
	block(SIG_UNBLOCK);
	transfers();
	return 0;
}
