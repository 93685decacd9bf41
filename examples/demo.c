/* The demo: a small transformer's weights go from 4 trainer ranks (f32, split for training) to 4
 * inference ranks (bf16, split for inference), all tensors in one plan that is made once and run
 * every round. Each round has new weights, and every element that arrives is compared with a
 * computation that knows nothing of weft. The same job done through a root (gather, cast, broadcast,
 * slice) and plain memcpy are timed in the same rounds. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <weft.h>

#define RANKS 8
#define TRAINERS 4
#define COPIES 8 /* by memcpy in a round: as long as a move takes, so that the two threads find their cores */

/* ---- the model ---- */

/* One kind of weight: its shape in units of the hidden size, how trainers split it and how inference does. Trainers are
 * dp2.tp2 on ranks 0..3; "/tp/dp" cuts by tp first and then each piece by dp, as tensor parallelism under FSDP does.
 * Inference is tp4 on ranks 4..7. An axis that is not named holds copies. cols 0: a vector. */
struct kind {
    const char *name;
    int rows, cols;
    const char *src_rows, *src_cols, *dst_rows, *dst_cols;
};
/* clang-format off */
static const struct kind of_layer[] = {
    {"attn_norm", 1, 0, "", "", "", ""},
    {"attn.wq", 1, 1, "/tp/dp", "", "/tp", ""},
    {"attn.wk", 1, 1, "/tp/dp", "", "/tp", ""},
    {"attn.wv", 1, 1, "/tp/dp", "", "/tp", ""},
    {"attn.wo", 1, 1, "/dp", "/tp", "", "/tp"},
    {"mlp_norm", 1, 0, "", "", "", ""},
    {"mlp.w1", 4, 1, "/dp/tp", "", "/tp", ""},
    {"mlp.w3", 4, 1, "/dp/tp", "", "/tp", ""},
    {"mlp.w2", 1, 4, "/dp/tp", "", "", "/tp"},
};
/* clang-format on */
static const struct kind of_model[] = {
    {"embed", 8, 1, "/tp", "", "/tp", ""},
    {"norm", 1, 0, "", "", "", ""},
    {"head", 8, 1, "/dp", "/tp", "/tp", ""},
};
#define OF_LAYER ((int)(sizeof of_layer / sizeof *of_layer))
#define OF_MODEL ((int)(sizeof of_model / sizeof *of_model))

/* The places where a tensor stands on its way; each has one layout and one buffer a rank. */
enum place { TRAINER, INFERENCE, ROOT, ROOT_BF16, FULL, SLICED, PLACES };

/* What is moved: the job itself, and the same job through rank 0. */
enum stage { DIRECT, GATHER, CAST, BROADCAST, SLICE, STAGES };
static const enum place stage_from[STAGES] = {TRAINER, TRAINER, ROOT, ROOT_BF16, FULL};
static const enum place stage_to[STAGES] = {INFERENCE, ROOT, ROOT_BF16, FULL, SLICED};

struct tensor {
    char name[48];
    const struct kind *kind;
    int64_t rows, cols; /* cols 0: a vector */
    weft_layout *at[PLACES];
};

enum clock { MOVE, THROUGH_ROOT, MEMCPY, CLOCKS };

static struct demo {
    int rounds, layers, hidden, ntensors;
    size_t copy_bytes; /* that memcpy copies at a time in each of two threads: well beyond the caches */
    struct tensor *tensors;
    weft_move *moves[STAGES];
    weft_plan *plans[STAGES][RANKS];
    double begin[CLOCKS][RANKS], end[CLOCKS][RANKS];
    double *took[CLOCKS]; /* by round */
} demo;

static void fail(const char *what, int rank)
{
    fprintf(stderr, "weft-demo: rank %d: %s: %s\n", rank, what, weft_errmsg());
    exit(1);
}

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "weft-demo: out of memory; try fewer --layers\n");
        exit(1);
    }
    return memory;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void make_layout(struct tensor *t, enum place p, const char *dtype, const char *rows, const char *cols,
                        const char *mesh)
{
    char text[128];
    if (t->cols)
        snprintf(text, sizeof text, "%s[%lld%s,%lld%s] @%s", dtype, (long long)t->rows, rows, (long long)t->cols, cols,
                 mesh);
    else
        snprintf(text, sizeof text, "%s[%lld%s] @%s", dtype, (long long)t->rows, rows, mesh);
    if (weft_layout_parse(text, &t->at[p]))
        fail(t->name, 0);
}

static void make_tensor(struct tensor *t, const struct kind *k, int layer)
{
    t->kind = k;
    t->rows = (int64_t)k->rows * demo.hidden;
    t->cols = (int64_t)k->cols * demo.hidden;
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", k->name);
    else
        snprintf(t->name, sizeof t->name, "layers.%d.%s", layer, k->name);
    make_layout(t, TRAINER, "f32", k->src_rows, k->src_cols, "dp2.tp2");
    make_layout(t, INFERENCE, "bf16", k->dst_rows, k->dst_cols, "tp4=4..7");
    make_layout(t, ROOT, "f32", "", "", "root1");
    make_layout(t, ROOT_BF16, "bf16", "", "", "root1");
    make_layout(t, FULL, "bf16", "", "", "tp4=4..7");
    make_layout(t, SLICED, "bf16", k->dst_rows, k->dst_cols, "tp4=4..7");
}

static void make_model(void)
{
    demo.tensors = need(calloc((size_t)(OF_MODEL + demo.layers * OF_LAYER), sizeof *demo.tensors));
    for (int i = 0; i < OF_MODEL; i++)
        make_tensor(&demo.tensors[demo.ntensors++], &of_model[i], -1);
    for (int l = 0; l < demo.layers; l++)
        for (int i = 0; i < OF_LAYER; i++)
            make_tensor(&demo.tensors[demo.ntensors++], &of_layer[i], l);
    for (int s = 0; s < STAGES; s++) {
        demo.moves[s] = need(calloc((size_t)demo.ntensors, sizeof **demo.moves));
        for (int i = 0; i < demo.ntensors; i++) {
            const struct tensor *t = &demo.tensors[i];
            demo.moves[s][i] = (weft_move){t->name, t->at[stage_from[s]], t->at[stage_to[s]]};
        }
    }
}

/* ---- the weights, computed without weft ---- */

/* Element i of a tensor in a round: 24 random-looking bits, so that rounding to bf16 matters. */
static inline float weight(uint32_t salt, uint64_t i)
{
    uint32_t h = ((uint32_t)i + salt) * 2654435761u;
    h = (h ^ h >> 15) * 2246822519u;
    return (float)((int32_t)(h >> 8) - (1 << 23)) * 0x1p-23f;
}

/* Round to nearest, ties to even. */
static inline uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint32_t salt_of(int tensor, int round)
{
    return (uint32_t)tensor * 40503u + (uint32_t)round * 2971215073u;
}

/* Which part of an extent the rank holds under splits such as "/tp/dp". All divisions here come out even. */
static int64_t cut(const char *splits, int rank, int64_t extent, int64_t *len)
{
    int64_t at = 0;
    for (*len = extent; *splits; splits += 3) {
        int size = rank < TRAINERS ? 2 : 4;
        int coord = rank >= TRAINERS ? rank - TRAINERS : !strncmp(splits, "/dp", 3) ? rank / 2 : rank % 2;
        *len /= size;
        at += coord * *len;
    }
    return at;
}

struct part {
    int64_t row, rows, col, cols, width; /* width: columns of the whole tensor */
};

static struct part part_of(const struct tensor *t, int rank)
{
    const struct kind *k = t->kind;
    struct part p = {.width = t->cols ? t->cols : 1};
    p.row = cut(rank < TRAINERS ? k->src_rows : k->dst_rows, rank, t->rows, &p.rows);
    p.col = cut(rank < TRAINERS ? k->src_cols : k->dst_cols, rank, p.width, &p.cols);
    return p;
}

static void fill(int tensor, int rank, int round, float *out)
{
    struct part p = part_of(&demo.tensors[tensor], rank);
    uint32_t salt = salt_of(tensor, round);
    for (int64_t r = 0; r < p.rows; r++, out += p.cols) {
        uint64_t first = (uint64_t)((p.row + r) * p.width + p.col);
        for (int64_t c = 0; c < p.cols; c++)
            out[c] = weight(salt, first + (uint64_t)c);
    }
}

static void verify(int tensor, int rank, int round, const uint16_t *got, const char *way)
{
    struct part p = part_of(&demo.tensors[tensor], rank);
    uint32_t salt = salt_of(tensor, round);
    for (int64_t r = 0; r < p.rows; r++, got += p.cols) {
        uint64_t first = (uint64_t)((p.row + r) * p.width + p.col);
        uint32_t wrong = 0;
        for (int64_t c = 0; c < p.cols; c++)
            wrong |= (uint32_t)(got[c] ^ to_bf16(weight(salt, first + (uint64_t)c)));
        if (wrong) {
            fprintf(stderr, "weft-demo: WRONG: %s, row %lld on rank %d, round %d, %s\n", demo.tensors[tensor].name,
                    (long long)(p.row + r), rank, round, way);
            exit(1);
        }
    }
}

/* ---- one rank ---- */

struct rank {
    int rank;
    weft_comm *comm;
    weft_view *views[PLACES];
    void *memory[PLACES];
    weft_exec *execs[STAGES];
};

static void allocate(struct rank *me, enum place p)
{
    size_t total = 0;
    me->views[p] = need(calloc((size_t)demo.ntensors, sizeof **me->views));
    for (int pass = 0; pass < 2; pass++) {
        char *next = me->memory[p];
        for (int i = 0; i < demo.ntensors; i++) {
            weft_local local;
            if (weft_layout_local(demo.tensors[i].at[p], me->rank, &local))
                fail(demo.tensors[i].name, me->rank);
            size_t bytes = (size_t)local.bytes, room = (bytes + 63) / 64 * 64;
            if (!pass)
                total += room;
            else if (bytes)
                me->views[p][i] = (weft_view){.data = next, .bytes = bytes};
            next = pass ? next + room : next;
        }
        if (!pass && total)
            memset(me->memory[p] = need(aligned_alloc(64, total)), 0xff, total); /* pages are there before we measure */
    }
}

static void meet(struct rank *me)
{
    if (weft_comm_barrier(me->comm, WEFT_DEADLINE))
        fail("barrier", me->rank);
}

static void run(struct rank *me, enum clock clock, int first, int last)
{
    meet(me);
    demo.begin[clock][me->rank] = now();
    for (int s = first; s <= last; s++)
        if (weft_exec_run(me->execs[s]))
            fail("run", me->rank);
    demo.end[clock][me->rank] = now();
}

static void copy_bytes(struct rank *me, char *memory)
{
    meet(me);
    demo.begin[MEMCPY][me->rank] = now();
    for (int i = 0; memory && i < COPIES; i++)
        memcpy(memory + demo.copy_bytes, memory, demo.copy_bytes);
    demo.end[MEMCPY][me->rank] = now();
}

/* From the first rank's begin to the last one's end. */
static double span(enum clock c)
{
    double begin = demo.begin[c][0], end = demo.end[c][0];
    for (int r = 1; r < RANKS; r++) {
        begin = demo.begin[c][r] < begin ? demo.begin[c][r] : begin;
        end = demo.end[c][r] > end ? demo.end[c][r] : end;
    }
    return end - begin;
}

static void one_round(struct rank *me, int round, char *memory)
{
    for (int i = 0; me->rank < TRAINERS && i < demo.ntensors; i++)
        fill(i, me->rank, round, me->views[TRAINER][i].data);
    run(me, MOVE, DIRECT, DIRECT);
    for (int i = 0; me->rank >= TRAINERS && i < demo.ntensors; i++)
        verify(i, me->rank, round, me->views[INFERENCE][i].data, "moved by one plan");
    run(me, THROUGH_ROOT, GATHER, SLICE);
    for (int i = 0; me->rank >= TRAINERS && i < demo.ntensors; i++)
        verify(i, me->rank, round, me->views[SLICED][i].data, "through the root");
    copy_bytes(me, memory);
    meet(me);
    for (int c = 0; c < CLOCKS && me->rank == 0; c++)
        demo.took[c][round] = span((enum clock)c);
}

static void *rank_main(void *arg)
{
    struct rank me = {.rank = *(int *)arg};
    weft_comm_opts opts = {.size = sizeof opts, .rank = me.rank};
    if (weft_comm_open("threads:8/demo", &opts, &me.comm))
        fail("open", me.rank);
    for (int p = 0; p < PLACES; p++)
        allocate(&me, (enum place)p);
    char *memory = me.rank < 2 ? need(malloc(2 * demo.copy_bytes)) : NULL;
    if (memory)
        memset(memory, me.rank, 2 * demo.copy_bytes);
    for (int s = 0; s < STAGES; s++)
        if (weft_bind(demo.plans[s][me.rank], me.comm, me.views[stage_from[s]], me.views[stage_to[s]], NULL,
                      &me.execs[s]))
            fail("bind", me.rank);
    bool show = me.rank == 0 && isatty(2);
    for (int round = 0; round < demo.rounds; round++) {
        if (show)
            fprintf(stderr, "\rround %d of %d ", round + 1, demo.rounds);
        one_round(&me, round, memory);
    }
    if (show)
        fprintf(stderr, "\r\033[K");
    for (int s = 0; s < STAGES; s++)
        weft_exec_close(me.execs[s]);
    weft_comm_close(me.comm);
    for (int p = 0; p < PLACES; p++) {
        free(me.memory[p]);
        free(me.views[p]);
    }
    free(memory);
    return NULL;
}

/* ---- the report ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static void lower_all(void)
{
    double took[RANKS], begin;
    for (int s = 0; s < STAGES; s++)
        for (int r = 0; r < RANKS; r++) {
            weft_lower_opts opts = {.size = sizeof opts, .world = RANKS};
            begin = now();
            if (weft_lower(demo.moves[s], (size_t)demo.ntensors, r, &opts, &demo.plans[s][r]))
                fail("lower", r);
            if (s == DIRECT)
                took[r] = now() - begin;
        }
    begin = now();
    if (weft_plan_verify((const weft_plan *const *)demo.plans[DIRECT], RANKS))
        fail("verify", 0);
    double proof = now() - begin;
    printf("plan      one for all tensors, made once: %.0f us a rank; the 8 plans were proved right in %.0f us\n",
           1e6 * median(took, RANKS), 1e6 * proof);
}

static void show_model(void)
{
    int64_t elements = 0;
    for (int i = 0; i < demo.ntensors; i++)
        elements += demo.tensors[i].rows * (demo.tensors[i].cols ? demo.tensors[i].cols : 1);
    printf("model     %d tensors, %.1f million weights, %d layers\n", demo.ntensors, 1e-6 * (double)elements,
           demo.layers);
    for (int i = 0; i < OF_MODEL + OF_LAYER && i < demo.ntensors; i++) {
        char src[128], dst[128];
        weft_layout_format(demo.tensors[i].at[TRAINER], src, sizeof src, NULL);
        weft_layout_format(demo.tensors[i].at[INFERENCE], dst, sizeof dst, NULL);
        printf("          %-18s %-30s -> %s\n", demo.tensors[i].name, src, dst);
    }
    if (demo.layers > 1)
        printf("          and %d more layer%s like this one\n", demo.layers - 1, demo.layers == 2 ? "" : "s");
}

static weft_stats stats_of(int stage, int rank)
{
    weft_stats s = {.size = sizeof s};
    if (weft_plan_stats(demo.plans[stage][rank], &s))
        fail("stats", rank);
    return s;
}

/* What each rank moves and what all do; returns the bytes that cross. */
static int64_t show_traffic(void)
{
    int64_t moved = 0, bound = 0, messages = 0;
    printf("moves     rank       sends  to ranks    receives  from ranks  messages\n");
    for (int r = 0; r < RANKS; r++) {
        weft_stats s = stats_of(DIRECT, r);
        printf("          %4d %9.1f MB  %8d %8.1f MB  %10d  %8lld\n", r, 1e-6 * (double)s.sent, s.send_peers,
               1e-6 * (double)s.received, s.recv_peers, (long long)(s.sends + s.recvs));
        moved += s.sent;
        bound += s.bound;
        messages += s.sends;
    }
    printf("          %lld B a round in %lld messages; the fewest bytes that can do it: %lld\n", (long long)moved,
           (long long)messages, (long long)bound);
    return moved;
}

/* Bytes that the busiest rank sends and receives in these stages, one after the other. */
static double busiest(int first, int last)
{
    int64_t most = 0;
    for (int r = 0; r < RANKS; r++) {
        int64_t bytes = 0;
        for (int s = first; s <= last; s++)
            bytes += stats_of(s, r).sent + stats_of(s, r).received;
        most = bytes > most ? bytes : most;
    }
    return (double)most;
}

static void show_times(int64_t moved)
{
    /* bf16 crosses, and f32 twice as wide was read for it. */
    double written = (double)moved, read = 2 * written, copied = 2.0 * COPIES * (double)demo.copy_bytes;
    double through_one = busiest(DIRECT, DIRECT), through_root = busiest(GATHER, SLICE), middle[CLOCKS];
    for (int c = 0; c < CLOCKS; c++)
        middle[c] = median(demo.took[c], demo.rounds);
    double traffic = (read + written) / middle[MOVE], copy_traffic = 2 * copied / middle[MEMCPY];
    printf("rounds    %d with new weights; every byte on ranks 4 to 7 was right in each\n\n", demo.rounds);
    printf("                                      median       best   through the busiest rank\n");
    printf("weft, one plan                    %7.2f ms %7.2f ms   %8.1f MB\n", 1e3 * middle[MOVE],
           1e3 * demo.took[MOVE][0], 1e-6 * through_one);
    printf("gather, cast, broadcast, slice    %7.2f ms %7.2f ms   %8.1f MB\n", 1e3 * middle[THROUGH_ROOT],
           1e3 * demo.took[THROUGH_ROOT][0], 1e-6 * through_root);
    printf("                                  %7.1f times as long     %7.1f times as much\n\n",
           middle[THROUGH_ROOT] / middle[MOVE], through_root / through_one);
    printf("weft      reads %.1f GB/s of f32 and writes %.1f GB/s of bf16: %.1f GB/s in and out of memory\n",
           1e-9 * read / middle[MOVE], 1e-9 * written / middle[MOVE], 1e-9 * traffic);
    printf(
        "memcpy    by two threads copies %.1f GB/s: %.1f GB/s in and out; weft, which casts too, is at %.0f %% of it\n",
        1e-9 * copied / middle[MEMCPY], 1e-9 * copy_traffic, 100 * traffic / copy_traffic);
}

/* ---- options ---- */

static const char usage[] =
    "usage: weft-demo [--rounds N] [--layers N] [--hidden N] [--help]\n"
    "\n"
    "Moves a small transformer's weights from 4 trainer ranks to 4 inference ranks, which are threads, checks\n"
    "every byte, and compares the time with gather-then-broadcast and with memcpy.\n"
    "\n"
    "  --rounds N   moves, each with new weights (7)\n"
    "  --layers N   layers of the model (4); each takes 0.4 GB of memory, and the rest 0.8 GB\n"
    "  --hidden N   its width (1024), a multiple of 4\n";

static int number(const char *option, const char *text, int unit, int most)
{
    char *end = NULL;
    errno = 0;
    long n = text ? strtol(text, &end, 10) : 0;
    if (!text || end == text || *end || errno || n < unit || n > most || n % unit) {
        fprintf(stderr, "weft-demo: %s takes a %s from %d to %d\n", option, unit > 1 ? "multiple of 4" : "number", unit,
                most);
        exit(2);
    }
    return (int)n;
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        if (!strcmp(argv[i], "--help")) {
            fputs(usage, stdout);
            exit(0);
        } else if (!strcmp(argv[i], "--rounds")) {
            demo.rounds = number(argv[i], argv[i + 1], 1, 1000);
        } else if (!strcmp(argv[i], "--layers")) {
            demo.layers = number(argv[i], argv[i + 1], 1, 1000);
        } else if (!strcmp(argv[i], "--hidden")) {
            demo.hidden = number(argv[i], argv[i + 1], 4, 16384);
        } else {
            fprintf(stderr, "weft-demo: there is no option '%s'; see weft-demo --help\n", argv[i]);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    demo.rounds = 7;
    demo.layers = 4;
    demo.hidden = 1024;
    read_options(argc, argv);
    demo.copy_bytes = (size_t)demo.hidden * 96 << 10;
    for (int c = 0; c < CLOCKS; c++)
        demo.took[c] = need(calloc((size_t)demo.rounds, sizeof *demo.took[c]));
    printf("weft demo: a transformer's weights from 4 trainer ranks (f32) to 4 inference ranks (bf16)\n\n");
    make_model();
    show_model();
    lower_all();
    int64_t moved = show_traffic();
    fflush(stdout);

    pthread_t threads[RANKS];
    int ranks[RANKS];
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = r;
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r])) {
            fprintf(stderr, "weft-demo: cannot start a thread\n");
            return 1;
        }
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    show_times(moved);

    for (int s = 0; s < STAGES; s++) {
        for (int r = 0; r < RANKS; r++)
            weft_plan_free(demo.plans[s][r]);
        free(demo.moves[s]);
    }
    for (int i = 0; i < demo.ntensors; i++)
        for (int p = 0; p < PLACES; p++)
            weft_layout_free(demo.tensors[i].at[p]);
    for (int c = 0; c < CLOCKS; c++)
        free(demo.took[c]);
    free(demo.tensors);
    return 0;
}
