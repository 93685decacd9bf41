/* weft bench pairs: random pairs of tensors over the whole notation, large ones or many, each beside memcpy. The score
 * of a pair is the time of a memcpy, by as many workers as there are ranks or cores, of as many bytes as the pair has
 * to read and write at least, over the time of weft. Both are measured in the same rounds. So 1 means that weft takes
 * as long as memcpy would. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/tables/bench.h"
#include "bench/work/median.h"
#include "bench/work/random_pair.h"
#include "bench/work/work.h"
#include "tool/args.h"
#include "tool/failure.h"
#include "tool/json_write.h"
#include "tool/signals.h"
#include "tool/worker_processes.h"
#include "tool/worker_threads.h"
#include "weft.h"

enum { RANKS = 16, ROUNDS = 25, WORST = 20 };
#define ALIGNED 64 /* bytes, of each tensor of many */
#define COPIED                                                                                            \
    (32 << 20) /* bytes of the buffers of memcpy, which are copied again and again: more than caches hold \
                */

/* What parent and ranks share: the pair in hand. */
struct pairs_job {
    char url[64];
    struct random_pair pair;
    struct random_pair_facts facts;
    int ranks, rounds, workers, tensors;
    bool private_, cpu;
    double used[RANKS];                  /* seconds of processor time of each rank in this round */
    double weft[ROUNDS], memcpy[ROUNDS]; /* seconds: of rank 0, or processor time of all ranks */
};

/* One rank. Its comm stays open from pair to pair. */
struct pairs_rank {
    weft_comm *comm;
    weft_layout *src, *dst;
    weft_plan *plan;
    weft_exec *exec;
    void *in, *out, *from, *to;
};
static struct pairs_rank all_ranks[RANKS + 1][RANKS]; /* by the size of the comm; a process uses one of them */

/* ---- a rank ---- */

static int open_comm(void *arg, int rank)
{
    const struct pairs_job *j = arg;
    weft_comm_opts opts = {.size = sizeof opts, .rank = rank, .ranks = j->ranks};
    return weft_comm_open(j->url, &opts, &all_ranks[j->ranks][rank].comm);
}

static int close_comm(void *arg, int rank)
{
    struct pairs_rank *r = &all_ranks[((const struct pairs_job *)arg)->ranks][rank];
    weft_comm_close(r->comm);
    r->comm = NULL;
    return 0;
}

static int take_memory(const struct pairs_job *j, weft_comm *c, size_t bytes, void **out)
{
    if (!bytes)
        return 0;
    if (!j->private_)
        return weft_comm_alloc(c, bytes, WEFT_MEMORY_HOST, 0, out);
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *out ? 0 : WEFT_ENOMEM;
}

static void give_memory(const struct pairs_job *j, weft_comm *c, void *memory)
{
    if (j->private_)
        free(memory);
    else if (memory)
        weft_comm_free(c, memory);
}

/* Small values, of which no cast or fold makes a NaN or a subnormal, which some processors are slow with: 1.0 in each
 * float format is the same bytes again and again, and any bytes will do for integers. */
static void fill(void *memory, int64_t bytes, int dtype)
{
    static const unsigned char any[8] = {1, 2, 3, 4, 5, 6, 7, 8}, f32[8] = {0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f};
    static const unsigned char f64[8] = {0, 0, 0, 0, 0, 0, 0xf0, 0x3f};
    static const unsigned char bf16[8] = {0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f, 0x80, 0x3f};
    static const unsigned char f16[8] = {0, 0x3c, 0, 0x3c, 0, 0x3c, 0, 0x3c};
    static const unsigned char e4m3[8] = {0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38};
    static const unsigned char e5m2[8] = {0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c};
    static const unsigned char e8m0[8] = {0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f};
    static const unsigned char *const ones[] = {
        [WEFT_F32] = f32,        [WEFT_C64] = f32,     [WEFT_F64] = f64,     [WEFT_C128] = f64,
        [WEFT_BF16] = bf16,      [WEFT_F16] = f16,     [WEFT_F8E4M3] = e4m3, [WEFT_F8E4M3SAT] = e4m3,
        [WEFT_F8E5M2SAT] = e5m2, [WEFT_F8E5M2] = e5m2, [WEFT_F8E8M0] = e8m0};
    const unsigned char *word = ones[dtype] ? ones[dtype] : any;
    for (int64_t i = 0; i < bytes; i++)
        ((unsigned char *)memory)[i] = word[i % 8];
}

/* Bytes from one tensor to the next. */
static size_t apart(int64_t bytes)
{
    return (size_t)(bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
}

/* Lowers and binds all tensors, which lie one behind the other. */
static int bind(const struct pairs_job *j, struct pairs_rank *r, int rank, const weft_lower_opts *opts, int64_t in,
                int64_t out)
{
    size_t n = (size_t)j->tensors;
    weft_move *moves = calloc(n, sizeof *moves);
    weft_view *from = calloc(n, sizeof *from), *to = calloc(n, sizeof *to);
    int err = moves && from && to ? 0 : WEFT_ENOMEM;
    for (size_t i = 0; i < n && !err; i++) {
        moves[i] = (weft_move){"t", r->src, r->dst};
        from[i] = (weft_view)WEFT_VIEW(in ? (char *)r->in + i * apart(in) : NULL, (size_t)in);
        to[i] = (weft_view)WEFT_VIEW(out ? (char *)r->out + i * apart(out) : NULL, (size_t)out);
    }
    if (!err)
        err = weft_lower(moves, n, rank, opts, &r->plan);
    if (!err)
        err = weft_bind(r->plan, r->comm, in ? from : NULL, out ? to : NULL, NULL, &r->exec);
    free(moves);
    free(from);
    free(to);
    return err;
}

static int prepare(const struct pairs_job *j, struct pairs_rank *r, int rank)
{
    weft_local in, out;
    weft_layout_desc d = WEFT_LAYOUT_DESC_INIT;
    weft_machine machine = WEFT_MACHINE_INIT;
    weft_lower_opts opts = {.size = sizeof opts, .machine = &machine};
    int err = weft_layout_parse(j->pair.src, &r->src);
    if (!err)
        err = weft_layout_parse(j->pair.dst, &r->dst);
    if (!err)
        err = weft_layout_describe(r->src, &d);
    if (!err)
        err = weft_layout_local(r->src, rank, &in);
    if (!err)
        err = weft_layout_local(r->dst, rank, &out);
    if (!err)
        err = weft_comm_machine(r->comm, &machine);
    size_t all_in = err ? 0 : apart(in.bytes) * (size_t)j->tensors;
    size_t all_out = err ? 0 : apart(out.bytes) * (size_t)j->tensors;
    if (!err)
        err = take_memory(j, r->comm, all_in, &r->in);
    if (!err)
        err = take_memory(j, r->comm, all_out, &r->out);
    if (!err && rank < j->workers)
        err = take_memory(j, r->comm, COPIED, &r->from);
    if (!err && rank < j->workers)
        err = take_memory(j, r->comm, COPIED, &r->to);
    if (err)
        return err;
    if (r->in)
        fill(r->in, (int64_t)all_in, (int)d.dtype);
    if (r->out)
        memset(r->out, 1, all_out);
    if (r->from)
        memset(r->from, 1, COPIED);
    if (r->to)
        memset(r->to, 2, COPIED);
    return bind(j, r, rank, &opts, in.bytes, out.bytes);
}

static void drop(const struct pairs_job *j, struct pairs_rank *r)
{
    void *memory[] = {r->in, r->out, r->from, r->to};
    weft_exec_close(r->exec);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        give_memory(j, r->comm, memory[i]);
    weft_plan_free(r->plan);
    weft_layout_free(r->src);
    weft_layout_free(r->dst);
    *r = (struct pairs_rank){.comm = r->comm};
}

static void copy(const struct pairs_job *j, const struct pairs_rank *r, int rank)
{
    if (rank >= j->workers)
        return;
    for (double left = j->facts.moved / 2 / j->workers; left > 0; left -= COPIED)
        memcpy(r->to, r->from, left < COPIED ? (size_t)left : COPIED);
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* From the time when all ranks have arrived to the time when all have finished, or the processor time that all ranks
 * have used meanwhile. */
static int timed(struct pairs_job *j, const struct pairs_rank *r, int rank, bool copies, double *took)
{
    int err = weft_comm_barrier(r->comm, WEFT_DEADLINE);
    double start = work_now(), cpu = cpu_now();
    if (!err && copies)
        copy(j, r, rank);
    else if (!err)
        err = weft_exec_run(r->exec);
    j->used[rank] = cpu_now() - cpu;
    if (!err)
        err = weft_comm_barrier(r->comm, WEFT_DEADLINE);
    *took = work_now() - start;
    if (!j->cpu)
        return err;
    *took = 0;
    for (int i = 0; i < j->ranks; i++)
        *took += j->used[i];
    return err;
}

static int measure(void *arg, int rank)
{
    struct pairs_job *j = arg;
    struct pairs_rank *r = &all_ranks[j->ranks][rank];
    double weft, copied;
    int err = prepare(j, r, rank);
    for (int i = -1; i < j->rounds && !err; i++) { /* the first round is not counted */
        err = timed(j, r, rank, false, &weft);
        if (!err)
            err = timed(j, r, rank, true, &copied);
        if (!err && !rank && i >= 0) {
            j->weft[i] = weft;
            j->memcpy[i] = copied;
        }
    }
    drop(j, r);
    return err;
}

/* ---- the groups of ranks ---- */

struct groups {
    bool processes;
    struct worker_threads *threads[RANKS + 1];
    struct worker_processes *children[RANKS + 1];
};

static int group_do(struct groups *g, int n, worker_work *work, struct pairs_job *j, struct failure *why)
{
    return g->processes ? worker_processes_do(g->children[n], work, j, why)
                        : worker_threads_do(g->threads[n], work, j, why);
}

/* The ranks of a comm of this size, which are started when they are first needed. */
static int group_open(struct groups *g, struct pairs_job *j, struct failure *why)
{
    static int opened;
    int n = j->ranks;
    if (g->threads[n] || g->children[n])
        return CLI_OK;
    if (g->processes)
        snprintf(j->url, sizeof j->url, "shm:bench-pairs-%ld-%d", (long)getpid(), opened++);
    else
        snprintf(j->url, sizeof j->url, "threads:%d/bench-pairs-%d", n, opened++);
    int code =
        g->processes ? worker_processes_open(n, &g->children[n], why) : worker_threads_open(n, &g->threads[n], why);
    return code ? code : group_do(g, n, open_comm, j, why) ? CLI_WRONG : CLI_OK;
}

static void group_close(struct groups *g, int n, struct pairs_job *j)
{
    struct failure why;
    if (!g->threads[n] && !g->children[n])
        return;
    j->ranks = n;
    group_do(g, n, close_comm, j, &why);
    worker_threads_close(g->threads[n]);
    worker_processes_close(g->children[n]);
    g->threads[n] = NULL;
    g->children[n] = NULL;
}

/* ---- scores ---- */

struct score {
    int64_t number;
    struct random_pair pair;
    struct random_pair_facts facts;
    double seconds, score;
};

static int by_score(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    return x->score < y->score ? -1 : x->score > y->score;
}

/* Traits that pairs may have in common. */
static bool has_cast(const struct score *s)
{
    return s->facts.casts;
}
static bool has_f8(const struct score *s)
{
    return strstr(s->facts.dtypes, "f8") != NULL;
}
static bool has_fold(const struct score *s)
{
    return s->facts.folds;
}
static bool has_cyclic(const struct score *s)
{
    return s->facts.cyclic;
}
static bool has_ghosts(const struct score *s)
{
    return s->facts.ghosts;
}
static bool is_apart(const struct score *s)
{
    return s->facts.apart;
}
static bool is_uneven(const struct score *s)
{
    return s->facts.uneven;
}
static bool is_crowded(const struct score *s)
{
    return s->facts.ranks > work_cores();
}
static int64_t short_run(const struct score *s)
{
    return s->facts.run[0] < s->facts.run[1] ? s->facts.run[0] : s->facts.run[1];
}
static bool run_tiny(const struct score *s)
{
    return short_run(s) < 16;
}
static bool run_short(const struct score *s)
{
    return short_run(s) >= 16 && short_run(s) < 512;
}
static bool run_long(const struct score *s)
{
    return short_run(s) >= 512;
}

static const struct {
    const char *name;
    bool (*has)(const struct score *s);
} traits[] = {
    {"a cast", has_cast},
    {"f8", has_f8},
    {"a fold", has_fold},
    {"block-cyclic", has_cyclic},
    {"ghosts", has_ghosts},
    {"other ranks receive than send", is_apart},
    {"uneven pieces", is_uneven},
    {"more ranks than cores", is_crowded},
    {"runs below 16 bytes on one side", run_tiny},
    {"runs of 16 to 511 bytes on one side", run_short},
    {"runs of 512 bytes or more on both sides", run_long},
};
enum { TRAITS = sizeof traits / sizeof *traits };

/* Median of the scores of those that have a trait, and how many these are. The scores are sorted. */
static int trait_median(const struct score *s, int n, int trait, double *out)
{
    int count = 0, seen = 0;
    for (int i = 0; i < n; i++)
        count += traits[trait].has(&s[i]);
    for (int i = 0; i < n; i++)
        if (traits[trait].has(&s[i]) && seen++ == count / 2)
            *out = s[i].score;
    return count;
}

struct pairs_options {
    int64_t pairs, from, seed, bytes, ranks, rounds, most, tensors;
    bool private_, json, threads, cpu;
    const char *one;
    int skipped; /* pairs that need too much memory, or that weft refuses */
};

static void print_again(const struct pairs_options *o, const struct score *s)
{
    char tensors[32] = "";
    if (o->tensors > 1)
        snprintf(tensors, sizeof tensors, " --tensors %lld", (long long)o->tensors);
    printf("  weft bench pairs --pair '%s -> %s'%s%s%s%s\n", s->pair.src, s->pair.dst, o->private_ ? " --private" : "",
           o->threads ? " --threads" : "", o->cpu ? " --cpu" : "", tensors);
}

/* incomplete: why there are fewer pairs than were asked for; NULL: there are not. */
static void print_text(const struct pairs_options *o, const struct score *s, int n, const char *incomplete)
{
    printf("\n%d pairs, %s memory of %s, %d cores; %d others were skipped (too much memory, or refused). Score: the%s\n"
           "time of memcpy for the bytes that have to be read and written over that of weft.\n\n",
           n, o->private_ ? "private" : "window", o->threads ? "threads" : "processes", work_cores(), o->skipped,
           o->cpu ? " processor" : "");
    printf("%8s", "worst");
    for (int i = 1; i < 10; i++)
        printf("%7d%%", 10 * i);
    printf("%8s\n", "best");
    for (int i = 0; i <= 10; i++)
        printf("%8.2f", s[i == 10 ? n - 1 : n * i / 10].score);
    printf("\n\n%-42s %6s %7s %16s\n", "pairs with", "pairs", "median", "in worst tenth");
    for (int t = 0; t < TRAITS; t++) {
        double m = 0, unused;
        int count = trait_median(s, n, t, &m), worst = trait_median(s, (n + 9) / 10, t, &unused);
        if (count)
            printf("%-42s %6d %7.2f %15.0f%%\n", traits[t].name, count, m, 100.0 * worst / ((n + 9) / 10));
    }
    printf("\nThe worst, and how to run each again:\n");
    for (int i = 0; i < n && i < WORST; i++) {
        printf("%5.2f  %7.1f ms  %s%s%s, runs of %lld and %lld bytes\n", s[i].score, s[i].seconds * 1e3,
               s[i].facts.dtypes, s[i].facts.folds ? ", " : "", s[i].facts.op, (long long)s[i].facts.run[0],
               (long long)s[i].facts.run[1]);
        print_again(o, &s[i]);
    }
    if (incomplete)
        printf("\nincomplete: %s\n", incomplete);
}

static void print_json(const struct pairs_options *o, const struct score *s, int n, const char *incomplete)
{
    struct json j = {.to = stdout};
    json_write_open(&j, NULL, '{', false);
    json_write_text(&j, "bench", "pairs");
    json_write_int(&j, "cores", work_cores());
    json_write_int(&j, "seed", o->seed);
    json_write_int(&j, "skipped", o->skipped);
    json_write_int(&j, "tensors", o->tensors);
    json_write_text(&j, "memory", o->private_ ? "private" : "window");
    json_write_text(&j, "ranks", o->threads ? "threads" : "processes");
    json_write_text(&j, "time", o->cpu ? "processor" : "elapsed");
    json_write_open(&j, "deciles", '[', true);
    for (int i = 0; i <= 10; i++)
        json_write_real(&j, NULL, s[i == 10 ? n - 1 : n * i / 10].score);
    json_write_close(&j, ']');
    json_write_open(&j, "pairs", '[', false);
    for (int i = 0; i < n; i++) {
        json_write_open(&j, NULL, '{', true);
        json_write_int(&j, "number", s[i].number);
        json_write_text(&j, "src", s[i].pair.src);
        json_write_text(&j, "dst", s[i].pair.dst);
        json_write_real(&j, "score", s[i].score);
        json_write_real(&j, "ms", s[i].seconds * 1e3);
        json_write_real(&j, "bytes", s[i].facts.moved);
        json_write_int(&j, "run_src", s[i].facts.run[0]);
        json_write_int(&j, "run_dst", s[i].facts.run[1]);
        json_write_close(&j, '}');
    }
    json_write_close(&j, ']');
    json_write_text(&j, "incomplete", incomplete);
    json_write_close(&j, '}');
    putchar('\n');
}

/* ---- all of it ---- */

/* Measures a pair. Returns CLI_OK, with *skipped set if the pair is too large or weft refuses it. */
static int one_pair(struct groups *g, struct pairs_job *j, const struct pairs_options *o, struct score *s,
                    bool *skipped, struct failure *why)
{
    weft_layout *src = NULL, *dst = NULL;
    int err = weft_layout_parse(s->pair.src, &src);
    if (!err)
        err = weft_layout_parse(s->pair.dst, &dst);
    if (!err)
        err = random_pair_facts(src, dst, &s->facts);
    s->facts.memory *= o->tensors;
    s->facts.moved *= (double)o->tensors;
    weft_layout_free(src);
    weft_layout_free(dst);
    *skipped = err || s->facts.memory > o->most || s->facts.ranks > RANKS || s->facts.ranks < 2;
    if (err && o->one)
        return failure_set(why, CLI_BAD, "%s", weft_errmsg());
    if (*skipped)
        return o->one ? failure_set(why, CLI_BAD, "the pair needs %lld bytes on %d ranks", (long long)s->facts.memory,
                                    s->facts.ranks)
                      : CLI_OK;
    j->pair = s->pair;
    j->facts = s->facts;
    j->ranks = s->facts.ranks;
    j->workers = j->ranks < work_cores() ? j->ranks : work_cores();
    int code = group_open(g, j, why);
    if (code)
        return code;
    err = group_do(g, j->ranks, measure, j, why);
    if (err) { /* refused, or failed: its ranks are started anew */
        group_close(g, j->ranks, j);
        *skipped = err == WEFT_EINVAL || err == WEFT_EUNSUPPORTED || err == WEFT_ENOMEM;
        return *skipped && !o->one ? CLI_OK : CLI_WRONG;
    }
    s->seconds = median(j->weft, j->rounds);
    s->score = median(j->memcpy, j->rounds) / s->seconds;
    return CLI_OK;
}

static int run(struct pairs_options *o, struct score *scores, int *n, struct failure *why)
{
    struct groups g = {.processes = !o->threads};
    struct pairs_job *j = worker_processes_alloc(sizeof *j);
    int code = CLI_OK;
    *n = 0;
    if (!j)
        return failure_set(why, CLI_WRONG, "out of memory");
    j->rounds = (int)o->rounds;
    j->private_ = o->private_;
    j->tensors = (int)o->tensors;
    j->cpu = o->cpu;
    for (int64_t i = 0; *n < o->pairs && i < 100 * o->pairs && !code; i++) {
        struct score *s = &scores[*n];
        bool skipped;
        *s = (struct score){.number = o->from + i};
        if (o->one) {
            const char *arrow = strstr(o->one, "->");
            snprintf(s->pair.src, sizeof s->pair.src, "%.*s", arrow ? (int)(arrow - o->one) : 0, o->one);
            snprintf(s->pair.dst, sizeof s->pair.dst, "%s", arrow ? arrow + 2 : "");
        } else {
            s->pair = random_pair((uint64_t)o->seed, s->number, o->bytes, (int)o->ranks);
        }
        code = signals_caught() ? failure_set(why, CLI_WRONG, "interrupted") : one_pair(&g, j, o, s, &skipped, why);
        o->skipped += !code && skipped;
        if (code || skipped)
            continue;
        ++*n;
        if (!o->json) {
            printf("%5.2f  %s -> %s\n", s->score, s->pair.src, s->pair.dst);
            fflush(stdout);
        }
    }
    for (int r = 2; r <= RANKS; r++)
        group_close(&g, r, j);
    worker_processes_free(j, sizeof *j);
    return code;
}

int bench_pairs(int argc, char **argv)
{
    struct pairs_options o = {
        .pairs = 30, .seed = 1, .bytes = 64 << 20, .ranks = 8, .rounds = 5, .most = INT64_C(2) << 30, .tensors = 1};
    const struct args_option options[] = {
        {"pairs", ARGS_INT, "N", "how many pairs (30)", &o.pairs, 1, 100000},
        {"seed", ARGS_INT, "N", "of the campaign (1)", &o.seed, 0, INT64_MAX},
        {"from", ARGS_INT, "N", "number of the first pair (0)", &o.from, 0, INT64_MAX / 2},
        {"bytes", ARGS_BYTES, "B", "of a tensor, at least, in the source's dtype (64M)", &o.bytes, 1, INT64_C(1) << 40},
        {"tensors", ARGS_INT, "N", "tensors of each pair, in one plan (1)", &o.tensors, 1, 100000},
        {"n", ARGS_INT, "N", "ranks, at most (8)", &o.ranks, 2, RANKS},
        {"memory", ARGS_BYTES, "B", "skip pairs whose buffers need more on all ranks together (2G)", &o.most, 1,
         INT64_C(1) << 50},
        {"rounds", ARGS_INT, "N", "rounds in which weft and memcpy take turns (5)", &o.rounds, 1, ROUNDS},
        {"pair", ARGS_TEXT, "'SRC -> DST'", "only this pair", &o.one, 0, 0},
        {"private", ARGS_FLAG, NULL, "tensors in private memory, not in window memory", &o.private_, 0, 0},
        {"threads", ARGS_FLAG, NULL, "ranks are threads, not processes", &o.threads, 0, 0},
        {"cpu", ARGS_FLAG, NULL, "score by processor time of all ranks, for a machine with other work", &o.cpu, 0, 0},
        {"json", ARGS_FLAG, NULL, "print the result as JSON", &o.json, 0, 0},
        {0},
    };
    const struct args_verb verb = {"bench pairs", "[options]",
                                   "Measures random pairs of tensors, large ones or many small ones, over the whole "
                                   "notation (dtypes, casts, folds,\n"
                                   "uneven sizes, several axes, replicas, block-cyclic, permuted and disjoint meshes, "
                                   "ghosts), each beside memcpy of\n"
                                   "the bytes that it has to read and write. Prints the deciles of the scores, what "
                                   "the worst pairs have in common,\n"
                                   "and the worst.",
                                   options, 0};
    int words, code = args_parse(&verb, argc, argv, NULL, &words), n = 0;
    if (code)
        return code < 0 ? CLI_OK : code;
    if (o.one)
        o.pairs = 1;
    struct failure why = {0};
    struct score *scores = calloc((size_t)o.pairs, sizeof *scores);
    if (!scores)
        return failure_print(&(struct failure){CLI_WRONG, "out of memory"}, "bench pairs");
    signals_watch();
    code = run(&o, scores, &n, &why);
    qsort(scores, (size_t)n, sizeof *scores, by_score);
    if (n && (!o.one || o.json))
        (o.json ? print_json : print_text)(&o, scores, n, code ? why.text : NULL);
    free(scores);
    if (code)
        failure_print(&why, "bench pairs");
    signals_obey();
    return code;
}
