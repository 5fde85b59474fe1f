/* Ends a thread where no file can be opened any more. */
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static void *waits(void *nothing)
{
    for (;;)
        pause();
    return nothing;
}

int main(void)
{
    const struct rlimit none = {0, 0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, waits, NULL) || setrlimit(RLIMIT_NOFILE, &none))
        return 1;
    if (pthread_cancel(thread) || pthread_join(thread, NULL))
        return 1;
    puts("ended");
    return 0;
}
