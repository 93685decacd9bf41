/* Many ranks on one machine, each a process: what a rank costs hardly depends on how many there are, all of them get
 * through, and one that dies is missed soon. Some hundred ranks; 1,024 in `make soak`. Costs are CPU time, files and
 * memory, not seconds: the machine may be busy. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/clock.h"
#include "support/hosts_meet.h"
#include "support/processes.h"
#include "support/share.h"
#include "support/suite.h"

#define MOST 1024
#define HANGS (300 * SECOND)
#define RUNS 100
#define TRIES 3 /* CPU time is more on a busy machine: the least of several counts */

/* What a rank says. */
struct row {
    int code;
    char text[300];
    int64_t open, bind, runs, close; /* CPU time */
    int64_t private_kb;              /* memory of its own that it has got, from before open to after the runs */
    int64_t shared_kb;               /* memory of the group that it has touched */
    int files;
    _Atomic int64_t at; /* the dead rank: when it died; others: when they knew */
    size_t left;
    bool fine;
};

struct many {
    int n, rank, runs;
    char url[64];
    const char *src, *dst;
    const char *algorithm;
    struct row *rows;
};

/* Ranks of a test: more of them in `make soak`, but not fewer where a share of a test is run. */
static int share_of(int ordinary, int full)
{
    int n = (int)test_share(ordinary, full);
    return n < ordinary ? ordinary : n;
}

static int64_t cpu(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static int64_t status(const char *what)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[200];
    int64_t kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, what, strlen(what)))
            kb = strtoll(line + strlen(what), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static void note(struct row *row, const char *what, int err)
{
    if (!err || row->code)
        return;
    row->code = err;
    snprintf(row->text, sizeof row->text, "%s: %.250s", what, weft_errmsg());
}

static weft_layout *layout(const char *text, int n)
{
    char whole[100];
    weft_layout *l = NULL;
    snprintf(whole, sizeof whole, text, n);
    return weft_layout_parse(whole, &l) ? NULL : l;
}

/* ---- the ranks ---- */

/* Opens, binds, runs and closes. */
static void work(struct many *m)
{
    struct row *row = &m->rows[m->rank];
    static float in[1000], out[1000];
    weft_comm *c = NULL;
    weft_plan *plan = NULL;
    weft_exec *x = NULL;
    weft_layout *src = layout(m->src, m->n), *dst = layout(m->dst, m->n);
    for (int i = 0; i < 1000; i++)
        in[i] = out[i] = (float)m->rank;
    int64_t before = status("RssAnon:"), at = cpu();
    note(row, "open", process_open(m->url, m->rank, m->n, 120 * SECOND, &c));
    row->open = cpu() - at;
    if (!row->code)
        note(row, "barrier", weft_comm_barrier(c, WEFT_FOREVER));
    at = cpu();
    weft_lower_opts o = {.size = sizeof o, .algorithm = m->algorithm};
    if (!row->code)
        note(row, "lower", weft_lower(&(weft_move){"w", src, dst}, 1, m->rank, &o, &plan));
    if (!row->code)
        note(row, "bind",
             weft_bind(plan, c, &(weft_view){.data = in, .bytes = sizeof in},
                       &(weft_view){.data = out, .bytes = sizeof out}, NULL, &x));
    row->bind = cpu() - at;
    at = cpu();
    for (int i = 0; i < m->runs && !row->code; i++)
        note(row, "run", weft_exec_run(x));
    row->runs = cpu() - at;
    row->private_kb = status("RssAnon:") - before;
    row->shared_kb = status("RssShmem:");
    row->files = process_files();
    row->fine = out[0] == (float)m->n * (float)(m->n - 1) / 2 || out[0] == (float)((m->rank + m->n - 1) % m->n);
    if (!row->code)
        note(row, "barrier", weft_comm_barrier(c, WEFT_FOREVER));
    at = cpu();
    weft_exec_close(x);
    weft_comm_close(c);
    row->close = cpu() - at;
    weft_plan_free(plan);
    weft_layout_free(src);
    weft_layout_free(dst);
}

/* Opens a comm again with the survivors, meets them there, and closes both. */
static void go_on(struct many *m, weft_comm *c, int *ranks)
{
    struct row *row = &m->rows[m->rank];
    weft_comm *again = NULL;
    if (!row->code)
        note(row, "survivors", weft_comm_survivors(c, ranks, (size_t)m->n, &row->left));
    if (!row->code)
        note(row, "open again", weft_comm_reopen(c, ranks, row->left, &again));
    if (!row->code)
        note(row, "barrier", weft_comm_barrier(again, WEFT_FOREVER));
    weft_comm_close(again);
    weft_comm_close(c);
    free(ranks);
}

/* All wait for one that dies, and go on without it. */
static void lose_one(struct many *m)
{
    struct row *row = &m->rows[m->rank];
    weft_comm *c = NULL;
    int *ranks = malloc((size_t)m->n * sizeof *ranks), victim = m->n / 2 + 1;
    note(row, "open", process_open(m->url, m->rank, m->n, 120 * SECOND, &c));
    if (!row->code)
        note(row, "barrier", weft_comm_barrier(c, WEFT_FOREVER));
    if (m->rank == victim && !row->code) {
        for (int64_t until = clock_now() + SECOND; clock_now() < until;) /* until all others sleep */
            nanosleep(&(struct timespec){.tv_nsec = 50 * MS}, NULL);
        atomic_store(&row->at, clock_now());
        kill(getpid(), SIGKILL);
    }
    if (!row->code && weft_comm_barrier(c, WEFT_FOREVER) != WEFT_EPEER)
        note(row, "the barrier went well", WEFT_ETIMEOUT);
    atomic_store(&row->at, clock_now());
    char who[40];
    snprintf(who, sizeof who, "rank %d has died", victim);
    row->fine = strstr(weft_errmsg(), who) != NULL;
    go_on(m, c, ranks);
}

/* By sockets, where more than 64 ranks do not tell all others what they do: one dies, one closes the comm and does not
 * go on, and one dies when the others open a comm again. */
enum { FIRST = 9, QUITS = 20, SECOND_ONE = 2, LEFT = 3 };

static void lose_two(struct many *m)
{
    struct row *row = &m->rows[m->rank];
    weft_comm *c = NULL, *again = NULL;
    int *ranks = malloc((size_t)m->n * sizeof *ranks);
    note(row, "open", process_open(m->url, m->rank, m->n, 60 * SECOND, &c));
    if (!row->code)
        note(row, "barrier", weft_comm_barrier(c, WEFT_FOREVER));
    if (m->rank == FIRST && !row->code)
        kill(getpid(), SIGKILL);
    if (!row->code && weft_comm_barrier(c, WEFT_FOREVER) != WEFT_EPEER)
        note(row, "the barrier went well", WEFT_ETIMEOUT);
    if (m->rank == QUITS) {
        weft_comm_close(c);
        free(ranks);
        return;
    }
    if (!row->code)
        note(row, "survivors", weft_comm_survivors(c, ranks, (size_t)m->n, &row->left));
    if (m->rank == SECOND_ONE && !row->code) {
        atomic_store(&row->at, clock_now());
        kill(getpid(), SIGKILL);
    }
    if (!row->code && weft_comm_reopen(c, ranks, row->left, &again) != WEFT_EPEER)
        note(row, "reopen went well", WEFT_ETIMEOUT);
    atomic_store(&row->at, clock_now());
    row->files = process_files();
    snprintf(row->text, sizeof row->text, "%.250s", weft_errmsg());
    go_on(m, c, ranks);
}

/* ---- the test's side ---- */

/* Starts n ranks and waits for all. Ranks that hang are ended. Two of them may be killed. */
static void start(struct many *m, const char *scheme, void (*body)(struct many *), int killed, int also)
{
    static int made;
    pid_t *pids = calloc((size_t)m->n, sizeof *pids);
    bool bad = false;
    snprintf(m->url, sizeof m->url, "%s:many-%d-%d", scheme, (int)getpid(), made++);
    memset(m->rows, 0, MOST * sizeof *m->rows);
    for (int r = 0; r < m->n; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (!pids[r]) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            m->rank = r;
            body(m);
            _exit(m->rows[r].code != 0);
        }
    }
    int64_t until = clock_now() + HANGS;
    for (int r = 0; r < m->n; r++) {
        int how = 0;
        while (!waitpid(pids[r], &how, WNOHANG) && clock_now() < until)
            nanosleep(&(struct timespec){.tv_nsec = 5 * MS}, NULL);
        if (clock_now() >= until) {
            print_message("rank %d of %d hangs\n", r, m->n);
            kill(pids[r], SIGKILL);
            waitpid(pids[r], &how, 0);
            bad = true;
        }
        if (r != killed && r != also && how && !bad) {
            print_message("rank %d of %d: code %d: %s\n", r, m->n, m->rows[r].code, m->rows[r].text);
            bad = true;
        }
    }
    free(pids);
    assert_false(bad);
}

static struct row *rows(void)
{
    struct row *all = mmap(NULL, MOST * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(all != MAP_FAILED);
    return all;
}

/* Of all ranks together: CPU time of each in microseconds, and the mean of the others. */
struct cost {
    int64_t open, bind, runs, close, private_kb, shared_kb;
    int files;
};

static struct cost measure(struct many *m)
{
    struct cost c = {0};
    start(m, "shm", work, -1, -1);
    for (int r = 0; r < m->n; r++) {
        const struct row *row = &m->rows[r];
        if (!row->fine)
            fail_msg("rank %d of %d has a wrong result", r, m->n);
        c.open += row->open;
        c.bind += row->bind;
        c.runs += row->runs;
        c.close += row->close;
        c.private_kb += row->private_kb;
        c.shared_kb += row->shared_kb;
        c.files = row->files > c.files ? row->files : c.files;
    }
    int64_t n = m->n;
    c = (struct cost){c.open / n / 1000,
                      c.bind / n / 1000,
                      c.runs / n / 1000,
                      c.close / n / 1000,
                      c.private_kb / n,
                      c.shared_kb / n,
                      c.files};
    print_message(
        "%4d ranks, %s: a rank needs CPU us: open %lld, lower and bind %lld, %d runs %lld, close %lld; memory "
        "of its own %lld KiB, touched of the group's %lld KiB, %d files\n",
        m->n, m->dst, (long long)c.open, (long long)c.bind, m->runs, (long long)c.runs, (long long)c.close,
        (long long)c.private_kb, (long long)c.shared_kb, c.files);
    return c;
}

/* A ring of neighbours: nothing that a rank needs grows to more than twice as much. */
static void neighbours_cost_the_same_among_many(void **state)
{
    (void)state;
    struct many m = {.runs = RUNS, .rows = rows()};
    char src[64], dst[64];
    struct cost few = {0}, many = {0};
    for (int i = 0; i < 2; i++) {
        m.n = i ? share_of(256, MOST) : 64;
        snprintf(src, sizeof src, "f32[%d/x] @x%%d", 100 * m.n);
        snprintf(dst, sizeof dst, "f32[%d/x~1o] @x%%d", 100 * m.n);
        m.src = src;
        m.dst = dst;
        *(i ? &many : &few) = measure(&m);
    }
    int64_t a = few.open + few.bind + few.close, b = many.open + many.bind + many.close;
    if (b > 2 * a)
        fail_msg("a rank needs %lld us, among many %lld us", (long long)a, (long long)b);
    assert_true(many.files <= few.files);
    assert_true(many.private_kb <= 2 * few.private_kb + 16);
    assert_true(many.shared_kb <= 2 * few.shared_kb + 64);
    munmap(m.rows, MOST * sizeof *m.rows);
}

/* Four times as many ranks need at most six times the time for a bind in all. */
static void bind_of_a_sum_grows_with_the_logarithm(void **state)
{
    (void)state;
    struct many m = {.src = "f32[1000] @x%d +sum(x)", .dst = "f32[1000] @x%d", .algorithm = "doubling", .rows = rows()};
    int times = (int)test_share(1, 10), n = times < 10 ? 32 : 256; /* "doubling" is for powers of two */
    struct cost few = {.bind = INT64_MAX}, many = {.bind = INT64_MAX};
    for (int i = 0; i < times || (i < TRIES && 4 * many.bind > 6 * few.bind); i++) {
        m.n = n;
        m.runs = 3;
        struct cost c = measure(&m);
        few = c.bind < few.bind ? c : few;
        m.n = 4 * n;
        m.runs = i ? 3 : (int)test_share(RUNS, RUNS); /* which all must get through, too */
        c = measure(&m);
        many = c.bind < many.bind ? c : many;
    }
    if (4 * many.bind > 6 * few.bind)
        fail_msg("%lld us for each of %d ranks, %lld us for each of four times as few", (long long)many.bind, m.n,
                 (long long)few.bind);
    assert_true(many.private_kb <= 2 * few.private_kb + 64);
    munmap(m.rows, MOST * sizeof *m.rows);
}

/* A rank that waits for its core on a busy machine knows later. */
static int64_t soon(int64_t seconds)
{
    return (test_share(0, 1) ? seconds : seconds + 10) * SECOND;
}

static void death_is_known_to_all_soon(void **state)
{
    (void)state;
    struct many m = {.n = (int)test_share(64, MOST), .rows = rows()};
    int victim = m.n / 2 + 1;
    start(&m, "shm", lose_one, victim, victim);
    int64_t died = atomic_load(&m.rows[victim].at), last = 0;
    for (int r = 0; r < m.n; r++) {
        int64_t took = atomic_load(&m.rows[r].at) - died;
        if (r == victim)
            continue;
        last = took > last ? took : last;
        if (!m.rows[r].fine)
            fail_msg("rank %d does not know which rank has died", r);
        assert_int_equal(m.rows[r].left, m.n - 1);
    }
    print_message("%d ranks: all know of a death after %lld ms\n", m.n, (long long)(last / MS));
    assert_true(last < soon(2));
    munmap(m.rows, MOST * sizeof *m.rows);
}

static void second_death_and_a_quitter_are_known_by_few_mails(void **state)
{
    (void)state;
    struct many m = {.n = share_of(72, 200), .rows = rows()};
    start(&m, "tcp", lose_two, FIRST, SECOND_ONE);
    int64_t died = atomic_load(&m.rows[SECOND_ONE].at), last = 0;
    int files = 0;
    for (int r = 0; r < m.n; r++) {
        const struct row *row = &m.rows[r];
        if (r == FIRST || r == QUITS || r == SECOND_ONE)
            continue;
        int64_t took = atomic_load(&row->at) - died;
        last = took > last ? took : last;
        files = r && row->files > files ? row->files : files; /* rank 0 leads, and hears from all */
        assert_int_equal(row->left, m.n - LEFT);
    }
    print_message("%d ranks by sockets: all know of the second death after %lld ms; at most %d files\n", m.n,
                  (long long)(last / MS), files);
    assert_true(last < soon(5));
    assert_true(files < 60);
    munmap(m.rows, MOST * sizeof *m.rows);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(neighbours_cost_the_same_among_many),
                                       cmocka_unit_test(bind_of_a_sum_grows_with_the_logarithm),
                                       cmocka_unit_test(death_is_known_to_all_soon)};
    const struct CMUnitTest wired[] = {cmocka_unit_test(second_death_and_a_quitter_are_known_by_few_mails)};
    return SUITE_MAIN(argc, argv, SUITE_ONCE(tests), SUITE_FIXTURE(wired, hosts_setup, hosts_teardown));
}
