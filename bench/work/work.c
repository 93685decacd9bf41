/* Sizes, values and checks; see work.h. */
#define _GNU_SOURCE
#include "bench/work/work.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "bench/work/grid.h"
#include "bench/work/matrix.h"

const char *work_name(enum work_op op)
{
    static const char *const names[WORK_OPS] = {"barrier",    "broadcast", "allgather", "reduce_scatter", "allreduce",
                                                "all_to_all", "halo",      "ping",      "reshard",        "many",
                                                "exchange",   "grid",      "copy",      "read",           "write"};
    return names[op];
}

static const char *pick(const char *const *list, int n, int i)
{
    return i < n ? list[i] : NULL;
}

static int split_dims(const struct work_grid *g)
{
    int n = 0;
    for (int d = 0; d < g->dims; d++)
        n += g->ranks[d] > 1;
    return n;
}

const char *work_variant(enum work_kind kind, const struct work_cell *cell, int i)
{
    static const char *const one[] = {""}, *const sides[] = {"pull", "push"};
    static const char *const reshard[] = {"alltoallw", "pack+alltoallv"}, *const halo[] = {"isend", "persistent"};
    static const char *const scatter[] = {"", "allreduce"}; /* an allreduce contains a reduce-scatter */
    static const char *const grid[] = {"neighbor_alltoallw", "persistent", "persistent, dim by dim"};
    static const char *const exchange[] = {"isend, probe, recv"};
    static const char *const many[] = {"one plan", "one plan each, started together", "one plan each, in turn"};
    bool memory = cell->op >= WORK_COPY, local = kind == WORK_MEMORY || (kind == WORK_WEFT && cell->op == WORK_COPY);
    if (memory ? !local : kind == WORK_MEMORY)
        return NULL;
    if (cell->op == WORK_GRID && kind == WORK_PEER) /* if only one dim is cut, dim by dim is the same */
        return pick(grid, split_dims(&cell->grid) > 1 ? 3 : 2, i);
    if (cell->op == WORK_EXCHANGE && kind == WORK_PEER)
        return pick(exchange, 1, i);
    if ((cell->op == WORK_GRID || cell->op == WORK_EXCHANGE) && kind == WORK_FLOOR)
        return NULL;
    if (cell->op == WORK_MANY && kind == WORK_WEFT)
        return pick(many, 3, i);
    if (cell->op == WORK_MANY && kind == WORK_PEER)
        return pick(reshard + 1, 1, i);
    if ((cell->op == WORK_RESHARD || cell->op == WORK_MANY) && kind == WORK_FLOOR)
        return pick(sides, 2, i);
    if (cell->op == WORK_RESHARD && kind == WORK_PEER)
        return pick(reshard, 2, i);
    if (cell->op == WORK_HALO && kind == WORK_PEER)
        return pick(halo, 2, i);
    if (cell->op == WORK_REDUCE_SCATTER && kind == WORK_PEER)
        return pick(scatter, 2, i);
    return pick(one, 1, i);
}

struct work_tensor work_tensor(int i)
{
    int size = i % 7; /* 1 KiB << size */
    return (struct work_tensor){16 << (size + 1) / 2, 16 << size / 2, (int64_t)(i / 7 * 127 + (1 << size) - 1) * 256};
}

int64_t work_count(const struct work_cell *cell)
{
    return cell->bytes < 4 ? 1 : cell->bytes / 4;
}

int64_t work_share(const struct work_cell *cell, int ranks)
{
    int64_t n = work_count(cell) / ranks;
    return n ? n : 1;
}

void work_sizes(const struct work_cell *cell, int rank, int ranks, size_t *in, size_t *out)
{
    int64_t c = work_count(cell), s = work_share(cell, ranks), a = 0, b = 0, k = cell->apart ? ranks / 2 : ranks;
    switch (cell->op) {
    case WORK_BROADCAST: b = c; break;
    case WORK_ALLGATHER: a = c, b = ranks * c; break;
    case WORK_ALLREDUCE:
    case WORK_PING: a = b = c; break;
    case WORK_REDUCE_SCATTER: /* as much as an allreduce, for peers that do it so */
    case WORK_ALL_TO_ALL: a = b = s * ranks; break;
    case WORK_EXCHANGE:
    case WORK_HALO: a = b = 2 * c; break;
    case WORK_RESHARD: /* of bf16 half is used */
        a = rank < k ? cell->rows / k * cell->columns : 0;
        b = rank >= ranks - k ? cell->rows * (cell->columns / k) : 0;
        break;
    case WORK_MANY: a = b = c / ranks; break;
    case WORK_GRID: b = grid_of(&cell->grid, rank).floats; break;
    case WORK_COPY:
    case WORK_READ:
    case WORK_WRITE: a = b = c; break;
    default: break;
    }
    *in = (size_t)a * sizeof(float);
    *out = (size_t)b * sizeof(float);
}

/* What rank r puts at i: small whole numbers, so that sums are exact. */
static float value(int r, int64_t i)
{
    return (float)((r * 7 + i) % 61);
}

static float sum(int ranks, int64_t i)
{
    float s = 0;
    for (int r = 0; r < ranks; r++)
        s += value(r, i);
    return s;
}

float work_value(int64_t place)
{
    return (float)((uint32_t)place * 2654435761u >> 24);
}

/* ---- rows to columns ---- */

static void fill_rows(const struct matrix *m, size_t source, int64_t salt, float *in)
{
    for (size_t r = 0; r < m->height; r++, in += m->columns) {
        int64_t place = (int64_t)(matrix_row(m, source, r) * m->columns) + salt;
        for (size_t c = 0; c < m->columns; c++)
            in[c] = work_value(place + (int64_t)c);
    }
}

/* Compares a run of a destination with the values of the places from `place` on, `far` apart. */
static int64_t check_run(const void *out, size_t at, size_t size, size_t n, int64_t place, size_t far)
{
    const float *f = (const float *)out + at;
    const uint16_t *h = (const uint16_t *)out + at;
    int64_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        float want = work_value(place + (int64_t)(i * far));
        uint32_t bits;
        memcpy(&bits, &want, sizeof bits); /* bf16 is the upper half, and holds the value exactly */
        wrong += size == 4 ? f[i] != want : h[i] != bits >> 16;
    }
    return wrong;
}

static int64_t check_columns(const struct matrix *m, size_t target, int64_t salt, const void *out)
{
    int64_t wrong = 0;
    for (size_t c = 0; m->turned && c < m->width; c++)
        wrong += check_run(out, c * m->rows, m->size, m->rows, (int64_t)matrix_column(m, target, c) + salt, m->columns);
    for (size_t r = 0; !m->turned && r < m->rows; r++)
        for (size_t c = 0; c < m->width; c += m->column_block)
            wrong += check_run(out, r * m->width + c, m->size, m->column_block,
                               (int64_t)(r * m->columns + matrix_column(m, target, c)) + salt, 1);
    return wrong;
}

static void fill_matrices(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m)
{
    for (int i = 0; cell->op == WORK_MANY && i < cell->tensors; i++) {
        struct matrix t = matrix_of_tensor(i, ranks);
        fill_rows(&t, (size_t)rank, i, m->in + work_tensor(i).before / ranks);
    }
    struct matrix t = matrix_of(cell, ranks);
    if (cell->op == WORK_RESHARD && (size_t)rank < t.k)
        fill_rows(&t, (size_t)rank, 0, m->in);
}

static int64_t check_matrices(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m)
{
    int64_t wrong = 0;
    for (int i = 0; cell->op == WORK_MANY && i < cell->tensors; i++) {
        struct matrix t = matrix_of_tensor(i, ranks);
        wrong += check_columns(&t, (size_t)rank, i, m->out + work_tensor(i).before / ranks);
    }
    struct matrix t = matrix_of(cell, ranks);
    if (cell->op == WORK_RESHARD && (size_t)rank >= t.first)
        wrong += check_columns(&t, (size_t)rank - t.first, 0, m->out);
    return wrong;
}

/* ---- all ---- */

void work_fill(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m)
{
    size_t in, out;
    if (cell->op == WORK_GRID) {
        struct grid g = grid_of(&cell->grid, rank);
        grid_fill(&g, m->out);
        return;
    }
    work_sizes(cell, rank, ranks, &in, &out);
    int64_t nin = (int64_t)(in / sizeof(float)), nout = (int64_t)(out / sizeof(float));
    bool faces = cell->op == WORK_HALO || cell->op == WORK_EXCHANGE;
    for (int64_t i = 0; i < (faces ? nout / 2 : nout); i++)
        m->out[i] = cell->op == WORK_BROADCAST && !rank ? value(0, i) : -1;
    for (int64_t i = 0; i < nout / 2 && faces; i++)
        m->right[i] = -1;
    if (cell->op == WORK_RESHARD || cell->op == WORK_MANY)
        fill_matrices(cell, rank, ranks, m);
    else
        for (int64_t i = 0; i < nin; i++)
            m->in[i] = value(rank, i);
}

int64_t work_check(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m)
{
    int64_t c = work_count(cell), s = work_share(cell, ranks), wrong = 0;
    const float *o = m->out;
    struct grid g = grid_of(&cell->grid, rank);
    switch (cell->op) {
    case WORK_BROADCAST:
    case WORK_PING:
        for (int64_t i = 0; i < c && (cell->op == WORK_BROADCAST || rank < 2); i++)
            wrong += o[i] != value(0, i);
        break;
    case WORK_ALLGATHER:
        for (int r = 0; r < ranks; r++)
            for (int64_t i = 0; i < c; i++)
                wrong += o[r * c + i] != value(r, i);
        break;
    case WORK_REDUCE_SCATTER:
        for (int64_t i = 0; i < s; i++)
            wrong += o[i] != sum(ranks, rank * s + i);
        break;
    case WORK_ALLREDUCE:
        for (int64_t i = 0; i < c; i++)
            wrong += o[i] != sum(ranks, i);
        break;
    case WORK_ALL_TO_ALL:
        for (int r = 0; r < ranks; r++)
            for (int64_t i = 0; i < s; i++)
                wrong += o[r * s + i] != value(r, rank * s + i);
        break;
    case WORK_EXCHANGE:
    case WORK_HALO:
        for (int64_t i = 0; i < c; i++) {
            wrong += rank > 0 && o[i] != value(rank - 1, c + i);
            wrong += rank < ranks - 1 && m->right[i] != value(rank + 1, i);
        }
        break;
    case WORK_RESHARD:
    case WORK_MANY: return check_matrices(cell, rank, ranks, m);
    case WORK_GRID: return grid_check(&g, m->out);
    case WORK_COPY:
        for (int64_t i = 0; i < c; i++)
            wrong += o[i] != value(rank, i);
        break;
    default: break;
    }
    return wrong;
}

double work_moved(const struct work_cell *cell, int ranks)
{
    double n = ranks, s = (double)work_count(cell) * 4, share = (double)work_share(cell, ranks) * 4;
    switch (cell->op) {
    case WORK_BROADCAST: return (n - 1) * s;
    case WORK_ALLGATHER: return n * n * s;
    case WORK_REDUCE_SCATTER: return n * (n + 1) * share / 2; /* each reads n shares and writes one */
    case WORK_ALLREDUCE: return (n + 1) * s / 2 + (n - 1) * s;
    case WORK_ALL_TO_ALL: return n * n * share;
    case WORK_EXCHANGE:
    case WORK_HALO: return 2 * (n - 1) * s;
    case WORK_PING: return 2 * s;
    case WORK_RESHARD: return (double)cell->bytes * (cell->casts ? 0.75 : 1);
    case WORK_MANY: return (double)cell->bytes;
    case WORK_GRID: return grid_moved(&cell->grid);
    case WORK_COPY: return n * s;
    case WORK_READ:
    case WORK_WRITE: return n * s / 2;
    default: return 0;
    }
}

double work_bus(const struct work_cell *cell, int ranks)
{
    double n = ranks;
    switch (cell->op) {
    case WORK_ALLGATHER: return n - 1; /* bytes is one rank's part */
    case WORK_REDUCE_SCATTER:
    case WORK_ALL_TO_ALL: return (n - 1) / n;
    case WORK_ALLREDUCE:
    case WORK_EXCHANGE:
    case WORK_HALO: return 2 * (n - 1) / n;
    case WORK_RESHARD:
    case WORK_MANY: return cell->apart ? 1 : (n - 1) / n;
    case WORK_GRID: return grid_moved(&cell->grid) / (double)cell->bytes / n;
    case WORK_COPY:
    case WORK_READ:
    case WORK_WRITE: return n;
    default: return 1;
    }
}

double work_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int work_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

void work_pin(int rank)
{
    cpu_set_t may, one;
    CPU_ZERO(&may);
    if (sched_getaffinity(0, sizeof may, &may))
        return;
    size_t cpu = 0;
    for (int left = rank % CPU_COUNT(&may); left > 0 || !CPU_ISSET(cpu, &may); cpu++)
        left -= CPU_ISSET(cpu, &may) != 0;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}
