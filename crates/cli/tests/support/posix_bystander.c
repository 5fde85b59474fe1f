/* A program that opens a disk and does as its first argument says, then starts another one, the second argument, with
 * the others, and waits for it. The third argument is the disk's name. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)

static char block[4096];

static void look(int disk, const char *name)
{
	struct stat found;
	unsigned long long bytes;
	int number;
	CHECK(fstat(disk, &found) == 0 && stat(name, &found) == 0 && access(name, R_OK) == 0);
	CHECK(ioctl(disk, BLKGETSIZE64, &bytes) == 0 && ioctl(disk, BLKSSZGET, &number) == 0);
	CHECK(lseek(disk, 0, SEEK_END) == bytes && lseek(disk, 0, SEEK_SET) == 0);
	CHECK(posix_fadvise(disk, 0, 0, POSIX_FADV_DONTNEED) == 0 && fcntl(disk, F_GETFL) == O_RDWR);
}

int main(int count, char **words)
{
	CHECK(count == 5);
	const char *what = words[1], *name = words[3];
	int disk = open(name, O_RDWR);
	CHECK(disk >= 0);
	look(disk, name);
	if (strcmp(what, "looks") != 0) {
		int other = dup(disk);
		CHECK(pread(disk, block, sizeof block, 0) == sizeof block && close(disk) == 0);
		CHECK(pwrite(other, block, sizeof block, 0) == sizeof block);
		/* Again, and with nothing that says so to whoever closes it. */
		CHECK(close(other) == 0 && (disk = open(name, O_RDWR)) >= 0);
		CHECK(pread(disk, block, sizeof block, 0) == sizeof block);
		if (strcmp(what, "requests") == 0) {
			struct aiocb request = { .aio_fildes = disk, .aio_buf = block, .aio_nbytes = sizeof block };
			const struct aiocb *list = &request;
			CHECK(aio_read(&request) == 0 && close(disk) == 0 && aio_suspend(&list, 1, NULL) == 0);
			CHECK(aio_return(&request) == sizeof block);
		} else if (strcmp(what, "replaces") == 0) {
			int null = open("/dev/null", O_RDWR);
			CHECK(dup2(null, disk) == disk && close(null) == 0);
		} else {
			CHECK(close(disk) == 0);
		}
	}
	pid_t child = fork();
	if (child == 0) {
		execv(words[2], words + 2);
		_exit(127);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
	if (strcmp(what, "looks") == 0)
		look(disk, name);
	return 0;
}
