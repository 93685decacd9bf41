/* A stream's work goes into a queue in the order in which it was added, and the queue's thread does one piece after the
 * other. Several streams may share a queue. Graphs are lists of recorded work. */
#include "device/sim/sim_stream.h"

#include <stdlib.h>

#include "base/hash.h"
#include "base/thread.h"

/* All members are guarded by the device's lock, except those of the thread. */
struct queue {
    struct list node;
    struct sim_device *device;
    pthread_t thread;
    pthread_cond_t more; /* work was added, or the thread shall end */
    struct list work;    /* the first piece is being done */
    int streams;
    bool end;
    struct sim_luck luck; /* the thread's */
};

struct graph {
    struct list work;
};

struct sim_stream {
    struct list node;
    struct queue *queue;
    uint64_t queued, done;
    bool closed;         /* it is freed when all is done */
    struct graph *graph; /* the capture that is under way; NULL: none */
    bool broken;         /* the capture has met a call that cannot be recorded */
};

/* ---- queues ---- */

static void drop_all(struct list *work)
{
    for (struct list *node; (node = list_first(work));) {
        list_remove(node);
        free(LIST_OF(node, struct sim_work, node));
    }
}

static void free_stream(struct sim_stream *s)
{
    list_remove(&s->node);
    s->queue->streams--;
    if (s->graph) {
        drop_all(&s->graph->work);
        free(s->graph);
    }
    free(s);
}

static void finish(struct sim_device *d, struct sim_work *w)
{
    struct sim_stream *s = w->stream;
    list_remove(&w->node);
    free(w);
    if (++s->done == s->queued && s->closed)
        free_stream(s);
    pthread_cond_broadcast(&d->done);
}

static void *serve(void *arg)
{
    struct queue *q = arg;
    struct sim_device *d = q->device;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct list *first = list_first(&q->work);
        if (!first && q->end)
            break;
        if (!first) {
            pthread_cond_wait(&q->more, &d->lock);
            continue;
        }
        struct sim_work *w = LIST_OF(first, struct sim_work, node);
        pthread_mutex_unlock(&d->lock);
        sim_work_late(&q->luck);
        sim_work_do(d, w, &q->luck);
        sim_work_late(&q->luck);
        pthread_mutex_lock(&d->lock);
        finish(d, w);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static struct queue *new_queue(struct sim_device *d, uint64_t number)
{
    struct queue *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    q->device = d;
    q->luck = (struct sim_luck){.on = d->seed, .state = hash_u64(d->seed, number)};
    list_begin(&q->work);
    pthread_cond_init(&q->more, NULL);
    if (thread_start(&q->thread, serve, q)) {
        pthread_cond_destroy(&q->more);
        free(q);
        return NULL;
    }
    list_append(&d->hardware, &q->node);
    return q;
}

/* The queue of stream `number`: a queue that no stream uses any more, or a new one, or one of the device's, in turn. */
static struct queue *choose_queue(struct sim_device *d, unsigned number)
{
    unsigned i = 0, wanted = d->queues ? number % (unsigned)d->queues : 0;
    for (struct list *node = list_first(&d->hardware); node; node = list_after(&d->hardware, node), i++) {
        struct queue *q = LIST_OF(node, struct queue, node);
        if (d->queues ? i == wanted : !q->streams)
            return q;
    }
    return new_queue(d, number);
}

/* ---- streams ---- */

static struct sim_stream *new_stream(struct sim_device *d)
{
    struct sim_stream *s = calloc(1, sizeof *s);
    struct queue *q = s ? choose_queue(d, d->next) : NULL;
    if (!q) {
        free(s);
        return NULL;
    }
    d->next++;
    s->queue = q;
    q->streams++;
    list_append(&d->streams, &s->node);
    return s;
}

static int no_memory(const struct sim_device *d)
{
    return d->error(WEFT_ENOMEM, "out of memory");
}

/* The stream; NULL is the one that the device has from the beginning, as in CUDA. The caller holds the lock. */
static int find(struct sim_device *d, const void *stream, struct sim_stream **out)
{
    if (!stream && !d->usual && !(d->usual = new_stream(d)))
        return no_memory(d);
    if (!stream)
        stream = d->usual;
    for (struct list *node = list_first(&d->streams); node; node = list_after(&d->streams, node)) {
        struct sim_stream *s = LIST_OF(node, struct sim_stream, node);
        if (s == stream && !s->closed) {
            *out = s;
            return 0;
        }
    }
    return d->error(WEFT_EINVAL, "%p is not a stream of simulated device %d", stream, d->device.number);
}

/* Begins a call that uses a stream: the lock is held if it returns 0. */
static int enter(struct sim_device *d, const void *stream, struct sim_stream **out)
{
    int err = sim_device_check(d);
    if (err)
        return err;
    pthread_mutex_lock(&d->lock);
    err = find(d, stream, out);
    if (err)
        pthread_mutex_unlock(&d->lock);
    return err;
}

static int leave(struct sim_device *d, int err)
{
    pthread_mutex_unlock(&d->lock);
    return err;
}

int sim_stream_open(struct device *device, void **stream)
{
    struct sim_device *d = sim_device_of(device);
    int err = sim_device_check(d);
    if (err)
        return err;
    pthread_mutex_lock(&d->lock);
    struct sim_stream *s = new_stream(d);
    pthread_mutex_unlock(&d->lock);
    if (!s)
        return no_memory(d);
    *stream = s;
    return 0;
}

void sim_stream_close(struct device *device, void *stream)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    if (!stream || sim_device_state(d) == SIM_FORKED)
        return;
    pthread_mutex_lock(&d->lock);
    if (!find(d, stream, &s)) {
        s->closed = true;
        if (s->done == s->queued)
            free_stream(s);
        pthread_mutex_unlock(&d->lock);
        return;
    }
    pthread_mutex_unlock(&d->lock);
    sim_device_fail(d, "stream_close(%p): there is no such stream", stream);
}

/* A captured stream does not run, so nothing can be said about its work. */
static int not_captured(const struct sim_device *d, struct sim_stream *s)
{
    if (!s->graph)
        return 0;
    s->broken = true;
    return d->error(WEFT_EINVAL, "the stream is being captured: it cannot be waited for");
}

int sim_stream_sync(struct device *device, void *stream)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    int err = enter(d, stream, &s);
    if (err)
        return err;
    err = not_captured(d, s);
    for (uint64_t queued = s->queued; !err && s->done < queued;)
        pthread_cond_wait(&d->done, &d->lock);
    leave(d, 0);
    return err ? err : sim_device_check(d);
}

static bool any_works(const struct sim_device *d)
{
    for (const struct list *node = list_first(&d->streams); node; node = list_after(&d->streams, node)) {
        const struct sim_stream *s = LIST_OF(node, struct sim_stream, node);
        if (s->done < s->queued)
            return true;
    }
    return false;
}

void sim_stream_rest(struct device *device)
{
    struct sim_device *d = sim_device_of(device);
    if (sim_device_state(d) == SIM_FORKED)
        return;
    pthread_mutex_lock(&d->lock);
    while (any_works(d))
        pthread_cond_wait(&d->done, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

int sim_stream_idle(struct device *device, void *stream, bool *idle)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    int err = enter(d, stream, &s);
    if (err)
        return err;
    err = not_captured(d, s);
    if (!err)
        *idle = s->done == s->queued;
    return leave(d, err);
}

int sim_stream_capturing(struct device *device, void *stream, bool *capturing)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    int err = enter(d, stream, &s);
    if (err)
        return err;
    *capturing = s->graph;
    return leave(d, 0);
}

static void queue_work(struct sim_stream *s, struct sim_work *w)
{
    w->stream = s;
    s->queued++;
    list_append(&s->queue->work, &w->node);
    pthread_cond_signal(&s->queue->more);
}

/* Records the work if the stream is captured; otherwise queues it. */
static void put(struct sim_stream *s, struct sim_work *w)
{
    if (s->graph)
        list_append(&s->graph->work, &w->node);
    else
        queue_work(s, w);
}

int sim_stream_add(struct device *device, void *stream, struct sim_work *w)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    int err = w ? enter(d, stream, &s) : no_memory(d);
    if (err) {
        free(w);
        return err;
    }
    put(s, w);
    return leave(d, 0);
}

/* ---- graphs ---- */

int sim_stream_capture_begin(struct device *device, void *stream)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    struct graph *g = calloc(1, sizeof *g);
    int err = g ? enter(d, stream, &s) : no_memory(d);
    if (err) {
        free(g);
        return err;
    }
    if (s->graph) {
        free(g);
        return leave(d, d->error(WEFT_EINVAL, "the stream is being captured already"));
    }
    list_begin(&g->work);
    s->graph = g;
    s->broken = false;
    return leave(d, 0);
}

int sim_stream_capture_end(struct device *device, void *stream, void **graph)
{
    struct sim_device *d = sim_device_of(device);
    struct sim_stream *s;
    int err = enter(d, stream, &s);
    if (err)
        return err;
    if (!s->graph)
        return leave(d, d->error(WEFT_EINVAL, "the stream is not being captured"));
    struct graph *g = s->graph;
    s->graph = NULL;
    if (s->broken) {
        drop_all(&g->work);
        free(g);
        return leave(d, d->error(WEFT_EINVAL, "a call that cannot be recorded was made during the capture"));
    }
    d->graphs++;
    *graph = g;
    return leave(d, 0);
}

int sim_stream_graph_launch(struct device *device, void *graph, void *stream)
{
    struct sim_device *d = sim_device_of(device);
    const struct graph *g = graph;
    struct list all;
    list_begin(&all);
    for (const struct list *node = list_first(&g->work); node; node = list_after(&g->work, node)) {
        struct sim_work *w = sim_work_again(LIST_OF(node, struct sim_work, node));
        if (!w) {
            drop_all(&all);
            return no_memory(d);
        }
        list_append(&all, &w->node);
    }
    struct sim_stream *s;
    int err = enter(d, stream, &s);
    if (err) {
        drop_all(&all);
        return err;
    }
    for (struct list *node; (node = list_first(&all));) {
        struct sim_work *w = LIST_OF(node, struct sim_work, node);
        list_remove(node);
        put(s, w);
    }
    return leave(d, 0);
}

void sim_stream_graph_free(struct device *device, void *graph)
{
    struct sim_device *d = sim_device_of(device);
    struct graph *g = graph;
    if (!g || sim_device_state(d) == SIM_FORKED)
        return;
    drop_all(&g->work);
    free(g);
    pthread_mutex_lock(&d->lock);
    d->graphs--;
    pthread_mutex_unlock(&d->lock);
}

/* ---- the end ---- */

void sim_stream_use(struct sim_device *d, struct sim_use *out)
{
    pthread_mutex_lock(&d->lock);
    for (struct list *node = list_first(&d->streams); node; node = list_after(&d->streams, node)) {
        const struct sim_stream *s = LIST_OF(node, struct sim_stream, node);
        out->streams += !s->closed && s != d->usual;
    }
    out->graphs = d->graphs;
    out->copying_ns = d->copying_ns;
    out->overlap_ns = d->overlap_ns;
    pthread_mutex_unlock(&d->lock);
}

void sim_stream_close_all(struct sim_device *d)
{
    pthread_mutex_lock(&d->lock);
    for (struct list *node = list_first(&d->hardware); node; node = list_after(&d->hardware, node)) {
        LIST_OF(node, struct queue, node)->end = true;
        pthread_cond_signal(&LIST_OF(node, struct queue, node)->more);
    }
    pthread_mutex_unlock(&d->lock);
    for (struct list *node = list_first(&d->hardware); node; node = list_after(&d->hardware, node))
        pthread_join(LIST_OF(node, struct queue, node)->thread, NULL);
    for (struct list *node; (node = list_first(&d->streams));)
        free_stream(LIST_OF(node, struct sim_stream, node));
    for (struct list *node; (node = list_first(&d->hardware));) {
        list_remove(node);
        pthread_cond_destroy(&LIST_OF(node, struct queue, node)->more);
        free(LIST_OF(node, struct queue, node));
    }
}
