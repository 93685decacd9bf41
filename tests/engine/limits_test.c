/* The limit on what is in flight over all channels: 64 channels of each rank want more than its budget at once, and
 * their moves come right within it. Without the limit they take more, which the test sees first. Between hosts only
 * messages that have to be packed take of the budget, and keep what they took: there it is a bind that is refused. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/conformance.h"
#include "support/suite.h"

#define RANKS 9
#define EXECS 8 /* each with a channel to each of the 8 other ranks */
#define CHANNELS (EXECS * (RANKS - 1))
#define BUCKET (24 << 10)
#define BUDGET (1 << 20)
#define ELEMENTS (2 * BUCKET / (int)sizeof(double)) /* from one rank to another */
#define RUNS 3

struct move {
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_exec *exec;
    double *in, *out;
};

/* All to all, two buckets for each other rank; between hosts with the elements for each rank far apart, so that they
 * are packed. */
static int move_make(struct move *m, struct ranks_rank *r)
{
    char src[64], dst[64];
    weft_local at;
    weft_lower_opts o = {.size = sizeof o, .bucket = BUCKET, .algorithm = "direct"};
    bool apart = conformance_on_hosts();
    snprintf(src, sizeof src, "f64[%d/x,%d,%d] @x%d", RANKS, apart ? ELEMENTS : RANKS, apart ? RANKS : ELEMENTS, RANKS);
    snprintf(dst, sizeof dst, apart ? "f64[%d,%d,%d/x] @x%d" : "f64[%d,%d/x,%d] @x%d", RANKS, apart ? ELEMENTS : RANKS,
             apart ? RANKS : ELEMENTS, RANKS);
    int err = weft_layout_parse(src, &m->src);
    if (!err)
        err = weft_layout_parse(dst, &m->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", m->src, m->dst}, 1, r->rank, &o, &m->plan);
    if (err || (err = weft_layout_local(m->src, r->rank, &at)))
        return err;
    m->in = calloc(1, (size_t)at.bytes);
    m->out = calloc(1, (size_t)at.bytes);
    return weft_bind(m->plan, r->comm, &(weft_view){.data = m->in, .bytes = (size_t)at.bytes},
                     &(weft_view){.data = m->out, .bytes = (size_t)at.bytes}, NULL, &m->exec);
}

static void move_free(struct move *m)
{
    weft_exec_close(m->exec);
    weft_plan_free(m->plan);
    weft_layout_free(m->src);
    weft_layout_free(m->dst);
    free(m->in);
    free(m->out);
}

/* Element i of what goes from one rank to another in a run of exec number e. */
static double value(int from, int to, int i, int run, int e)
{
    return (((double)run * EXECS + e) * RANKS + from) * RANKS * ELEMENTS + (double)to * ELEMENTS + i;
}

static void fill(const struct move *m, int rank, int run, int e)
{
    for (int to = 0; to < RANKS; to++)
        for (int i = 0; i < ELEMENTS; i++)
            m->in[conformance_on_hosts() ? i * RANKS + to : to * ELEMENTS + i] = value(rank, to, i, run, e);
}

static bool is_right(const struct move *m, int rank, int run, int e)
{
    values_begin();
    values_tensor(e);
    for (int from = 0; from < RANKS; from++)
        for (int i = 0; i < ELEMENTS; i++)
            VALUES_CHECK(from * ELEMENTS + i, m->out[from * ELEMENTS + i], value(from, rank, i, run, e));
    return !values_wrong();
}

/* The execs that can be bound, all but between hosts, where the next one is refused on all ranks with one text. */
static int make_all(struct move *m, struct ranks_rank *r)
{
    int n = 0, err = 0;
    memset(m, 0, EXECS * sizeof *m);
    while (n < EXECS && !(err = move_make(&m[n], r)))
        n++;
    if (!err)
        return n;
    move_free(&m[n]);
    snprintf(r->text, sizeof r->text, "%s", ranks_said());
    return conformance_on_hosts() && err == WEFT_ENOMEM && strstr(r->text, " bytes of staging") ? n : 0;
}

/* All ranks have started all their execs before any of them makes progress: every channel has its first bucket in
 * flight if it may. */
static void run_all(struct ranks_rank *r)
{
    struct move m[EXECS];
    weft_exec_info info = {.size = sizeof info};
    int n = make_all(m, r);
    RANKS_CHECK(r, n > 0);
    for (int run = 0; run < (conformance_on_hosts() ? 1 : RUNS); run++) {
        for (int i = 0; i < n; i++) {
            fill(&m[i], r->rank, run, i);
            RANKS_OK(r, weft_exec_start(m[i].exec));
        }
        ranks_meet(r);
        for (int i = 0; i < n; i++)
            RANKS_OK(r, weft_exec_wait(m[i].exec, WEFT_FOREVER));
        for (int i = 0; i < n; i++)
            RANKS_CHECK(r, is_right(&m[i], r->rank, run, i));
        RANKS_OK(r, conformance_settle(r));
        ranks_meet(r);
    }
    RANKS_OK(r, weft_exec_stats(m[0].exec, &info));
    RANKS_CHECK(r, info.staging_limit == r->opts.inflight_bytes);
    r->code = (int)info.staging_peak;
    for (int i = 0; i < n; i++)
        move_free(&m[i]);
}

static void peaks(int64_t limit, bool all_fit, int *least, int *most)
{
    struct ranks_rank out[RANKS];
    ranks_run(RANKS, &(weft_comm_opts){.staged = true, .inflight_bytes = limit, .inflight_buckets = 1000}, run_all,
              NULL, out);
    *least = *most = out[0].code;
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(out[r].text[0] == 0, all_fit);
        assert_string_equal(out[r].text, out[0].text);
        *least = out[r].code < *least ? out[r].code : *least;
        *most = out[r].code > *most ? out[r].code : *most;
    }
}

static void many_channels_stay_within_one_budget(void **state)
{
    (void)state;
    int least, most;
    peaks(64 << 20, true, &least, &most); /* as good as none */
    print_message("%d channels a rank: at least %d KiB in flight without the limit,", CHANNELS, least >> 10);
    assert_true(least >= CHANNELS * BUCKET);
    peaks(BUDGET, !conformance_on_hosts(), &least, &most);
    print_message(" at most %d KiB with a budget of %d KiB\n", most >> 10, BUDGET >> 10);
    assert_true(most <= BUDGET);
    assert_true(least > BUDGET / 2); /* and it was used */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_channels_stay_within_one_budget)};
    return SUITE_MAIN(argc, argv, SUITE_AT(&conformance_everywhere, tests));
}
