#define _GNU_SOURCE
#include "bench/ranks/rank_bus_train.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/work/work.h"
#include "weft/bus.h"

#define SECOND INT64_C(1000000000)
#define LANES 8

/* One rank, in its own process. */
static struct {
    weft_bus *bus;
    weft_publisher *publisher;
    weft_subscriber *subscriber;
    float *data;
    weft_view *views;
    weft_bus_tensor *tensors;
    char (*names)[24];
} side;

int rank_bus_train_begin(void *arg, int rank)
{
    struct rank_bus_train_job *j = arg;
    size_t n = (size_t)j->tensors, each = (size_t)(j->bytes / j->tensors / (int64_t)sizeof(float));
    weft_publish_opts p = WEFT_PUBLISH_OPTS_INIT;
    weft_layout *l = NULL;
    char text[64];
    side.tensors = calloc(n, sizeof *side.tensors);
    side.views = calloc(n, sizeof *side.views);
    side.names = calloc(n, sizeof *side.names);
    side.data = rank ? NULL : malloc(n * each * sizeof *side.data);
    if (!side.tensors || !side.views || !side.names || (!rank && !side.data))
        return WEFT_ENOMEM;
    snprintf(text, sizeof text, "f32[%zu] @x1", each);
    int err = weft_layout_parse(text, &l);
    for (size_t i = 0; i < n && !err; i++) {
        snprintf(side.names[i], sizeof side.names[i], "t%zu", i);
        side.tensors[i] = (weft_bus_tensor){.name = side.names[i], .layout = l};
        if (!rank)
            side.views[i] = (weft_view)WEFT_VIEW(side.data + i * each, each * sizeof *side.data);
    }
    for (size_t i = 0; side.data && i < n * each; i++)
        side.data[i] = work_value((int64_t)i);
    p.lend = j->lent;
    p.keep = j->lent ? 0 : 1;
    if (!err)
        err = weft_bus_open(j->url, NULL, &side.bus);
    if (!err && rank)
        err = weft_subscribe(side.bus, "train", side.tensors, n, NULL, &side.subscriber);
    if (!err && !rank)
        err = weft_publish(side.bus, "train", side.tensors, n, &p, &side.publisher);
    if (!err && !rank)
        err = (j->lent ? weft_lend : weft_put)(side.publisher, 1, side.views);
    if (!err && !rank)
        err = weft_commit(side.publisher, 1, NULL, NULL);
    weft_layout_free(l);
    return err;
}

int rank_bus_train_end(void *arg, int rank)
{
    (void)arg, (void)rank;
    weft_subscriber_close(side.subscriber);
    if (side.publisher)
        weft_lend_end(side.publisher, 0);
    weft_publisher_close(side.publisher);
    int err = weft_bus_close(side.bus);
    free(side.tensors);
    free(side.views);
    free(side.names);
    free(side.data);
    memset(&side, 0, sizeof side);
    return err;
}

/* Arithmetic in registers: about a millisecond. */
static double step(double x)
{
    double v[LANES];
    for (int k = 0; k < LANES; k++)
        v[k] = x + k;
    for (int i = 0; i < 250000; i++)
        for (int k = 0; k < LANES; k++)
            v[k] = v[k] * 0.999999 + 0.5;
    for (int k = 1; k < LANES; k++)
        v[0] += v[k];
    return v[0];
}

/* The trainer has the last core of this process, and the reader the others, if there are some. */
static void take_cores(bool trainer, cpu_set_t *before)
{
    cpu_set_t mine;
    size_t last = 0;
    sched_getaffinity(0, sizeof *before, before);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, before))
            last = i;
    mine = *before;
    if (trainer) {
        CPU_ZERO(&mine);
        CPU_SET(last, &mine);
    } else if (CPU_COUNT(&mine) > 1)
        CPU_CLR(last, &mine);
    sched_setaffinity(0, sizeof mine, &mine);
}

static void train(struct rank_bus_train_job *j)
{
    static volatile double sink;
    cpu_set_t before;
    double begun = work_now(), end = begun, x = 1;
    int64_t steps = 0;
    take_cores(true, &before);
    if (!j->trains)
        nanosleep(&(struct timespec){(time_t)j->seconds, (long)((j->seconds - (double)(time_t)j->seconds) * 1e9)},
                  NULL);
    for (; j->trains && end - begun < j->seconds; steps++) {
        x = step(x);
        end = work_now();
    }
    sink = x;
    (void)sink;
    j->step = steps ? (end - begun) / (double)steps : 0;
    sched_setaffinity(0, sizeof before, &before);
    j->over = 1;
}

static int read_versions(struct rank_bus_train_job *j)
{
    cpu_set_t before;
    double begun = work_now(), bytes = 0;
    int err = 0;
    take_cores(false, &before);
    while (j->reads && !j->over && !err) {
        weft_epoch_step v;
        err = weft_fetch(side.subscriber, &(weft_want){WEFT_WANT_STEP, 1}, 60 * SECOND, &v);
        bytes +=
            err ? 0 : (double)(j->bytes / j->tensors / (int64_t)sizeof(float) * (int64_t)sizeof(float) * j->tensors);
    }
    j->rate = bytes / (work_now() - begun);
    sched_setaffinity(0, sizeof before, &before);
    return err;
}

int rank_bus_train_turn(void *arg, int rank)
{
    struct rank_bus_train_job *j = arg;
    if (rank)
        return read_versions(j);
    train(j);
    return 0;
}
