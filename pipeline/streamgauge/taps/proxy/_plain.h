/* _plain.c, for the module that _pump.c makes; _pump.pyi says what they do. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *plain_head(PyObject *module, PyObject *given);
PyObject *plain_request(PyObject *module, PyObject *given);
