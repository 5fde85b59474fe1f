/* A program that has queues on a disk. The arguments are the disk, its bytes, and a file with what it has. */
#include <assert.h>
#include <blockyard_posix.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) do { if (!(condition)) return __LINE__ % 256; } while (0)
#define REFUSED(errno_of_it, call) CHECK((call) == -1 && errno == (errno_of_it))
#define REQUEST 4096
#define REQUESTS 8

/* Submits, and waits for one request: its error. */
static int end(struct blockyard_queue *queue, uint64_t token)
{
	struct blockyard_completion completion = { 0 };
	int count = blockyard_queue_submit(queue) ? -1 : blockyard_queue_reap(queue, &completion, 1, 1, NULL);
	return count == 1 && completion.token == token ? completion.error : -1;
}

static int wrong(const char *disk)
{
	char reason[16];
	struct blockyard_completion completion;
	CHECK(!blockyard_disk_open(NULL, O_RDWR, NULL, 0) && errno == EINVAL);
	memset(reason, 1, sizeof reason);
	CHECK(!blockyard_disk_open("no:such=kind,of,disk", O_RDWR, reason, sizeof reason) && errno == EINVAL);
	CHECK(strlen(reason) > 0 && strlen(reason) < sizeof reason);
	CHECK(!blockyard_disk_open("/no/such/disk", O_RDWR, NULL, 0) && errno == ENOENT);
	CHECK(!blockyard_disk_open(disk, O_WRONLY, reason, 1) && errno == EINVAL && !*reason);
	CHECK(!blockyard_disk_capacity(NULL) && !blockyard_disk_logical_block(NULL) && !blockyard_disk_is_read_only(NULL));
	CHECK(!blockyard_queue_open(NULL, 4096, 1) && errno == EINVAL);
	CHECK(!blockyard_queue_memory(NULL) && !blockyard_queue_depth(NULL));
	REFUSED(EINVAL, blockyard_queue_read(NULL, 0, reason, 512, 0));
	REFUSED(EINVAL, blockyard_queue_write(NULL, 0, reason, 512, 0));
	REFUSED(EINVAL, blockyard_queue_flush(NULL, 0));
	REFUSED(EINVAL, blockyard_queue_discard(NULL, 0, 512, 0));
	REFUSED(EINVAL, blockyard_queue_write_zeroes(NULL, 0, 512, 0, 0));
	REFUSED(EINVAL, blockyard_queue_submit(NULL));
	REFUSED(EINVAL, blockyard_queue_reap(NULL, &completion, 1, 0, NULL));
	blockyard_queue_close(NULL);
	blockyard_disk_close(NULL);
	return 0;
}

static int read_only(const char *named)
{
	struct blockyard_disk *disk = blockyard_disk_open(named, O_RDONLY, NULL, 0);
	CHECK(disk && blockyard_disk_is_read_only(disk) == 1);
	struct blockyard_queue *queue = blockyard_queue_open(disk, REQUEST, 1);
	char *memory = blockyard_queue_memory(queue);
	CHECK(queue && memory);
	blockyard_disk_close(disk);
	CHECK(!blockyard_queue_write(queue, 0, memory, REQUEST, 9) && end(queue, 9) == EROFS);
	CHECK(!blockyard_queue_read(queue, 0, memory, REQUEST, 10) && end(queue, 10) == 0);
	blockyard_queue_close(queue);
	return 0;
}

/* Whether another process is kept from a lock that this one has of a disk by its name, whatever handles of it are opened
 * and closed before and after. */
static int locks(const char *named)
{
	for (int round = 0; round < 2; round++) {
		struct blockyard_disk *before = round ? blockyard_disk_open(named, O_RDWR, NULL, 0) : NULL;
		int file = open(named, O_RDWR), status;
		CHECK(file >= 0 && !fcntl(file, F_SETLK, &(struct flock){ .l_type = F_WRLCK, .l_len = 512 }));
		struct blockyard_disk *after = blockyard_disk_open(named, O_RDWR, NULL, 0);
		CHECK(after);
		blockyard_disk_close(before);
		blockyard_disk_close(after);
		pid_t other = fork();
		if (!other) {
			file = open(named, O_RDWR);
			_exit(file < 0 || fcntl(file, F_SETLK, &(struct flock){ .l_type = F_WRLCK, .l_len = 512 }) != -1 || errno != EAGAIN);
		}
		CHECK(waitpid(other, &status, 0) == other && status == 0 && close(file) == 0);
	}
	return 0;
}

/* Whatever may be asked for and what may not, while as many requests are taken as there is room for. */
static int many(struct blockyard_queue *queue, const char *expected)
{
	struct blockyard_completion completions[REQUESTS];
	struct timespec none = { 0 }, bad = { 0, 1000000000 };
	char *memory = blockyard_queue_memory(queue), elsewhere[REQUEST];
	unsigned int depth = blockyard_queue_depth(queue), index, seen = 0;
	int count;
	CHECK(depth >= 1 && depth <= REQUESTS);
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, NULL, REQUEST, 0));
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, elsewhere, REQUEST, 0));
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, memory - 512, REQUEST, 0));
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, memory + REQUESTS * REQUEST - 512, REQUEST, 0));
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, memory + REQUESTS * REQUEST, 512, 0));
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, memory, SIZE_MAX & ~511UL, 0));
	REFUSED(EINVAL, blockyard_queue_read(queue, 0, memory, 0, 0));
	REFUSED(EINVAL, blockyard_queue_write(queue, 100, memory, REQUEST, 0));
	REFUSED(EINVAL, blockyard_queue_write(queue, 0, memory, 100, 0));
	REFUSED(EINVAL, blockyard_queue_discard(queue, 512, 100, 0));
	REFUSED(EINVAL, blockyard_queue_write_zeroes(queue, 100, 512, 1, 0));
	REFUSED(EINVAL, blockyard_queue_reap(queue, NULL, 1, 0, NULL));
	REFUSED(EINVAL, blockyard_queue_reap(queue, completions, 0, 0, NULL));
	REFUSED(EINVAL, blockyard_queue_reap(queue, completions, 1, 2, NULL));
	REFUSED(EINVAL, blockyard_queue_reap(queue, completions, 1, 0, &bad));
	/* There is nothing to wait for. */
	CHECK(blockyard_queue_reap(queue, completions, REQUESTS, REQUESTS, NULL) == 0);
	for (index = 0; index < depth; index++)
		CHECK(!blockyard_queue_read(queue, index * 12 * REQUEST, memory + index * REQUEST, REQUEST, index));
	REFUSED(EAGAIN, blockyard_queue_read(queue, 0, memory, REQUEST, 0));
	REFUSED(EAGAIN, blockyard_queue_flush(queue, 0));
	CHECK(!blockyard_queue_submit(queue));
	CHECK((count = blockyard_queue_reap(queue, completions, REQUESTS, 0, &none)) >= 0);
	for (;;) {
		for (index = 0; index < count; index++) {
			uint64_t token = completions[index].token;
			CHECK(!completions[index].error && token < depth && !(seen & 1 << token));
			CHECK(!memcmp(memory + token * REQUEST, expected + token * 12 * REQUEST, REQUEST));
			seen |= 1 << token;
		}
		if (seen == (1 << depth) - 1)
			break;
		/* Two at a time: what there is more of comes with the next call. */
		CHECK((count = blockyard_queue_reap(queue, completions, 2, 1, NULL)) > 0 && count <= 2);
	}
	CHECK(blockyard_queue_reap(queue, completions, 1, 1, NULL) == 0);
	return 0;
}

static int changes(struct blockyard_queue *queue, uint64_t bytes)
{
	char *memory = blockyard_queue_memory(queue), zeros[REQUEST] = { 0 };
	memset(memory, 'q', REQUEST);
	CHECK(!blockyard_queue_write(queue, 5 * REQUEST, memory, REQUEST, 1) && end(queue, 1) == 0);
	CHECK(!blockyard_queue_write(queue, 6 * REQUEST, memory, REQUEST, 2) && end(queue, 2) == 0);
	CHECK(!blockyard_queue_flush(queue, 3) && end(queue, 3) == 0);
	CHECK(!blockyard_queue_read(queue, 5 * REQUEST, memory + REQUEST, REQUEST, UINT64_MAX) && end(queue, UINT64_MAX) == 0);
	CHECK(!memcmp(memory, memory + REQUEST, REQUEST));
	CHECK(!blockyard_queue_write_zeroes(queue, 5 * REQUEST, 512, 0, 4) && end(queue, 4) == 0);
	CHECK(!blockyard_queue_discard(queue, 7 * REQUEST, REQUEST, 5) && end(queue, 5) == 0);
	CHECK(!blockyard_queue_read(queue, 5 * REQUEST, memory + REQUEST, REQUEST, 6) && end(queue, 6) == 0);
	CHECK(!memcmp(memory + REQUEST, zeros, 512) && memory[REQUEST + 512] == 'q');
	CHECK(!blockyard_queue_read(queue, bytes, memory, REQUEST, 7) && end(queue, 7) == ENOSPC);
	CHECK(!blockyard_queue_write(queue, UINT64_MAX & ~511UL, memory, REQUEST, 8) && end(queue, 8) == ENOSPC);
	return 0;
}

int main(int count, char **words)
{
	uint64_t bytes = strtoull(words[2], NULL, 10);
	char *expected = malloc(bytes);
	int file = open(words[3], O_RDONLY), line, status;
	CHECK(count == 4 && file >= 0 && read(file, expected, bytes) == bytes);
	/* `attach` keeps locks. */
	if (getenv("BLOCKYARD_ATTACH") && (line = locks(words[1])))
		return line;
	if ((line = wrong(words[1])) || (line = read_only(words[1])))
		return line;
	struct blockyard_disk *disk = blockyard_disk_open(words[1], O_RDWR, NULL, 0);
	CHECK(disk && blockyard_disk_capacity(disk) == bytes && blockyard_disk_logical_block(disk) == 512);
	CHECK(!blockyard_disk_is_read_only(disk));
	CHECK(!blockyard_queue_open(disk, 0, 1) && errno == EINVAL);
	CHECK(!blockyard_queue_open(disk, 4096, 0) && errno == EINVAL);
	struct blockyard_queue *queue = blockyard_queue_open(disk, REQUESTS * REQUEST, REQUESTS);
	CHECK(queue && !((uintptr_t) blockyard_queue_memory(queue) % 4096));
	blockyard_disk_close(disk);
	if ((line = many(queue, expected)) || (line = changes(queue, bytes)))
		return line;
	/* What is under way at the end is waited for. */
	CHECK(!blockyard_queue_flush(queue, 0) && !blockyard_queue_submit(queue));
	blockyard_queue_close(queue);
	pid_t child = fork();
	if (!child)
		_exit(read_only(words[1]));
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}
