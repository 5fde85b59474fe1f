/* What a block device answers (Linux 6.18, a loop device with blocks of 512 bytes), where a file answers otherwise. The
 * argument is its name: a disk's, or that of a device on the machine that may be written over. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define FAILS(call, error) \
	do { errno = 0; long answer = (call); if (answer != -1 || errno != (error)) { \
		fprintf(stderr, "line %d: %s is %ld (errno %d)\n", __LINE__, #call, answer, errno); _exit(1); } } while (0)

static int disk;
static off_t size;

static void seeks(void)
{
	CHECK(lseek(disk, size, SEEK_SET) == size);
	FAILS(lseek(disk, size + 1, SEEK_SET), EINVAL);
	FAILS(lseek(disk, 1, SEEK_CUR), EINVAL);
	FAILS(lseek(disk, 1, SEEK_END), EINVAL);
	CHECK(lseek(disk, 0, SEEK_CUR) == size && lseek(disk, -1, SEEK_END) == size - 1);
	FAILS(lseek(disk, -size, SEEK_CUR), EINVAL);
	FAILS(lseek(disk, 0, 99), EINVAL);
}

static void ends(const char *name)
{
	char bytes[4096];
	int appends = open(name, O_WRONLY | O_APPEND);
	memset(bytes, 'e', sizeof bytes);
	CHECK(pread(disk, bytes, 10, size) == 0 && pread(disk, bytes, 10, size + 4096) == 0);
	FAILS(pwrite(disk, bytes, 10, size), ENOSPC);
	FAILS(pwrite(disk, bytes, 10, size + 5), ENOSPC);
	CHECK(pwrite(disk, bytes, 0, size) == 0 && pwrite(disk, bytes, 20, size - 10) == 10);
	/* Nothing can be behind its end: each is written where the descriptor stands. */
	CHECK(appends >= 0 && write(appends, bytes, 512) == 512 && lseek(appends, 0, SEEK_CUR) == 512);
	CHECK(write(appends, bytes, 100) == 100 && lseek(appends, 0, SEEK_CUR) == 612);
	CHECK(pwrite(appends, bytes, 512, 4096) == 512 && lseek(appends, 0, SEEK_CUR) == 612);
	CHECK(lseek(appends, -5, SEEK_END) == size - 5 && write(appends, bytes, 20) == 5);
	FAILS(write(appends, bytes, 1), ENOSPC);
	CHECK(close(appends) == 0);
}

static void allocates(void)
{
	/* For nothing, for keeping the size, and for what is done to a range of blocks: whole ones, a part of one, over the
	 * end, behind it, none, before the beginning. */
	static const struct { int mode, answers[6]; } modes[] = {
		{0, {EOPNOTSUPP, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL}},
		{FALLOC_FL_KEEP_SIZE, {EOPNOTSUPP, EINVAL, EOPNOTSUPP, EINVAL, EINVAL, EINVAL}},
		{FALLOC_FL_PUNCH_HOLE, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EINVAL, EINVAL}},
		{FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, {0, EINVAL, 0, EINVAL, EINVAL, EINVAL}},
		{FALLOC_FL_ZERO_RANGE, {0, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL}},
		{FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, {0, EINVAL, 0, EINVAL, EINVAL, EINVAL}},
		{FALLOC_FL_COLLAPSE_RANGE, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EINVAL, EINVAL}},
		{FALLOC_FL_INSERT_RANGE, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EINVAL, EINVAL}},
		{FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
			{EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EINVAL, EINVAL}},
	};
	off_t ranges[6][2] = {{0, 4096}, {100, 4096}, {size - 4096, 8192}, {size, 4096}, {0, 0}, {-1, 4096}};
	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
		for (int j = 0; j < 6; j++) {
			errno = 0;
			int answer = fallocate(disk, modes[i].mode, ranges[j][0], ranges[j][1]);
			if (answer != (modes[i].answers[j] ? -1 : 0) || errno != modes[i].answers[j])
				fprintf(stderr, "mode %#x, range %d: %d (errno %d)\n", modes[i].mode, j, answer, errno);
			CHECK(errno == modes[i].answers[j]);
		}
}

static void requests(const char *name)
{
	unsigned long request[] = {BLKDISCARD, BLKZEROOUT};
	int only_read = open(name, O_RDONLY), number;
	unsigned zones = 7;
	long pages = 7;
	for (int i = 0; i < 2; i++) {
		uint64_t whole[] = {8192, 4096}, none[] = {0, 0}, begins[] = {100, 4096}, lasts[] = {0, 100};
		uint64_t behind[] = {size, 4096}, over[] = {size - 4096, 8192}, wraps[] = {-512, 1024};
		CHECK(ioctl(disk, request[i], whole) == 0);
		FAILS(ioctl(only_read, request[i], whole), EBADF);
		FAILS(ioctl(disk, request[i], none), EINVAL);
		FAILS(ioctl(disk, request[i], begins), EINVAL);
		FAILS(ioctl(disk, request[i], lasts), EINVAL);
		FAILS(ioctl(disk, request[i], behind), EINVAL);
		FAILS(ioctl(disk, request[i], over), EINVAL);
		FAILS(ioctl(disk, request[i], wraps), EINVAL);
	}
	FAILS(ioctl(disk, BLKSECDISCARD, (uint64_t[]){0, 4096}), EOPNOTSUPP);
	CHECK(ioctl(disk, BLKRAGET, &pages) == 0 && ioctl(disk, BLKFRAGET, &pages) == 0);
	CHECK(ioctl(disk, BLKRASET, 8) == 0 && ioctl(disk, BLKFRASET, 8) == 0);
	FAILS(ioctl(disk, BLKRAGET, NULL), EINVAL);
	FAILS(ioctl(disk, BLKFRAGET, NULL), EINVAL);
	CHECK(ioctl(disk, _IOR(0x12, 132, uint32_t), &zones) == 0 && zones == 0);
	CHECK(ioctl(disk, _IOR(0x12, 133, uint32_t), &zones) == 0 && zones == 0);
	FAILS(ioctl(disk, BLKBSZSET, NULL), EINVAL);
	number = 100;
	FAILS(ioctl(disk, BLKBSZSET, &number), EINVAL);
	number = 1000;
	FAILS(ioctl(disk, BLKBSZSET, &number), EINVAL);
	number = 1 << 20;
	FAILS(ioctl(disk, BLKBSZSET, &number), EINVAL);
	number = 4096;
	CHECK(ioctl(disk, BLKBSZSET, &number) == 0);
	FAILS(ioctl(disk, 0x301, &pages), ENOTTY);
	FAILS(ftruncate(disk, size), EINVAL);
	FAILS(ftruncate(only_read, size), EINVAL);
	CHECK(close(only_read) == 0);
}

int main(int count, char **arguments)
{
	disk = open(arguments[1], O_RDWR);
	size = lseek(disk, 0, SEEK_END);
	CHECK(disk >= 0 && size > 0);
	seeks();
	ends(arguments[1]);
	allocates();
	requests(arguments[1]);
	return 0;
}
