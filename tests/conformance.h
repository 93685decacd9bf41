/* The suite that every transport passes: the tests of a program, run with their ranks on one transport after another. A new
 * transport is a line in this list. */
#ifndef WEFT_TESTS_CONFORMANCE_H
#define WEFT_TESTS_CONFORMANCE_H
#include <stdio.h>

#include "hosts_meet.h"
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

/* The same on several hosts, for the programs that have a test NAME_hosts: all ranks on hosts of their own, as threads, where a
 * sanitizer sees them, or processes; and on hosts with several ranks. */
static const struct {
    const char *transport, *hosts;
    bool forked;
} conformance_hosts_list[] = {
    {"ucx", NULL, false},
    {"ucx", "abcdefghijklmnop", true},
    {"auto", "aabbccddeeffgghh", true},
    {"auto", "abcabcabcabcabca", true},
};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CONFORMANCE_HOSTS_FROM = 0, CONFORMANCE_HOSTS_ON = 1 };
#else
enum { CONFORMANCE_HOSTS_FROM = 1, CONFORMANCE_HOSTS_ON = sizeof conformance_hosts_list / sizeof *conformance_hosts_list };
#endif

static size_t conformance_row; /* of that list */

static inline bool conformance_on_hosts(void)
{
    return getenv("WEFT_TEST_HOSTS") != NULL;
}

/* Is a test to run on so many ranks here? To connect takes its time: unless all is asked for, each row has its share. */
static inline bool conformance_takes(int ranks)
{
    const char *share = getenv("WEFT_TEST_SHARE");
    return !conformance_on_hosts() || (share && !strcmp(share, "full")) || CONFORMANCE_HOSTS_ON == 1 ||
           (size_t)ranks % 3 == conformance_row % 3;
}

static inline int conformance_hosts(const char *suite, const struct CMUnitTest *tests, size_t n)
{
    const char *file = strrchr(suite, '/');
    int failed = 0;
    if (!hosts_have_wire()) {
        printf("skip: there is no module for UCX\n");
        return 77;
    }
    if (hosts_setup(NULL))
        return 1;
    for (size_t i = CONFORMANCE_HOSTS_FROM; i < CONFORMANCE_HOSTS_ON; i++) {
        conformance_row = i;
        ranks_on = hosts_scheme(conformance_hosts_list[i].transport);
        ranks_forked = conformance_hosts_list[i].forked;
        ranks_hosts = conformance_hosts_list[i].hosts;
        printf("%s on %s, ranks are %s, hosts %s\n", file ? file + 1 : suite, ranks_on,
               ranks_forked ? "processes" : "threads", ranks_hosts ? ranks_hosts : "their own");
        failed += _cmocka_run_group_tests(suite, tests, n, NULL, NULL);
    }
    hosts_teardown(NULL);
    return failed;
}
#define CONFORMANCE_HOSTS(tests) conformance_hosts(__FILE__, tests, sizeof tests / sizeof *tests)
#endif
