/* A process that is forked, or has descriptors taken and closed, while another of its threads is in the middle of
 * something. The first argument is the disk's name, the second what to do, the third where a server is to listen. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); _exit(1); } } while (0)
#define BLOCK 4096
#define NUMBERS 4096

static const char *name, *path;
static sem_t is_begun, goes_on;
static int listener, connection = -1, disk;

/* Lets one in, and does not answer until somebody wants it to: then it is gone. */
static void *serves(void *argument)
{
	connection = accept(listener, NULL, NULL);
	CHECK(connection >= 0);
	CHECK(sem_post(&is_begun) == 0 && sem_wait(&goes_on) == 0);
	usleep(300000);
	CHECK(unlink(path) == 0 && shutdown(listener, SHUT_RDWR) == 0 && shutdown(connection, SHUT_RDWR) == 0);
	return NULL;
}

static void *opens(void *argument)
{
	CHECK(open(name, O_RDWR) == -1);
	return NULL;
}

static void *reads(void *argument)
{
	char bytes[BLOCK];
	CHECK(sem_post(&is_begun) == 0);
	CHECK(pread(disk, bytes, BLOCK, 0) == BLOCK);
	return NULL;
}

static void find_descriptors(char *found)
{
	DIR *directory = opendir("/proc/self/fd");
	CHECK(directory);
	for (struct dirent *entry; (entry = readdir(directory)); ) {
		int number = atoi(entry->d_name);
		if (entry->d_name[0] != '.' && number != dirfd(directory)) {
			CHECK(number < NUMBERS);
			found[number] = 1;
		}
	}
	closedir(directory);
}

static void is_well(pid_t child)
{
	int status;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* A child has nothing of a connection that is made when it is, and is not kept from making its own. */
static void forks_while_another_connects(void)
{
	static char before[NUMBERS], after[NUMBERS];
	find_descriptors(before);
	CHECK(sem_wait(&is_begun) == 0 && sem_post(&goes_on) == 0);
	pid_t child = fork();
	if (child == 0) {
		alarm(60);
		find_descriptors(after);
		for (int number = 0; number < NUMBERS; number++)
			CHECK(!after[number] || before[number] || number == connection);
		CHECK(open(name, O_RDWR) == -1);
		_exit(0);
	}
	is_well(child);
}

/* A number that the library has for a moment is free after that. */
static void takes_a_number_while_another_connects(pthread_t other)
{
	struct stat before, after;
	CHECK(fstat(listener, &before) == 0);
	CHECK(sem_wait(&is_begun) == 0 && sem_post(&goes_on) == 0);
	CHECK(dup2(listener, 50) == 50);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(fstat(50, &after) == 0 && before.st_ino == after.st_ino && close(50) == 0);
}

static void connects(const char *what)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pthread_t server, other;
	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(listener >= 0 && bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
	CHECK(pthread_create(&server, NULL, serves, NULL) == 0);
	CHECK(pthread_create(&other, NULL, opens, NULL) == 0);
	if (strcmp(what, "connects") == 0) {
		forks_while_another_connects();
		CHECK(pthread_join(other, NULL) == 0);
	} else
		takes_a_number_while_another_connects(other);
	CHECK(pthread_join(server, NULL) == 0);
}

/* A lock is given up once parent and child have closed the descriptor, whatever the parent did when it forked. */
static void forks_while_another_reads(void)
{
	int ends[2];
	char byte;
	pthread_t other;
	disk = open(name, O_RDWR);
	CHECK(disk >= 0 && flock(disk, LOCK_EX) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	CHECK(pthread_create(&other, NULL, reads, NULL) == 0 && sem_wait(&is_begun) == 0);
	usleep(200000);
	pid_t child = fork();
	if (child == 0) {
		CHECK(close(ends[0]) == 0 && close(disk) == 0 && write(ends[1], "c", 1) == 1);
		CHECK(read(ends[1], &byte, 1) == 0);
		_exit(0);
	}
	CHECK(close(ends[1]) == 0 && pthread_join(other, NULL) == 0 && read(ends[0], &byte, 1) == 1);
	CHECK(close(disk) == 0 && (disk = open(name, O_RDWR)) >= 0);
	CHECK(flock(disk, LOCK_EX | LOCK_NB) == 0 && close(ends[0]) == 0);
	is_well(child);
}

/* Whatever closes a descriptor of the disk gives the process's record locks up. */
static void locks_records(void)
{
	struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	int other = open("/dev/null", O_RDONLY);
	CHECK((disk = open(name, O_RDWR)) >= 0 && other >= 0);
	for (int how = 0; how < 7; how++) {
		int copy = fcntl(disk, F_DUPFD, 100);
		CHECK(copy >= 100 && fcntl(disk, F_SETLK, &all) == 0);
		switch (how) {
		case 0: break;
		case 1: CHECK(dup2(other, copy) == copy); break;
		case 2: CHECK(dup3(other, copy, O_CLOEXEC) == copy); break;
		case 3: CHECK(dup2(disk, copy) == copy); break;
		case 4: CHECK(close_range(copy, copy, 0) == 0); break;
		case 5: closefrom(copy); break;
		case 6: CHECK(dup2(copy, copy) == copy); break;
		}
		int is_kept = how == 0 || how == 6;
		pid_t child = fork();
		if (child == 0) {
			struct flock found = all;
			CHECK(fcntl(disk, F_GETLK, &found) == 0);
			CHECK(found.l_type == (is_kept ? F_WRLCK : F_UNLCK));
			_exit(0);
		}
		is_well(child);
		close(copy);
	}
}

int main(int count, char **words)
{
	CHECK(count == 4);
	name = words[1], path = words[3];
	CHECK(sem_init(&is_begun, 0, 0) == 0 && sem_init(&goes_on, 0, 0) == 0);
	if (strcmp(words[2], "reads") == 0)
		forks_while_another_reads();
	else if (strcmp(words[2], "locks") == 0)
		locks_records();
	else
		connects(words[2]);
	return 0;
}
