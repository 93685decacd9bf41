#define _GNU_SOURCE
#include "property_places.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "tool/worker_threads.h"

const int places_size[PLACES_SIZES] = {2, 3, 4, 8};

const struct places_way places_ways[] = {
    {"threads", false, false, {.staged = false}, 0},
    {"threads", false, true, {.staged = false}, 0},
    {"threads", false, false, {.staged = true}, 0},
    {"threads", false, true, {.staged = true}, 0},
    {"threads", false, false, {.inflight_bytes = 64 << 10, .inflight_buckets = 6, .channel_buckets = 1}, 0},
    {"threads", false, false, {.staged = true, .inflight_bytes = 24 << 10, .inflight_buckets = 5}, 0},
    {"threads", false, false, {.inflight_bytes = 1}, 0}, /* no eager messages: all is pulled or pushed */
    {"threads", false, true, {.inflight_bytes = 1}, 0},
    {"threads", false, false, {.progress = WEFT_PROGRESS_THREAD}, 0},
    {"shm", false, false, {.staged = false}, INT64_MAX},
    {"shm", false, true, {.inflight_bytes = 2 << 20, .channel_buckets = 2}, INT64_MAX},
    {"shm", false, false, {.inflight_bytes = 24 << 10, .channel_buckets = 1}, INT64_MAX},
    {"shm", false, false, {.inflight_bytes = 128 << 10}, 1},
    {"shm", true, false, {.staged = false}, 0},
    {"shm", true, true, {.staged = false}, 0},
    {"shm", true, false, {.inflight_bytes = 1}, 0},
};

static struct place places[PLACES_WAYS][PLACES_SIZES];

struct places_opening {
    struct place *at;
    const struct places_way *way;
    int size;
    char url[80];
};

static int place_open_rank(void *arg, int rank)
{
    struct places_opening *o = arg;
    weft_comm_opts opts = o->way->opts;
    opts.size = sizeof opts;
    opts.rank = rank;
    opts.deadline_ns = INT64_C(60000000000);
    opts.ranks = strcmp(o->way->scheme, "shm") ? 0 : o->size;
    int reversed[PLACES_RANKS];
    for (int r = 0; r < o->size; r++)
        reversed[r] = o->size - 1 - r;
    int err = weft_comm_open(o->url, &opts, &o->at->comm[0][rank]);
    if (err)
        return err;
    o->at->comm[0][rank]->dedicated_cores = o->way->spins;
    o->at->comm[0][rank]->spin_turns = o->way->spins ? 50 : 0;
    o->at->comm[0][rank]->cma_least = o->way->cma_least;
    err = weft_comm_split(o->at->comm[0][rank], reversed, (size_t)o->size, &o->at->comm[1][o->size - 1 - rank]);
    if (!err)
        o->at->comm[1][o->size - 1 - rank]->cma_least = o->way->cma_least;
    return err;
}

static int place_close_rank(void *arg, int rank)
{
    struct place *p = arg;
    weft_comm_close(p->comm[0][rank]);
    weft_comm_close(p->comm[1][p->size - 1 - rank]);
    return 0;
}

void place_close(struct place *p)
{
    struct failure f;
    if (p->threads)
        worker_threads_do(p->threads, place_close_rank, p, &f);
    worker_threads_close(p->threads);
    p->threads = NULL;
}

struct place *place_get(int way, int size, struct why *why)
{
    static int opened;
    struct place *p = &places[way][size];
    struct places_opening o = {.at = p, .way = &places_ways[way], .size = places_size[size]};
    struct failure f;
    if (p->threads)
        return p;
    p->size = o.size;
    if (!strcmp(o.way->scheme, "shm"))
        snprintf(o.url, sizeof o.url, "shm:turns-%ld-%d", (long)getpid(), opened++);
    else
        snprintf(o.url, sizeof o.url, "threads:%d/turns-%d", o.size, opened++);
    if (worker_threads_open(o.size, &p->threads, &f) || worker_threads_do(p->threads, place_open_rank, &o, &f)) {
        lab_broken(why, "%s", f.text);
        return NULL;
    }
    return p;
}

void places_close(void)
{
    for (int w = 0; w < PLACES_WAYS; w++)
        for (int s = 0; s < PLACES_SIZES; s++)
            place_close(&places[w][s]);
}
