/* Runs the plans of a case on the real engine: teams of threads whose comms stay open over the whole campaign, one team
 * for each of a few sizes, one comm for each way to move. */
#ifndef WEFT_TESTS_PROPERTY_ENGINE_H
#define WEFT_TESTS_PROPERTY_ENGINE_H
#include "base/hash.h"
#include "cli/check/inplace.h"
#include "property_lab.h"
#include "tool/worker_threads.h"

enum { ENGINE_TEAMS = 3 };
static const int engine_size[ENGINE_TEAMS] = {4, 8, CASE_RANKS};

struct engine_team {
    struct worker_threads *team;
    int size;
    weft_comm *comm[2][CASE_RANKS]; /* direct, staged */
};
struct engine {
    struct engine_team teams[ENGINE_TEAMS];
    int generation; /* names of comms are not used again */
};

/* One side of a tensor on a rank: a view of some memory, and the same data dense. */
struct engine_side {
    unsigned char *memory; /* the other side's where that is shared */
    int64_t bytes;
    struct inplace_view view;
};
struct engine_tensor {
    bool shared; /* both sides are in one memory */
    struct engine_side side[2];
    unsigned char *first; /* what the destination held after the first run, dense */
};
struct engine_job {
    struct engine_team *team;
    struct lab *lab;
    int way;
    struct engine_tensor tensor[CASE_MOVES][CASE_RANKS];
    weft_view view[2][CASE_RANKS][CASE_MOVES];
    char wrong[CASE_RANKS][200]; /* what a rank saw that it should not have */
};

/* ---- teams ---- */

struct engine_opening {
    struct engine_team *team;
    char url[64];
    int way;
};

static inline int engine_open_rank(void *arg, int rank)
{
    struct engine_opening *o = arg;
    weft_comm_opts opts = {
        .size = sizeof opts, .rank = rank, .staged = o->way == 1, .deadline_ns = INT64_C(20000000000)};
    return weft_comm_open(o->url, &opts, &o->team->comm[o->way][rank]);
}

static inline int engine_close_rank(void *arg, int rank)
{
    struct engine_team *t = arg;
    for (int way = 0; way < 2; way++) {
        weft_comm_close(t->comm[way][rank]);
        t->comm[way][rank] = NULL;
    }
    return 0;
}

static inline bool engine_team_open(struct engine *e, struct engine_team *t, int size, struct why *why)
{
    struct failure f;
    *t = (struct engine_team){.size = size};
    if (worker_threads_open(size, &t->team, &f))
        return broken(why, "%s", f.text);
    for (int way = 0; way < 2; way++) {
        struct engine_opening o = {.team = t, .way = way};
        snprintf(o.url, sizeof o.url, "threads:%d/property.%d.%d", size, e->generation++, way);
        if (worker_threads_do(t->team, engine_open_rank, &o, &f))
            return broken(why, "%s", f.text);
    }
    return true;
}

static inline void engine_team_close(struct engine_team *t)
{
    struct failure f;
    if (t->team)
        worker_threads_do(t->team, engine_close_rank, t, &f);
    worker_threads_close(t->team);
    t->team = NULL;
}

static inline void engine_close(struct engine *e)
{
    for (int i = 0; i < ENGINE_TEAMS; i++)
        engine_team_close(&e->teams[i]);
}

static inline int engine_team_number(int world)
{
    int i = 0;
    while (engine_size[i] < world)
        i++;
    return i;
}

/* The smallest team for so many ranks, opened when it is first needed, and again after it failed. */
static inline struct engine_team *engine_team_for(struct engine *e, int world, struct why *why)
{
    int i = engine_team_number(world);
    if (!e->teams[i].team && !engine_team_open(e, &e->teams[i], engine_size[i], why))
        return NULL;
    return &e->teams[i];
}

/* ---- memory ---- */

/* A dense local shape with gaps between rows, drawn from the seed. */
static inline struct inplace_view engine_view(const weft_local *l, size_t width, uint64_t gaps, int64_t *bytes)
{
    struct inplace_view v = {.ndim = l->ndim, .width = (int64_t)width};
    int64_t stride = v.width, end = v.width;
    v.first = (int64_t)(gaps % 3) * v.width;
    gaps /= 3;
    for (int d = l->ndim - 1; d >= 0; d--) {
        stride += (int64_t)(gaps % 3) * v.width;
        gaps /= 3;
        v.shape[d] = l->shape[d];
        v.strides[d] = stride;
        end += (l->shape[d] - 1) * stride;
        stride *= l->shape[d];
    }
    *bytes = l->count ? v.first + end : 0;
    return v;
}

/* Where each slot of a view is: its offset in the memory in elements. The caller frees it. */
static inline int64_t *engine_places(const struct inplace_view *v, int64_t count)
{
    int64_t *out = lab_buffer((count + 1) * (int64_t)sizeof *out), at[WEFT_MAX_DIMS] = {0};
    for (int64_t i = 0; i < count; i++) {
        out[i] = v->first;
        for (int d = 0; d < v->ndim; d++)
            out[i] += at[d] * v->strides[d];
        out[i] /= v->width;
        oracle_step(v->ndim, v->shape, at);
    }
    return out;
}

enum engine_legal { ENGINE_LEGAL, ENGINE_UNCLEAR, ENGINE_ILLEGAL };

/* By brute force: does every shared address stand for the same element on both sides? Unclear where it stands for
 * nothing on one of them. */
static inline enum engine_legal engine_legality(const struct lab *l, int m, int rank, const struct inplace *fit)
{
    const struct oracle *o = l->oracle[m];
    if (o->src.dtype != o->dst.dtype)
        return ENGINE_ILLEGAL;
    int64_t n[2], room = fit->bytes / (int64_t)o->src.width;
    int64_t *slot[2] = {lab_slots(&o->src, rank, &n[0]), lab_slots(&o->dst, rank, &n[1])};
    int64_t *place[2] = {engine_places(&fit->src, n[0]), engine_places(&fit->dst, n[1])};
    int64_t *on = lab_buffer((room + 1) * (int64_t)sizeof *on); /* the source's slot at an address, or -1 */
    enum engine_legal legal = ENGINE_LEGAL;
    for (int64_t i = 0; i < room; i++)
        on[i] = -1;
    for (int64_t i = 0; i < n[0]; i++)
        on[place[0][i]] = i;
    for (int64_t i = 0; i < n[1]; i++) {
        int64_t at = on[place[1][i]], a = at < 0 ? -1 : slot[0][at], b = slot[1][i];
        if (at < 0 || (a < 0 && b < 0) || (a >= 0 && b >= 0 && a / 2 == b / 2))
            continue;
        if (a >= 0 && b >= 0)
            legal = ENGINE_ILLEGAL;
        else if (legal == ENGINE_LEGAL)
            legal = ENGINE_UNCLEAR;
    }
    for (int k = 0; k < 2; k++) {
        free(slot[k]);
        free(place[k]);
    }
    free(on);
    return legal;
}

/* Lays out one tensor on one rank. *worst: the least legal sharing that was made; bold: also where it is not legal. */
static inline bool engine_place(struct engine_job *j, int m, int rank, bool bold, enum engine_legal *worst,
                                struct why *why)
{
    struct lab *l = j->lab;
    struct engine_tensor *t = &j->tensor[m][rank];
    uint64_t gaps = hash_u64(l->c->seed, (uint64_t)(rank * CASE_MOVES + m));
    bool tight = l->c->seed % 3 != 0;
    struct inplace fit = {.shared = false};
    if (l->c->in_place && inplace_fit(l->layout[m][0], l->layout[m][1], rank, &fit))
        return broken(why, "in place: %s", weft_errmsg());
    if (fit.shared) {
        enum engine_legal legal = engine_legality(l, m, rank, &fit);
        fit.shared = legal == ENGINE_LEGAL || bold;
        if (fit.shared && legal > *worst)
            *worst = legal;
    }
    t->shared = fit.shared;
    for (int k = 0; k < 2; k++) {
        struct engine_side *s = &t->side[k];
        weft_local local;
        if (weft_layout_local(l->layout[m][k], rank, &local))
            return broken(why, "local: %s", weft_errmsg());
        if (fit.shared) {
            s->view = k ? fit.dst : fit.src;
            s->bytes = fit.bytes;
            s->memory = k ? t->side[0].memory : lab_buffer(s->bytes);
        } else {
            s->view =
                engine_view(&local, weft_dtype_size(l->c->side[m][k].dtype), tight ? 0 : gaps >> (20 * k), &s->bytes);
            s->memory = lab_buffer(s->bytes);
        }
        if (!local.count)
            s->bytes = 0;
        j->view[k][rank][m] =
            (weft_view){s->bytes ? s->memory + s->view.first : NULL, s->bytes ? (size_t)(s->bytes - s->view.first) : 0,
                        tight && !fit.shared ? NULL : s->view.strides};
    }
    t->first = lab_buffer(oracle_dst_bytes(l->oracle[m], rank));
    return true;
}

static inline void engine_release(struct engine_job *j)
{
    for (int m = 0; m < j->lab->c->moves; m++)
        for (int r = 0; r < j->lab->world; r++) {
            struct engine_tensor *t = &j->tensor[m][r];
            free(t->side[0].memory);
            if (!t->shared)
                free(t->side[1].memory);
            free(t->first);
        }
}

/* ---- what a rank does ---- */

static inline void engine_fill(const struct engine_job *j, int rank)
{
    for (int m = 0; m < j->lab->c->moves; m++) {
        const struct engine_tensor *t = &j->tensor[m][rank];
        if (t->side[1].bytes)
            memset(t->side[1].memory, LAB_UNTOUCHED, (size_t)t->side[1].bytes);
        if (t->side[0].bytes && !t->shared)
            memset(t->side[0].memory, LAB_UNTOUCHED, (size_t)t->side[0].bytes);
        if (t->side[0].bytes)
            inplace_scatter(&t->side[0].view, t->side[0].memory, j->lab->src[m * j->lab->world + rank]);
    }
}

static inline void engine_take(const struct engine_job *j, int m, int rank, unsigned char *dense)
{
    const struct engine_side *s = &j->tensor[m][rank].side[1];
    if (s->bytes)
        inplace_gather(&s->view, s->memory, dense);
}

/* A run changes neither its sources nor what lies between the rows of a destination. */
static inline bool engine_untouched(const struct engine_job *j, int m, int rank)
{
    const struct engine_tensor *t = &j->tensor[m][rank];
    if (t->shared)
        return true;
    int64_t count = oracle_src_bytes(j->lab->oracle[m], rank), n = oracle_dst_bytes(j->lab->oracle[m], rank);
    unsigned char *dense = lab_buffer(count > n ? count : n);
    bool ok = true;
    if (t->side[0].bytes) {
        inplace_gather(&t->side[0].view, t->side[0].memory, dense);
        ok = !memcmp(dense, j->lab->src[m * j->lab->world + rank], (size_t)count);
    }
    if (t->side[1].bytes) {
        memset(dense, LAB_UNTOUCHED, (size_t)n);
        inplace_scatter(&t->side[1].view, t->side[1].memory, dense);
    }
    for (int64_t i = 0; i < t->side[1].bytes; i++)
        ok = ok && t->side[1].memory[i] == LAB_UNTOUCHED;
    free(dense);
    return ok;
}

static inline int engine_run_rank(void *arg, int rank)
{
    struct engine_job *j = arg;
    struct lab *l = j->lab;
    weft_exec *x = NULL;
    int rc = weft_bind(l->plans[rank], j->team->comm[j->way][rank], j->view[0][rank], j->view[1][rank], NULL, &x);
    for (int turn = 0; turn < 2 && !rc; turn++) {
        engine_fill(j, rank);
        rc = weft_exec_run(x);
        for (int m = 0; m < l->c->moves && !rc; m++) {
            unsigned char *dst = l->dst[m * l->world + rank], *first = j->tensor[m][rank].first;
            engine_take(j, m, rank, turn ? dst : first);
            if (turn && memcmp(first, dst, (size_t)oracle_dst_bytes(l->oracle[m], rank)))
                snprintf(j->wrong[rank], sizeof j->wrong[rank], "tensor %d has other bits after the second run", m);
            if (turn && !engine_untouched(j, m, rank))
                snprintf(j->wrong[rank], sizeof j->wrong[rank],
                         "tensor %d: a source or the room between rows was changed", m);
        }
    }
    weft_exec_close(x);
    return rc;
}

/* What must come out: in place, a destination holds parts of the source before. */
static inline void engine_expect(struct engine_job *j)
{
    struct lab *l = j->lab;
    for (int m = 0; m < l->c->moves; m++)
        for (int r = 0; r < l->world; r++) {
            engine_fill(j, r);
            engine_take(j, m, r, l->want[m * l->world + r]);
            oracle_expect(l->oracle[m], r, l->want[m * l->world + r]);
        }
}

/* Binds and runs twice. *refused: bind said that the memory overlaps in a way that is not legal. */
static inline bool engine_run(struct engine *e, struct engine_job *j, bool *refused, struct why *why)
{
    struct failure f;
    struct lab *l = j->lab;
    engine_expect(j);
    int rc = worker_threads_do(j->team->team, engine_run_rank, j, &f);
    *refused = rc == WEFT_EINVAL && strstr(f.text, "overlap");
    if (*refused)
        return true;
    if (rc) {
        int i = 0;
        while (&e->teams[i] != j->team)
            i++;
        engine_team_close(&e->teams[i]); /* it may have failed for good */
        return broken(why, "%s", f.text);
    }
    for (int r = 0; r < l->world; r++)
        if (j->wrong[r][0])
            return broken(why, "rank %d: %s", r, j->wrong[r]);
    return lab_compare(l, why);
}
#endif
