#define _GNU_SOURCE
#include "property_trial.h"

#include <stdlib.h>

#include "base/hash.h"
#include "engine/way.h"
#include "property_device.h"
#include "tool/worker_threads.h"

const int trial_size[TRIAL_GROUPS] = {4, 8, CASE_RANKS};

/* ---- groups ---- */

struct trial_opening {
    struct trial_group *group;
    char url[64];
    int way;
};

static int trial_open_rank(void *arg, int rank)
{
    struct trial_opening *o = arg;
    weft_comm_opts opts = {
        .size = sizeof opts, .rank = rank, .staged = o->way == 1, .deadline_ns = INT64_C(20000000000)};
    return weft_comm_open(o->url, &opts, &o->group->comm[o->way][rank]);
}

static int trial_close_rank(void *arg, int rank)
{
    struct trial_group *t = arg;
    for (int way = 0; way < 2; way++) {
        weft_comm_close(t->comm[way][rank]);
        t->comm[way][rank] = NULL;
    }
    return 0;
}

static bool trial_group_open(struct trial_groups *e, struct trial_group *t, int size, struct why *why)
{
    struct failure f;
    *t = (struct trial_group){.size = size};
    if (worker_threads_open(size, &t->threads, &f))
        return lab_broken(why, "%s", f.text);
    for (int way = 0; way < 2; way++) {
        struct trial_opening o = {.group = t, .way = way};
        snprintf(o.url, sizeof o.url, "threads:%d/property.%d.%d", size, e->generation++, way);
        if (worker_threads_do(t->threads, trial_open_rank, &o, &f))
            return lab_broken(why, "%s", f.text);
    }
    return true;
}

static void trial_group_close(struct trial_group *t)
{
    struct failure f;
    if (t->threads)
        worker_threads_do(t->threads, trial_close_rank, t, &f);
    worker_threads_close(t->threads);
    t->threads = NULL;
}

void trial_close(struct trial_groups *e)
{
    for (int i = 0; i < TRIAL_GROUPS; i++)
        trial_group_close(&e->groups[i]);
}

int trial_group_number(int world)
{
    int i = 0;
    while (trial_size[i] < world)
        i++;
    return i;
}

struct trial_group *trial_group_for(struct trial_groups *e, int world, struct why *why)
{
    int i = trial_group_number(world);
    if (!e->groups[i].threads && !trial_group_open(e, &e->groups[i], trial_size[i], why))
        return NULL;
    return &e->groups[i];
}

/* ---- memory ---- */

/* A dense local shape with gaps between rows, drawn from the seed. */
static struct inplace_view trial_view(const weft_local *l, size_t width, uint64_t gaps, int64_t *bytes)
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
static int64_t *trial_places(const struct inplace_view *v, int64_t count)
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

enum trial_legal trial_legality(const struct lab *l, int m, int rank, const struct inplace *fit)
{
    const struct oracle *o = l->oracle[m];
    if (o->src.dtype != o->dst.dtype)
        return TRIAL_ILLEGAL;
    int64_t n[2], room = fit->bytes / (int64_t)o->src.width;
    int64_t *slot[2] = {lab_slots(&o->src, rank, &n[0]), lab_slots(&o->dst, rank, &n[1])};
    int64_t *place[2] = {trial_places(&fit->src, n[0]), trial_places(&fit->dst, n[1])};
    int64_t *on = lab_buffer((room + 1) * (int64_t)sizeof *on); /* the source's slot at an address, or -1 */
    enum trial_legal legal = TRIAL_LEGAL;
    for (int64_t i = 0; i < room; i++)
        on[i] = -1;
    for (int64_t i = 0; i < n[0]; i++)
        on[place[0][i]] = i;
    for (int64_t i = 0; i < n[1]; i++) {
        int64_t at = on[place[1][i]], a = at < 0 ? -1 : slot[0][at], b = slot[1][i];
        if (at < 0 || (a < 0 && b < 0) || (a >= 0 && b >= 0 && a / 2 == b / 2))
            continue;
        if (a >= 0 && b >= 0)
            legal = TRIAL_ILLEGAL;
        else if (legal == TRIAL_LEGAL)
            legal = TRIAL_UNCLEAR;
    }
    for (int k = 0; k < 2; k++) {
        free(slot[k]);
        free(place[k]);
    }
    free(on);
    return legal;
}

bool trial_place(struct trial_job *j, int m, int rank, bool bold, enum trial_legal *worst, struct why *why)
{
    struct lab *l = j->lab;
    struct trial_tensor *t = &j->tensor[m][rank];
    uint64_t gaps = hash_u64(l->c->seed, (uint64_t)(rank * CASE_MOVES + m));
    bool tight = l->c->seed % 3 != 0;
    struct inplace fit = {.shared = false};
    if (l->c->in_place && inplace_fit(l->layout[m][0], l->layout[m][1], rank, &fit))
        return lab_broken(why, "in place: %s", weft_errmsg());
    if (fit.shared) {
        enum trial_legal legal = trial_legality(l, m, rank, &fit);
        fit.shared = legal == TRIAL_LEGAL || bold;
        if (fit.shared && legal > *worst)
            *worst = legal;
    }
    t->shared = fit.shared;
    for (int k = 0; k < 2; k++) {
        struct trial_side *s = &t->side[k];
        weft_local local;
        if (weft_layout_local(l->layout[m][k], rank, &local))
            return lab_broken(why, "local: %s", weft_errmsg());
        if (fit.shared) {
            s->view = k ? fit.dst : fit.src;
            s->bytes = fit.bytes;
            s->memory = k ? t->side[0].memory : lab_buffer(s->bytes);
        } else {
            s->view =
                trial_view(&local, weft_dtype_size(l->c->side[m][k].dtype), tight ? 0 : gaps >> (20 * k), &s->bytes);
            s->memory = lab_buffer(s->bytes);
        }
        if (!local.count)
            s->bytes = 0;
        j->view[k][rank][m] = (weft_view){.data = s->bytes ? s->memory + s->view.first : NULL,
                                          .bytes = s->bytes ? (size_t)(s->bytes - s->view.first) : 0,
                                          .strides = tight && !fit.shared ? NULL : s->view.strides};
    }
    t->first = lab_buffer(oracle_dst_bytes(l->oracle[m], rank));
    return true;
}

void trial_release(struct trial_job *j)
{
    for (int m = 0; m < j->lab->c->moves; m++)
        for (int r = 0; r < j->lab->world; r++) {
            struct trial_tensor *t = &j->tensor[m][r];
            free(t->side[0].memory);
            if (!t->shared)
                free(t->side[1].memory);
            free(t->first);
        }
}

/* ---- what a rank does ---- */

void trial_fill(const struct trial_job *j, int rank)
{
    for (int m = 0; m < j->lab->c->moves; m++) {
        const struct trial_tensor *t = &j->tensor[m][rank];
        if (t->side[1].bytes)
            memset(t->side[1].memory, LAB_UNTOUCHED, (size_t)t->side[1].bytes);
        if (t->side[0].bytes && !t->shared)
            memset(t->side[0].memory, LAB_UNTOUCHED, (size_t)t->side[0].bytes);
        if (t->side[0].bytes)
            inplace_scatter(&t->side[0].view, t->side[0].memory, j->lab->src[m * j->lab->world + rank]);
    }
}

void trial_take(const struct trial_job *j, int m, int rank, unsigned char *dense)
{
    const struct trial_side *s = &j->tensor[m][rank].side[1];
    if (s->bytes)
        inplace_gather(&s->view, s->memory, dense);
}

bool trial_untouched(const struct trial_job *j, int m, int rank)
{
    const struct trial_tensor *t = &j->tensor[m][rank];
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

/* Adds the ways of a channel's messages: a sum that does not depend on the order of channels. */
static void trial_add_ways(struct trial_job *j, int side, const struct program *p, int from, int to,
                           const uint32_t *steps, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        const char *way = p->steps[steps[k]].way->name;
        uint64_t h = hash_u64(hash_u64(hash_u64((uint64_t)from, (uint64_t)to), k), 0);
        atomic_fetch_add(&j->ways[side], hash_bytes(h, way, strlen(way)));
    }
}

static void trial_note_ways(struct trial_job *j, int rank, const weft_exec *x)
{
    const struct program *p = x->program;
    for (uint32_t i = 0; i < p->nouts; i++)
        trial_add_ways(j, 0, p, rank, p->outs[i].peer, p->outs[i].steps, p->outs[i].n);
    for (uint32_t i = 0; i < p->nins; i++)
        trial_add_ways(j, 1, p, p->ins[i].peer, rank, p->ins[i].steps, p->ins[i].n);
}

static int trial_run_rank(void *arg, int rank)
{
    struct trial_job *j = arg;
    struct lab *l = j->lab;
    weft_exec *x = NULL;
    weft_comm *comm = j->group->comm[j->way][rank];
    struct device_sides on = {.device = NULL};
    struct trial_tensor *tensors[CASE_MOVES];
    weft_view *views[2] = {j->view[0][rank], j->view[1][rank]};
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    for (int m = 0; m < CASE_MOVES; m++)
        tensors[m] = &j->tensor[m][rank];
    int rc = l->c->device && rank < l->world ? device_sides_place(&on, l->c, comm, rank, tensors, views) : 0;
    opts.ways = l->c->device ? device_sides_ways(l->c) : NULL;
    if (!rc)
        rc = weft_bind(l->plans[rank], comm, views[0], views[1], &opts, &x);
    if (!rc)
        trial_note_ways(j, rank, x);
    for (int turn = 0; turn < 2 && !rc; turn++) {
        trial_fill(j, rank);
        rc = device_sides_up(&on);
        if (!rc)
            rc = weft_exec_run(x);
        if (!rc)
            rc = device_sides_down(&on);
        for (int m = 0; m < l->c->moves && !rc; m++) {
            unsigned char *dst = l->dst[m * l->world + rank], *first = j->tensor[m][rank].first;
            trial_take(j, m, rank, turn ? dst : first);
            if (turn && memcmp(first, dst, (size_t)oracle_dst_bytes(l->oracle[m], rank)))
                snprintf(j->wrong[rank], sizeof j->wrong[rank], "tensor %d has other bits after the second run", m);
            if (turn && !trial_untouched(j, m, rank))
                snprintf(j->wrong[rank], sizeof j->wrong[rank],
                         "tensor %d: a source or the room between rows was changed", m);
        }
    }
    weft_exec_close(x);
    device_sides_free(&on);
    return rc;
}

void trial_expect(struct trial_job *j)
{
    struct lab *l = j->lab;
    for (int m = 0; m < l->c->moves; m++)
        for (int r = 0; r < l->world; r++) {
            trial_fill(j, r);
            trial_take(j, m, r, l->want[m * l->world + r]);
            oracle_expect(l->oracle[m], r, l->want[m * l->world + r]);
        }
}

bool trial_run(struct trial_groups *e, struct trial_job *j, bool *refused, struct why *why)
{
    struct failure f;
    struct lab *l = j->lab;
    trial_expect(j);
    j->ways[0] = j->ways[1] = 0;
    int rc = worker_threads_do(j->group->threads, trial_run_rank, j, &f);
    *refused = rc == WEFT_EINVAL && strstr(f.text, "overlap");
    if (*refused)
        return true;
    if (rc) {
        int i = 0;
        while (&e->groups[i] != j->group)
            i++;
        trial_group_close(&e->groups[i]); /* it may have failed for good */
        return lab_broken(why, "%s", f.text);
    }
    for (int r = 0; r < l->world; r++)
        if (j->wrong[r][0])
            return lab_broken(why, "rank %d: %s", r, j->wrong[r]);
    if (j->ways[0] != j->ways[1])
        return lab_broken(why, "a sender and its receiver have chosen different ways");
    return lab_compare(l, why);
}
