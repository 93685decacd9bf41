/* The kernels on a real GPU, through weft_cuda.so; run by hand where there is one.
 *   gpu_bodies check [N]     N random tables (2000), compared with memory/ bit by bit,
 *                            and each cast and fold that the kernels have forms for
 *   gpu_bodies calls         memory, sharing inside the process, pins and words
 *   gpu_bodies waits         a kernel that waits for the host
 *   gpu_bodies speed [MIB]   speed of copies, casts, folds and transposes (256 MiB), in % of a copy by CUDA itself that
 *                            reads and writes as many bytes; medians of rounds that take turns
 * WEFT_MODULES is the folder of the module. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "device/device_queue.h"
#include "device_jobs.h"
#include "memory/sum.h"

static struct device *device;
static const struct device_ops *ops;
static void *stream;

static void must(int e, const char *what)
{
    if (e) {
        fprintf(stderr, "%s: %s\n", what, weft_errmsg());
        exit(1);
    }
}

/* ---- check ---- */

#define ARENA ((size_t)256 << 20)
#define CHECK_MOST 12 /* jobs of a table */
static unsigned char *arena;
static size_t arena_used;
static uint64_t last_at; /* of the operand that was placed last */

static uint64_t place(const struct operand *o)
{
    unsigned char *at = arena + arena_used;
    arena_used += ((size_t)o->bytes + 511) / 256 * 256;
    if (arena_used > ARENA) {
        fprintf(stderr, "the arena is too small\n");
        exit(1);
    }
    must(ops->copy(device, stream, at, o->data, (size_t)o->bytes), "copy");
    return last_at = (uint64_t)(uintptr_t)at;
}

/* Runs n jobs in one table. Returns how many of them are wrong. */
static int64_t check_table(struct job *jobs, int n, int64_t number)
{
    uint64_t at[CHECK_MOST];
    int64_t wrong = 0;
    arena_used = 0;
    struct device_table *t = device_table_new();
    must(t ? 0 : error_nomem(), "table");
    for (int k = 0; k < n; k++) {
        must(jobs_add(&jobs[k], t, place), "add");
        at[k] = last_at; /* dst is placed after the terms */
    }
    must(device_table_close(t), "close");
    size_t bytes, launches;
    const void *image = device_table_image(t, &bytes);
    const struct device_launch *l = device_table_launches(t, &launches);
    unsigned char *table = arena + arena_used;
    arena_used += bytes;
    must(arena_used > ARENA ? error_set(WEFT_ENOMEM, "the arena is too small") : 0, "table");
    must(ops->copy(device, stream, table, image, bytes), "copy of the table");
    for (size_t k = 0; k < launches; k++)
        must(ops->launch(device, stream, (uint64_t)(uintptr_t)table, &l[k], NULL, 0), "launch");
    for (int k = 0; k < n; k++)
        must(ops->copy(device, stream, jobs[k].dst.data, (void *)(uintptr_t)at[k], (size_t)jobs[k].dst.bytes),
             "copy back");
    must(ops->sync(device, stream), "sync");
    for (int k = 0; k < n; k++) {
        jobs_host(&jobs[k]);
        int64_t bad = jobs_check(&jobs[k]);
        if (bad)
            printf("table %lld, job %d: %lld wrong\n", (long long)number, k, (long long)bad);
        wrong += bad != 0;
        jobs_free(&jobs[k]);
    }
    device_table_free(t);
    return wrong;
}

/* Sums of random lengths, as the bus has them: 64 KiB at most. Returns how many are wrong. */
static int64_t check_sums(void)
{
    enum { N = 300, MOST = 65536 };
    static unsigned char bytes[MOST * 16 + 16 * N];
    static uint64_t sums[N];
    uint32_t n[N];
    struct device_queue *q;
    int64_t wrong = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)nests_below(256);
    must(ops->copy(device, stream, arena + MOST, bytes, sizeof bytes), "copy");
    must(device_queue_new(device, &q), "queue");
    for (int i = 0; i < N; i++) {
        n[i] = i % 3 ? 1 + (uint32_t)nests_below(MOST) : MOST;
        must(device_queue_sum(q, 0, (uintptr_t)arena + 8 * (uint64_t)i,
                              (uintptr_t)arena + MOST + MOST * (uint64_t)(i % 15) + 16 * (uint64_t)i, n[i]),
             "sum");
    }
    must(device_queue_close(q), "close");
    must(device_queue_run(q, stream, NULL), "run");
    must(ops->copy(device, stream, sums, arena, sizeof sums), "copy back");
    must(ops->sync(device, stream), "sync");
    for (int i = 0; i < N; i++)
        wrong += sums[i] != sum_bytes(0, bytes + MOST * (i % 15) + 16 * i, n[i]);
    device_queue_free(q);
    printf("%d sums, %lld wrong\n", N, (long long)wrong);
    return wrong;
}

static int check(int64_t tables)
{
    static struct job jobs[CHECK_MOST];
    int64_t wrong = 0, dense = 0;
    arena = ops->alloc(device, ARENA);
    must(arena ? 0 : WEFT_ENOMEM, "alloc");
    for (int64_t i = 0; i < tables; i++) {
        nests_seed = (uint64_t)i * 7919 + 3;
        int n = nests_below(4) ? 1 : 1 + (int)nests_below(CHECK_MOST);
        for (int k = 0; k < n; k++) {
            jobs_make(&jobs[k]);
            jobs[k].level = (uint32_t)nests_below(3);
        }
        wrong += check_table(jobs, n, i);
    }
    for (int64_t i = 0; jobs_make_dense(&jobs[0], &i); i++, dense++)
        wrong += check_table(jobs, 1, i);
    wrong += check_sums();
    printf("%lld random and %lld dense tables, %lld jobs wrong\n", (long long)tables, (long long)dense,
           (long long)wrong);
    return wrong != 0;
}

/* ---- calls ---- */

static void expect(bool is, const char *what)
{
    if (!is) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

static void memory_calls(void)
{
    enum { BYTES = 100000 };
    static unsigned char host[BYTES];
    unsigned char *p = ops->alloc(device, BYTES), *bases[2];
    struct device_share share;
    expect(p && (uintptr_t)p % 256 == 0, "memory is aligned");
    memset(host, 1, BYTES);
    must(ops->copy(device, stream, host, p, BYTES), "copy");
    must(ops->sync(device, stream), "sync");
    for (int i = 0; i < BYTES; i++)
        expect(host[i] == 0, "memory is zero");
    expect(ops->owner(p + 5) == 0 && ops->owner(host) == -1, "the owner of memory is known");
    must(ops->share(device, p + 100, &share), "share");
    expect(share.base <= (uintptr_t)p && share.base + share.bytes >= (uintptr_t)p + BYTES, "all of it is shared");
    for (int k = 0; k < 2; k++)
        must(ops->map(device, &share, (void **)&bases[k]), "map");
    expect((uintptr_t)bases[0] == share.base && bases[1] == bases[0], "this process uses its memory as it is");
    ops->unmap(device, bases[0]);
    ops->unmap(device, bases[0]);
    ops->free(device, p);
}

/* Pins that are the same, that overlap and that contain each other, given back in another order. */
static void pin_calls(void)
{
    const size_t page = 4096;
    unsigned char *p = aligned_alloc(65536, 32 * page);
    uint64_t at[5];
    bool idle = false, capturing = true;
    expect(p, "memory");
    memset(p, 0, 32 * page);
    must(ops->pin(device, p + 4 * page, 4 * page, &at[0]), "pin");
    must(ops->pin(device, p + 4 * page, 4 * page, &at[1]), "pin again");
    must(ops->pin(device, p + 6 * page + 12, 4 * page, &at[2]), "pin that overlaps");
    must(ops->pin(device, p, 16 * page, &at[3]), "pin around others");
    must(ops->pin(device, p + 5 * page, 100, &at[4]), "pin inside another one");
    expect(at[0] == at[1] && at[2] == at[0] + 2 * page + 12 && at[3] + 4 * page == at[0], "addresses are consistent");
    ops->unpin(device, p + 4 * page);
    ops->unpin(device, p + 6 * page + 12);
    ops->unpin(device, p + 5 * page);
    enum { WORDS = 70 };
    struct device_word words[WORDS];
    for (uint32_t k = 0; k < WORDS; k++)
        words[k] = (struct device_word){at[3] + k * 64, k + 7};
    must(ops->signal(device, stream, words, 1), "signal");
    must(ops->signal(device, stream, words, WORDS), "signals");
    must(ops->await(device, stream, words, WORDS), "await");
    words[0].value = (uint32_t)-3; /* words wrap round */
    must(ops->await(device, stream, words, 1), "await");
    must(ops->capturing(device, stream, &capturing), "capturing");
    must(ops->sync(device, stream), "sync");
    must(ops->idle(device, stream, &idle), "idle");
    expect(idle && !capturing, "the stream is idle");
    for (uint32_t k = 0; k < WORDS; k++)
        expect(*(volatile uint32_t *)(p + k * 64) == k + 7, "the words are written");
    ops->unpin(device, p);
    ops->unpin(device, p + 4 * page);
    must(ops->pin(device, p + page, 20 * page, &at[0]), "pin of what was given back");
    ops->unpin(device, p + page);
    /* Two pins that begin at one address: the longer one stays until both are given back. */
    must(ops->pin(device, p, page, &at[0]), "pin");
    must(ops->pin(device, p, 3 * page, &at[1]), "pin that is longer");
    ops->unpin(device, p);
    words[0] = (struct device_word){at[1] + 2 * page, 5};
    must(ops->signal(device, stream, words, 1), "signal");
    must(ops->sync(device, stream), "sync");
    expect(*(volatile uint32_t *)(p + 2 * page) == 5, "the longer pin is left");
    ops->unpin(device, p);
    /* A copy of memory that is pinned in part, by two pins. */
    unsigned char *there = ops->alloc(device, 12 * page);
    must(ops->pin(device, p + 8 * page, 2 * page, &at[0]), "pin");
    must(ops->pin(device, p + 10 * page, 3 * page, &at[1]), "pin");
    for (size_t i = 0; i < 12 * page; i++)
        p[5 * page + 100 + i] = (unsigned char)(i * 7 + i / 251);
    must(ops->copy(device, stream, there, p + 5 * page + 100, 12 * page), "copy of memory that is pinned in part");
    must(ops->sync(device, stream), "sync");
    memset(p + 5 * page + 100, 0, 12 * page);
    must(ops->copy(device, stream, p + 5 * page + 100, there, 12 * page), "copy to memory that is pinned in part");
    must(ops->sync(device, stream), "sync");
    for (size_t i = 0; i < 12 * page; i++)
        expect(p[5 * page + 100 + i] == (unsigned char)(i * 7 + i / 251), "all pieces are copied");
    ops->unpin(device, p + 8 * page);
    ops->unpin(device, p + 10 * page);
    ops->free(device, there);
    free(p);
}

/* Memory that this process may only read, as a snapshot of the bus: not all devices can have it pinned. */
static void read_only_calls(void)
{
    enum { BYTES = 1 << 20 };
    int file = memfd_create("read-only", MFD_CLOEXEC);
    uint64_t at;
    expect(file >= 0 && !ftruncate(file, BYTES), "a file of memory");
    unsigned char *w = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0),
                  *r = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, file, 0), *there = ops->alloc(device, BYTES),
                  *back = malloc(BYTES);
    expect(w != MAP_FAILED && r != MAP_FAILED && there && back, "memory");
    for (int i = 0; i < BYTES; i++)
        w[i] = (unsigned char)(i * 11 + i / 253);
    int pinned = !ops->pin_read(device, r, BYTES, &at);
    printf("memory that can only be read is %s\n", pinned ? "pinned" : weft_errmsg());
    must(ops->copy(device, stream, there, r, BYTES), "copy of memory that can only be read");
    must(ops->copy(device, stream, back, there, BYTES), "copy");
    must(ops->sync(device, stream), "sync");
    expect(!memcmp(back, w, BYTES), "it is copied");
    if (pinned)
        ops->unpin(device, r);
    ops->free(device, there);
    free(back);
    munmap(w, BYTES);
    munmap(r, BYTES);
    close(file);
}

/* Gates: of three ranks, of which this one has all words. A list of addresses, words in both memories, and a counter:
 * the same gate is passed twice. `bytes` are copied behind it: by the kernel that waits, by another one, or by one with
 * a third behind it. */
static void gate_calls(size_t bytes)
{
    enum { RANKS = 3, STRIDE = 64, COME = 0, GONE = 128, COUNTER = 192, AT = 8192 };
    const size_t page = 4096;
    volatile uint32_t *host = aligned_alloc(page, page);
    unsigned char *memory = ops->alloc(device, AT + 2 * bytes), *back = malloc(bytes), *text = malloc(bytes);
    uint64_t at, list[RANKS], base = (uintptr_t)memory + 4096, near[2 * RANKS], counter;
    memset((void *)(uintptr_t)host, 0, page);
    must(ops->pin(device, (void *)(uintptr_t)host, page, &at), "pin");
    for (int r = 0; r < RANKS; r++)
        list[r] = base + (uint64_t)r * 256;
    must(ops->copy(device, stream, memory, list, sizeof list), "copy of the list");
    const uint64_t of = (uintptr_t)memory;
    /* the others have come: one in device memory, one in host memory alone */
    struct device_gate other = {.come = {.near = list[1] + COME, .n = 1, .value = 2}};
    must(ops->meet(device, stream, &other, NULL), "meet");
    must(ops->sync(device, stream), "sync");
    host[2 * STRIDE / 4] = 2;
    struct device_gate gate = {
        .counter = list[0] + COUNTER,
        .late = at + 2048,
        .counts = true,
        .come = {.near = list[0] + COME, .at = at, .n = 1, .hosts = 1, .stride = STRIDE, .value = 1},
        .awaited = {.list = of + 8,
                    .near = COME,
                    .at = at + STRIDE,
                    .n = RANKS - 1,
                    .stride = STRIDE,
                    .value = 1,
                    .host_value = 1,
                    .host_counts = 1},
        .told =
            {.list = of + 8, .near = GONE, .at = at + 4, .n = RANKS - 1, .hosts = RANKS, .stride = STRIDE, .value = 5},
    };
    struct device_queue *q;
    const int64_t n[1] = {(int64_t)bytes}, stride[1] = {1};
    struct device_operand from = {(uintptr_t)memory + AT, stride, WEFT_U8};
    struct device_task task = {
        .loops = 1, .n = n, .dst = {(uintptr_t)memory + AT + bytes, stride, WEFT_U8}, .terms = &from, .nterms = 1};
    for (size_t i = 0; i < bytes; i++)
        text[i] = (unsigned char)(i * 7 + 3);
    must(ops->copy(device, stream, memory + AT, text, bytes), "copy");
    must(device_queue_new(device, &q), "queue");
    must(device_queue_add(q, &task), "add");
    must(device_queue_close(q), "close");
    must(device_queue_run(q, stream, &gate), "a launch with a gate");
    must(device_queue_record(q, &gate), "a recording");
    must(device_queue_replay(q, stream), "the same again");
    must(ops->copy(device, stream, back, memory + AT + bytes, bytes), "copy");
    for (int r = 0; r < RANKS; r++) {
        must(ops->copy(device, stream, &near[r], (void *)(uintptr_t)(list[r] + COME), 4), "copy");
        must(ops->copy(device, stream, &near[RANKS + r], (void *)(uintptr_t)(list[r] + GONE), 4), "copy");
    }
    must(ops->copy(device, stream, &counter, (void *)(uintptr_t)(list[0] + COUNTER), 4), "copy");
    must(ops->sync(device, stream), "sync");
    expect(!memcmp(back, text, bytes), "the kernel behind the gate has done its work");
    expect((uint32_t)counter == 2, "the gate was passed twice");
    const uint32_t shown = bytes > 4096 ? 2 : 0; /* if there are other kernels behind that which waits */
    expect(host[2048 / 4] == shown && host[2048 / 4 + 1] == shown, "nobody was late");
    expect((uint32_t)near[0] == 2 && host[0] == 2, "the gate has said that this rank has come");
    for (int r = 0; r < RANKS; r++) {
        expect((uint32_t)near[RANKS + r] == (r ? 6 : 0), "the gate has told the others");
        expect(host[r * STRIDE / 4 + 1] == 6, "the gate has told the hosts");
    }
    device_queue_free(q);
    ops->unpin(device, (void *)(uintptr_t)host);
    ops->free(device, memory);
    free((void *)(uintptr_t)host);
    free(back);
    free(text);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* A kernel that waits for long says so in host memory, and goes on when the host lets it. One that does not wait says
 * so only if it is asked to. There are more words of hosts than threads that write them. */
static void late_calls(void)
{
    enum { WORDS = 300, LATE = 3072, RELEASED = 3080 };
    const size_t page = 4096;
    volatile uint32_t *host = aligned_alloc(page, page);
    uint32_t *memory = ops->alloc(device, 4096);
    uint64_t at;
    memset((void *)(uintptr_t)host, 0, page);
    must(ops->pin(device, (void *)(uintptr_t)host, page, &at), "pin");
    struct device_gate gate = {
        .late = at + LATE,
        .come = {.at = at, .hosts = WORDS, .stride = 4, .value = 7},
        .awaited = {.near = (uintptr_t)memory, .at = at + RELEASED, .n = 1, .value = 1, .host_value = 1}};
    must(ops->meet(device, stream, &gate, NULL), "meet");
    double until = now() + 60e6;
    while (host[LATE / 4] != 7 && now() < until) {
    }
    expect(host[LATE / 4] == 7 && !host[LATE / 4 + 1], "a kernel that waits shows it");
    host[RELEASED / 4] = 1;
    must(ops->sync(device, stream), "sync");
    expect(host[LATE / 4 + 1] == 7, "and shows that it goes on");
    for (int i = 0; i < WORDS; i++)
        expect(host[i] == 7, "all words of hosts are written");
    gate.shown = true;
    gate.come.value = 8;
    must(ops->meet(device, stream, &gate, NULL), "meet");
    must(ops->sync(device, stream), "sync");
    expect(host[LATE / 4] == 8 && host[LATE / 4 + 1] == 8, "a kernel that is asked to shows that it goes on");
    ops->unpin(device, (void *)(uintptr_t)host);
    ops->free(device, memory);
    free((void *)(uintptr_t)host);
}

/* Levels inside one kernel: each takes its halves from those of the level before in the other order, so that blocks
 * read what other blocks wrote. */
static void level_calls(void)
{
    enum { HALF = 128 << 10, LEVELS = 4 };
    const int64_t n[1] = {HALF}, stride[1] = {1};
    const struct device_gate gate = {.come = {.n = 0}};
    unsigned char *memory = ops->alloc(device, (LEVELS + 1) * 2 * HALF), *text = malloc(2 * HALF),
                  *back = malloc(2 * HALF);
    struct device_queue *q;
    expect(memory && text && back, "memory");
    must(device_queue_new(device, &q), "queue");
    for (uint32_t level = 0; level < LEVELS; level++)
        for (int half = 0; half < 2; half++) {
            uintptr_t at = (uintptr_t)memory + (uintptr_t)level * 2 * HALF;
            struct device_operand from = {at + (uintptr_t)(1 - half) * HALF, stride, WEFT_U8};
            struct device_task task = {.level = level,
                                       .loops = 1,
                                       .n = n,
                                       .dst = {at + 2 * HALF + (uintptr_t)half * HALF, stride, WEFT_U8},
                                       .terms = &from,
                                       .nterms = 1};
            must(device_queue_add(q, &task), "add");
        }
    must(device_queue_close(q), "close");
    expect(device_queue_launches(q) == LEVELS, "each level is a launch");
    for (int run = 0; run < 100; run++) {
        for (int i = 0; i < 2 * HALF; i++)
            text[i] = (unsigned char)(i / 251 + i + run);
        must(ops->copy(device, stream, memory, text, 2 * HALF), "copy");
        must(device_queue_run(q, stream, &gate), "levels in one kernel");
        must(ops->copy(device, stream, back, memory + (size_t)LEVELS * 2 * HALF, 2 * HALF), "copy");
        must(ops->sync(device, stream), "sync");
        expect(!memcmp(back, text, 2 * HALF), "levels come one after the other");
    }
    device_queue_free(q);
    ops->free(device, memory);
    free(text);
    free(back);
}

static int calls(void)
{
    struct device_facts f;
    if (!ops->facts(0, &f))
        must(WEFT_EUNSUPPORTED, f.name);
    printf("%s, driver %s, %llu MiB, %s\n", f.name, f.driver, (unsigned long long)f.bytes >> 20,
           f.mps ? "MPS" : "no MPS");
    memory_calls();
    pin_calls();
    read_only_calls();
    gate_calls(100);
    gate_calls(3 << 20);
    gate_calls(5 << 20);
    level_calls();
    return 0;
}

/* ---- speed ---- */

#define ROUNDS 11
#define TIMES 10 /* runs of a round, back to back */

static unsigned char *from, *to;
static int64_t total; /* bytes of `from` and of `to` */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, compare);
    return v[ROUNDS / 2];
}

/* moved: bytes that a run reads and writes. */
static void measure(const char *name, struct device_queue *q, int64_t moved)
{
    double mine[ROUNDS], theirs[ROUNDS], begin;
    must(device_queue_close(q), "close");
    must(device_queue_run(q, stream, NULL), "run");
    must(ops->sync(device, stream), name);
    for (int r = 0; r < ROUNDS; r++) {
        begin = now();
        for (int k = 0; k < TIMES; k++)
            must(device_queue_run(q, stream, NULL), name);
        must(ops->sync(device, stream), name);
        mine[r] = (now() - begin) / TIMES;
        begin = now();
        for (int k = 0; k < TIMES; k++)
            must(ops->copy(device, stream, to, from, (size_t)total), "copy");
        must(ops->sync(device, stream), "copy");
        theirs[r] = (now() - begin) / TIMES;
    }
    double m = median(mine), t = median(theirs) * (double)moved / (2.0 * (double)total);
    printf("%-44s %9.1f us %6.1f %%  (%u launches)\n", name, m, 100 * t / m, device_queue_launches(q));
    fflush(stdout);
    device_queue_free(q);
}

static struct device_queue *queue(void)
{
    struct device_queue *q;
    must(device_queue_new(device, &q), "queue");
    return q;
}

static void add2(struct device_queue *q, int64_t n0, int64_t n1, uint64_t d, int64_t d0, int64_t d1, int dtype,
                 uint64_t s, int64_t s0, int64_t s1, int source)
{
    const int64_t n[2] = {n0, n1}, ds[2] = {d0, d1}, ss[2] = {s0, s1};
    const struct device_operand src = {s, ss, source};
    const struct device_task task = {.loops = 2, .n = n, .dst = {d, ds, dtype}, .terms = &src, .nterms = 1};
    must(device_queue_add(q, &task), "add");
}

static uint64_t F(int64_t at)
{
    return (uint64_t)(uintptr_t)from + (uint64_t)at;
}

static uint64_t T(int64_t at)
{
    return (uint64_t)(uintptr_t)to + (uint64_t)at;
}

/* A matrix of rows x columns, split by rows over the ranks, becomes one that is split by columns; or back. */
static void reshard(const char *name, int64_t columns, int64_t ranks, int dtype, int source, bool back)
{
    const int64_t e = (int64_t)weft_dtype_size(source), o = (int64_t)weft_dtype_size(dtype);
    const int64_t rows = total / (columns * (e > o ? e : o)), r = rows / ranks, c = columns / ranks;
    struct device_queue *q = queue();
    for (int64_t a = 0; a < ranks; a++)
        for (int64_t b = 0; b < ranks; b++)
            if (back)
                add2(q, r, c, T((a * r * columns + b * c) * o), columns * o, o, dtype, F((b * rows + a * r) * c * e),
                     c * e, e, source);
            else
                add2(q, r, c, T((b * rows + a * r) * c * o), c * o, o, dtype, F((a * r * columns + b * c) * e),
                     columns * e, e, source);
    measure(name, q, rows * columns * (e + o));
}

static void turn(const char *name, int dtype, int source)
{
    const int64_t e = (int64_t)weft_dtype_size(source), o = (int64_t)weft_dtype_size(dtype), columns = 8192;
    const int64_t rows = total / (columns * (e > o ? e : o));
    struct device_queue *q = queue();
    add2(q, columns, rows, T(0), rows * o, o, dtype, F(0), e, columns * e, source);
    measure(name, q, rows * columns * (e + o));
}

static void fold(const char *name, int ways, int dtype, int op, int acc)
{
    const int64_t e = (int64_t)weft_dtype_size(dtype), n = total / ways / e, stride[1] = {e};
    struct device_operand terms[16];
    struct device_queue *q = queue();
    for (int k = 0; k < ways; k++)
        terms[k] = (struct device_operand){F(k * n * e), stride, dtype};
    const struct device_task task = {.loops = 1,
                                     .n = &n,
                                     .dst = {T(0), stride, dtype},
                                     .terms = terms,
                                     .nterms = (uint32_t)ways,
                                     .op = op,
                                     .acc = acc};
    must(device_queue_add(q, &task), "add");
    measure(name, q, (ways + 1) * n * e);
}

/* Tensors of 1 to 64 KiB, log-uniform; 2,000 are about 31 MB. */
static void many(void)
{
    struct device_queue *q = queue();
    int64_t at = 0;
    for (int k = 0; k < 2000; k++) {
        int64_t bytes = (1024 << k % 6) + (1024 << k % 6) * (k * 7919 % 1000) / 1000 / 4 * 4;
        bytes -= bytes % 4;
        if (at + bytes > total)
            break;
        add2(q, 1, bytes / 4, T(at), bytes, 4, WEFT_F32, F(at), bytes, 4, WEFT_F32);
        at += bytes;
    }
    measure("2000 tensors of 1 to 64 KiB", q, 2 * at);
    printf("    (%lld bytes)\n", (long long)at);
}

static void cyclic(const char *name, int64_t block, int64_t ranks)
{
    const int64_t n = total / 4 / ranks, blocks = n / block / ranks;
    struct device_queue *q = queue();
    for (int64_t a = 0; a < ranks; a++)     /* the rank that has them in one piece */
        for (int64_t b = 0; b < ranks; b++) /* the rank that gets every ranks-th block */
            add2(q, blocks, block, T((b * n + a * blocks * block) * 4), block * 4, 4, WEFT_F32,
                 F((a * n + b * block) * 4), block * ranks * 4, 4, WEFT_F32);
    measure(name, q, 2 * blocks * block * ranks * ranks * 4);
}

static int speed(int64_t mib)
{
    total = mib << 20;
    from = ops->alloc(device, (size_t)total);
    to = ops->alloc(device, (size_t)total);
    must(from && to ? 0 : WEFT_ENOMEM, "alloc");
    printf("%lld MiB\n", (long long)mib);
    struct device_queue *q = queue();
    add2(q, 1, total / 4, T(0), total, 4, WEFT_F32, F(0), total, 4, WEFT_F32);
    measure("contiguous", q, 2 * total);
    q = queue();
    add2(q, 1, total / 4 - 8, T(4), total, 4, WEFT_F32, F(4), total, 4, WEFT_F32);
    measure("contiguous, off by 4 on both sides", q, 2 * total);
    q = queue();
    add2(q, 1, total / 4 - 8, T(0), total, 4, WEFT_F32, F(4), total, 4, WEFT_F32);
    measure("contiguous, source off by 4", q, 2 * total);
    reshard("rows to columns, 8 ranks", 8192, 8, WEFT_F32, WEFT_F32, false);
    reshard("rows to columns, 2 ranks", 8192, 2, WEFT_F32, WEFT_F32, false);
    reshard("columns to rows, 8 ranks", 8192, 8, WEFT_F32, WEFT_F32, true);
    reshard("thin rows to columns, 128 B, 2 ranks", 64, 2, WEFT_F32, WEFT_F32, false);
    reshard("thin rows to columns, 64 B, 4 ranks", 64, 4, WEFT_F32, WEFT_F32, false);
    reshard("thin rows to columns, 32 B, 8 ranks", 64, 8, WEFT_F32, WEFT_F32, false);
    reshard("thin columns to rows, 64 B, 4 ranks", 64, 4, WEFT_F32, WEFT_F32, true);
    reshard("thin columns to rows, 32 B, 8 ranks", 64, 8, WEFT_F32, WEFT_F32, true);
    cyclic("block-cyclic, 4 KiB, 8 ranks", 1024, 8);
    cyclic("block-cyclic, 64 B, 8 ranks", 16, 8);
    reshard("f32 to bf16, rows to columns, 8 ranks", 8192, 8, WEFT_BF16, WEFT_F32, false);
    reshard("f32 to f16, rows to columns, 8 ranks", 8192, 8, WEFT_F16, WEFT_F32, false);
    reshard("bf16 to f32, rows to columns, 8 ranks", 8192, 8, WEFT_F32, WEFT_BF16, false);
    reshard("f32 to bf16, thin, 8 ranks", 64, 8, WEFT_BF16, WEFT_F32, false);
    reshard("f32 to f8e4m3, rows to columns, 8 ranks", 8192, 8, WEFT_F8E4M3, WEFT_F32, false);
    reshard("f8e4m3 to bf16, rows to columns, 8 ranks", 8192, 8, WEFT_BF16, WEFT_F8E4M3, false);
    reshard("bf16 to f8e4m3, rows to columns, 8 ranks", 8192, 8, WEFT_F8E4M3, WEFT_BF16, false);
    reshard("bf16 to f8e5m2sat, rows to columns, 8 ranks", 8192, 8, WEFT_F8E5M2SAT, WEFT_BF16, false);
    reshard("f32 to i8, rows to columns, 8 ranks", 8192, 8, WEFT_I8, WEFT_F32, false);
    reshard("f64 to f32, rows to columns, 8 ranks", 8192, 8, WEFT_F32, WEFT_F64, false);
    fold("sum of 8, f32", 8, WEFT_F32, WEFT_SUM, WEFT_F32);
    fold("sum of 8, bf16", 8, WEFT_BF16, WEFT_SUM, WEFT_F32);
    fold("sum of 2, f32", 2, WEFT_F32, WEFT_SUM, WEFT_F32);
    fold("max of 8, f32", 8, WEFT_F32, WEFT_MAX, WEFT_F32);
    fold("max of 8, bf16", 8, WEFT_BF16, WEFT_MAX, WEFT_F32);
    fold("sum of 8, f8e4m3", 8, WEFT_F8E4M3, WEFT_SUM, WEFT_F32);
    fold("sum of 8, f64", 8, WEFT_F64, WEFT_SUM, WEFT_F64);
    fold("sum of 8, i8", 8, WEFT_I8, WEFT_SUM, WEFT_I8);
    fold("sum of 8, i32", 8, WEFT_I32, WEFT_SUM, WEFT_I32);
    turn("transpose, f32", WEFT_F32, WEFT_F32);
    turn("transpose, f64", WEFT_F64, WEFT_F64);
    turn("transpose, bf16", WEFT_BF16, WEFT_BF16);
    turn("transpose, u8", WEFT_U8, WEFT_U8);
    turn("transpose, f32 to bf16", WEFT_BF16, WEFT_F32);
    turn("transpose, bf16 to f32", WEFT_F32, WEFT_BF16);
    turn("transpose, f32 to f8e4m3", WEFT_F8E4M3, WEFT_F32);
    many();
    ops->free(device, from);
    ops->free(device, to);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const int64_t n = argc > 2 ? atoll(argv[2]) : 0;
    must(device_open("gpu_bodies", WEFT_MEMORY_CUDA, 0, getenv("WEFT_MODULES"), &device), "open");
    ops = device->ops;
    must(ops->stream_open(device, &stream), "stream");
    if (!strcmp(what, "check"))
        return check(n ? n : 2000);
    if (!strcmp(what, "calls"))
        return calls();
    if (!strcmp(what, "waits")) {
        late_calls();
        return 0;
    }
    if (!strcmp(what, "speed"))
        return speed(n ? n : 256);
    fprintf(stderr, "usage: gpu_bodies check [N] | calls | waits | speed [MIB]\n");
    return 2;
}
