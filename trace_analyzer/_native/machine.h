/* The simulator of trace_analyzer/analyses/replay/simulate.py, step by step the same, without
   Python: it may run while other threads hold the interpreter. */
#ifndef TRACE_ANALYZER_MACHINE_H
#define TRACE_ANALYZER_MACHINE_H

#include <stdint.h>

enum { CLASS_COMM = 2, CLASS_COPY = 3, CLASSES = 4 };
#define NO_POSITION (-1)

/* The columns of program.py by the same names. All positions must be valid and all delimiters
   sorted; `op_stream` lies in [0, operations). */
typedef struct {
    int64_t ranks, nodes, operations, collectives;
    const int64_t *node_first, *node_gap_ns, *node_cost_ns;
    const int32_t *node_queue;
    const int64_t *wait_first;
    const int32_t *wait_operation;
    const int32_t *op_rank, *op_node;
    const int64_t *op_fixed_ns;
    const int32_t *op_stream;
    const int8_t *op_class;
    const int64_t *op_base_ns, *op_latency_ns, *op_gap_ns;
    const int32_t *op_collective;
    const int64_t *op_end_offset_ns;
    const int64_t *dep_first;
    const int32_t *dep_operation;
    const int32_t *collective_size;
    const int64_t *collective_transfer_ns;
    const double *alpha;
} replay_program;

/* Rows of a table by the group they belong to: group g has item[first[g]] to item[first[g + 1]]. */
typedef struct {
    int64_t *first;
    int32_t *item;
} replay_groups;

/* What only depends on how a program is linked, not on its times: made once for many variants. */
typedef struct {
    replay_groups of_node, of_stream, of_collective, dependents;
} replay_links;

/* Where the times go: rows as in the program. */
typedef struct {
    int64_t *node_start_ns, *node_end_ns, *op_start_ns, *op_end_ns;
} replay_times;

typedef enum {
    REPLAY_DONE,
    REPLAY_STUCK,
    REPLAY_NO_MEMORY,
    REPLAY_OVERFLOW, /* a time does not fit 64 bits */
} replay_status;

replay_status replay_link(replay_links *links, const replay_program *program);
void replay_unlink(replay_links *links);

/* Execute a program; `stuck` is how many operations did not end. */
replay_status replay_run(const replay_program *program, const replay_links *links,
                         const replay_times *times, int64_t *stuck);

#endif
