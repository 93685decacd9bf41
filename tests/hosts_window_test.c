/* Windows on comms of several hosts: what they must do on any transport, as in window_test.c. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "hosts_places.h"
#include "share.h"
#include "window_cases.h"
#include "window_ends.h"
#include "window_forms.h"
#include "window_stress.h"

static void cases(void **state)
{
    (void)state;
    static const struct {
        void (*body)(struct ranks_rank *);
        int least, most;
    } all[] = {
        {window_shape, 2, 4},    {window_ping_pong, 2, 5}, {window_add_ends, 2, 3},  {window_compare, 2, 3},
        {window_timeouts, 2, 4}, {window_mismatch, 2, 3},  {window_arguments, 2, 3}, {window_lives, 2, 4},
        {window_gone, 3, 4},     {window_alone, 2, 3},     {window_progress, 2, 3},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        everywhere(all[i].body, all[i].least, all[i].most, NULL, NULL);
}

static void adds(void **state)
{
    (void)state;
    everywhere(window_add, 2, 3, NULL, NULL);
}

static void barriers(void **state)
{
    (void)state;
    int turns = (int)test_share(60, 5000);
    everywhere(window_generations, 2, 6, &turns, NULL);
    everywhere(window_neighbours, 2, 6, &turns, NULL);
    everywhere(window_overlap, 3, 3, &turns, NULL);
}

static void forms(void **state)
{
    (void)state;
    int runs = (int)test_share(20, 1000);
    everywhere(forms_body, 2, 5, &runs, NULL);
}

static void forms_by_thread(void **state)
{
    (void)state;
    int runs = (int)test_share(5, 300);
    everywhere(forms_body, 3, 4, &runs, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
}

static void stress(void **state)
{
    (void)state;
    int64_t ns = test_share(200, 20000) * WINDOW_MS;
    everywhere(stress_body, 2, 6, &ns, NULL);
    everywhere(stress_body, 3, 3, &ns, &(weft_comm_opts){.progress = WEFT_PROGRESS_THREAD});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases),           cmocka_unit_test(adds),
        cmocka_unit_test(barriers),        cmocka_unit_test(forms),
        cmocka_unit_test(forms_by_thread), cmocka_unit_test(stress),
    };
    return cmocka_run_group_tests(tests, hosts_setup, hosts_teardown);
}
