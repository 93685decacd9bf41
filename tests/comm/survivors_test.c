/* Ranks that are killed, and a second one while the survivors of the first agree, open a comm again and go on: all that
 * live get the same lists, within the time that is promised, and go on together in the end. The first one is killed
 * while the ranks run, bind, split, are in barriers of a window or of the comm, exchange messages, or are in no call.
 * The ranks close their execs before they ask, which ends connections with large messages in flight. On shm:, and
 * between hosts on the wire that WEFT_WIRE names and on auto: with it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
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
#include "support/share.h"
#include "support/soon.h"
#include "support/suite.h"
#include "weft/halo.h"

#define MOST 20
#define FEW 6 /* ranks of most lives */
#define TRIES 6
#define HANGS 60

enum phase { RUNS, BINDS, SPLITS, WINDOWS, EXCHANGES, BARRIERS, IDLE, PHASES };
static const char *const phase_names[] = {"runs", "binds", "splits", "windows", "exchanges", "barriers", "idle"};

struct life {
    char url[64];
    enum phase phase; /* in which the first rank is killed */
    int ranks, hosts; /* hosts 0: shm: */
    int victim, second;
    int64_t after_ns, second_after_ns; /* from the start of the runs on; from when the second one knows of the first */
};

struct told {
    atomic_int ready;
    struct {
        _Atomic int64_t killed_at; /* set by the test */
        _Atomic int64_t knew_at;   /* of the first death */
        int64_t slowest;           /* call of survivors or reopen that took longest */
        int code, left;
        int list[MOST]; /* at the end, as numbered at first */
        bool fine;
        int files;
        char text[300], log[1200];
        char end[PROCESS_END]; /* how its process ended, if not by an exit with 0; set by the test */
    } rank[MOST];
};

static int make(struct pair *p, weft_comm *c, bool large)
{
    char src[64], dst[64];
    int n = weft_comm_size(c);
    if (large) {
        snprintf(src, sizeof src, "f32[%d/x,512] @x%d", n * 128, n);
        snprintf(dst, sizeof dst, "f32[%d,512/x] @x%d", n * 128, n);
    } else {
        snprintf(src, sizeof src, "f32[1000] @x%d +sum(x)", n);
        snprintf(dst, sizeof dst, "f32[1000] @x%d", n);
    }
    return pair_bind(p, src, dst, false, c);
}

/* Sums, and transposes of 256 KiB to each rank, until `times` or until something fails. Its text goes to `text`. */
static int work(weft_comm *c, int times, atomic_int *ready, char text[300])
{
    struct pair pairs[2] = {{.x = NULL}, {.x = NULL}};
    int rank = weft_comm_rank(c), err = 0, made = 0;
    for (; made < 2 && !err; made++)
        err = make(&pairs[made], c, made == 1);
    for (int i = 0; i < 2 && !err; i++)
        tensors_fill(pairs[i].src, rank, pairs[i].in, 5);
    if (ready)
        atomic_fetch_add(ready, 1);
    for (int k = 0; k < times && !err; k++)
        err = weft_exec_run(pairs[k % 2].x);
    snprintf(text, 300, "%s", weft_errmsg());
    for (int i = 0; i < 2 && !err; i++)
        if (tensors_wrong(pairs[i].src, pairs[i].dst, rank, pairs[i].out, 5))
            err = -1000;
    while (made > 0)
        pair_release(&pairs[--made]);
    return err;
}

static int split_once(weft_comm *c)
{
    int all[MOST];
    for (int r = 0; r < MOST; r++)
        all[r] = r;
    weft_comm *child = NULL;
    int err = weft_comm_split(c, all, (size_t)weft_comm_size(c), &child);
    if (!err)
        err = weft_comm_barrier(child, WEFT_DEADLINE);
    weft_comm_close(child);
    return err;
}

static int bind_once(weft_comm *c)
{
    struct pair p = {.x = NULL};
    int err = make(&p, c, false);
    pair_release(&p);
    return err;
}

static int exchange_once(weft_halo *h)
{
    weft_message *left = NULL, *right = NULL;
    int err = weft_halo_exchange(h, NULL, NULL, &left, &right);
    weft_message_free(left);
    weft_message_free(right);
    return err;
}

/* In no call until the rank is killed. */
static int idle_once(weft_comm *c, const struct life *l, struct told *told)
{
    for (int64_t until = clock_now() + HANGS * SECOND;
         !atomic_load(&told->rank[l->victim].killed_at) && clock_now() < until;)
        clock_pause(200000);
    return weft_comm_barrier(c, WEFT_DEADLINE);
}

/* Until something fails; the text says what. */
static int work_in(weft_comm *c, const struct life *l, struct told *told, char text[300])
{
    weft_window *w = NULL;
    weft_halo *h = NULL;
    if (l->phase == RUNS)
        return work(c, 1 << 30, &told->ready, text);
    int err = weft_window_open(c, NULL, 0, 1, &w);
    if (!err)
        err = weft_halo_open(c, true, NULL, &h);
    atomic_fetch_add(&told->ready, 1);
    while (!err)
        switch (l->phase) {
        case BINDS: err = bind_once(c); break;
        case SPLITS: err = split_once(c); break;
        case WINDOWS: err = weft_window_barrier(w, WEFT_DEADLINE); break;
        case EXCHANGES: err = exchange_once(h); break;
        case IDLE: err = idle_once(c, l, told); break;
        default: err = weft_comm_barrier(c, WEFT_DEADLINE); break;
        }
    snprintf(text, 300, "%s", weft_errmsg());
    weft_halo_close(h);
    weft_window_close(w);
    return err;
}

/* Does the text name the rank, in "rank 2" or "ranks 0, 2"? */
static bool names(const char *text, int rank)
{
    for (const char *at = strstr(text, "rank"); at; at = strstr(at + 4, "rank")) {
        const char *p = at + 4 + (at[4] == 's');
        for (char *end; *p == ' ' || *p == ','; p = end) {
            p += *p == ',';
            if (strtol(p, &end, 10) == rank && end != p)
                return true;
            if (end == p)
                break;
        }
    }
    return false;
}

#define LOG(t, ...) snprintf((t)->log + strlen((t)->log), sizeof(t)->log - strlen((t)->log), __VA_ARGS__)

/* One attempt to go on: 0, the error of the call that failed, and *next is the comm to ask from then on. */
static int go_on(const struct life *l, struct told *told, int rank, weft_comm *c, int *origin, weft_comm **next)
{
    __typeof__(&told->rank[0]) t = &told->rank[rank];
    int list[MOST], gone = -1;
    size_t n = 0;
    int64_t from = clock_now();
    int err = weft_comm_survivors(c, list, MOST, &n);
    int64_t took = clock_now() - from;
    t->slowest = took > t->slowest ? took : t->slowest;
    LOG(t, "| survivors %d, %lld ms:", err, (long long)(took / MS));
    for (size_t i = 0; i < n && !err; i++)
        LOG(t, " %d", origin[list[i]]);
    if (err) {
        LOG(t, " %s", weft_errmsg());
        *next = c;
        t->code = err;
        return err;
    }
    for (size_t i = 0; i < n; i++)
        gone = origin[list[i]] == l->second ? list[i] : gone;
    from = clock_now();
    err = weft_comm_reopen(c, list, n, next);
    took = clock_now() - from;
    t->slowest = took > t->slowest ? took : t->slowest;
    LOG(t, "| reopen %d, %lld ms", err, (long long)(took / MS));
    if (err) {
        LOG(t, ": %s", weft_errmsg());
        *next = c;
        if (err != WEFT_EPEER || gone < 0 || !names(weft_errmsg(), gone))
            t->code = err; /* only a rank that has died lets it fail, and is named as the caller knows it */
        return err;
    }
    for (size_t i = 0; i < n; i++)
        origin[i] = origin[list[i]];
    t->left = (int)n;
    char text[300];
    err = work(*next, gone < 0 ? 40 : 1 << 30, NULL, text); /* a rank that is to end will */
    LOG(t, "| work %d%s%s", err, err ? ": " : "", err ? text : "");
    return err;
}

static void live(const struct life *l, int rank, struct told *told)
{
    __typeof__(&told->rank[0]) t = &told->rank[rank];
    int origin[MOST], files = process_files();
    weft_comm *first, *c, *next;
    char host[16];
    for (int r = 0; r < MOST; r++)
        origin[r] = r;
    snprintf(host, sizeof host, "h%d", l->hosts ? rank * l->hosts / l->ranks : 0);
    setenv("WEFT_HOST", host, 1);
    if (process_open(l->url, rank, l->ranks, 20 * SECOND, &first)) {
        LOG(t, "open: %s", weft_errmsg());
        return;
    }
    t->left = l->ranks;
    int err = work_in(first, l, told, t->text);
    atomic_store(&t->knew_at, clock_now());
    t->code = err == WEFT_EPEER ? 0 : -2000;
    c = first;
    for (int i = 0; i < TRIES && err; i++) {
        err = go_on(l, told, rank, c, origin, &next);
        if (next != c && c != first)
            weft_comm_close(c);
        c = next;
    }
    if (c != first)
        weft_comm_close(c);
    weft_comm_close(first);
    memcpy(t->list, origin, sizeof origin);
    t->files = process_files() - files;
    t->fine = !err;
}

static void print_logs(const struct life *l, const struct told *told)
{
    print_message("%s, %d ranks on %d hosts, %s: %d killed after %lld us, %d after %lld us\n", l->url, l->ranks,
                  l->hosts, phase_names[l->phase], l->victim, (long long)l->after_ns / 1000, l->second,
                  (long long)l->second_after_ns / 1000);
    for (int r = 0; r < l->ranks; r++)
        print_message("rank %d: %s %s %s\n", r, told->rank[r].text, told->rank[r].log, told->rank[r].end);
}

static void kill_second(const struct life *l, struct told *told, const pid_t *pids)
{
    int64_t until = clock_now() + HANGS * SECOND;
    while (!atomic_load(&told->rank[l->second].knew_at) && clock_now() < until)
        clock_pause(20000);
    clock_pause(l->second_after_ns);
    atomic_store(&told->rank[l->second].killed_at, clock_now());
    kill(pids[l->second], SIGKILL);
}

static void judge(const struct life *l, const struct told *told)
{
    int64_t killed_at = atomic_load(&told->rank[l->victim].killed_at);
    for (int r = 0; r < l->ranks; r++) {
        if (r == l->victim || r == l->second)
            continue;
        int64_t after = atomic_load(&told->rank[r].knew_at) - killed_at;
        bool same = true;
        if (after > 2 * SECOND || told->rank[r].slowest > (l->hosts ? 5 : 2) * SECOND)
            print_message("rank %d: knew after %lld ms, slowest call %lld ms; %s, %d killed while %s, %s\n", r,
                          (long long)(after / MS), (long long)(told->rank[r].slowest / MS), l->url, l->victim,
                          phase_names[l->phase], told->rank[r].log);
        for (int i = 0, k = 0; i < l->ranks; i++)
            if (i != l->victim && i != l->second)
                same &= k < told->rank[r].left && told->rank[r].list[k++] == i;
        if (*told->rank[r].end || !told->rank[r].fine || told->rank[r].code || !same ||
            !names(told->rank[r].text, l->victim) || told->rank[r].left != l->ranks - 1 - (l->second >= 0) ||
            told->rank[r].files || !soon_enough(after) ||
            !soon_enough(l->hosts ? told->rank[r].slowest - 3 * SECOND : told->rank[r].slowest)) {
            print_logs(l, told);
            fail_msg("rank %d: fine %d, code %d, %d left, knew after %lld ms, slowest call %lld ms, %d files left, %s",
                     r, told->rank[r].fine, told->rank[r].code, told->rank[r].left, (long long)(after / MS),
                     (long long)(told->rank[r].slowest / MS), told->rank[r].files,
                     *told->rank[r].end ? told->rank[r].end : "its process ended well");
        }
    }
}

static void one_life(const struct life *l)
{
    struct told *told = ranks_shared(sizeof *told);
    pid_t pids[MOST];
    for (int r = 0; r < l->ranks; r++) {
        pids[r] = process_fork(HANGS);
        if (pids[r] == 0) {
            live(l, r, told);
            _exit(0);
        }
    }
    int64_t until = clock_now() + HANGS * SECOND;
    while (atomic_load(&told->ready) < l->ranks && clock_now() < until)
        clock_pause(100000);
    clock_pause(l->after_ns);
    atomic_store(&told->rank[l->victim].killed_at, clock_now());
    kill(pids[l->victim], SIGKILL);
    if (l->second >= 0)
        kill_second(l, told, pids);
    for (int r = 0; r < l->ranks; r++)
        process_end(pids[r], told->rank[r].end);
    judge(l, told);
    munmap(told, sizeof *told);
}

/* The moments are spread over all orders of magnitude: most of what can go wrong is soon after. The second rank ends
 * while the others agree, open again or work again: what comes after is an ordinary death. */
static int64_t moment(struct random *r, int64_t most_ns)
{
    int64_t ns = 30000;
    while (ns < most_ns && random_in(r, 0, 5))
        ns = ns * 8 / 5;
    return ns * random_in(r, 50, 150) / 100;
}

static void campaign(bool hosts, bool second, int least, int most, int64_t lives, uint64_t number)
{
    for (int64_t i = 0; suite_seed(&i, 0, lives); i++) {
        struct random r = random_of(number, i);
        struct life l = {.ranks = (int)random_in(&r, least, most), .second = -1};
        l.victim = (int)random_in(&r, 0, l.ranks - 1);
        l.after_ns = moment(&r, 200 * MS);
        if (second)
            l.second = (l.victim + (int)random_in(&r, 1, l.ranks - 1)) % l.ranks;
        l.second_after_ns = moment(&r, 20 * MS);
        l.phase = second ? (enum phase)(i / 2 % PHASES) : RUNS;
        l.hosts = !hosts  ? 0
                  : i % 2 ? l.ranks
                          : (int)random_in(&r, 2, l.ranks < 6 ? l.ranks < 3 ? l.ranks : 3 : l.ranks / 2);
        snprintf(l.url, sizeof l.url, "%s:left-%ld-%lld",
                 !hosts  ? "shm"
                 : i % 2 ? hosts_wire()
                         : "auto",
                 (long)getpid(), (long long)i);
        one_life(&l);
        if (!hosts)
            process_nothing_left(l.url + 4);
    }
    soon_judge();
}

static void survivors_of_one_death_agree(void **state)
{
    (void)state;
    hosts_need_wire();
    campaign(true, false, 2, FEW, test_share(12, 2400), 11); /* every other one on auto: */
}

static void survivors_of_two_deaths_agree_on_one_host(void **state)
{
    (void)state;
    campaign(false, true, 4, FEW, test_share(30, 2600), 12);
}

static void survivors_of_two_deaths_agree(void **state)
{
    (void)state;
    hosts_need_wire();
    campaign(true, true, 4, FEW, test_share(12, 1800), 13); /* every other one on auto: */
}

/* So many that ranks speak for others, which then have to hear from the rest: the second rank may be one of these. */
static void survivors_of_two_deaths_among_many_agree(void **state)
{
    (void)state;
    hosts_need_wire();
    campaign(true, true, 12, MOST, test_share(4, 300), 14);
}

/* ---- a comm of which only another one, split from it, has found out ---- */

static int parent_lists(const char *url, int rank, struct told *told)
{
    weft_comm *c, *child;
    int all[3] = {2, 1, 0}, list[3];
    size_t n = 0;
    char host[16];
    snprintf(host, sizeof host, "h%d", rank);
    setenv("WEFT_HOST", host, 1);
    if (process_open(url, rank, 3, 20 * SECOND, &c) || weft_comm_split(c, all, 3, &child))
        return 1;
    if (weft_comm_survivors(c, list, 3, &n) != WEFT_EINVAL) /* nobody has died */
        return 2;
    if (weft_comm_barrier(child, WEFT_DEADLINE))
        return 3;
    if (rank == 1)
        raise(SIGKILL);
    while (!weft_comm_barrier(child, WEFT_DEADLINE))
        ;
    int err = weft_comm_survivors(c, list, 3, &n);
    snprintf(told->rank[rank].log, sizeof told->rank[rank].log, "%d: %s", err, err ? weft_errmsg() : "");
    weft_comm_close(child);
    weft_comm_close(c);
    return err ? 4 : n == 2 && list[0] == 0 && list[1] == 2 ? 0 : 5;
}

static void survivors_of_a_parent_are_found_after_a_child_failed(void **state)
{
    (void)state;
    const char *schemes[] = {"shm", "auto", hosts_wire()};
    size_t n = hosts_have_wire() ? 3 : 1, times = (size_t)test_share(1, 1000);
    for (size_t i = 0; i < n * times; i++) {
        struct told *told = ranks_shared(sizeof *told);
        pid_t pids[3];
        char url[64];
        int status;
        snprintf(url, sizeof url, "%s:parent-%ld-%zu", schemes[i % n], (long)getpid(), i);
        for (int r = 0; r < 3; r++) {
            pids[r] = process_fork(HANGS);
            if (pids[r] == 0)
                _exit(parent_lists(url, r, told));
        }
        for (int r = 0; r < 3; r++) {
            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
            if (r != 1 && status)
                fail_msg("%s: rank %d ended with %#x: %s", url, r, (unsigned)status, told->rank[r].log);
        }
        munmap(told, sizeof *told);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(survivors_of_one_death_agree),
                                       cmocka_unit_test(survivors_of_two_deaths_agree_on_one_host),
                                       cmocka_unit_test(survivors_of_two_deaths_agree),
                                       cmocka_unit_test(survivors_of_two_deaths_among_many_agree),
                                       cmocka_unit_test(survivors_of_a_parent_are_found_after_a_child_failed),
                                       cmocka_unit_test(no_files_memory_or_sockets_are_left)};
    return SUITE_MAIN(argc, argv, SUITE_FIXTURE(tests, hosts_setup, hosts_teardown));
}
