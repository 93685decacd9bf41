/* weft_comm_dump: always JSON, whatever is in flight and however the messages travel; it names who is waited for and
 * which tensor, keeps the last events alone, and speaks of a split comm's ranks as they were opened. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/clock.h"
#include "support/json_syntax.h"
#include "support/ranks.h"
#include "support/suite.h"

#define EVENTS 256 /* that are kept */

/* The dump, in memory that the caller frees; NULL: it is not as weft.h says, or not JSON. */
static char *dump(weft_comm *c)
{
    size_t len = 0, again = 0;
    if (weft_comm_dump(c, NULL, 0, &len) || !len)
        return NULL;
    size_t cap = len + 1000; /* peers go on: numbers in it may grow */
    char *text = calloc(cap, 1);
    if (text && !weft_comm_dump(c, text, cap, &again) && again < cap && strlen(text) == again && json_is_valid(text))
        return text;
    free(text);
    return NULL;
}

static bool is_json(weft_comm *c)
{
    char *text = dump(c);
    free(text);
    return text != NULL;
}

static bool says(weft_comm *c, const char *what)
{
    char *text = dump(c);
    bool is = text && strstr(text, what);
    if (!is)
        fprintf(stderr, "'%s' is not in: %s\n", what, text ? text : "no JSON");
    free(text);
    return is;
}

/* ---- a comm alone ---- */

static void dump_refuses_bad_arguments_and_fits_any_buffer(void **state)
{
    (void)state;
    weft_comm *c;
    size_t len, again;
    char small[9];
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_int_equal(weft_comm_dump(NULL, small, sizeof small, &len), WEFT_EINVAL);
    assert_int_equal(weft_comm_dump(c, small, sizeof small, NULL), WEFT_EINVAL);
    assert_int_equal(weft_comm_dump(c, NULL, 1, &len), WEFT_EINVAL);
    assert_int_equal(weft_comm_dump(c, NULL, 0, &len), 0);
    assert_int_equal(weft_comm_dump(c, small, sizeof small, &again), 0);
    assert_int_equal(len, again);
    assert_string_equal(small, "{\n  \"wef");
    weft_comm_close(c);
}

static void dump_keeps_the_last_events_and_counts_the_others(void **state)
{
    (void)state;
    weft_comm *c;
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_true(says(c, "\"forgotten\": 0,\n  \"events\": []"));
    for (int i = 0; i < EVENTS; i++)
        assert_int_equal(weft_comm_barrier(c, WEFT_DEADLINE), 0);
    assert_true(says(c, "\"forgotten\": 0"));
    assert_true(says(c, "\"events\": [\n    {\"event\": \"met\", \"call\": \"weft_comm_barrier\", \"meeting\": 0,"));
    assert_int_equal(weft_comm_barrier(c, WEFT_DEADLINE), 0);
    assert_true(says(c, "\"forgotten\": 1"));
    assert_true(says(c, "\"events\": [\n    {\"event\": \"met\", \"call\": \"weft_comm_barrier\", \"meeting\": 1,"));
    assert_true(says(c, "\"meeting\": null"));
    weft_comm_close(c);
}

/* ---- a run that one rank has not started ---- */

struct shape {
    const char *src, *dst, *way; /* how the message travels from rank 1 to rank 0 */
    bool staged;
    bool window; /* in memory that peers reach */
    enum weft_progress progress;
};

static const struct shape shapes[] = {
    {"f32[4] @x1=1", "f32[4] @x1=0", "eager", false, false, WEFT_PROGRESS_CALLER},
    {"f32[60000] @x1=1", "f32[60000] @x1=0", "staged", true, false, WEFT_PROGRESS_CALLER},
    {"f32[60000] @x1=1", "f32[60000] @x1=0", "pull", false, true, WEFT_PROGRESS_CALLER},
    {"f32[256,256] @x1=1", "f32[256,256] @x1=0", "staged", true, false, WEFT_PROGRESS_THREAD},
    {"f32[4] @x1=1", "f32[4] @x1=0", "eager", false, false, WEFT_PROGRESS_THREAD},
};

static void late_sender(struct ranks_rank *r)
{
    const struct shape *s = r->arg;
    const size_t bytes = 65536 * sizeof(float);
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_exec *x;
    void *data;
    char way[64];
    bool done;
    snprintf(way, sizeof way, "\"way\": \"%s\"", s->way);
    RANKS_OK(r, weft_layout_parse(s->src, &src));
    RANKS_OK(r, weft_layout_parse(s->dst, &dst));
    RANKS_OK(r, weft_lower(&(weft_move){"q\"uo\\te\n\xff", src, dst}, 1, r->rank, NULL, &plan));
    if (s->window)
        RANKS_OK(r, weft_comm_alloc(r->comm, bytes, WEFT_MEMORY_HOST, 0, &data));
    else
        RANKS_CHECK(r, (data = calloc(1, bytes)));
    weft_view view = WEFT_VIEW(data, bytes);
    weft_bind_opts opts = {.size = sizeof opts, .ways = "-assist"}; /* it depends on the number of cores */
    RANKS_OK(r, weft_bind(plan, r->comm, r->rank ? &view : NULL, r->rank ? NULL : &view, &opts, &x));
    RANKS_CHECK(r, says(r->comm, "\"state\": \"bound\""));
    RANKS_CHECK(r, says(r->comm, "\"call\": \"weft_bind\""));
    if (r->rank == 0) {
        RANKS_OK(r, weft_exec_start(x));
        RANKS_CHECK(r, weft_exec_wait(x, 5 * MS) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, says(r->comm, "\"state\": \"in flight\""));
        RANKS_CHECK(r, says(r->comm, "{\"from\": 1, \"messages\": 1, \"begun\": 0, \"done\": 0, \"waits\": true, "
                                     "\"peer_started\": false, \"peer\": \"here\""));
        RANKS_CHECK(r, says(r->comm, way));
        RANKS_CHECK(r, says(r->comm, "\"name\": \"q\\\"uo\\\\te\\u000a\\ufffd\""));
        if (s->progress == WEFT_PROGRESS_CALLER) /* a thread may be at work just then: nobody looks */
            RANKS_CHECK(r, says(r->comm, "{\"event\": \"timeout\", \"code\": -6}"));
    }
    ranks_meet(r);
    if (r->rank == 1)
        RANKS_OK(r, weft_exec_start(x));
    do
        RANKS_OK(r, weft_exec_test(x, &done));
    while (!done && is_json(r->comm));
    RANKS_CHECK(r, done && says(r->comm, "\"started\": 1, \"ended\": 1, \"failed\": 0, \"state\": \"complete\""));
    weft_exec_close(x);
    RANKS_CHECK(r, says(r->comm, "\"execs\": []"));
    RANKS_CHECK(r, says(r->comm, "{\"event\": \"freed\", \"exec\": 0, \"started\": 1, \"code\": 0}"));
    if (s->window)
        weft_comm_free(r->comm, data);
    else
        free(data);
    weft_plan_free(plan);
    weft_layout_free(src);
    weft_layout_free(dst);
}

static void dump_names_the_late_sender_and_the_tensor(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct shape s = shapes[i];
        ranks_run(2, &(weft_comm_opts){.staged = s.staged, .progress = s.progress}, late_sender, &s, NULL);
    }
}

/* ---- meetings, splits, failure ---- */

static void split_and_wait(struct ranks_rank *r)
{
    static const int upper[] = {2, 1};
    weft_comm *part;
    RANKS_OK(r, weft_comm_split(r->comm, upper, r->rank ? 2 : 0, &part));
    if (r->rank == 2) { /* number 0 of the part */
        RANKS_CHECK(r, weft_comm_barrier(part, 2 * MS) == WEFT_ETIMEOUT);
        RANKS_CHECK(r, says(part, "\"rank\": 2, \"ranks\": 3, \"members\": 2"));
        RANKS_CHECK(r, says(part, "\"meeting\": {\"call\": \"weft_comm_barrier\", \"number\": 0"));
        RANKS_CHECK(r, says(part, "\"missing\": [{\"rank\": 1, \"peer\": \"here\"}]"));
    }
    ranks_meet(r);
    if (part)
        RANKS_OK(r, weft_comm_barrier(part, WEFT_DEADLINE));
    weft_comm_close(part);
}

static void dump_of_a_split_comm_has_the_opened_ranks(void **state)
{
    (void)state;
    ranks_run(3, NULL, split_and_wait, NULL, NULL);
}

static void closes_early(struct ranks_rank *r)
{
    if (r->rank == 1)
        return;
    RANKS_CHECK(r, weft_comm_barrier(r->comm, WEFT_DEADLINE) == WEFT_EPEER);
    RANKS_CHECK(r, says(r->comm, "\"failure\": {\"code\": -7, \"text\": \"rank 1 closed its comm, others are in "
                                 "weft_comm_barrier\"}"));
    RANKS_CHECK(r, says(r->comm, "{\"event\": \"failed\", \"code\": -7}"));
}

static void dump_after_a_failure_has_its_text(void **state)
{
    (void)state;
    ranks_run(3, NULL, closes_early, NULL, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dump_refuses_bad_arguments_and_fits_any_buffer),
        cmocka_unit_test(dump_keeps_the_last_events_and_counts_the_others),
        cmocka_unit_test(dump_names_the_late_sender_and_the_tensor),
        cmocka_unit_test(dump_of_a_split_comm_has_the_opened_ranks),
        cmocka_unit_test(dump_after_a_failure_has_its_text),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
