/* The suite that every transport passes: the tests of a program, run with their ranks on one transport after another. A new
 * transport is a line in this list. */
#ifndef WEFT_TESTS_CONFORMANCE_H
#define WEFT_TESTS_CONFORMANCE_H
#include <stdio.h>

#include "ranks.h"

static const char *const conformance_transports[] = {"threads", "shm"};

/* How many tests failed, over all transports. */
static inline int conformance_run(const char *suite, const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof conformance_transports / sizeof *conformance_transports; i++) {
        char name[80];
        ranks_on = conformance_transports[i];
        snprintf(name, sizeof name, "%s on %s", suite, ranks_on);
        failed += _cmocka_run_group_tests(name, tests, n, NULL, NULL);
    }
    return failed;
}
#define CONFORMANCE_RUN(tests) conformance_run(__FILE__, tests, sizeof tests / sizeof *tests)
#endif
