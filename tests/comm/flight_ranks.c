/* One rank of a job that goes wrong, for flight_test.sh: flight_ranks WHAT. Rank 2 is the one that
 *   stops     stops itself after the first run
 *   dies      ends itself there
 *   idles     makes no call any more
 *   wanders   goes into a barrier while the others run
 *   signal    waits like "idles"; the others wait without a timeout until they get a signal
 *   nothing   all runs complete
 * The others run a reshard once more and wait for as long as WEFT_TEST_MS says, or so long that all have begun to. All
 * say so on stderr when a call fails and stay until descriptor 3, a pipe, is closed at its other end: the first to end
 * would be missed by those that still wait. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft.h"

static int complain(const char *what, int err)
{
    fprintf(stderr, "%s: %s: %s\n", what, weft_strerror(err), weft_errmsg());
    return 1;
}

static void until_told(void)
{
    char byte;
    while (read(3, &byte, 1) > 0) {
    }
}

/* What rank 2 does when the others are in their second run. */
static int go_wrong(weft_comm *c, const char *what, int64_t timeout_ns)
{
    if (!strcmp(what, "stops"))
        raise(SIGSTOP);
    else if (!strcmp(what, "dies"))
        raise(SIGKILL);
    else if (!strcmp(what, "wanders"))
        return weft_comm_barrier(c, timeout_ns);
    else
        until_told();
    return 0;
}

static int work(weft_comm *c, weft_exec *x, const char *what, int64_t timeout_ns)
{
    int err = weft_exec_run(x);
    if (err)
        return err;
    if (!strcmp(what, "nothing"))
        return weft_exec_run(x);
    if (weft_comm_rank(c) == 2)
        return go_wrong(c, what, timeout_ns);
    err = weft_exec_start(x);
    return err ? err : weft_exec_wait(x, strcmp(what, "signal") ? timeout_ns : -1);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "nothing", *ms = getenv("WEFT_TEST_MS");
    int64_t timeout_ns = (ms ? atoll(ms) : 1500) * 1000000;
    weft_layout *rows, *columns;
    weft_plan *plan;
    weft_comm *c;
    weft_exec *x;
    static float a[64 * 64], b[64 * 64];
    weft_view src = WEFT_VIEW(a, sizeof a), dst = WEFT_VIEW(b, sizeof b);
    int err = weft_comm_open(NULL, NULL, &c);
    if (err)
        return complain("open", err);
    if ((err = weft_layout_parse("f32[64/x,64] @x4", &rows)) ||
        (err = weft_layout_parse("f32[64,64/x] @x4", &columns)) ||
        (err = weft_lower(&(weft_move){"weights", rows, columns}, 1, weft_comm_rank(c), NULL, &plan)) ||
        (err = weft_bind(plan, c, &src, &dst, NULL, &x)))
        return complain("bind", err);
    err = work(c, x, what, timeout_ns);
    if (err) {
        complain("run", err);
        until_told();
    }
    _exit(err ? 1 : 0); /* what is in flight will not end: nothing is waited for */
}
