/* Starting, driving and ending the groups of ranks; see bench_field.h. */
#define _GNU_SOURCE
#include "cli/bench_field.h"

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

#include "bench/floor.h"
#include "weft.h"

#define ORDER_LIMIT 120.0 /* s: who takes longer for one order is ended */
#define POLL 0.05

/* The next contender, with a board; out already if there is none to be had. */
static struct contender *add(struct field *f, const char *name, enum work_kind kind, int ranks)
{
    struct contender *c = &f->c[f->n++];
    *c = (struct contender){.kind = kind, .fd = memfd_create("weft-bench", 0), .log = -1};
    snprintf(c->name, sizeof c->name, "%s", name);
    if (c->fd >= 0 && !ftruncate(c->fd, sizeof *c->board)) {
        void *p = mmap(NULL, sizeof *c->board, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
        c->board = p == MAP_FAILED ? NULL : p;
    }
    if (c->board)
        c->board->ranks = (uint32_t)ranks;
    else
        c->out = true, snprintf(c->why, sizeof c->why, "no shared memory: %s", strerror(errno));
    return c;
}

static void give_up(struct contender *c, const char *why)
{
    c->out = true;
    snprintf(c->why, sizeof c->why, "%s", why);
}

/* A child that dies with this process; 0 in it. */
static pid_t spawn(struct contender *c)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid > 0) {
        c->pid[c->npids++] = pid;
    } else if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    } else {
        give_up(c, "a process could not be started");
    }
    return pid;
}

/* ---- weft ---- */

struct weft_thread {
    const struct field_weft *how;
    const char *url;
    int rank;
    struct board *board;
};

static void *thread_main(void *arg)
{
    const struct weft_thread *t = arg;
    weft_rank_serve(t->how, t->url, t->rank, t->board);
    return NULL;
}

static void serve_threads(const struct field_weft *how, int ranks, struct board *b)
{
    static struct weft_thread t[BOARD_RANKS];
    pthread_t id[BOARD_RANKS];
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

void field_add_weft(struct field *f, const struct field_weft *how, int ranks)
{
    struct contender *c = add(f, "weft", WORK_WEFT, ranks);
    if (!strcmp(how->on, "threads:")) {
        if (!c->out && !spawn(c)) {
            serve_threads(how, ranks, c->board);
            _exit(0);
        }
        return;
    }
    char url[128];
    snprintf(url, sizeof url, "%sbench-%ld-%d", how->on, (long)getpid(), ranks);
    for (int r = 0; r < ranks && !c->out; r++)
        if (!spawn(c)) {
            weft_rank_serve(how, url, r, c->board);
            _exit(0);
        }
}

/* ---- the floor ---- */

static void add_floor(struct field *f, const char *name, enum work_kind kind, int ranks, enum floor_wait wait, bool staged,
                      size_t in, size_t out)
{
    struct contender *c = add(f, name, kind, ranks);
    struct floor *fl = c->out ? NULL : floor_create(ranks, wait, staged, in, out);
    if (!fl && !c->out)
        give_up(c, "no memory for its windows");
    for (int r = 0; r < ranks && !c->out; r++)
        if (!spawn(c)) {
            floor_serve(fl, r, c->board);
            _exit(0);
        }
    floor_free(fl); /* the ranks have it */
}

void field_add_floors(struct field *f, int ranks, bool staged, const struct work_cell *cells, int ncells)
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

void field_add_memory(struct field *f, int workers)
{
    add_floor(f, "memory", WORK_MEMORY, workers, FLOOR_SPIN, false, 0, 0);
}

/* ---- MPI ---- */

enum fits { FITS = 1, OVER = 2, BOTH = 3 }; /* no more ranks than cores; more */

#define OB1 "--mca", "pml", "ob1", "--mca", "btl", "vader,self"
#define CMA "--mca", "btl_vader_single_copy_mechanism", "cma"
#define NOCMA "--mca", "btl_vader_single_copy_mechanism", "none"
#define UCX "--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"
#define SM "--mca", "coll_sm_priority", "90"
#define YIELD "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"
#define SPIN "--bind-to", "none", "--mca", "mpi_yield_when_idle", "0"
#define BOUND "--bind-to", "core", "--mca", "mpi_yield_when_idle", "0"

static const struct setting {
    const char *name, *program, *launcher;
    enum fits when;
    const char *args[20];
} settings[] = {
    {"Open MPI cma spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", OB1, CMA, BOUND}},
    {"Open MPI nocma spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", OB1, NOCMA, BOUND}},
    {"Open MPI ucx spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", UCX, BOUND}},
    {"Open MPI sm spin", "peer_openmpi", "mpirun.openmpi", FITS, {"--oversubscribe", OB1, CMA, SM, BOUND}},
    {"Open MPI cma spin", "peer_openmpi", "mpirun.openmpi", OVER, {"--oversubscribe", OB1, CMA, SPIN}},
    {"Open MPI cma yield", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", OB1, CMA, YIELD}},
    {"Open MPI nocma yield", "peer_openmpi", "mpirun.openmpi", BOTH, {"--oversubscribe", OB1, NOCMA, YIELD}},
    {"Open MPI ucx yield", "peer_openmpi", "mpirun.openmpi", OVER, {"--oversubscribe", UCX, YIELD}},
    {"Open MPI sm yield", "peer_openmpi", "mpirun.openmpi", OVER, {"--oversubscribe", OB1, CMA, SM, YIELD}},
    {"MPICH", "peer_mpich", "mpiexec.hydra", BOTH, {0}},
};
#define SETTINGS (sizeof settings / sizeof *settings)

static bool on_path(const char *program)
{
    char name[1024];
    const char *path = getenv("PATH");
    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        if ((size_t)snprintf(name, sizeof name, "%.*s/%s", (int)n, path, program) < sizeof name && !access(name, X_OK))
            return true;
    }
    return false;
}

/* Where the peers' programs are: beside the command in a build tree, below libexec where it is installed. */
static bool find_program(const char *program, char *out, size_t cap)
{
    static const char *const places[] = {"bench", "../libexec/weft"};
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return false;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    *(slash ? slash : self) = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if ((size_t)snprintf(out, cap, "%s/%s/%s", self, places[i], program) < cap && !access(out, X_OK))
            return true;
    return false;
}

static void exec_peer(const struct contender *c, const struct setting *s, int ranks, const char *program)
{
    char n[16], board[64];
    const char *argv[40] = {s->launcher, "-n", n};
    int argc = 3;
    snprintf(n, sizeof n, "%d", ranks);
    snprintf(board, sizeof board, "/proc/%ld/fd/%d", (long)getppid(), c->fd);
    for (int i = 0; s->args[i]; i++)
        argv[argc++] = s->args[i];
    argv[argc++] = program;
    argv[argc++] = board;
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the launcher then ends its ranks */
    if (!freopen("/dev/null", "r", stdin) || dup2(c->log, STDOUT_FILENO) < 0 || dup2(c->log, STDERR_FILENO) < 0)
        _exit(127);
    execvp(s->launcher, (char *const *)argv);
    _exit(127);
}

int field_add_peers(struct field *f, int ranks)
{
    enum fits now = ranks <= work_cores() ? FITS : OVER;
    int n = 0;
    for (size_t i = 0; i < SETTINGS; i++) {
        char program[600];
        if (!(settings[i].when & now) || !on_path(settings[i].launcher) ||
            !find_program(settings[i].program, program, sizeof program))
            continue;
        struct contender *c = add(f, settings[i].name, WORK_PEER, ranks);
        c->log = memfd_create("weft-bench-log", 0);
        if (!c->out && !spawn(c))
            exec_peer(c, &settings[i], ranks, program);
        n++;
    }
    return n;
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
    for (int i = 0; i < c->npids; i++)
        while (c->pid[i] && waitpid(c->pid[i], NULL, WNOHANG) == 0) {
            if (work_now() - from > 10)
                kill(c->pid[i], SIGKILL);
            usleep(1000);
        }
    c->npids = 0;
}

static bool one_ended(struct contender *c)
{
    for (int i = 0; i < c->npids; i++)
        if (c->pid[i] && waitpid(c->pid[i], NULL, WNOHANG) == c->pid[i]) {
            c->pid[i] = 0;
            return true;
        }
    return false;
}

/* What a peer said on stderr, its first words. */
static void say_log(struct contender *c)
{
    char text[200];
    ssize_t n = c->log < 0 ? 0 : pread(c->log, text, sizeof text - 1, 0);
    for (ssize_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ')
            text[i] = ' ';
    text[n > 0 ? n : 0] = 0;
    char why[300];
    snprintf(why, sizeof why, "a rank ended%s%s", n > 0 ? ": " : "", text);
    give_up(c, why);
}

int contender_do(struct contender *c, const struct board_order *order)
{
    if (c->out)
        return -1;
    double from = work_now();
    board_order(c->board, order);
    while (!board_wait(c->board, POLL) && !c->out) {
        if (one_ended(c))
            say_log(c);
        else if (work_now() - from > ORDER_LIMIT)
            give_up(c, "took too long");
    }
    for (uint32_t r = 0; r < c->board->ranks && !c->out; r++)
        if (c->board->report[r].err) {
            char why[300];
            snprintf(why, sizeof why, "rank %u: %s", r, c->board->report[r].why);
            give_up(c, why);
        }
    if (c->out)
        kill_all(c);
    return c->out ? -1 : 0;
}

void field_close(struct field *f)
{
    struct board_order quit = {.verb = BOARD_QUIT};
    for (int i = 0; i < f->n; i++) {
        struct contender *c = &f->c[i];
        if (!c->out)
            board_order(c->board, &quit);
    }
    for (int i = 0; i < f->n; i++) {
        struct contender *c = &f->c[i];
        reap(c);
        if (c->board)
            munmap(c->board, sizeof *c->board);
        if (c->fd >= 0)
            close(c->fd);
        if (c->log >= 0)
            close(c->log);
    }
    f->n = 0;
}
