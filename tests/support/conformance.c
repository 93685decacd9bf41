#define _GNU_SOURCE
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

/* ---- places: one host, several hosts by each wire, ranks that a launcher of MPI started ---- */

static const char *const conformance_wires[] = {"tcp", "ucx"}, *const conformance_mpis[] = {"openmpi", "mpich"};
enum { WIRES = 2, MPIS = 2, HOSTS_ROWS = CONFORMANCE_HOSTS_ON - CONFORMANCE_HOSTS_FROM };

static const char *one_host_name(size_t i)
{
    static char name[40];
    if (i >= CONFORMANCE_ON)
        return NULL;
    snprintf(name, sizeof name, "%s%s%s", conformance_list[i].transport,
             strcmp(conformance_list[i].transport, conformance_list[i].ranks) ? ":" : "",
             strcmp(conformance_list[i].transport, conformance_list[i].ranks) ? conformance_list[i].ranks : "");
    return name;
}

static bool one_host_usual(size_t i)
{
    (void)i;
    return !conformance_on_hosts();
}

static int one_host_enter(size_t i)
{
    ranks_on = conformance_list[i].transport;
    ranks_forked = conformance_list[i].forked;
    ranks_hosts = NULL;
    return unsetenv("WEFT_TEST_HOSTS");
}

static const char *hosts_name(size_t i)
{
    static char name[40];
    size_t row = CONFORMANCE_HOSTS_FROM + i % HOSTS_ROWS;
    static const char *const rows[] = {"threads", "processes", "auto:2hosts", "auto:3hosts"};
    if (i >= WIRES * HOSTS_ROWS + MPIS)
        return NULL;
    if (i >= WIRES * HOSTS_ROWS)
        snprintf(name, sizeof name, "mpi:%s", conformance_mpis[i - WIRES * HOSTS_ROWS]);
    else
        snprintf(name, sizeof name, "%s:%s", conformance_wires[i / HOSTS_ROWS], rows[row]);
    return name;
}

static bool hosts_usual(size_t i)
{
    const char *mpi = getenv("WEFT_TEST_MPI");
    if (i >= WIRES * HOSTS_ROWS)
        return conformance_on_mpi() && mpi && strstr(mpi, conformance_mpis[i - WIRES * HOSTS_ROWS]);
    return !conformance_on_mpi() && conformance_on_hosts() && !strcmp(conformance_wires[i / HOSTS_ROWS], hosts_wire());
}

static int hosts_enter(size_t i)
{
    if (i >= WIRES * HOSTS_ROWS) { /* all processes go through the tests and come to the same end */
        conformance_row = i - WIRES * HOSTS_ROWS;
        ranks_on = "mpi";
        ranks_forked = true;
        return launched.size ? 0 : launched_begin();
    }
    setenv("WEFT_TEST_HOSTS", "1", 1);
    setenv("WEFT_WIRE", conformance_wires[i / HOSTS_ROWS], 1);
    if (!hosts_have_wire()) {
        printf("skip: there is no module for UCX\n");
        return SUITE_SKIP;
    }
    conformance_row = CONFORMANCE_HOSTS_FROM + i % HOSTS_ROWS;
    ranks_on = hosts_scheme(conformance_hosts_list[conformance_row].transport);
    ranks_forked = conformance_hosts_list[conformance_row].forked;
    ranks_hosts = conformance_hosts_list[conformance_row].hosts;
    return hosts_setup(NULL);
}

static void hosts_leave(size_t i, bool failed)
{
    if (i < WIRES * HOSTS_ROWS) {
        hosts_teardown(NULL);
        return;
    }
    launched_meet();
    fflush(NULL);
    if (failed) /* MPI may not come to an end */
        _exit(1);
    launched.ops->end();
}

/* The launcher starts the program 16 times, with the same tests. */
static int hosts_elsewhere(size_t i, const char *program, const struct CMUnitTest *tests, size_t n)
{
    if (i < WIRES * HOSTS_ROWS || conformance_on_mpi())
        return -1;
    const char **words = calloc(n + 6, sizeof *words);
    char name[100];
    int status = -1;
    snprintf(name, sizeof name, "%.*s", (int)(strlen(program) - strlen("_test")), program);
    words[0] = "bash";
    words[1] = WEFT_SOURCE_DIR "/tests/system/conformance_mpi.sh";
    words[2] = conformance_mpis[i - WIRES * HOSTS_ROWS];
    words[3] = name;
    words[4] = "--";
    for (size_t t = 0; t < n; t++)
        words[5 + t] = tests[t].name;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execvp(words[0], (char **)(uintptr_t)words);
        _exit(1);
    }
    if (pid > 0)
        waitpid(pid, &status, 0);
    free(words);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static const char *everywhere_name(size_t i)
{
    return i < CONFORMANCE_ON ? one_host_name(i) : hosts_name(i - CONFORMANCE_ON);
}

static bool everywhere_usual(size_t i)
{
    return i < CONFORMANCE_ON ? one_host_usual(i) : hosts_usual(i - CONFORMANCE_ON);
}

static int everywhere_enter(size_t i)
{
    return i < CONFORMANCE_ON ? one_host_enter(i) : hosts_enter(i - CONFORMANCE_ON);
}

static void everywhere_leave(size_t i, bool failed)
{
    if (i >= CONFORMANCE_ON)
        hosts_leave(i - CONFORMANCE_ON, failed);
}

static int everywhere_elsewhere(size_t i, const char *program, const struct CMUnitTest *tests, size_t n)
{
    return i < CONFORMANCE_ON ? -1 : hosts_elsewhere(i - CONFORMANCE_ON, program, tests, n);
}

static const char *alone_name(size_t i)
{
    return i == 0 ? "alone" : NULL;
}

static int alone_enter(size_t i)
{
    (void)i;
    return 0;
}

const struct suite_places conformance_one_host = {one_host_name, one_host_usual, one_host_enter, NULL, NULL};
const struct suite_places conformance_hosts = {hosts_name, hosts_usual, hosts_enter, hosts_leave, hosts_elsewhere};
const struct suite_places conformance_everywhere = {everywhere_name, everywhere_usual, everywhere_enter,
                                                    everywhere_leave, everywhere_elsewhere};
const struct suite_places conformance_alone = {alone_name, one_host_usual, alone_enter, NULL, NULL};
