/* simulate(program, times...): checks every column, then runs the machine. */
#include "module.h"

#include "columns.h"
#include "machine.h"

#include <string.h>

enum {
    NODE_FIRST,
    NODE_GAP,
    NODE_COST,
    NODE_QUEUE,
    WAIT_FIRST,
    WAIT_OPERATION,
    OP_RANK,
    OP_NODE,
    OP_FIXED,
    OP_STREAM,
    OP_CLASS,
    OP_BASE,
    OP_LATENCY,
    OP_GAP,
    OP_COLLECTIVE,
    OP_END_OFFSET,
    DEP_FIRST,
    DEP_OPERATION,
    COLLECTIVE_SIZE,
    COLLECTIVE_TRANSFER,
    ALPHA,
    INPUTS,
};

static const column_spec INPUT[INPUTS] = {
    [NODE_FIRST] = {"node_first", INT64},
    [NODE_GAP] = {"node_gap_ns", INT64},
    [NODE_COST] = {"node_cost_ns", INT64},
    [NODE_QUEUE] = {"node_queue", INT32},
    [WAIT_FIRST] = {"wait_first", INT64},
    [WAIT_OPERATION] = {"wait_operation", INT32},
    [OP_RANK] = {"op_rank", INT32},
    [OP_NODE] = {"op_node", INT32},
    [OP_FIXED] = {"op_fixed_ns", INT64},
    [OP_STREAM] = {"op_stream", INT32},
    [OP_CLASS] = {"op_class", INT8},
    [OP_BASE] = {"op_base_ns", INT64},
    [OP_LATENCY] = {"op_latency_ns", INT64},
    [OP_GAP] = {"op_gap_ns", INT64},
    [OP_COLLECTIVE] = {"op_collective", INT32},
    [OP_END_OFFSET] = {"op_end_offset_ns", INT64},
    [DEP_FIRST] = {"dep_first", INT64},
    [DEP_OPERATION] = {"dep_operation", INT32},
    [COLLECTIVE_SIZE] = {"collective_size", INT32},
    [COLLECTIVE_TRANSFER] = {"collective_transfer_ns", INT64},
    [ALPHA] = {"alpha", FLOAT64},
};

enum { NODE_START, NODE_END, OP_START, OP_END, OUTPUTS };

static const column_spec OUTPUT[OUTPUTS] = {
    [NODE_START] = {"node_start_ns", INT64},
    [NODE_END] = {"node_end_ns", INT64},
    [OP_START] = {"op_start_ns", INT64},
    [OP_END] = {"op_end_ns", INT64},
};

typedef struct {
    int64_t ranks, nodes, operations, collectives;
} sizes;

static int have_rows(const column *of, const column_spec *specs, const int *which, int count,
                     int64_t rows)
{
    for (int k = 0; k < count; k++) {
        if (column_has_rows(&of[which[k]], &specs[which[k]], rows) < 0) {
            return -1;
        }
    }
    return 0;
}

/* Whatever a caller hands over, the machine must stay inside its arrays. */
static int check(const column *in, const column *out, const sizes *n)
{
    static const int of_nodes[] = {NODE_COST, NODE_QUEUE};
    static const int of_operations[] = {OP_RANK, OP_FIXED,   OP_STREAM, OP_CLASS,      OP_BASE,
                                        OP_GAP,  OP_LATENCY, OP_COLLECTIVE, OP_END_OFFSET};
    static const int of_times[] = {NODE_START, NODE_END, OP_START, OP_END};
    if (n->operations > INT32_MAX || n->ranks > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "more rows than 32-bit positions can tell apart");
        return -1;
    }
    if (have_rows(in, INPUT, of_nodes, 2, n->nodes) < 0 ||
        have_rows(in, INPUT, of_operations, 9, n->operations) < 0 ||
        have_rows(out, OUTPUT, of_times, 2, n->nodes) < 0 ||
        have_rows(out, OUTPUT, of_times + 2, 2, n->operations) < 0 ||
        column_has_rows(&in[WAIT_FIRST], &INPUT[WAIT_FIRST], n->nodes + 1) < 0 ||
        column_has_rows(&in[DEP_FIRST], &INPUT[DEP_FIRST], n->operations + 1) < 0 ||
        column_has_rows(&in[COLLECTIVE_TRANSFER], &INPUT[COLLECTIVE_TRANSFER], n->collectives) <
            0 ||
        column_has_rows(&in[ALPHA], &INPUT[ALPHA], CLASSES) < 0) {
        return -1;
    }
    const struct {
        int which;
        int64_t total;
    } delimiters[] = {
        {NODE_FIRST, n->nodes},
        {WAIT_FIRST, column_rows(&in[WAIT_OPERATION])},
        {DEP_FIRST, column_rows(&in[DEP_OPERATION])},
    };
    for (int k = 0; k < 3; k++) {
        int which = delimiters[k].which;
        if (column_delimits(&in[which], &INPUT[which], delimiters[k].total) < 0) {
            return -1;
        }
    }
    const struct {
        int which;
        int64_t low, high;
    } positions[] = {
        {NODE_QUEUE, NO_POSITION, n->operations},  {WAIT_OPERATION, 0, n->operations},
        {OP_RANK, 0, n->ranks},                    {OP_NODE, NO_POSITION, n->nodes},
        {OP_STREAM, 0, n->operations},             {OP_CLASS, 0, CLASSES},
        {OP_COLLECTIVE, NO_POSITION, n->collectives}, {DEP_OPERATION, 0, n->operations},
    };
    for (int k = 0; k < 8; k++) {
        int which = positions[k].which;
        if (column_positions(&in[which], &INPUT[which], positions[k].low, positions[k].high) < 0) {
            return -1;
        }
    }
    return 0;
}

static replay_program program_of(const column *in, const sizes *n)
{
    return (replay_program){
        .ranks = n->ranks,
        .nodes = n->nodes,
        .operations = n->operations,
        .collectives = n->collectives,
        .node_first = in[NODE_FIRST].view.buf,
        .node_gap_ns = in[NODE_GAP].view.buf,
        .node_cost_ns = in[NODE_COST].view.buf,
        .node_queue = in[NODE_QUEUE].view.buf,
        .wait_first = in[WAIT_FIRST].view.buf,
        .wait_operation = in[WAIT_OPERATION].view.buf,
        .op_rank = in[OP_RANK].view.buf,
        .op_node = in[OP_NODE].view.buf,
        .op_fixed_ns = in[OP_FIXED].view.buf,
        .op_stream = in[OP_STREAM].view.buf,
        .op_class = in[OP_CLASS].view.buf,
        .op_base_ns = in[OP_BASE].view.buf,
        .op_latency_ns = in[OP_LATENCY].view.buf,
        .op_gap_ns = in[OP_GAP].view.buf,
        .op_collective = in[OP_COLLECTIVE].view.buf,
        .op_end_offset_ns = in[OP_END_OFFSET].view.buf,
        .dep_first = in[DEP_FIRST].view.buf,
        .dep_operation = in[DEP_OPERATION].view.buf,
        .collective_size = in[COLLECTIVE_SIZE].view.buf,
        .collective_transfer_ns = in[COLLECTIVE_TRANSFER].view.buf,
        .alpha = in[ALPHA].view.buf,
    };
}

static PyObject *run(const column *in, const column *out)
{
    sizes n = {
        .ranks = column_rows(&in[NODE_FIRST]) - 1,
        .nodes = column_rows(&in[NODE_GAP]),
        .operations = column_rows(&in[OP_NODE]),
        .collectives = column_rows(&in[COLLECTIVE_SIZE]),
    };
    if (check(in, out, &n) < 0) {
        return NULL;
    }
    replay_program program = program_of(in, &n);
    replay_times times = {
        .node_start_ns = out[NODE_START].view.buf,
        .node_end_ns = out[NODE_END].view.buf,
        .op_start_ns = out[OP_START].view.buf,
        .op_end_ns = out[OP_END].view.buf,
    };
    replay_links links = {0};
    replay_status status;
    int64_t stuck = 0;
    /* The buffers are held, so the columns stay; nothing may write to them meanwhile. */
    Py_BEGIN_ALLOW_THREADS
    status = replay_link(&links, &program);
    if (status == REPLAY_DONE) {
        status = replay_run(&program, &links, &times, &stuck);
    }
    replay_unlink(&links);
    Py_END_ALLOW_THREADS
    switch (status) {
    case REPLAY_DONE:
        Py_RETURN_NONE;
    case REPLAY_STUCK:
        return PyLong_FromLongLong(stuck);
    case REPLAY_NO_MEMORY:
        return PyErr_NoMemory();
    default:
        PyErr_SetString(PyExc_OverflowError, "a time does not fit 64 bits");
        return NULL;
    }
}

PyObject *native_simulate(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *program, *given[OUTPUTS];
    if (!PyArg_ParseTuple(arguments, "OOOOO:simulate", &program, &given[NODE_START],
                          &given[NODE_END], &given[OP_START], &given[OP_END])) {
        return NULL;
    }
    column in[INPUTS], out[OUTPUTS];
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    PyObject *result = NULL;
    int failed = columns_take(in, program, INPUT, INPUTS) < 0;
    for (int k = 0; k < OUTPUTS && !failed; k++) {
        failed = column_take(&out[k], given[k], &OUTPUT[k], 1) < 0;
    }
    if (!failed) {
        result = run(in, out);
    }
    columns_release(in, INPUTS);
    columns_release(out, OUTPUTS);
    return result;
}
