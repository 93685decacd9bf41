/* The property campaign, on plans that run in one thread: random pairs of layouts, and the laws of property_laws.h for
 * each. A case that breaks one is made small and shown as the command that runs it again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "property_laws.h"
#include "property_random.h"
#include "property_shrink.h"
#include "share.h"

#define SEED 20240611

/* What the campaign has seen, so that a law is not kept by having nothing to judge. */
static struct {
    int64_t cases, broken, algorithm[16];
} seen;

static void show_broken(property_law *law, struct property_case *c, struct why *why)
{
    char was[4096], is[4096];
    struct text a = text_start(was, sizeof was), b = text_start(is, sizeof is);
    case_text(c, &a);
    shrink(law, c, why);
    case_text(c, &b);
    print_error("case %lld: %s\n  again: %s\n  found as: %s\n", (long long)c->number, why->text, is, was);
}

static void hold(property_law *law, struct property_case c)
{
    struct why why = {""};
    if (law(&c, &why))
        return;
    show_broken(law, &c, &why);
    seen.broken++;
}

static bool takes(const struct property_case *c)
{
    struct lab l;
    struct why why = {""};
    bool ok = lab_layouts(&l, c, case_world(c), &why) && lab_fits(&l, &why);
    lab_close(&l);
    return ok || why.text[0];
}

static void one_case(int64_t number)
{
    struct property_case c;
    random_case(SEED, number, &c);
    c.staged = false;
    seen.cases++;
    c.algorithm = "direct";
    hold(laws_of_lowering, c);
    seen.algorithm[0]++;
    hold(law_return, c);
    hold(law_adjoint, c);
    c.wild = false;
    for (int i = 1; (c.algorithm = weft_algorithm_name(i)); i++)
        if (takes(&c)) {
            hold(laws_of_lowering, c);
            seen.algorithm[i]++;
        }
}

static void campaign(void **state)
{
    (void)state;
    int64_t n = test_share(50000, 1000000);
    for (int64_t i = 0; i < n && !seen.broken; i++)
        one_case(i);
    assert_int_equal(seen.broken, 0);
    print_message("%lld cases;", (long long)seen.cases);
    for (int i = 0; weft_algorithm_name(i); i++) {
        print_message(" %s %lld", weft_algorithm_name(i), (long long)seen.algorithm[i]);
        assert_true(seen.algorithm[i] > n / 500);
    }
    print_message("\n");
}

int main(int argc, char **argv)
{
    if (argc > 2) { /* FROM COUNT: these cases of the campaign, and all that is wrong with them */
        int64_t from = strtoll(argv[1], NULL, 10), n = strtoll(argv[2], NULL, 10);
        for (int64_t i = from; i < from + n; i++)
            one_case(i);
        return seen.broken > 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(campaign)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
