/* The property campaign over many runs: execs that are in flight together, started and waited for by each rank in an
 * order of its own, again and again with other data and with nothing between the runs that would hold ranks together,
 * so that what is left of an earlier run would be seen; bound again now and then, to memory in another order, or
 * refused. Ranks are threads, on both transports of one machine, with limits from wide to narrow. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "comm/lock.h"
#include "engine/block.h"
#include "engine/drivers/jobs.h"
#include "engine/ways/eager.h"
#include "property_places.h"
#include "property_trial.h"
#include "support/property_random.h"
#include "support/share.h"
#include "support/suite.h"
#include "tool/worker_threads.h"

#define TURNS_SEED 20261116
enum { SETS = 3, EXECS = 3, FORMS = 2 };

/* ---- what they run ---- */

/* An exec, with its data in all sets and its memory in all forms. */
struct turns_exec {
    struct property_case c[SETS];
    struct lab lab[SETS];
    struct trial_job job[FORMS][SETS];
    int comm; /* of the two of its place */
    weft_exec *exec[PLACES_RANKS];
};

struct errand {
    uint64_t seed;
    int way, size, n, rounds;
    struct place *at;
    struct turns_exec x[EXECS];
    bool refused; /* there is not enough staging for it here */
    uint64_t age; /* runs that the execs believe to have had; 0: none */
    char wrong[PLACES_RANKS][300];
};

/* Dims in any order of their strides, with gaps; one of them, if flat, without a stride: all along it is one element.
 */
static struct inplace_view shuffled_view(struct random *g, const weft_local *l, int64_t width, int flat, int64_t *bytes)
{
    struct inplace_view v = {.ndim = l->ndim, .width = width};
    int order[WEFT_MAX_DIMS];
    int64_t stride = width, end = width;
    for (int d = 0; d < l->ndim; d++)
        order[d] = l->ndim - 1 - d;
    if (random_once_in(g, 2))
        random_shuffle(g, order, l->ndim);
    v.first = random_in(g, 0, 3) * width;
    for (int i = 0; i < l->ndim; i++) {
        int d = order[i];
        stride += random_once_in(g, 3) ? random_in(g, 0, 3) * width : 0;
        v.shape[d] = l->shape[d];
        if (d == flat)
            continue;
        v.strides[d] = stride;
        end += (l->shape[d] - 1) * stride;
        stride *= l->shape[d];
    }
    *bytes = l->count ? v.first + end : 0;
    return v;
}

/* Memory for one tensor on one rank in one form; where it is in place, in all forms alike. */
static bool place_tensor(struct random *g, struct trial_job *j, int m, int rank, bool share, int flat, struct why *why)
{
    struct lab *l = j->lab;
    struct trial_tensor *t = &j->tensor[m][rank];
    struct inplace fit = {.shared = false};
    if (share && inplace_fit(l->layout[m][0], l->layout[m][1], rank, &fit))
        return lab_broken(why, "in place: %s", weft_errmsg());
    t->shared = fit.shared && trial_legality(l, m, rank, &fit) == TRIAL_LEGAL;
    for (int k = 0; k < 2; k++) {
        struct trial_side *s = &t->side[k];
        weft_local local;
        if (weft_layout_local(l->layout[m][k], rank, &local))
            return lab_broken(why, "local: %s", weft_errmsg());
        if (t->shared) {
            s->view = k ? fit.dst : fit.src;
            s->bytes = fit.bytes;
        } else {
            s->view =
                shuffled_view(g, &local, (int64_t)weft_dtype_size(l->c->side[m][k].dtype), k ? -1 : flat, &s->bytes);
        }
    }
    return true;
}

/* ---- what a rank does ---- */

static void say(struct errand *e, int rank, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!e->wrong[rank][0])
        vsnprintf(e->wrong[rank], sizeof e->wrong[rank], fmt, args);
    va_end(args);
}

/* What rank the thread is in the exec's comm. */
static int rank_in(const struct errand *e, const struct turns_exec *x, int thread)
{
    return x->comm ? places_size[e->size] - 1 - thread : thread;
}

static int take_memory(struct errand *e, int thread, struct turns_exec *x, int form)
{
    int rank = rank_in(e, x, thread);
    struct trial_job *j = &x->job[form][0];
    for (int m = 0; m < x->c->moves; m++) {
        struct trial_tensor *t = &j->tensor[m][rank];
        for (int k = 0; k < 2; k++) {
            struct trial_side *s = &t->side[k];
            void *memory = NULL;
            int err = 0;
            if (k && t->shared)
                memory = t->side[0].memory;
            else if (places_ways[e->way].windows)
                err = weft_comm_alloc(e->at->comm[0][thread], (size_t)s->bytes + 1, WEFT_MEMORY_HOST, 0, &memory);
            else
                memory = lab_buffer(s->bytes);
            if (err)
                return err;
            s->memory = memory;
            j->view[k][rank][m] = (weft_view){.data = s->bytes ? s->memory + s->view.first : NULL,
                                              .bytes = s->bytes ? (size_t)(s->bytes - s->view.first) : 0,
                                              .strides = s->view.strides};
        }
        for (int set = 1; set < SETS; set++)
            x->job[form][set].tensor[m][rank] = *t;
    }
    return 0;
}

static void give_memory(struct errand *e, int thread, struct turns_exec *x, int form)
{
    int rank = rank_in(e, x, thread);
    for (int m = 0; m < x->c->moves; m++) {
        struct trial_tensor *t = &x->job[form][0].tensor[m][rank];
        for (int k = 0; k < (t->shared ? 1 : 2); k++)
            if (places_ways[e->way].windows)
                weft_comm_free(e->at->comm[0][thread], t->side[k].memory);
            else
                free(t->side[k].memory);
    }
}

/* Waits for a run in one of many ways. */
static int wait_somehow(struct random *g, weft_exec *x)
{
    bool done = false;
    int err = 0;
    switch (random_in(g, 0, 3)) {
    case 0: return weft_exec_wait(x, WEFT_FOREVER);
    case 1:
        while (!(err = weft_exec_test(x, &done)) && !done)
            sched_yield();
        return err;
    case 2:
        while ((err = weft_exec_wait(x, 0)) == WEFT_ETIMEOUT)
            sched_yield();
        return err;
    default:
        while ((err = weft_exec_wait(x, 50000)) == WEFT_ETIMEOUT)
            ;
        return err;
    }
}

static void check(struct errand *e, int thread, const struct trial_job *j, int exec, int round)
{
    struct lab *l = j->lab;
    int rank = rank_in(e, &e->x[exec], thread);
    weft_exec_info info = {.size = sizeof info};
    if (weft_exec_stats(e->x[exec].exec[rank], &info) || info.staging_peak > info.staging_limit)
        say(e, thread, "round %d: %lld bytes of staging, the limit is %lld", round, (long long)info.staging_peak,
            (long long)info.staging_limit);
    for (int m = 0; m < l->c->moves; m++) {
        int64_t bytes = oracle_dst_bytes(l->oracle[m], rank);
        unsigned char *dense = lab_buffer(bytes);
        memset(dense, LAB_UNTOUCHED, (size_t)bytes);
        trial_take(j, m, rank, dense);
        int64_t at = oracle_compare(l->oracle[m], rank, dense, l->want[m * l->world + rank]);
        if (at >= 0)
            say(e, thread, "round %d, exec %d, tensor %d: slot %lld is not what the oracle says", round, exec, m,
                (long long)at);
        if (!trial_untouched(j, m, rank))
            say(e, thread, "round %d, exec %d, tensor %d: a source or the room between rows was changed", round, exec,
                m);
        free(dense);
    }
}

/* Another form, or one that a rank gives no memory for. */
static int bind_again(struct errand *e, struct random *all, int thread, int k, int *form)
{
    struct turns_exec *x = &e->x[k];
    int rank = rank_in(e, x, thread);
    bool wrong = random_once_in(all, 3);
    int blame = (int)random_in(all, 0, places_size[e->size] - 1), to = (*form + 1) % FORMS;
    struct trial_job *j = &x->job[to][0];
    weft_local in;
    weft_layout_local(x->lab[0].layout[0][0], blame, &in);
    wrong = wrong && in.count;
    int err = weft_exec_rebind(x->exec[rank], wrong && rank == blame ? NULL : j->view[0][rank], j->view[1][rank]);
    if (err == WEFT_ENOMEM) /* the other form may need more staging than is left */
        return 0;
    if (wrong && err == WEFT_EINVAL)
        return 0;
    if (wrong && !err)
        say(e, thread, "no memory for a source was not refused");
    if (!err && !wrong)
        *form = to;
    return err;
}

static int one_round(struct errand *e, struct random *all, struct random *own, int thread, int round, int *form)
{
    int order[EXECS], set[EXECS], n = 0, err = 0;
    bool again = random_once_in(all, 5);
    int k = (int)random_in(all, 0, e->n - 1), only = random_once_in(all, 3) ? (int)random_in(all, 0, e->n - 1) : -1;
    if (again)
        err = bind_again(e, all, thread, k, &form[k]);
    for (k = 0; k < e->n; k++) {
        set[k] = (int)random_in(all, 0, SETS - 1);
        if (only < 0 || only == k)
            order[n++] = k;
    }
    bool meet = random_once_in(all, 12);
    random_shuffle(own, order, n);
    for (int i = 0; i < n && !err; i++) {
        k = order[i];
        int rank = rank_in(e, &e->x[k], thread);
        trial_fill(&e->x[k].job[form[k]][set[k]], rank);
        if (n == 1 && random_once_in(own, 3))
            err = weft_exec_run(e->x[k].exec[rank]);
        else
            err = weft_exec_start(e->x[k].exec[rank]);
    }
    if (!err && meet)
        err = weft_comm_barrier(e->at->comm[0][thread], WEFT_DEADLINE);
    for (int64_t i = random_once_in(own, 4) ? random_in(own, 1, 40) : 0; i > 0; i--)
        sched_yield();
    random_shuffle(own, order, n);
    for (int i = 0; i < n && !err; i++) {
        k = order[i];
        err = wait_somehow(own, e->x[k].exec[rank_in(e, &e->x[k], thread)]);
        if (!err)
            check(e, thread, &e->x[k].job[form[k]][set[k]], k, round);
    }
    return err;
}

/* As if there had been `runs` runs before. */
static void age(weft_exec *x, uint64_t runs)
{
    struct program *p = x->program;
    x->run = runs;
    for (uint32_t i = 0; i < p->nins; i++)
        atomic_store((_Atomic uint64_t *)(uintptr_t)p->ins[i].ready, runs * p->ins[i].n);
    for (uint32_t i = 0; i < p->nouts; i++) {
        struct exec_out *out = &p->outs[i];
        atomic_store((_Atomic uint64_t *)(uintptr_t)out->done, runs * out->n);
    }
    if (p->driver == &driver_lists && !x->comm->rank)
        jobs_reset(x, ((const struct jobs_state *)p->state)->groups);
}

static int bind_all(struct errand *e, int thread)
{
    int err = 0;
    for (int k = 0; k < e->n && !err; k++) {
        struct turns_exec *x = &e->x[k];
        int rank = rank_in(e, x, thread);
        const struct trial_job *j = &x->job[0][0];
        err = weft_bind(x->lab[0].plans[rank], e->at->comm[x->comm][rank], j->view[0][rank], j->view[1][rank], NULL,
                        &x->exec[rank]);
        if (!err && e->age)
            age(x->exec[rank], e->age);
    }
    bool refused = err == WEFT_ENOMEM || (err == WEFT_EINVAL && strstr(weft_errmsg(), "needs weft_lower's in_place"));
    if (refused && !thread) /* on all ranks */
        e->refused = true;
    if (refused)
        return WEFT_ENOMEM;
    return err || !e->age ? err : weft_comm_barrier(e->at->comm[0][thread], WEFT_DEADLINE);
}

static int run_rank(void *arg, int thread)
{
    struct errand *e = arg;
    struct random all = {hash_u64(e->seed, 1)}, own = {hash_u64(e->seed, (uint64_t)(100 + thread))};
    int form[EXECS] = {0}, err = 0;
    for (int k = 0; k < e->n && !err; k++)
        for (int f = 0; f < FORMS && !err; f++)
            err = take_memory(e, thread, &e->x[k], f);
    if (!err)
        err = bind_all(e, thread);
    for (int round = 0; round < e->rounds && !err; round++)
        err = one_round(e, &all, &own, thread, round, form);
    for (int k = 0; k < e->n; k++) {
        weft_exec_close(e->x[k].exec[rank_in(e, &e->x[k], thread)]);
        for (int f = 0; f < FORMS; f++)
            give_memory(e, thread, &e->x[k], f);
    }
    for (int k = 0; k < 2 && (!err || err == WEFT_ENOMEM); k++) {
        weft_comm *c = e->at->comm[k][k ? places_size[e->size] - 1 - thread : thread];
        struct comm_family *f = comm_enter(c); /* the progress thread is not in it meanwhile */
        if (c->refcount || c->tasks || c->described || c->staging.nslots || c->staging.taken || c->staging.used ||
            c->staging.wanted)
            say(e, thread, "comm %d: something is left of execs that were freed", k);
        comm_leave(f);
    }
    return err == WEFT_ENOMEM ? 0 : err;
}

/* ---- the cases ---- */

/* Makes the data of all ranks equal along a dim of their buffers. */
static bool flatten(struct lab *l, int m, int dim, struct why *why)
{
    const void *sources[CASE_RANKS];
    for (int r = 0; r < l->world; r++) {
        weft_local at;
        unsigned char *data = l->src[m * l->world + r];
        if (weft_layout_local(l->layout[m][0], r, &at))
            return lab_broken(why, "local: %s", weft_errmsg());
        size_t inner = at.count ? (size_t)(at.bytes / at.count) : 0, outer = at.count ? 1 : 0;
        for (int d = 0; d < at.ndim; d++)
            *(d < dim ? &outer : &inner) *= d == dim ? 1 : (size_t)at.shape[d];
        size_t row = inner * (size_t)at.shape[dim];
        for (size_t i = 0; i < outer; i++)
            for (size_t k = inner; k < row; k += inner)
                memcpy(data + i * row + k, data + i * row, inner);
        sources[r] = data;
    }
    if (oracle_take(l->oracle[m], sources))
        return lab_broken(why, "the oracle has no memory");
    for (int r = 0; r < l->world; r++)
        oracle_expect(l->oracle[m], r, l->want[m * l->world + r]);
    return true;
}

static bool open_sets(struct errand *e, struct turns_exec *x, struct random *g, struct why *why)
{
    bool ok = true;
    for (int s = 0; s < SETS && ok; s++) {
        x->c[s] = x->c[0];
        x->c[s].seed += (uint64_t)(1000 * s);
        ok = lab_layouts(&x->lab[s], &x->c[s], places_size[e->size], why);
    }
    if (!ok || !lab_lower(&x->lab[0], why))
        return false;
    weft_stats st = {.size = sizeof st};
    weft_plan_stats(x->lab[0].plans[0], &st);
    bool wild = x->c->wild && !strcmp(st.algorithm, "direct");
    for (int s = 0; s < SETS && ok; s++) {
        ok = lab_data(&x->lab[s], wild, why);
        for (int f = 0; f < FORMS; f++)
            x->job[f][s] = (struct trial_job){.lab = &x->lab[s]};
    }
    /* Also where lowering was not told: bind may refuse it, or it is right. */
    bool share = x->c->in_place || random_once_in(g, 4);
    for (int m = 0; m < x->c->moves && ok; m++) {
        int ndim = x->c->side[m][0].ndim, flat = -1;
        if (!share && ndim && random_once_in(g, 4))
            flat = (int)random_in(g, 0, ndim - 1);
        if (flat >= 0 && (x->c->side[m][0].dim[flat].lo || x->c->side[m][0].dim[flat].hi))
            flat = -1; /* what is first along it may be garbage, other on each replica */
        for (int s = 0; s < SETS && ok && flat >= 0; s++)
            ok = flatten(&x->lab[s], m, flat, why);
        for (int f = 0; f < FORMS && ok; f++)
            for (int r = 0; r < places_size[e->size] && ok; r++)
                ok = place_tensor(g, &x->job[f][0], m, r, share, flat, why);
    }
    return ok;
}

/* In place, a destination holds parts of the source before the run; its memory is not there yet. */
static void expect(struct turns_exec *x, int size)
{
    for (int s = 0; s < SETS; s++) {
        struct lab *l = &x->lab[s];
        for (int m = 0; m < x->c->moves; m++)
            for (int r = 0; r < size; r++) {
                struct trial_job *j = &x->job[0][s];
                struct trial_tensor kept = j->tensor[m][r], *t = &j->tensor[m][r];
                *t = x->job[0][0].tensor[m][r];
                if (!t->shared)
                    continue;
                t->side[0].memory = t->side[1].memory = lab_buffer(t->side[0].bytes);
                memset(t->side[0].memory, LAB_UNTOUCHED, (size_t)t->side[0].bytes);
                inplace_scatter(&t->side[0].view, t->side[0].memory, l->src[m * l->world + r]);
                trial_take(j, m, r, l->want[m * l->world + r]);
                oracle_expect(l->oracle[m], r, l->want[m * l->world + r]);
                free(t->side[0].memory);
                *t = kept;
            }
    }
}

/* So large that messages are no letters any more: both sides of a dim grow alike. */
static void enlarge(struct random *g, struct property_case *c)
{
    for (int m = 0; m < c->moves; m++) {
        struct side_spec *both = c->side[m];
        double most = 40000, now = 1;
        for (int d = 0; d < both->ndim; d++)
            now *= 1 + (double)(both[0].dim[d].extent + both[0].dim[d].lo + both[0].dim[d].hi + both[1].dim[d].lo +
                                both[1].dim[d].hi);
        for (int d = 0; d < both->ndim && now * 2 < most; d++) {
            int64_t by = random_in(g, 1, (int64_t)(most / now) < 300 ? (int64_t)(most / now) : 300);
            bool ghosts = random_once_in(g, 3);
            for (int k = 0; k < 2; k++) {
                both[k].dim[d].extent *= by;
                both[k].dim[d].lo *= ghosts ? by : 1;
                both[k].dim[d].hi *= ghosts ? by : 1;
                for (int i = 0; i < both[k].dim[d].nsplits; i++)
                    both[k].dim[d].split[i].block *= random_once_in(g, 2) ? by : 1;
            }
            now *= (double)by;
        }
    }
}

static void choose_case(struct random *g, int64_t number, struct property_case *c)
{
    do
        random_case(TURNS_SEED, number + (int64_t)(random_next(g) % 1000000), c);
    while (case_world(c) > PLACES_RANKS);
    if (random_once_in(g, 3))
        enlarge(g, c);
    int names = 0;
    while (weft_algorithm_name((size_t)names))
        names++;
    c->algorithm = random_once_in(g, 2) ? NULL : weft_algorithm_name((size_t)random_in(g, 0, names - 1));
    struct lab l;
    struct why why = {"", ""};
    if (!lab_layouts(&l, c, case_world(c), &why) || !lab_fits(&l, &why))
        c->algorithm = NULL;
    lab_close(&l);
}

static int64_t seen_runs, seen_refused, wrong_cases;

static void tell(const struct errand *e, int64_t number, const char *what)
{
    print_error("case %lld, %s with %d ranks (way %d): %s\n", (long long)number, places_ways[e->way].scheme,
                places_size[e->size], e->way, what);
    for (int k = 0; k < e->n; k++) {
        char text[8192];
        struct text t = text_start(text, sizeof text);
        case_text(&e->x[k].c[0], &t);
        print_error("  exec %d: %s\n", k, text);
    }
    wrong_cases++;
}

static void one_case(int64_t number)
{
    struct errand *e = calloc(1, sizeof *e);
    struct random g = {hash_u64(TURNS_SEED, (uint64_t)number)};
    struct why why = {"", ""};
    struct failure f;
    int world = 1;
    e->seed = random_next(&g);
    e->way = (int)random_in(&g, 0, PLACES_ON - 1);
    e->n = (int)random_in(&g, 1, EXECS);
    e->rounds = (int)(random_once_in(&g, 4) ? random_in(&g, 17, 50) : random_in(&g, 2, 9));
    for (int k = 0; k < e->n; k++) {
        choose_case(&g, number, &e->x[k].c[0]);
        world = case_world(&e->x[k].c[0]) > world ? case_world(&e->x[k].c[0]) : world;
    }
    if (random_once_in(&g, 5))
        e->age = (UINT64_C(1) << 32) - (uint64_t)random_in(&g, 17, 40); /* the slots of letters have been written */
    for (int k = 0; k < e->n; k++)
        e->x[k].comm = random_once_in(&g, 4);
    while (places_size[e->size] < world)
        e->size++;
    bool ok = true;
    for (int k = 0; k < e->n && ok; k++)
        ok = open_sets(e, &e->x[k], &g, &why);
    for (int k = 0; k < e->n && ok; k++)
        expect(&e->x[k], places_size[e->size]);
    e->at = ok ? place_get(e->way, e->size, &why) : NULL;
    if (e->at && worker_threads_do(e->at->threads, run_rank, e, &f)) {
        lab_broken(&why, "%s", f.text);
        place_close(e->at);
    }
    for (int r = 0; r < PLACES_RANKS && !why.text[0]; r++)
        if (e->wrong[r][0])
            lab_broken(&why, "rank %d: %s", r, e->wrong[r]);
    if (why.text[0])
        tell(e, number, why.text);
    seen_refused += e->refused;
    seen_runs += e->refused ? 0 : e->rounds;
    for (int k = 0; k < e->n; k++)
        for (int s = 0; s < SETS; s++)
            if (e->x[k].lab[s].c)
                lab_close(&e->x[k].lab[s]);
    free(e);
}

static void execs_in_any_order_are_right_over_many_runs(void **state)
{
    (void)state;
    int64_t n = test_share(1500, 100000);
    for (int64_t i = 0; i < n && !wrong_cases; i++)
        one_case(i);
    places_close();
    print_message("%lld cases, %lld rounds, %lld without room\n", (long long)n, (long long)seen_runs,
                  (long long)seen_refused);
    assert_int_equal(wrong_cases, 0);
    assert_true(seen_refused < n / 4);
}

/* FROM COUNT as arguments: these cases of the campaign, and all that is wrong with them. */
int main(int argc, char **argv)
{
    if (argc == 3 && argv[1][0] >= '0' && argv[1][0] <= '9') {
        int64_t from = strtoll(argv[1], NULL, 10), n = strtoll(argv[2], NULL, 10);
        for (int64_t i = from; i < from + n; i++)
            one_case(i);
        places_close();
        print_message("%lld rounds, %lld without room, %lld wrong\n", (long long)seen_runs, (long long)seen_refused,
                      (long long)wrong_cases);
        return wrong_cases > 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(execs_in_any_order_are_right_over_many_runs)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
