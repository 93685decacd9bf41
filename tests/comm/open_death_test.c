/* A rank that ends while a comm is opened: after all ranks have met at the store, and before it has told them all that
 * they need. The launcher tells the others, by the file of base/ended.h. They give up at once, and not at their
 * deadline. The linker sends the calls of open.c through here. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/ended.h"
#include "rendezvous/store.h"
#include "rendezvous/stores.h"
#include "support/clock.h"
#include "support/processes.h"
#include "support/suite.h"

enum { RANKS = 3 };

/* When this process ends; NULL: it does not. */
static const struct moment {
    const char *what; /* when it is to tell this; the ranks tell each other "wire0" and then "wire1" */
    bool offers;      /* it tells its part, and does not wait for those of the others */
} * last;

/* What came of it on a rank. */
struct end {
    int code;
    int64_t took;
    char text[300];
};

int __real_store_roster(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t timeout_ns,
                        struct roster *out);
int __wrap_store_roster(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t timeout_ns,
                        struct roster *out);
int __wrap_store_roster(struct store *s, const char *prefix, const struct roster_ask *ask, int64_t timeout_ns,
                        struct roster *out)
{
    if (last && !strcmp(prefix, last->what))
        _exit(last->offers ? store_offer(s, prefix, ask->mine, ask->bytes, timeout_ns) : 0);
    return __real_store_roster(s, prefix, ask, timeout_ns, out);
}

static void write_ended(int file, int rank)
{
    struct ended_record r = {.magic = ENDED_MAGIC, .rank = rank, .size = RANKS};
    assert_int_equal(pwrite(file, &r, sizeof r, 0), sizeof r);
}

static void rank_of_job(const char *at, int file, int rank, struct end *e)
{
    char text[64];
    weft_comm *c;
    setenv("WEFT_AT", at, 1);
    setenv("WEFT_TOKEN", TOKEN, 1);
    snprintf(text, sizeof text, "%d", rank);
    setenv("WEFT_RANK", text, 1);
    snprintf(text, sizeof text, "%d", RANKS);
    setenv("WEFT_SIZE", text, 1);
    snprintf(text, sizeof text, "/proc/%ld/fd/%d", (long)getppid(), file);
    setenv("WEFT_ENDED", text, 1);
    int64_t began = clock_now();
    e->code = process_open("tcp:early", rank, RANKS, LONG, &c);
    e->took = clock_now() - began;
    snprintf(e->text, sizeof e->text, "%s", weft_errmsg());
}

static void end_early(enum stores_kind kind, int victim, const struct moment *when)
{
    struct end *ends = ranks_shared(RANKS * sizeof *ends);
    struct stores_place place;
    pid_t pids[RANKS];
    char how[PROCESS_END], wanted[64];
    int file = memfd_create("ended", MFD_CLOEXEC);
    assert_true(file >= 0);
    write_ended(file, -1);
    stores_begin(&place, kind);
    for (int r = 0; r < RANKS; r++) {
        pids[r] = process_fork(3 * LONG / SECOND);
        if (pids[r] == 0) {
            last = r == victim ? when : NULL;
            rank_of_job(place.url, file, r, &ends[r]);
            _exit(0);
        }
    }
    assert_string_equal(process_end(pids[victim], how), "");
    write_ended(file, victim);
    /* A rank that the victim has overtaken may look at the file when it still waits for the store. */
    snprintf(wanted, sizeof wanted, "rank %d ended with code 0 before all ranks had opened the ", victim);
    for (int r = 0; r < RANKS; r++) {
        if (r == victim)
            continue;
        assert_string_equal(process_end(pids[r], how), "");
        if (ends[r].code != WEFT_EPEER || !strstr(ends[r].text, wanted) || ends[r].took > LONG / 3)
            fail_msg("%s: rank %d ended when it was to tell %s: rank %d got %d after %lld ms: %s", place.url, victim,
                     when->what, r, ends[r].code, (long long)(ends[r].took / MS), ends[r].text);
    }
    close(file);
    munmap(ends, RANKS * sizeof *ends);
    stores_end(&place);
}

static void rank_that_ends_while_it_opens_is_named_at_once(void **state)
{
    static const struct moment moments[] = {{"wire0", false}, {"wire0", true}, {"wire1", false}};
    (void)state;
    for (int kind = STORES_FILE; kind <= STORES_SERVED; kind++)
        for (size_t i = 0; i < sizeof moments / sizeof *moments; i++)
            for (int victim = 0; victim < RANKS && (kind == STORES_FILE || stores_sodium()); victim += 2)
                end_early((enum stores_kind)kind, victim, &moments[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rank_that_ends_while_it_opens_is_named_at_once)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests));
}
