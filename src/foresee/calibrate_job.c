/* The network between rank 0 and the first rank of another host. Each gives the other what tells machines apart, which
 * is a small message. If they are on two machines, rank 0 also gets a large message, whose time says what its NIC
 * carries, and if there are three hosts or more, their first ranks all give each other messages, which says what NICs
 * carry then. Hosts that are played on one machine share its cores, so their processor time is measured: the first
 * ranks of several hosts all give each other messages, on fewer cores than they need. Then the cores are never idle,
 * and each second has as much processor time as there are cores. Of several rounds the best one counts, and of a crowd
 * the median. */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/text.h"
#include "foresee/calibrate.h"
#include "foresee/links.h"

#define SMALL 64 /* bytes; the name of a boot has 36 letters */
#define LARGE (16 << 20)
#define CROWD LINKS_CROWD /* hosts, at most */
#define HOSTS_ON_CORE 4   /* of the crowd: they need more than one */
#define TRIES 5           /* at a crowd: other work on these cores must not make few bytes slower than many */
#define MUCH (256 << 10)  /* bytes from one host of the crowd to another; a small message tells what these cost */

/* The same on all hosts that are played on one machine. */
static void name_of_boot(char name[SMALL])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    memset(name, 0, SMALL);
    if (f && !fgets(name, SMALL, f))
        name[0] = 0;
    if (f)
        fclose(f);
}

static int make_move(const char *src, const char *dst, weft_move *out)
{
    weft_layout *a = NULL, *b = NULL;
    int err = weft_layout_parse(src, &a);
    if (!err)
        err = weft_layout_parse(dst, &b);
    *out = (weft_move){"t", a, b};
    return err;
}

static void free_move(weft_move *m)
{
    weft_layout_free((weft_layout *)m->src);
    weft_layout_free((weft_layout *)m->dst);
}

/* A tensor of `bytes` bytes on rank `from`, for rank `to`. */
static int add_move(int bytes, int from, int to, weft_move *out)
{
    char src[64], dst[64];
    snprintf(src, sizeof src, "u8[%d] @x1=%d", bytes, from);
    snprintf(dst, sizeof dst, "u8[%d] @x1=%d", bytes, to);
    return make_move(src, dst, out);
}

/* Nanoseconds of a run, and what this process took of the processors meanwhile, on average. */
struct took {
    double all, own;
};

static double own_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = ((const struct took *)a)->all, y = ((const struct took *)b)->all;
    return (x > y) - (x < y);
}

/* Runs n moves, and keeps the time of a run in the best round. Of each move this rank has the views that belong to it.
 * crowd: a round ends when it is over on all ranks, and the median is kept. */
static int time_of(weft_comm *c, const weft_move *moves, size_t n, weft_view *src, weft_view *dst, int runs, bool crowd,
                   struct took *took)
{
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    opts.world = weft_comm_size(c);
    int err = weft_lower(moves, n, weft_comm_rank(c), &opts, &plan);
    if (!err)
        err = weft_bind(plan, c, src, dst, NULL, &exec);
    struct took round[CALIBRATE_ROUNDS] = {{0}};
    for (int r = 0; r < CALIBRATE_ROUNDS && !err; r++) {
        err = weft_comm_barrier(c, WEFT_FOREVER);
        double start = calibrate_now(), own = own_now();
        for (int i = 0; i < runs && !err; i++)
            err = weft_exec_run(exec);
        if (!err && crowd)
            err = weft_comm_barrier(c, WEFT_FOREVER);
        round[r] = (struct took){(calibrate_now() - start) / runs, (own_now() - own) / runs};
    }
    qsort(round, CALIBRATE_ROUNDS, sizeof *round, compare);
    *took = round[crowd ? CALIBRATE_ROUNDS / 2 : 0];
    took->own = 0;
    for (int r = 0; r < CALIBRATE_ROUNDS; r++)
        took->own += round[r].own / CALIBRATE_ROUNDS;
    weft_exec_close(exec);
    weft_plan_free(plan);
    return err;
}

/* ---- two ranks ---- */

struct network {
    struct took small, large, brief, lengthy; /* the last two: of a crowd */
    char here[SMALL], there[SMALL];
};

static int small_time(weft_comm *c, int peer, struct network *net)
{
    const weft_view none = WEFT_VIEW(NULL, 0);
    weft_move moves[2] = {{0}};
    int rank = weft_comm_rank(c), err = add_move(SMALL, 0, peer, &moves[0]);
    if (!err)
        err = add_move(SMALL, peer, 0, &moves[1]);
    weft_view out = WEFT_VIEW(net->here, SMALL), in = WEFT_VIEW(net->there, SMALL);
    weft_view src[2] = {rank == 0 ? out : none, rank == peer ? out : none};
    weft_view dst[2] = {rank == peer ? in : none, rank == 0 ? in : none};
    if (!err)
        err = time_of(c, moves, 2, src, dst, 100, false, &net->small);
    free_move(&moves[0]);
    free_move(&moves[1]);
    return err;
}

/* Rank 0 receives, and so knows when all of it is there. */
static int large_time(weft_comm *c, int peer, struct network *net)
{
    int rank = weft_comm_rank(c);
    char *bytes = rank == 0 || rank == peer ? calloc(1, LARGE) : NULL;
    weft_view all = WEFT_VIEW(bytes, LARGE), none = WEFT_VIEW(NULL, 0);
    weft_view src = rank == peer ? all : none, dst = rank == 0 ? all : none;
    weft_move move = {0};
    int err = (rank == 0 || rank == peer) && !bytes ? error_nomem() : add_move(LARGE, peer, 0, &move);
    if (!err)
        err = time_of(c, &move, 1, &src, &dst, 4, false, &net->large);
    free_move(&move);
    free(bytes);
    return err;
}

/* ---- a crowd ---- */

struct crowd {
    int n, hosts, here; /* members, hosts of the job, ranks on the host of rank 0 */
    int first[CROWD];   /* ranks; that of the host of rank 0 is the first */
    bool played;
};

static int host_of(const weft_machine *where, int rank)
{
    return where->host ? where->host[rank] : where->ranks_per_host ? rank / where->ranks_per_host : 0;
}

static void find_crowd(const weft_machine *where, int size, struct crowd *x)
{
    *x = (struct crowd){.hosts = 1};
    for (int r = 0; r < size; r++) {
        int host = host_of(where, r);
        bool seen = false;
        x->hosts = host >= x->hosts ? host + 1 : x->hosts;
        x->here += host == host_of(where, 0);
        for (int i = 0; i < x->n; i++)
            seen |= host == host_of(where, x->first[i]);
        if (!seen && x->n < CROWD)
            x->first[x->n++] = r;
    }
}

/* All ranks hear from rank 0 whether the hosts are played. */
static int tell_played(weft_comm *c, struct crowd *x)
{
    char dst[64], word = (char)x->played, heard = 0;
    weft_move move = {0};
    snprintf(dst, sizeof dst, "u8[1] @x%d", weft_comm_size(c));
    weft_view in = WEFT_VIEW(&heard, 1),
              out = weft_comm_rank(c) ? (weft_view)WEFT_VIEW(NULL, 0) : (weft_view)WEFT_VIEW(&word, 1);
    int err = make_move("u8[1] @x1=0", dst, &move);
    struct took took;
    if (!err)
        err = time_of(c, &move, 1, &out, &in, 1, false, &took);
    free_move(&move);
    x->played = heard;
    return err;
}

/* Each member gives each other one `bytes` bytes. */
static int crowd_time(weft_comm *c, const struct crowd *x, int bytes, int runs, struct took *took)
{
    char on[128], src[192], dst[192];
    struct text t = text_start(on, sizeof on);
    bool member = false;
    for (int i = 0; i < x->n; i++) {
        text_printf(&t, "%s%d", i ? "," : "", x->first[i]);
        member |= x->first[i] == weft_comm_rank(c);
    }
    size_t all = member ? (size_t)x->n * (size_t)bytes : 0;
    char *from = calloc(1, all + 1), *to = calloc(1, all + 1);
    weft_view out = WEFT_VIEW(from, all), in = WEFT_VIEW(to, all);
    weft_move move = {0};
    snprintf(src, sizeof src, "u8[%d/x,%d] @x%d=%s", x->n, x->n * bytes, x->n, on);
    snprintf(dst, sizeof dst, "u8[%d,%d/x] @x%d=%s", x->n, x->n * bytes, x->n, on);
    int err = from && to ? make_move(src, dst, &move) : error_nomem();
    if (!err)
        err = time_of(c, &move, 1, &out, &in, runs, true, took);
    free_move(&move);
    free(from);
    free(to);
    return err;
}

/* Lets this thread, and those that it makes, use the first n of the cores of `all`. Returns how many it uses. */
static int use_cores(const cpu_set_t *all, int n)
{
    cpu_set_t some;
    int used = 0;
    CPU_ZERO(&some);
    for (size_t i = 0; i < CPU_SETSIZE && used < n; i++)
        if (CPU_ISSET(i, all)) {
            CPU_SET(i, &some);
            used++;
        }
    return used && !sched_setaffinity(0, sizeof some, &some) ? used : 0;
}

/* The threads of the comm must be on the same cores, so the crowd has a comm of its own. */
static int played_times(const struct crowd *x, struct took *small, struct took *much, int *cores)
{
    cpu_set_t all;
    weft_comm *c = NULL;
    bool known = !sched_getaffinity(0, sizeof all, &all);
    *cores = known ? use_cores(&all, x->n < 2 * HOSTS_ON_CORE ? 1 : x->n / HOSTS_ON_CORE) : 0;
    int err = weft_comm_open(NULL, NULL, &c);
    for (int i = 0; i < TRIES && !err; i++) {
        struct took a, b;
        err = crowd_time(c, x, SMALL, 20, &a);
        if (!err)
            err = crowd_time(c, x, MUCH, 4, &b);
        if (!err && (!i || a.all < small->all))
            *small = a;
        if (!err && (!i || b.all < much->all))
            *much = b;
    }
    weft_comm_close(c);
    if (*cores)
        sched_setaffinity(0, sizeof all, &all);
    return err;
}

/* ---- the job ---- */

static int measure_network(weft_comm *c, struct crowd *x, struct network *net)
{
    name_of_boot(net->here);
    int err = small_time(c, x->first[1], net);
    x->played = *net->here && !memcmp(net->here, net->there, SMALL);
    if (!err)
        err = tell_played(c, x);
    if (!err && !x->played)
        err = large_time(c, x->first[1], net);
    if (!err && !x->played && x->n > 2)
        err = crowd_time(c, x, LINKS_CROWD_SHORT, 16, &net->brief);
    if (!err && !x->played && x->n > 2)
        err = crowd_time(c, x, LINKS_CROWD_LONG, 2, &net->lengthy);
    return err;
}

static int measure_crowd(const struct crowd *x, struct machine_file *m)
{
    struct took small = {0}, much = {0};
    int cores = 0, err = played_times(x, &small, &much, &cores);
    const struct calibrate_crowd took = {.hosts = x->n,
                                         .cores = cores ? cores : (double)m->cores,
                                         .bytes = MUCH - SMALL,
                                         .small = small.all,
                                         .small_own = small.own,
                                         .much = much.all,
                                         .much_own = much.own};
    if (!err)
        calibrate_crowd(&took, m);
    return err;
}

int calibrate_job(struct machine_file *m, int *hosts, struct failure *why)
{
    weft_comm *c = NULL;
    weft_machine where = WEFT_MACHINE_INIT;
    struct crowd crowd = {0};
    struct network net = {0};
    *hosts = 0;
    int err = weft_comm_open(NULL, NULL, &c);
    if (!err)
        err = weft_comm_machine(c, &where);
    int rank = err ? 0 : weft_comm_rank(c), code = !err && rank == 0 ? calibrate_measure(m, why) : CLI_OK;
    if (!err && rank)
        code = machine_file_open("plain", m, why);
    if (!err && !code) /* the deadline is not for as long as rank 0 measures by itself */
        err = weft_comm_barrier(c, WEFT_FOREVER);
    if (!err && !code) {
        find_crowd(&where, weft_comm_size(c), &crowd);
        if (crowd.n > 1)
            err = measure_network(c, &crowd, &net);
    }
    weft_comm_close(c);
    if (!err && !code && crowd.n > 1) {
        m->ranks_per_host = crowd.here;
        m->hosts_on_cores = crowd.played ? crowd.hosts : 1;
        m->nic = crowd.played ? 0 : LARGE / net.large.all;
        if (crowd.played)
            err = measure_crowd(&crowd, m);
        else if (crowd.n > 2)
            calibrate_nics(crowd.n, net.brief.all, net.lengthy.all, m);
        double message = m->nic_message > 0 ? m->nic_message : m->message;
        /* A rank sends one message, and gets one. In a crowd a message costs more, since ranks sleep: then the two
         * cannot be told apart, and half of the time is latency. */
        m->nic_latency = fmax(net.small.all / 2, net.small.all - 2 * message);
    }
    if (err)
        code = failure_set(why, CLI_WRONG, "the network could not be measured: %s", weft_errmsg());
    else if (!code && !rank && crowd.played && m->nic_core == 0)
        code = failure_set(why, CLI_WRONG,
                           "the network could not be measured: %d KiB took no longer than %d bytes, since other work "
                           "kept the cores busy; try again when they are idle",
                           MUCH >> 10, SMALL);
    *hosts = rank ? 0 : crowd.hosts;
    return code;
}
