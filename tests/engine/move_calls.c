/* Moves of 8 bytes between two processes, in lock step, for callgrind to count what each call costs:
 * instructions_test.sh runs it. Callgrind counts inside the calls of weft_exec_start and weft_exec_test alone and
 * writes a file after each; what they were stands in DIR/RANK.PID, one line a file. The first is of no call at all;
 * lines of rounds that count, when all is warm, end with "counts".  move_calls DIR */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weft.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else /* then there is nothing to count with, and the script says so */
#define CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_DUMP_STATS
#define WITHOUT_VALGRIND
#endif

#define ROUNDS 12
#define COUNTED 4 /* of them, the last */

static const struct {
    const char *name, *src, *dst;
    bool window;
} moves[] = {
    {"move", "f64[1] @x1=0", "f64[1] @x1=1", true},
    {"private-move", "f64[1] @x1=0", "f64[1] @x1=1", false},
    {"swap", "f64[2/x] @x2", "f64[2/x] @x2=1,0", true},
};

static int rank, other; /* the socket to the other rank */
static FILE *words;

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, weft_errmsg());
    _exit(1);
}

/* The two take turns; a token is how many of them have finished. */
static char take_turn(void)
{
    char token;
    if (read(other, &token, 1) != 1)
        give_up("the other rank ended");
    return token;
}

static void pass_turn(char token)
{
    if (write(other, &token, 1) != 1)
        give_up("the other rank ended");
}

#define COUNT(what)               \
    do {                          \
        CALLGRIND_TOGGLE_COLLECT; \
        what;                     \
        CALLGRIND_TOGGLE_COLLECT; \
        CALLGRIND_DUMP_STATS;     \
    } while (0)

static void round_of(weft_exec *x, const char *name, bool counts)
{
    const char *end = counts ? " counts" : "";
    if (rank == 1)
        take_turn();
    int err;
    COUNT(err = weft_exec_start(x));
    if (err)
        give_up("start");
    fprintf(words, "%s start%s\n", name, end);
    pass_turn(0);
    for (bool done = false;;) {
        char finished = take_turn();
        if (finished == 2)
            return;
        if (!done) {
            COUNT(err = weft_exec_test(x, &done));
            if (err)
                give_up("test");
            fprintf(words, "%s %s%s\n", name, done ? "complete" : "vain", end);
            finished = (char)(finished + done);
        }
        pass_turn(finished);
        if (finished == 2)
            return;
    }
}

static void *memory_for(weft_comm *c, bool window)
{
    void *memory = NULL;
    if (!window)
        return calloc(1, 8);
    return weft_comm_alloc(c, 8, WEFT_MEMORY_HOST, 0, &memory) ? NULL : memory;
}

static void measure(weft_comm *c, size_t m)
{
    weft_layout *src, *dst;
    weft_plan *p;
    weft_exec *x;
    weft_local a, b;
    weft_lower_opts o = {.size = sizeof o, .world = 2};
    if (weft_layout_parse(moves[m].src, &src) || weft_layout_parse(moves[m].dst, &dst) ||
        weft_lower(&(weft_move){"w", src, dst}, 1, rank, &o, &p) || weft_layout_local(src, rank, &a) ||
        weft_layout_local(dst, rank, &b))
        give_up(moves[m].name);
    double *in = memory_for(c, moves[m].window), *out = memory_for(c, moves[m].window);
    if (!in || !out ||
        weft_bind(p, c, &(weft_view){.data = in, .bytes = (size_t)a.bytes},
                  &(weft_view){.data = out, .bytes = (size_t)b.bytes}, NULL, &x))
        give_up(moves[m].name);
    for (int r = 0; r < ROUNDS; r++) {
        *in = 100 * r + rank;
        round_of(x, moves[m].name, r >= ROUNDS - COUNTED);
        if (b.count && *out != 100 * r + 1 - rank)
            give_up("the wrong number came");
    }
    weft_exec_close(x);
    weft_plan_free(p);
    weft_layout_free(src);
    weft_layout_free(dst);
}

static int run_rank(const char *dir, const char *url)
{
    char path[4096];
    weft_comm *c;
    weft_comm_opts o = {.size = sizeof o, .rank = rank, .ranks = 2};
    snprintf(path, sizeof path, "%s/%d.%ld", dir, rank, (long)getpid());
    words = fopen(path, "w");
    if (!words || weft_comm_open(url, &o, &c))
        give_up(url);
    COUNT((void)0);
    fprintf(words, "nothing nothing counts\n");
    for (size_t m = 0; m < sizeof moves / sizeof *moves; m++)
        measure(c, m);
    weft_comm_close(c);
    return fclose(words) ? 1 : 0;
}

int main(int argc, char **argv)
{
    int pair[2], status = 0;
    char url[64];
#ifdef WITHOUT_VALGRIND
    return 77;
#endif
    if (argc != 2 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return 2;
    snprintf(url, sizeof url, "shm:calls-%ld", (long)getpid());
    pid_t pid = fork();
    if (pid < 0)
        return 2;
    rank = pid == 0;
    other = pair[rank];
    close(pair[1 - rank]);
    if (rank == 1)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = run_rank(argv[1], url);
    if (rank == 0)
        waitpid(pid, &status, 0);
    return code || status ? 1 : 0;
}
