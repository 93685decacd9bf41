/* The window collectives through the library, by every algorithm that does them, on 2, 3, 4, 5 and 8 ranks of every
 * transport, in window memory and in private memory: the results are the closed forms of tests/cases/windows.txt, in
 * every run on the same buffers. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "support/conformance.h"
#include "support/share.h"
#include "support/suite.h"

#define C 64

typedef float form(int p, int r, int i);

/* Rank r gives in(p, r, i) + run and must end with out(p, r, i) + run * per_run. */
struct window {
    const char *src, *dst, *algorithm; /* NULL: the library's choice */
    int runs, per_run;
    bool private;
    form *in, *out;
};

struct move {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_local from, to;
    float *in, *out;
    weft_exec *exec;
};

static void *memory_for(struct ranks_rank *r, bool private, int64_t bytes)
{
    void *memory = NULL;
    if (private)
        return calloc(1, (size_t)bytes + 1);
    return weft_comm_alloc(r->comm, (size_t)bytes, WEFT_MEMORY_HOST, 0, &memory) ? NULL : memory;
}

static int move_make(struct move *m, const struct window *w, struct ranks_rank *r)
{
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts o = {.size = sizeof o, .world = r->size, .algorithm = w->algorithm, .machine = &machine};
    *m = (struct move){.src = NULL};
    int err = weft_comm_machine(r->comm, &machine);
    if (!err)
        err = weft_layout_parse(w->src, &m->src);
    if (!err)
        err = weft_layout_parse(w->dst, &m->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", m->src, m->dst}, 1, r->rank, &o, &m->plan);
    if (err || (err = weft_layout_local(m->src, r->rank, &m->from)) ||
        (err = weft_layout_local(m->dst, r->rank, &m->to)))
        return err;
    m->in = memory_for(r, w->private, m->from.bytes);
    m->out = memory_for(r, w->private, m->to.bytes);
    if (!m->in || !m->out)
        return WEFT_ENOMEM;
    return weft_bind(m->plan, r->comm, &(weft_view){.data = m->in, .bytes = (size_t)m->from.bytes},
                     &(weft_view){.data = m->out, .bytes = (size_t)m->to.bytes}, NULL, &m->exec);
}

static void move_free(struct move *m, const struct window *w, struct ranks_rank *r)
{
    weft_exec_close(m->exec);
    weft_plan_free(m->plan);
    weft_layout_free(m->src);
    weft_layout_free(m->dst);
    for (int k = 0; k < 2; k++) {
        if (w->private)
            free(k ? m->in : m->out);
        else
            weft_comm_free(r->comm, k ? m->in : m->out);
    }
}

static void move_fill(struct move *m, const struct window *w, struct ranks_rank *r, int run)
{
    for (int i = 0; i < m->from.count; i++)
        m->in[i] = w->in(r->size, r->rank, i) + (float)run;
}

static int64_t move_wrong(const struct move *m, const struct window *w, const struct ranks_rank *r, int run)
{
    values_begin();
    for (int i = 0; i < m->to.count; i++)
        VALUES_CHECK(i, m->out[i], w->out(r->size, r->rank, i) + (float)(run * w->per_run));
    return values_wrong();
}

static void run_window(struct ranks_rank *r, const struct window *w)
{
    struct move m;
    RANKS_OK(r, move_make(&m, w, r));
    for (int run = 0; run < w->runs; run++) {
        move_fill(&m, w, r, run);
        RANKS_OK(r, weft_exec_run(m.exec));
        if (move_wrong(&m, w, r, run)) {
            ranks_note(r, __FILE__, __LINE__, "weft check '%s' '%s'%s%s: run %d", w->src, w->dst,
                       w->algorithm ? " --algorithm " : "", w->algorithm ? w->algorithm : "", run);
            return;
        }
    }
    move_free(&m, w, r);
}

/* Does the algorithm do the pair? All ranks answer alike. */
static bool fits(const struct window *w, struct ranks_rank *r)
{
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts o = {.size = sizeof o, .world = r->size, .algorithm = w->algorithm, .machine = &machine};
    weft_layout *src = NULL, *dst = NULL;
    weft_plan *plan = NULL;
    bool does = !weft_comm_machine(r->comm, &machine) && !weft_layout_parse(w->src, &src) &&
                !weft_layout_parse(w->dst, &dst) && !weft_lower(&(weft_move){"w", src, dst}, 1, r->rank, &o, &plan);
    weft_plan_free(plan);
    weft_layout_free(src);
    weft_layout_free(dst);
    return does;
}

/* By the library's choice and by every algorithm that does it; code: how many there are. */
static void run_ways(struct ranks_rank *r)
{
    struct window w = *(const struct window *)r->arg;
    for (int i = -1; i < 0 || weft_algorithm_name((size_t)i); i++) {
        w.algorithm = i < 0 ? NULL : weft_algorithm_name((size_t)i);
        if (i >= 0 && !fits(&w, r))
            continue;
        for (int private = 0; private < 2 && !r->failed[0]; private ++) {
            w.private = private;
            run_window(r, &w);
        }
        if (r->failed[0])
            return;
        r->code += i >= 0;
    }
}

static void all_sizes(const char *src, const char *dst, form *in, form *out, bool sums, int least)
{
    static const int sizes[] = {2, 3, 4, 5, 8};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct ranks_rank left[RANKS_MAX];
        int p = sizes[k], runs = (int)(conformance_on_hosts() ? test_share(10, 100) : test_share(100, 1000));
        char a[80], b[80];
        if (!conformance_takes(p))
            continue;
        snprintf(a, sizeof a, src, p, p * C);
        snprintf(b, sizeof b, dst, p, p * C);
        struct window w = {.src = a, .dst = b, .runs = runs, .per_run = sums ? p : 1, .in = in, .out = out};
        ranks_run(p, NULL, run_ways, &w, left);
        if (left[0].code < least)
            fail_msg("%s -> %s: %d algorithms do it, at least %d should", a, b, left[0].code, least);
    }
}

static float in_gather(int p, int r, int i)
{
    (void)p;
    return (float)(100 * r + i);
}
static float out_gather(int p, int r, int i)
{
    (void)p;
    (void)r;
    return (float)(100 * (i / C) + i % C);
}
static float in_reduce(int p, int r, int i)
{
    (void)p;
    return (float)(i + 100 * r);
}
static float out_reduce(int p, int r, int i)
{
    (void)r;
    return (float)(p * i + 100 * p * (p - 1) / 2);
}
static float out_scatter(int p, int r, int i)
{
    return (float)(p * (r * C + i) + 100 * p * (p - 1) / 2);
}
static float in_broadcast(int p, int r, int i)
{
    (void)p;
    (void)r;
    return (float)i;
}
static float in_alltoall(int p, int r, int i)
{
    (void)p;
    return (float)(1000 * r + 100 * (i / C) + i % C);
}
static float out_alltoall(int p, int r, int i)
{
    (void)p;
    return (float)(1000 * (i / C) + 100 * r + i % C);
}

static void allgather_has_the_closed_form(void **state)
{
    (void)state;
    all_sizes("f32[%2$d/x] @x%1$d", "f32[%2$d] @x%1$d", in_gather, out_gather, false, 2);
}

static void reduce_scatter_has_the_closed_form(void **state)
{
    (void)state;
    all_sizes("f32[%2$d] @x%1$d +sum(x)", "f32[%2$d/x] @x%1$d", in_reduce, out_scatter, true, 2);
}

static void broadcast_has_the_closed_form(void **state)
{
    (void)state;
    all_sizes("f32[256] @x1=0", "f32[256] @x%1$d", in_broadcast, in_broadcast, false, 2);
}

static void alltoall_has_the_closed_form(void **state)
{
    (void)state;
    all_sizes("f32[%1$d/x,%1$d,64] @x%1$d", "f32[%1$d,%1$d/x,64] @x%1$d", in_alltoall, out_alltoall, false, 2);
}

static void allreduce_has_the_closed_form(void **state)
{
    (void)state;
    all_sizes("f32[%2$d] @x%1$d +sum(x)", "f32[%2$d] @x%1$d", in_reduce, out_reduce, true, 4);
}

/* Groups that share ranks: each rank starts the three moves in an order of its own, all at once. */
static void run_groups(struct ranks_rank *r)
{
    static const char *const groups[3] = {"0,1", "1,2", "0,2"};
    char src[3][64], dst[3][64];
    struct window w[3];
    struct move m[3];
    for (int g = 0; g < 3; g++) {
        snprintf(src[g], sizeof src[g], "f32[64] @x2=%s +sum(x)", groups[g]);
        snprintf(dst[g], sizeof dst[g], "f32[64] @x2=%s", groups[g]);
        w[g] = (struct window){.src = src[g], .dst = dst[g], .private = *(const bool *)r->arg, .in = in_reduce};
        RANKS_OK(r, move_make(&m[g], &w[g], r));
    }
    int64_t runs = conformance_on_hosts() ? test_share(20, 100) : test_share(100, 1000);
    for (int run = 0; run < runs; run++) {
        for (int g = 0; g < 3; g++)
            move_fill(&m[g], &w[g], r, run);
        for (int k = 0; k < 3; k++)
            RANKS_OK(r, weft_exec_start(m[(k + r->rank + run) % 3].exec));
        for (int k = 0; k < 3; k++)
            RANKS_OK(r, weft_exec_wait(m[(k + run) % 3].exec, WEFT_FOREVER));
        for (int g = 0; g < 3; g++) {
            int both = groups[g][0] - '0' + groups[g][2] - '0'; /* the sum of their numbers */
            values_begin();
            values_tensor(g);
            for (int i = 0; i < m[g].to.count; i++)
                VALUES_CHECK(i, m[g].out[i], (float)(2 * i + 100 * both + 2 * run));
            RANKS_VALUES(r);
        }
    }
    for (int g = 0; g < 3; g++)
        move_free(&m[g], &w[g], r);
}

static void allreduces_of_overlapping_groups_are_right(void **state)
{
    (void)state;
    for (int private = 0; private < 2; private ++) {
        bool *arg = ranks_shared(sizeof *arg);
        *arg = private;
        ranks_run(3, NULL, run_groups, arg, NULL);
        munmap(arg, sizeof *arg);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allgather_has_the_closed_form), cmocka_unit_test(reduce_scatter_has_the_closed_form),
        cmocka_unit_test(broadcast_has_the_closed_form), cmocka_unit_test(alltoall_has_the_closed_form),
        cmocka_unit_test(allreduce_has_the_closed_form), cmocka_unit_test(allreduces_of_overlapping_groups_are_right),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
