/* The network between rank 0 and the first rank of another host. Each gives the other what tells machines apart, which
 * is a small message, and rank 0 gets a large one. The best of several rounds counts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "foresee/calibrate.h"

#define SMALL 64 /* bytes; the name of a boot has 36 letters */
#define LARGE (16 << 20)

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

/* A tensor of `bytes` bytes on rank `from`, for rank `to`. */
static int add_move(int bytes, int from, int to, weft_move *out)
{
    char src[64], dst[64];
    weft_layout *a = NULL, *b = NULL;
    snprintf(src, sizeof src, "u8[%d] @x1=%d", bytes, from);
    snprintf(dst, sizeof dst, "u8[%d] @x1=%d", bytes, to);
    int err = weft_layout_parse(src, &a);
    if (!err)
        err = weft_layout_parse(dst, &b);
    *out = (weft_move){"t", a, b};
    return err;
}

/* Runs n moves and keeps the best time of a run. Of each move this rank has the views that belong to it. */
static int time_of(weft_comm *c, const weft_move *moves, size_t n, weft_view *src, weft_view *dst, int runs,
                   double *best)
{
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    weft_lower_opts opts = WEFT_LOWER_OPTS_INIT;
    opts.world = weft_comm_size(c);
    int err = weft_lower(moves, n, weft_comm_rank(c), &opts, &plan);
    if (!err)
        err = weft_bind(plan, c, src, dst, NULL, &exec);
    *best = INFINITY;
    for (int r = 0; r < CALIBRATE_ROUNDS && !err; r++) {
        err = weft_comm_barrier(c, WEFT_FOREVER);
        double start = calibrate_now();
        for (int i = 0; i < runs && !err; i++)
            err = weft_exec_run(exec);
        *best = fmin(*best, (calibrate_now() - start) / runs);
    }
    weft_exec_close(exec);
    weft_plan_free(plan);
    return err;
}

struct network {
    double small, large; /* nanoseconds */
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
        err = time_of(c, moves, 2, src, dst, 100, &net->small);
    for (int i = 0; i < 2; i++) {
        weft_layout_free((weft_layout *)moves[i].src);
        weft_layout_free((weft_layout *)moves[i].dst);
    }
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
        err = time_of(c, &move, 1, &src, &dst, 4, &net->large);
    weft_layout_free((weft_layout *)move.src);
    weft_layout_free((weft_layout *)move.dst);
    free(bytes);
    return err;
}

static int measure_network(weft_comm *c, const weft_machine *where, struct machine_file *m, int *hosts)
{
    struct network net;
    int peer = 0, size = weft_comm_size(c);
    while (peer < size &&
           (where->host ? where->host[peer] == where->host[0] : !where->ranks_per_host || peer < where->ranks_per_host))
        peer++;
    *hosts = 1;
    if (peer == size)
        return 0;
    int here = 0; /* ranks on the host of rank 0, which need not be one after the other */
    for (int r = 0; r < size; r++) {
        int host = where->host ? where->host[r] : r / where->ranks_per_host;
        *hosts = host >= *hosts ? host + 1 : *hosts;
        here += host == (where->host ? where->host[0] : 0);
    }
    name_of_boot(net.here);
    int err = small_time(c, peer, &net);
    if (!err)
        err = large_time(c, peer, &net);
    if (err)
        return err;
    bool played = *net.here && !memcmp(net.here, net.there, SMALL);
    double rate = LARGE / net.large;
    m->ranks_per_host = here;
    m->hosts_on_cores = played ? *hosts : 1;
    m->nic = played ? 0 : rate;
    m->nic_core = played ? rate : 0;
    m->nic_latency = fmax(0, net.small - 2 * m->message); /* a rank sends one message, and gets one */
    return 0;
}

int calibrate_job(struct machine_file *m, int *hosts, struct failure *why)
{
    weft_comm *c = NULL;
    weft_machine where = WEFT_MACHINE_INIT;
    *hosts = 0;
    int err = weft_comm_open(NULL, NULL, &c);
    if (!err)
        err = weft_comm_machine(c, &where);
    int rank = err ? 0 : weft_comm_rank(c), code = !err && rank == 0 ? calibrate_measure(m, why) : CLI_OK;
    if (!err && rank)
        code = machine_file_open("plain", m, why);
    if (!err && !code)
        err = measure_network(c, &where, m, hosts);
    if (err)
        code = failure_set(why, CLI_WRONG, "the network could not be measured: %s", weft_errmsg());
    weft_comm_close(c);
    *hosts = rank ? 0 : *hosts;
    return code;
}
