#include "version/partial.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "layout/layout.h"
#include "weft/collective.h"

#define ALIGN 64

struct partial {
    weft_comm *comm;
    size_t n;            /* tensors of the publisher */
    unsigned char *data; /* the staged arrays, one behind the other */
    weft_view *views;    /* for each tensor; data NULL: it is not folded, or not held */
    weft_view *moved;    /* those of the plan */
    weft_layout **layouts;
    size_t nlayouts;
    weft_plan *plan;
    weft_exec *exec;
};

/* The layout in another dtype, and without its folds. */
static int change(const weft_layout *l, int dtype, bool folds, weft_layout **out)
{
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    int err = weft_layout_describe(l, &d);
    d.dtype = (enum weft_dtype)dtype;
    if (!folds)
        d.nfolds = 0;
    return err ? err : weft_layout_create(&d, out);
}

static bool is_folded(const weft_bus_tensor *t)
{
    return t->layout && t->layout->nfolds;
}

int partial_list(const weft_bus_tensor *tensors, size_t n, weft_bus_tensor **out)
{
    bool any = false;
    for (size_t i = 0; i < n && n <= WEFT_BUS_TENSORS && tensors; i++)
        any = any || is_folded(&tensors[i]);
    *out = NULL;
    if (!any)
        return 0;
    weft_bus_tensor *list = malloc(n * sizeof *list);
    if (!list)
        return error_nomem();
    memcpy(list, tensors, n * sizeof *list);
    for (size_t i = 0; i < n; i++) {
        weft_layout *l;
        if (!is_folded(&tensors[i]))
            continue;
        int err = change(tensors[i].layout, tensors[i].layout->dtype, false, &l);
        if (err) {
            partial_list_free(list, tensors, n);
            return err;
        }
        list[i].layout = l;
        list[i].dtype = tensors[i].dtype ? tensors[i].dtype : (int32_t)tensors[i].layout->dtype;
    }
    *out = list;
    return 0;
}

void partial_list_free(weft_bus_tensor *list, const weft_bus_tensor *tensors, size_t n)
{
    for (size_t i = 0; i < n && list; i++)
        if (list[i].layout != tensors[i].layout)
            weft_layout_free((weft_layout *)(uintptr_t)list[i].layout);
    free(list);
}

/* The moves, and room for the arrays that this rank holds. */
static int make_moves(struct partial *f, const weft_bus_tensor *tensors, weft_move *moves, int64_t *at, size_t *count)
{
    int rank = weft_comm_rank(f->comm);
    int64_t bytes = 0;
    for (size_t i = 0; i < f->n; i++) {
        const weft_bus_tensor *t = &tensors[i];
        weft_local local;
        weft_layout **l = &f->layouts[f->nlayouts];
        if (!is_folded(t))
            continue;
        int dtype = t->dtype ? t->dtype : (int)t->layout->dtype;
        int err = change(t->layout, dtype, true, &l[0]);
        f->nlayouts += !err;
        if (!err)
            err = change(t->layout, dtype, false, &l[1]);
        f->nlayouts += !err;
        if (!err)
            err = weft_layout_local(l[1], rank, &local);
        if (err)
            return err;
        moves[*count] = (weft_move){t->name, l[0], l[1]};
        at[(*count)++] = bytes;
        f->views[i].bytes = (size_t)local.bytes;
        bytes += (local.bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    f->data = aligned_alloc(ALIGN, (size_t)bytes + ALIGN);
    return f->data ? 0 : error_nomem();
}

static int prepare(struct partial *f, const weft_bus_tensor *tensors)
{
    weft_lower_opts o = WEFT_LOWER_OPTS_INIT;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_move *moves = calloc(f->n, sizeof *moves);
    int64_t *at = calloc(f->n, sizeof *at);
    size_t count = 0, k = 0;
    int err =
        moves && at && f->views && f->moved && f->layouts ? make_moves(f, tensors, moves, at, &count) : error_nomem();
    for (size_t i = 0; i < f->n && !err; i++) {
        if (!is_folded(&tensors[i]))
            continue;
        f->views[i].data = f->views[i].bytes ? f->data + at[k] : NULL;
        f->moved[k++] = f->views[i];
    }
    o.in_place = true;
    o.world = weft_comm_size(f->comm);
    if (!err)
        err = weft_comm_machine(f->comm, &machine);
    o.machine = &machine;
    if (!err)
        err = weft_lower(moves, count, weft_comm_rank(f->comm), &o, &f->plan);
    free(at);
    free(moves);
    return err;
}

int partial_open(const weft_bus_tensor *tensors, size_t n, weft_comm *comm, struct partial **out)
{
    struct partial *f = calloc(1, sizeof *f);
    int err = f ? 0 : error_nomem();
    if (f) {
        *f = (struct partial){.comm = comm,
                              .n = n,
                              .views = calloc(n, sizeof *f->views),
                              .moved = calloc(n, sizeof *f->moved),
                              .layouts = calloc(2 * n, sizeof *f->layouts)};
        err = prepare(f, tensors);
    }
    /* All ranks come here, so that none waits in vain. */
    struct error_text kept;
    error_keep(&kept);
    int32_t mine = err, worst = 0;
    int failed = weft_allreduce(comm, &mine, &worst, 1, WEFT_I32, WEFT_MIN);
    if (err)
        error_restore(&kept);
    else if (failed || worst)
        err = failed ? failed : error_set(worst, "weft_publish: another rank cannot fold partial sums");
    if (!err)
        err = weft_bind(f->plan, comm, f->moved, f->moved, NULL, &f->exec);
    if (err)
        partial_close(f);
    else
        *out = f;
    return err;
}

void partial_close(struct partial *f)
{
    if (!f)
        return;
    struct error_text kept;
    error_keep(&kept);
    weft_exec_close(f->exec);
    weft_plan_free(f->plan);
    for (size_t i = 0; i < f->nlayouts; i++)
        weft_layout_free(f->layouts[i]);
    free(f->layouts);
    free(f->moved);
    free(f->views);
    free(f->data);
    free(f);
    error_restore(&kept);
}

int partial_agree(struct partial *f, int64_t step, int mine)
{
    const int64_t here[3] = {mine, mine ? 0 : step, mine ? 0 : -step}; /* a step that is refused may be any number */
    int64_t all[3] = {0};
    struct error_text kept;
    error_keep(&kept);
    int err = weft_allreduce(f->comm, here, all, 3, WEFT_I64, WEFT_MIN);
    if (mine) {
        error_restore(&kept);
        return mine;
    }
    if (err)
        return err;
    if (all[0])
        return error_set((int)all[0], "weft_put: another rank of the publisher has failed: %s",
                         weft_strerror((int)all[0]));
    if (all[1] != -all[2])
        return error_set(WEFT_EINVAL,
                         "weft_put: step %lld: partial sums of one step are folded, and another rank puts %lld",
                         (long long)step, (long long)(all[1] == step ? -all[2] : all[1]));
    return 0;
}

weft_view partial_view(struct partial *f, size_t i)
{
    return f ? f->views[i] : (weft_view)WEFT_VIEW_INIT;
}

int partial_run(struct partial *f)
{
    return weft_exec_run(f->exec);
}
