/* Moves the middle of responses from upstream sockets to client sockets, on a thread that does not need the interpreter.
 *
 * A flow is a response that the relay has handed to the pump, with its two sockets. States of a flow:
 *
 * PUMPED --a read that is clearly from the middle of the body, and that the client takes whole--> PUMPED
 * PUMPED --anything else: the end, an error, unusual framing, a client that takes less, `recall`--> RETURNED
 * RETURNED --`collect`--> IDLE --`hand_over`--> PUMPED
 *
 * The relay hands over two sockets when a response's head has gone out. It does not use them until `collect` returns them,
 * with the read that the thread did not finish: the relay handles that read as if it had read it itself. The thread sends
 * each read unchanged, stamps it, and keeps a copy for the recorder. It collects the reads of one response in one message
 * for up to `hold_ns`, because one message costs the recorder less than many.
 *
 * One mutex guards the pump. The thread releases it while it reads and writes sockets. Code that holds the mutex builds no
 * Python object, waits for no socket, and copies at most one read. A function called from Python keeps the interpreter's lock
 * while it waits for the mutex: if it released that lock, it could hold the mutex while it waits to get the lock back.
 *
 * What the thread needs to end or to return a flow is allocated in advance: `close`, `recall` and `send_at_once` need no
 * descriptor and no memory. `collect` keeps what it has no memory for until the next call.
 *
 * Functions return None with Py_NewRef. Py_RETURN_NONE in the headers of CPython 3.12.1 and 3.13.0 assumes that None is
 * immortal. On 3.11 it is not, and a file that was built with these headers runs there as well.
 */
#define Py_LIMITED_API 0x030b0000
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* READ_BYTES: the most bytes of one read. AT_ONCE: the most sockets of one wake-up. RUN_BYTES: a message for the recorder is
 * closed at this size. SPREAD: flows that begin together are due at this many different times. LEAST_ROOM: bytes with which
 * a message is allocated. BLOCK: flows that are allocated together, and checked together under the mutex. */
enum { READ_BYTES = 262144, AT_ONCE = 64, RUN_BYTES = 65536, SPREAD = 16, LEAST_ROOM = 1024, BLOCK = 64 };
/* Bytes in MessagePack: of ResponseReads before its reads, of a read before its data, of ReadsDropped. */
enum { ARRIVALS_HEAD = 16, STAMP_BYTES = 15, DROPPED_BYTES = 20 };
/* Above this rate (bytes a second), measured over RATE_NS (ns), the data is a bulk: 800 streams of 20 events a second, of
 * 250 bytes each, are 4 MiB a second; a burst that arrives as fast as it can is about 40 MiB a second. */
enum { BULK_BYTES_S = 8388608, RATE_NS = 20000000 };
/* The most that a caller may pass, so that sums do not overflow: more bytes than a machine has; a day (ns). */
static const uint64_t MAX_BYTES = (uint64_t)1 << 48, MAX_HOLD_NS = 86400000000000u;
/* How long a flow's share lasts (ns). */
static const uint64_t SHARE_NS = 250000000;
/* LITTLE_BYTES: with at most this many bytes in SHARE_NS a flow may use all of the capacity (the least share: LEAST_SHARE in
 * recorder/fair_shares.py). Flows with more leave one part of SPARED_PARTS to those: fast ones fill the rest within
 * milliseconds, before Python collects. */
enum { LITTLE_BYTES = 16384, SPARED_PARTS = 8 };
/* The epoll data of `wake_fd`. No flow has this token. */
static const uint64_t WAKE = UINT64_MAX;

/* --- the position in a body ----------------------------------------------------------------------------------------- */

/* Chunked: before a size, in its digits, after its CR, in data, at the CR and at the LF after it. By length. Until EOF.
 * framing.py has the same numbers. */
enum { SIZE_BEGIN, SIZE, SIZE_LF, DATA, DATA_CR, DATA_LF, LENGTH, UNTIL_EOF };

typedef struct {
    int phase;
    uint64_t left; /* bytes to come, of the chunk or of the body; in SIZE the value of the digits so far */
} Place;

/* A digit is added to a size below this: a chunk stays below 2 GiB. framing.py says why, and has the same number. */
static const uint64_t MAX_SIZE = (uint64_t)1 << 27;

static int digit_of(unsigned char one)
{
    if (one >= '0' && one <= '9')
        return one - '0';
    one |= 0x20;
    return one >= 'a' && one <= 'f' ? one - 'a' + 10 : -1;
}

/* Moves the position past a read. Returns 0, and leaves the position, if the read is not clearly from a body's middle. */
static int follow(Place *place, const unsigned char *at, size_t size)
{
    const unsigned char *end = at + size;
    Place now = *place;
    if (now.phase == LENGTH) {
        if (size >= now.left)
            return 0;
        place->left -= size;
        return 1;
    }
    while (at < end && now.phase != UNTIL_EOF) {
        if (now.phase == DATA) {
            uint64_t here = (uint64_t)(end - at) < now.left ? (uint64_t)(end - at) : now.left;
            at += here;
            now.left -= here;
            if (!now.left)
                now.phase = DATA_CR;
            continue;
        }
        unsigned char one = *at++;
        int digit = digit_of(one);
        if (now.phase == DATA_CR && one == '\r')
            now.phase = DATA_LF;
        else if (now.phase == DATA_LF && one == '\n')
            now = (Place){SIZE_BEGIN, 0};
        else if (now.phase == SIZE_LF && one == '\n')
            now.phase = DATA;
        else if (now.phase <= SIZE && digit >= 0 && now.left < MAX_SIZE)
            now = (Place){SIZE, now.left * 16 + digit};
        else if (now.phase == SIZE && one == '\r' && now.left)
            now.phase = SIZE_LF;
        else
            return 0;
    }
    *place = now;
    return 1;
}

/* --- the pump ------------------------------------------------------------------------------------------------------- */

/* One message for the recorder in MessagePack, as recorder/protocol.py defines it:
 * ResponseReads is [7, stream, [[at_ns, data], ...]], ReadsDropped is [4, stream, reads]. */
typedef struct Message {
    struct Message *next;
    uint64_t number; /* in the order in which messages are finished */
    size_t size, room;
    uint32_t reads; /* 0: it is ReadsDropped */
    unsigned char data[];
} Message;

typedef struct {
    Message *first, *last;
    size_t bytes;
} Messages;

/* How a flow was returned. */
typedef struct {
    uint64_t at_ns;
    Place place; /* before the data */
    char *data;  /* a read that the client has not taken whole; NULL: none */
    size_t size, sent;
    int reset;
} Returned;

typedef struct Flow {
    struct Flow *next; /* in the list of idle or of returned flows */
    uint32_t slot, generation; /* together they are the token */
    int upstream, client, captured, pumped, recalled; /* pumped: the state is PUMPED; recalled: the thread starts no read */
    uint64_t stream, last_ns, due_ns, dropped;
    uint64_t share_ns, share_bytes; /* when the share began, and how much of it is taken; the thread alone uses them */
    Place place;
    Message *open; /* ResponseReads to which reads are added */
    Returned returned;
    uint64_t after; /* the flow is returned after the message with this number */
} Flow;

typedef struct {
    PyObject_HEAD
    /* Set once, or used by the thread alone. */
    pthread_t thread;
    pid_t owner; /* the process that has the thread; a forked child does not have it */
    int epoll, ready_fd, wake_fd, started;
    size_t batch_bytes;
    uint64_t received, since_ns; /* bytes, and since when: for the rate */
    int in_bulk;             /* the thread has set its policy to SCHED_BATCH */
    int wanted;              /* atomic: the thread waits for the mutex */
    Py_buffer seen; /* a counter in shared memory: it counts reads before anything else does */
    /* Used only by callers from Python, one at a time because of the interpreter's lock. */
    Flow *idle;
    /* Guarded by the mutex. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signals a change of `moving`, `buffer_is_returned` or `stopped` */
    Flow **blocks;
    size_t block_count;
    Flow *moving; /* the thread uses this flow's sockets and its open message without the mutex */
    Flow *returned;
    Messages finished;
    size_t held, capacity; /* bytes in all messages, with the open ones; and their limit */
    uint64_t hold_ns, lost, finished_count;
    uint64_t share; /* bytes of the reads that a flow may keep within SHARE_NS */
    int stopped;
    int ready;        /* ready_fd is readable */
    int pressed;      /* ready_fd is readable because more than half of the capacity is used up */
    int buffer_is_returned; /* the data of a returned flow is in read_bytes: the thread waits until that is collected */
    char read_bytes[READ_BYTES];
} Pump;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The thread takes the mutex. `wanted` shows `pass_lock` that the thread waits for it. */
static void take_lock(Pump *self)
{
    __atomic_store_n(&self->wanted, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&self->lock);
    __atomic_store_n(&self->wanted, 0, __ATOMIC_RELAXED);
}

/* Called during long work under the mutex: if the thread waits for the mutex, the thread gets it first. Unlocking alone is
 * not enough: a waiting thread takes longer to wake up than the caller takes to lock again. */
static void pass_lock(Pump *self)
{
    pthread_mutex_unlock(&self->lock);
    while (__atomic_load_n(&self->wanted, __ATOMIC_RELAXED))
        sched_yield();
    pthread_mutex_lock(&self->lock);
}

/* Makes `ready_fd` readable. */
static void signal_ready(Pump *self)
{
    uint64_t one = 1;
    if (!self->ready)
        (void)!write(self->ready_fd, &one, sizeof one);
    self->ready = 1;
}

static unsigned char *big_endian(unsigned char *to, unsigned char tag, uint64_t value, int bytes)
{
    *to++ = tag;
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        *to++ = (unsigned char)(value >> shift);
    return to;
}

static unsigned char *begin_message(Message *message, unsigned char tag, uint64_t stream)
{
    message->data[0] = 0x93;
    message->data[1] = tag;
    return big_endian(message->data + 2, 0xcf, stream, 8);
}

static void write_dropped(Message *message, uint64_t stream, uint64_t reads)
{
    big_endian(begin_message(message, 4, stream), 0xcf, reads, 8);
    message->size = DROPPED_BYTES;
    message->reads = 0;
}

static void finish(Pump *self, Message *message)
{
    Messages *all = &self->finished;
    message->next = NULL;
    message->number = ++self->finished_count;
    if (all->last)
        all->last->next = message;
    else
        all->first = message;
    all->last = message;
    all->bytes += message->size;
    if (all->bytes >= self->batch_bytes)
        signal_ready(self);
}

static void close_run(Pump *self, Flow *flow)
{
    Message *message = flow->open;
    if (!message)
        return;
    flow->open = NULL;
    big_endian(begin_message(message, 7, flow->stream), 0xdd, message->reads, 4);
    finish(self, message);
}

/* Adds a ReadsDropped message: reads are missing after the flow's last message. Returns 0 if there is no memory for it. */
static int finish_dropped(Pump *self, Flow *flow)
{
    Message *message = malloc(sizeof *message + DROPPED_BYTES);
    if (!message)
        return 0;
    write_dropped(message, flow->stream, flow->dropped);
    flow->dropped = 0;
    self->held += message->size;
    finish(self, message);
    return 1;
}

/* Makes room for `more` bytes in the flow's open message. Returns 0 if there is no memory for them. */
static int make_room(Flow *flow, size_t more)
{
    Message *open = flow->open;
    size_t size = open ? open->size : ARRIVALS_HEAD, room = open ? open->room : LEAST_ROOM;
    while (room < size + more)
        room *= 2;
    if (open && room == open->room)
        return 1;
    Message *grown = realloc(open, sizeof *grown + room);
    if (!grown)
        return 0;
    grown->size = size;
    grown->room = room;
    if (!open)
        grown->reads = 0;
    flow->open = grown;
    return 1;
}

/* Copies a read into the open message of the flow that is `moving`. Only the thread uses the message of that flow, so this
 * needs no mutex. Returns by how many bytes the message grew; 0 if that is more than `space`, or if there is no memory. */
static size_t keep_read(Flow *flow, size_t space, uint64_t at_ns, const char *data, size_t size)
{
    size_t before = flow->open ? flow->open->size : 0, more = STAMP_BYTES + size;
    if (space < more + ARRIVALS_HEAD + DROPPED_BYTES || !make_room(flow, more))
        return 0;
    Message *open = flow->open;
    unsigned char *to = open->data + open->size;
    *to++ = 0x92;
    to = big_endian(to, 0xcf, at_ns, 8);
    to = big_endian(to, 0xc6, size, 4);
    memcpy(to, data, size);
    open->size += more;
    open->reads++;
    return open->size - before;
}

/* Counts a read. `grew`: by how many bytes it made the flow's open message longer; 0 if it was not kept. */
static void count_read(Pump *self, Flow *flow, size_t grew)
{
    __atomic_fetch_add((uint64_t *)self->seen.buf, 1, __ATOMIC_RELAXED);
    if (grew && flow->dropped && !finish_dropped(self, flow)) { /* the kept read is the only one of its message */
        free(flow->open);
        flow->open = NULL;
        grew = 0;
    }
    if (!grew) {
        close_run(self, flow); /* the reads of the open message came before the missing one */
        flow->dropped++;
        self->lost++;
        return;
    }
    self->held += grew;
    if (flow->open->size >= RUN_BYTES)
        close_run(self, flow);
    if (!self->pressed && self->held > self->batch_bytes && self->held > self->capacity / 2) {
        self->pressed = 1;
        signal_ready(self);
    }
}

static void return_flow(Pump *self, Flow *flow, Returned returned)
{
    epoll_ctl(self->epoll, EPOLL_CTL_DEL, flow->upstream, NULL);
    close_run(self, flow);
    flow->pumped = 0;
    flow->returned = returned;
    flow->after = self->finished_count;
    flow->next = self->returned;
    self->returned = flow;
    signal_ready(self);
}

static uint64_t token_of(const Flow *flow)
{
    return (uint64_t)flow->generation << 32 | flow->slot;
}

/* The flow with this token; NULL if it was returned. */
static Flow *flow_of(Pump *self, uint64_t token)
{
    uint32_t slot = (uint32_t)token;
    Flow *flow = slot / BLOCK < self->block_count ? &self->blocks[slot / BLOCK][slot % BLOCK] : NULL;
    return flow && flow->pumped && token_of(flow) == token ? flow : NULL;
}

/* Sets the thread's scheduling policy by the rate of data. With SCHED_OTHER the thread gets the core at once when it wakes
 * up, so a single event is moved at once. With SCHED_BATCH, during a bulk, the process that has the core keeps it until its
 * time slice ends, after some milliseconds. The data that came until then is moved together, at half the cost (decision 18).
 * The thread does not change a policy that an operator has chosen for the tap. */
static void choose_policy(Pump *self, uint64_t at_ns, size_t received)
{
    uint64_t took = at_ns - self->since_ns;
    self->received += received;
    if (took < RATE_NS)
        return;
    int bulk = self->received * 1000 / (took / 1000000) > BULK_BYTES_S;
    self->received = 0;
    self->since_ns = at_ns;
    if (bulk != self->in_bulk && (self->in_bulk || sched_getscheduler(0) == SCHED_OTHER)) {
        struct sched_param none = {0};
        if (pthread_setschedparam(pthread_self(), bulk ? SCHED_BATCH : SCHED_OTHER, &none) == 0)
            self->in_bulk = bulk;
    }
}

/* Returns a copy of the read. If there is no memory for it, returns `read_bytes`, and the thread reads nothing until that
 * was collected. */
static char *copied_read(Pump *self, size_t size)
{
    char *copy = malloc(size);
    return copy ? memcpy(copy, self->read_bytes, size) : self->read_bytes;
}

/* Takes a read from the flow's share. Returns 0 if the share is used up: the read is not kept. */
static int take_share(Flow *flow, uint64_t share, uint64_t at_ns, size_t size)
{
    if (at_ns - flow->share_ns >= SHARE_NS) {
        flow->share_ns = at_ns;
        flow->share_bytes = 0;
    }
    if (flow->share_bytes + size > share)
        return 0;
    flow->share_bytes += size;
    return 1;
}

/* The bytes by which messages may grow for a read of the flow, of which the share counts the bytes already. */
static size_t space_for(const Flow *flow, size_t capacity, size_t held)
{
    size_t limit = flow->share_bytes > LITTLE_BYTES ? capacity - capacity / SPARED_PARTS : capacity;
    return limit > held ? limit - held : 0;
}

/* Moves one read of a flow. Enters and leaves with the mutex held; releases it to use the sockets and to copy the read. */
static void move_read(Pump *self, uint64_t token)
{
    Flow *flow = flow_of(self, token);
    if (!flow || flow->recalled)
        return; /* it was returned after epoll_wait reported it, or is about to be */
    Place place = flow->place;
    Returned unfinished = {.place = place};
    int upstream = flow->upstream, client = flow->client, finished = 0;
    size_t capacity = self->capacity, held = self->held, grew = 0;
    uint64_t share = self->share;
    self->moving = flow;
    pthread_mutex_unlock(&self->lock);

    ssize_t received = recv(upstream, self->read_bytes, READ_BYTES, MSG_DONTWAIT);
    int nothing = received < 0 && (errno == EAGAIN || errno == EINTR);
    uint64_t at_ns = unfinished.at_ns = now_ns();
    unfinished.reset = received < 0;
    if (received > 0) {
        size_t size = unfinished.size = (size_t)received;
        choose_policy(self, at_ns, size);
        ssize_t sent = 0;
        if (follow(&place, (unsigned char *)self->read_bytes, size))
            sent = send(client, self->read_bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
        finished = sent == received;
        if (finished && flow->captured && take_share(flow, share, at_ns, size))
            grew = keep_read(flow, space_for(flow, capacity, held), at_ns, self->read_bytes, size);
        if (!finished) {
            unfinished.sent = sent > 0 ? (size_t)sent : 0;
            unfinished.data = copied_read(self, size);
        }
    }

    take_lock(self);
    self->moving = NULL;
    pthread_cond_broadcast(&self->changed);
    if (finished) {
        flow->place = place;
        flow->last_ns = at_ns;
        if (flow->captured)
            count_read(self, flow, grew);
    } else if (!nothing) {
        self->buffer_is_returned = unfinished.data == self->read_bytes;
        return_flow(self, flow, unfinished);
    }
    while (self->buffer_is_returned && !self->stopped) /* memory is short: all flows wait for `collect`, and none fails */
        pthread_cond_wait(&self->changed, &self->lock);
}

static void *run(void *given)
{
    Pump *self = given;
    struct epoll_event ready[AT_ONCE];
    int stopped;
    do {
        int many = epoll_wait(self->epoll, ready, AT_ONCE, -1);
        take_lock(self);
        for (int at = 0; at < many && !self->stopped; at++)
            move_read(self, ready[at].data.u64);
        stopped = self->stopped;
        pthread_mutex_unlock(&self->lock);
    } while (!stopped);
    return NULL;
}

/* --- called from Python --------------------------------------------------------------------------------------------- */

/* A converter for PyArg_Parse: an integer of 64 bits that is not negative. Raises TypeError or ValueError. */
static int natural(PyObject *given, void *to)
{
    *(uint64_t *)to = PyLong_AsUnsignedLongLong(given);
    if (!PyErr_Occurred())
        return 1;
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_SetString(PyExc_ValueError, "an integer is not between 0 and 2**64 - 1");
    return 0;
}

/* A converter for PyArg_Parse: a descriptor. Raises TypeError, or OSError as os.read would. */
static int descriptor(PyObject *given, void *to)
{
    long value = PyLong_AsLong(given);
    int fails = PyErr_Occurred() != NULL;
    if (fails && !PyErr_ExceptionMatches(PyExc_OverflowError))
        return 0;
    if (!fails && value >= 0 && value <= INT_MAX) {
        *(int *)to = (int)value;
        return 1;
    }
    PyErr_Clear();
    errno = EBADF;
    PyErr_SetFromErrno(PyExc_OSError);
    return 0;
}

/* Returns 1, and raises ValueError, if a value is above `most`. */
static int above(const char *name, uint64_t value, uint64_t most)
{
    if (value <= most)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %llu, at most %llu is possible", name, (unsigned long long)value,
        (unsigned long long)most);
    return 1;
}

/* Creates the descriptors that the thread needs until it ends, and starts the thread. Returns -1, with errno set, if that
 * failed; dealloc closes the descriptors. */
static int start(Pump *self)
{
    struct epoll_event woken = {.events = EPOLLIN, .data.u64 = WAKE};
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->epoll < 0 || self->ready_fd < 0 || self->wake_fd < 0)
        return -1;
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->wake_fd, &woken) < 0)
        return -1;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the thread handles no signals: the interpreter does */
    int failed = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    self->started = !failed;
    errno = failed;
    return failed ? -1 : 0;
}

static PyObject *Pump_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"capacity", "batch", "hold_ns", "seen", NULL};
    uint64_t capacity, batch;
    Pump *self = (Pump *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    self->epoll = self->ready_fd = self->wake_fd = -1;
    self->owner = getpid();
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    if (!PyArg_ParseTupleAndKeywords(args, named, "O&O&O&w*", names, natural, &capacity, natural, &batch, natural,
            &self->hold_ns, &self->seen)
        || above("capacity", capacity, MAX_BYTES) || above("batch", batch, MAX_BYTES)
        || above("hold_ns", self->hold_ns, MAX_HOLD_NS)) {
        Py_DECREF(self);
        return NULL;
    }
    self->capacity = (size_t)capacity;
    self->share = MAX_BYTES;
    self->batch_bytes = (size_t)batch;
    if (self->seen.len != sizeof(uint64_t) || (uintptr_t)self->seen.buf % sizeof(uint64_t))
        PyErr_SetString(PyExc_ValueError, "seen is not one word");
    else if (start(self) < 0)
        PyErr_SetFromErrno(PyExc_OSError);
    else
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

/* Ends the thread. A forked child has no thread: there the mutex may be held, and `wake_fd` would wake the parent's. */
static void stop(Pump *self)
{
    uint64_t one = 1;
    if (!self->started || self->stopped)
        return;
    if (getpid() != self->owner) {
        self->stopped = 1;
        return;
    }
    pthread_mutex_lock(&self->lock);
    self->stopped = 1;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    (void)!write(self->wake_fd, &one, sizeof one);
    Py_BEGIN_ALLOW_THREADS
    pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
}

static void close_descriptor(int *one)
{
    if (*one >= 0)
        close(*one);
    *one = -1;
}

static PyObject *Pump_close(PyObject *object, PyObject *none)
{
    Pump *self = (Pump *)object;
    (void)none;
    if (self->stopped)
        return Py_NewRef(Py_None); /* it is closed, or another Python thread is closing it */
    stop(self);
    close_descriptor(&self->epoll); /* flows that are still PUMPED may be recalled and collected afterwards */
    close_descriptor(&self->ready_fd);
    close_descriptor(&self->wake_fd);
    PyBuffer_Release(&self->seen);
    return Py_NewRef(Py_None);
}

static void free_messages(Message *message)
{
    while (message) {
        Message *next = message->next;
        free(message);
        message = next;
    }
}

static void Pump_dealloc(PyObject *object)
{
    Pump *self = (Pump *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *closed = Pump_close(object, NULL);
    Py_XDECREF(closed);
    for (Flow *flow = self->returned; flow; flow = flow->next)
        if (flow->returned.data != self->read_bytes)
            free(flow->returned.data);
    for (size_t slot = 0; slot < self->block_count * BLOCK; slot++)
        free(self->blocks[slot / BLOCK][slot % BLOCK].open);
    for (size_t at = 0; at < self->block_count; at++)
        free(self->blocks[at]);
    free(self->blocks);
    free_messages(self->finished.first);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *Pump_fileno(PyObject *object, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(((Pump *)object)->ready_fd);
}

/* Adds a block of idle flows. Returns -1 if there is no memory. Flows are never moved in memory, so the thread may use one
 * without the mutex. There are never more flows than descriptors, so slots do not run out. */
static int grow(Pump *self)
{
    size_t count = self->block_count;
    Flow *block = calloc(BLOCK, sizeof *block);
    Flow **blocks = malloc((count + 1) * sizeof *blocks), **before = self->blocks;
    if (!block || !blocks) {
        free(block);
        free(blocks);
        return -1;
    }
    for (int at = BLOCK - 1; at >= 0; at--) {
        block[at].slot = (uint32_t)(count * BLOCK) + (uint32_t)at;
        block[at].next = self->idle;
        self->idle = &block[at];
    }
    if (count)
        memcpy(blocks, before, count * sizeof *blocks);
    blocks[count] = block;
    pthread_mutex_lock(&self->lock);
    self->blocks = blocks;
    self->block_count++;
    pthread_mutex_unlock(&self->lock);
    free(before);
    return 0;
}

static PyObject *Pump_hand_over(PyObject *object, PyObject *args)
{
    Pump *self = (Pump *)object;
    int upstream, client, captured;
    uint64_t stream, phase, left;
    if (!PyArg_ParseTuple(args, "O&O&pO&O&O&", descriptor, &upstream, descriptor, &client, &captured, natural, &stream,
            natural, &phase, natural, &left)
        || above("phase", phase, UNTIL_EOF))
        return NULL;
    if (self->stopped) {
        PyErr_SetString(PyExc_OSError, "the pump is closed");
        return NULL;
    }
    if (!self->idle && grow(self) < 0)
        return PyErr_NoMemory();
    Flow *flow = self->idle;
    uint32_t slot = flow->slot, generation = flow->generation + 1;
    uint64_t token = (uint64_t)generation << 32 | slot;
    PyObject *made = PyLong_FromUnsignedLongLong(token); /* made first: the handover cannot be undone later */
    if (!made)
        return NULL;
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = token};
    uint64_t now = now_ns();
    pthread_mutex_lock(&self->lock);
    self->idle = flow->next;
    *flow = (Flow){
        .slot = slot,
        .generation = generation,
        .upstream = upstream,
        .client = client,
        .captured = captured,
        .pumped = 1,
        .stream = stream,
        .last_ns = now,
        .due_ns = now + self->hold_ns * (slot % SPREAD + 1) / SPREAD, /* flows that begin together are not due together */
        .place = {(int)phase, left},
    };
    pthread_mutex_unlock(&self->lock);
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, upstream, &wanted) == 0)
        return made;
    int error = errno;
    pthread_mutex_lock(&self->lock);
    flow->pumped = 0;
    flow->next = self->idle;
    self->idle = flow;
    pthread_mutex_unlock(&self->lock);
    Py_DECREF(made);
    errno = error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* Takes the mutex and finds the flow of a token; NULL if it was returned. Returns -1, without the mutex, for an invalid
 * token. */
static int lock_flow(Pump *self, PyObject *given, Flow **flow)
{
    uint64_t token;
    if (!natural(given, &token))
        return -1;
    pthread_mutex_lock(&self->lock);
    *flow = flow_of(self, token);
    return 0;
}

static PyObject *Pump_recall(PyObject *object, PyObject *given)
{
    Pump *self = (Pump *)object;
    Flow *flow;
    if (lock_flow(self, given, &flow) < 0)
        return NULL;
    if (flow)
        flow->recalled = 1; /* the thread starts no further read of it */
    while (flow && self->moving == flow)
        pthread_cond_wait(&self->changed, &self->lock);
    if (flow && flow->pumped) /* otherwise the thread has returned it during the wait */
        return_flow(self, flow, (Returned){.at_ns = flow->last_ns, .place = flow->place});
    pthread_mutex_unlock(&self->lock);
    return Py_NewRef(Py_None);
}

static PyObject *Pump_send_at_once(PyObject *object, PyObject *none)
{
    Pump *self = (Pump *)object;
    (void)none;
    pthread_mutex_lock(&self->lock);
    self->hold_ns = 0;
    pthread_mutex_unlock(&self->lock);
    return Py_NewRef(Py_None);
}

static PyObject *Pump_moved(PyObject *object, PyObject *given)
{
    Pump *self = (Pump *)object;
    Flow *flow;
    if (lock_flow(self, given, &flow) < 0)
        return NULL;
    uint64_t at_ns = flow ? flow->last_ns : 0;
    pthread_mutex_unlock(&self->lock);
    return PyLong_FromUnsignedLongLong(at_ns);
}

/* Appends `made` to a list, and releases it. Returns 1, and raises nothing, if that failed or `made` is NULL. */
static int put(PyObject *list, PyObject *made)
{
    int failed = !made || PyList_Append(list, made) < 0;
    Py_XDECREF(made);
    if (failed)
        PyErr_Clear();
    return failed;
}

/* Appends a batch of the first messages, and frees these. Returns -1 if there is no memory; then the messages stay. */
static int put_batch(PyObject *list, Messages *messages, size_t batch_bytes)
{
    size_t size = 0;
    unsigned long long count = 0, reads = 0;
    Message *end = messages->first;
    do {
        size += end->size;
        reads += end->reads;
        count++;
        end = end->next;
    } while (end && size < batch_bytes);
    PyObject *joined = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    char *to = joined ? PyBytes_AsString(joined) : NULL;
    for (Message *one = messages->first; joined && one != end; one = one->next) {
        memcpy(to, one->data, one->size);
        to += one->size;
    }
    if (put(list, joined ? Py_BuildValue("NKK", joined, count, reads) : NULL))
        return -1;
    while (messages->first != end) {
        Message *next = messages->first->next;
        free(messages->first);
        messages->first = next;
    }
    messages->bytes -= size;
    return 0;
}

/* Turns ResponseReads into ReadsDropped, which need very little memory. Returns how many reads that drops. */
static uint64_t drop_reads(Messages *messages)
{
    uint64_t dropped = 0;
    for (Message *one = messages->first; one; one = one->next) {
        if (!one->reads)
            continue;
        uint64_t stream = 0;
        for (int at = 3; at < 11; at++)
            stream = stream << 8 | one->data[at];
        dropped += one->reads;
        messages->bytes -= one->size - DROPPED_BYTES;
        write_dropped(one, stream, one->reads);
    }
    return dropped;
}

/* Appends messages as batches, up to about `most` bytes. Reads for which there is no memory are dropped, so that no stream
 * waits for the capture, and counted in `dropped`. Returns -1 if memory was short. ReadsDropped messages for which there is
 * no memory either stay. */
static int put_batches(PyObject *list, Messages *messages, size_t batch_bytes, uint64_t most, uint64_t *dropped)
{
    size_t all = messages->bytes;
    int failed = 0;
    while (messages->first && !failed && all - messages->bytes < most)
        failed = put_batch(list, messages, batch_bytes);
    if (!failed)
        return 0;
    *dropped += drop_reads(messages);
    while (messages->first && put_batch(list, messages, batch_bytes) == 0) {
    }
    return -1;
}

static PyObject *tuple_of(const Flow *flow)
{
    const Returned *one = &flow->returned;
    PyObject *data = one->data ? PyBytes_FromStringAndSize(one->data, (Py_ssize_t)one->size) : Py_NewRef(Py_None);
    if (!data)
        return NULL;
    return Py_BuildValue("KKiKNnNK", (unsigned long long)token_of(flow), (unsigned long long)one->at_ns, one->place.phase,
        (unsigned long long)one->place.left, data, (Py_ssize_t)one->sent, PyBool_FromLong(one->reset),
        (unsigned long long)flow->dropped);
}

/* Closes the open messages that are due, or all if more than half of the capacity is used up. The message of the flow that
 * is `moving` stays open until the next call. Returns with the mutex held. Releases it after each block of flows, if the
 * thread waits for it. */
static void close_runs_and_lock(Pump *self, int due)
{
    uint64_t now = now_ns();
    pthread_mutex_lock(&self->lock);
    int all = self->held > self->capacity / 2;
    if (!due && !self->pressed)
        return;
    for (size_t block = 0; block < self->block_count; block++) {
        for (Flow *flow = self->blocks[block], *end = flow + BLOCK; flow < end; flow++)
            if (flow != self->moving && flow->open && (all || !self->hold_ns || now >= flow->due_ns)) {
                close_run(self, flow);
                flow->due_ns = now + self->hold_ns;
            }
        pass_lock(self);
    }
}

static PyObject *Pump_collect(PyObject *object, PyObject *args)
{
    Pump *self = (Pump *)object;
    uint64_t ready, capacity, most = MAX_BYTES, share = MAX_BYTES;
    int due, buffer_is_free = 0;
    if (!PyArg_ParseTuple(args, "O&p|O&O&", natural, &capacity, &due, natural, &most, natural, &share)
        || above("room", capacity, MAX_BYTES))
        return NULL;
    PyObject *batches = PyList_New(0), *returns = PyList_New(0), *all = PyTuple_New(3);
    if (!batches || !returns || !all) { /* no error is raised after this: it would lose what is taken out below */
        Py_XDECREF(batches);
        Py_XDECREF(returns);
        Py_XDECREF(all);
        return NULL;
    }
    (void)!read(self->ready_fd, &ready, sizeof ready);
    close_runs_and_lock(self, due);
    Messages messages = self->finished;
    Flow *returned = self->returned, *kept = NULL, *idle = NULL, *idle_end = NULL;
    uint64_t lost = self->lost;
    self->finished = (Messages){0};
    self->returned = NULL;
    self->held -= messages.bytes;
    self->capacity = (size_t)capacity;
    self->share = share;
    self->ready = self->pressed = 0;
    self->lost = 0;
    pthread_mutex_unlock(&self->lock);

    int failed = put_batches(batches, &messages, self->batch_bytes, most, &lost);
    while (returned) {
        Flow *flow = returned;
        returned = flow->next;
        int waits = messages.first && messages.first->number <= flow->after; /* until its reads were collected */
        if (waits || put(returns, tuple_of(flow))) {
            flow->next = kept;
            kept = flow;
            continue;
        }
        if (flow->returned.data == self->read_bytes)
            buffer_is_free = 1;
        else
            free(flow->returned.data);
        flow->returned.data = NULL;
        flow->next = idle;
        idle = flow;
        idle_end = idle_end ? idle_end : flow;
    }
    if (idle) {
        idle_end->next = self->idle;
        self->idle = idle;
    }
    PyObject *number = PyLong_FromUnsignedLongLong(lost);
    if (number)
        lost = 0;
    PyErr_Clear();

    pthread_mutex_lock(&self->lock);
    if (messages.first) {
        messages.last->next = self->finished.first;
        self->finished.first = messages.first;
        self->finished.last = self->finished.last ? self->finished.last : messages.last;
        self->finished.bytes += messages.bytes;
        self->held += messages.bytes;
        if (!failed) /* if memory is short, the caller tries again later, not at once */
            signal_ready(self);
    }
    while (kept) {
        Flow *flow = kept;
        kept = flow->next;
        flow->next = self->returned;
        self->returned = flow;
    }
    self->lost += lost;
    if (buffer_is_free) {
        self->buffer_is_returned = 0;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    PyTuple_SetItem(all, 0, batches);
    PyTuple_SetItem(all, 1, number ? number : PyLong_FromLong(0)); /* 0 exists already: no memory is needed */
    PyTuple_SetItem(all, 2, returns);
    return all;
}

static PyObject *pump_follow(PyObject *module, PyObject *args)
{
    (void)module;
    uint64_t phase, left, begin;
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "O&O&y*O&", natural, &phase, natural, &left, &data, natural, &begin))
        return NULL;
    if (above("phase", phase, UNTIL_EOF) || above("begin", begin, (uint64_t)data.len)) {
        PyBuffer_Release(&data);
        return NULL;
    }
    Place place = {(int)phase, left};
    int plain = follow(&place, (unsigned char *)data.buf + begin, (size_t)data.len - begin);
    PyBuffer_Release(&data);
    if (!plain)
        return Py_NewRef(Py_None);
    return Py_BuildValue("iK", place.phase, (unsigned long long)place.left);
}

static PyMethodDef pump_methods[] = {
    {"fileno", Pump_fileno, METH_NOARGS, NULL},
    {"hand_over", Pump_hand_over, METH_VARARGS, NULL},
    {"recall", Pump_recall, METH_O, NULL},
    {"send_at_once", Pump_send_at_once, METH_NOARGS, NULL},
    {"moved", Pump_moved, METH_O, NULL},
    {"collect", Pump_collect, METH_VARARGS, NULL},
    {"close", Pump_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pump_slots[] = {
    {Py_tp_new, Pump_new},
    {Py_tp_dealloc, Pump_dealloc},
    {Py_tp_methods, pump_methods},
    {0, NULL},
};

static PyType_Spec pump_spec = {
    .name = "streamgauge.taps.proxy.native._pump.Pump",
    .basicsize = sizeof(Pump),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = pump_slots,
};

static PyMethodDef functions[] = {
    {"follow", pump_follow, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "_pump", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__pump(void)
{
    PyObject *type = PyType_FromSpec(&pump_spec);
    PyObject *made = type ? PyModule_Create(&definition) : NULL;
    if (made && PyModule_AddObjectRef(made, "Pump", type) < 0)
        Py_CLEAR(made);
    Py_XDECREF(type);
    return made;
}
