#define _GNU_SOURCE
#include "bench/ranks/rank_bus_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/work/median.h"
#include "bench/work/work.h"
#include "weft/bus.h"

#define SECOND INT64_C(1000000000)

struct side {
    const struct rank_bus_device_job *job;
    weft_comm *comm; /* of this process alone: for memory of the device, and to fill it and look at it */
    weft_bus *bus;
    weft_publisher *publisher;
    weft_subscriber *subscriber;
    weft_layout *given, *put, *want; /* of the arrays, the set and the reader */
    weft_bus_tensor *from, *to;
    weft_view *views;
    char (*names)[24];
    void *there; /* all tensors, in f32, on the device */
    float *host; /* one tensor */
};

static int64_t wide(const struct rank_bus_device_job *j)
{
    return j->half ? j->columns / 2 : j->columns;
}

static float value(int64_t i, int64_t t, int64_t step)
{
    return work_value(i + t + step); /* exact in bf16 */
}

/* Moves an array of this process, by a plan of one rank. */
static int move(struct side *s, const weft_layout *from, const weft_layout *to, weft_view src, weft_view dst)
{
    weft_plan *plan = NULL;
    weft_exec *exec = NULL;
    int err = weft_lower(&(weft_move){"t", from, to}, 1, 0, NULL, &plan);
    if (!err)
        err = weft_bind(plan, s->comm, &src, &dst, NULL, &exec);
    if (!err)
        err = weft_exec_run(exec);
    weft_exec_close(exec);
    weft_plan_free(plan);
    return err;
}

static int parse(const struct rank_bus_device_job *j, const char *dtype, bool half, weft_layout **out)
{
    char text[128];
    snprintf(text, sizeof text, half ? "%s[%lld,%lld/x] @x2" : "%s[%lld,%lld] @x1", dtype, (long long)j->rows,
             (long long)j->columns);
    return weft_layout_parse(text, out);
}

static int begin(struct side *s)
{
    const struct rank_bus_device_job *j = s->job;
    size_t n = (size_t)j->tensors, bytes = (size_t)(j->rows * j->columns) * sizeof(float);
    weft_publish_opts p = WEFT_PUBLISH_OPTS_INIT;
    weft_subscribe_opts o = WEFT_SUBSCRIBE_OPTS_INIT;
    s->from = calloc(n, sizeof *s->from);
    s->to = calloc(n, sizeof *s->to);
    s->views = calloc(n, sizeof *s->views);
    s->names = calloc(n, sizeof *s->names);
    s->host = malloc(bytes);
    int err = s->from && s->to && s->views && s->names && s->host ? 0 : WEFT_ENOMEM;
    if (!err)
        err = weft_comm_open("self:", NULL, &s->comm);
    if (!err)
        err = weft_comm_alloc(s->comm, n * bytes, WEFT_MEMORY_CUDA, j->device, &s->there);
    err = err ? err : parse(j, "f32", false, &s->given);
    err = err ? err : parse(j, j->to, false, &s->put);
    err = err ? err : parse(j, j->want, j->half, &s->want);
    for (size_t i = 0; i < n && !err; i++) {
        snprintf(s->names[i], sizeof s->names[i], "t%zu", i);
        s->from[i] = (weft_bus_tensor){.name = s->names[i], .layout = s->put, .dtype = WEFT_F32};
        s->to[i] = (weft_bus_tensor){.name = s->names[i], .layout = s->want};
        s->views[i] = (weft_view){
            .data = (char *)s->there + i * bytes, .bytes = bytes, .memory = WEFT_MEMORY_CUDA, .device = j->device};
        for (int64_t k = 0; k < j->rows * j->columns; k++)
            s->host[k] = value(k, (int64_t)i, 0);
        err = move(s, s->given, s->given, (weft_view)WEFT_VIEW(s->host, bytes), s->views[i]);
    }
    p.no_digest = o.no_check = !j->digest;
    o.memory = WEFT_MEMORY_CUDA;
    o.device = j->device;
    if (!err)
        err = weft_bus_open(j->url, NULL, &s->bus);
    if (!err)
        err = weft_publish(s->bus, "bench", s->from, n, &p, &s->publisher);
    return err ? err : weft_subscribe(s->bus, "bench", s->to, n, &o, &s->subscriber);
}

static void end(struct side *s)
{
    weft_subscriber_close(s->subscriber);
    weft_publisher_close(s->publisher);
    weft_bus_close(s->bus);
    weft_layout_free(s->given);
    weft_layout_free(s->put);
    weft_layout_free(s->want);
    if (s->there)
        weft_comm_free(s->comm, s->there);
    weft_comm_close(s->comm);
    free(s->from);
    free(s->to);
    free(s->views);
    free(s->names);
    free(s->host);
}

static int round_trip(struct side *s, int64_t step, double *put, double *fetch)
{
    weft_epoch_step v;
    double begun = work_now();
    int err = weft_put(s->publisher, step, s->views);
    *put = work_now() - begun;
    if (!err)
        err = weft_commit(s->publisher, step, NULL, NULL);
    begun = work_now();
    if (!err)
        err = weft_fetch(s->subscriber, &(weft_want){WEFT_WANT_STEP, step}, 60 * SECOND, &v);
    *fetch = work_now() - begun;
    return err ? err : weft_swap(s->subscriber, &v, 60 * SECOND);
}

/* The live version, element by element. */
static int check(struct side *s)
{
    const struct rank_bus_device_job *j = s->job;
    weft_layout *whole[2] = {NULL, NULL};
    weft_pin *pin = NULL;
    char text[128];
    int64_t wrong = 0, n = j->rows * wide(j);
    int err = weft_use(s->subscriber, &pin);
    for (int i = 0; i < 2 && !err; i++) {
        snprintf(text, sizeof text, "%s[%lld] @x1", i ? "f32" : j->want, (long long)n);
        err = weft_layout_parse(text, &whole[i]);
    }
    for (int t = 0; t < j->tensors && !err; t++) {
        const void *data;
        int64_t bytes = 0;
        err = weft_pin_data(pin, (size_t)t, &data, &bytes);
        weft_view there = {
            .data = (void *)(uintptr_t)data, .bytes = (size_t)bytes, .memory = WEFT_MEMORY_CUDA, .device = j->device};
        if (!err)
            err = move(s, whole[0], whole[1], there, (weft_view)WEFT_VIEW(s->host, (size_t)n * sizeof(float)));
        for (int64_t i = 0; i < n && !err; i++)
            wrong += s->host[i] != value(i / wide(j) * j->columns + i % wide(j), t, 0);
    }
    weft_unuse(pin);
    weft_layout_free(whole[0]);
    weft_layout_free(whole[1]);
    return err ? err : wrong ? WEFT_EMISMATCH : 0;
}

static int look_at_way(struct side *s, char way[16])
{
    char text[4096];
    size_t len;
    int err = weft_subscriber_explain(s->subscriber, true, text, sizeof text, &len);
    const char *at = err ? NULL : strstr(text, "\"way\": \"");
    if (at)
        sscanf(at + strlen("\"way\": \""), "%15[a-z]", way);
    return err;
}

int rank_bus_device(const struct rank_bus_device_job *j, struct rank_bus_device_line *out)
{
    double put[RANK_BUS_DEVICE_ROUNDS], fetch[RANK_BUS_DEVICE_ROUNDS];
    struct side s = {.job = j};
    *out = (struct rank_bus_device_line){.way = "?"};
    int err = begin(&s);
    if (!err)
        err = round_trip(&s, 0, &out->first_put, &out->first_fetch);
    for (int i = -3; i < j->rounds && !err; i++) /* the memory of both versions is touched and pinned, on both sides */
        err = round_trip(&s, i + 4, &put[i < 0 ? 0 : i], &fetch[i < 0 ? 0 : i]);
    if (!err)
        err = check(&s);
    if (!err)
        err = look_at_way(&s, out->way);
    double bytes = err ? 0 : (double)(j->rows * j->columns * j->tensors) * (strcmp(j->to, "f32") ? 2 : 4);
    if (!err) {
        out->put = median(put, j->rounds);
        out->fetch = median(fetch, j->rounds);
        out->put_GBps = bytes / out->put * 1e-9;
        out->fetch_GBps = bytes / out->fetch * 1e-9;
    }
    end(&s);
    return err;
}
