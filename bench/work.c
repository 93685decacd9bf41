/* Sizes, values and checks; see work.h. */
#define _GNU_SOURCE
#include "bench/work.h"

#include <sched.h>
#include <time.h>

const char *work_name(enum work_op op)
{
    static const char *const names[WORK_OPS] = {"barrier",   "broadcast",  "allgather", "reduce_scatter",
                                                "allreduce", "all_to_all", "halo",      "ping",
                                                "reshard",   "copy",       "read",      "write"};
    return names[op];
}

static const char *pick(const char *const *list, int n, int i)
{
    return i < n ? list[i] : NULL;
}

const char *work_variant(enum work_kind kind, const struct work_cell *cell, int i)
{
    static const char *const one[] = {""}, *const sides[] = {"pull", "push"};
    static const char *const reshard[] = {"alltoallw", "pack+alltoallv"}, *const halo[] = {"isend", "persistent"};
    static const char *const scatter[] = {"", "allreduce"}; /* who allreduces has reduce-scattered */
    if (cell->op == WORK_RESHARD && kind != WORK_WEFT && !cell->rows)
        return NULL;
    bool memory = cell->op >= WORK_COPY, local = kind == WORK_MEMORY || (kind == WORK_WEFT && cell->op == WORK_COPY);
    if (memory ? !local : kind == WORK_MEMORY)
        return NULL;
    if (cell->op == WORK_RESHARD && kind == WORK_FLOOR)
        return pick(sides, 2, i);
    if (cell->op == WORK_RESHARD && kind == WORK_PEER)
        return pick(reshard, 2, i);
    if (cell->op == WORK_HALO && kind == WORK_PEER)
        return pick(halo, 2, i);
    if (cell->op == WORK_REDUCE_SCATTER && kind == WORK_PEER)
        return pick(scatter, 2, i);
    return pick(one, 1, i);
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
    case WORK_HALO: a = b = 2 * c; break;
    case WORK_RESHARD:
        a = rank < k ? cell->rows / k * cell->columns : 0;
        b = rank >= ranks - k ? cell->rows * (cell->columns / k) : 0;
        break;
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
    return (float)(((uint64_t)place * 2654435761u >> 16) % 251);
}

void work_fill(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m)
{
    size_t in, out;
    work_sizes(cell, rank, ranks, &in, &out);
    int64_t nin = (int64_t)(in / sizeof(float)), nout = (int64_t)(out / sizeof(float));
    bool faces = cell->op == WORK_HALO;
    for (int64_t i = 0; i < (faces ? nout / 2 : nout); i++)
        m->out[i] = cell->op == WORK_BROADCAST && !rank ? value(0, i) : -1;
    for (int64_t i = 0; i < nout / 2 && faces; i++)
        m->right[i] = -1;
    for (int64_t i = 0; i < nin; i++)
        m->in[i] = cell->op == WORK_RESHARD ? work_value(rank * nin + i) : value(rank, i);
}

static int64_t check_columns(const struct work_cell *cell, int rank, int ranks, const float *out)
{
    int64_t k = cell->apart ? ranks / 2 : ranks, w = cell->columns / k, at = rank - (ranks - k), wrong = 0;
    for (int64_t r = 0; r < cell->rows && at >= 0; r++)
        for (int64_t x = 0; x < w; x++)
            wrong += out[r * w + x] != work_value(r * cell->columns + at * w + x);
    return wrong;
}

int64_t work_check(const struct work_cell *cell, int rank, int ranks, const struct work_memory *m)
{
    int64_t c = work_count(cell), s = work_share(cell, ranks), wrong = 0;
    const float *o = m->out;
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
    case WORK_HALO:
        for (int64_t i = 0; i < c; i++) {
            wrong += rank > 0 && o[i] != value(rank - 1, c + i);
            wrong += rank < ranks - 1 && m->right[i] != value(rank + 1, i);
        }
        break;
    case WORK_RESHARD: return check_columns(cell, rank, ranks, o);
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
    case WORK_HALO: return 2 * (n - 1) * s;
    case WORK_PING: return 2 * s;
    case WORK_RESHARD: return (double)(cell->bytes + cell->landed) / 2;
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
    case WORK_HALO: return 2 * (n - 1) / n;
    case WORK_RESHARD: return cell->apart ? 1 : (n - 1) / n;
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

void work_pin(int rank, int ranks)
{
    cpu_set_t may, one;
    CPU_ZERO(&may);
    if (sched_getaffinity(0, sizeof may, &may) || CPU_COUNT(&may) < ranks)
        return;
    size_t cpu = 0;
    for (int left = rank; left > 0 || !CPU_ISSET(cpu, &may); cpu++)
        left -= CPU_ISSET(cpu, &may) != 0;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}
