/* weft bench overlap: how much of an exchange hides behind computation, by the progress thread and without one. Each
 * rank gives its bytes to the next and computes in registers for as long as the exchange takes alone: alone, the one
 * and the other, and then both at once (start, compute, wait), one after another in every round. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/work.h"
#include "cli/args.h"
#include "cli/bench.h"
#include "cli/crew.h"
#include "weft.h"

enum { MOST_ROUNDS = 1000, BEST = 9 };
#define TWO_CORES 1.05 /* at most so many times the sum of both alone */
#define FOUR_CORES 80  /* at least so many per cent are hidden */

struct times {
    double exchange[MOST_ROUNDS], compute[MOST_ROUNDS], both[MOST_ROUNDS];
};

/* What parent and ranks share. */
struct overlap {
    int ranks, rounds;
    int64_t bytes;
    bool private_;
    enum weft_progress progress;
    int64_t wrong;
    double best; /* written by rank 0 between barriers */
    volatile double sink; /* so that computing is not left out */
    struct times times;   /* of rank 0, from one barrier to the next */
};

struct side {
    weft_comm *comm;
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_exec *exec;
    unsigned char *in, *out;
};

static double compute(int64_t turns)
{
    double a = 1, b = 2, c = 3, d = 4;
    for (int64_t i = 0; i < turns; i++) {
        a = a * 0.999999 + 0.5;
        b = b * 0.999998 + 0.5;
        c = c * 0.999997 + 0.5;
        d = d * 0.999996 + 0.5;
    }
    return a + b + c + d;
}

static int get_memory(struct side *s, const struct overlap *o, unsigned char **out)
{
    void *memory = NULL;
    int err = o->private_ ? 0 : weft_comm_alloc(s->comm, (size_t)o->bytes, &memory);
    if (o->private_ && !(memory = malloc((size_t)o->bytes)))
        err = WEFT_ENOMEM;
    *out = memory;
    return err;
}

static int open_side(struct side *s, const struct overlap *o, int rank)
{
    char url[64], src[64], dst[4096];
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank, .ranks = o->ranks, .progress = o->progress};
    snprintf(url, sizeof url, "shm:bench-overlap-%ld", (long)getppid());
    snprintf(src, sizeof src, "u8[%lld/x] @x%d", (long long)o->bytes * o->ranks, o->ranks);
    int len = snprintf(dst, sizeof dst, "%s=", src);
    for (int r = 1; r <= o->ranks; r++)
        len += snprintf(dst + len, sizeof dst - (size_t)len, "%s%d", r > 1 ? "," : "", r % o->ranks);
    int err = weft_comm_open(url, &opts, &s->comm);
    if (!err)
        err = weft_layout_parse(src, &s->src);
    if (!err)
        err = weft_layout_parse(dst, &s->dst);
    if (!err)
        err = weft_lower(&(weft_move){"w", s->src, s->dst}, 1, rank, NULL, &s->plan);
    if (!err)
        err = get_memory(s, o, &s->in);
    if (!err)
        err = get_memory(s, o, &s->out);
    if (err)
        return err;
    memset(s->in, rank + 1, (size_t)o->bytes);
    memset(s->out, 0, (size_t)o->bytes);
    weft_view from = {s->in, (size_t)o->bytes, NULL}, to = {s->out, (size_t)o->bytes, NULL};
    return weft_bind(s->plan, s->comm, &from, &to, NULL, &s->exec);
}

static void close_side(struct side *s, const struct overlap *o)
{
    weft_exec_free(s->exec);
    if (o->private_) {
        free(s->in);
        free(s->out);
    }
    weft_plan_free(s->plan);
    weft_layout_free(s->src);
    weft_layout_free(s->dst);
    weft_comm_close(s->comm);
}

/* One part of a round, from the time when all ranks are there to the time when all are through. */
static int part(struct side *s, struct overlap *o, bool exchange, int64_t turns, double *took)
{
    int err = weft_comm_barrier(s->comm, -1);
    double start = work_now();
    if (!err && exchange)
        err = weft_exec_start(s->exec);
    if (!err && turns)
        o->sink = compute(turns);
    if (!err && exchange)
        err = weft_exec_wait(s->exec, -1);
    if (!err)
        err = weft_comm_barrier(s->comm, -1);
    *took = work_now() - start;
    return err;
}

/* The best of some, since the others were held up; rank 0's, so that all go on alike. */
static int best(struct side *s, struct overlap *o, bool exchange, int64_t turns, double *took)
{
    double each, least = 1e9;
    int err = 0;
    for (int i = 0; i < BEST && !err; i++) {
        err = part(s, o, exchange, turns, &each);
        least = each < least ? each : least;
    }
    if (!err && weft_comm_rank(s->comm) == 0)
        o->best = least;
    if (!err)
        err = weft_comm_barrier(s->comm, -1);
    *took = o->best;
    return err;
}

/* Turns that last as long as the exchange, when all ranks compute. */
static int calibrate(struct side *s, struct overlap *o, int64_t *turns)
{
    double exchange, took = 0;
    int err = best(s, o, true, 0, &exchange);
    if (!err)
        err = best(s, o, true, 0, &exchange); /* now that all is warm */
    for (*turns = 1000; !err && took < 0.002; *turns *= 2)
        err = best(s, o, false, *turns, &took);
    *turns = (int64_t)((double)*turns / 2 * exchange / took) + 1;
    return err;
}

static int measure(void *arg, int rank)
{
    struct overlap *o = arg;
    struct side s = {0};
    struct times *t = &o->times;
    int64_t turns = 0;
    int err = open_side(&s, o, rank);
    if (!err)
        err = calibrate(&s, o, &turns);
    for (int i = 0; i < o->rounds && !err; i++) {
        double e, c, b;
        err = part(&s, o, true, 0, &e);
        if (!err)
            err = part(&s, o, false, turns, &c);
        if (!err)
            err = part(&s, o, true, turns, &b);
        if (!err && rank == 0) {
            t->exchange[i] = e;
            t->compute[i] = c;
            t->both[i] = b;
        }
    }
    for (int64_t i = 0; i < o->bytes && !err; i++)
        if (s.out[i] != (rank + o->ranks - 1) % o->ranks + 1) {
            o->wrong++;
            break;
        }
    close_side(&s, o);
    return err;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

/* Prints a line and says whether what is aimed at is met; -1: nothing is aimed at here. */
static int tell(struct overlap *o)
{
    double e = median(o->times.exchange, o->rounds), c = median(o->times.compute, o->rounds),
           b = median(o->times.both, o->rounds), hidden = 100 * (e + c - b) / e;
    bool thread = o->progress == WEFT_PROGRESS_THREAD;
    printf("%-9s %10.3f %10.3f %10.3f %8.3f %7.0f%% %6lld\n", thread ? "thread" : "caller", e * 1e3, c * 1e3, b * 1e3,
           b / (e + c), hidden, (long long)o->wrong);
    if (!thread)
        return -1;
    if (work_cores() >= 2 * o->ranks)
        return hidden >= FOUR_CORES;
    return work_cores() >= o->ranks ? b / (e + c) <= TWO_CORES : -1;
}

static int run_both(struct overlap *o, struct failure *why)
{
    int met = -1, code = CLI_OK;
    for (int way = 0; way < 2 && !code; way++) {
        struct crew *crew;
        o->progress = way ? WEFT_PROGRESS_THREAD : WEFT_PROGRESS_CALLER;
        code = crew_open(o->ranks, &crew, why);
        if (code)
            return code;
        if (crew_do(crew, measure, o, why))
            code = CLI_WRONG;
        crew_close(crew);
        if (!code)
            met = tell(o);
        if (!code && o->wrong)
            code = failure_set(why, CLI_WRONG, "wrong bytes came");
    }
    if (!code && met >= 0 && work_cores() >= 2 * o->ranks)
        printf("\nthread: aim at least %d%% hidden: %s\n", FOUR_CORES, met ? "met" : "missed");
    else if (!code && met >= 0)
        printf("\nthread: aim at most %.2f times the sum: %s\n", TWO_CORES, met ? "met" : "missed");
    return code;
}

int bench_overlap(int argc, char **argv)
{
    int64_t ranks = 2, bytes = 16 << 20, rounds = 50;
    bool private_ = false;
    const struct args_option options[] = {
        {"n", ARGS_INT, "N", "ranks (default 2)", &ranks, 2, 256},
        {"bytes", ARGS_BYTES, "B", "that each rank gives to the next (default 16M)", &bytes, 1, INT64_C(1) << 32},
        {"rounds", ARGS_INT, "N", "of which the median counts (default 50)", &rounds, 1, MOST_ROUNDS},
        {"private", ARGS_FLAG, NULL, "tensors in private memory", &private_, 0, 0},
        {0},
    };
    const struct args_verb verb = {
        "bench overlap", "[options]",
        "An exchange alone, computation of the same length alone, and both at once (start, compute, wait), with\n"
        "progress by the caller and by a thread; ranks are processes.",
        options, 0};
    int words, code = args_parse(&verb, argc, argv, NULL, &words);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct failure why = {0};
    struct overlap *o = crew_alloc(sizeof *o);
    if (!o)
        return failure_print(&(struct failure){CLI_WRONG, "out of memory"}, "bench overlap");
    *o = (struct overlap){.ranks = (int)ranks, .rounds = (int)rounds, .bytes = bytes, .private_ = private_};
    printf("%d ranks, %lld bytes from each to the next, %d cores; ms, medians of %d rounds.\n"
           "of sum: both at once over the sum of both alone; hidden: of the exchange behind the computation.\n\n",
           o->ranks, (long long)bytes, work_cores(), o->rounds);
    printf("%-9s %10s %10s %10s %8s %8s %6s\n", "progress", "exchange", "compute", "both", "of sum", "hidden", "wrong");
    code = run_both(o, &why);
    crew_free(o, sizeof *o);
    return code ? failure_print(&why, "bench overlap") : CLI_OK;
}
