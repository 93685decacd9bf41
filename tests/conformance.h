/* The suite that every transport passes: the tests of a program, run with their ranks on one transport after another. A new
 * transport is a line in this list. */
#ifndef WEFT_TESTS_CONFORMANCE_H
#define WEFT_TESTS_CONFORMANCE_H
#include <stdio.h>

#include "ranks.h"

static const struct {
    const char *transport, *ranks;
    bool forked;
} conformance_list[] = {
    {"threads", "threads", false},
    {"shm", "threads", false}, /* of one process, where a sanitizer sees both sides */
    {"shm", "processes", true},
};

/* Sanitizers look at one process; forks of theirs are slow, and other ranks are threads there already. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CONFORMANCE_FORKS = 0 };
#else
enum { CONFORMANCE_FORKS = 1 };
#endif

/* How many tests failed, over all transports. */
static inline int conformance_run(const char *suite, const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    for (size_t i = 0; i < sizeof conformance_list / sizeof *conformance_list; i++) {
        if (conformance_list[i].forked && !CONFORMANCE_FORKS)
            continue;
        const char *file = strrchr(suite, '/');
        ranks_on = conformance_list[i].transport;
        ranks_forked = conformance_list[i].forked;
        printf("%s on %s, ranks are %s\n", file ? file + 1 : suite, ranks_on, conformance_list[i].ranks);
        failed += _cmocka_run_group_tests(suite, tests, n, NULL, NULL);
    }
    return failed;
}
#define CONFORMANCE_RUN(tests) conformance_run(__FILE__, tests, sizeof tests / sizeof *tests)
#endif
