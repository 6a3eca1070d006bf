/* Columns that Python hands over: one-dimensional contiguous buffers of one declared type. */
#ifndef TRACE_ANALYZER_COLUMNS_H
#define TRACE_ANALYZER_COLUMNS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef enum { INT8, INT32, INT64, FLOAT64 } column_type;

typedef struct {
    const char *name; /* of the attribute, and in messages */
    column_type type;
} column_spec;

/* One column while it is in use; all zero otherwise. */
typedef struct {
    Py_buffer view;
    int held;
} column;

/* Take the buffer of `values`. Returns 0, or -1 with a Python error set. */
int column_take(column *into, PyObject *values, const column_spec *spec, int writable);

/* Take the attributes of `owner` that `specs` name, into `into[0..count)`. 0, or -1 with an error
   set; what was taken by then has to be released all the same. */
int columns_take(column *into, PyObject *owner, const column_spec *specs, int count);

void columns_release(column *columns, int count);

/* Number of rows. */
int64_t column_rows(const column *of);

/* Fail with ValueError unless the column has this many rows. */
int column_has_rows(const column *of, const column_spec *spec, int64_t rows);

/* Fail with ValueError unless every value lies in [low, high). */
int column_positions(const column *of, const column_spec *spec, int64_t low, int64_t high);

/* Fail with ValueError unless the values go up from 0 to `total`, so that they delimit its rows. */
int column_delimits(const column *of, const column_spec *spec, int64_t total);

#endif
