/* Programs that are executed with no environment, by each call that does so: each compares the disk, which is the first
 * argument, with a file, which is the second. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define PROGRAM "/usr/bin/cmp"

static char *words[] = {"cmp", "-n", "4096", NULL, NULL, NULL}, *none[] = {NULL};
static char *foreign[] = {"A=b", "LD_PRELOAD=/nowhere.so", NULL};

static void execute(int way)
{
	int program = open(PROGRAM, O_RDONLY | O_CLOEXEC), status;
	pid_t child;
	switch (way) {
	case 0: execve(PROGRAM, words, none); break;
	case 1: execve(PROGRAM, words, foreign); break;
	case 2: execve(PROGRAM, words, NULL); break;
	case 3: execvpe("cmp", words, none); break;
	case 4: fexecve(program, words, none); break;
	case 5: execveat(AT_FDCWD, PROGRAM, words, none, 0); break;
	case 6: clearenv(); execv(PROGRAM, words); break;
	case 7: clearenv(); execvp(PROGRAM, words); break;
	case 8: clearenv(); execl(PROGRAM, words[0], words[1], words[2], words[3], words[4], NULL); break;
	case 9: clearenv(); execlp(PROGRAM, words[0], words[1], words[2], words[3], words[4], NULL); break;
	case 10:
	case 11:
		CHECK((way == 10 ? posix_spawn : posix_spawnp)(&child, PROGRAM, NULL, NULL, words, none) == 0);
		CHECK(waitpid(child, &status, 0) == child);
		_exit(status != 0);
	}
	_exit(127);
}

int main(int count, char **arguments)
{
	words[3] = arguments[1];
	words[4] = arguments[2];
	for (int way = 0; way < 12; way++) {
		int status;
		pid_t child = fork();
		if (child == 0)
			execute(way);
		CHECK(waitpid(child, &status, 0) == child);
		if (status != 0)
			fprintf(stderr, "way %d: %x\n", way, status);
		CHECK(status == 0);
	}
	/* What fails changes nothing. */
	CHECK(execve("/nowhere", words, none) == -1 && errno == ENOENT && getenv("LD_PRELOAD"));
	return 0;
}
