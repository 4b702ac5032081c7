/* Reads the chunks of a body (RFC 9112, 7.1) that have their usual form: size, CR LF, data, CR LF. `_chunks.pyi` says what it
 * returns; `framing.py` reads everything else, and has a reader of the same chunks for platforms without this file.
 *
 * The file is built for the stable interface of CPython 3.11, as `_pump.c`.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

/* The most digits of a size: a chunk of 256 MiB or more is read by framing.py, which knows the limits. */
enum { MAX_DIGITS = 7 };

static int digit_of(unsigned char one)
{
    if (one >= '0' && one <= '9')
        return one - '0';
    one |= 0x20;
    return one >= 'a' && one <= 'f' ? one - 'a' + 10 : -1;
}

/* The data of the chunk whose size line begins at `at`, and its size; NULL unless the line is whole and usual, and the size is
 * not 0. */
static const unsigned char *data_after_size(const unsigned char *at, const unsigned char *end, long long *size)
{
    long long value = 0;
    for (int digits = 0; at < end; digits++, at++) {
        int digit = digit_of(*at);
        if (digit < 0)
            break;
        if (digits == MAX_DIGITS)
            return NULL;
        value = value * 16 + digit;
    }
    *size = value;
    return value && end - at >= 2 && at[0] == '\r' && at[1] == '\n' ? at + 2 : NULL;
}

/* Walks over usual chunks from `at` on. `left`: bytes of a chunk's data that come first. Copies their data to `body` unless that
 * is NULL. Returns where it stopped; `left` is then what the last chunk still needs, and `whole` is 0 if that chunk's line end is
 * missing or not usual. Adds to `bytes` the bytes of data. */
static const unsigned char *walk(
    const unsigned char *at, const unsigned char *end, long long *left, int *whole, char *body, Py_ssize_t *bytes)
{
    *whole = 1;
    for (;;) {
        if (!*left) {
            const unsigned char *data = data_after_size(at, end, left);
            if (!data) {
                *left = 0;
                return at;
            }
            at = data;
        }
        Py_ssize_t here = end - at < *left ? end - at : (Py_ssize_t)*left;
        if (body && here)
            memcpy(body + *bytes, at, (size_t)here);
        *bytes += here;
        at += here;
        *left -= here;
        if (*left)
            return at;
        if (end - at < 2 || at[0] != '\r' || at[1] != '\n') {
            *whole = 0;
            return at;
        }
        at += 2;
    }
}

static PyObject *read_chunks(PyObject *module, PyObject *args)
{
    (void)module;
    Py_buffer data;
    Py_ssize_t begin;
    long long left; /* of a chunk that may be larger than the memory of a machine of 32 bits */
    if (!PyArg_ParseTuple(args, "y*nL", &data, &begin, &left))
        return NULL;
    PyObject *result = NULL;
    if (begin < 0 || begin > data.len || left < 0) {
        PyErr_SetString(PyExc_ValueError, "read_chunks: an offset outside of the data, or a negative number of bytes");
        goto done;
    }
    const unsigned char *first = data.buf, *at = first + begin, *end = first + data.len, *stop;
    Py_ssize_t bytes = 0;
    long long after = left;
    int whole;
    walk(at, end, &after, &whole, NULL, &bytes);
    PyObject *body = PyBytes_FromStringAndSize(NULL, bytes);
    if (!body)
        goto done;
    bytes = 0, after = left;
    stop = walk(at, end, &after, &whole, PyBytes_AsString(body), &bytes);
    result = Py_BuildValue("NnLi", body, (Py_ssize_t)(stop - first), after, whole);
done:
    PyBuffer_Release(&data);
    return result;
}

static PyMethodDef functions[] = {
    {"read_chunks", read_chunks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT, .m_name = "_chunks", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__chunks(void)
{
    return PyModule_Create(&definition);
}
