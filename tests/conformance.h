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

/* Sanitizers look at one process, and forks of theirs are slow. TSan tells threads' accesses apart by address, and with shm
 * each rank sees the shared words at another one. */
#if defined(__SANITIZE_THREAD__)
enum { CONFORMANCE_ON = 1 };
#elif defined(__SANITIZE_ADDRESS__)
enum { CONFORMANCE_ON = 2 };
#else
enum { CONFORMANCE_ON = sizeof conformance_list / sizeof *conformance_list };
#endif

/* How many tests failed, over all transports. */
static inline int conformance_run(const char *suite, const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    for (size_t i = 0; i < CONFORMANCE_ON; i++) {
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
