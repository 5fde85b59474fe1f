/* What calls of libc's answer to a file's name and to descriptors of it, a line each: the call, what it returned (1 for
 * anything above), and the error. The first argument is the name. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>
#include <utime.h>

extern char **environ;
static const char *name;
static int disk;

static void said(const char *what, long answer, int error)
{
	printf("%s: %ld %s\n", what, answer > 1 ? 1 : answer, error ? strerrorname_np(error) : "-");
}

#define SAY(call) do { errno = 0; long answer = (long)(call); said(#call, answer, answer == -1 ? errno : 0); } while (0)
#define SAY_POINTER(call) do { errno = 0; int there = (call) != NULL; said(#call, there, there ? 0 : errno); } while (0)
/* What answers with the error's number. */
#define SAY_ERROR(call) do { int error = (call); said(#call, error ? -1 : 0, error); } while (0)

static int listed(int descriptor, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int count = vdprintf(descriptor, format, list);
	va_end(list);
	return count;
}

static int walked(const char *path, const struct stat *found, int kind)
{
	printf("%s %d %d\n", strcmp(path, name) == 0 ? "the name" : path, S_ISDIR(found->st_mode), kind);
	return 5;
}

static int walked_more(const char *path, const struct stat *found, int kind, struct FTW *place)
{
	return walked(path, found, kind) + (strcmp(path + place->base, strrchr(name, '/') + 1) == 0) + place->level;
}

/* Numbers of either kind, on the stack and in registers, and as many bytes as are written. */
static void print(void)
{
	char expected[600], found[600];
	const char *format = "%s %d %f %ld %g %x %c %f %f %f %f %f %f %f %300d";
	int count = snprintf(expected, sizeof expected, format, "text", -5, 1.5, 1L << 40, 2.25, 255, 'c', 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10);
	int printed = dprintf(disk, format, "text", -5, 1.5, 1L << 40, 2.25, 255, 'c', 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10);
	int read = pread(disk, found, count, 0);
	printf("%d %d %d\n", printed == count, read == count, memcmp(found, expected, count));
	lseek(disk, 0, SEEK_SET);
	printed = listed(disk, format, "text", -5, 1.5, 1L << 40, 2.25, 255, 'c', 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 11);
	printf("%d %d\n", printed == count, pread(disk, found, count, 0) == count && memcmp(found, expected, count) != 0);
	int reading = open(name, O_RDONLY);
	SAY(dprintf(reading, "%s", "text"));
	SAY(dprintf(-1, "%s", "text"));
	close(reading);
}

static void execute(void)
{
	char *const words[] = { "word", NULL };
	pid_t child;
	SAY(execve(name, words, environ));
	SAY(execv(name, words));
	SAY(execvp(name, words));
	SAY(execvpe(name, words, environ));
	SAY(execl(name, "word", "another", NULL));
	SAY(execle(name, "word", "another", NULL, environ));
	SAY(execlp(name, "word", "another", NULL));
	SAY(fexecve(disk, words, environ));
	SAY(execveat(AT_FDCWD, name, words, environ, 0));
	SAY(execveat(disk, "", words, environ, AT_EMPTY_PATH));
	SAY_ERROR(posix_spawn(&child, name, NULL, NULL, words, environ));
	SAY_ERROR(posix_spawnp(&child, name, NULL, NULL, words, environ));
	/* What is none is executed as ever. */
	int status, list;
	for (list = 0; list < 4; list++) {
		child = fork();
		if (child == 0) {
			char *const environment[] = { "NUMBER=7", NULL };
			if (list == 0)
				execl("/bin/sh", "sh", "-c", "exit $6", "0", "1", "2", "3", "4", "5", "7", "8", NULL);
			else if (list == 1)
				execle("/bin/sh", "sh", "-c", "exit $NUMBER", "0", "1", "2", "3", "4", "5", NULL, environment);
			else if (list == 2)
				execlp("sh", "sh", "-c", "exit $6", "0", "1", "2", "3", "4", "5", "7", "8", NULL);
			else
				execvp("sh", (char *[]){ "sh", "-c", "exit 7", NULL });
			_exit(1);
		}
		waitpid(child, &status, 0);
		printf("%d\n", WEXITSTATUS(status));
	}
}

static void look(void)
{
	struct statfs found, by_descriptor;
	struct statvfs more;
	struct dirent **entries;
	struct termios terminal;
	struct { struct file_handle handle; char bytes[MAX_HANDLE_SZ]; } handle = { { MAX_HANDLE_SZ } };
	int mount_id;
	SAY(statfs(name, &found));
	SAY(fstatfs(disk, &by_descriptor));
	printf("%d %d %ld %d\n", found.f_type == by_descriptor.f_type, found.f_blocks == by_descriptor.f_blocks, (long)found.f_bsize, found.f_blocks > 0);
	SAY(statvfs(name, &more));
	SAY(fstatvfs(disk, &more));
	printf("%lu %lu %d\n", more.f_frsize, more.f_namemax, more.f_blocks == found.f_blocks);
	SAY_POINTER(opendir(name));
	SAY(scandir(name, &entries, NULL, NULL));
	SAY(scandirat(AT_FDCWD, name, &entries, NULL, NULL));
	SAY(ftw(name, walked, 3));
	SAY(nftw(name, walked_more, 3, FTW_PHYS));
	SAY(ftok(name, 1) == -1 ? -1 : 0);
	SAY(pathconf(name, _PC_NAME_MAX));
	SAY(pathconf(name, _PC_ASYNC_IO));
	SAY(pathconf(name, _PC_LINK_MAX));
	SAY(fpathconf(disk, _PC_NAME_MAX));
	SAY(isatty(disk) ? 0 : -1);
	SAY(tcgetattr(disk, &terminal));
	SAY(name_to_handle_at(AT_FDCWD, name, &handle.handle, &mount_id, 0));
	SAY(name_to_handle_at(disk, "", &handle.handle, &mount_id, AT_EMPTY_PATH));
	SAY(inotify_add_watch(inotify_init1(IN_CLOEXEC), name, IN_MODIFY));
	SAY(fanotify_mark(fanotify_init(0, O_RDONLY), FAN_MARK_ADD, FAN_MODIFY, AT_FDCWD, name));
	/* By the name that newer libcs have. */
	unsigned long how[3] = { O_RDONLY };
	int (*opens)(int, const char *, const void *, size_t) = dlsym(RTLD_DEFAULT, "openat2");
	SAY(opens ? opens(AT_FDCWD, name, how, sizeof how) : syscall(SYS_openat2, AT_FDCWD, name, how, sizeof how));
	SAY(opens ? opens(AT_FDCWD, "/dev/null", how, sizeof how) : 1);
}

/* What takes rights that not everybody has, to whom it is of no use. */
static void mounts(void)
{
	SAY(chroot(name));
	SAY(mount(name, "/mnt", "ext4", MS_RDONLY, ""));
	SAY(mount("none", name, "tmpfs", 0, ""));
	SAY(umount(name));
	SAY(umount2(name, MNT_DETACH));
	SAY(swapon(name, 0));
	SAY(swapoff(name));
}

static void change(void)
{
	char place[4096];
	SAY(symlink("other", name));
	SAY(mkdir(name, 0700));
	SAY(mkfifo(name, 0600));
	SAY(mknod(name, S_IFREG | 0600, 0));
	SAY(link("/dev/null", name));
	SAY(rmdir(name));
	SAY(chdir(name));
	SAY(fchdir(disk));
	SAY(readlink(name, place, sizeof place));
	SAY(truncate(name, lseek(disk, 0, SEEK_END)));
	SAY(ftruncate(disk, lseek(disk, 0, SEEK_END)));
	SAY(truncate(name, -1));
	SAY(chmod(name, 0600));
	SAY(fchmod(disk, 0600));
	SAY(fchmodat(AT_FDCWD, name, 0600, 0));
	SAY(chown(name, getuid(), getgid()));
	SAY(lchown(name, getuid(), getgid()));
	SAY(fchown(disk, getuid(), getgid()));
	SAY(utime(name, NULL));
	SAY(utimes(name, NULL));
	SAY(lutimes(name, NULL));
	SAY(futimes(disk, NULL));
	SAY(futimesat(AT_FDCWD, name, NULL));
	SAY(utimensat(AT_FDCWD, name, NULL, 0));
	SAY(futimens(disk, NULL));
	SAY(setxattr(name, "other.kind", "b", 1, 0));
	SAY(removexattr(name, "other.kind"));
	SAY(getxattr(name, "other.kind", place, 1));
	SAY(fgetxattr(disk, "other.kind", place, 1));
	SAY(open(name, O_RDWR | O_TMPFILE, 0600));
	SAY(open(name, O_RDONLY | O_DIRECTORY));
	SAY(open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
	SAY(unlinkat(AT_FDCWD, name, AT_REMOVEDIR));
}

/* A stream that is opened anew, as itself and as another file. */
static void reopen(void)
{
	FILE *stream = fopen(name, "r+");
	SAY_POINTER(stream = freopen(NULL, "r", stream));
	printf("%d %d\n", fgetc(stream), fputc('x', stream));
	SAY_POINTER(stream = freopen("/dev/null", "r+", stream));
	printf("%d %d\n", fgetc(stream), fputc('x', stream));
	SAY(fclose(stream));
	SAY_POINTER(freopen("/dev/null/nothing", "r", fopen(name, "r")));
	int before = dup(STDIN_FILENO);
	SAY_POINTER(freopen(name, "r", stdin));
	printf("%d\n", fgetc(stdin));
	SAY_POINTER(freopen(NULL, "r", stdin));
	printf("%d\n", fgetc(stdin));
	SAY_POINTER(freopen("/dev/null", "r", stdin));
	printf("%d\n", fgetc(stdin));
	dup2(before, STDIN_FILENO);
}

int main(int count, char **arguments)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	name = arguments[1];
	disk = open(name, O_RDWR);
	print();
	execute();
	look();
	mounts();
	change();
	reopen();
	return 0;
}
