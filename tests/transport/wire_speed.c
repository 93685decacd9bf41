/* Two ranks of a wire that may be in different network namespaces, started by hand or by wire_net_test.sh:
 *   wire_speed URL RANK FOLDER SIZE RUNS
 *   wire_speed URL RANK FOLDER watch
 * They find each other by files in the folder. Rank 0 says how long an 8-byte message takes one way (half of there and
 * back), and how fast messages of SIZE go one after the other; all of them are checked. With watch it makes the file
 * FOLDER/watching and says how long after that it saw that rank 1 is gone, which is silent until then. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire_ranks.h"

static char folder[256];
static int meeting;

/* Files FOLDER/MEETING.RANK, which appear whole. */
static int gather(void *arg, const void *mine, size_t bytes, void *all)
{
    struct wire_rank *r = arg;
    char name[320], part[340];
    snprintf(name, sizeof name, "%s/%d.%d", folder, meeting, r->rank);
    snprintf(part, sizeof part, "%s.part", name);
    FILE *f = fopen(part, "wb");
    if (!f || fwrite(mine, 1, bytes, f) != bytes || fclose(f) || rename(part, name))
        return WEFT_EIO;
    for (int i = 0; i < r->size; i++) {
        int64_t end = clock_now() + PATIENCE;
        snprintf(name, sizeof name, "%s/%d.%d", folder, meeting, i);
        while (!(f = fopen(name, "rb")))
            if (clock_now() > end)
                return WEFT_ETIMEOUT;
        size_t n = fread((unsigned char *)all + (size_t)i * bytes, 1, bytes, f);
        fclose(f);
        if (n != bytes)
            return WEFT_EIO;
    }
    meeting++;
    return 0;
}

static void wait_for(struct wire_rank *r, struct wire_message *m)
{
    int done;
    while (!(done = r->w->ops->test(m)))
        r->w->ops->progress(r->w);
    if (done < 0)
        wire_note(r, __FILE__, __LINE__, "%s", weft_errmsg());
}

static double latency(struct wire_rank *r, int runs)
{
    uint64_t out = 0, in = 0;
    struct wire_message *send, *recv;
    const struct wire_ops *o = r->w->ops;
    if (o->make(r->w, 1 - r->rank, 1, &out, 8, true, &send) || o->make(r->w, 1 - r->rank, 1, &in, 8, false, &recv)) {
        wire_note(r, __FILE__, __LINE__, "%s", weft_errmsg());
        return 0;
    }
    int64_t began = 0;
    for (int i = -runs / 10; i < runs && !r->failed[0]; i++) {
        if (i == 0)
            began = clock_now();
        o->start(recv);
        if (r->rank == 0) {
            out = (uint64_t)i;
            o->start(send);
        }
        wait_for(r, recv);
        if (in != (uint64_t)i)
            wire_note(r, __FILE__, __LINE__, "wrong value");
        if (r->rank == 1) {
            out = in;
            o->start(send);
        }
        wait_for(r, send);
    }
    double ns = (double)(clock_now() - began) / (2 * runs);
    o->drop(send);
    o->drop(recv);
    return ns / 1000;
}

static double bandwidth(struct wire_rank *r, size_t bytes, int runs)
{
    unsigned char *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    struct wire_message *m = NULL;
    if (!memory || r->w->ops->make(r->w, 1 - r->rank, 2, memory, bytes, r->rank == 0, &m)) {
        wire_note(r, __FILE__, __LINE__, "%s", weft_errmsg());
        return 0;
    }
    if (r->rank == 0)
        wire_fill(memory, bytes, 5);
    else
        memset(memory, 0, bytes);
    wire_barrier(r);
    int64_t began = 0;
    for (int i = -2; i < runs && !r->failed[0]; i++) {
        if (i == 0)
            began = clock_now();
        r->w->ops->start(m);
        wait_for(r, m);
    }
    int64_t ns = clock_now() - began;
    if (wire_differs(memory, bytes, 5) != bytes)
        wire_note(r, __FILE__, __LINE__, "wrong bytes");
    wire_barrier(r);
    r->w->ops->drop(m);
    free(memory);
    return (double)bytes * runs / 1048576 / ((double)ns / 1e9);
}

/* Nothing is on its way while it waits. */
static void watch(struct wire_rank *r)
{
    char name[300];
    wire_barrier(r);
    snprintf(name, sizeof name, "%s/watching", folder);
    FILE *f = r->rank == 0 ? fopen(name, "wb") : NULL;
    if (f)
        fclose(f);
    int64_t began = clock_now();
    WIRE_UNTIL(r, r->w->ops->gone(r->w, 1 - r->rank) != TRANSPORT_HERE);
    if (r->rank == 0)
        printf("gone_ms %lld\n", (long long)((clock_now() - began) / MS));
}

int main(int argc, char **argv)
{
    bool watches = argc == 5 && !strcmp(argv[4], "watch");
    if (argc != 6 && !watches) {
        fprintf(stderr, "usage: wire_speed URL RANK FOLDER SIZE RUNS, or URL RANK FOLDER watch\n");
        return 2;
    }
    struct wire_rank r = {.rank = atoi(argv[2]), .size = 2};
    snprintf(folder, sizeof folder, "%s", argv[3]);
    struct wire_boot boot = {.rank = r.rank,
                             .size = 2,
                             .gather = gather,
                             .arg = &r,
                             .wait_ns = PATIENCE,
                             .no_shm = true,
                             .modules = getenv("WEFT_MODULES")};
    if (wire_open(argv[1], &boot, &r.w)) {
        fprintf(stderr, "rank %d: %s\n", r.rank, weft_errmsg());
        return 1;
    }
    double us = 0, mib = 0;
    if (watches) {
        watch(&r);
    } else {
        int runs = atoi(argv[5]);
        us = latency(&r, runs * 100);
        mib = bandwidth(&r, (size_t)atoll(argv[4]), runs);
        wire_barrier(&r);
    }
    r.w->ops->close(r.w);
    if (r.failed[0]) {
        fprintf(stderr, "%s\n", r.failed);
        return 1;
    }
    if (r.rank == 0 && !watches)
        printf("latency_us %.2f\nbandwidth_mib %.1f\n", us, mib);
    return 0;
}
