/* A rank of faults.sh, started with WEFT_RANK, WEFT_SIZE, WEFT_HOST and so on, or by a launcher of MPI: fault_ranks
 * FOLDER WHAT runs     all gather from all, again and again, and check what they get, until the file FOLDER/last is
 * there idles    after three runs all go into a barrier, but for the ranks of the last host, which sleep outside weft
 *   differs  the last rank binds another plan than the others
 *   brief    five runs
 * When three runs are done the file FOLDER/ready.RANK appears, with the process's number; if it is removed, it appears
 * again after the next run. When all is over there is FOLDER/out.RANK, one line: the code, since when it is known (ms
 * since 1970), and the text. After a failure the survivors open a comm again, and FOLDER/again.RANK says what came of
 * it: "right" and who they are. Ranks of "differs" and "brief" do not. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"

#define EACH (1 << 18) /* elements that a rank gives */
#define MOST 16
#define WRONG (-1000) /* data that is not what it should be */

static const char *folder;
static char why[1024]; /* of the first failure */
static long long failed_at;
static int32_t mine[EACH], all[MOST * EACH];

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (long long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Before anything is freed, which takes its time after a failure and may fail, too. */
static int note(int err)
{
    if (err && !failed_at) {
        failed_at = now_ms();
        snprintf(why, sizeof why, "%s", err == WRONG ? "what came is not right" : weft_errmsg());
    }
    return err;
}

/* The file appears whole. */
static void tell(const char *what, int rank, const char *text)
{
    char name[512], part[520];
    snprintf(name, sizeof name, "%s/%s.%d", folder, what, rank);
    snprintf(part, sizeof part, "%s.part", name);
    FILE *f = fopen(part, "w");
    if (f && fprintf(f, "%s\n", text) > 0 && !fclose(f))
        rename(part, name);
}

static bool there(const char *what)
{
    char name[512];
    snprintf(name, sizeof name, "%s/%s", folder, what);
    return !access(name, F_OK);
}

static int bind_all(weft_comm *c, bool differs, weft_plan **plan, weft_exec **exec)
{
    int n = weft_comm_size(c);
    char from[64], to[64];
    weft_layout *src = NULL, *dst = NULL;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts o = {.size = sizeof o, .machine = &machine};
    snprintf(from, sizeof from, "i32[%d/x] @x%d", n * EACH, n);
    snprintf(to, sizeof to, "i32[%d] @x%d", n * EACH, n);
    int err = weft_layout_parse(from, &src);
    if (!err)
        err = weft_layout_parse(to, &dst);
    if (!err)
        err = weft_comm_machine(c, &machine);
    if (!err)
        err = weft_lower(&(weft_move){differs ? "other" : "v", src, dst}, 1, weft_comm_rank(c), &o, plan);
    weft_view in = WEFT_VIEW(mine, sizeof mine), out = WEFT_VIEW(all, (size_t)n * sizeof mine);
    if (!err)
        err = weft_bind(*plan, c, &in, &out, NULL, exec);
    weft_layout_free(src);
    weft_layout_free(dst);
    return err;
}

/* The first element of rank 0 says whether this is the last run. */
static int run_once(weft_comm *c, weft_exec *exec, int turn, bool last)
{
    int n = weft_comm_size(c), me = weft_comm_rank(c);
    for (int i = 0; i < EACH; i++)
        mine[i] = 1000003 * turn + 101 * me + i;
    mine[0] = last;
    int err = weft_exec_run(exec);
    for (int r = 0; r < n && !err; r++)
        for (int i = 1; i < EACH && !err; i++)
            if (all[r * EACH + i] != 1000003 * turn + 101 * r + i)
                err = WRONG;
    return err;
}

/* Runs until it is told to stop: `most` runs, or the file "last" is there. */
static int run_all(weft_comm *c, int most, bool signs)
{
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    int err = bind_all(c, false, &plan, &exec);
    bool last = false;
    for (int turn = 0; !err && !last; turn++) {
        err = run_once(c, exec, turn, turn + 1 == most || (signs && there("last")));
        last = all[0];
        char pid[32], ready[32];
        snprintf(ready, sizeof ready, "ready.%d", weft_comm_rank(c));
        if (signs && turn >= 2 && !err && !there(ready)) {
            snprintf(pid, sizeof pid, "%ld", (long)getpid());
            tell("ready", weft_comm_rank(c), pid);
        }
    }
    note(err);
    weft_exec_close(exec);
    weft_plan_free(plan);
    return err;
}

static int idle(weft_comm *c)
{
    const char *host = getenv("WEFT_HOST"), *sleeps = getenv("SLEEPS");
    int err = run_all(c, 3, true);
    if (!err && host && sleeps && !strcmp(host, sleeps))
        pause();
    return err ? err : note(weft_comm_barrier(c, WEFT_DEADLINE));
}

static int differ(weft_comm *c)
{
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    int err = bind_all(c, weft_comm_rank(c) == weft_comm_size(c) - 1, &plan, &exec);
    note(err);
    weft_plan_free(plan);
    weft_exec_close(exec);
    return err;
}

static void go_on(weft_comm *c, int rank)
{
    weft_comm *again = NULL;
    int list[MOST];
    size_t n = 0;
    char text[1200];
    int err = weft_comm_survivors(c, list, MOST, &n);
    if (!err)
        err = weft_comm_reopen(c, list, n, &again);
    if (!err)
        err = run_all(again, 5, false);
    int at = snprintf(text, sizeof text, "%s", err ? weft_errmsg() : "right");
    for (size_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, " %d", list[i]);
    tell("again", rank, text);
    weft_comm_close(again);
}

/* With TOGETHER=1 the process ends only when all ranks have said what came of it. Played hosts share a kernel, so a
 * rank would otherwise see that the process of a rank beyond the broken link has ended, and rightly go on without
 * it. */
static void stay(int n)
{
    if (!getenv("TOGETHER"))
        return;
    for (int r = 0; r < n; r++) {
        char name[32];
        snprintf(name, sizeof name, "again.%d", r);
        while (!there(name))
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

int main(int argc, char **argv)
{
    weft_comm *c = NULL;
    char text[1200];
    if (argc < 3)
        return 2;
    folder = argv[1];
    int err = note(weft_comm_open(NULL, NULL, &c));
    int rank = !err ? weft_comm_rank(c) : getenv("WEFT_RANK") ? atoi(getenv("WEFT_RANK")) : MOST;
    bool opened = !err, goes_on = false;
    if (!strcmp(argv[2], "runs") || !strcmp(argv[2], "idles")) {
        goes_on = true;
        if (!err)
            err = argv[2][0] == 'r' ? run_all(c, -1, true) : idle(c);
    } else if (!err) {
        err = argv[2][0] == 'd' ? differ(c) : run_all(c, 5, false);
    }
    snprintf(text, sizeof text, "%d %lld %s", err, failed_at, why);
    if (err && err != WRONG && opened && goes_on) {
        go_on(c, rank);
        stay(weft_comm_size(c));
    }
    tell("out", rank, text);
    weft_comm_close(c);
    return 0;
}
