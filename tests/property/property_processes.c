#define _GNU_SOURCE
#include "property_processes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "property_device.h"
#include "tool/worker_processes.h"

#define PROCESSES_SCARCE (128 << 10)       /* bytes of staging, so that few messages are eager */
#define PROCESSES_ROOM (INT64_C(64) << 20) /* bytes of data of a case, in both directions */

/* ---- what a rank does, in its process ---- */

static weft_comm
    *processes_comm[PROCESSES_WAYS]; /* direct, staged, and private memory is read with little staging memory */

int processes_way(const struct property_case *c)
{
    return c->staged ? 1 : c->private && c->seed / 24 % 2 ? 2 : 0;
}

static int processes_open_rank(void *arg, int rank)
{
    struct processes_errand *e = arg;
    int rc = 0;
    for (int way = 0; way < PROCESSES_WAYS && !rc; way++) {
        weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = e->size, .staged = way == 1};
        if (way == 2)
            o.inflight_bytes = PROCESSES_SCARCE; /* a quarter of it for eager messages */
        rc = weft_comm_open(e->url[way], &o, &processes_comm[way]);
        if (!rc)
            processes_comm[way]->cma_least = way == 2 ? 1 : INT64_MAX;
    }
    return rc;
}

static int processes_memory(weft_comm *c, bool private, int64_t bytes, unsigned char **out)
{
    void *memory = NULL;
    int rc = private ? 0 : weft_comm_alloc(c, (size_t)bytes, WEFT_MEMORY_HOST, 0, &memory);
    *out = private ? lab_buffer(bytes) : memory;
    return rc;
}

/* Memory of a rank, as in trial_place. */
static int processes_place(struct processes_errand *e, weft_comm *c, int m, int rank, struct trial_tensor *t,
                           weft_view (*view)[CASE_MOVES])
{
    struct processes_tensor *from = &e->tensor[m][rank];
    t->shared = from->shared;
    for (int k = 0; k < 2; k++) {
        struct trial_side *s = &t->side[k];
        s->view = from->side[k].view;
        s->bytes = from->side[k].bytes;
        if (k && t->shared) {
            s->memory = t->side[0].memory;
        } else if (s->bytes || t->shared) {
            int rc = processes_memory(c, e->c.private, s->bytes, &s->memory);
            if (rc)
                return rc;
        }
        view[k][m] = (weft_view){.data = s->bytes ? s->memory + s->view.first : NULL,
                                 .bytes = s->bytes ? (size_t)(s->bytes - s->view.first) : 0,
                                 .strides = from->side[k].strided ? s->view.strides : NULL};
    }
    return 0;
}

static void processes_unplace(struct processes_errand *e, weft_comm *c, struct trial_tensor *t)
{
    for (int k = 0; k < (t->shared ? 1 : 2); k++)
        if (e->c.private)
            free(t->side[k].memory);
        else
            weft_comm_free(c, t->side[k].memory);
}

static void processes_fill(const struct processes_tensor *from, struct trial_tensor *t)
{
    for (int k = 1; k >= 0; k--)
        if (t->side[k].bytes && (k || !t->shared))
            memset(t->side[k].memory, LAB_UNTOUCHED, (size_t)t->side[k].bytes);
    if (t->side[0].bytes)
        inplace_scatter(&t->side[0].view, t->side[0].memory, from->src);
}

/* Takes the result of a run; the second must have the bits of the first. Neither the source nor what lies between the
 * rows of the destination may have changed. */
static void processes_take(struct processes_tensor *from, struct trial_tensor *t, int turn, char *wrong, size_t cap)
{
    int64_t n = from->dst_bytes > from->src_bytes ? from->dst_bytes : from->src_bytes;
    unsigned char *dense = lab_buffer(n);
    memset(dense, LAB_UNTOUCHED, (size_t)n);
    if (t->side[1].bytes)
        inplace_gather(&t->side[1].view, t->side[1].memory, dense);
    if (turn && memcmp(dense, from->dst, (size_t)from->dst_bytes))
        snprintf(wrong, cap, "other bits after the second run");
    memcpy(from->dst, dense, (size_t)from->dst_bytes);
    if (!t->shared && t->side[0].bytes) {
        inplace_gather(&t->side[0].view, t->side[0].memory, dense);
        if (memcmp(dense, from->src, (size_t)from->src_bytes))
            snprintf(wrong, cap, "a source was changed");
    }
    if (!t->shared && t->side[1].bytes) {
        memset(dense, LAB_UNTOUCHED, (size_t)n);
        inplace_scatter(&t->side[1].view, t->side[1].memory, dense);
        for (int64_t i = 0; i < t->side[1].bytes; i++)
            if (t->side[1].memory[i] != LAB_UNTOUCHED) {
                snprintf(wrong, cap, "the room between rows was changed");
                break;
            }
    }
    free(dense);
}

static bool is_driven_by_nccl(const weft_exec *x)
{
    char text[512]; /* what comes first */
    size_t len;
    return !weft_exec_explain(x, false, text, sizeof text, &len) && strstr(text, "driver nccl:");
}

static int processes_run_rank(void *arg, int rank)
{
    struct processes_errand *e = arg;
    struct why why = {"", ""};
    struct lab l;
    struct trial_tensor t[CASE_MOVES] = {{.shared = false}};
    weft_view view[2][CASE_MOVES];
    weft_comm *c = processes_comm[processes_way(&e->c)];
    weft_plan *plan = NULL;
    weft_exec *x = NULL;
    int rc = lab_layouts(&l, &e->c, e->size, &why) ? 0 : WEFT_EINVAL;
    if (!rc)
        rc = weft_lower(l.moves, (size_t)e->c.moves, rank, &l.opts, &plan);
    for (int m = 0; m < e->c.moves && !rc; m++)
        rc = processes_place(e, c, m, rank, &t[m], view);
    struct device_sides on = {.device = NULL};
    struct trial_tensor *tensors[CASE_MOVES];
    weft_view *views[2] = {view[0], view[1]};
    weft_bind_opts opts = WEFT_BIND_OPTS_INIT;
    for (int m = 0; m < CASE_MOVES; m++)
        tensors[m] = &t[m];
    if (!rc && e->c.device)
        rc = device_sides_place(&on, &e->c, c, rank, tensors, views);
    opts.ways = e->c.device ? device_sides_ways(&e->c) : NULL;
    if (!rc)
        rc = weft_bind(plan, c, view[0], view[1], &opts, &x);
    if (!rc && rank == 0)
        e->by_nccl = is_driven_by_nccl(x);
    for (int turn = 0; turn < 3 && !rc; turn++) {
        for (int m = 0; m < e->c.moves; m++) {
            processes_fill(&e->tensor[m][rank], &t[m]);
            if (turn == 1 && t[m].side[0].bytes) /* what is left of this run would be seen in the next */
                memset(t[m].side[0].memory, 0, (size_t)t[m].side[0].bytes);
        }
        rc = device_sides_up(&on);
        if (!rc)
            rc = weft_exec_run(x);
        if (!rc)
            rc = device_sides_down(&on);
        for (int m = 0; m < e->c.moves && !rc && turn != 1; m++)
            processes_take(&e->tensor[m][rank], &t[m], turn, e->wrong[rank], sizeof e->wrong[rank]);
    }
    weft_exec_close(x);
    device_sides_free(&on);
    weft_plan_free(plan);
    for (int m = 0; m < e->c.moves; m++)
        processes_unplace(e, c, &t[m]);
    lab_close(&l);
    return rc;
}

/* ---- the parent ---- */

static void processes_drop(struct process_groups *s, int size)
{
    worker_processes_close(s->workers[size]);
    s->workers[size] = NULL;
}

void processes_close(struct process_groups *s)
{
    for (int n = 1; n <= PROCESSES_RANKS; n++)
        processes_drop(s, n);
    worker_processes_free(s->errand, sizeof *s->errand + PROCESSES_ROOM);
    s->errand = NULL;
}

struct worker_processes *processes_get(struct process_groups *s, int size, struct why *why)
{
    struct failure f;
    if (!s->errand)
        s->errand = worker_processes_alloc(sizeof *s->errand + PROCESSES_ROOM);
    if (s->workers[size] || !s->errand)
        return s->workers[size];
    if (worker_processes_open(size, &s->workers[size], &f)) {
        lab_broken(why, "%s", f.text);
        return NULL;
    }
    s->errand->size = size;
    for (int way = 0; way < PROCESSES_WAYS; way++)
        snprintf(s->errand->url[way], sizeof s->errand->url[way], "shm:property-%ld-%d", (long)getpid(), s->opened++);
    if (worker_processes_do(s->workers[size], processes_open_rank, s->errand, &f)) {
        lab_broken(why, "%s", f.text);
        processes_drop(s, size);
    }
    return s->workers[size];
}

/* Writes down what the ranks need of the job's tensors, which trial_place has laid out. */
static bool processes_pack(struct processes_errand *e, const struct trial_job *j, struct why *why)
{
    const struct lab *l = j->lab;
    int64_t used = 0;
    e->c = *l->c;
    e->size = l->world;
    for (int m = 0; m < e->c.moves; m++)
        for (int r = 0; r < e->size; r++) {
            const struct trial_tensor *t = &j->tensor[m][r];
            struct processes_tensor *to = &e->tensor[m][r];
            *to = (struct processes_tensor){.shared = t->shared,
                                            .src_bytes = oracle_src_bytes(l->oracle[m], r),
                                            .dst_bytes = oracle_dst_bytes(l->oracle[m], r)};
            for (int k = 0; k < 2; k++) {
                to->side[k].bytes = t->side[k].bytes;
                to->side[k].view = t->side[k].view;
                to->side[k].strided = j->view[k][r][m].strides != NULL;
            }
            if (used + to->src_bytes + to->dst_bytes > PROCESSES_ROOM)
                return lab_broken(why, "the case is too large for its shared mapping");
            to->src = e->room + used;
            to->dst = to->src + to->src_bytes;
            used += to->src_bytes + to->dst_bytes;
            memcpy(to->src, l->src[m * l->world + r], (size_t)to->src_bytes);
        }
    memset(e->wrong, 0, sizeof e->wrong);
    return true;
}

bool processes_run(struct process_groups *s, struct trial_job *j, bool *refused, struct why *why)
{
    struct failure f;
    struct lab *l = j->lab;
    struct processes_errand *e = s->errand;
    if (!processes_pack(e, j, why))
        return false;
    trial_expect(j);
    int rc = worker_processes_do(s->workers[e->size], processes_run_rank, e, &f);
    *refused = rc == WEFT_EINVAL && strstr(f.text, "overlap");
    if (*refused)
        return true;
    if (rc) {
        processes_drop(s, e->size); /* it may have failed for good */
        return lab_broken(why, "%s", f.text);
    }
    for (int r = 0; r < e->size; r++) {
        if (e->wrong[r][0])
            return lab_broken(why, "rank %d: %s", r, e->wrong[r]);
        for (int m = 0; m < e->c.moves; m++)
            memcpy(l->dst[m * l->world + r], e->tensor[m][r].dst, (size_t)e->tensor[m][r].dst_bytes);
    }
    return lab_compare(l, why);
}
