/* A thousand jobs that watch a directory in which ten versions are kept: what the server needs, and how long a commit
 * takes to reach all of them. The server is a process of its own; one thread plays all jobs. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/open_files.h"
#include "bus/bus_server.h"
#include "bus/directory.h"
#include "directories.h"
#include "rendezvous/address.h"
#include "rendezvous/sodium.h"
#include "support/processes.h"
#include "weft.h"

enum { JOBS = 1000, KEPT = 10, RECORD = 60000, ROUNDS = 12 };
#define WITHIN (50 * MS)
#define MOST_KIB (256 * 1024)

static struct directory_watch *watches[JOBS];
static struct directory *jobs[JOBS];

/* In KiB; 0: not known. */
static long peak_memory(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "VmHWM: %ld kB", &kib);
    if (f)
        fclose(f);
    return kib;
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* A version as a publisher commits it: its record, the latest one's number, and the one that goes. Then every job takes
 * what its watch tells: that the latest version is this one. */
static int64_t commit(struct directory *pub, int version)
{
    static char record[RECORD];
    char made[32], gone[32], number[16];
    struct directory_outcome o;
    struct directory_items got;
    snprintf(made, sizeof made, "set/versions/%d", version);
    snprintf(gone, sizeof gone, "set/versions/%d", version - KEPT);
    snprintf(number, sizeof number, "%d", version);
    struct directory_change changes[] = {{.key = made, .value = record, .bytes = sizeof record},
                                         {.key = "set/latest", .value = number, .bytes = strlen(number) + 1},
                                         {.key = gone, .erase = true}};
    for (int i = 0; i < JOBS; i++) /* all have asked */
        assert_int_equal(directory_next(watches[i], 0, &got), WEFT_ETIMEOUT);
    int64_t began = clock_now();
    fine(directory_transact(pub, &(struct directory_transaction){NULL, 0, changes, 3}, LONG, &o));
    for (int i = 0; i < JOBS; i++) {
        fine(directory_next(watches[i], LONG, &got));
        assert_true(got.n == 1 && !strcmp((const char *)got.items[0].value, number));
        directory_items_free(&got);
    }
    return clock_now() - began;
}

static void thousand(void **state)
{
    (void)state;
    struct address at = {.host = "127.0.0.1"};
    struct bus_server *server;
    struct directory *pub;
    struct directory_items got;
    char url[64];
    int fd, status;
    int64_t took[ROUNDS], lease;
    size_t need;
    if (!sodium_find() || !open_files_allow_more(3 * JOBS, &need)) {
        printf("skip: libsodium is not installed, or a process may not have %d files open\n", 3 * JOBS);
        skip();
    }
    fine(address_listen(&at, &fd));
    snprintf(url, sizeof url, "tcp:127.0.0.1:%d", at.port);
    pid_t pid = process_fork(0);
    if (!pid) {
        if (bus_server_start(fd, &(struct bus_server_opts){.publish_token = PUBLISH_TOKEN, .read_token = READ_TOKEN},
                             &server))
            _exit(1);
        for (;;)
            pause();
    }
    close(fd);
    fine(directory_open(url, &(struct directory_opts){PUBLISH_TOKEN, LONG}, &pub));
    for (int i = 0; i < JOBS; i++) { /* each job has a record with a lease of its own */
        char key[32];
        struct directory_outcome o;
        fine(directory_open(url, &(struct directory_opts){READ_TOKEN, LONG}, &jobs[i]));
        fine(directory_grant(jobs[i], 3600 * SECOND, LONG, &lease));
        snprintf(key, sizeof key, "set/readers/%d", i);
        fine(directory_put_if(jobs[i], key, 0, "a job of some host", 18, lease, LONG, &o));
    }
    fine(directory_get(pub, "", LONG, &got));
    for (int i = 0; i < JOBS; i++)
        fine(directory_watch(jobs[i], "set/latest", got.revision, &watches[i]));
    assert_int_equal(got.n, JOBS);
    directory_items_free(&got);
    for (int i = 0; i < KEPT; i++)
        commit(pub, i);
    for (int i = 0; i < ROUNDS; i++)
        took[i] = commit(pub, KEPT + i);
    qsort(took, ROUNDS, sizeof *took, ascending);
    long kib = peak_memory(pid);
    printf(
        "%d jobs, %d versions of %d bytes: the server needs %ld KiB; a commit reaches all in %.1f ms (median), %.1f ms "
        "(fastest), %.1f ms (slowest)\n",
        JOBS, KEPT, RECORD, kib, (double)took[ROUNDS / 2] / MS, (double)took[0] / MS, (double)took[ROUNDS - 1] / MS);
    assert_true(kib < MOST_KIB);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(took[0] < WITHIN); /* other programs on this machine may slow down most of the rounds */
#endif
    fine(directory_get(pub, "set/versions/", LONG, &got));
    assert_int_equal(got.n, KEPT);
    directory_items_free(&got);
    for (int i = 0; i < JOBS; i++) {
        directory_unwatch(watches[i]);
        directory_close(jobs[i]);
    }
    directories_await(pub, "set/readers/0", NULL);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    directory_close(pub);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(thousand)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
