/* Starting, driving and ending the groups of ranks; see contenders.h. */
#define _GNU_SOURCE
#include "bench/harness/contenders.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/ranks/floor.h"
#include "tool/signals.h"
#include "weft.h"

#define ORDER_LIMIT 30.0 /* s: a contender that takes longer for one order is ended */
#define POLL 0.05
#define QUIT 5.0 /* s for ranks to end by themselves; a launcher may take longer to end its ranks */

struct contender *contenders_add(struct contenders *f, const char *name, enum work_kind kind, int ranks)
{
    struct contender *c = &f->c[f->n++];
    *c = (struct contender){.kind = kind, .fd = memfd_create("weft-bench", 0), .log = -1};
    snprintf(c->name, sizeof c->name, "%s", name);
    if (c->fd >= 0 && !ftruncate(c->fd, sizeof *c->orders)) {
        void *p = mmap(NULL, sizeof *c->orders, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
        c->orders = p == MAP_FAILED ? NULL : p;
    }
    if (c->orders)
        c->orders->ranks = (uint32_t)ranks;
    else
        c->out = true, snprintf(c->why, sizeof c->why, "no shared memory: %s", strerror(errno));
    return c;
}

static void give_up(struct contender *c, const char *why)
{
    c->out = true;
    snprintf(c->why, sizeof c->why, "%s", why);
}

pid_t contenders_spawn(struct contender *c)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid > 0) {
        c->pid[c->npids++] = pid;
    } else if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGINT, SIG_IGN); /* from the terminal: the command itself ends its ranks */
        signal(SIGHUP, SIG_IGN);
        signal(SIGTERM, SIG_DFL);
        if (getppid() != parent)
            _exit(1);
    } else {
        give_up(c, "a process could not be started");
    }
    return pid;
}

/* ---- weft ---- */

struct weft_thread {
    const struct weft_setup *how;
    const char *url;
    int rank;
    struct orders *orders;
};

static void *thread_main(void *arg)
{
    const struct weft_thread *t = arg;
    rank_weft_serve(t->how, t->url, t->rank, t->orders);
    return NULL;
}

static void serve_threads(const struct weft_setup *how, int ranks, struct orders *b)
{
    static struct weft_thread t[ORDERS_RANKS];
    pthread_t id[ORDERS_RANKS];
    char url[64];
    snprintf(url, sizeof url, "threads:%d/bench", ranks);
    for (int r = 0; r < ranks; r++) {
        t[r] = (struct weft_thread){how, url, r, b};
        if (pthread_create(&id[r], NULL, thread_main, &t[r]))
            _exit(1);
    }
    for (int r = 0; r < ranks; r++)
        pthread_join(id[r], NULL);
}

/* Called in the process of a rank, before its comm is opened. What the user has switched off stays off. */
static void set_up(const struct weft_setup *how)
{
    const char *others = getenv("WEFT_WAYS"), *name = how->without;
    char list[256];
    if (how->check)
        setenv("WEFT_CHECK", "1", 1);
    if (!name)
        return;
    snprintf(list, sizeof list, "%s%s-%s", others ? others : "", others && *others ? "," : "", name);
    setenv("WEFT_WAYS", list, 1);
}

void contenders_add_weft(struct contenders *f, const struct weft_setup *how, int ranks)
{
    char name[40];
    snprintf(name, sizeof name, how->without ? "weft -%s" : how->check ? "weft, checked" : "weft", how->without);
    struct contender *c = contenders_add(f, name, WORK_WEFT, ranks);
    c->without = how->without;
    if (!strcmp(how->on, "threads:")) {
        if (!c->out && !contenders_spawn(c)) {
            set_up(how);
            serve_threads(how, ranks, c->orders);
            _exit(0);
        }
        return;
    }
    static int number; /* number of the group: earlier groups may not have left yet */
    char url[128];
    snprintf(url, sizeof url, "%sbench-%ld-%d-%d", how->on, (long)getpid(), ranks, number++);
    for (int r = 0; r < ranks && !c->out; r++)
        if (!contenders_spawn(c)) {
            if (how->link && !link_enter(how->link, link_host(how->link, r, ranks)))
                _exit(1);
            set_up(how);
            rank_weft_serve(how, url, r, c->orders);
            _exit(0);
        }
}

/* ---- the floor ---- */

static void add_floor(struct contenders *f, const char *name, enum work_kind kind, int ranks, enum floor_wait wait,
                      bool staged, size_t in, size_t out)
{
    struct contender *c = contenders_add(f, name, kind, ranks);
    struct floor *fl = c->out ? NULL : floor_create(ranks, wait, staged, in, out);
    if (!fl && !c->out)
        give_up(c, "no memory for its windows");
    for (int r = 0; r < ranks && !c->out; r++)
        if (!contenders_spawn(c)) {
            floor_serve(fl, r, c->orders);
            _exit(0);
        }
    floor_free(fl); /* the ranks have the memory */
}

void contenders_add_floors(struct contenders *f, int ranks, bool staged, const struct work_cell *cells, int ncells)
{
    size_t most_in = 0, most_out = 0;
    for (int i = 0; i < ncells; i++)
        for (int r = 0; r < ranks; r++) {
            size_t in, out;
            work_sizes(&cells[i], r, ranks, &in, &out);
            if (cells[i].op == WORK_BROADCAST)
                in = out; /* staged */
            most_in = in > most_in ? in : most_in;
            most_out = out > most_out ? out : most_out;
        }
    if (ranks <= work_cores()) {
        add_floor(f, "floor spin", WORK_FLOOR, ranks, FLOOR_SPIN, staged, most_in, most_out);
    } else {
        add_floor(f, "floor yield", WORK_FLOOR, ranks, FLOOR_YIELD, staged, most_in, most_out);
        add_floor(f, "floor yield+futex", WORK_FLOOR, ranks, FLOOR_HYBRID, staged, most_in, most_out);
    }
}

void contenders_add_memory(struct contenders *f, int workers)
{
    add_floor(f, "memory", WORK_MEMORY, workers, FLOOR_SPIN, false, 0, 0);
}

/* ---- driving ---- */

static void kill_all(struct contender *c)
{
    for (int i = 0; i < c->npids; i++)
        if (c->pid[i])
            kill(c->pid[i], c->kind == WORK_PEER ? SIGTERM : SIGKILL);
}

static void reap(struct contender *c)
{
    double from = work_now();
    int asked = 0;
    for (int i = 0; i < c->npids; i++)
        while (c->pid[i] && waitpid(c->pid[i], NULL, WNOHANG) == 0) {
            double waited = work_now() - from;
            if (asked == 0 && (waited > QUIT || signals_caught()))
                kill_all(c), asked = 1;
            else if (asked == 1 && waited > 6 * QUIT)
                kill(c->pid[i], SIGKILL);
            usleep(1000);
        }
    c->npids = 0;
}

/* Has one of its processes ended? Says which, and how. */
static bool one_ended(struct contender *c, char *how, size_t cap)
{
    for (int i = 0; i < c->npids; i++) {
        int status;
        if (!c->pid[i] || waitpid(c->pid[i], &status, WNOHANG) != c->pid[i])
            continue;
        c->pid[i] = 0;
        if (c->npids != (int)c->orders->ranks)
            snprintf(how, cap, "a rank ended");
        else if (WIFSIGNALED(status))
            snprintf(how, cap, "rank %d was ended by signal %d (%s)", i, WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
            snprintf(how, cap, "rank %d ended with code %d", i, WEXITSTATUS(status));
        return true;
    }
    return false;
}

/* Notes how it ended, and the first words of a peer on stderr. */
static void say_log(struct contender *c, const char *how)
{
    char text[200];
    ssize_t n = c->log < 0 ? 0 : pread(c->log, text, sizeof text - 1, 0);
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = ' ';
    text[n > 0 ? n : 0] = 0;
    char why[300];
    snprintf(why, sizeof why, "%s%s%s", how, n > 0 ? ": " : "", text);
    give_up(c, why);
}

int contenders_do(struct contender *c, const struct order *order)
{
    if (c->out)
        return -1;
    double from = work_now();
    char how[96];
    orders_give(c->orders, order);
    while (!orders_await(c->orders, POLL) && !c->out) {
        if (signals_caught())
            give_up(c, "interrupted");
        else if (one_ended(c, how, sizeof how))
            say_log(c, how);
        else if (work_now() - from > ORDER_LIMIT)
            give_up(c, "took more than 30 s for one order");
    }
    bool refused = false;
    for (uint32_t r = 0; r < c->orders->ranks && !c->out && !refused; r++)
        if (c->orders->report[r].err) {
            snprintf(c->why, sizeof c->why, "rank %u: %s", r, c->orders->report[r].why);
            refused = true;
        }
    if (refused && order->verb != ORDER_OPEN) /* otherwise it may still do other cells */
        c->out = true;
    if (c->out)
        kill_all(c);
    return c->out || refused ? -1 : 0;
}

void contenders_close(struct contenders *f)
{
    struct order quit = {.verb = ORDER_QUIT};
    for (int i = 0; i < f->n; i++) {
        struct contender *c = &f->c[i];
        if (!c->out)
            orders_give(c->orders, &quit);
    }
    for (int i = 0; i < f->n; i++) {
        struct contender *c = &f->c[i];
        reap(c);
        if (c->orders)
            munmap(c->orders, sizeof *c->orders);
        if (c->fd >= 0)
            close(c->fd);
        if (c->log >= 0)
            close(c->log);
    }
    f->n = 0;
}
