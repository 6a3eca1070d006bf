#include "columns.h"

#include <string.h>

static const struct {
    const char *name;
    const char *codes; /* of the struct module; the size tells those apart that vary */
    Py_ssize_t size;
} TYPES[] = {
    [INT8] = {"int8", "b", 1},
    [INT32] = {"int32", "il", 4},
    [INT64] = {"int64", "lq", 8},
    [FLOAT64] = {"float64", "d", 8},
};

static int is_of_type(const Py_buffer *view, column_type type)
{
    const char *format = view->format == NULL ? "B" : view->format;
    if (*format == '@') { /* any other mark is of a byte order or size that is not the machine's */
        format++;
    }
    return view->itemsize == TYPES[type].size && format[0] != '\0' && format[1] == '\0' &&
           strchr(TYPES[type].codes, format[0]) != NULL;
}

int column_take(column *into, PyObject *values, const column_spec *spec, int writable)
{
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(values, &into->view, flags) < 0) {
        return -1;
    }
    into->held = 1;
    if (into->view.ndim != 1) {
        PyErr_Format(PyExc_ValueError, "%s is not one-dimensional", spec->name);
        return -1;
    }
    if (!is_of_type(&into->view, spec->type)) {
        PyErr_Format(PyExc_ValueError, "%s is not %s", spec->name, TYPES[spec->type].name);
        return -1;
    }
    if (column_rows(into) > 0 &&
        (uintptr_t)into->view.buf % (uintptr_t)TYPES[spec->type].size != 0) {
        PyErr_Format(PyExc_ValueError, "%s is not aligned", spec->name);
        return -1;
    }
    return 0;
}

int columns_take(column *into, PyObject *owner, const column_spec *specs, int count)
{
    for (int k = 0; k < count; k++) {
        PyObject *values = PyObject_GetAttrString(owner, specs[k].name);
        if (values == NULL) {
            return -1;
        }
        int failed = column_take(&into[k], values, &specs[k], 0);
        Py_DECREF(values); /* the buffer keeps what it needs */
        if (failed) {
            return -1;
        }
    }
    return 0;
}

void columns_release(column *columns, int count)
{
    for (int k = 0; k < count; k++) {
        if (columns[k].held) {
            PyBuffer_Release(&columns[k].view);
            columns[k].held = 0;
        }
    }
}

int64_t column_rows(const column *of)
{
    return (int64_t)of->view.shape[0];
}

int column_has_rows(const column *of, const column_spec *spec, int64_t rows)
{
    if (column_rows(of) == rows) {
        return 0;
    }
    PyErr_Format(PyExc_ValueError, "%s has %lld rows, not %lld", spec->name,
                 (long long)column_rows(of), (long long)rows);
    return -1;
}

static int64_t value_at(const column *of, column_type type, int64_t row)
{
    switch (type) {
    case INT8:
        return ((const int8_t *)of->view.buf)[row];
    case INT32:
        return ((const int32_t *)of->view.buf)[row];
    default:
        return ((const int64_t *)of->view.buf)[row];
    }
}

int column_positions(const column *of, const column_spec *spec, int64_t low, int64_t high)
{
    int64_t rows = column_rows(of);
    for (int64_t row = 0; row < rows; row++) {
        int64_t value = value_at(of, spec->type, row);
        if (value < low || value >= high) {
            PyErr_Format(PyExc_ValueError, "%s[%lld] is %lld, outside [%lld, %lld)", spec->name,
                         (long long)row, (long long)value, (long long)low, (long long)high);
            return -1;
        }
    }
    return 0;
}

int column_delimits(const column *of, const column_spec *spec, int64_t total)
{
    int64_t rows = column_rows(of), before = 0;
    for (int64_t row = 0; row < rows; row++) {
        int64_t value = value_at(of, spec->type, row);
        if (value < before || (row == 0 && value != 0)) {
            PyErr_Format(PyExc_ValueError, "%s[%lld] is %lld: it must go up from 0", spec->name,
                         (long long)row, (long long)value);
            return -1;
        }
        before = value;
    }
    if (rows == 0 || before != total) {
        PyErr_Format(PyExc_ValueError, "%s ends at %lld, not %lld", spec->name, (long long)before,
                     (long long)total);
        return -1;
    }
    return 0;
}
