/* The engine where it seldom is: ranks that come late, wait in small pieces or run far ahead, messages of all ways in
 * one channel, and staging so scarce that every slot counts. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_model.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define LONG (20 * SECOND) /* beyond it something is stuck, on a busy machine, too */

/* ---- waits in small pieces ---- */

enum { BY_WAIT, BY_TEST, BY_BARRIER, BY_WINDOW };

/* Rank 0 sends columns to two ranks; the second begins when the first is through. Rank 0 never waits for long. */
static void run_impatient(struct ranks_rank *r)
{
    static const struct pair pair = {.src = "f32[96,2000] @x1=0", .dst = "f32[96,2000/x] @x2=1,2", .ours = 0xffffffff};
    int how = *(int *)r->arg;
    struct model m;
    weft_window *w;
    RANKS_OK(r, weft_window_open(r->comm, NULL, 0, 1, &w));
    RANKS_OK(r, model_make(&m, r, &pair, 1, &(weft_lower_opts){.bucket = 0}));
    model_fill(&m, 1);
    if (r->rank == 1) {
        RANKS_OK(r, weft_exec_start(m.exec));
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        RANKS_OK(r, weft_window_notify(w, 2, 0, WEFT_NOTIFY_SET, 1));
    }
    if (r->rank == 2) {
        RANKS_OK(r, weft_window_wait(w, 0, WEFT_GE, 1, LONG));
        RANKS_OK(r, weft_exec_run(m.exec));
        RANKS_OK(r, weft_window_notify(w, 0, 0, WEFT_NOTIFY_SET, 1));
    }
    if (r->rank == 0) {
        int64_t until = clock_now() + LONG;
        int err = weft_exec_start(m.exec);
        for (bool done = false; !err && !done && clock_now() < until;) {
            if (how == BY_TEST) {
                err = weft_exec_test(m.exec, &done);
                continue;
            }
            err = how == BY_WAIT      ? weft_exec_wait(m.exec, 1000)
                  : how == BY_BARRIER ? weft_comm_barrier(r->comm, 0)
                                      : weft_window_wait(w, 0, WEFT_GE, 1, 0);
            done = !err;
            err = err == WEFT_ETIMEOUT ? 0 : err;
        }
        RANKS_OK(r, err);
        RANKS_CHECK(r, clock_now() < until);
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
    }
    if (how == BY_BARRIER && r->rank)
        RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
    RANKS_CHECK(r, !model_wrong(&m, 1));
    model_free(&m);
    weft_window_close(w);
}

static void sender_that_waits_in_short_pieces_completes(void **state)
{
    (void)state;
    for (int how = BY_WAIT; how <= BY_WINDOW; how++)
        if (conformance_takes(how))
            ranks_run(3, NULL, run_impatient, &how, NULL);
}

/* ---- one slot ---- */

struct scene {
    const struct pair *pairs;
    int n;
    const char *algorithm;
};

static void run_scene(struct ranks_rank *r)
{
    const struct scene *s = r->arg;
    struct model m;
    RANKS_OK(r, model_make(&m, r, s->pairs, s->n, &(weft_lower_opts){.bucket = 1, .algorithm = s->algorithm}));
    for (int seed = 0; seed < 20; seed++) {
        model_fill(&m, seed);
        RANKS_OK(r, weft_exec_start(m.exec));
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    model_free(&m);
}

/* Each rank's only slot goes to a message behind one that a fold of the receiver's reads where it is; and each fold
 * needs another one that has to wait for the slot. */
static void folds_that_need_one_slot_each_do_not_block(void **state)
{
    (void)state;
    static const struct pair pulled[] = {
        {"f32[2000] @x2=0,2 +sum(x)", "f32[2000] @x1=1", 1}, {"f32[2000] @x2=1,0 +sum(x)", "f32[2000] @x1=2", 2},
        {"f32[2000] @x2=2,1 +sum(x)", "f32[2000] @x1=0", 4}, {"f32[1500] @x1=0", "f32[1500] @x1=1", 0},
        {"f32[1500] @x1=1", "f32[1500] @x1=2", 0},           {"f32[1500] @x1=2", "f32[1500] @x1=0", 0},
    };
    /* Of each fold one term is a letter and one is none, by what the letters before have left. */
    static const struct pair letters[] = {
        {"f32[250] @x1=0", "f32[250] @x1=1", 0},           {"f32[250] @x1=2", "f32[250] @x1=0", 0},
        {"f32[500] @x2=1,0 +sum(x)", "f32[500] @x1=2", 0}, {"f32[250] @x2=2,1 +sum(x)", "f32[250] @x1=0", 0},
        {"f32[125] @x2=0,2 +sum(x)", "f32[125] @x1=1", 0}, {"f32[1500] @x1=0", "f32[1500] @x1=1", 0},
        {"f32[1500] @x1=1", "f32[1500] @x1=2", 0},         {"f32[1500] @x1=2", "f32[1500] @x1=0", 0},
    };
    struct scene s = {pulled, 6, NULL};
    ranks_run(3, &(weft_comm_opts){.inflight_buckets = 1, .deadline_ns = 30 * SECOND}, run_scene, &s, NULL);
    s = (struct scene){letters, 8, NULL};
    ranks_run(3, &(weft_comm_opts){.inflight_buckets = 1, .inflight_bytes = 4 * 39 * 1024, .deadline_ns = 30 * SECOND},
              run_scene, &s, NULL);
}

/* What two roots send at once to ranks of several stages would wait for what each has to pass on of the other's. */
static void crossing_trees_do_not_block(void **state)
{
    (void)state;
    static const struct pair pairs[] = {
        {"f32[1500] @x1=0", "f32[1500] @x2=0,1", 0},
        {"f32[1500] @x1=1", "f32[1500] @x2=1,0", 0},
        {"f32[2000] @x1=0", "f32[2000] @x8=0,1,2,5,4,3,6,7", 0},
        {"f32[2001] @x1=1", "f32[2001] @x8=1,0,3,4,5,2,6,7", 0},
    };
    struct scene s = {pairs, 4, "tree"};
    ranks_run(8, &(weft_comm_opts){.staged = true, .deadline_ns = 30 * SECOND}, run_scene, &s, NULL);
}

/* ---- an exec that is given up ---- */

/* Rank 0 begins a run, gives up and takes its memory back: nobody may read or write it after that. */
static void run_given_up(struct ranks_rank *r)
{
    const struct pair *pair = r->arg;
    struct model m;
    weft_exec *x;
    RANKS_OK(r, model_make(&m, r, pair, 1, &(weft_lower_opts){.bucket = 0}));
    model_fill(&m, 1);
    if (r->rank == 0) {
        RANKS_OK(r, weft_exec_start(m.exec));
        x = m.exec;
        m.exec = NULL;
        weft_exec_close(x);
        memset(m.in[0].data, 0x77, m.in[0].bytes);
        memset(m.out[0].data, 0x77, m.out[0].bytes);
        ranks_meet(r);
        ranks_meet(r);
        RANKS_CHECK(r, !values_bytes(m.out[0].data, m.out[0].bytes, 0x77));
    } else {
        ranks_meet(r);
        int err = weft_exec_run(m.exec);
        if (!err && conformance_on_hosts()) /* what a wire has taken over arrives, as it was */
            RANKS_CHECK(r, !model_wrong(&m, 1));
        else
            RANKS_CHECK(r, err == WEFT_EPEER && strstr(weft_errmsg(), "rank 0"));
        ranks_meet(r);
    }
    model_free(&m);
}

static void memory_of_a_closed_run_is_untouched(void **state)
{
    (void)state;
    static const struct pair pushed = {"f32[64,200] @x1=1", "f32[64,200/x] @x2=0,2", 0xffffffff},
                             pulled = {"f32[64,200/x] @x2=0,1", "f32[64,200] @x1=2", 0xffffffff};
    /* It is given up at the deadline, within which they open and connect, too. */
    const weft_comm_opts opts = {.deadline_ns = conformance_on_hosts() ? 4 * SECOND : 3 * SECOND / 2};
    if (conformance_takes(0))
        ranks_run(3, &opts, run_given_up, (void *)(uintptr_t)&pushed, NULL);
    if (conformance_takes(1))
        ranks_run(3, &opts, run_given_up, (void *)(uintptr_t)&pulled, NULL);
}

/* ---- everything at once ---- */

enum { EXECS = 4, TENSORS = 4, RUNS = 40 };

struct mix {
    struct pair pairs[EXECS][TENSORS];
    char texts[EXECS][TENSORS][2][64];
    int64_t bucket[EXECS];
    int n[EXECS], execs;
    uint64_t seed;
};

/* Sizes around those at which messages travel otherwise. */
static int64_t some_size(struct random *rnd)
{
    static const int64_t about[] = {1, 8, 32, 1020, 4096, 20000};
    int64_t n = about[random_in(rnd, 0, 5)] + random_in(rnd, -9, 9);
    return n < 1 ? 1 : n;
}

static void some_pair(struct random *rnd, struct pair *pair, char (*text)[64])
{
    long n = (long)some_size(rnd), m = (long)random_in(rnd, 3, 40), rows = n / m + 4;
    int from = (int)random_in(rnd, 0, 3), to = (int)random_in(rnd, 0, 3);
    switch (random_in(rnd, 0, 8)) {
    case 0: sprintf(text[0], "f32[%ld/x] @x4", n), sprintf(text[1], "f32[%ld] @x4", n); break;
    case 1: sprintf(text[0], "f32[%ld] @x4 +sum(x)", n), sprintf(text[1], "f32[%ld/x] @x4", n); break;
    case 2: sprintf(text[0], "f32[%ld] @x4 +sum(x)", n), sprintf(text[1], "f32[%ld] @x4", n); break;
    case 3: sprintf(text[0], "f32[%ld/x,%ld] @x4", rows, m), sprintf(text[1], "f32[%ld,%ld/x] @x4", rows, m); break;
    case 4: sprintf(text[0], "f32[%ld] @x1=%d", n, from), sprintf(text[1], "f32[%ld] @x4", n); break;
    case 5:
        sprintf(text[0], "f32[%ld,%ld/x] @x4", rows, m), sprintf(text[1], "bf16[%ld/x,%ld] @x4=3,2,1,0", rows, m);
        break;
    case 6: sprintf(text[0], "u8[%ld] @x1=%d", n, from), sprintf(text[1], "u8[%ld] @x1=%d", n, to); break;
    case 7: sprintf(text[0], "f32[%ld/x] @x4", n), sprintf(text[1], "f32[%ld/x] @x4=1,2,3,0", n); break;
    default: sprintf(text[0], "i64[%ld] @x3=1,2,3 +max(x)", n), sprintf(text[1], "i64[%ld] @x1=%d", n, to);
    }
    static const unsigned ours[] = {0, 0xffffffff, 0x00050005, 0xffff0000, 0x0000ffff};
    *pair = (struct pair){text[0], text[1], ours[random_in(rnd, 0, 4)]};
}

static void linger(struct random *rnd)
{
    if (random_once_in(rnd, 3))
        for (int64_t i = random_in(rnd, 0, 4); i > 0; i--)
            sched_yield();
}

static int end_run(struct random *rnd, struct model *m)
{
    bool done = false;
    int err = 0;
    switch (random_in(rnd, 0, 2)) {
    case 0: return weft_exec_wait(m->exec, WEFT_FOREVER);
    case 1:
        do
            err = weft_exec_wait(m->exec, random_in(rnd, 0, 2000));
        while (err == WEFT_ETIMEOUT);
        return err;
    default:
        for (; !err && !done; err = weft_exec_test(m->exec, &done))
            sched_yield();
        return err;
    }
}

/* The same tensors in other memory. */
static int move_house(struct model *m, const struct pair *pairs)
{
    weft_view in[MOST], out[MOST];
    bool ours[2 * MOST];
    memcpy(in, m->in, sizeof in);
    memcpy(out, m->out, sizeof out);
    memcpy(ours, m->ours, sizeof ours);
    int err = 0;
    for (int i = 0; i < m->n && !err; i++) {
        struct pair other = pairs[i];
        other.ours = ~other.ours;
        err = model_views(m, i, &other);
    }
    if (!err)
        err = weft_exec_rebind(m->exec, m->in, m->out);
    for (int i = 0; i < m->n; i++) {
        model_unview(m, ours[2 * i], &in[i]);
        model_unview(m, ours[2 * i + 1], &out[i]);
    }
    return err;
}

static void run_mix(struct ranks_rank *r)
{
    const struct mix *mix = r->arg;
    struct random rnd = {mix->seed * 31 + (uint64_t)r->rank};
    struct model m[EXECS];
    for (int x = 0; x < mix->execs; x++)
        RANKS_OK(r, model_make(&m[x], r, mix->pairs[x], mix->n[x], &(weft_lower_opts){.bucket = mix->bucket[x]}));
    for (int run = 0; run < RUNS; run++) {
        int turn = (int)random_in(&rnd, 0, EXECS), back = (int)random_in(&rnd, 0, EXECS);
        if (run == RUNS / 2)
            for (int x = 0; x < mix->execs; x++)
                RANKS_OK(r, move_house(&m[x], mix->pairs[x]));
        for (int i = 0; i < mix->execs; i++) {
            struct model *at = &m[(i + turn) % mix->execs];
            linger(&rnd);
            model_fill(at, run);
            RANKS_OK(r, weft_exec_start(at->exec));
        }
        for (int i = 0; i < mix->execs; i++) {
            struct model *at = &m[(i + back) % mix->execs];
            linger(&rnd);
            RANKS_OK(r, end_run(&rnd, at));
            if (model_wrong(at, run))
                ranks_note(r, __FILE__, __LINE__, "seed %lld, exec %d, run %d", (long long)mix->seed, (int)(at - m),
                           run);
        }
    }
    for (int x = 0; x < mix->execs; x++)
        model_free(&m[x]);
}

static void random_mixtures_of_execs_are_right(void **state)
{
    (void)state;
    static const int buckets[] = {1, 2, 256}, few[] = {1, 2, 8};
    for (int64_t seed = 1; suite_seed(&seed, 1, test_share(5, 100)); seed++) {
        struct random rnd = {(uint64_t)seed};
        if (!conformance_takes((int)seed))
            continue;
        struct mix mix = {.seed = (uint64_t)seed, .execs = (int)random_in(&rnd, 1, EXECS)};
        for (int x = 0; x < mix.execs; x++) {
            static const int64_t bytes[] = {0, 1, 64, 4096};
            mix.n[x] = (int)random_in(&rnd, 1, TENSORS);
            mix.bucket[x] = bytes[random_in(&rnd, 0, 3)];
            for (int i = 0; i < mix.n[x]; i++)
                some_pair(&rnd, &mix.pairs[x][i], mix.texts[x][i]);
        }
        weft_comm_opts opts = {.staged = random_once_in(&rnd, 4),
                               .inflight_buckets = mix.execs - 1 + buckets[random_in(&rnd, 0, 2)],
                               .channel_buckets = few[random_in(&rnd, 0, 2)],
                               .deadline_ns = 10 * SECOND};
        ranks_run(4, &opts, run_mix, &mix, NULL);
    }
}

/* ---- far ahead ---- */

/* Rank 0 only sends: it runs ahead as far as letters let it. Rank 3 comes late, again and again. */
static void run_ahead(struct ranks_rank *r)
{
    static const struct pair pairs[] = {
        {"f32[7] @x1=0", "f32[7] @x4", 0},
        {"f32[900] @x1=0", "f32[900] @x4", 0},
        {"u8[1] @x1=0", "u8[1] @x1=3", 0},
    };
    int n = *(int *)r->arg;
    struct random rnd = {(uint64_t)r->rank};
    struct model m;
    RANKS_OK(r, model_make(&m, r, pairs, n, &(weft_lower_opts){.bucket = 1, .algorithm = "direct"}));
    for (int run = 0; run < (conformance_on_hosts() ? 60 : 300); run++) {
        model_fill(&m, run);
        if (r->rank == 3)
            linger(&rnd);
        RANKS_OK(r, weft_exec_run(m.exec));
        RANKS_CHECK(r, !model_wrong(&m, run));
    }
    model_free(&m);
}

static void sender_far_ahead_of_a_late_rank_is_right(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        ranks_run(4, NULL, run_ahead, &n, NULL);
}

/* ---- one rank sends, the others receive ---- */

struct one_way {
    int64_t bucket;
    int pairs; /* 2: those in one piece; more: some behind them that are strided or cast */
};

/* In one piece, in rows, with a cast, and what all of them get. Some begin late. */
static void run_one_way(struct ranks_rank *r)
{
    static const struct pair all[2][7] = {{{"u8[300007] @x1=0", "u8[300007] @x1=1", 0},
                                           {"f32[80001] @x1=0", "f32[80001] @x2", 0},
                                           {"f32[20000] @x1=0", "f32[20000] @x2", 0},
                                           {"u8[5] @x1=0", "u8[5] @x1=1", 0},
                                           {"f32[90,201] @x1=0", "f32[90,201/x] @x2=1,0", 0},
                                           {"f64[9000] @x1=0", "f32[9000] @x1=1", 0},
                                           {"i32[20001] @x1=0", "i32[20001] @x1=1", 0}},
                                          {{"u8[300007] @x1=0", "u8[300007] @x3=1,3,2", 0},
                                           {"f32[80001] @x1=0", "f32[80001] @x4", 0},
                                           {"f32[20000] @x1=0", "f32[20000] @x4", 0},
                                           {"u8[5] @x1=0", "u8[5] @x3=1,2,3", 0},
                                           {"f32[90,401] @x1=0", "f32[90,401/x] @x4=1,0,3,2", 0},
                                           {"f64[9000] @x1=0", "f32[9000] @x2=3,1", 0},
                                           {"i32[20001] @x1=0", "i32[20001] @x3=3,2,1", 0}}};
    const struct one_way *how = r->arg;
    struct model m;
    RANKS_OK(r, model_make(&m, r, all[r->size == 4], how->pairs, &(weft_lower_opts){.bucket = how->bucket}));
    for (int seed = 0; seed < 6; seed++) {
        model_fill(&m, seed);
        bool done = false, late = seed % 3 == (r->rank ? 1 : 2);
        if (late)
            RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        RANKS_OK(r, weft_exec_start(m.exec));
        if (!late && seed % 3)
            RANKS_OK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE));
        for (int i = 0; i < 100 * (seed % 3) && !done; i++)
            RANKS_OK(r, weft_exec_test(m.exec, &done));
        RANKS_OK(r, weft_exec_wait(m.exec, 60 * SECOND));
        RANKS_CHECK(r, !model_wrong(&m, seed));
        if (seed == 3)
            RANKS_OK(r, weft_exec_rebind(m.exec, m.in, m.out));
    }
    model_free(&m);
}

/* Behind what is in one piece the receiver has columns where the sender has rows. */
static void run_turned(struct ranks_rank *r)
{
    enum { ROWS = 257, COLUMNS = 311 };
    static const int64_t by_column[] = {4, 4 * ROWS};
    struct model m;
    static const struct pair pairs[] = {{"f32[80001] @x1=0", "f32[80001] @x1=1", 0},
                                        {"f32[257,311] @x1=0", "f32[257,311] @x1=1", 0}};
    RANKS_OK(r, model_make(&m, r, pairs, 2, &(weft_lower_opts){.bucket = 0}));
    const float *got = m.out[1].data;
    float *is = m.in[1].data;
    m.out[1].strides = r->rank ? by_column : NULL;
    RANKS_OK(r, weft_exec_rebind(m.exec, m.in, m.out));
    for (int run = 1; run <= 6; run++) {
        for (int i = 0; i < ROWS * COLUMNS && !r->rank; i++)
            is[i] = (float)(run * i);
        RANKS_OK(r, weft_exec_run(m.exec));
        for (int i = 0; i < ROWS * COLUMNS && r->rank; i++)
            RANKS_CHECK(r, got[i % COLUMNS * ROWS + i / COLUMNS] == (float)(run * i));
    }
    model_free(&m);
}

static void messages_of_one_sender_are_right(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k += CONFORMANCE_ON < 3 ? 3 : 1) /* sanitizers: the first and the last */
        for (int staged = 0; staged < 2; staged++)
            for (int size = 2; size <= 4; size += 2) {
                struct one_way how = {.bucket = k % 2 << 18, .pairs = k < 2 ? 2 : 7};
                if (conformance_takes(size / 2 + staged + k / 2))
                    ranks_run(size, &(weft_comm_opts){.staged = staged}, run_one_way, &how, NULL);
            }
    for (int staged = 0; staged < 2; staged++)
        if (conformance_takes(2 + staged))
            ranks_run(2, &(weft_comm_opts){.staged = staged}, run_turned, NULL, NULL);
}

/* ---- messages that both ends copy ---- */

/* Rank 0 sends and has nothing else to do, so it copies a part where each rank has a core. Which rank comes late is
 * different in each run. */
static void run_assisted(struct ranks_rank *r)
{
    static const struct pair pairs[] = {{"u8[400003] @x1=0", "u8[400003] @x1=1", ~0U},
                                        {"f32[50001] @x1=0", "f32[50001] @x2", ~0U},
                                        {"u8[5] @x1=0", "u8[5] @x1=1", ~0U},
                                        {"f64[9000] @x1=0", "f32[9000] @x1=1", ~0U},
                                        {"f32[300,301] @x1=0", "bf16[300,301] @x1=1", ~0U},
                                        {"f32[600,400] @x1=0", "bf16[600,400/x] @x2", ~0U},
                                        {"f32[301,402/x] @x2", "f32[301,402] @x1=1", ~0U}};
    struct random rnd = {(uint64_t)r->rank + 7};
    struct model m;
    RANKS_OK(r, model_make(&m, r, pairs, 7, &(weft_lower_opts){.bucket = *(int64_t *)r->arg}));
    for (int seed = 0; seed < test_rounds(24); seed++) {
        model_fill(&m, seed);
        if (seed % 3 == r->rank)
            linger(&rnd);
        bool done = false;
        RANKS_OK(r, weft_exec_start(m.exec));
        for (int i = 0; i < 50 * (seed % 4) && !done; i++)
            RANKS_OK(r, weft_exec_test(m.exec, &done));
        RANKS_OK(r, weft_exec_wait(m.exec, 60 * SECOND));
        RANKS_CHECK(r, !model_wrong(&m, seed));
        if (seed % 5 == 4)
            RANKS_OK(r, weft_exec_rebind(m.exec, m.in, m.out));
    }
    model_free(&m);
}

static void assisted_copies_are_right(void **state)
{
    (void)state;
    for (int64_t bucket = 0; bucket <= 1 << 18; bucket += 1 << 17)
        for (int progress = 0; progress < 2; progress++)
            if (conformance_takes((int)(bucket >> 17) + progress))
                ranks_run(2, &(weft_comm_opts){.progress = progress ? WEFT_PROGRESS_THREAD : 0}, run_assisted, &bucket,
                          NULL);
}

/* Columns, which one side has as strided rows: of a tensor that is cast, and of one that is not. */
static void run_assisted_columns(struct ranks_rank *r)
{
    static const struct pair pairs[] = {{"f32[600,400] @x1=0", "bf16[600,400/x] @x2", ~0U},
                                        {"f32[600,402/x] @x2", "f32[600,402] @x1=1", ~0U}};
    for (int k = 0; k < 2; k++) {
        struct model m;
        char text[4096];
        size_t len;
        RANKS_OK(r, model_make(&m, r, &pairs[k], 1, &(weft_lower_opts){.bucket = 0}));
        RANKS_OK(r, weft_exec_explain(m.exec, false, text, sizeof text, &len));
        if (strstr(text, "cores: each rank has one") && !strstr(text, "wire:"))
            RANKS_CHECK(r, strstr(text, "assist:"));
        for (int seed = 0; seed < test_rounds(9); seed++) {
            model_fill(&m, seed);
            RANKS_OK(r, weft_exec_run(m.exec));
            RANKS_CHECK(r, !model_wrong(&m, seed));
        }
        model_free(&m);
    }
}

static void columns_are_copied_by_both_ends(void **state)
{
    (void)state;
    ranks_run(2, NULL, run_assisted_columns, NULL, NULL);
}

/* Binding again to memory that must be staged is refused, by the other rank's view; what was bound before goes on. */
static void run_refused(struct ranks_rank *r)
{
    static const struct pair pair = {"f32[100000] @x1=0", "f32[100000] @x1=1", 0xffffffff};
    struct model m;
    RANKS_OK(r, model_make(&m, r, &pair, 1, &(weft_lower_opts){.bucket = 0}));
    char *private = calloc(1, m.in[0].bytes + 1);
    RANKS_CHECK(r, private);
    const weft_view in = WEFT_VIEW(private, m.in[0].bytes), small = WEFT_VIEW(m.out[0].data, r->rank ? 1 : 0);
    for (int seed = 0; seed < 3; seed++) {
        model_fill(&m, seed);
        RANKS_OK(r, weft_exec_start(m.exec));
        RANKS_OK(r, weft_exec_wait(m.exec, 20 * SECOND));
        RANKS_CHECK(r, !model_wrong(&m, seed));
        RANKS_CHECK(r, weft_exec_rebind(m.exec, &in, &small) == WEFT_EINVAL);
    }
    model_free(&m);
    free(private);
}

static void assisted_run_goes_on_after_a_refused_rebind(void **state)
{
    (void)state;
    ranks_run(2, NULL, run_refused, NULL, NULL);
}

/* ---- a message that is read in two ways ---- */

/* Rank 1 copies one part of rank 0's message and folds the other where it is, with what rank 2 has, which comes late:
 * until then the message has not been read. */
static void run_two_ways(struct ranks_rank *r)
{
    static const struct pair pairs[] = {{"f32[2000] @x2=0,2 +sum(x)", "f32[2000] @x1=1", 0xffffffff},
                                        {"f32[1500] @x1=0", "f32[1500] @x1=1", 0xffffffff}};
    struct model m;
    RANKS_OK(r, model_make(&m, r, pairs, 2, &(weft_lower_opts){.bucket = 0}));
    for (int seed = 0; seed < 3; seed++) {
        model_fill(&m, seed);
        if (r->rank == 2)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_start(m.exec));
        bool done = false;
        for (int64_t until = clock_now() + SECOND / 20; r->rank == 0 && !done && clock_now() < until;)
            RANKS_OK(r, weft_exec_test(m.exec, &done));
        RANKS_CHECK(r, !done || conformance_on_hosts()); /* a wire has a copy */
        if (r->rank < 2)
            ranks_meet(r);
        RANKS_OK(r, weft_exec_wait(m.exec, 20 * SECOND));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    model_free(&m);
}

static void message_is_kept_until_its_fold_and_copy_are_done(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_two_ways, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sender_that_waits_in_short_pieces_completes),
        cmocka_unit_test(folds_that_need_one_slot_each_do_not_block),
        cmocka_unit_test(crossing_trees_do_not_block),
        cmocka_unit_test(memory_of_a_closed_run_is_untouched),
        cmocka_unit_test(random_mixtures_of_execs_are_right),
        cmocka_unit_test(sender_far_ahead_of_a_late_rank_is_right),
        cmocka_unit_test(messages_of_one_sender_are_right),
        cmocka_unit_test(assisted_copies_are_right),
        cmocka_unit_test(columns_are_copied_by_both_ends),
        cmocka_unit_test(assisted_run_goes_on_after_a_refused_rebind),
        cmocka_unit_test(message_is_kept_until_its_fold_and_copy_are_done),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
