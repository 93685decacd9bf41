/* Windows on threads: the cases that every transport runs, the collectives of tests/cases/windows.txt written on windows
 * alone, and a stress of the signals and barriers. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "share.h"
#include "window_cases.h"
#include "window_forms.h"
#include "window_stress.h"

static void cases(void **state)
{
    (void)state;
    static const struct {
        void (*body)(struct ranks_rank *);
        int least, most;
    } all[] = {
        {window_shape, 1, 4},   {window_ping_pong, 1, 5}, {window_add, 1, 4},      {window_add_ends, 2, 3},
        {window_compare, 2, 4}, {window_timeouts, 2, 4},  {window_mismatch, 2, 3}, {window_arguments, 2, 3},
        {window_lives, 1, 4},   {window_gone, 3, 4},      {window_alone, 1, 3},    {window_progress, 2, 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int n = all[i].least; n <= all[i].most; n++) {
            ranks_run(n, NULL, all[i].body, NULL, NULL);
            ranks_run(n, &(weft_comm_opts){.staged = true, .channel_buckets = 1}, all[i].body, NULL, NULL);
        }
}

static void barriers(void **state)
{
    (void)state;
    int turns = (int)test_share(10000, 10000), fewer = turns / 4;
    ranks_run(2, NULL, window_generations, &turns, NULL);
    ranks_run(3, NULL, window_generations, &turns, NULL);
    ranks_run(8, NULL, window_generations, &fewer, NULL);
    ranks_run(2, NULL, window_neighbours, &turns, NULL);
    ranks_run(5, NULL, window_neighbours, &fewer, NULL);
    ranks_run(3, NULL, window_overlap, &fewer, NULL);
}

static void forms(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 5, 8};
    int runs = (int)test_share(1000, 1000);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        ranks_run(sizes[k], NULL, forms_body, &runs, NULL);
    runs = runs > 1000 ? runs : 1000;
    ranks_run(3, NULL, window_overlap, &runs, NULL);
}

static void stress(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 6};
    int64_t ns = test_share(3000, 60000) * WINDOW_MS / 3;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        struct ranks_rank left[RANKS_MAX];
        ranks_run(sizes[k], NULL, stress_body, &ns, left);
        printf("%d ranks: %d rounds of 16\n", sizes[k], left[0].code);
        assert_true(left[0].code > 0);
    }
}

/* ---- threads alone: what a callback may do ---- */

struct from_callback {
    weft_window *w;
    int notify, wait, barrier, with, create;
};

static void callback(void *arg, int err)
{
    struct from_callback *f = arg;
    weft_window *w = f->w;
    int other = 0;
    (void)err;
    f->wait = weft_window_wait(w, 0, WEFT_EQ, 0, 0);
    f->barrier = weft_window_barrier(w, 0);
    f->with = weft_window_barrier_with(w, &other, 1, 0);
    f->notify = weft_window_notify(w, 0, 0, WEFT_NOTIFY_ADD, 1);
}

static void in_callback(void **state)
{
    (void)state;
    weft_comm *c;
    weft_layout *l;
    weft_plan *p;
    weft_exec *x;
    float in[4] = {0}, out[4];
    struct from_callback f = {0};
    assert_int_equal(weft_comm_open("self:", NULL, &c), 0);
    assert_int_equal(weft_layout_parse("f32[4] @x1", &l), 0);
    assert_int_equal(weft_lower(&(weft_move){"a", l, l}, 1, 0, NULL, &p), 0);
    assert_int_equal(weft_bind(p, c, &(weft_view){in, sizeof in, NULL}, &(weft_view){out, sizeof out, NULL}, NULL, &x),
                     0);
    assert_int_equal(weft_window_create(c, NULL, 0, 1, &f.w), 0);
    weft_exec_notify(x, callback, &f);
    assert_int_equal(weft_exec_start(x), 0);
    /* The callback runs inside this wait and ends it. */
    assert_int_equal(weft_window_wait(f.w, 0, WEFT_EQ, 1, -1), 0);
    assert_int_equal(f.wait, WEFT_EBUSY);
    assert_int_equal(f.barrier, WEFT_EBUSY);
    assert_int_equal(f.with, WEFT_EBUSY);
    assert_int_equal(f.notify, 0);
    weft_exec_free(x);
    weft_window_free(f.w);
    weft_plan_free(p);
    weft_layout_free(l);
    weft_comm_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases),  cmocka_unit_test(barriers),    cmocka_unit_test(forms),
        cmocka_unit_test(stress), cmocka_unit_test(in_callback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
