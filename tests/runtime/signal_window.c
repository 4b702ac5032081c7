/* SIGTERM in a chosen moment of a process, once: preloaded, so that the moment does not depend on the machine
 * (test_signal_windows.py). SIGNAL_IN: a part of the command line of the process; SIGNAL_AFTER: a part of what it writes to
 * stdout or stderr; SIGNAL_ONCE: a file that exists until the signal was sent. The moment is when that has been written, or,
 * with SIGNAL_AT=wait, when its main thread next waits: all of Python's own checks for signals are over then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile int written;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_in(const void *text, size_t length, const char *variable)
{
    const char *part = getenv(variable);
    return part && memmem(text, length, part, strlen(part)) != NULL;
}

static int is_chosen(void)
{
    static int chosen = -1;
    if (chosen < 0) {
        char line[4096];
        int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
        ssize_t length = REAL(read)(file, line, sizeof line);
        close(file);
        for (ssize_t i = 0; i < length; i++)
            if (!line[i])
                line[i] = ' ';
        chosen = length > 0 && is_in(line, (size_t)length, "SIGNAL_IN");
    }
    return chosen;
}

static void send_once(void)
{
    const char *once = getenv("SIGNAL_ONCE");
    written = 0;
    if (once && unlink(once) == 0)
        raise(SIGTERM);
}

static void before_wait(void)
{
    if (written && getpid() == (pid_t)syscall(SYS_gettid))
        send_once();
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    ssize_t done = REAL(write)(fd, bytes, length);
    if ((fd == 1 || fd == 2) && is_chosen() && is_in(bytes, length, "SIGNAL_AFTER")) {
        const char *at = getenv("SIGNAL_AT");
        if (at && strcmp(at, "wait") == 0)
            written = 1;
        else
            send_once();
    }
    return done;
}

ssize_t read(int fd, void *bytes, size_t length)
{
    if (fd == 0)
        before_wait();
    return REAL(read)(fd, bytes, length);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    before_wait();
    return REAL(epoll_wait)(fd, events, most, timeout);
}

int epoll_pwait(int fd, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
    before_wait();
    return REAL(epoll_pwait)(fd, events, most, timeout, mask);
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    before_wait();
    return REAL(poll)(fds, count, timeout);
}

int sigwait(const sigset_t *set, int *number)
{
    before_wait();
    return REAL(sigwait)(set, number);
}
