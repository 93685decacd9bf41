#define _GNU_SOURCE
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hosts_meet.h"
#include "launched.h"

static const struct {
    const char *transport, *ranks;
    bool forked;
} conformance_list[CONFORMANCE_ALL] = {
    {"threads", "threads", false},
    {"shm", "threads", false}, /* of one process, where a sanitizer sees both sides */
    {"shm", "processes", true},
};

int conformance_run(const char *suite, const struct CMUnitTest *tests, size_t n)
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

/* The same on several hosts (the tests NAME_hosts): all ranks on hosts of their own, as threads, where a sanitizer sees
 * them, or processes; and on hosts with several ranks. */
static const struct {
    const char *transport, *hosts;
    bool forked;
} conformance_hosts_list[] = {
    {"ucx", NULL, false},
    {"ucx", "abcdefghijklmnop", true},
    {"auto", "abababababababab", true},
    {"auto", "abcabcabcabcabca", true},
};
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CONFORMANCE_HOSTS_FROM = 0, CONFORMANCE_HOSTS_ON = 1 };
#else
enum {
    CONFORMANCE_HOSTS_FROM = 1,
    CONFORMANCE_HOSTS_ON = sizeof conformance_hosts_list / sizeof *conformance_hosts_list
};
#endif

size_t conformance_row;

bool conformance_on_mpi(void)
{
    return getenv("WEFT_TEST_LAUNCHED") != NULL;
}

bool conformance_on_hosts(void)
{
    return getenv("WEFT_TEST_HOSTS") != NULL || conformance_on_mpi();
}

bool conformance_takes(int i)
{
    const char *share = getenv("WEFT_TEST_SHARE");
    size_t rows = conformance_on_mpi() ? 2 : CONFORMANCE_HOSTS_ON - CONFORMANCE_HOSTS_FROM;
    return !conformance_on_hosts() || (share && !strcmp(share, "full")) || (size_t)i % rows == conformance_row % rows;
}

int conformance_settle(struct ranks_rank *r)
{
    return conformance_on_hosts() ? weft_comm_barrier(r->comm, WEFT_DEADLINE) : 0;
}

static int conformance_hosts(const char *suite, const struct CMUnitTest *tests, size_t n)
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

/* All processes go through the tests and come to the same end. */
static int conformance_mpi(const char *suite, const struct CMUnitTest *tests, size_t n)
{
    const char *file = strrchr(suite, '/');
    if (launched_begin())
        return 1;
    conformance_row = strstr(getenv("WEFT_TEST_MPI"), "mpich") != NULL;
    ranks_on = "mpi";
    ranks_forked = true;
    printf("%s on mpi:, rank %d of %d processes\n", file ? file + 1 : suite, launched.rank, launched.size);
    int failed = _cmocka_run_group_tests(suite, tests, n, NULL, NULL);
    launched_meet();
    if (failed) /* MPI may not come to an end */
        _exit(1);
    launched.ops->end();
    return 0;
}

int conformance_wide(const char *suite, const struct CMUnitTest *tests, size_t n)
{
    return conformance_on_mpi() ? conformance_mpi(suite, tests, n) : conformance_hosts(suite, tests, n);
}
