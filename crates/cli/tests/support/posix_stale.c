/* What takes the place of a disk's descriptor within libc, or past it, is not the disk. The argument is its name, whose
 * bytes nobody may change. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)

static int is_disk(int descriptor)
{
	struct stat found;
	CHECK(fstat(descriptor, &found) == 0);
	return S_ISBLK(found.st_mode);
}

int main(int count, char **arguments)
{
	struct sigaction before;
	char bytes[16];
	int pair[2], status, controller, disk = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC | O_NOCTTY);
	CHECK(disk >= 0 && is_disk(disk) && fcntl(disk, F_GETFL) == O_RDWR);
	CHECK(sigaction(SIGBUS, NULL, &before) == 0 && before.sa_flags == 0);
	CHECK(close_range(disk + 1, disk, 0) == -1 && errno == EINVAL && close_range(disk, disk, 1 << 5) == -1 && is_disk(disk));

	/* A number that was closed past libc is another's. */
	CHECK(syscall(SYS_close, disk) == 0 && pipe(pair) == 0 && pair[0] == disk);
	CHECK(write(pair[1], "pipe", 4) == 4 && read(pair[0], bytes, sizeof bytes) == 4 && memcmp(bytes, "pipe", 4) == 0);
	CHECK(close(pair[0]) == 0 && close(pair[1]) == 0);
	CHECK((disk = open(arguments[1], O_RDWR)) >= 0);

	/* The child's streams are its terminal. */
	int output = dup(1), child = forkpty(&controller, NULL, NULL, NULL);
	CHECK(child >= 0);
	if (child == 0) {
		int terminal = dup(0), null = open("/dev/null", O_RDWR);
		CHECK(!is_disk(1) && write(1, "terminal", 8) == 8);
		CHECK(dup2(disk, 1) == 1 && is_disk(1) && dup2(null, 0) == 0 && login_tty(terminal) == 0 && !is_disk(1));
		_exit(0);
	}
	CHECK(read(controller, bytes, sizeof bytes) == 8 && memcmp(bytes, "terminal", 8) == 0);
	CHECK(waitpid(child, &status, 0) == child);

	/* And those of a daemon are nothing. */
	CHECK(dup2(disk, 0) == 0 && dup2(disk, 1) == 1 && is_disk(1) && pipe(pair) == 0);
	if ((child = fork()) == 0) {
		CHECK(daemon(1, 0) == 0 && !is_disk(0) && !is_disk(1) && write(1, "nothing", 7) == 7 && is_disk(disk));
		CHECK(write(pair[1], "daemon", 6) == 6);
		_exit(0);
	}
	CHECK(close(pair[1]) == 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(pair[0], bytes, sizeof bytes) == 6 && is_disk(1));
	CHECK(write(output, "done", 4) == 4);
	return 0;
}
