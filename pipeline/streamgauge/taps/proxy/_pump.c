/* The middle of responses, moved from upstreams' sockets to clients' on a thread that needs no interpreter.
 *
 * LENT --a read that is plainly the body's middle, which the client takes whole--> LENT
 * LENT --anything else: the end, an error, odd framing, a client that takes less, `recall`--> GIVEN BACK
 *
 * The relay lends two sockets once an answer's head has gone out, and reads none of them meanwhile. What ends that is told
 * by `collect`, with the read that the thread did not finish: the relay goes on there as if it had read it itself. So
 * nothing is decided here: a read goes on as it came, is stamped, and is kept for the recorder, those of one response
 * together for as long as `hold_ns`: that spares the recorder time.
 *
 * One lock guards all; the thread holds it for one read at a time, and waits for nothing inside.
 */
#define Py_LIMITED_API 0x030b0000
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
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

/* Bytes of one read; reads of one wake-up; at which size a run of reads becomes a message; over how many
 * moments flows are spread; what a message takes besides its reads, and a read besides its data. */
enum { READ_BYTES = 262144, AT_ONCE = 64, RUN_BYTES = 65536, SPREAD = 16, MESSAGE_BYTES = 20, STAMP_BYTES = 15 };
/* From which rate on it is a bulk that comes (bytes a second), and over how long that is taken (ns). The recorder goes by the
 * same: taps/recording/gently.py. */
enum { BULK_BYTES_S = 8388608, RATE_NS = 20000000 };

/* --- where a body is ------------------------------------------------------------------------------------------------ */

/* Chunked: before a size, in its digits, behind its CR, in data, at the CR and at the LF behind it. By length. Until EOF.
 * The same numbers stand in response.py. */
enum { SIZE_BEGIN, SIZE, SIZE_LF, DATA, DATA_CR, DATA_LF, LENGTH, UNTIL_EOF };

typedef struct {
    int phase;
    uint64_t left; /* bytes: of the chunk, or of the body; in SIZE what the digits say so far */
} Place;

static int digit_of(unsigned char one)
{
    if (one >= '0' && one <= '9')
        return one - '0';
    one |= 0x20;
    return one >= 'a' && one <= 'f' ? one - 'a' + 10 : -1;
}

/* Goes over a read. 0: it is not plainly the middle of a body, and the place stays where it was. */
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
        else if (now.phase <= SIZE && digit >= 0 && now.left >> 48 == 0)
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

typedef struct {
    char *data; /* captured reads, one behind the other */
    size_t size, room;
    uint32_t reads;
} Run;

typedef struct {
    int upstream, client, lent, captured;
    uint32_t generation; /* of this slot: with it, the slot's number is the flow's token */
    uint64_t stream, last_ns, due_ns, dropped;
    Place place;
    Run run;
} Flow;

typedef struct {
    uint64_t token, at_ns, dropped;
    Place place; /* before the data */
    char *data;  /* a read that is not finished; NULL: none */
    size_t size, sent;
    int reset;
} Return;

typedef struct {
    char *data; /* messages */
    size_t size, room;
    uint64_t messages, reads;
} Batch;

typedef struct {
    PyObject_HEAD
    pthread_mutex_t lock;
    pthread_t thread;
    int epoll, told, started, stop;
    Flow *flows;
    uint32_t *idle; /* slots */
    size_t count, idle_count;
    Return *returns; /* as much room as there are flows */
    size_t return_count;
    Batch *batches; /* the last is the one that grows; there is always one */
    size_t batch_count, batch_room, batch_bytes;
    size_t held, capacity; /* bytes in all batches and runs, and how many they may be */
    int pressed; /* half of that is used up, which was told */
    uint64_t hold_ns, lost;
    uint64_t came, since_ns; /* bytes, since when: for the rate */
    int in_bulk;             /* the thread's policy is SCHED_BATCH, by us */
    Py_buffer seen; /* a counter in shared memory: of reads, before anything else counts them */
    char read_bytes[READ_BYTES];
} Pump;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void tell(Pump *self)
{
    uint64_t one = 1;
    (void)!write(self->told, &one, sizeof one);
}

/* Makes room for so much more behind `size` bytes; 0: there is no memory. */
static int make_room(char **data, size_t *room, size_t size, size_t more, size_t least)
{
    size_t next = *room ? *room : least;
    while (next < size + more)
        next *= 2;
    if (next == *room)
        return 1;
    char *moved = realloc(*data, next);
    if (!moved)
        return 0;
    *data = moved;
    *room = next;
    return 1;
}

/* The batch that takes so much more; NULL if none does. */
static Batch *batch_for(Pump *self, size_t more)
{
    Batch *batch = &self->batches[self->batch_count - 1];
    if (batch->size >= self->batch_bytes) {
        if (self->batch_count == self->batch_room) {
            Batch *moved = realloc(self->batches, 2 * self->batch_room * sizeof(Batch));
            if (!moved)
                return NULL;
            self->batches = moved;
            self->batch_room *= 2;
        }
        batch = &self->batches[self->batch_count++];
        *batch = (Batch){0};
    }
    return make_room(&batch->data, &batch->room, batch->size, more, 65536) ? batch : NULL;
}

static unsigned char *big_endian(unsigned char *to, unsigned char tag, uint64_t value, int bytes)
{
    *to++ = tag;
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
        *to++ = (unsigned char)(value >> shift);
    return to;
}

static void added(Pump *self, Batch *batch, size_t size)
{
    batch->size += size;
    batch->messages++;
    self->held += size;
    if (batch->size >= self->batch_bytes)
        tell(self);
}

/* A flow's run becomes a message. As taps/messages.py has it, in MessagePack: Arrivals is [7, stream, [[at_ns, data], ...]]. */
static void close_run(Pump *self, Flow *flow)
{
    Run run = flow->run;
    if (!run.reads)
        return;
    flow->run = (Run){0};
    self->held -= run.size;
    Batch *batch = batch_for(self, run.size + MESSAGE_BYTES);
    if (batch) {
        unsigned char *begin = (unsigned char *)batch->data + batch->size, *to = begin;
        *to++ = 0x93;
        *to++ = 7;
        to = big_endian(to, 0xcf, flow->stream, 8);
        to = big_endian(to, 0xdd, run.reads, 4);
        memcpy(to, run.data, run.size);
        batch->reads += run.reads;
        added(self, batch, (size_t)(to - begin) + run.size);
    } else {
        flow->dropped += run.reads;
        self->lost += run.reads;
    }
    free(run.data);
}

/* Reads that are missing, at this place in the order: Dropped is [4, stream, reads]. Whether that is told. */
static int tell_dropped(Pump *self, Flow *flow)
{
    close_run(self, flow);
    Batch *batch = batch_for(self, MESSAGE_BYTES);
    if (!batch)
        return 0;
    unsigned char *begin = (unsigned char *)batch->data + batch->size, *to = begin;
    *to++ = 0x93;
    *to++ = 4;
    to = big_endian(to, 0xcf, flow->stream, 8);
    to = big_endian(to, 0xcf, flow->dropped, 8);
    flow->dropped = 0;
    added(self, batch, (size_t)(to - begin));
    return 1;
}

static void capture(Pump *self, Flow *flow, uint64_t at_ns, const char *data, size_t size)
{
    if (!flow->captured)
        return;
    __atomic_fetch_add((uint64_t *)self->seen.buf, 1, __ATOMIC_RELAXED);
    size_t more = size + STAMP_BYTES;
    Run *run = &flow->run;
    int fits = self->held + more + MESSAGE_BYTES <= self->capacity && (!flow->dropped || tell_dropped(self, flow));
    if (!fits || !make_room(&run->data, &run->room, run->size, more, 1024)) {
        close_run(self, flow); /* it lies before what is missing */
        flow->dropped++;
        self->lost++;
        return;
    }
    unsigned char *to = (unsigned char *)run->data + run->size;
    *to++ = 0x92;
    to = big_endian(to, 0xcf, at_ns, 8);
    to = big_endian(to, 0xc6, size, 4);
    memcpy(to, data, size);
    run->size += more;
    run->reads++;
    self->held += more;
    if (run->size >= RUN_BYTES)
        close_run(self, flow);
    if (!self->pressed && self->held > self->batch_bytes && self->held > self->capacity / 2) {
        self->pressed = 1;
        tell(self);
    }
}

static void give_back(Pump *self, uint64_t token, Return one)
{
    Flow *flow = &self->flows[(uint32_t)token];
    epoll_ctl(self->epoll, EPOLL_CTL_DEL, flow->upstream, NULL);
    close_run(self, flow);
    flow->lent = 0;
    flow->generation++;
    one.token = token;
    one.dropped = flow->dropped;
    self->returns[self->return_count++] = one;
    tell(self);
}

static Flow *flow_of(Pump *self, uint64_t token)
{
    uint32_t slot = (uint32_t)token;
    Flow *flow = slot < self->count ? &self->flows[slot] : NULL;
    return flow && flow->lent && flow->generation == token >> 32 ? flow : NULL;
}

/* An event that comes alone has the core at once. Amid a bulk, who has the core goes on when the thread wakes up: what comes
 * until its turn is over, some milliseconds, is moved together and costs half as much (decision 23). A policy that somebody
 * else has chosen for the tap stays. */
static void keep_pace(Pump *self, uint64_t at_ns, size_t came)
{
    uint64_t took = at_ns - self->since_ns;
    self->came += came;
    if (took < RATE_NS)
        return;
    int bulk = self->came * 1000 / (took / 1000000) > BULK_BYTES_S;
    self->came = 0;
    self->since_ns = at_ns;
    if (bulk != self->in_bulk && (self->in_bulk || sched_getscheduler(0) == SCHED_OTHER)) {
        struct sched_param none = {0};
        if (pthread_setschedparam(pthread_self(), bulk ? SCHED_BATCH : SCHED_OTHER, &none) == 0)
            self->in_bulk = bulk;
    }
}

static void move(Pump *self, uint64_t token)
{
    Flow *flow = flow_of(self, token);
    if (!flow)
        return; /* recalled in the same turn */
    ssize_t came = recv(flow->upstream, self->read_bytes, READ_BYTES, MSG_DONTWAIT), sent = 0;
    uint64_t at_ns = now_ns();
    if (came < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    Place before = flow->place;
    if (came <= 0) {
        give_back(self, token, (Return){.at_ns = at_ns, .place = before, .reset = came < 0});
        return;
    }
    keep_pace(self, at_ns, (size_t)came);
    if (follow(&flow->place, (unsigned char *)self->read_bytes, (size_t)came)) {
        sent = send(flow->client, self->read_bytes, (size_t)came, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent == came) {
            flow->last_ns = at_ns;
            capture(self, flow, at_ns, self->read_bytes, (size_t)came);
            return;
        }
    }
    char *rest = malloc((size_t)came);
    if (!rest) { /* nobody may take what is left for the whole */
        give_back(self, token, (Return){.at_ns = at_ns, .place = before, .reset = 1});
        return;
    }
    memcpy(rest, self->read_bytes, (size_t)came);
    give_back(self, token, (Return){.at_ns = at_ns, .place = before, .data = rest, .size = (size_t)came,
        .sent = sent > 0 ? (size_t)sent : 0});
}

static void *run(void *given)
{
    Pump *self = given;
    struct epoll_event ready[AT_ONCE];
    for (;;) {
        int many = epoll_wait(self->epoll, ready, AT_ONCE, -1);
        for (int at = 0; at < many; at++) {
            pthread_mutex_lock(&self->lock);
            int stop = self->stop;
            if (!stop)
                move(self, ready[at].data.u64);
            pthread_mutex_unlock(&self->lock);
            if (stop)
                return NULL;
        }
    }
}

static void take_lock(Pump *self)
{
    if (pthread_mutex_trylock(&self->lock) == 0)
        return;
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&self->lock);
    Py_END_ALLOW_THREADS
}

/* --- for the interpreter -------------------------------------------------------------------------------------------- */

static int start(Pump *self)
{
    sigset_t all, before;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (self->epoll < 0 || self->told < 0)
        return -1;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the interpreter's */
    int failed = pthread_create(&self->thread, NULL, run, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = failed;
    return failed ? -1 : 0;
}

static int Pump_init(PyObject *object, PyObject *args, PyObject *named)
{
    Pump *self = (Pump *)object;
    Py_ssize_t capacity, batch;
    unsigned long long hold_ns;
    static char *names[] = {"capacity", "batch", "hold_ns", "seen", NULL};
    if (self->started) {
        PyErr_SetString(PyExc_RuntimeError, "it has been started");
        return -1;
    }
    if (!PyArg_ParseTupleAndKeywords(args, named, "nnKw*", names, &capacity, &batch, &hold_ns, &self->seen))
        return -1;
    if (self->seen.len != sizeof(uint64_t) || (uintptr_t)self->seen.buf % sizeof(uint64_t)) {
        PyBuffer_Release(&self->seen);
        PyErr_SetString(PyExc_ValueError, "seen is not one word");
        return -1;
    }
    self->capacity = (size_t)capacity;
    self->batch_bytes = (size_t)batch;
    self->hold_ns = hold_ns;
    self->batch_room = 4;
    self->batches = calloc(self->batch_room, sizeof(Batch));
    if (!self->batches) {
        PyBuffer_Release(&self->seen);
        PyErr_NoMemory();
        return -1;
    }
    self->batch_count = 1;
    pthread_mutex_init(&self->lock, NULL);
    if (start(self) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        PyBuffer_Release(&self->seen);
        return -1;
    }
    self->started = 1;
    return 0;
}

static PyObject *Pump_close(PyObject *object, PyObject *none)
{
    Pump *self = (Pump *)object;
    (void)none;
    if (!self->started || self->stop)
        Py_RETURN_NONE;
    int stopping = eventfd(1, EFD_CLOEXEC);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = UINT64_MAX};
    take_lock(self);
    self->stop = 1;
    epoll_ctl(self->epoll, EPOLL_CTL_ADD, stopping, &wanted);
    pthread_mutex_unlock(&self->lock);
    Py_BEGIN_ALLOW_THREADS
    pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
    close(stopping);
    close(self->epoll);
    close(self->told);
    self->epoll = self->told = -1; /* what is still lent may be recalled all the same */
    PyBuffer_Release(&self->seen);
    Py_RETURN_NONE;
}

static void Pump_dealloc(PyObject *object)
{
    Pump *self = (Pump *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *closed = Pump_close(object, NULL);
    Py_XDECREF(closed);
    for (size_t at = 0; at < self->return_count; at++)
        free(self->returns[at].data);
    free(self->returns);
    for (size_t slot = 0; slot < self->count; slot++)
        free(self->flows[slot].run.data);
    free(self->flows);
    free(self->idle);
    for (size_t at = 0; at < self->batch_count; at++)
        free(self->batches[at].data);
    free(self->batches);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *Pump_fileno(PyObject *object, PyObject *none)
{
    (void)none;
    return PyLong_FromLong(((Pump *)object)->told);
}

/* More slots. Each keeps its place among the returns until it is idle again, so giving back never needs memory. */
static int grow(Pump *self)
{
    size_t next = self->count ? 2 * self->count : 256;
    Flow *flows = realloc(self->flows, next * sizeof(Flow));
    self->flows = flows ? flows : self->flows;
    uint32_t *idle = realloc(self->idle, next * sizeof(uint32_t));
    self->idle = idle ? idle : self->idle;
    Return *returns = realloc(self->returns, next * sizeof(Return));
    self->returns = returns ? returns : self->returns;
    if (!flows || !idle || !returns)
        return -1;
    memset(flows + self->count, 0, (next - self->count) * sizeof(Flow));
    for (size_t slot = next; slot > self->count; slot--)
        self->idle[self->idle_count++] = (uint32_t)(slot - 1);
    self->count = next;
    return 0;
}

static PyObject *Pump_lend(PyObject *object, PyObject *args)
{
    Pump *self = (Pump *)object;
    int upstream, client, captured, phase;
    unsigned long long stream, left;
    if (!PyArg_ParseTuple(args, "iipKiK", &upstream, &client, &captured, &stream, &phase, &left))
        return NULL;
    take_lock(self);
    if (self->stop || (!self->idle_count && grow(self) < 0)) {
        pthread_mutex_unlock(&self->lock);
        return PyErr_NoMemory();
    }
    uint32_t slot = self->idle[self->idle_count - 1];
    Flow *flow = &self->flows[slot];
    uint64_t token = (uint64_t)flow->generation << 32 | slot;
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = token};
    /* Those that begin together become due one after the other. */
    uint64_t now = now_ns(), due_ns = now + self->hold_ns * (slot % SPREAD + 1) / SPREAD;
    *flow = (Flow){upstream, client, 1, captured, flow->generation, stream, now, due_ns, 0, {phase, left}, {0}};
    int failed = epoll_ctl(self->epoll, EPOLL_CTL_ADD, upstream, &wanted);
    flow->lent = !failed;
    self->idle_count -= !failed;
    pthread_mutex_unlock(&self->lock);
    return failed ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromUnsignedLongLong(token);
}

static PyObject *Pump_recall(PyObject *object, PyObject *given)
{
    Pump *self = (Pump *)object;
    uint64_t token = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred())
        return NULL;
    take_lock(self);
    Flow *flow = flow_of(self, token);
    if (flow)
        give_back(self, token, (Return){.at_ns = flow->last_ns, .place = flow->place});
    pthread_mutex_unlock(&self->lock);
    Py_RETURN_NONE;
}

static PyObject *Pump_hurry(PyObject *object, PyObject *none)
{
    Pump *self = (Pump *)object;
    (void)none;
    take_lock(self);
    self->hold_ns = 0;
    for (size_t slot = 0; slot < self->count; slot++)
        self->flows[slot].due_ns = 0;
    pthread_mutex_unlock(&self->lock);
    Py_RETURN_NONE;
}

static PyObject *Pump_moved(PyObject *object, PyObject *given)
{
    Pump *self = (Pump *)object;
    uint64_t token = PyLong_AsUnsignedLongLong(given);
    if (PyErr_Occurred())
        return NULL;
    take_lock(self);
    Flow *flow = flow_of(self, token);
    uint64_t at_ns = flow ? flow->last_ns : 0;
    pthread_mutex_unlock(&self->lock);
    return PyLong_FromUnsignedLongLong(at_ns);
}

static PyObject *returned(Return *one)
{
    PyObject *data = one->data ? PyBytes_FromStringAndSize(one->data, (Py_ssize_t)one->size) : Py_NewRef(Py_None);
    if (!data)
        return NULL;
    return Py_BuildValue("KKiKNnNK", one->token, one->at_ns, one->place.phase, one->place.left, data,
        (Py_ssize_t)one->sent, PyBool_FromLong(one->reset), one->dropped);
}

/* Appends what was made for it, and lets go of it. Whether that failed. */
static int put(PyObject *list, PyObject *made)
{
    int failed = !made || PyList_Append(list, made) < 0;
    Py_XDECREF(made);
    return failed;
}

/* Runs that have been held for long enough become messages, or all of them. */
static void close_runs(Pump *self, int all)
{
    uint64_t now = now_ns();
    for (size_t slot = 0; slot < self->count; slot++) {
        Flow *flow = &self->flows[slot];
        if (flow->run.reads && (all || now >= flow->due_ns)) {
            close_run(self, flow);
            flow->due_ns = now + self->hold_ns;
        }
    }
}

static PyObject *Pump_collect(PyObject *object, PyObject *args)
{
    Pump *self = (Pump *)object;
    uint64_t told;
    Py_ssize_t capacity;
    int due;
    if (!PyArg_ParseTuple(args, "np", &capacity, &due))
        return NULL;
    PyObject *batches = PyList_New(0), *returns = PyList_New(0);
    int failed = !batches || !returns;
    (void)!read(self->told, &told, sizeof told);
    take_lock(self);
    if (due || self->pressed)
        close_runs(self, self->held > self->capacity / 2);
    for (size_t at = 0; at < self->batch_count; at++) {
        Batch *batch = &self->batches[at];
        if (!failed && batch->messages)
            failed = put(batches, Py_BuildValue("y#KK", batch->data, (Py_ssize_t)batch->size, batch->messages, batch->reads));
        self->held -= batch->size;
        if (at)
            free(batch->data);
    }
    self->batch_count = 1;
    self->batches[0].size = self->batches[0].messages = self->batches[0].reads = 0;
    for (size_t at = 0; at < self->return_count; at++) {
        self->idle[self->idle_count++] = (uint32_t)self->returns[at].token;
        if (!failed)
            failed = put(returns, returned(&self->returns[at]));
        free(self->returns[at].data);
    }
    self->return_count = 0;
    self->pressed = 0;
    self->capacity = (size_t)capacity;
    uint64_t lost = self->lost;
    self->lost = 0;
    pthread_mutex_unlock(&self->lock);
    if (!failed)
        return Py_BuildValue("NKN", batches, lost, returns);
    Py_XDECREF(batches);
    Py_XDECREF(returns);
    return NULL;
}

static PyObject *pump_follow(PyObject *module, PyObject *args)
{
    (void)module;
    int phase;
    unsigned long long left;
    Py_buffer data;
    Py_ssize_t from;
    if (!PyArg_ParseTuple(args, "iKy*n", &phase, &left, &data, &from))
        return NULL;
    Place place = {phase, left};
    from = from < data.len ? from : data.len;
    int plain = follow(&place, (unsigned char *)data.buf + from, (size_t)(data.len - from));
    PyBuffer_Release(&data);
    if (!plain)
        Py_RETURN_NONE;
    return Py_BuildValue("iK", place.phase, place.left);
}

static PyMethodDef pump_methods[] = {
    {"fileno", Pump_fileno, METH_NOARGS, NULL},
    {"lend", Pump_lend, METH_VARARGS, NULL},
    {"recall", Pump_recall, METH_O, NULL},
    {"hurry", Pump_hurry, METH_NOARGS, NULL},
    {"moved", Pump_moved, METH_O, NULL},
    {"collect", Pump_collect, METH_VARARGS, NULL},
    {"close", Pump_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot pump_slots[] = {
    {Py_tp_init, Pump_init},
    {Py_tp_dealloc, Pump_dealloc},
    {Py_tp_methods, pump_methods},
    {0, NULL},
};

static PyType_Spec pump_spec = {
    .name = "streamgauge.taps.proxy._pump.Pump",
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
