/* Copies that any rank may do, where ranks share cores and where they do not: a rank that has begun a run needs to do
 * no more for the others to end it, and one that has not begun has nothing of its own read or written. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/block.h"
#include "engine_model.h"
#include "support/clock.h"
#include "support/conformance.h"
#include "support/exec_job.h"
#include "support/random.h"
#include "support/share.h"
#include "support/suite.h"

#define LONG (20 * SECOND) /* beyond it something is stuck, on a busy machine, too */
#define WINDOWS 0xffffffff

/* Rows to columns and the other way, and one in pieces that all ranks get: from 2 to 8 ranks no message is a letter. */
#define CROWD(n)                                                                                                    \
    {                                                                                                               \
        {"f32[341/x,173] @x" #n, "f32[341,173/x] @x" #n, WINDOWS}, {"u8[4096/x] @x" #n, "u8[4096] @x" #n, WINDOWS}, \
            {"f32[40,41/x,5] @x" #n, "f32[40/x,41,5] @x" #n, WINDOWS},                                              \
    }
enum { PAIRS = 3, FEWEST = 2, CROWDS = 7 };
static const struct pair crowds[CROWDS][PAIRS] = {CROWD(2), CROWD(3), CROWD(4), CROWD(5), CROWD(6), CROWD(7), CROWD(8)};

/* Or as many small ones as there can be, whose messages could be letters or, in single elements, be packed. Two ranks
 * have larger ones; in buckets these are more letters than they would pack in a run. */
static bool in_pieces;
static int64_t bucket;

static int make_small(struct model *m, struct ranks_rank *r)
{
    struct pair pairs[MOST];
    char text[MOST][2][64];
    for (int i = 0; i < MOST; i++) {
        int rows = (i % 5 + 1) * 8, columns = (i % 3 + 1) * (r->size == 2 ? 16 : r->size);
        snprintf(text[i][0], sizeof text[i][0], "f32[%d/x,%d] @x%d", rows, columns, r->size);
        snprintf(text[i][1], sizeof text[i][1], "f32[%d,%d/x] @x%d", rows, columns, r->size);
        pairs[i] = (struct pair){text[i][0], text[i][1], WINDOWS};
    }
    return model_make(m, r, pairs, MOST, &(weft_lower_opts){.bucket = bucket});
}

static int make(struct model *m, struct ranks_rank *r)
{
    if (in_pieces)
        return make_small(m, r);
    return model_make(m, r, crowds[r->size - FEWEST], PAIRS, &(weft_lower_opts){.bucket = 0});
}

/* ---- one that does nothing ---- */

static void run_idle(struct ranks_rank *r)
{
    const int idle = *(int *)r->arg;
    struct model m;
    RANKS_OK(r, make(&m, r));
    for (int seed = 0; seed < 3; seed++) {
        model_fill(&m, seed);
        RANKS_OK(r, weft_exec_start(m.exec));
        if (r->rank != idle)
            RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        ranks_meet(r);
        if (r->rank == idle)
            RANKS_CHECK(r, !model_wrong(&m, seed)); /* before it looks */
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    model_free(&m);
}

static void idle_rank_gets_its_data_without_a_call(void **state)
{
    (void)state;
    for (int idle = 0; idle < 4; idle++)
        ranks_run(4, NULL, run_idle, &idle, NULL);
    in_pieces = true;
    for (int n = 2; n <= 8; n += 6)
        for (int idle = 0; idle < n; idle += 1 + n / 3)
            ranks_run(n, NULL, run_idle, &idle, NULL);
    in_pieces = false;
}

/* ---- one that is late ---- */

static bool untouched(const struct model *m)
{
    for (int i = 0; i < m->n; i++)
        if (values_bytes(m->out[i].data, m->out[i].bytes, 0x5a))
            return false;
    return true;
}

static void run_late(struct ranks_rank *r)
{
    const int late = *(int *)r->arg;
    struct model m;
    RANKS_OK(r, make(&m, r));
    for (int seed = 0; seed < 3; seed++) {
        model_fill(&m, seed);
        if (r->rank != late)
            RANKS_OK(r, weft_exec_start(m.exec));
        ranks_meet(r);
        if (r->rank != late) {
            RANKS_CHECK(r, weft_exec_wait(m.exec, SECOND / 100) == WEFT_ETIMEOUT);
            char who[40];
            snprintf(who, sizeof who, "rank %d (has not started)", late);
            RANKS_CHECK(r, getenv("WEFT_PROGRESS") || strstr(weft_errmsg(), who)); /* else the thread may be at work */
        }
        ranks_meet(r);
        if (r->rank == late) {
            RANKS_CHECK(r, untouched(&m));
            RANKS_OK(r, weft_exec_start(m.exec));
        }
        RANKS_OK(r, weft_exec_wait(m.exec, LONG));
        RANKS_CHECK(r, !model_wrong(&m, seed));
    }
    model_free(&m);
}

static void late_rank_memory_is_untouched(void **state)
{
    (void)state;
    for (int n = 2; n <= 4; n += 2)
        for (int late = 0; late < n; late++)
            ranks_run(n, NULL, run_late, &late, NULL);
}

/* ---- all at once ---- */

static void run_hurried(struct ranks_rank *r)
{
    struct random rng = {(uint64_t)(100 + r->rank)};
    struct model m[2];
    const int runs = (int)test_share(20, 2000);
    for (int i = 0; i < 2; i++)
        RANKS_OK(r, make(&m[i], r));
    for (int seed = 0; seed < runs; seed++) {
        for (int i = 0; i < 2; i++)
            model_fill(&m[i], seed + i);
        RANKS_OK(r, job_run_two(m[0].exec, m[1].exec, &rng, LONG));
        for (int i = 0; i < 2; i++)
            RANKS_CHECK(r, !model_wrong(&m[i], seed + i));
    }
    for (int i = 0; i < 2; i++)
        model_free(&m[i]);
}

static void two_runs_in_flight_are_right(void **state)
{
    (void)state;
    for (int n = FEWEST; n < FEWEST + CROWDS; n++)
        ranks_run(n, NULL, run_hurried, NULL, NULL);
    in_pieces = true;
    for (int n = 2; n <= 8; n += 3)
        ranks_run(n, NULL, run_hurried, NULL, NULL);
    in_pieces = false;
}

/* ---- bound again ---- */

static int run_once(struct model *m, int seed)
{
    model_fill(m, seed);
    int err = weft_exec_start(m->exec);
    return err ? err : weft_exec_wait(m->exec, LONG);
}

/* To private memory, where ranks can do their own copies only; refused; and back. */
static void run_rebound(struct ranks_rank *r)
{
    struct model m;
    weft_view in[MOST], out[MOST], windows[2][MOST];
    RANKS_OK(r, make(&m, r));
    for (int i = 0; i < m.n; i++) {
        in[i] = (weft_view){.data = calloc(1, m.in[i].bytes + 1), .bytes = m.in[i].bytes};
        out[i] = (weft_view){.data = calloc(1, m.out[i].bytes + 1), .bytes = m.out[i].bytes};
    }
    const int64_t letters = m.exec->program->eager_bytes; /* what the block has room for */
    memcpy(windows[0], m.in, sizeof windows[0]);
    memcpy(windows[1], m.out, sizeof windows[1]);
    for (int seed = 0; seed < 6; seed++) {
        bool private = seed % 3 == 1;
        memcpy(m.in, private ? in : windows[0], sizeof in);
        memcpy(m.out, private ? out : windows[1], sizeof out);
        RANKS_OK(r, weft_exec_rebind(m.exec, m.in, m.out));
        RANKS_CHECK(r, m.exec->program->eager_bytes == letters);
        RANKS_OK(r, run_once(&m, seed));
        RANKS_CHECK(r, !model_wrong(&m, seed));
        weft_view small[MOST];
        memcpy(small, out, sizeof small);
        small[0].bytes = r->rank == seed % r->size ? 1 : small[0].bytes;
        RANKS_CHECK(r, weft_exec_rebind(m.exec, in, small) == WEFT_EINVAL);
        RANKS_OK(r, run_once(&m, seed + 100));
        RANKS_CHECK(r, !model_wrong(&m, seed + 100));
    }
    memcpy(m.in, windows[0], sizeof in);
    memcpy(m.out, windows[1], sizeof out);
    model_free(&m);
    for (int i = 0; i < m.n; i++) {
        free(in[i].data);
        free(out[i].data);
    }
}

static void rebind_to_private_memory_and_back_is_right(void **state)
{
    (void)state;
    ranks_run(4, NULL, run_rebound, NULL, NULL);
    in_pieces = true;
    ranks_run(2, NULL, run_rebound, NULL, NULL);
    ranks_run(4, NULL, run_rebound, NULL, NULL);
    bucket = 2048;
    ranks_run(2, NULL, run_rebound, NULL, NULL);
    bucket = 0;
    in_pieces = false;
}

/* ---- boxes ---- */

static void run_boxes(struct ranks_rank *r)
{
    struct model m;
    size_t came[64], n = 0, all = 0;
    RANKS_OK(r, make(&m, r));
    RANKS_OK(r, weft_exec_on_arrival(m.exec, NULL, NULL));
    for (int seed = 0; seed < 2; seed++) {
        RANKS_OK(r, run_once(&m, seed));
        RANKS_OK(r, weft_exec_arrived(m.exec, came, 64, &n));
        RANKS_CHECK(r, n >= PAIRS && n <= 64 && (!seed || n == all));
        all = n;
    }
    model_free(&m);
}

static void all_boxes_are_told(void **state)
{
    (void)state;
    ranks_run(3, NULL, run_boxes, NULL, NULL);
}

/* ---- one that gives up ---- */

static void run_given_up(struct ranks_rank *r)
{
    struct model m;
    RANKS_OK(r, make(&m, r));
    model_fill(&m, 1);
    if (r->rank == 0) {
        RANKS_OK(r, weft_exec_start(m.exec));
        weft_exec_close(m.exec); /* at the deadline */
        m.exec = NULL;
        ranks_meet(r);
        ranks_meet(r);
        RANKS_CHECK(r, untouched(&m));
    } else {
        if (r->rank == 1)
            RANKS_OK(r, weft_exec_start(m.exec));
        ranks_meet(r);
        int err = r->rank == 1 ? weft_exec_wait(m.exec, LONG) : weft_exec_run(m.exec);
        RANKS_CHECK(r, err == WEFT_EPEER && strstr(weft_errmsg(), "rank 0"));
        ranks_meet(r);
        RANKS_CHECK(r, untouched(&m));
    }
    model_free(&m);
}

static void memory_of_a_closed_run_is_untouched(void **state)
{
    (void)state;
    ranks_run(3, &(weft_comm_opts){.deadline_ns = 3 * SECOND / 2}, run_given_up, NULL, NULL);
}

int main(int argc, char **argv)
{
    /* So that three ranks share cores, and two do not. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(idle_rank_gets_its_data_without_a_call, ranks_on_two_cores),
        cmocka_unit_test_setup(late_rank_memory_is_untouched, ranks_on_two_cores),
        cmocka_unit_test_setup(two_runs_in_flight_are_right, ranks_on_two_cores),
        cmocka_unit_test_setup(rebind_to_private_memory_and_back_is_right, ranks_on_two_cores),
        cmocka_unit_test_setup(all_boxes_are_told, ranks_on_two_cores),
        cmocka_unit_test_setup(memory_of_a_closed_run_is_untouched, ranks_on_two_cores),
    };
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_one_host, tests));
}
