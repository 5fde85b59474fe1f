/* What a compiler makes of calls on a disk that knows how much room there is for their answers (_FORTIFY_SOURCE): other
 * names of libc's. The first argument is the disk's name, the second a file with its bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096

/* What the compiler does not know. */
static volatile size_t length = BLOCK;
static volatile int flags = O_RDWR;

static void prints(int disk, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	CHECK(vdprintf(disk, format, list) == 7);
	va_end(list);
}

int main(int count, char **arguments)
{
	static char bytes[BLOCK], expected[BLOCK], text[PATH_MAX];
	const char *name = arguments[1];
	struct pollfd list[1] = {{.events = POLLIN}};
	struct timespec now = {0};
	volatile nfds_t one = 1;
	volatile int room = sizeof bytes;
	int file = open(arguments[2], O_RDONLY), disk = open(name, flags), at = openat(AT_FDCWD, name, flags);
	CHECK(file >= 0 && disk >= 0 && at >= 0 && open64(name, flags) >= 0 && openat64(AT_FDCWD, name, flags) >= 0);
	CHECK(read(file, expected, length) == BLOCK);
	CHECK(read(disk, bytes, length) == BLOCK && !memcmp(bytes, expected, BLOCK));
	memset(bytes, 0, BLOCK);
	CHECK(pread(disk, bytes, length, 0) == BLOCK && !memcmp(bytes, expected, BLOCK));
	memset(bytes, 0, BLOCK);
	CHECK(pread64(at, bytes, length, 0) == BLOCK && !memcmp(bytes, expected, BLOCK));
	list[0].fd = disk;
	CHECK(poll(list, one, 0) == 1 && list[0].revents == POLLIN);
	list[0].revents = 0;
	CHECK(ppoll(list, one, &now, NULL) == 1 && list[0].revents == POLLIN && list[0].fd == disk);
	fd_set set;
	volatile int number = disk;
	FD_ZERO(&set);
	FD_SET(number, &set);
	CHECK(select(disk + 1, &set, NULL, NULL, &(struct timeval){0}) == 1 && FD_ISSET(number, &set));
	CHECK(realpath(name, text) == text && !strcmp(text, name));
	/* It is no link. */
	CHECK(readlink(name, text, length) == -1 && errno == EINVAL);
	errno = 0;
	CHECK(readlinkat(AT_FDCWD, name, text, length) == -1 && errno == EINVAL);
	FILE *stream = fopen(name, "r");
	CHECK(stream && fread(bytes, 1, length, stream) == BLOCK && !memcmp(bytes, expected, BLOCK));
	CHECK(fread_unlocked(bytes, 1, length, stream) == BLOCK && fgets(bytes, room, stream) && fgets_unlocked(bytes, room, stream));
	CHECK(fclose(stream) == 0);
	CHECK(lseek(disk, 0, SEEK_SET) == 0 && dprintf(disk, "%s%d", "first", 17) == 7);
	prints(disk, "%s%d", "other", 18);
	stream = fopen(name, "r+");
	CHECK(stream && fseek(stream, 14, SEEK_SET) == 0 && fprintf(stream, "%s%d", "third", 19) == 7 && fclose(stream) == 0);
	CHECK(pread(disk, bytes, 21, 0) == 21 && !memcmp(bytes, "first17other18third19", 21));
	jmp_buf place;
	if (setjmp(place) == 0)
		longjmp(place, 1);
	CHECK(pread(disk, bytes, length, 0) == BLOCK);
	return 0;
}
