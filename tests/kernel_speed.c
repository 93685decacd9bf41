/* How fast the memory kernels are, each level that this machine has next to the others and to memcpy: GB/s of bytes
 * read plus bytes written, the best of several rounds, once in memory and once in the second cache. Not a test: CTest
 * does not run it.  kernel_speed [SUBSTRING-OF-A-NAME] */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/dtype.h"
#include "memory/memory.h"

#define LARGE (INT64_C(64) << 20) /* bytes that are read or written, whichever are more */
#define SMALL (INT64_C(128) << 10)

enum { WAYS = 8, LEVELS = 8 };

static unsigned char *to_mem, *from_mem[WAYS];
static const char *only;
static double memcpy_rate[2]; /* of LARGE and of SMALL */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* One thing to measure: a copy or cast along a tile, or a fold of contiguous terms. */
struct work {
    struct memory_tile tile;
    int to, from, op, terms; /* terms 0: a copy; -1: memcpy */
    int64_t bytes;           /* read plus written */
};

static void work_once(const struct work *w)
{
    if (w->terms < 0) {
        memcpy(to_mem, from_mem[0], (size_t)w->bytes / 2);
    } else if (!w->terms) {
        memory_copy(&w->tile, to_mem, w->to, from_mem[0], w->from);
    } else {
        struct memory_term t[WAYS];
        for (int k = 0; k < w->terms; k++)
            t[k] = (struct memory_term){from_mem[k], w->from, w->tile.stride[1]};
        memory_fold(&w->tile, to_mem, w->to, 0, dtype_acc(w->from), w->op, 0, t, (size_t)w->terms);
    }
}

static double rate(const struct work *w)
{
    double best = 1e9, spent = 0;
    int64_t turns = 1 + (INT64_C(4) << 20) / w->bytes;
    for (int round = 0; round < 4 || (spent < 0.2 && round < 200); round++) {
        double start = now();
        for (int64_t i = 0; i < turns; i++)
            work_once(w);
        double t = now() - start;
        spent += t;
        best = t < best ? t : best;
    }
    return (double)(w->bytes * turns) / best * 1e-9;
}

static void print_rates(const char *name, const struct work *large, const struct work *small)
{
    int had = memory_level(-1), last = had;
    printf("%-34s", name);
    for (int level = 0; level <= last; level++) {
        memory_level(level);
        double r = rate(large);
        printf("  %-7s%6.1f %4.0f%%", memory_level_name(level), r, 100 * r / memcpy_rate[0]);
        if (small)
            printf(" %6.1f %4.0f%%", rate(small), 100 * rate(small) / memcpy_rate[1]);
        else
            printf("%13s", "");
    }
    printf("\n");
    fflush(stdout);
    memory_level(had);
}

static int wanted(const char *name)
{
    return !only || strstr(name, only);
}

/* ---- contiguous runs ---- */

static struct work run_of(int to, int from, int op, int terms, int64_t limit)
{
    int64_t d = (int64_t)weft_dtype_size(to), s = (int64_t)weft_dtype_size(from), n = limit / (d > s ? d : s);
    struct work w = {{1, {n}, {{d}, {s}}}, to, from, op, terms, n * (d + s * (terms ? terms : 1))};
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

static void fold_rates(int to, int from, int op, int terms)
{
    char name[64];
    snprintf(name, sizeof name, "%s of %d %s to %s", weft_op_name(op), terms, weft_dtype_name(from),
             weft_dtype_name(to));
    struct work large = run_of(to, from, op, terms, LARGE / 2), small = run_of(to, from, op, terms, SMALL / 2);
    if (wanted(name))
        print_rates(name, &large, &small);
}

/* ---- strided copies ---- */

/* Runs of `run` bytes, `dgap` and `sgap` apart on the two sides. */
static void runs_rates(int64_t run, int64_t dgap, int64_t sgap)
{
    char name[64];
    snprintf(name, sizeof name, "runs of %d, every %d from %d", (int)run, (int)dgap, (int)sgap);
    if (!wanted(name))
        return;
    int64_t far = dgap > sgap ? dgap : sgap;
    struct work w[2];
    for (int i = 0; i < 2; i++) {
        int64_t n = (i ? SMALL : LARGE) / far;
        w[i] = (struct work){{2, {n, run}, {{dgap, 1}, {sgap, 1}}}, WEFT_U8, WEFT_U8, 0, 0, 2 * n * run};
    }
    print_rates(name, &w[0], &w[1]);
}

/* The rows of a matrix of `cols` bytes a row cut into columns: one part of `parts`, read from its place. */
static void element_rates(int dtype, int64_t dgap, int64_t sgap)
{
    char name[64];
    int64_t size = (int64_t)weft_dtype_size(dtype);
    snprintf(name, sizeof name, "%s, every %d from every %d", weft_dtype_name(dtype), (int)dgap, (int)sgap);
    if (!wanted(name))
        return;
    int64_t far = dgap > sgap ? dgap : sgap;
    struct work w[2];
    for (int i = 0; i < 2; i++) {
        int64_t n = (i ? SMALL : LARGE) / (far * size);
        w[i] = (struct work){{1, {n}, {{dgap * size}, {sgap * size}}}, dtype, dtype, 0, 0, 2 * n * size};
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
    struct work w = {{axes, {0}, {{0}, {0}}}, to, from, 0, 0, 0};
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
    memory_tile_merge(&w.tile);
    print_rates(name, &w, NULL);
}

/* Measured again by each group: what runs beside this program changes. */
static void memcpy_rates(void)
{
    struct work large = {.terms = -1, .bytes = 2 * LARGE}, small = {.terms = -1, .bytes = 2 * SMALL};
    memcpy_rate[0] = rate(&large);
    memcpy_rate[1] = rate(&small);
    printf("memcpy: %.1f GB/s in memory, %.1f in cache\n", memcpy_rate[0], memcpy_rate[1]);
}

static void all_copies(void)
{
    static const int64_t runs[] = {16, 24, 32, 48, 64, 100, 128, 192, 256, 1024};
    memcpy_rates();
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        runs_rates(runs[i], runs[i], 4 * runs[i]);
        runs_rates(runs[i], 4 * runs[i], runs[i]);
    }
    runs_rates(64, 16384, 64);
    runs_rates(64, 64, 16384);
    memcpy_rates();
    for (int dtype = WEFT_F32; dtype; dtype = dtype == WEFT_F32 ? WEFT_F64 : dtype == WEFT_F64 ? WEFT_BF16 : 0) {
        element_rates(dtype, 1, 2);
        element_rates(dtype, 1, 4);
        element_rates(dtype, 1, 64);
        element_rates(dtype, 4, 1);
        element_rates(dtype, 64, 1);
    }
    memcpy_rates();
    static const int turn[] = {1, 0}, inner[] = {0, 2, 1}, back[] = {2, 1, 0}, heads[] = {0, 2, 1, 3},
                     front[] = {2, 0, 1};
    static const int64_t square[] = {4096, 4096}, odd[] = {4097, 4099}, cube[] = {256, 256, 256},
                         tall[] = {1048576, 16}, wide[] = {16, 1048576}, attention[] = {8, 1024, 16, 128},
                         few[] = {1048576, 3}, image[] = {64, 65536, 3};
    static const int dtypes[] = {WEFT_U8, WEFT_F16, WEFT_F32, WEFT_F64};
    for (int i = 0; i < 4; i++)
        permute_rates(dtypes[i], dtypes[i], square, turn, 2);
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
    static const int narrow[] = {WEFT_BF16, WEFT_F16, WEFT_F8E4M3, WEFT_F8E5M2, WEFT_F64, WEFT_I32, WEFT_I8, WEFT_I64};
    memcpy_rates();
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        cast_rates(narrow[i], WEFT_F32);
        cast_rates(WEFT_F32, narrow[i]);
    }
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
    memcpy_rates();
    for (int terms = 2; terms <= 8; terms *= 2) {
        fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, terms);
        fold_rates(WEFT_BF16, WEFT_BF16, WEFT_SUM, terms);
        fold_rates(WEFT_F16, WEFT_F16, WEFT_SUM, terms);
    }
    fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, 3);
    fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, 5);
    fold_rates(WEFT_F32, WEFT_F32, WEFT_SUM, 7);
    fold_rates(WEFT_F32, WEFT_BF16, WEFT_SUM, 4);
    fold_rates(WEFT_F8E4M3, WEFT_F8E4M3, WEFT_SUM, 4);
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

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    to_mem = aligned_alloc(4096, 2 * LARGE);
    if (!to_mem)
        return 1;
    memset(to_mem, 1, 2 * LARGE);
    for (int k = 0; k < WAYS; k++) {
        from_mem[k] = aligned_alloc(4096, 2 * LARGE);
        if (!from_mem[k])
            return 1;
        for (int64_t i = 0; i < 2 * LARGE / 4; i++) { /* ordinary floats of every kind */
            uint32_t x = (uint32_t)(i * 2654435761u);
            ((uint32_t *)(void *)from_mem[k])[i] = (x & 0x807fffff) | 0x3f000000 | (x >> 8 & 0x00800000);
        }
    }
    printf("each level: GB/s and share of memcpy, in memory and then in cache\n");
    all_copies();
    all_casts();
    all_folds();
    for (int k = 0; k < WAYS; k++)
        free(from_mem[k]);
    free(to_mem);
    return 0;
}
