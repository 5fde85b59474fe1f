/* A descriptor that is a disk's and a file's by turns (dup2), while other threads read by it: each finds the one or the
 * other. The first argument is the disk's name, the second a file with other bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096
#define TURNS 20000

static int number;
static volatile int is_over;
static char of_disk[BLOCK], of_file[BLOCK];

static void *reads(void *argument)
{
	char bytes[BLOCK];
	long *found = argument;
	while (!is_over) {
		CHECK(pread(number, bytes, BLOCK, 0) == BLOCK);
		int is_disk = memcmp(bytes, of_disk, BLOCK) == 0;
		CHECK(is_disk || memcmp(bytes, of_file, BLOCK) == 0);
		found[is_disk]++;
	}
	return NULL;
}

int main(int count, char **arguments)
{
	int disk = open(arguments[1], O_RDWR), file = open(arguments[2], O_RDWR);
	pthread_t threads[2];
	static long found[2][2];
	CHECK(pread(disk, of_disk, BLOCK, 0) == BLOCK && pread(file, of_file, BLOCK, 0) == BLOCK);
	CHECK(memcmp(of_disk, of_file, BLOCK) != 0);
	number = dup(disk);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, reads, found[i]) == 0);
	for (int turn = 0; turn < TURNS; turn++)
		CHECK(dup2(turn % 2 ? disk : file, number) == number);
	/* Until each has been found. */
	while (!found[0][0] || !found[1][0])
		CHECK(dup2(file, number) == number && usleep(100) == 0);
	is_over = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	/* What is no number leaves all as it was. */
	CHECK(dup2(disk, -1) == -1 && errno == EBADF && dup2(disk, 1 << 28) == -1 && errno == EBADF);
	CHECK(dup2(disk, disk) == disk && pread(disk, of_file, BLOCK, 0) == BLOCK && !memcmp(of_file, of_disk, BLOCK));
	return 0;
}
