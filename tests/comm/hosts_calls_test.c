/* Calls on comms of several hosts whose order matters: leaving right after a barrier or a run, binding again while
 * other execs live. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/ranks.h"
#include "support/suite.h"

#define MOST 4

struct scene {
    char url[64];
    int ranks;
    _Atomic int stage;
    char text[MOST][700];
    int code[MOST];
};

static void come_to(struct scene *s, int stage)
{
    atomic_store(&s->stage, stage);
}

/* False: it has taken too long, which the assertions tell. */
static bool wait_for(struct scene *s, int stage)
{
    for (int64_t until = clock_now() + 50 * SECOND; atomic_load(&s->stage) < stage;) {
        if (clock_now() > until)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return true;
}

/* hosts: a letter for each rank */
static void play(const char *scheme, const char *hosts, int (*f)(weft_comm *, struct scene *))
{
    static int number;
    int ranks = (int)strlen(hosts);
    struct scene *s = ranks_shared(sizeof *s);
    pid_t pids[MOST];
    hosts_need_wire();
    s->ranks = ranks;
    snprintf(s->url, sizeof s->url, "%s:calls-%ld-%d", scheme, (long)getpid(), number++);
    for (int r = 0; r < ranks; r++) {
        pids[r] = process_fork(110);
        if (pids[r])
            continue;
        weft_comm *c = NULL;
        hosts_live_on(hosts[r]);
        s->code[r] = process_open(s->url, r, ranks, 60 * SECOND, &c);
        if (!s->code[r])
            s->code[r] = f(c, s);
        snprintf(s->text[r], sizeof s->text[r], "%s", weft_errmsg());
        _exit(0);
    }
    for (int r = 0; r < ranks; r++) {
        int status;
        waitpid(pids[r], &status, 0);
        if (status || s->code[r])
            fail_msg("%s: rank %d: ended by signal %d, code %d, stage %d: %s", s->url, r,
                     WIFSIGNALED(status) ? WTERMSIG(status) : 0, s->code[r], atomic_load(&s->stage), s->text[r]);
    }
    munmap(s, sizeof *s);
}

/* Rank 1, the first of its host, has entered a barrier whose time ran out, and is elsewhere while rank 2, of its host,
 * enters. When rank 1 comes back, its host's votes go to rank 0, which ends the barrier and leaves at once: ranks 1 and
 * 2 must not take it for one that did not come. */
static int leave_early(weft_comm *c, struct scene *s)
{
    struct pair p; /* so that all are connected with all, and hear who leaves */
    int rank = weft_comm_rank(c), err = pair_bind(&p, "i32[3000/x] @x3", "i32[3000] @x3", false, c);
    if (!err)
        err = weft_exec_run(p.x);
    pair_release(&p);
    if (!err)
        err = weft_comm_barrier(c, WEFT_DEADLINE);
    if (rank == 0)
        come_to(s, 1);
    if (rank == 1 && !err && wait_for(s, 1)) {
        for (int k = 0; k < 30 && !err; k++) /* its own vote goes, that of rank 0 comes */
            err = weft_comm_barrier(c, 10 * MS) == WEFT_ETIMEOUT ? 0 : -1000;
        come_to(s, 2);
        nanosleep(&(struct timespec){.tv_nsec = 300 * MS}, NULL);
    }
    if (rank == 2)
        wait_for(s, 2);
    if (!err)
        err = weft_comm_barrier(c, WEFT_DEADLINE);
    weft_comm_close(c);
    return err;
}

static void rank_that_leaves_after_a_barrier_counts_as_come(void **state)
{
    (void)state;
    play("auto", "abb", leave_early);
}

/* Rank 1, the first of its host, has entered a barrier whose time ran out, and closes its comm. When rank 2, of its
 * host, enters, no rank is left that could relay the votes of that host: ranks 0 and 2 must not wait for that. */
static int leave_open(weft_comm *c, struct scene *s)
{
    int rank = weft_comm_rank(c), err = 0;
    if (rank == 1) {
        if (weft_comm_barrier(c, 0) != WEFT_ETIMEOUT)
            err = -1000;
    } else {
        if (rank == 2 && !wait_for(s, 1))
            err = -1001;
        int met = weft_comm_barrier(c, 20 * SECOND);
        if (!err && (met != WEFT_EPEER || !strstr(weft_errmsg(), "rank 1")))
            err = met ? met : -1002;
    }
    weft_comm_close(c);
    if (rank == 1)
        come_to(s, 1);
    return err;
}

static void first_rank_that_leaves_a_barrier_open_is_named(void **state)
{
    (void)state;
    play("auto", "abb", leave_open);
}

/* One exec stays as it is while another is bound again and again; both are right in between. */
static int bind_again(weft_comm *c, struct scene *s)
{
    struct pair stays, moves;
    int rank = weft_comm_rank(c), n = s->ranks, err;
    char src[64], dst[64];
    snprintf(src, sizeof src, "i32[%d/x,%d] @x%d", 3 * n, 4 * n, n);
    snprintf(dst, sizeof dst, "i32[%d,%d/x] @x%d", 3 * n, 4 * n, n);
    err = pair_bind(&stays, src, dst, false, c);
    if (!err)
        err = pair_bind(&moves, src, dst, false, c);
    size_t ints = (size_t)(3 * n * 4);
    int32_t *in[2] = {moves.in, calloc(ints, sizeof(int32_t))}, *out[2] = {moves.out, calloc(ints, sizeof(int32_t))};
    for (int k = 0; k < 40 && !err; k++) {
        struct pair *p = k % 2 ? &stays : &moves;
        int32_t *from = p == &stays ? stays.in : in[k / 2 % 2], *to = p == &stays ? stays.out : out[k / 2 % 2];
        weft_view a = WEFT_VIEW(from, ints * 4), b = WEFT_VIEW(to, ints * 4);
        for (size_t i = 0; i < ints; i++)
            from[i] = (int32_t)(1000 * k + 100 * rank) + (int32_t)i;
        if (p == &moves)
            err = weft_exec_rebind(p->x, &a, &b);
        for (int run = 0; run < 3 && !err; run++)
            err = weft_exec_run(p->x);
        /* this rank's columns of all rows: row i is rank i / 3's */
        for (int i = 0; i < 3 * n && !err; i++)
            for (int j = 0; j < 4 && !err; j++)
                if (to[4 * i + j] != 1000 * k + 100 * (i / 3) + i % 3 * 4 * n + 4 * rank + j)
                    err = -1000 - k;
    }
    pair_release(&stays);
    pair_release(&moves);
    free(in[1]);
    free(out[1]);
    weft_comm_close(c);
    return err;
}

static void rebinding_one_exec_leaves_the_others_right(void **state)
{
    (void)state;
    play(hosts_wire(), "abc", bind_again);
    play("auto", "aabb", bind_again);
}

/* A peer that closes right after its last run: what it sent still comes. */
static int send_and_leave(weft_comm *c, struct scene *s)
{
    struct pair p;
    int rank = weft_comm_rank(c), err = pair_bind(&p, "i32[4000] @x1", "i32[4000] @x3", false, c);
    (void)s;
    for (int k = 0; k < 5 && !err; k++) {
        for (int i = 0; i < 4000 && !rank; i++)
            ((int32_t *)p.in)[i] = 7 * k + i;
        if (rank)
            nanosleep(&(struct timespec){.tv_nsec = 20 * MS}, NULL);
        err = weft_exec_run(p.x);
        for (int i = 0; i < 4000 && !err; i++)
            err = ((int32_t *)p.out)[i] == 7 * k + i ? 0 : -1000;
    }
    pair_release(&p);
    weft_comm_close(c);
    return err;
}

static void data_of_a_rank_that_left_after_sending_arrives(void **state)
{
    (void)state;
    play(hosts_wire(), "abc", send_and_leave);
}

/* A peer that frees its exec instead of running it, and stays. */
static int free_instead(weft_comm *c, struct scene *s)
{
    struct pair p;
    int rank = weft_comm_rank(c), err = pair_bind(&p, "i32[4000/x] @x2", "i32[4000] @x2", false, c);
    if (!err)
        err = weft_exec_run(p.x);
    if (rank == 0 && !err) {
        err = weft_exec_start(p.x);
        int code = err ? err : weft_exec_wait(p.x, 50 * SECOND);
        err = code == WEFT_EPEER && strstr(weft_errmsg(), "rank 1 on host b closed its comm or freed its exec") ? 0
              : code                                                                                            ? code
                                                                                                                : -1000;
        come_to(s, 1);
    }
    pair_release(&p);
    if (rank)
        wait_for(s, 1);
    weft_comm_close(c);
    return err;
}

static void exec_closed_instead_of_run_fails_the_peers_run(void **state)
{
    (void)state;
    play(hosts_wire(), "ab", free_instead);
}

/* What a peer sent before it left has come while this rank was held up by a put to another one: the exec is not looked
 * at there, and so nobody can say that it is waited for in vain. */
static int put_meanwhile(weft_comm *c, struct scene *s)
{
    struct pair p;
    weft_window *w = NULL;
    const int64_t large = 16 << 20;
    char *bytes = calloc(1, (size_t)large);
    int rank = weft_comm_rank(c), err = pair_bind(&p, "i32[4000] @x1=1", "i32[4000] @x1=0", false, c);
    for (int i = 0; i < 4000 && rank == 1; i++)
        ((int32_t *)p.in)[i] = 7 + i;
    if (!err)
        err = !bytes ? -1000 : weft_window_open(c, &(weft_buffer)WEFT_BUFFER("b", WEFT_U8, large), 1, 1, &w);
    if (!err && rank == 0) {
        err = weft_exec_start(p.x);
        come_to(s, 1);
        err = err ? err : weft_window_put(w, 0, 2, 0, bytes, large); /* who takes it when rank 1 has long gone */
        err = err ? err : weft_exec_wait(p.x, 50 * SECOND);
        for (int i = 0; i < 4000 && !err; i++)
            err = ((int32_t *)p.out)[i] == 7 + i ? 0 : -1000;
    }
    if (!err && rank == 1) {
        wait_for(s, 1);
        err = weft_exec_run(p.x);
    }
    if (rank == 2) {
        wait_for(s, 2);
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* in which rank 0 looks, often */
    }
    weft_window_close(w);
    pair_release(&p);
    weft_comm_close(c);
    if (rank == 1)
        come_to(s, 2);
    free(bytes);
    return err;
}

static void data_of_a_rank_that_left_arrives_during_a_put(void **state)
{
    (void)state;
    play(hosts_wire(), "abc", put_meanwhile);
}

/* Rank 1 ends before it has sent anything, so no rank has a connection with it that could break. */
static int end_at_once(weft_comm *c, struct scene *s)
{
    if (weft_comm_rank(c) == 1) {
        come_to(s, 1);
        return 0;
    }
    if (!wait_for(s, 1))
        return -1000;
    int64_t from = clock_now();
    int met = weft_comm_barrier(c, WEFT_DEADLINE);
    if (met != WEFT_EPEER || !strstr(weft_errmsg(), "rank 1"))
        return met ? met : -1001;
    return clock_now() - from < 5 * SECOND ? 0 : -1002;
}

static void rank_that_ends_before_its_first_message_is_noticed(void **state)
{
    (void)state;
    play("auto", "ab", end_at_once);
    play(hosts_wire(), "ab", end_at_once);
}

/* The caller asks for the text after it has closed everything, as a caller that cleans up does. */
static int close_first(weft_comm *c, struct scene *s)
{
    char text[700];
    weft_window *w = NULL;
    struct pair p;
    int rank = weft_comm_rank(c), err = pair_bind(&p, "i32[3000/x] @x2", "i32[3000] @x2", false, c);
    if (!err)
        err = weft_window_open(c, NULL, 0, 1, &w);
    if (!err)
        err = weft_exec_run(p.x);
    if (rank == 1 || err)
        return err; /* and ends, without closing anything */
    int met = weft_comm_barrier(c, WEFT_DEADLINE);
    snprintf(text, sizeof text, "%s", weft_errmsg());
    weft_window_close(w);
    pair_release(&p);
    weft_comm_close(c);
    come_to(s, 1);
    return met != WEFT_EPEER ? -1000 : strcmp(text, weft_errmsg()) ? -1001 : 0;
}

static void closing_keeps_the_text_of_the_error(void **state)
{
    (void)state;
    play("auto", "ab", close_first);
    play(hosts_wire(), "ab", close_first);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rank_that_ends_before_its_first_message_is_noticed),
                                       cmocka_unit_test(closing_keeps_the_text_of_the_error),
                                       cmocka_unit_test(rank_that_leaves_after_a_barrier_counts_as_come),
                                       cmocka_unit_test(first_rank_that_leaves_a_barrier_open_is_named),
                                       cmocka_unit_test(rebinding_one_exec_leaves_the_others_right),
                                       cmocka_unit_test(data_of_a_rank_that_left_after_sending_arrives),
                                       cmocka_unit_test(exec_closed_instead_of_run_fails_the_peers_run),
                                       cmocka_unit_test(data_of_a_rank_that_left_arrives_during_a_put)};
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
