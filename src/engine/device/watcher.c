#define _GNU_SOURCE
#include "engine/device/watcher.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/error.h"
#include "base/forks.h"
#include "base/thread.h"
#include "engine/device/exec_device.h"
#include "engine/driver.h"

#define LOOK_NS 100000000 /* between two looks */

struct watched {
    weft_exec *x;
    struct watched *next;
    int64_t since;   /* nanoseconds: when a stream was first seen to wait in a run of a graph; 0: none waits, */
    uint32_t replay; /* the number of that run */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static struct watched *list; /* guarded by the lock, and so are: */
static bool running;
static unsigned forks; /* forks_count() when the thread was started: a child has none */

/* A rank for which the stream waits and that is gone; -1: there is none. */
static int lost_rank(weft_exec *x)
{
    const weft_comm *c = x->comm;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank && x->program->driver->stream_waits(x, r) && c->transport->gone(c->link, r) &&
            x->program->driver->stream_waits(x, r)) /* twice: it may have come before it went */
            return r;
    return -1;
}

/* A device that has failed writes no word any more, and no other rank may know of it. */
static void check_device(const weft_exec *x)
{
    const weft_comm *c = x->comm;
    struct device *d = x->device->device;
    struct error_text kept;
    error_keep(&kept);
    if (!core_failed(c->group) && (d->ops->health(d) || exec_device_group_failed(x))) {
        char text[600];
        snprintf(text, sizeof text, "rank %d: %s", c->rank, weft_errmsg());
        core_fail(c->group, c->rank, WEFT_ETRANSPORT, text);
    }
    error_restore(&kept);
}

/* A graph that comes late cannot be told from one that was forgotten: the deadline is for both. */
static void check_graphs(struct watched *w)
{
    const weft_comm *c = w->x->comm;
    int missing;
    uint32_t replay;
    if (!w->x->program->driver->lacks)
        return;
    bool lacks = w->x->program->driver->lacks(w->x, &missing, &replay);
    int64_t now = core_now();
    if (!lacks || replay != w->replay || !w->since)
        w->since = lacks ? now : 0;
    w->replay = replay;
    if (!lacks || now - w->since < c->deadline_ns)
        return;
    char who[NAMES_RANK], text[NAMES_RANK + 160];
    snprintf(text, sizeof text,
             "%s has not launched its graph for %lld ms, a stream of rank %d was waiting for it: all ranks launch the "
             "graphs of an exec equally often",
             names_rank(c, missing, who), (long long)(c->deadline_ns / 1000000), c->rank);
    core_fail(c->group, c->rank, WEFT_EPEER, text);
}

/* First all ranks learn of the failure, then streams go on: a rank that sees its run end sees the failure, too. */
static void look(struct watched *w)
{
    weft_exec *x = w->x;
    const weft_comm *c = x->comm;
    check_device(x);
    int lost = core_failed(c->group) ? -1 : lost_rank(x);
    if (lost >= 0) {
        char who[NAMES_RANK], text[NAMES_RANK + 96];
        bool left = c->transport->gone(c->link, lost) == TRANSPORT_LEFT;
        snprintf(text, sizeof text, "%s %s, a stream of rank %d was waiting for it", names_rank(c, lost, who),
                 left ? "closed its comm" : names_gone(c, lost), c->rank);
        core_fail(c->group, c->rank, WEFT_EPEER, text);
    }
    if (!core_failed(c->group))
        check_graphs(w);
    /* `done` may say nothing any more: another rank may have released its streams. */
    if (core_failed(c->group))
        driver_release(x);
}

static void *watch(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    while (list) {
        struct timespec until;
        for (struct watched *w = list; w; w = w->next)
            look(w);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&change, &lock, &until);
    }
    running = false;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int start(void)
{
    if (running && forks == forks_count())
        return 0;
    if (thread_start_detached(watch, NULL))
        return error_set(WEFT_ENOMEM, "no thread to watch runs on streams");
    forks = forks_count();
    running = true;
    return 0;
}

int watcher_add(weft_exec *x)
{
    if (x->device->watched)
        return 0;
    struct watched *w = malloc(sizeof *w);
    if (!w)
        return error_nomem();
    pthread_mutex_lock(&lock);
    *w = (struct watched){.x = x, .next = list};
    list = w;
    int err = start();
    if (err) {
        list = w->next;
        free(w);
    }
    pthread_mutex_unlock(&lock);
    x->device->watched = !err;
    return err;
}

/* The last one waits for the end of the thread, unless another exec comes meanwhile: after that the process may unload
 * the library. */
void watcher_remove(weft_exec *x)
{
    if (!x->device || !x->device->watched)
        return;
    pthread_mutex_lock(&lock);
    struct watched **at = &list, *w;
    while ((w = *at) && w->x != x)
        at = &w->next;
    if (w)
        *at = w->next;
    free(w);
    pthread_cond_broadcast(&change);
    while (!list && running && forks == forks_count())
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
    x->device->watched = false;
}
