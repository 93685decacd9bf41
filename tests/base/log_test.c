/* The log: silent unless it is asked, levels, one thread at a time, and what a comm tells about. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "support/suite.h"

struct seen {
    char events[400]; /* names, each with a space behind it */
    int n, inside, nested;
    enum weft_log_level least;
};

static void note(void *arg, const weft_log_record *r)
{
    struct seen *s = arg;
    assert_int_equal(r->size, sizeof *r);
    assert_int_equal(s->inside++, 0);
    assert_true(r->text && *r->text && r->comm && r->event);
    strncat(s->events, r->event, sizeof s->events - strlen(s->events) - 1);
    strncat(s->events, " ", sizeof s->events - strlen(s->events) - 1);
    s->n++;
    s->least = r->level > s->least ? r->level : s->least;
    s->nested = weft_log(WEFT_LOG_INFO, note, arg);
    log_write(WEFT_LOG_ERROR, "nested", NULL, -1, "what the function does is not logged");
    s->inside--;
}

static void use_comm(void)
{
    weft_comm *c;
    weft_layout *l;
    weft_plan *p;
    weft_exec *x;
    float a[4] = {1}, b[4] = {2};
    weft_view src = WEFT_VIEW(a, sizeof a), dst = WEFT_VIEW(b, sizeof b);
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_int_equal(weft_layout_parse("f32[4] @x1", &l), 0);
    assert_int_equal(weft_lower(&(weft_move){"w", l, l}, 1, 0, NULL, &p), 0);
    assert_int_equal(weft_bind(p, c, &src, &dst, NULL, &x), 0);
    assert_int_equal(weft_exec_run(x), 0);
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(l);
    weft_comm_close(c);
}

static void a_comm_tells_the_log_what_happens_to_it_but_not_its_runs(void **state)
{
    (void)state;
    struct seen s = {.n = 0};
    assert_int_equal(weft_log(WEFT_LOG_INFO, note, &s), 0);
    use_comm();
    assert_string_equal(s.events, "opened bound freed closed ");
    assert_int_equal(s.nested, WEFT_EBUSY);
    assert_int_equal(weft_log(0, NULL, NULL), 0);
    use_comm();
    assert_int_equal(s.n, 4);
}

static void a_level_leaves_out_what_is_less_important(void **state)
{
    (void)state;
    struct seen s = {.n = 0};
    assert_int_equal(weft_log(WEFT_LOG_WARNING, note, &s), 0);
    use_comm();
    assert_int_equal(s.n, 0);
    error_set(WEFT_EINVAL, "the text of the caller");
    log_write(WEFT_LOG_ERROR, "failed", "shm:x", 3, "%d", 7);
    log_write(WEFT_LOG_WARNING, "timeout", NULL, -1, "late");
    log_write(WEFT_LOG_INFO, "opened", NULL, -1, "not this");
    assert_string_equal(s.events, "failed timeout ");
    assert_string_equal(weft_errmsg(), "the text of the caller");
    assert_int_equal(weft_log((enum weft_log_level)9, note, &s), WEFT_EINVAL);
    assert_int_equal(weft_log(WEFT_LOG_WARNING, NULL, NULL), 0);
    log_write(WEFT_LOG_ERROR, "failed", NULL, -1, "nobody listens");
    assert_int_equal(s.n, 2);
}

/* While one thread logs, another one takes the log away and gives it back. */
#define ROUNDS 300

static void *logs(void *arg)
{
    atomic_bool *stop = arg;
    while (!atomic_load_explicit(stop, memory_order_relaxed))
        log_write(WEFT_LOG_ERROR, "failed", NULL, -1, "again");
    return NULL;
}

static void when_the_log_is_taken_away_no_thread_is_in_the_function(void **state)
{
    (void)state;
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, logs, &stop), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct seen s = {.n = 0};
        assert_int_equal(weft_log(WEFT_LOG_ERROR, note, &s), 0);
        log_write(WEFT_LOG_ERROR, "failed", NULL, -1, "at least this one");
        assert_int_equal(weft_log(0, NULL, NULL), 0);
        assert_int_equal(s.inside, 0);
        assert_true(s.n >= 1);
        memset(&s, 0xff, sizeof s);
    }
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_comm_tells_the_log_what_happens_to_it_but_not_its_runs),
        cmocka_unit_test(a_level_leaves_out_what_is_less_important),
        cmocka_unit_test(when_the_log_is_taken_away_no_thread_is_in_the_function),
    };
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
