/* Sets the first vector registers of a process, as User-Mode Linux does that knows fewer than the processor has: those that x87 and SSE have.
 * Prints what comes of it. */
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GIVEN = 576, ALL = 16384, SSE_AT = 160, COMPONENTS_AT = 512, SSE = 2 };

static unsigned char registers[ALL], after[ALL];
static long word = 0x123456789;

static size_t get(pid_t child, void *into, size_t bytes) {
    struct iovec piece = {into, bytes};
    return ptrace(PTRACE_GETREGSET, child, NT_X86_XSTATE, &piece) == 0 ? piece.iov_len : 0;
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        _exit(7);
    }
    int status;
    waitpid(child, &status, 0);
    size_t all = get(child, after, ALL);
    if (all <= GIVEN) {
        puts("a processor without AVX");
        return 0;
    }
    get(child, registers, GIVEN);
    for (int round = 0; round < 3; round++) {
        memset(registers + SSE_AT, 0x41 + round, 16);
        unsigned long components;
        memcpy(&components, registers + COMPONENTS_AT, sizeof components);
        components |= SSE;
        memcpy(registers + COMPONENTS_AT, &components, sizeof components);
        struct iovec piece = {registers, GIVEN};
        if (ptrace(PTRACE_SETREGSET, child, NT_X86_XSTATE, &piece) != 0) {
            printf("cannot set them: %s\n", strerror(errno));
            return 1;
        }
        if (get(child, after, ALL) != all || memcmp(registers + SSE_AT, after + SSE_AT, 16) != 0) {
            puts("they are others");
            return 1;
        }
        memcpy(&components, after + COMPONENTS_AT, sizeof components);
        if (components & ~3ul) {
            printf("others are set too: %lx\n", components);
            return 1;
        }
    }
    /* What is to be done with all other requests is libc's. */
    errno = 0;
    if (ptrace(PTRACE_PEEKDATA, child, &word, 0) != word || errno != 0) {
        puts("cannot look");
        return 1;
    }
    if (ptrace(PTRACE_PEEKDATA, child, 8, 0) != -1 || errno == 0) {
        puts("looks where nothing is");
        return 1;
    }
    ptrace(PTRACE_CONT, child, 0, 0);
    waitpid(child, &status, 0);
    puts(WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "set" : "it does not go on");
    return 0;
}
