/* How fast the memory kernels are beside memcpy: GB/s of bytes read plus bytes written, in memory that is like window
 * memory and larger than the caches, by two workers on two cores, then by one; and by one in the second cache. memcpy
 * by as many workers takes turns with what is measured, medians are compared. Not a test: CTest does not run it.
 *   kernel_speed [-a] [SUBSTRING-OF-A-NAME]...      -a: each level of kernels, not the best alone */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/dtype.h"
#include "engine/shape.h"
#include "memory/memory.h"

#define LARGE (INT64_C(64) << 20) /* bytes that are read or written, whichever are more */
#define SMALL (INT64_C(128) << 10)

enum { WAYS = 8, WORKERS = 2, ROUNDS = 41 };

struct arrays {
    unsigned char *to, *from[WAYS];
};
static struct arrays arrays[WORKERS];
static bool each_level;
static int nwanted;
static char **wanted_names;

/* One thing to measure: a copy or cast along a tile, or a fold of contiguous terms. */
struct work {
    struct memory_tile tile;
    int to, from, op, terms; /* terms 0: a copy; -1: memcpy */
    int64_t bytes;           /* read plus written */
    int64_t calls;           /* of a copy, one run behind the other, as small tensors are copied; 0: one */
};

static void work_once(const struct work *w, const struct arrays *m)
{
    if (w->terms < 0) {
        memcpy(m->to, m->from[0], (size_t)w->bytes / 2);
    } else if (!w->terms) {
        for (int64_t i = 0, to = 0, from = 0; !i || i < w->calls; i++) {
            memory_copy(&w->tile, m->to + to, w->to, m->from[0] + from, w->from);
            to += w->tile.n[0] * w->tile.stride[0][0];
            from += w->tile.n[0] * w->tile.stride[1][0];
        }
    } else {
        struct memory_term t[WAYS];
        for (int k = 0; k < w->terms; k++)
            t[k] = (struct memory_term){m->from[k], w->from, w->tile.stride[1]};
        memory_fold(&w->tile, m->to, w->to, 0, dtype_acc(w->from), w->op, w->op == WEFT_AVG ? w->terms : 0, t,
                    (size_t)w->terms);
    }
}

/* ---- workers ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What all workers do: memcpy and the work in turn, all beginning each at once. */
static struct race {
    int workers, rounds;
    struct work what[2];
    int64_t turns[2]; /* calls a round */
    double took[2][ROUNDS];
    atomic_int here, phase;
} race;

static void meet(void)
{
    int phase = atomic_load_explicit(&race.phase, memory_order_acquire);
    if (atomic_fetch_add_explicit(&race.here, 1, memory_order_acq_rel) == race.workers - 1) {
        atomic_store_explicit(&race.here, 0, memory_order_relaxed);
        atomic_store_explicit(&race.phase, phase + 1, memory_order_release);
    } else {
        while (atomic_load_explicit(&race.phase, memory_order_acquire) == phase)
            ;
    }
}

static void *worker(void *arg)
{
    struct arrays *m = arg;
    int self = (int)(m - arrays);
    size_t cpu = 0;
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (!sched_getaffinity(0, sizeof all, &all) && CPU_COUNT(&all) >= race.workers) {
        for (int left = self; left || !CPU_ISSET(cpu, &all); cpu++)
            left -= CPU_ISSET(cpu, &all) != 0;
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof one, &one);
    }
    for (int round = 0; round < race.rounds; round++)
        for (int k = 0; k < 2; k++) {
            meet();
            double start = now();
            for (int64_t i = 0; i < race.turns[k]; i++)
                work_once(&race.what[k], m);
            meet();
            if (self == 0)
                race.took[k][round] = now() - start;
        }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* GB/s of work `k`: the median round. */
static double race_rate(int k)
{
    qsort(race.took[k], (size_t)race.rounds, sizeof race.took[k][0], by_size);
    double took = race.took[k][race.rounds / 2];
    return (double)(race.workers * race.turns[k] * race.what[k].bytes) / took * 1e-9;
}

static void print_rate(const struct work *w, int workers, int64_t size)
{
    pthread_t threads[WORKERS];
    race.workers = workers;
    race.rounds = ROUNDS;
    race.what[0] = (struct work){.terms = -1, .bytes = 2 * size};
    race.what[1] = *w;
    for (int k = 0; k < 2; k++)
        race.turns[k] = 1 + (INT64_C(4) << 20) / race.what[k].bytes;
    double start = now();
    work_once(w, arrays);
    if (now() - start > 0.03)
        race.rounds = 9;
    /* Workers other than this thread, which stays free to run anywhere. */
    for (int i = 0; i < workers; i++)
        if (pthread_create(&threads[i], NULL, worker, &arrays[i]))
            exit(1);
    for (int i = 0; i < workers; i++)
        pthread_join(threads[i], NULL);
    double copied = race_rate(0), did = race_rate(1);
    printf("  %6.1f %4.0f%%", did, 100 * did / copied);
}

static void print_rates(const char *name, const struct work *large, const struct work *small)
{
    int best = memory_level(-1);
    for (int level = each_level ? 0 : best; level <= best; level++) {
        memory_level(level);
        printf("%-38s%-7s", name, memory_level_name(level));
        print_rate(large, WORKERS, LARGE);
        print_rate(large, 1, LARGE);
        if (small)
            print_rate(small, 1, SMALL);
        printf("\n");
        fflush(stdout);
    }
}

static bool wanted(const char *name)
{
    for (int i = 0; i < nwanted; i++)
        if (strstr(name, wanted_names[i]))
            return true;
    return !nwanted;
}

/* ---- contiguous runs ---- */

static struct work run_of(int to, int from, int op, int terms, int64_t limit)
{
    int64_t d = (int64_t)weft_dtype_size(to), s = (int64_t)weft_dtype_size(from), n = limit / (d > s ? d : s);
    struct work w = {{1, {n}, {{d}, {s}}}, to, from, op, terms, n * (d + s * (terms ? terms : 1)), 0};
    return w;
}

static void cast_rates(int to, int from)
{
    char name[64];
    snprintf(name, sizeof name, "cast %s to %s", weft_dtype_name(from), weft_dtype_name(to));
    struct work large = run_of(to, from, 0, 0, LARGE), small = run_of(to, from, 0, 0, SMALL);
    if (wanted(name))
        print_rates(name, &large, &small);
}

/* Runs of n elements, each cast by a call of its own. */
static void single_rates(int to, int from, int64_t n)
{
    char name[64];
    snprintf(name, sizeof name, "cast %s to %s, %d in a call", weft_dtype_name(from), weft_dtype_name(to), (int)n);
    struct work large = run_of(to, from, 0, 0, LARGE), small = run_of(to, from, 0, 0, SMALL);
    large.calls = large.tile.n[0] / n;
    small.calls = small.tile.n[0] / n;
    large.tile.n[0] = small.tile.n[0] = n;
    if (wanted(name))
        print_rates(name, &large, &small);
}

static void fold_rates(int to, int from, int op, int terms)
{
    char name[64];
    snprintf(name, sizeof name, "%s of %d %s to %s", weft_op_name(op), terms, weft_dtype_name(from),
             weft_dtype_name(to));
    struct work large = run_of(to, from, op, terms, LARGE / 2), small = run_of(to, from, op, terms, SMALL / 4);
    if (wanted(name))
        print_rates(name, &large, &small);
}

/* ---- tiles ---- */

/* dst[i][j] = src[j][i] or dst[i][j] = src[i][j], of runs of `run` bytes: n[0] by n[1], with gaps after each run in dst
 * and in src. Block-cyclic pieces and columns are of this kind. Walked as shape_merge orders it, or, swapped, the other
 * way round. */
static void blocks_rates(int64_t run, int64_t dgap, int64_t sgap, bool across, bool swapped)
{
    char name[64];
    snprintf(name, sizeof name, "runs of %d, 1 of %d from 1 of %d%s%s", (int)run, (int)dgap, (int)sgap,
             across ? ", across" : "", swapped ? ", swapped" : "");
    if (!wanted(name))
        return;
    struct work w[2];
    for (int k = 0; k < 2; k++) {
        int64_t most = (k ? SMALL : LARGE) / run / (dgap > sgap ? dgap : sgap), n = 1;
        while (n * n < most)
            n *= 2;
        int64_t m = most / n;
        struct memory_tile t = {3, {n, m, run}, {{0}, {0}}};
        const int64_t ds[2] = {m * dgap * run, dgap * run};
        t.stride[0][0] = ds[0];
        t.stride[0][1] = ds[1];
        t.stride[1][0] = across ? sgap * run : m * sgap * run;
        t.stride[1][1] = across ? n * sgap * run : sgap * run;
        t.stride[0][2] = t.stride[1][2] = 1;
        t.loops = shape_merge(3, t.n, t.stride, 2);
        if (swapped && t.loops == 3) {
            for (int o = 0; o < 2; o++) {
                int64_t x = t.stride[o][0];
                t.stride[o][0] = t.stride[o][1];
                t.stride[o][1] = x;
            }
            int64_t x = t.n[0];
            t.n[0] = t.n[1];
            t.n[1] = x;
        }
        w[k] = (struct work){t, WEFT_U8, WEFT_U8, 0, 0, 2 * n * m * run, 0};
    }
    print_rates(name, &w[0], &w[1]);
}

/* dst[p(i, j, k)] = src[i, j, k], dense on both sides; places[l] says which axis of dst axis l of src is. */
static void permute_rates(int to, int from, const int64_t *n, const int *places, int axes)
{
    char name[80];
    int at = snprintf(name, sizeof name, "permute %s", weft_dtype_name(from));
    if (to != from)
        at += snprintf(name + at, sizeof name - (size_t)at, ">%s", weft_dtype_name(to));
    for (int i = 0; i < axes; i++)
        at += snprintf(name + at, sizeof name - (size_t)at, "%c%d", i ? 'x' : ' ', (int)n[i]);
    for (int i = 0; i < axes; i++)
        at += snprintf(name + at, sizeof name - (size_t)at, "%c%d", i ? ',' : ' ', places[i]);
    if (!wanted(name))
        return;
    struct work w = {{axes, {0}, {{0}, {0}}}, to, from, 0, 0, 0, 0};
    int64_t s = (int64_t)weft_dtype_size(from), d = (int64_t)weft_dtype_size(to), all = 1;
    for (int i = axes - 1; i >= 0; i--) {
        w.tile.n[i] = n[i];
        w.tile.stride[1][i] = s * all;
        all *= n[i];
    }
    for (int a = axes - 1, i; a >= 0; a--) {
        for (i = 0; places[i] != a; i++)
            ;
        w.tile.stride[0][i] = d;
        d *= n[i];
    }
    w.bytes = all * (s + (int64_t)weft_dtype_size(to));
    w.tile.loops = shape_merge(axes, w.tile.n, w.tile.stride, 2);
    print_rates(name, &w, NULL);
}

static void all_copies(void)
{
    static const int64_t runs[] = {4, 8, 16, 24, 32, 48, 64, 100, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        blocks_rates(runs[i], 1, 4, false, false);
        blocks_rates(runs[i], 4, 1, false, false);
        blocks_rates(runs[i], 2, 4, false, false);
        for (int swapped = 0; runs[i] >= 16 && swapped < 2; swapped++) {
            blocks_rates(runs[i], 1, 1, true, swapped);
            blocks_rates(runs[i], 1, 4, true, swapped);
            blocks_rates(runs[i], 4, 1, true, swapped);
        }
    }
    static const int turn[] = {1, 0}, inner[] = {0, 2, 1}, back[] = {2, 1, 0}, heads[] = {0, 2, 1, 3},
                     front[] = {2, 0, 1};
    static const int64_t bytes[] = {8192, 8192}, halves[] = {8192, 4096}, square[] = {4096, 4096}, odd[] = {4097, 4099},
                         doubles[] = {4096, 2048}, cube[] = {256, 256, 256}, tall[] = {1048576, 16},
                         wide[] = {16, 1048576}, attention[] = {8, 1024, 16, 128}, few[] = {1048576, 3},
                         image[] = {64, 65536, 3};
    permute_rates(WEFT_U8, WEFT_U8, bytes, turn, 2);
    permute_rates(WEFT_F16, WEFT_F16, halves, turn, 2);
    permute_rates(WEFT_F32, WEFT_F32, square, turn, 2);
    permute_rates(WEFT_F64, WEFT_F64, doubles, turn, 2);
    permute_rates(WEFT_F32, WEFT_F32, odd, turn, 2);
    permute_rates(WEFT_F32, WEFT_F32, tall, turn, 2);
    permute_rates(WEFT_F32, WEFT_F32, wide, turn, 2);
    permute_rates(WEFT_F32, WEFT_F32, few, turn, 2);
    permute_rates(WEFT_F32, WEFT_F32, cube, inner, 3);
    permute_rates(WEFT_F32, WEFT_F32, cube, back, 3);
    permute_rates(WEFT_F32, WEFT_F32, cube, front, 3);
    permute_rates(WEFT_U8, WEFT_U8, image, inner, 3);
    permute_rates(WEFT_BF16, WEFT_BF16, attention, heads, 4);
    permute_rates(WEFT_BF16, WEFT_F32, square, turn, 2);
    permute_rates(WEFT_F32, WEFT_BF16, cube, back, 3);
}

static void all_casts(void)
{
    static const int narrow[] = {WEFT_BF16, WEFT_F16, WEFT_F8E4M3, WEFT_F8E5M2, WEFT_F8E8M0,
                                 WEFT_F64,  WEFT_I32, WEFT_I8,     WEFT_I64};
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        cast_rates(narrow[i], WEFT_F32);
        cast_rates(WEFT_F32, narrow[i]);
    }
    for (int64_t n = 8; n <= 512; n *= 4) {
        single_rates(WEFT_BF16, WEFT_F32, n);
        single_rates(WEFT_F32, WEFT_BF16, n);
    }
    cast_rates(WEFT_F8E4M3SAT, WEFT_F32);
    cast_rates(WEFT_F8E5M2SAT, WEFT_F32);
    cast_rates(WEFT_C64, WEFT_F32);
    cast_rates(WEFT_C128, WEFT_C64);
    cast_rates(WEFT_F16, WEFT_BF16);
    cast_rates(WEFT_F8E4M3, WEFT_BF16);
    cast_rates(WEFT_BF16, WEFT_F64);
    cast_rates(WEFT_I64, WEFT_I32);
    cast_rates(WEFT_I32, WEFT_I64);
    cast_rates(WEFT_I8, WEFT_I32);
    cast_rates(WEFT_I32, WEFT_U8);
    cast_rates(WEFT_BOOL, WEFT_F32);
}

static void all_folds(void)
{
    for (int terms = 2; terms <= 8; terms *= 2) {
        fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, terms);
        fold_rates(WEFT_BF16, WEFT_BF16, WEFT_SUM, terms);
        fold_rates(WEFT_F16, WEFT_F16, WEFT_SUM, terms);
    }
    static const int floats[] = {WEFT_F64, WEFT_F32, WEFT_BF16, WEFT_F16, WEFT_F8E4M3};
    for (int i = 0; i < 5; i++) {
        fold_rates(floats[i], floats[i], WEFT_SUM, 3);
        fold_rates(floats[i], floats[i], WEFT_AVG, 3);
        fold_rates(floats[i], floats[i], WEFT_AVG, 4);
    }
    fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, 5);
    fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, 7);
    fold_rates(WEFT_F32, WEFT_BF16, WEFT_SUM, 4);
    fold_rates(WEFT_F8E4M3, WEFT_F8E4M3, WEFT_SUM, 4);
    fold_rates(WEFT_F8E4M3SAT, WEFT_F8E4M3SAT, WEFT_SUM, 4);
    fold_rates(WEFT_C64, WEFT_C64, WEFT_SUM, 4);
    fold_rates(WEFT_BF16, WEFT_BF16, WEFT_MAX, 4);
    fold_rates(WEFT_F64, WEFT_F64, WEFT_SUM, 2);
    fold_rates(WEFT_F64, WEFT_F64, WEFT_SUM, 4);
    fold_rates(WEFT_F32, WEFT_F32, WEFT_MAX, 4);
    fold_rates(WEFT_F32, WEFT_F32, WEFT_MIN, 2);
    fold_rates(WEFT_F32, WEFT_F32, WEFT_PROD, 4);
    static const int ints[] = {WEFT_I8, WEFT_I16, WEFT_I32, WEFT_I64};
    for (int i = 0; i < 4; i++) {
        fold_rates(ints[i], ints[i], WEFT_SUM, 4);
        fold_rates(ints[i], ints[i], WEFT_MAX, 4);
    }
    fold_rates(WEFT_I64, WEFT_I64, WEFT_PROD, 2);
    fold_rates(WEFT_BOOL, WEFT_BOOL, WEFT_MAX, 4);
}

/* As window memory is: shared, in huge pages where the system gives them, touched. */
static unsigned char *take(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

int main(int argc, char **argv)
{
    wanted_names = argv + 1;
    nwanted = argc - 1;
    if (nwanted && !strcmp(argv[1], "-a")) {
        each_level = true;
        wanted_names++;
        nwanted--;
    }
    for (int w = 0; w < WORKERS; w++) {
        arrays[w].to = take(LARGE + LARGE / 8);
        for (int k = 0; k < WAYS; k++) {
            size_t bytes = (size_t)(k ? LARGE / 2 : LARGE + LARGE / 8);
            arrays[w].from[k] = take(bytes);
            for (size_t i = 0; i < bytes / 4; i++) { /* ordinary numbers in every dtype: no infinities, no NaN */
                uint32_t x = (uint32_t)(i * 2654435761u);
                ((uint32_t *)(void *)arrays[w].from[k])[i] = (x & 0x80bf80bf) | 0x3f003f00;
            }
        }
    }
    printf("%-38s%-7s  %-12s  %-12s  %s\n", "GB/s and share of memcpy", "level", "2 workers", "1 worker", "in cache");
    all_copies();
    all_casts();
    all_folds();
    return 0;
}
