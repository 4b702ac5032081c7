/* Heads of responses, where they are so plain that nobody could read them in another way; and requests that came in one read.
 *
 * A plain head is HTTP/1.1, final, and whole; its lines end with CR LF and hold no control character; each has a name and
 * a colon right behind it; none of the four fields that matter here comes twice, or says anything but the usual. Of
 * anything else nothing is said: response.py reads it. Of a request it is told where its head ends, and what of it changes
 * from one to the next, as known_heads.py does; what it means is not asked.
 */
#define Py_LIMITED_API 0x030b0000
#define _GNU_SOURCE
#include "_plain.h"
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* The longest head of a response with its line ends, as in response.py; of a request that is remembered, as in known_heads.py;
 * the longest value of a field that is looked at (bytes). */
enum { MAX_HEAD = 262144, MAX_KNOWN = 4096, MAX_VALUE = 256, MAX_DIGITS = 18 };
/* Instead of a length; plain.py has the same. */
enum { UNTIL_EOF = -1, CHUNKED = -2 };

typedef struct {
    const char *at;
    size_t size;
} Text;

typedef struct {
    int status, closes, keeps_alive;
    long long length;
    Text type;
} Head;

static int is(Text one, const char *lower)
{
    return one.size == strlen(lower) && !strncasecmp(one.at, lower, one.size);
}

/* The number that `one` is; -1: it is none, or too long. */
static long long number(Text one)
{
    long long found = 0;
    if (!one.size || one.size > MAX_DIGITS)
        return -1;
    for (size_t at = 0; at < one.size; at++) {
        if (one.at[at] < '0' || one.at[at] > '9')
            return -1;
        found = found * 10 + (one.at[at] - '0');
    }
    return found;
}

static int read_connection(Head *head, Text value)
{
    if (head->closes || head->keeps_alive)
        return 0;
    head->closes = is(value, "close");
    head->keeps_alive = is(value, "keep-alive");
    return head->closes || head->keeps_alive;
}

static int read_length(Head *head, long long length)
{
    if (head->length != UNTIL_EOF || length == -1)
        return 0;
    head->length = length;
    return 1;
}

static int read_type(Head *head, Text value)
{
    if (head->type.at || value.size > MAX_VALUE)
        return 0;
    head->type = value;
    return 1;
}

/* A line behind the first one, without its end. 0: it is not plain. */
static int read_field(Head *head, Text line)
{
    const char *colon = memchr(line.at, ':', line.size);
    if (!colon || colon == line.at || line.at[0] == ' ' || colon[-1] == ' ')
        return 0;
    Text name = {line.at, (size_t)(colon - line.at)};
    Text value = {colon + 1, line.size - name.size - 1};
    for (; value.size && value.at[0] == ' '; value.at++)
        value.size--;
    while (value.size && value.at[value.size - 1] == ' ')
        value.size--;
    if (is(name, "connection"))
        return read_connection(head, value);
    if (is(name, "content-length"))
        return read_length(head, number(value));
    if (is(name, "transfer-encoding"))
        return read_length(head, is(value, "chunked") ? CHUNKED : -1);
    return is(name, "content-type") ? read_type(head, value) : 1;
}

static int read_status_line(Head *head, Text line)
{
    static const char version[] = "HTTP/1.1 ";
    size_t begin = sizeof(version) - 1;
    if (line.size < begin + 3 || memcmp(line.at, version, begin) || (line.size > begin + 3 && line.at[begin + 3] != ' '))
        return 0;
    head->status = (int)number((Text){line.at + begin, 3});
    return head->status >= 200;
}

/* The line that begins at `at`, without its end; its `at` is NULL if it holds what no plain line does, or has no end. */
static Text line_at(const char *at, const char *end)
{
    const char *begin = at;
    while (at < end && (unsigned char)*at >= 0x20 && *at != 0x7f)
        at++;
    if (end - at < 2 || at[0] != '\r' || at[1] != '\n')
        return (Text){NULL, 0};
    return (Text){begin, (size_t)(at - begin)};
}

/* How many bytes the head has, with its blank line; 0: it is not plain. */
static size_t read_head(Head *head, const char *data, size_t size)
{
    const char *at = data, *end = data + (size < MAX_HEAD ? size : MAX_HEAD);
    Text line = line_at(at, end);
    if (!line.at || !read_status_line(head, line))
        return 0;
    for (;;) {
        at += line.size + 2;
        line = line_at(at, end);
        if (!line.at)
            return 0;
        if (!line.size)
            return (size_t)(at + 2 - data);
        if (!read_field(head, line))
            return 0;
    }
}

PyObject *plain_head(PyObject *module, PyObject *given)
{
    (void)module;
    char *data, type[MAX_VALUE];
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(given, &data, &size) < 0)
        return NULL;
    Head head = {.length = UNTIL_EOF};
    size_t end = read_head(&head, data, (size_t)size);
    if (!end)
        Py_RETURN_NONE;
    for (size_t at = 0; at < head.type.size; at++) {
        char one = head.type.at[at];
        type[at] = one >= 'A' && one <= 'Z' ? (char)(one | 0x20) : one;
    }
    return Py_BuildValue("niy#LNN", (Py_ssize_t)end, head.status, type, (Py_ssize_t)head.type.size, head.length,
                         PyBool_FromLong(head.closes), PyBool_FromLong(head.keeps_alive));
}

/* --- requests ------------------------------------------------------------------------------------------------------- */

/* The digits of a Content-Length that is written as usual, in a head with its blank line; none: there is no such one. */
static Text digits_of(Text head)
{
    static const char name[] = "\r\nContent-Length:";
    const char *at = head.at, *end = head.at + head.size;
    while ((at = memchr(at, '\r', (size_t)(end - at)))) {
        const char *line = at++;
        if ((size_t)(end - line) < sizeof(name) || strncasecmp(line, name, sizeof(name) - 1))
            continue;
        Text digits = {line + sizeof(name) - 1, 0};
        digits.at += *digits.at == ' ';
        while (digits.at + digits.size < end && digits.at[digits.size] >= '0' && digits.at[digits.size] <= '9')
            digits.size++;
        int usual = digits.size && digits.size <= MAX_DIGITS && (digits.at[0] != '0' || digits.size == 1);
        if (usual && end - digits.at - digits.size >= 2 && !memcmp(digits.at + digits.size, "\r\n", 2))
            return digits;
    }
    return (Text){NULL, 0};
}

PyObject *plain_request(PyObject *module, PyObject *given)
{
    (void)module;
    char *data, key[MAX_KNOWN];
    Py_ssize_t read;
    if (PyBytes_AsStringAndSize(given, &data, &read) < 0)
        return NULL;
    size_t size = (size_t)read;
    const char *blank = memmem(data, size < MAX_KNOWN ? size : MAX_KNOWN, "\r\n\r\n", 4);
    if (!blank)
        Py_RETURN_NONE;
    Text head = {data, (size_t)(blank + 4 - data)}, digits = digits_of(head);
    if (size - head.size != (digits.at ? (unsigned long long)number(digits) : 0))
        Py_RETURN_NONE;
    if (!digits.at)
        return Py_BuildValue("OnO", given, (Py_ssize_t)head.size, Py_None);
    size_t before = (size_t)(digits.at - data), behind = head.size - before - digits.size;
    memcpy(key, data, before);
    memcpy(key + before, digits.at + digits.size, behind);
    return Py_BuildValue("y#nL", key, (Py_ssize_t)(before + behind), (Py_ssize_t)head.size, number(digits));
}
