/* Calls of libc's on a disk, by its name: what they answer. The first argument is that name, the second the disk's
 * bytes in a file, the third its size. The calls that Linux has for block devices are the model. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); exit(1); } } while (0)
#define FAILS(call, number) do { errno = 0; CHECK((call) == -1); CHECK(errno == (number)); } while (0)

static const char *name;
static char *expected;
static off_t size;

static void read_and_seek(void)
{
	static char bytes[1 << 16];
	int disk = open(name, O_RDONLY);
	CHECK(disk >= 0);
	CHECK(lseek(disk, 0, SEEK_END) == size && read(disk, bytes, 10) == 0);
	CHECK(pread(disk, bytes, sizeof bytes, 777) == sizeof bytes && !memcmp(bytes, expected + 777, sizeof bytes));
	CHECK(pread(disk, bytes, 100, size - 7) == 7 && !memcmp(bytes, expected + size - 7, 7));
	CHECK(lseek(disk, 1, SEEK_SET) == 1 && read(disk, bytes, 5) == 5 && !memcmp(bytes, expected + 1, 5));
	CHECK(lseek(disk, -3, SEEK_CUR) == 3);
	struct iovec parts[3] = { { bytes, 1 }, { bytes + 1, 0 }, { bytes + 1, 999 } };
	CHECK(readv(disk, parts, 3) == 1000 && !memcmp(bytes, expected + 3, 1000));
	CHECK(preadv2(disk, parts, 3, -1, 0) == 1000 && !memcmp(bytes, expected + 1003, 1000));
	CHECK(preadv(disk, parts, 3, 4095) == 1000 && !memcmp(bytes, expected + 4095, 1000));
	CHECK(lseek(disk, 5, SEEK_DATA) == 5 && lseek(disk, 5, SEEK_HOLE) == size);
	FAILS(lseek(disk, size, SEEK_DATA), ENXIO);
	FAILS(lseek(disk, -1, SEEK_SET), EINVAL);
	FAILS(pread(disk, bytes, 1, -1), EINVAL);
	volatile int none = -1;
	FAILS(preadv(disk, parts, none, 0), EINVAL);
	FAILS(preadv2(disk, parts, 3, 0, 0x1000), EOPNOTSUPP);
	FAILS(pread(disk, NULL, 1, 0), EFAULT);
	FAILS(write(disk, bytes, 1), EBADF);
	CHECK((fcntl(disk, F_GETFL) & O_ACCMODE) == O_RDONLY);
	/* What asks the kernel itself hears of a file of that length, and reads nothing of it. */
	struct stat found;
	CHECK(syscall(SYS_fstat, disk, &found) == 0 && found.st_size == size);
	FAILS(syscall(SYS_read, disk, bytes, 1), EBADF);
	CHECK(close(disk) == 0);
	FAILS(read(disk, bytes, 1), EBADF);
}

/* It is always ready, and is no obstacle for what is not. */
static void waits(void)
{
	int disk = open(name, O_RDWR), ends[2];
	CHECK(disk >= 0 && pipe(ends) == 0);
	struct pollfd list[3] = { { disk, POLLIN | POLLPRI }, { ends[0], POLLIN }, { disk, 0 } };
	CHECK(poll(list, 3, -1) == 1 && list[0].revents == POLLIN && !list[1].revents && !list[2].revents && list[0].fd == disk);
	CHECK(poll(list + 1, 2, 1) == 0);
	CHECK(write(ends[1], "x", 1) == 1 && poll(list, 3, -1) == 2 && list[1].revents == POLLIN);
	struct timespec never = { .tv_sec = 1000 };
	CHECK(ppoll(list, 1, &never, NULL) == 1);
	fd_set reads, writes;
	FD_ZERO(&reads);
	FD_ZERO(&writes);
	FD_SET(disk, &reads);
	FD_SET(disk, &writes);
	FD_SET(ends[0], &reads);
	CHECK(select(ends[1] + 1, &reads, &writes, NULL, NULL) == 3 && FD_ISSET(disk, &reads) && FD_ISSET(ends[0], &reads));
	CHECK(read(ends[0], list, 1) == 1 && pselect(ends[1] + 1, &reads, &writes, NULL, NULL, NULL) == 2);
	CHECK(FD_ISSET(disk, &writes) && FD_ISSET(disk, &reads) && !FD_ISSET(ends[0], &reads));
	int epoll = epoll_create1(0);
	struct epoll_event event = { .events = EPOLLIN };
	FAILS(epoll_ctl(epoll, EPOLL_CTL_ADD, disk, &event), EPERM);
	CHECK(close(epoll) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0 && close(disk) == 0);
}

static volatile sig_atomic_t caught;

static void on_fault(int number, siginfo_t *information, void *context)
{
	caught++;
	mprotect(information->si_addr - (unsigned long)information->si_addr % 4096, 4096, PROT_READ | PROT_WRITE);
}

/* What is not there is an error of the call's, and no fault of the program's; whose own faults are its own. */
static void missing_memory(void)
{
	char *pages = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *gone = pages + 2 * 4096;
	CHECK(pages != MAP_FAILED && mprotect(gone, 4096, PROT_NONE) == 0);
	int disk = open(name, O_RDWR);
	for (int round = 0; round < 5; round++) {
		FAILS(read(disk, gone, 4096), EFAULT);
		FAILS(pread(disk, gone - 100, 4096, 512), EFAULT);
		FAILS(write(disk, gone, 4096), EFAULT);
		FAILS(pwrite(disk, gone - 1, 1000, 5), EFAULT);
		CHECK(read(disk, pages, 4096) == 4096);
	}
	/* Whoever reads on behind that, as if it had been read. */
	for (int round = 0; round < 3; round++) {
		off_t at = 0;
		for (; at < 8 * 4096; at += 4096)
			CHECK(pread(disk, pages, 4096, at) == 4096 && !memcmp(pages, expected + at, 4096));
		size_t missed = round == 0 ? 4096 : round == 1 ? 100000 : 3000000;
		FAILS(pread(disk, gone, missed, at), EFAULT);
		at += missed;
		CHECK(pread(disk, pages, 4096, at) == 4096 && !memcmp(pages, expected + at, 4096));
	}
	FAILS(readv(disk, (void *)gone, 2), EFAULT);
	FAILS(fstat(disk, (void *)gone), EFAULT);
	FAILS(stat(name, (void *)gone), EFAULT);
	FAILS(ioctl(disk, BLKGETSIZE64, gone), EFAULT);
	FAILS(ioctl(disk, BLKDISCARD, gone), EFAULT);
	CHECK(ioctl(disk, BLKRRPART) == 0);
	FAILS(open(gone, O_RDONLY), EFAULT);
	strcpy(gone - strlen(name) - 1, name);
	int by_edge = open(gone - strlen(name) - 1, O_RDONLY);
	CHECK(by_edge >= 0 && close(by_edge) == 0);
	memset(pages, 0, 2 * 4096);
	CHECK(pread(disk, pages, 8192, 0) == 8192 && !memcmp(pages, expected, 8192));
	struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, before;
	CHECK(sigaction(SIGSEGV, &action, &before) == 0 && before.sa_handler == SIG_DFL && !(before.sa_flags & SA_SIGINFO));
	CHECK(mprotect(pages, 4096, PROT_NONE) == 0);
	*(volatile char *)pages = 1;
	CHECK(caught == 1);
	FAILS(read(disk, gone, 1), EFAULT);
	CHECK(caught == 1);
	CHECK(sigaction(SIGSEGV, NULL, &before) == 0 && before.sa_sigaction == on_fault && (before.sa_flags & ~0x04000000) == SA_SIGINFO);
	CHECK(signal(SIGSEGV, SIG_DFL) == (sighandler_t)on_fault && signal(SIGSEGV, SIG_DFL) == SIG_DFL);
	pid_t child = fork();
	if (child == 0) {
		*(volatile char *)gone = 1;
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	child = fork();
	if (child == 0) {
		raise(SIGSEGV);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	CHECK(munmap(pages, 4 * 4096) == 0 && close(disk) == 0);
}

static void write_and_sync(void)
{
	static char bytes[12288];
	int disk = open(name, O_RDWR | O_CREAT | O_TRUNC, 0666);
	CHECK(disk >= 0 && lseek(disk, 0, SEEK_END) == size);
	/* Parts of blocks, over the borders of two. */
	CHECK(pwrite(disk, "parts of blocks", 15, 1020) == 15);
	memcpy(expected + 1020, "parts of blocks", 15);
	memset(bytes, 7, sizeof bytes);
	CHECK(pwritev2(disk, &(struct iovec){ bytes, sizeof bytes }, 1, 8192, RWF_DSYNC) == sizeof bytes);
	memcpy(expected + 8192, bytes, sizeof bytes);
	CHECK(lseek(disk, size - 3, SEEK_SET) >= 0 && write(disk, bytes, 9) == 3);
	memset(expected + size - 3, 7, 3);
	FAILS(write(disk, bytes, 1), ENOSPC);
	CHECK(write(disk, bytes, 0) == 0);
	CHECK(fsync(disk) == 0 && fdatasync(disk) == 0 && sync_file_range(disk, 0, 0, 0) == 0 && syncfs(disk) == 0);
	CHECK(fallocate(disk, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 5120) == 0);
	CHECK(fallocate(disk, FALLOC_FL_ZERO_RANGE, 20480, 512) == 0);
	memset(expected + 4096, 0, 5120);
	memset(expected + 20480, 0, 512);
	FAILS(fallocate(disk, 0, 0, 4096), EOPNOTSUPP);
	CHECK(posix_fallocate(disk, 0, size) == 0 && posix_fallocate(disk, size, 1) == ENOSPC);
	CHECK(posix_fadvise(disk, 0, 0, POSIX_FADV_SEQUENTIAL) == 0);
	CHECK(posix_fadvise(disk, 0, 0, 99) == EINVAL && readahead(disk, 0, 4096) == 0);
	FAILS(sync_file_range(disk, -1, 1, SYNC_FILE_RANGE_WRITE), EINVAL);
	FAILS(ftruncate(disk, 0), EINVAL);
	FAILS(truncate(name, 0), EINVAL);
	unsigned long long range[2] = { 65536, 4096 };
	CHECK(ioctl(disk, BLKZEROOUT, range) == 0);
	memset(expected + 65536, 0, 4096);
	range[0] = 1;
	FAILS(ioctl(disk, BLKZEROOUT, range), EINVAL);
	/* What one process has written, another reads. */
	pid_t child = fork();
	if (child == 0) {
		char *all = malloc(size);
		CHECK(pread(disk, all, size, 0) == size && !memcmp(all, expected, size));
		CHECK(lseek(disk, 4096, SEEK_SET) == 4096);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(lseek(disk, 0, SEEK_CUR) == 4096);
	int other = dup(disk);
	CHECK(read(other, bytes, 100) == 100 && lseek(disk, 0, SEEK_CUR) == 4196 && close(other) == 0);
	CHECK(dup2(disk, 900) == 900 && fcntl(disk, F_DUPFD_CLOEXEC, 800) >= 800 && pread(900, bytes, 1, 0) == 1);
	CHECK(close_range(disk + 1, ~0U, 0) == 0 && pread(disk, bytes, 1, 0) == 1);
	FAILS(pread(900, bytes, 1, 0), EBADF);
	CHECK(dup2(STDOUT_FILENO, disk) == disk);
	FAILS(lseek(disk, 0, SEEK_CUR), ESPIPE);
	CHECK(close(disk) == 0);
	disk = open(name, O_WRONLY);
	FAILS(read(disk, bytes, 1), EBADF);
	CHECK(close(disk) == 0);
}

/* What the kernel says of no name, or of another file's. */
static void directory_says(int disk)
{
	int pipes[2];
	char *real = realpath(name, NULL), place[PATH_MAX];

	CHECK(real != NULL && strcmp(real, name) == 0 && realpath(name, place) == place && strcmp(place, name) == 0);
	free(real);
	FAILS(symlink("other", name), EEXIST);
	FAILS(link("/dev/null", name), EEXIST);
	FAILS(link(name, "/other"), EPERM);
	FAILS(mkdir(name, 0700), EEXIST);
	FAILS(mknod(name, S_IFREG | 0600, 0), EEXIST);
	FAILS(rmdir(name), ENOTDIR);
	FAILS(chdir(name), ENOTDIR);
	FAILS(readlink(name, place, sizeof place), EINVAL);
	FAILS(chmod(name, 0600), EPERM);
	FAILS(fchmod(disk, 0600), EPERM);
	FAILS(chown(name, 0, 0), EPERM);
	FAILS(fchown(disk, 0, 0), EPERM);
	CHECK(utimensat(AT_FDCWD, name, NULL, 0) == 0 && utimes(name, NULL) == 0 && futimens(disk, NULL) == 0);
	FAILS(setxattr(name, "user.a", "b", 1, 0), EOPNOTSUPP);
	FAILS(fgetxattr(disk, "user.a", place, 1), EOPNOTSUPP);
	CHECK(listxattr(name, place, sizeof place) == 0 && flistxattr(disk, NULL, 0) == 0);
	CHECK(pipe(pipes) == 0);
	FAILS(splice(disk, NULL, pipes[1], NULL, 512, 0), EINVAL);
	CHECK(close(pipes[0]) == 0 && close(pipes[1]) == 0);
}

static void look(void)
{
	struct stat found, by_descriptor;
	struct statx more;
	CHECK(stat(name, &found) == 0 && S_ISBLK(found.st_mode) && found.st_size == 0 && major(found.st_rdev) == 0);
	int disk = open(name, O_RDWR);
	CHECK(fstat(disk, &by_descriptor) == 0 && by_descriptor.st_ino == found.st_ino && by_descriptor.st_rdev == found.st_rdev);
	CHECK(statx(disk, "", AT_EMPTY_PATH, STATX_ALL, &more) == 0 && S_ISBLK(more.stx_mode));
	CHECK(fstatat(AT_FDCWD, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISBLK(found.st_mode));
	unsigned long long bytes;
	unsigned long sectors;
	int block, read_only;
	unsigned physical;
	CHECK(ioctl(disk, BLKGETSIZE64, &bytes) == 0 && (off_t)bytes == size);
	CHECK(ioctl(disk, BLKGETSIZE, &sectors) == 0 && (off_t)sectors * 512 == size);
	CHECK(ioctl(disk, BLKSSZGET, &block) == 0 && block == 512);
	CHECK(ioctl(disk, BLKPBSZGET, &physical) == 0 && physical >= 512);
	CHECK(ioctl(disk, BLKROGET, &read_only) == 0 && read_only == 0);
	CHECK(ioctl(disk, BLKFLSBUF, 0) == 0);
	FAILS(ioctl(disk, 0x5401, &bytes), ENOTTY);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, disk, 0) == MAP_FAILED && errno == ENODEV);
	/* A call that goes past libc reaches no file. */
	FAILS(syscall(SYS_read, disk, &bytes, 8), EBADF);
	FAILS(syscall(SYS_pwrite64, disk, &bytes, 8, 0), EBADF);
	CHECK(close(disk) == 0);
	CHECK(access(name, R_OK | W_OK) == 0);
	FAILS(access(name, X_OK), EACCES);
	FAILS(open(name, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
	FAILS(open(name, O_RDONLY | O_DIRECTORY), ENOTDIR);
	FAILS(unlink(name), EBUSY);
	FAILS(rename(name, "/other"), EBUSY);
	FAILS(rename("/other", name), EBUSY);
	int again = open(name, O_RDWR);
	directory_says(again);
	CHECK(close(again) == 0);
	/* Names that are not the disk's are the kernel's. */
	char longer[256];
	snprintf(longer, sizeof longer, "%s.", name);
	FAILS(open(longer, O_RDONLY), ENOENT);
	int null = open("/dev/null", O_RDWR);
	CHECK(null >= 0 && fstat(null, &found) == 0 && S_ISCHR(found.st_mode) && write(null, "x", 1) == 1 && close(null) == 0);
}

static void streams(void)
{
	char bytes[1000];
	FILE *stream = fopen(name, "r+");
	CHECK(stream && fileno(stream) >= 0 && fseek(stream, 2000, SEEK_SET) == 0);
	CHECK(fread(bytes, 1, sizeof bytes, stream) == sizeof bytes && !memcmp(bytes, expected + 2000, sizeof bytes));
	CHECK(fseek(stream, 30000, SEEK_SET) == 0 && fputs("a stream", stream) >= 0 && fclose(stream) == 0);
	memcpy(expected + 30000, "a stream", 8);
	int disk = open(name, O_RDONLY);
	stream = fdopen(disk, "r");
	CHECK(stream && fseek(stream, 30000, SEEK_SET) == 0 && fread(bytes, 1, 8, stream) == 8 && !memcmp(bytes, "a stream", 8));
	CHECK(fclose(stream) == 0);
	FAILS(close(disk), EBADF);
	CHECK(!fopen(name, "wx") && errno == EEXIST);
}

/* Whether a child can lock these bytes; whoever has them, if not. */
static int locks_in_child(int disk, off_t from, off_t bytes, pid_t holder)
{
	pid_t child = fork();
	if (child == 0) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = bytes }, found = lock;
		int answer = fcntl(disk, F_SETLK, &lock);
		CHECK(answer == 0 || errno == EAGAIN || errno == EACCES);
		if (answer != 0)
			CHECK(fcntl(disk, F_GETLK, &found) == 0 && found.l_type == F_WRLCK && found.l_pid == holder);
		_exit(answer == 0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void locks(void)
{
	int disk = open(name, O_RDWR), other = open(name, O_RDONLY);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -10, .l_len = 10 };
	CHECK(lseek(disk, 1000, SEEK_SET) == 1000 && fcntl(disk, F_SETLK, &lock) == 0);
	CHECK(!locks_in_child(disk, 995, 1, getpid()) && locks_in_child(disk, 1000, 1, 0) && locks_in_child(disk, 0, 990, 0));
	lock.l_type = F_UNLCK;
	CHECK(fcntl(disk, F_SETLK, &lock) == 0 && locks_in_child(disk, 995, 1, 0));
	FAILS(fcntl(other, F_SETLK, &(struct flock){ .l_type = F_WRLCK }), EBADF);
	CHECK(lockf(disk, F_TLOCK, 5) == 0 && lockf(disk, F_TEST, 5) == 0 && !locks_in_child(disk, 1004, 1, getpid()));
	/* As POSIX says, closing any descriptor of a file takes all of the process's locks of it away. */
	CHECK(close(other) == 0 && locks_in_child(disk, 1004, 1, 0));
	/* Those of an open file description, whose duplicates are as good. */
	other = open(name, O_RDWR);
	int twin = dup(disk);
	CHECK(flock(disk, LOCK_EX) == 0 && flock(twin, LOCK_EX | LOCK_NB) == 0);
	FAILS(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	struct flock bytes = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 5 }, beside = bytes, met = bytes;
	beside.l_start = 10;
	CHECK(fcntl(disk, F_OFD_SETLK, &bytes) == 0 && fcntl(twin, F_OFD_SETLK, &bytes) == 0);
	FAILS(fcntl(other, F_OFD_SETLK, &bytes), EAGAIN);
	CHECK(fcntl(other, F_OFD_GETLK, &met) == 0 && met.l_type == F_WRLCK && met.l_start == 5 && met.l_pid == -1);
	CHECK(fcntl(other, F_OFD_SETLK, &beside) == 0 && close(disk) == 0);
	FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(close(twin) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0 && fcntl(other, F_OFD_SETLK, &bytes) == 0);
	CHECK(close(other) == 0);
}

static void copies(void)
{
	int disk = open(name, O_RDONLY), file = memfd_create("copy", 0);
	char bytes[5000];
	loff_t from = 100;
	CHECK(copy_file_range(disk, &from, file, NULL, sizeof bytes, 0) == sizeof bytes && from == 100 + sizeof bytes);
	CHECK(pread(file, bytes, sizeof bytes, 0) == sizeof bytes && !memcmp(bytes, expected + 100, sizeof bytes));
	CHECK(sendfile(file, disk, NULL, 10) == 10 && lseek(disk, 0, SEEK_CUR) == 10);
	CHECK(close(disk) == 0 && close(file) == 0);
}

static volatile int ends;
static int raced;

static void *closes_and_opens(void *unused)
{
	(void)unused;
	while (!ends) {
		CHECK(close(raced) == 0);
		/* The lowest number that is free, once whoever else opened something just then has closed it. */
		int opened;
		while ((opened = open(name, O_RDONLY)) != raced)
			CHECK(opened >= 0 && close(opened) == 0);
	}
	return NULL;
}

/* Reads go on while another thread closes what they read: each is right, or the descriptor is none. */
static void races(void)
{
	pthread_t thread;
	char bytes[512];
	int right = 0;
	raced = open(name, O_RDONLY);
	CHECK(pthread_create(&thread, NULL, closes_and_opens, NULL) == 0);
	for (int i = 0; i < 20000 || right == 0; i++) {
		ssize_t count = pread(raced, bytes, sizeof bytes, 512);
		CHECK(count == -1 ? errno == EBADF : count == sizeof bytes && !memcmp(bytes, expected + 512, sizeof bytes));
		right += count > 0;
	}
	ends = 1;
	CHECK(pthread_join(thread, NULL) == 0 && close(raced) == 0);
}

/* Streams that are there from the beginning. */
static void standard_streams(void)
{
	char text[32];
	int before = dup(STDIN_FILENO);
	CHECK(freopen(name, "r", stdin) && fseek(stdin, 30000, SEEK_SET) == 0 && fgets(text, 9, stdin) && !strcmp(text, "a stream"));
	CHECK(dup2(before, STDIN_FILENO) == STDIN_FILENO && close(before) == 0);
	before = dup(STDOUT_FILENO);
	int disk = open(name, O_RDWR);
	CHECK(dup2(disk, STDOUT_FILENO) == STDOUT_FILENO && printf("%s", "printed") == 7 && fflush(stdout) == 0);
	memcpy(expected, "printed", 7);
	CHECK(dup2(before, STDOUT_FILENO) == STDOUT_FILENO && printf("%s", "elsewhere") == 9 && fflush(stdout) == 0);
	CHECK(close(disk) == 0 && close(before) == 0);
}

int main(int count, char **arguments)
{
	assert(count == 4);
	name = arguments[1];
	size = atoll(arguments[3]);
	expected = malloc(size);
	int file = open(arguments[2], O_RDONLY);
	CHECK(read(file, expected, size) == size && close(file) == 0);
	read_and_seek();
	missing_memory();
	waits();
	write_and_sync();
	look();
	streams();
	standard_streams();
	locks();
	copies();
	races();
	/* What the disk is to be now. */
	file = open(arguments[2], O_WRONLY);
	CHECK(write(file, expected, size) == size && close(file) == 0);
	return 0;
}
