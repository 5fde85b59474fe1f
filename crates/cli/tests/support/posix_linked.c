/* A program that is linked to the library: it says by itself what is a disk. The arguments are a disk and a file with
 * its bytes. */
#include <assert.h>
#include <blockyard_posix.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) do { if (!(condition)) return __LINE__ % 256; } while (0)

int main(int count, char **words)
{
	char ours[4096], expected[4096];
	int file = open(words[2], O_RDONLY);
	CHECK(count == 3 && file >= 0 && pread(file, expected, sizeof expected, 12345) == sizeof expected);
	CHECK(open("/disk", O_RDWR) == -1 && errno == ENOENT);
	CHECK(blockyard_attach(words[1], "/disk") == 0);
	CHECK(blockyard_attach(words[1], "/disk") == -1 && errno == EEXIST);
	CHECK(blockyard_attach(words[1], "") == -1 && errno == EINVAL);
	CHECK(blockyard_attach("no:such=kind,of,disk", "/other") == -1 && errno == EINVAL);
	CHECK(blockyard_attach(NULL, "/other") == -1 && errno == EFAULT);
	int disk = open("/disk", O_RDWR);
	CHECK(disk >= 0 && pread(disk, ours, sizeof ours, 12345) == sizeof ours && !memcmp(ours, expected, sizeof ours));
	CHECK(pwrite(disk, "linked", 6, 777) == 6 && fsync(disk) == 0 && read(disk, NULL, 1) == -1 && errno == EFAULT);
	return 0;
}
