/* A program in the place of the appliance's kernel, which connects to its disks as that does, and then takes what it can get of the host.
   What it got is one line on its console. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static void connect_to(const char *name)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strncpy(address.sun_path, name, sizeof address.sun_path - 1);
    if (connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address) != 0)
        exit(3);
}

/* Whether a host's socket of a name that is in no directory is to be had, which it is in the host's network namespace only. */
static int reaches_abstract_socket(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path + 1, ABSTRACT_SOCKET);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(ABSTRACT_SOCKET);
    return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, length) == 0;
}

/* Directories of libraries, and what is mounted in one of them, that nobody could write to whatever his rights. */
static int read_only_libraries(void)
{
    const char *libraries[] = { "/lib", "/lib64", "/usr/lib", "/usr/lib64", MOUNTED_LIBRARIES };
    int count = 0;
    for (int at = 0; at < 5; at++)
        count += access(libraries[at], W_OK) == -1 && errno == EROFS;
    return count;
}

/* What of its memory a core dump would have; 99 where there is no /proc to tell. */
static int dumped_memory(void)
{
    char text[16] = { 0 };
    int filter = open("/proc/self/coredump_filter", O_RDONLY);
    return read(filter, text, sizeof text - 1) <= 0 ? 99 : (int)strtol(text, NULL, 16);
}

/* All of its sets of capabilities together; 99 where there is no /proc to tell. */
static unsigned long long capabilities(int status)
{
    char text[8192] = { 0 };
    unsigned long long all = 0;
    if (read(status, text, sizeof text - 1) <= 0)
        return 0x99;
    for (char *set = text; (set = strstr(set, "\nCap")) != NULL; set++)
        all |= strtoull(set + 8, NULL, 16);
    return all;
}

/* MiB of memory of its own that it can write to, made writable at once or afterwards. */
static int private_memory(int protection)
{
    for (int pieces = 0;; pieces++) {
        char *piece = mmap(NULL, MIB, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED || mprotect(piece, MIB, PROT_READ | PROT_WRITE) != 0)
            return pieces;
        memset(piece, 1, MIB);
    }
}

static int refuses(long result)
{
    return result == -1 && errno == EPERM;
}

int main(int count, char **arguments)
{
    int inherited = 0;
    for (int descriptor = 3; descriptor < 1024; descriptor++)
        inherited += fcntl(descriptor, F_GETFD) != -1;
    /* Before it has its disks, nothing but namespaces and Landlock are in its way. */
    int foreign = open("/etc/passwd", O_RDONLY) >= 0;
    int status = open("/proc/self/status", O_RDONLY);
    struct stat directory = { 0 };
    struct rlimit core = { 0, 99 };
    struct statvfs room = { 0 };
    if (stat(".", &directory) != 0 || getrlimit(RLIMIT_CORE, &core) != 0 || statvfs(getenv("TMPDIR"), &room) != 0)
        return 6;
    /* By a name, which Landlock would let through. */
    int early = refuses(chmod("/dev/null", 0666)) && refuses(socket(AF_UNIX, SOCK_DGRAM, 0));
    int abstract = reaches_abstract_socket(), read_only = read_only_libraries(), dumped = dumped_memory();
    char name[4096];
    snprintf(name, sizeof name, "%s/memory", getenv("TMPDIR"));
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0)
        return 2;
    for (int at = 1; at < count; at++) {
        const char *disk = "virtio_uml.device=";
        if (strncmp(arguments[at], disk, strlen(disk)) == 0) {
            *strchr(arguments[at], ':') = 0;
            connect_to(arguments[at] + strlen(disk));
        }
    }
    while (!refuses(open("initramfs", O_RDONLY)))
        usleep(1000);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
    int kept = refuses(setrlimit(RLIMIT_DATA, &limit)) && refuses(setrlimit(RLIMIT_FSIZE, &limit));
    int refused = early && refuses(socket(AF_UNIX, SOCK_STREAM, 0)) && refuses(open(name, O_RDWR | O_CREAT, 0600))
        && refuses(execl("/bin/true", "true", NULL)) && refuses(memfd_create("more", 0));
    int shared = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
    long file_mib = 0;
    while (file_mib < 1 << 20 && pwrite(file, "x", 1, file_mib * MIB) == 1)
        file_mib++;
    int descriptors = 0, forks = 0;
    while (dup(file) >= 0)
        descriptors++;
    /* Each child sees how much memory of its own it gets, one after the other. */
    int private_mib[2];
    for (int way = 0; way < 2; way++) {
        int pipe_ends[2];
        close(10 + 2 * way), close(11 + 2 * way);
        if (pipe(pipe_ends) != 0)
            return 4;
        if (fork() == 0) {
            int mib = private_memory(way == 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
            _exit(write(pipe_ends[1], &mib, sizeof mib) != sizeof mib);
        }
        if (read(pipe_ends[0], &private_mib[way], sizeof(int)) != sizeof(int))
            return 5;
    }
    for (pid_t child; forks < 10000 && (child = fork()) >= 0; forks++)
        if (child == 0)
            for (;;)
                pause();
    printf("blockyard: it has capabilities %llx, inherited %d, others' files %d, limits kept %d, the rest refused %d, shared memory %d, a file of %ld MiB, memory of %d and %d "
           "MiB, descriptors %d, processes %d, a directory of mode %o, abstract sockets %d, read-only libraries %d, core dumps of %d bytes, of memory %d, room for %lu MiB\n",
           capabilities(status), inherited, foreign, kept, refused, shared, file_mib, private_mib[0], private_mib[1], descriptors, forks,
           directory.st_mode & 07777, abstract, read_only, (int)core.rlim_max, dumped,
           room.f_blocks * room.f_frsize / MIB);
    fflush(stdout);
    return 0;
}
