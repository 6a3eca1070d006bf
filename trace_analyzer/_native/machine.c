#include "machine.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#if FLT_EVAL_METHOD != 0 || defined(__FAST_MATH__)
#error "doubles would not be computed as Python computes them, and results would differ"
#endif

enum { START, END }; /* kinds of heap entries, in this order */
enum { RELEASED = 1, STARTED = 2, ENDED = 4, RUNNING = 8 }; /* what is known of an operation */
#define INT64_LIMIT 9223372036854775808.0                   /* 2 ** 63, exact as a double */
#define FIRST_HEAP_ENTRIES 1024

/* Ordered by time, kind, operation, version: `key` holds the last three from its top bit down. */
typedef struct {
    int64_t at;
    uint64_t key;
} heap_entry;

typedef struct {
    const replay_program *p;
    const replay_links *links;
    const replay_times *times; /* op_start_ns and op_end_ns hold once STARTED and ENDED are set */
    replay_status status;      /* the first failure; work after it is only finished safely */

    uint8_t *known;
    int64_t *release_ns;
    double *left;       /* work left of a running kernel, ns at full rate */
    int64_t *since_ns;  /* when `left` was true */
    uint32_t *version;
    int32_t *run_next, *run_before; /* the running kernels of a rank, linked both ways */

    int64_t *head; /* of each stream: the place in its line of what starts next */
    int64_t *free_at_ns;
    uint8_t *was_used;

    int64_t *node_at, *host_time_ns, *resident;
    int32_t *running;
    int64_t *missing;

    /* A host waits for one thing at a time, so one link a rank is enough. Lists are taken from in
       any order: what a host does on waking up touches no other host. */
    int32_t *blocked, *queued; /* operation → first rank that waits for its end, its start */
    int32_t *next_waiting;

    heap_entry *heap;
    int64_t entries, room;
} machine;

/* ---- Links -------------------------------------------------------------------------------- */

static void *zeros(int64_t count, size_t size)
{
    return calloc(count > 0 ? (size_t)count : 1, size);
}

/* Group the rows of `key` by its values, those below 0 aside; rows keep their order. `row_of`
   names the item of each row, the row itself if NULL. */
static int group(replay_groups *into, const int32_t *key, const int32_t *row_of, int64_t rows,
                 int64_t groups)
{
    into->first = zeros(groups + 2, sizeof *into->first);
    into->item = zeros(rows, sizeof *into->item);
    if (into->first == NULL || into->item == NULL) {
        return -1;
    }
    /* One place further than where it belongs, so that filling moves it there. */
    int64_t *next = into->first + 1;
    for (int64_t row = 0; row < rows; row++) {
        if (key[row] >= 0) {
            next[key[row] + 1]++;
        }
    }
    for (int64_t k = 1; k <= groups; k++) {
        next[k] += next[k - 1];
    }
    for (int64_t row = 0; row < rows; row++) {
        if (key[row] >= 0) {
            into->item[next[key[row]]++] = row_of == NULL ? (int32_t)row : row_of[row];
        }
    }
    return 0;
}

replay_status replay_link(replay_links *links, const replay_program *p)
{
    int64_t dependencies = p->dep_first[p->operations];
    int32_t *owner = zeros(dependencies, sizeof *owner);
    if (owner == NULL) {
        return REPLAY_NO_MEMORY;
    }
    for (int64_t op = 0; op < p->operations; op++) {
        for (int64_t k = p->dep_first[op]; k < p->dep_first[op + 1]; k++) {
            owner[k] = (int32_t)op;
        }
    }
    int failed =
        group(&links->of_node, p->op_node, NULL, p->operations, p->nodes) ||
        group(&links->of_stream, p->op_stream, NULL, p->operations, p->operations) ||
        group(&links->of_collective, p->op_collective, NULL, p->operations, p->collectives) ||
        group(&links->dependents, p->dep_operation, owner, dependencies, p->operations);
    free(owner);
    return failed ? REPLAY_NO_MEMORY : REPLAY_DONE;
}

static void release_groups(replay_groups *groups)
{
    free(groups->first);
    free(groups->item);
    groups->first = NULL;
    groups->item = NULL;
}

void replay_unlink(replay_links *links)
{
    release_groups(&links->of_node);
    release_groups(&links->of_stream);
    release_groups(&links->of_collective);
    release_groups(&links->dependents);
}

/* ---- Numbers ------------------------------------------------------------------------------ */

static int64_t plus(machine *m, int64_t a, int64_t b)
{
    int64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        m->status = REPLAY_OVERFLOW;
        return 0;
    }
    return sum;
}

static int64_t minus(machine *m, int64_t a, int64_t b)
{
    int64_t difference;
    if (__builtin_sub_overflow(a, b, &difference)) {
        m->status = REPLAY_OVERFLOW;
        return 0;
    }
    return difference;
}

/* Python's round(): halves to the even neighbour. */
static int64_t rounded(machine *m, double value)
{
    double whole = rint(value);
    if (!(whole >= -INT64_LIMIT && whole < INT64_LIMIT)) {
        m->status = REPLAY_OVERFLOW;
        return 0;
    }
    return (int64_t)whole;
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- Heap --------------------------------------------------------------------------------- */

static int before(heap_entry a, heap_entry b)
{
    return a.at != b.at ? a.at < b.at : a.key < b.key;
}

static void push(machine *m, int64_t at, int what, int32_t op, uint32_t version)
{
    if (m->entries == m->room) {
        int64_t room = m->room > 0 ? 2 * m->room : FIRST_HEAP_ENTRIES;
        heap_entry *grown = NULL;
        if ((uint64_t)room <= SIZE_MAX / sizeof *grown) {
            grown = realloc(m->heap, (size_t)room * sizeof *grown);
        }
        if (grown == NULL) {
            m->status = REPLAY_NO_MEMORY;
            return;
        }
        m->heap = grown;
        m->room = room;
    }
    heap_entry added = {at, (uint64_t)what << 63 | (uint64_t)op << 32 | version};
    int64_t place = m->entries++;
    while (place > 0) {
        int64_t parent = (place - 1) / 2;
        if (!before(added, m->heap[parent])) {
            break;
        }
        m->heap[place] = m->heap[parent];
        place = parent;
    }
    m->heap[place] = added;
}

static heap_entry pop(machine *m)
{
    heap_entry first = m->heap[0], last = m->heap[--m->entries];
    int64_t place = 0, child;
    while ((child = 2 * place + 1) < m->entries) {
        if (child + 1 < m->entries && before(m->heap[child + 1], m->heap[child])) {
            child++;
        }
        if (!before(m->heap[child], last)) {
            break;
        }
        m->heap[place] = m->heap[child];
        place = child;
    }
    m->heap[place] = last;
    return first;
}

/* ---- The machine, in the order of the reference ---------------------------------------------- */

/* Schedule the start of a stream's next operation, once its time is known. */
static void try_start(machine *m, int32_t stream)
{
    const replay_program *p = m->p;
    const int64_t *end = m->times->op_end_ns;
    const int32_t *line = m->links->of_stream.item + m->links->of_stream.first[stream];
    int64_t length = m->links->of_stream.first[stream + 1] - m->links->of_stream.first[stream];
    int64_t position = m->head[stream];
    if (position >= length) {
        return;
    }
    int32_t op = line[position];
    if (!(m->known[op] & RELEASED) || (position && !(m->known[line[position - 1]] & ENDED))) {
        return;
    }
    int has_after = m->was_used[stream];
    int64_t after = m->free_at_ns[stream];
    for (int64_t k = p->dep_first[op]; k < p->dep_first[op + 1]; k++) {
        int32_t awaited = p->dep_operation[k];
        if (!(m->known[awaited] & ENDED)) {
            return;
        }
        after = has_after ? later(after, end[awaited]) : end[awaited];
        has_after = 1;
    }
    int64_t at = plus(m, m->release_ns[op], p->op_latency_ns[op]);
    if (p->op_node[op] != NO_POSITION && has_after) {
        at = later(at, plus(m, after, p->op_gap_ns[op]));
    }
    m->head[stream] = position + 1;
    push(m, at, START, op, 0);
}

static void wait_for(machine *m, int32_t *list, int32_t op, int32_t rank)
{
    m->next_waiting[rank] = list[op];
    list[op] = rank;
}

/* Run a host until it waits for something that has not happened. */
static void advance(machine *m, int32_t rank)
{
    const replay_program *p = m->p;
    const replay_groups *of_node = &m->links->of_node;
    int64_t stop = p->node_first[rank + 1];
    while (m->node_at[rank] < stop) {
        int64_t node = m->node_at[rank];
        int64_t begins = plus(m, m->host_time_ns[rank], p->node_gap_ns[node]);
        m->times->node_start_ns[node] = begins;
        for (int64_t k = of_node->first[node]; k < of_node->first[node + 1]; k++) {
            int32_t op = of_node->item[k];
            if (!(m->known[op] & RELEASED)) {
                m->known[op] |= RELEASED;
                m->release_ns[op] = begins;
                try_start(m, p->op_stream[op]);
            }
        }
        int64_t ready = begins;
        for (int64_t k = p->wait_first[node]; k < p->wait_first[node + 1]; k++) {
            int32_t op = p->wait_operation[k];
            if (!(m->known[op] & ENDED)) {
                wait_for(m, m->blocked, op, rank);
                return;
            }
            ready = later(ready, m->times->op_end_ns[op]);
        }
        int32_t full = p->node_queue[node];
        if (full != NO_POSITION) {
            if (!(m->known[full] & STARTED)) {
                wait_for(m, m->queued, full, rank);
                return;
            }
            ready = later(ready, m->times->op_start_ns[full]);
        }
        m->host_time_ns[rank] = plus(m, ready, p->node_cost_ns[node]);
        m->times->node_end_ns[node] = m->host_time_ns[rank];
        m->node_at[rank]++;
    }
}

static void wake(machine *m, int32_t *list, int32_t op)
{
    int32_t rank = list[op];
    list[op] = NO_POSITION;
    while (rank != NO_POSITION) {
        int32_t next = m->next_waiting[rank]; /* the host may wait again at once */
        advance(m, rank);
        rank = next;
    }
}

static double rate(const machine *m, int32_t op)
{
    if (m->resident[m->p->op_rank[op]] != 0) {
        return 1.0 / (1.0 + m->p->alpha[m->p->op_class[op]]);
    }
    return 1.0;
}

static void schedule(machine *m, int32_t op, int64_t now)
{
    push(m, plus(m, now, rounded(m, m->left[op] / rate(m, op))), END, op, m->version[op]);
}

/* Communication arrives on a device or leaves it: running kernels change their rate. */
static void change(machine *m, int32_t rank, int64_t now, int by)
{
    int64_t next = m->resident[rank] + by;
    if ((m->resident[rank] > 0) == (next > 0)) {
        m->resident[rank] = next;
        return;
    }
    for (int32_t op = m->running[rank]; op != NO_POSITION; op = m->run_next[op]) {
        /* volatile: product and difference are rounded one after the other, never fused. */
        volatile double done = (double)minus(m, now, m->since_ns[op]) * rate(m, op);
        double left = m->left[op] - done;
        m->left[op] = left < 0.0 ? 0.0 : left;
        m->since_ns[op] = now;
    }
    m->resident[rank] = next;
    for (int32_t op = m->running[rank]; op != NO_POSITION; op = m->run_next[op]) {
        m->version[op]++;
        schedule(m, op, now);
    }
}

static void run_add(machine *m, int32_t rank, int32_t op)
{
    int32_t first = m->running[rank];
    m->run_next[op] = first;
    m->run_before[op] = NO_POSITION;
    if (first != NO_POSITION) {
        m->run_before[first] = op;
    }
    m->running[rank] = op;
    m->known[op] |= RUNNING;
}

static void run_remove(machine *m, int32_t rank, int32_t op)
{
    int32_t next = m->run_next[op], earlier = m->run_before[op];
    if (!(m->known[op] & RUNNING)) {
        return;
    }
    m->known[op] &= (uint8_t)~RUNNING;
    if (next != NO_POSITION) {
        m->run_before[next] = earlier;
    }
    if (earlier != NO_POSITION) {
        m->run_next[earlier] = next;
    } else {
        m->running[rank] = next;
    }
}

/* The last member has arrived: all end after the transfer. */
static void transfer(machine *m, int32_t collective, int64_t now)
{
    const replay_groups *members = &m->links->of_collective;
    int64_t done = plus(m, now, m->p->collective_transfer_ns[collective]);
    for (int64_t k = members->first[collective]; k < members->first[collective + 1]; k++) {
        int32_t member = members->item[k];
        int64_t began = m->known[member] & STARTED ? m->times->op_start_ns[member] : 0;
        push(m, later(plus(m, done, m->p->op_end_offset_ns[member]), began), END, member, 0);
    }
}

static void begin(machine *m, int32_t op, int64_t now)
{
    const replay_program *p = m->p;
    int32_t rank = p->op_rank[op], collective = p->op_collective[op];
    m->known[op] |= STARTED;
    m->times->op_start_ns[op] = now;
    wake(m, m->queued, op);
    if (p->op_class[op] == CLASS_COMM) {
        change(m, rank, now, +1);
        if (collective == NO_POSITION) {
            push(m, plus(m, now, p->op_base_ns[op]), END, op, 0);
        } else if (--m->missing[collective] == 0) {
            transfer(m, collective, now);
        }
    } else if (p->op_class[op] == CLASS_COPY) {
        push(m, plus(m, now, p->op_base_ns[op]), END, op, 0);
    } else {
        run_add(m, rank, op);
        m->left[op] = (double)p->op_base_ns[op];
        m->since_ns[op] = now;
        schedule(m, op, now);
    }
}

static void finish(machine *m, int32_t op, int64_t now)
{
    const replay_program *p = m->p;
    const replay_groups *dependents = &m->links->dependents;
    int32_t rank = p->op_rank[op], stream = p->op_stream[op];
    m->known[op] |= ENDED;
    m->times->op_end_ns[op] = now;
    run_remove(m, rank, op);
    m->free_at_ns[stream] = now;
    m->was_used[stream] = 1;
    if (p->op_class[op] == CLASS_COMM) {
        change(m, rank, now, -1);
    }
    try_start(m, stream);
    for (int64_t k = dependents->first[op]; k < dependents->first[op + 1]; k++) {
        try_start(m, p->op_stream[dependents->item[k]]);
    }
    wake(m, m->blocked, op);
}

/* ---- Running it --------------------------------------------------------------------------- */

static void fill_none(int32_t *values, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        values[k] = NO_POSITION;
    }
}

static int machine_make(machine *m)
{
    const replay_program *p = m->p;
    int64_t ops = p->operations, ranks = p->ranks;
    m->known = zeros(ops, sizeof *m->known);
    m->release_ns = zeros(ops, sizeof *m->release_ns);
    m->left = zeros(ops, sizeof *m->left);
    m->since_ns = zeros(ops, sizeof *m->since_ns);
    m->version = zeros(ops, sizeof *m->version);
    m->run_next = zeros(ops, sizeof *m->run_next);
    m->run_before = zeros(ops, sizeof *m->run_before);
    m->head = zeros(ops, sizeof *m->head);
    m->free_at_ns = zeros(ops, sizeof *m->free_at_ns);
    m->was_used = zeros(ops, sizeof *m->was_used);
    m->node_at = zeros(ranks, sizeof *m->node_at);
    m->host_time_ns = zeros(ranks, sizeof *m->host_time_ns);
    m->resident = zeros(ranks, sizeof *m->resident);
    m->running = zeros(ranks, sizeof *m->running);
    m->missing = zeros(p->collectives, sizeof *m->missing);
    m->blocked = zeros(ops, sizeof *m->blocked);
    m->queued = zeros(ops, sizeof *m->queued);
    m->next_waiting = zeros(ranks, sizeof *m->next_waiting);
    return m->known && m->release_ns && m->left && m->since_ns && m->version && m->run_next &&
                   m->run_before && m->head && m->free_at_ns && m->was_used && m->node_at &&
                   m->host_time_ns && m->resident && m->running && m->missing && m->blocked &&
                   m->queued && m->next_waiting
               ? 0
               : -1;
}

static void machine_free(machine *m)
{
    void *parts[] = {m->known,    m->release_ns,   m->left,     m->since_ns,   m->version,
                     m->run_next, m->run_before,   m->head,     m->free_at_ns, m->was_used,
                     m->node_at,  m->host_time_ns, m->resident, m->running,    m->missing,
                     m->blocked,  m->queued,       m->next_waiting, m->heap};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        free(parts[k]);
    }
}

static void machine_run(machine *m)
{
    const replay_program *p = m->p;
    fill_none(m->running, p->ranks);
    fill_none(m->blocked, p->operations);
    fill_none(m->queued, p->operations);
    for (int64_t k = 0; k < p->collectives; k++) {
        m->missing[k] = p->collective_size[k];
    }
    for (int64_t op = 0; op < p->operations; op++) {
        if (p->op_node[op] == NO_POSITION) {
            m->known[op] |= RELEASED;
            m->release_ns[op] = p->op_fixed_ns[op];
        }
    }
    for (int64_t rank = 0; rank < p->ranks; rank++) {
        m->node_at[rank] = p->node_first[rank];
    }
    for (int64_t rank = 0; rank < p->ranks; rank++) {
        advance(m, (int32_t)rank);
    }
    for (int64_t stream = 0; stream < p->operations; stream++) {
        try_start(m, (int32_t)stream);
    }
    while (m->entries > 0 && m->status == REPLAY_DONE) {
        heap_entry next = pop(m);
        int32_t op = (int32_t)(next.key >> 32 & INT32_MAX);
        if (next.key >> 63 == START) {
            begin(m, op, next.at);
        } else if ((uint32_t)next.key == m->version[op]) {
            finish(m, op, next.at);
        }
    }
}

replay_status replay_run(const replay_program *program, const replay_links *links,
                         const replay_times *times, int64_t *stuck)
{
    machine m = {.p = program, .links = links, .times = times, .status = REPLAY_DONE};
    *stuck = 0;
    if (machine_make(&m) < 0) {
        m.status = REPLAY_NO_MEMORY;
    } else {
        machine_run(&m);
    }
    if (m.status == REPLAY_DONE) {
        for (int64_t op = 0; op < program->operations; op++) {
            *stuck += (m.known[op] & (STARTED | ENDED)) != (STARTED | ENDED);
        }
        int unfinished = *stuck > 0;
        for (int64_t rank = 0; rank < program->ranks; rank++) {
            unfinished |= m.node_at[rank] != program->node_first[rank + 1];
        }
        m.status = unfinished ? REPLAY_STUCK : REPLAY_DONE;
    }
    machine_free(&m);
    return m.status;
}
