/* A process that is forked, or has descriptors taken and closed, while another of its threads is in the middle of
 * something. The first argument is the disk's name, the second what to do, the third where a server is to listen or, where
 * none is needed, a file with the disk's bytes. */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
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
static char before[NUMBERS];

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

/* Such as an allocator has, which is linked to the program: its handlers are called before the library's, and come
 * after them in the child. */
static pthread_mutex_t allocator = PTHREAD_MUTEX_INITIALIZER;
extern void *__libc_malloc(size_t size);

void *malloc(size_t size)
{
	pthread_mutex_lock(&allocator);
	void *memory = __libc_malloc(size);
	pthread_mutex_unlock(&allocator);
	return memory;
}

static void locks_allocator(void)
{
	pthread_mutex_lock(&allocator);
}

static void unlocks_allocator(void)
{
	pthread_mutex_unlock(&allocator);
}

/* A child has nothing of a connection that is made when it is, and is not kept from making its own. The fork does not
 * wait for it: the server answers after that. */
static void forks_while_another_connects(void)
{
	static char after[NUMBERS];
	CHECK(sem_wait(&is_begun) == 0);
	pid_t child = fork();
	if (child == 0) {
		alarm(60);
		find_descriptors(after);
		for (int number = 0; number < NUMBERS; number++)
			CHECK(!after[number] || before[number] || number == connection);
		CHECK(open(name, O_RDWR) == -1);
		_exit(0);
	}
	CHECK(child > 0 && sem_post(&goes_on) == 0);
	is_well(child);
}

/* A number that the library has for a moment is free after that, and no file meanwhile. */
static void takes_a_number_while_another_connects(pthread_t other)
{
	struct stat theirs, after;
	char byte = 0;
	CHECK(fstat(listener, &theirs) == 0);
	CHECK(sem_wait(&is_begun) == 0);
	for (int number = 3; number < 700; number++)
		if (!before[number] && number != connection) {
			CHECK(read(number, &byte, 1) == -1 && errno == EBADF && write(number, &byte, 1) == -1 && errno == EBADF);
			CHECK(pread(number, &byte, 1, 0) == -1 && errno == EBADF && pwrite(number, &byte, 1, 0) == -1 && errno == EBADF);
		}
	CHECK(sem_post(&goes_on) == 0);
	CHECK(dup2(listener, 50) == 50);
	CHECK(pthread_join(other, NULL) == 0);
	CHECK(fstat(50, &after) == 0 && theirs.st_ino == after.st_ino && close(50) == 0);
}

static void connects(const char *what)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	pthread_t server, other;
	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(listener >= 0 && bind(listener, (void *)&address, sizeof address) == 0 && listen(listener, 8) == 0);
	CHECK(pthread_create(&server, NULL, serves, NULL) == 0);
	find_descriptors(before);
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

/* Any number of children may be about to have the disk, who have closed all else. */
static void spawns(void)
{
	posix_spawn_file_actions_t actions[150];
	char script[4200];
	pid_t child;
	snprintf(script, sizeof script, "head -c %d <&3 | cmp -n %d - %s", BLOCK, BLOCK, path);
	char *words[] = { "sh", "-c", script, NULL };
	for (int each = 0; each < 150; each++) {
		CHECK(posix_spawn_file_actions_init(&actions[each]) == 0);
		CHECK(posix_spawn_file_actions_addclosefrom_np(&actions[each], 3) == 0);
		CHECK(posix_spawn_file_actions_addopen(&actions[each], 3, name, O_RDONLY, 0) == 0);
	}
	for (int each = 0; each < 150; each++) {
		if (each % 50 == 0) {
			CHECK(posix_spawn(&child, "/bin/sh", &actions[each], NULL, words, environ) == 0);
			is_well(child);
		}
		CHECK(posix_spawn_file_actions_destroy(&actions[each]) == 0);
	}
}

static volatile int signals;

static void count_signal(int number)
{
	signals++;
}

/* Where no thread can be started that would tell of the end, nothing is begun. */
static void has_no_room_for_threads(void)
{
	static char bytes[2][BLOCK];
	struct aiocb disks, files, *list[] = { &disks, &files };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct rlimit little, before;
	unsigned long pages;
	disk = open(name, O_RDWR);
	disks = (struct aiocb){ .aio_fildes = disk, .aio_buf = bytes[0], .aio_nbytes = BLOCK, .aio_lio_opcode = LIO_READ };
	files = disks, files.aio_buf = bytes[1];
	CHECK(disk >= 0 && (files.aio_fildes = open(path, O_RDONLY)) >= 0);
	CHECK(signal(SIGUSR1, count_signal) == SIG_DFL && lio_listio(LIO_WAIT, list, 1, NULL) == 0);
	FILE *sizes = fopen("/proc/self/statm", "r");
	CHECK(sizes && fscanf(sizes, "%lu", &pages) == 1 && fclose(sizes) == 0 && getrlimit(RLIMIT_AS, &before) == 0);
	little = before, little.rlim_cur = pages * 4096 + (1 << 20);
	CHECK(setrlimit(RLIMIT_AS, &little) == 0);
	for (int count = 1; count <= 2; count++) {
		errno = 0;
		CHECK(lio_listio(LIO_NOWAIT, list, count, &event) == -1 && errno == EAGAIN);
		for (int each = 0; each < count; each++)
			CHECK(aio_error(list[each]) == EAGAIN);
	}
	disks.aio_sigevent = event;
	CHECK(aio_read(&disks) == -1 && errno == EAGAIN && aio_error(&disks) == EAGAIN);
	disks.aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(setrlimit(RLIMIT_AS, &before) == 0 && signals == 0);
	memset(bytes, 0, sizeof bytes);
	sigset_t all, some;
	sigfillset(&all);
	CHECK(sigprocmask(SIG_SETMASK, &all, &some) == 0 && lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
	sigsuspend(&some);
	CHECK(signals == 1 && aio_error(&disks) == 0 && aio_error(&files) == 0 && memcmp(bytes[0], bytes[1], BLOCK) == 0);
}

int main(int count, char **words)
{
	CHECK(count == 4);
	name = words[1], path = words[3];
	alarm(120);
	CHECK(pthread_atfork(locks_allocator, unlocks_allocator, unlocks_allocator) == 0);
	CHECK(sem_init(&is_begun, 0, 0) == 0 && sem_init(&goes_on, 0, 0) == 0);
	if (strcmp(words[2], "reads") == 0)
		forks_while_another_reads();
	else if (strcmp(words[2], "locks") == 0)
		locks_records();
	else if (strcmp(words[2], "spawns") == 0)
		spawns();
	else if (strcmp(words[2], "threads") == 0)
		has_no_room_for_threads();
	else
		connects(words[2]);
	return 0;
}
