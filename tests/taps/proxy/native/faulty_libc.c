/* A part of the C library with faults that a test switches on: preloaded into a process that runs the pump (pump_faults.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t), *__libc_realloc(void *, size_t), *__libc_calloc(size_t, size_t);

/* Allocations of at least so many bytes fail; 0: none does. */
volatile size_t refused_bytes;
/* While it is set, `send` does not return; how many threads are held in it. */
volatile int hold_sends, held_sends;
/* The next allocation of at least so many bytes first tries whether a byte passes from one descriptor to the other. */
volatile size_t tried_bytes;
volatile int tried_from, tried_to, tried_passes = -1; /* -1: not tried yet */

/* Whether a byte that is written to one descriptor can be read from the other within so many milliseconds. */
int byte_passes(int from, int to, int within_ms)
{
    char one = '.';
    struct pollfd readable = {.fd = to, .events = POLLIN};
    if (write(from, &one, 1) != 1 || poll(&readable, 1, within_ms) != 1)
        return 0;
    return read(to, &one, 1) == 1;
}

static int refused(size_t size)
{
    if (tried_bytes && size >= tried_bytes) {
        tried_bytes = 0;
        tried_passes = byte_passes(tried_from, tried_to, 5000);
    }
    if (!refused_bytes || size < refused_bytes)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return refused(size) ? NULL : __libc_malloc(size);
}

void *realloc(void *before, size_t size)
{
    return refused(size) ? NULL : __libc_realloc(before, size);
}

void *calloc(size_t count, size_t size)
{
    return refused(count * size) ? NULL : __libc_calloc(count, size);
}

ssize_t send(int to, const void *data, size_t size, int flags)
{
    static ssize_t (*real)(int, const void *, size_t, int);
    const struct timespec moment = {.tv_nsec = 1000000};
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");
    __atomic_fetch_add(&held_sends, 1, __ATOMIC_RELAXED);
    while (hold_sends)
        nanosleep(&moment, NULL);
    __atomic_fetch_sub(&held_sends, 1, __ATOMIC_RELAXED);
    return real(to, data, size, flags);
}
