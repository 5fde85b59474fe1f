/* Streams of stdio, those that a program begins with and those that it opens, on a disk or a file (the first argument)
 * of the size that is the third one, and on another file (the second). What glibc does on a file is the model. Who
 * started it sees on stdout what was meant for that. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#define CHECK(condition) \
	do { if (!(condition)) { dprintf(told, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)

static const char *name, *other;
static off_t size;
/* The descriptor that was stderr first, and one by which the disk is looked at. */
static int told, disk;

/* Whether the disk has a text at a place. */
static int has(off_t place, const char *text)
{
	char bytes[64] = "";
	return pread(disk, bytes, strlen(text), place) == strlen(text) && !strcmp(bytes, text);
}

/* What is at a place of the disk before something is written there. */
static void clear(off_t place)
{
	static const char zeroes[64];
	CHECK(pwrite(disk, zeroes, sizeof zeroes, place) == sizeof zeroes);
}

static void opened(void)
{
	char text[16] = "";
	clear(1000);
	FILE *stream = fopen(name, "r+");
	CHECK(stream && fileno(stream) > told && fseek(stream, 1000, SEEK_SET) == 0 && fputs("opened\n", stream) >= 0);
	CHECK(ftell(stream) == 1007 && !has(1000, "opened") && fseek(stream, -3, SEEK_END) == 0 && ftell(stream) == size - 3);
	CHECK(has(1000, "opened\n") && fread(text, 1, 10, stream) == 3 && feof(stream) && !ferror(stream));
	rewind(stream);
	CHECK(fseek(stream, 1001, SEEK_SET) == 0 && getc(stream) == 'p' && ungetc('x', stream) == 'x' && getc(stream) == 'x');
	char *line = NULL;
	size_t room = 0;
	CHECK(getline(&line, &room, stream) == 5 && !strcmp(line, "ened\n") && fclose(stream) == 0);
	CHECK(!fopen(name, "z") && errno == EINVAL);
	int descriptor = open(name, O_RDONLY | O_CLOEXEC);
	CHECK(!fdopen(descriptor, "w") && errno == EINVAL && !fdopen(descriptor, "r+"));
	CHECK((stream = fdopen(descriptor, "r")) && fileno(stream) == descriptor);
	CHECK(fseek(stream, 1000, SEEK_SET) == 0 && fscanf(stream, "%15s", text) == 1 && !strcmp(text, "opened"));
	CHECK(fputc('x', stream) == EOF && errno == EBADF && fclose(stream) == 0);
	CHECK(fcntl(descriptor, F_GETFD) == -1 && errno == EBADF);
	CHECK((stream = fopen(name, "re")) && fcntl(fileno(stream), F_GETFD) == FD_CLOEXEC && fclose(stream) == 0);
}

static void wide(void)
{
	wchar_t text[16];
	clear(2000);
	FILE *stream = fopen(name, "r+");
	CHECK(fseek(stream, 2000, SEEK_SET) == 0 && fwprintf(stream, L"w\u00e4de %d\n", 1) == 7 && fclose(stream) == 0);
	CHECK(has(2000, "w\xc3\xa4" "de 1\n"));
	stream = fopen(name, "r");
	CHECK(fseek(stream, 2000, SEEK_SET) == 0 && fgetws(text, 16, stream) && !wcscmp(text, L"w\u00e4de 1\n"));
	CHECK(fwide(stream, 0) > 0 && freopen(NULL, "r", stream) == stream && fwide(stream, 0) == 0 && fclose(stream) == 0);
	int before = dup(STDIN_FILENO);
	CHECK(freopen(name, "r", stdin) == stdin && fseek(stdin, 2001, SEEK_SET) == 0 && getwchar() == L'\u00e4');
	CHECK(dup2(before, STDIN_FILENO) == STDIN_FILENO && close(before) == 0 && freopen("/dev/null", "r", stdin) == stdin);
}

static void reopened(void)
{
	char text[16] = "";
	clear(3000);
	FILE *file = fopen(other, "w+");
	CHECK(fputs("the other file\n", file) >= 0);
	int number = fileno(file);
	/* What was not written yet is written then. */
	CHECK(freopen(name, "r+", file) == file && fileno(file) == number && fseek(file, 3000, SEEK_SET) == 0);
	CHECK(fputs("reopened", file) >= 0 && freopen(other, "re", file) == file && fileno(file) == number);
	CHECK(has(3000, "reopened") && fcntl(number, F_GETFD) == FD_CLOEXEC);
	CHECK(fgets(text, 16, file) && !strcmp(text, "the other file\n"));
	CHECK(freopen(name, "re", file) == file && fcntl(number, F_GETFD) == FD_CLOEXEC && fseek(file, 3000, SEEK_SET) == 0);
	CHECK(getc(file) == 'r' && freopen(NULL, "r+", file) == file && fileno(file) == number && ftell(file) == 0);
	CHECK(fseek(file, 3000, SEEK_SET) == 0 && fputc('R', file) == 'R' && fclose(file) == 0 && has(3000, "Reopened"));
	/* Where it fails, the stream is closed. */
	file = fopen(name, "r");
	number = fileno(file);
	CHECK(!freopen("/none/such", "r", file) && errno == ENOENT && fcntl(number, F_GETFD) == -1 && errno == EBADF);
	CHECK(getc(file) == EOF);
	file = fopen(other, "r");
	number = fileno(file);
	CHECK(!freopen(name, "wx", file) && errno == EEXIST && fcntl(number, F_GETFD) == -1 && errno == EBADF);
	CHECK(getc(file) == EOF && freopen(name, "r", file) == file && getc(file) != EOF && fclose(file) == 0);
}

/* Whoever has kept the address of a stream has it whatever its descriptor is on. */
static void kept(void)
{
	FILE *out = stdout, *in = stdin;
	int before = dup(STDOUT_FILENO), input = dup(STDIN_FILENO);
	clear(4000);
	CHECK(printf("%s", "begun ") == 6 && fflush(out) == 0);
	CHECK(dup2(disk, STDOUT_FILENO) == STDOUT_FILENO && lseek(disk, 4000, SEEK_SET) == 4000);
	CHECK(fprintf(out, "kept %d\n", 1) == 7 && printf("and named") == 9 && !has(4000, "kept") && fflush(stdout) == 0);
	CHECK(has(4000, "kept 1\nand named") && out == stdout);
	CHECK(dup2(before, STDOUT_FILENO) == STDOUT_FILENO && puts("ended") >= 0 && fflush(out) == 0);
	CHECK(dup2(disk, STDIN_FILENO) == STDIN_FILENO && lseek(disk, 4000, SEEK_SET) == 4000 && getc(in) == 'k');
	/* What was read too much is given back. */
	CHECK(fflush(stdin) == 0 && lseek(disk, 0, SEEK_CUR) == 4001);
	CHECK(freopen("/dev/null", "r", stdin) == in && getchar() == EOF);
	CHECK(dup2(input, STDIN_FILENO) == STDIN_FILENO && close(before) == 0 && close(input) == 0);
	/* At its end, a child writes what it has not yet written. */
	clear(4100);
	int status;
	pid_t child = fork();
	if (child == 0) {
		CHECK(lseek(disk, 4100, SEEK_SET) == 4100 && freopen(other, "w", stdout) == out && printf("lost") == 4);
		CHECK(freopen(name, "r+", stdout) == out && fseek(stdout, 4100, SEEK_SET) == 0 && printf("a child's") == 9);
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0 && has(4100, "a child's"));
}

/* Nothing of stderr waits to be written. */
static void errors_are_told(void)
{
	clear(5000);
	CHECK(dup2(disk, STDERR_FILENO) == STDERR_FILENO && lseek(disk, 5000, SEEK_SET) == 5000);
	CHECK(fprintf(stderr, "last %s", "words") == 10 && has(5000, "last words"));
	errno = ENOENT;
	perror(" of");
	CHECK(has(5010, " of: No such file or directory\n"));
	CHECK(dup2(told, STDERR_FILENO) == STDERR_FILENO);
}

/* A disk has an end, where a file would grow. */
static void ends(void)
{
	static char bytes[100000];
	for (int unbuffered = 0; unbuffered < 2; unbuffered++) {
		FILE *stream = fopen(name, "r+");
		CHECK(!unbuffered || setvbuf(stream, NULL, _IONBF, 0) == 0);
		CHECK(fseek(stream, -50000, SEEK_END) == 0);
		errno = 0;
		CHECK(fwrite(bytes, 1, sizeof bytes, stream) == 50000 && errno == ENOSPC && ferror(stream));
		clearerr(stream);
		for (int i = 0; i < 5; i++)
			CHECK(fwrite(bytes, 1, 20000, stream) < 20000 && ferror(stream));
		fclose(stream);
	}
	FILE *stream = fopen(name, "a");
	CHECK(fputs("appended", stream) >= 0 && ftell(stream) == size + 8);
	CHECK(fflush(stream) == EOF && errno == ENOSPC && ferror(stream));
	fclose(stream);
}

int main(int count, char **arguments)
{
	struct stat found;
	name = arguments[1];
	other = arguments[2];
	size = atoll(arguments[3]);
	told = dup(STDERR_FILENO);
	disk = open(name, O_RDWR);
	CHECK(setlocale(LC_ALL, "C.UTF-8") && disk >= 0 && fstat(disk, &found) == 0);
	opened();
	wide();
	reopened();
	kept();
	errors_are_told();
	if (S_ISBLK(found.st_mode))
		ends();
	puts("all");
	return 0;
}
