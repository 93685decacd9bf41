/* Fetching in the background: weft_fetch in a thread, whose result and text are kept for the caller. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "rendezvous/deadline.h"
#include "version/fetch.h"

struct weft_fetching {
    weft_subscriber *subscriber;
    weft_want want;
    int64_t until;
    pthread_t thread;
    /* guarded by the subscriber's lock: */
    bool over;
    pthread_cond_t ended;
    int result;
    weft_epoch_step version;
    struct error_text text;
};

static void *work(void *arg)
{
    weft_fetching *f = arg;
    weft_subscriber *s = f->subscriber;
    weft_epoch_step v = {0};
    int err = fetch_run(s, &f->want, f->until, &v);
    pthread_mutex_lock(&s->lock);
    f->result = err;
    f->version = v;
    if (err)
        error_keep(&f->text);
    f->over = true;
    pthread_cond_broadcast(&f->ended);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int weft_fetch_start(weft_subscriber *s, const weft_want *want, int64_t timeout_ns, weft_fetching **out)
{
    int64_t until;
    int err = fetch_check(s, "weft_fetch_start", want, timeout_ns, &until);
    if (!err && !out)
        err = error_set(WEFT_EINVAL, "weft_fetch_start: out is NULL");
    if (err)
        return err;
    weft_fetching *f = calloc(1, sizeof *f);
    if (!f)
        return error_nomem();
    *f = (weft_fetching){.subscriber = s, .want = *want, .until = until};
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f->ended, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&s->lock);
    s->cancelled = false;
    s->done = s->total = 0;
    s->fetching = f;
    pthread_mutex_unlock(&s->lock);
    err = thread_start(&f->thread, work, f);
    if (err) {
        pthread_mutex_lock(&s->lock);
        s->fetching = NULL;
        pthread_mutex_unlock(&s->lock);
        pthread_cond_destroy(&f->ended);
        free(f);
        return error_set(WEFT_EIO, "weft_fetch_start: there is no thread: %s", strerror(err));
    }
    *out = f;
    return 0;
}

int weft_fetching_test(weft_fetching *f, bool *over, int64_t *done, int64_t *total)
{
    if (!f)
        return error_set(WEFT_EINVAL, "weft_fetching_test: the fetching is NULL");
    weft_subscriber *s = f->subscriber;
    pthread_mutex_lock(&s->lock);
    if (over)
        *over = f->over;
    pthread_mutex_unlock(&s->lock);
    if (done)
        *done = s->done;
    if (total)
        *total = s->total;
    return 0;
}

int weft_fetching_wait(weft_fetching *f, int64_t timeout_ns, weft_epoch_step *out)
{
    int64_t until;
    if (!f)
        return error_set(WEFT_EINVAL, "weft_fetching_wait: the fetching is NULL");
    weft_subscriber *s = f->subscriber;
    int err = bus_until(s->bus, "weft_fetching_wait", timeout_ns, &until);
    if (err)
        return err;
    struct timespec at = {until / 1000000000, until % 1000000000}; /* deadline_now() is this clock's time */
    pthread_mutex_lock(&s->lock);
    while (!f->over && deadline_now() < until)
        pthread_cond_timedwait(&f->ended, &s->lock, &at);
    bool over = f->over;
    pthread_mutex_unlock(&s->lock);
    if (!over)
        return error_set(WEFT_ETIMEOUT, "set '%s': the fetch is not over: %lld of %lld bytes are staged", s->set,
                         (long long)s->done, (long long)s->total);
    if (f->result)
        error_restore(&f->text);
    else if (out)
        *out = f->version;
    return f->result;
}

void weft_fetching_cancel(weft_fetching *f)
{
    if (!f)
        return;
    weft_subscriber *s = f->subscriber;
    pthread_mutex_lock(&s->lock);
    s->cancelled = true;
    pthread_cond_broadcast(&s->unpinned); /* it may wait for a pin */
    pthread_mutex_unlock(&s->lock);
}

void weft_fetching_free(weft_fetching *f)
{
    if (!f)
        return;
    weft_subscriber *s = f->subscriber;
    weft_fetching_cancel(f);
    pthread_join(f->thread, NULL);
    pthread_mutex_lock(&s->lock);
    s->fetching = NULL;
    s->cancelled = false;
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&f->ended);
    free(f);
}
