/* trace_analyzer._native.core: one function a file; core.pyi has their types. */
#include "module.h"

/* Raised with every change of a function, as in __init__.py, which compares. */
#define INTERFACE 1

PyDoc_STRVAR(
    SIMULATE,
    "simulate(program, node_start_ns, node_end_ns, op_start_ns, op_end_ns, /)\n"
    "--\n\n"
    "Execute a replay program into the four int64 arrays, of its nodes and of its operations.\n\n"
    "Returns None, or how many operations are stuck, and then the arrays mean nothing.\n"
    "`op_stream` must lie in [0, operations). Other threads run meanwhile and must leave the\n"
    "columns alone. Raises ValueError or BufferError for columns of wrong types, lengths or\n"
    "positions, OverflowError where a time does not fit 64 bits, and MemoryError.");

static PyMethodDef METHODS[] = {
    {"simulate", native_simulate, METH_VARARGS, SIMULATE},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot SLOTS[] = {
    {Py_mod_exec, (void *)fill},
#ifdef Py_GIL_DISABLED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT,
    .m_name = "trace_analyzer._native.core",
    .m_doc = "Code compiled from C.",
    .m_methods = METHODS,
    .m_slots = SLOTS,
};

PyMODINIT_FUNC PyInit_core(void)
{
    return PyModuleDef_Init(&MODULE);
}
