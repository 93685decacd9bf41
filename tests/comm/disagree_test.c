/* Ranks that are not in the same call: one of them, drawn by lot, makes another collective call than the others, or the
 * same with other arguments, while a run is in flight or not. All get the same code and the same text, nobody waits for
 * ever, and what was there before goes on with the right data. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/conformance.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/share.h"
#include "support/suite.h"
#include "support/tensors.h"

enum { RANKS = 3, EXECS = 2 };

enum call {
    BARRIER,
    BIND,
    BIND_NOTHING,
    REBIND,
    REBIND_OTHER,
    REBIND_NOTHING,
    WINDOW,
    WINDOW_OTHER,
    SPLIT,
    SPLIT_NONE,
    EXCHANGE,
    CALLS
};

struct said {
    int code;
    char text[1000];
};

struct mine {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_view in, out[EXECS];
    weft_exec *exec[EXECS];
};

static int make(struct mine *m, struct ranks_rank *r)
{
    weft_local a = {.bytes = 0}, b = {.bytes = 0};
    weft_lower_opts o = {.size = sizeof o};
    int err = weft_layout_parse("f32[60/x,70] @x3", &m->src);
    if (!err)
        err = weft_layout_parse("f32[60,70/x] @x3", &m->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", m->src, m->dst}, 1, r->rank, &o, &m->plan);
    if (!err)
        err = weft_layout_local(m->src, r->rank, &a);
    if (!err)
        err = weft_layout_local(m->dst, r->rank, &b);
    m->in = (weft_view){.data = calloc(1, (size_t)a.bytes + 1), .bytes = (size_t)a.bytes};
    for (int k = 0; k < EXECS && !err; k++) {
        m->out[k] = (weft_view){.data = calloc(1, (size_t)b.bytes + 1), .bytes = (size_t)b.bytes};
        err = weft_bind(m->plan, r->comm, &m->in, &m->out[k], NULL, &m->exec[k]);
    }
    return err;
}

static void unmake(struct mine *m)
{
    for (int k = 0; k < EXECS; k++) {
        weft_exec_close(m->exec[k]);
        free(m->out[k].data);
    }
    free(m->in.data);
    weft_plan_free(m->plan);
    weft_layout_free(m->src);
    weft_layout_free(m->dst);
}

static int bind_one(struct ranks_rank *r, const struct mine *m, const weft_view *in)
{
    weft_exec *x;
    int err = weft_bind(m->plan, r->comm, in, &m->out[0], NULL, &x);
    if (!err)
        weft_exec_close(x);
    return err;
}

static int window(struct ranks_rank *r, int64_t count)
{
    weft_window *w;
    int err = weft_window_open(r->comm, &(weft_buffer)WEFT_BUFFER("a", WEFT_F32, count), 1, 2, &w);
    if (!err)
        weft_window_close(w);
    return err;
}

static int split(struct ranks_rank *r, int n)
{
    static const int others[RANKS] = {2, 0, 1};
    weft_comm *c = NULL;
    int err = weft_comm_split(r->comm, others, (size_t)n, &c);
    if (!err)
        weft_comm_close(c);
    return err;
}

static int exchange(struct ranks_rank *r)
{
    const int others[] = {(r->rank + 1) % RANKS, (r->rank + 2) % RANKS};
    weft_exchange *x;
    int err = weft_exchange_open(r->comm, others, 2, others, 2, NULL, &x);
    if (!err)
        weft_exchange_close(x);
    return err;
}

static int do_call(struct ranks_rank *r, struct mine *m, enum call call)
{
    switch (call) {
    case BARRIER: return weft_comm_barrier(r->comm, WEFT_DEADLINE);
    case BIND: return bind_one(r, m, &m->in);
    case BIND_NOTHING: return bind_one(r, m, NULL);
    case REBIND: return weft_exec_rebind(m->exec[0], &m->in, &m->out[0]);
    case REBIND_OTHER: return weft_exec_rebind(m->exec[1], &m->in, &m->out[1]);
    case REBIND_NOTHING: return weft_exec_rebind(m->exec[0], NULL, &m->out[0]);
    case WINDOW: return window(r, 8);
    case WINDOW_OTHER: return window(r, 9);
    case SPLIT: return split(r, RANKS);
    case SPLIT_NONE: return split(r, 0);
    default: return exchange(r);
    }
}

static void one_step(struct ranks_rank *r, struct mine *m, struct random *lot, int step)
{
    struct said *said = r->arg;
    enum call call = (enum call)random_in(lot, 0, CALLS - 1), other = (enum call)random_in(lot, 0, CALLS - 1);
    int who = (int)random_in(lot, -1, RANKS - 1);
    bool flies = random_once_in(lot, 3);
    tensors_fill(m->src, r->rank, m->in.data, step);
    if (flies)
        RANKS_OK(r, weft_exec_start(m->exec[1]));
    struct said *mine = &said[r->rank];
    mine->code = do_call(r, m, r->rank == who ? other : call);
    snprintf(mine->text, sizeof mine->text, "%s", mine->code ? ranks_said() : "");
    ranks_meet(r);
    if (mine->code != said[0].code || strcmp(mine->text, said[0].text))
        ranks_note(r, __FILE__, __LINE__, "step %d, call %d, rank %d in %d: '%s' and rank 0 '%s'", step, (int)call, who,
                   (int)other, mine->text, said[0].text);
    if (flies)
        RANKS_OK(r, weft_exec_wait(m->exec[1], WEFT_FOREVER));
    RANKS_OK(r, weft_exec_run(m->exec[0]));
    for (int k = 0; k <= flies; k++)
        RANKS_CHECK(r, !tensors_wrong(m->src, m->dst, r->rank, m->out[k].data, step));
    ranks_meet(r);
}

static void run_steps(struct ranks_rank *r)
{
    struct mine m = {.plan = NULL};
    struct random lot = {20261116};
    RANKS_OK(r, make(&m, r));
    for (int step = 0, n = (int)test_share(300, 5000); step < n && !r->failed[0]; step++)
        one_step(r, &m, &lot, step);
    unmake(&m);
}

static void ranks_in_different_calls_all_get_one_error(void **state)
{
    (void)state;
    struct said *said = ranks_shared(RANKS * sizeof *said);
    for (int staged = 0; staged < 2; staged++)
        ranks_run(RANKS, &(weft_comm_opts){.staged = staged}, run_steps, said, NULL);
    ranks_run(RANKS, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD}, run_steps, said, NULL);
    munmap(said, RANKS * sizeof *said);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_in_different_calls_all_get_one_error)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
