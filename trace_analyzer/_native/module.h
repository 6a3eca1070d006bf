/* What the files of the extension give to Python. */
#ifndef TRACE_ANALYZER_MODULE_H
#define TRACE_ANALYZER_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *native_simulate(PyObject *module, PyObject *arguments);

#endif
