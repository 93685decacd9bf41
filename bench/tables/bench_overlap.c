/* weft bench overlap: how much of an exchange hides behind computation, by the progress thread and without one. Each
 * rank gives its bytes to the next and computes in registers for as long as the exchange takes alone. Every round
 * measures the exchange alone, the computation alone, and both at once (start, compute, wait). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/tables/bench.h"
#include "bench/work/median.h"
#include "bench/work/work.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/signals.h"
#include "tool/worker_processes.h"
#include "weft.h"

enum { MOST_ROUNDS = 1000, BEST = 9 };
#define TWO_CORES 1.05 /* at most this many times the sum of both alone */
#define FOUR_CORES 80  /* at least this many per cent are hidden */

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
    double best;          /* written by rank 0 between barriers */
    volatile double sink; /* so that the compiler does not remove the computation */
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
    int err = o->private_ ? 0 : weft_comm_alloc(s->comm, (size_t)o->bytes, WEFT_MEMORY_HOST, 0, &memory);
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
    weft_view from = WEFT_VIEW(s->in, (size_t)o->bytes), to = WEFT_VIEW(s->out, (size_t)o->bytes);
    return weft_bind(s->plan, s->comm, &from, &to, NULL, &s->exec);
}

static void close_side(struct side *s, const struct overlap *o)
{
    weft_exec_close(s->exec);
    if (o->private_) {
        free(s->in);
        free(s->out);
    }
    weft_plan_free(s->plan);
    weft_layout_free(s->src);
    weft_layout_free(s->dst);
    weft_comm_close(s->comm);
}

/* One part of a round, from the time when all ranks have arrived to the time when all have finished. */
static int part(struct side *s, struct overlap *o, bool exchange, int64_t turns, double *took)
{
    int err = weft_comm_barrier(s->comm, WEFT_DEADLINE);
    double start = work_now();
    if (!err && exchange)
        err = weft_exec_start(s->exec);
    if (!err && turns)
        o->sink = compute(turns);
    if (!err && exchange)
        err = weft_exec_wait(s->exec, WEFT_FOREVER);
    if (!err)
        err = weft_comm_barrier(s->comm, WEFT_DEADLINE);
    *took = work_now() - start;
    return err;
}

/* The best of several, since others were disturbed. All ranks use rank 0's, so that they go on in the same way. */
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
        err = weft_comm_barrier(s->comm, WEFT_DEADLINE);
    *took = o->best;
    return err;
}

/* Turns that last as long as the exchange, when all ranks compute. */
static int calibrate(struct side *s, struct overlap *o, int64_t *turns)
{
    double exchange, took = 0;
    int err = best(s, o, true, 0, &exchange);
    if (!err)
        err = best(s, o, true, 0, &exchange); /* again, now that caches are warm */
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

/* Medians of one way, in seconds. */
struct line {
    const char *progress;
    double exchange, compute, both;
    int64_t wrong;
};

static double of_sum(const struct line *l)
{
    return l->both / (l->exchange + l->compute);
}

static double hidden(const struct line *l) /* per cent of the exchange */
{
    return 100 * (l->exchange + l->compute - l->both) / l->exchange;
}

/* The aim with a progress thread, and whether it is met. False: there is no aim for this number of cores. */
static bool aim(const struct overlap *o, const struct line *l, char *text, size_t cap)
{
    if (work_cores() >= 2 * o->ranks)
        snprintf(text, cap, "at least %d%% hidden: %s", FOUR_CORES, hidden(l) >= FOUR_CORES ? "met" : "missed");
    else if (work_cores() >= o->ranks)
        snprintf(text, cap, "at most %.2f times the sum: %s", TWO_CORES, of_sum(l) <= TWO_CORES ? "met" : "missed");
    return work_cores() >= o->ranks;
}

static int run(struct overlap *o, enum weft_progress progress, struct line *out, struct failure *why)
{
    struct worker_processes *processes;
    o->progress = progress;
    int code = worker_processes_open(o->ranks, &processes, why);
    if (code)
        return code;
    if (worker_processes_do(processes, measure, o, why))
        code = CLI_WRONG;
    worker_processes_close(processes);
    *out = (struct line){progress == WEFT_PROGRESS_THREAD ? "thread" : "caller", median(o->times.exchange, o->rounds),
                         median(o->times.compute, o->rounds), median(o->times.both, o->rounds), o->wrong};
    return !code && o->wrong ? failure_set(why, CLI_WRONG, "wrong bytes came") : code;
}

/* incomplete: why there are fewer than two lines; NULL if there are two. */
static void print_text(const struct overlap *o, const struct line *lines, int n, const char *incomplete)
{
    char text[64];
    printf("%d ranks, %lld bytes from each to the next, %d cores; ms, medians of %d rounds.\n"
           "of sum: both at once over the sum of both alone; hidden: of the exchange behind the computation.\n\n",
           o->ranks, (long long)o->bytes, work_cores(), o->rounds);
    printf("%-9s %10s %10s %10s %8s %8s %6s\n", "progress", "exchange", "compute", "both", "of sum", "hidden", "wrong");
    for (int i = 0; i < n; i++)
        printf("%-9s %10.3f %10.3f %10.3f %8.3f %7.0f%% %6lld\n", lines[i].progress, lines[i].exchange * 1e3,
               lines[i].compute * 1e3, lines[i].both * 1e3, of_sum(&lines[i]), hidden(&lines[i]),
               (long long)lines[i].wrong);
    if (incomplete)
        printf("\nincomplete: %s\n", incomplete);
    else if (aim(o, &lines[1], text, sizeof text))
        printf("\nthread: aim %s\n", text);
}

static void print_json(const struct overlap *o, const struct line *lines, int n, const char *incomplete)
{
    struct json j = {.to = stdout};
    char text[64];
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", "overlap");
    json_write_int(&j, "ranks", o->ranks);
    json_write_int(&j, "bytes", o->bytes);
    json_write_int(&j, "cores", work_cores());
    json_write_bool(&j, "private", o->private_);
    json_write_open(&j, "lines", '[', false);
    for (int i = 0; i < n; i++) {
        json_write_open(&j, NULL, '{', true);
        json_write_text(&j, "progress", lines[i].progress);
        json_write_real(&j, "exchange_us", lines[i].exchange * 1e6);
        json_write_real(&j, "compute_us", lines[i].compute * 1e6);
        json_write_real(&j, "both_us", lines[i].both * 1e6);
        json_write_real(&j, "of_sum", of_sum(&lines[i]));
        json_write_real(&j, "hidden_percent", hidden(&lines[i]));
        json_write_int(&j, "wrong", lines[i].wrong);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "aim", !incomplete && aim(o, &lines[1], text, sizeof text) ? text : NULL);
    json_write_text(&j, "incomplete", incomplete);
    json_write_close(&j, '}');
    putchar('\n');
}

int bench_overlap(int argc, char **argv)
{
    int64_t ranks = 2, bytes = 16 << 20, rounds = 50;
    bool private_ = false, json = false;
    const struct args_option options[] = {
        {"n", ARGS_INT, "N", "number of ranks (2)", &ranks, 2, 256},
        {"bytes", ARGS_BYTES, "B", "bytes that each rank gives to the next (16M)", &bytes, 1, INT64_C(1) << 32},
        {"rounds", ARGS_INT, "N", "rounds, of which the median is shown (50)", &rounds, 1, MOST_ROUNDS},
        {"private", ARGS_FLAG, NULL, "tensors in private memory", &private_, 0, 0},
        {"json", ARGS_FLAG, NULL, "print the table as JSON", &json, 0, 0},
        {0},
    };
    const struct args_verb verb = {"bench overlap", "[options]",
                                   "Measures an exchange alone, a computation that takes as long, alone, and both at "
                                   "once (start, compute, wait), with\n"
                                   "progress by the caller and by a thread. Ranks are processes.",
                                   options, 0};
    int words, code = args_parse(&verb, argc, argv, NULL, &words);
    if (code)
        return code < 0 ? CLI_OK : code;
    struct failure why = {0};
    struct overlap *o = worker_processes_alloc(sizeof *o);
    if (!o)
        return failure_print(&(struct failure){CLI_WRONG, "out of memory"}, "bench overlap");
    *o = (struct overlap){.ranks = (int)ranks, .rounds = (int)rounds, .bytes = bytes, .private_ = private_};
    static const enum weft_progress ways[] = {WEFT_PROGRESS_CALLER, WEFT_PROGRESS_THREAD};
    struct line lines[2];
    int measured = 0;
    signals_watch();
    while (measured < 2 && !(code = run(o, ways[measured], &lines[measured], &why)))
        measured++;
    if (measured)
        (json ? print_json : print_text)(o, lines, measured, code ? why.text : NULL);
    worker_processes_free(o, sizeof *o);
    if (code)
        failure_print(&why, "bench overlap");
    signals_obey();
    return code;
}
