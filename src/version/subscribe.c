/* Subscribers: opening, closing, pins, and what they tell about themselves. */
#define _GNU_SOURCE
#include "version/subscribe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/forks.h"
#include "base/math.h"
#include "base/sized.h"
#include "comm/environment.h"
#include "layout/layout.h"
#include "rendezvous/deadline.h"
#include "version/bus_relay.h"
#include "version/copy_threads.h"
#include "version/fetch_device.h"
#include "version/fetch_share.h"
#include "weft/collective.h"

#define CLOSE_NS INT64_C(2000000000)

struct weft_pin {
    weft_subscriber *subscriber;
    struct subscribe_buffer *buffer;
};

void subscribe_key(const weft_subscriber *s, int rank, char key[RECORD_KEY])
{
    if (rank < 0)
        record_key(key, s->set, "readers/%s/decided", s->group);
    else
        record_key(key, s->set, "readers/%s/%d", s->group, rank);
}

/* A name for the ranks of this job that no other subscription has. */
static int name_group(weft_subscriber *s)
{
    unsigned char random[8];
    char group[SUBSCRIBE_GROUP] = "";
    int err = 0;
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        err = error_set(WEFT_EIO, "no random number: %s", strerror(errno));
    int n = snprintf(group, sizeof group, "%s-", s->bus->job);
    for (size_t i = 0; i < sizeof random && !err; i++)
        n += snprintf(group + n, sizeof group - (size_t)n, "%02x", random[i]);
    if (s->ranks > 1) {
        int failed = weft_broadcast(s->comm, group, sizeof group, WEFT_U8, 0);
        err = err ? err : failed;
    }
    group[sizeof group - 1] = 0;
    memcpy(s->group, group, sizeof group);
    return err;
}

static void free_subscriber(weft_subscriber *s)
{
    struct error_text kept;
    error_keep(&kept);
    job_metrics_lag_end(&s->bus->metrics, &s->lag);
    bus_relay_leave(s->relay);
    directory_unwatch(s->watch);
    directory_close(s->directory);
    for (int i = 0; i < 2; i++) {
        const struct subscribe_buffer *b = &s->buffers[i];
        if (b->data && (!i || b->data != s->buffers[0].data))
            munmap(b->data, (size_t)max64(s->bytes[0], 1));
        if (b->there && (!i || b->there != s->buffers[0].there))
            bus_device_free(fetch_device_lanes(s->device), b->there);
        free(b->meta);
    }
    subscribe_unmap(s, 0);
    fetch_device_close(s->device);
    free(s->maps.v);
    reader_plan_free(&s->plan);
    schema_free(s->theirs);
    schema_part_free(&s->part);
    schema_free(s->mine);
    free(s->sources);
    free(s->into);
    free(s->there);
    pthread_cond_destroy(&s->unpinned);
    pthread_mutex_destroy(&s->lock);
    bus_leave(s->bus);
    free(s);
    error_restore(&kept);
}

static int begin(weft_subscriber *s, const weft_bus_tensor *tensors, size_t n)
{
    int err = schema_make("weft_subscribe", tensors, n, &s->mine);
    if (!err && s->comm && s->mine->ranks > s->ranks)
        err = error_set(WEFT_EINVAL, "weft_subscribe: the layouts need %d ranks, and the comm has %d", s->mine->ranks,
                        s->ranks);
    if (!err && s->ranks > WEFT_BUS_SWAP_RANKS)
        err = error_set(WEFT_EUNSUPPORTED, "weft_subscribe: a comm of %d ranks: %d is the most", s->ranks,
                        WEFT_BUS_SWAP_RANKS);
    return err ? err : schema_part(s->mine, s->rank, !s->packed, &s->part);
}

/* Tensor i is on a device. All are on the same. */
static int on_device(weft_subscriber *s, size_t i, int number)
{
    if (!s->there)
        s->there = calloc(s->mine->n + 1, sizeof *s->there);
    if (!s->there)
        return error_nomem();
    s->there[i] = true;
    int err = s->device ? 0 : fetch_device_open(number, &s->device);
    if (!err && fetch_device_lanes(s->device)->device->number != number)
        err = error_set(WEFT_EUNSUPPORTED,
                        "weft_subscribe: tensor '%s' is on device %d, and another one on device %d: a rank has its "
                        "tensors on one device",
                        s->mine->v[i].name, number, fetch_device_lanes(s->device)->device->number);
    return err;
}

/* Versions live in memory of a device. */
static int take_device(weft_subscriber *s, int memory, int number)
{
    const weft_view v = {.memory = memory, .device = number};
    int found, err = device_of_view("weft_subscribe", &v, environment_modules(), &found);
    if (!err && memory == WEFT_MEMORY_ANY)
        err = error_set(WEFT_EINVAL, "weft_subscribe: memory is WEFT_MEMORY_ANY: say where versions are to live");
    for (size_t i = 0; i < s->mine->n && !err && found >= 0; i++)
        err = on_device(s, i, found);
    return err;
}

/* Tensors of the two memories have places that begin at 0 each. */
static void split_part(weft_subscriber *s)
{
    for (size_t i = 0; i < s->mine->n; i++) {
        int64_t *end = &s->bytes[s->there && s->there[i]];
        s->part.v[i].at = (*end + SCHEMA_ALIGN - 1) / SCHEMA_ALIGN * SCHEMA_ALIGN;
        *end = s->part.v[i].at + s->part.v[i].bytes;
    }
}

/* The caller's arrays. */
static int take_arrays(weft_subscriber *s, const weft_view *views)
{
    s->into = calloc(s->mine->n + 1, sizeof *s->into);
    if (!s->into)
        return error_nomem();
    for (size_t i = 0; i < s->mine->n; i++) {
        const weft_view *v = &views[i];
        int number;
        const char *wrong = v->strides                                                          ? "has strides"
                            : v->reserved[0] || v->reserved[1]                                  ? "has reserved words"
                            : !v->data                                                          ? "is NULL"
                            : v->bytes < (size_t)subscribe_bytes(s, i)                          ? "is too small"
                            : (uintptr_t)v->data % weft_dtype_size(s->mine->v[i].layout->dtype) ? "is not aligned"
                                                                                                : NULL;
        if (!s->part.v[i].bytes)
            continue;
        if (wrong)
            return error_set(v->strides ? WEFT_EUNSUPPORTED : WEFT_EINVAL, "weft_subscribe: tensor '%s': its array %s",
                             s->mine->v[i].name, wrong);
        char what[SCHEMA_NAME + 64];
        snprintf(what, sizeof what, "weft_subscribe: tensor '%s'", s->mine->v[i].name);
        int err = device_of_view(what, v, environment_modules(), &number);
        if (!err && number >= 0)
            err = on_device(s, i, number);
        if (err)
            return err;
        s->into[i] = v->data;
    }
    return 0;
}

/* All ranks tell each other how it went, and whether they may check digests together: they have the same tensors then.
 */
static int agree(weft_subscriber *s, int err, int *worst)
{
    int64_t layouts = 0, all[4];
    if (!err)
        memcpy(&layouts, s->mine->layouts, sizeof layouts);
    layouts &= INT64_MAX;
    const int64_t mine[4] = {err, !err && fetch_share_possible(s), layouts, -layouts};
    int failed = weft_allreduce(s->comm, mine, all, 4, WEFT_I64, WEFT_MIN);
    *worst = failed ? 0 : (int)all[0];
    s->together = !failed && all[1] && all[2] == -all[3];
    return failed;
}

int weft_subscribe(weft_bus *b, const char *set, const weft_bus_tensor *tensors, size_t n,
                   const weft_subscribe_opts *opts, weft_subscriber **out)
{
    weft_subscribe_opts o;
    pthread_condattr_t attr;
    int err = sized_read("weft_subscribe", "weft_subscribe_opts", &o, sizeof o, opts);
    if (!err && (!out || o.rank < 0))
        err = error_set(WEFT_EINVAL, "weft_subscribe: %s", out ? "the rank is negative" : "out is NULL");
    if (!err)
        err = record_name("weft_subscribe", "set", set);
    if (!err)
        err = bus_enter(b, "weft_subscribe");
    if (err)
        return err;
    weft_subscriber *s = calloc(1, sizeof *s);
    if (!s) {
        bus_leave(b);
        return error_nomem();
    }
    *s = (weft_subscriber){.bus = b,
                           .comm = o.comm,
                           .only = o.only,
                           .check = !o.no_check,
                           .alone = o.alone,
                           .no_delta = o.no_delta,
                           .least = COPY_THREADS_LEAST,
                           .progress = o.progress,
                           .arg = o.arg,
                           .live = -1,
                           .staged = -1};
    s->rank = o.comm ? weft_comm_rank(o.comm) : o.rank;
    s->ranks = o.comm ? weft_comm_size(o.comm) : 1;
    snprintf(s->set, sizeof s->set, "%s", set);
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->unpinned, &attr);
    pthread_condattr_destroy(&attr);
    s->arrived = o.arrived;
    s->direct = o.direct;
    s->packed = o.into && !o.direct;
    err = begin(s, tensors, n);
    if (!err)
        err = copy_threads_choose("weft_subscribe", o.threads, o.comm, 1, &s->threads);
    if (!err && o.direct && !o.into)
        err = error_set(WEFT_EINVAL, "weft_subscribe: direct is for arrays of the caller, and there are none");
    if (!err && o.into && (o.memory || o.device))
        err =
            error_set(WEFT_EINVAL, "weft_subscribe: the views of into say where memory is: leave memory and device 0");
    if (!err)
        err = o.into ? take_arrays(s, o.into) : take_device(s, o.memory, o.device);
    if (!err)
        split_part(s);
    if (s->ranks > 1) {
        struct error_text kept;
        error_keep(&kept);
        int worst = 0, failed = agree(s, err, &worst);
        if (err)
            error_restore(&kept);
        else if (failed)
            err = failed;
        else if (worst)
            err = error_set(worst, "weft_subscribe: another rank of this job was refused: %s", weft_strerror(worst));
    }
    if (!err)
        err = name_group(s);
    if (err)
        free_subscriber(s);
    else {
        job_metrics_lag_begin(&b->metrics, &s->lag, s->set);
        *out = s;
    }
    return err;
}

void weft_subscriber_close(weft_subscriber *s)
{
    char keys[2][RECORD_KEY];
    struct directory_outcome o;
    struct error_text kept;
    if (!s || s->bus->forks != forks_count() || s->fetching)
        return;
    error_keep(&kept);
    /* A rank that has not learned a decision yet must find it, or find it gone: it is deleted together with the key
     * that such a rank compares. */
    subscribe_key(s, s->rank, keys[0]);
    subscribe_key(s, -1, keys[1]);
    struct directory_change x[2] = {{.key = keys[0], .erase = true}, {.key = keys[1], .erase = true}};
    if (s->count)
        keeper_transact(&s->bus->keeper, NULL, 0, x, s->comm && s->rank ? 1 : 2, deadline_in(CLOSE_NS), &o);
    error_restore(&kept);
    free_subscriber(s);
}

int subscribe_idle(weft_subscriber *s, const char *call)
{
    pthread_mutex_lock(&s->lock);
    bool busy = s->fetching != NULL;
    pthread_mutex_unlock(&s->lock);
    return busy ? error_set(WEFT_EBUSY, "%s: set '%s': a fetch runs in the background: wait for it and free it", call,
                            s->set)
                : 0;
}

/* ---- memory ---- */

int64_t subscribe_bytes(const weft_subscriber *s, size_t i)
{
    const weft_layout *l = s->mine->v[i].layout;
    weft_local local;
    if (!s->packed || !l->boxes)
        return s->part.v[i].bytes;
    return weft_layout_local(l, s->rank, &local) ? 0 : local.bytes;
}

unsigned char *subscribe_place(const weft_subscriber *s, const struct subscribe_buffer *b, size_t i)
{
    unsigned char *memory = s->there && s->there[i] ? b->there : b->data;
    return s->direct ? s->into[i] : memory + s->part.v[i].at;
}

/* Waits until none, or neither, of the buffers is pinned, or the fetch that waits is cancelled. With the lock. */
static int wait_unpinned(weft_subscriber *s, const int *pins, const int *more, int64_t until)
{
    while ((*pins || *more) && !s->cancelled && deadline_now() < until) {
        struct timespec at = {until / 1000000000, until % 1000000000}; /* deadline_now() is this clock's time */
        pthread_cond_timedwait(&s->unpinned, &s->lock, &at);
    }
    if ((*pins || *more) && s->cancelled)
        return error_set(WEFT_EINVAL, "set '%s': the fetch was stopped by the caller", s->set);
    return *pins || *more ? error_set(WEFT_ETIMEOUT, "set '%s': %s is pinned %d times still", s->set,
                                      s->into ? "the live version" : "the version before the live one",
                                      pins == more ? *pins : *pins + *more)
                          : 0;
}

int subscribe_write_begin(weft_subscriber *s, int64_t until)
{
    pthread_mutex_lock(&s->lock);
    s->writing = true;
    int err = wait_unpinned(s, &s->buffers[0].pins, &s->buffers[1].pins, until);
    if (err)
        s->writing = false;
    pthread_cond_broadcast(&s->unpinned);
    pthread_mutex_unlock(&s->lock);
    return err;
}

void subscribe_write_end(weft_subscriber *s)
{
    pthread_mutex_lock(&s->lock);
    s->writing = false;
    pthread_cond_broadcast(&s->unpinned);
    pthread_mutex_unlock(&s->lock);
}

/* The caller's arrays are about to be written. */
static int begin_direct(weft_subscriber *s, int64_t until)
{
    int err = subscribe_write_begin(s, until);
    if (err)
        return err;
    pthread_mutex_lock(&s->lock);
    s->mixed = true;
    pthread_mutex_unlock(&s->lock);
    subscribe_write_end(s);
    return 0;
}

static int take_memory(weft_subscriber *s, struct subscribe_buffer *b)
{
    size_t size = (size_t)max64(s->bytes[0], 1);
    if (s->into && s->buffers[0].there)
        b->there = s->buffers[0].there;
    else if (s->bytes[1] && !b->there) {
        int err = bus_device_alloc(fetch_device_lanes(s->device), (size_t)s->bytes[1], "to stage a version", &b->there);
        if (err)
            return err;
        if (s->into)
            s->buffers[0].there = b->there;
    }
    void *at = s->into && s->buffers[0].data
                   ? s->buffers[0].data
                   : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return error_set(WEFT_ENOMEM, "set '%s': there is no memory to stage %lld bytes: %s", s->set,
                         (long long)s->bytes[0], strerror(errno));
    b->data = at;
    if (s->into)
        s->buffers[0].data = at; /* versions live elsewhere: one memory is enough */
    return 0;
}

int subscribe_room(weft_subscriber *s, int64_t until, struct subscribe_buffer **out)
{
    pthread_mutex_lock(&s->lock);
    s->staged = -1;
    struct subscribe_buffer *b = &s->buffers[s->live == 0];
    int err = s->into ? 0 : wait_unpinned(s, &b->pins, &b->pins, until);
    pthread_mutex_unlock(&s->lock);
    *out = b;
    if (!err && s->direct)
        return begin_direct(s, until);
    return err || b->data ? err : take_memory(s, b);
}

int subscribe_stopped(const weft_subscriber *s)
{
    return error_set(WEFT_EINVAL, "set '%s': the fetch was stopped by the caller", s->set);
}

/* ---- mappings ---- */

int subscribe_map(weft_subscriber *s, const char *source, int64_t epoch, int file, int64_t bytes, struct snapshot *out)
{
    struct stat st;
    if (fstat(file, &st)) {
        close(file);
        return error_set(WEFT_EIO, "%s: its snapshot cannot be looked at: %s", source, strerror(errno));
    }
    for (size_t i = 0; i < s->maps.n; i++) {
        struct subscribe_map *m = &s->maps.v[i];
        if (m->epoch == epoch && m->device == st.st_dev && m->inode == st.st_ino &&
            m->snapshot.size == (size_t)bytes + SNAPSHOT_DATA) {
            close(file);
            *out = m->snapshot;
            return 0;
        }
    }
    struct subscribe_map *m = vec_push(&s->maps);
    if (!m) {
        close(file);
        return error_nomem();
    }
    *m = (struct subscribe_map){.epoch = epoch, .device = st.st_dev, .inode = st.st_ino};
    int err = snapshot_map(source, file, bytes, &m->snapshot);
    if (err) {
        s->maps.n--;
        return err;
    }
    if (s->device && epoch) /* a relay's memory is mapped for one fetch */
        m->pinned = bus_device_pin(fetch_device_lanes(s->device), &m->snapshot, true);
    *out = m->snapshot;
    return 0;
}

bool subscribe_pinned(const weft_subscriber *s, const struct snapshot *mapped)
{
    for (size_t i = 0; i < s->maps.n; i++)
        if (s->maps.v[i].snapshot.head == mapped->head)
            return s->maps.v[i].pinned;
    return false;
}

void subscribe_unmap(weft_subscriber *s, int64_t but)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->maps.n; i++)
        if (s->maps.v[i].epoch == but)
            s->maps.v[kept++] = s->maps.v[i];
        else {
            if (s->maps.v[i].pinned)
                bus_device_unpin(fetch_device_lanes(s->device), &s->maps.v[i].snapshot);
            snapshot_close(&s->maps.v[i].snapshot);
        }
    s->maps.n = kept;
}

/* ---- pins ---- */

int weft_use(weft_subscriber *s, weft_pin **out)
{
    if (!s || !out)
        return error_set(WEFT_EINVAL, "weft_use: %s is NULL", s ? "out" : "the subscriber");
    weft_pin *p = malloc(sizeof *p);
    if (!p)
        return error_nomem();
    pthread_mutex_lock(&s->lock);
    int err = 0;
    while (s->writing) /* until swap, or the beginning of a fetch, is done with the arrays */
        pthread_cond_wait(&s->unpinned, &s->lock);
    if (s->mixed)
        err = error_set(WEFT_EBUSY,
                        "set '%s': a fetch writes into the arrays, or has left a mixture there: fetch and swap first",
                        s->set);
    else if (s->undecided)
        err = error_set(WEFT_EPEER,
                        "set '%s': rank %d does not know whether the other ranks of this job have swapped: swap "
                        "again, or subscribe anew",
                        s->set, s->rank);
    else if (s->live < 0)
        err = error_set(WEFT_EINVAL, "set '%s': no version is live yet: fetch one and swap", s->set);
    else {
        *p = (weft_pin){s, &s->buffers[s->live]};
        p->buffer->pins++;
    }
    pthread_mutex_unlock(&s->lock);
    if (err)
        free(p);
    else
        *out = p;
    return err;
}

void weft_unuse(weft_pin *p)
{
    if (!p)
        return;
    weft_subscriber *s = p->subscriber;
    pthread_mutex_lock(&s->lock);
    p->buffer->pins--;
    pthread_cond_broadcast(&s->unpinned);
    pthread_mutex_unlock(&s->lock);
    free(p);
}

weft_epoch_step weft_pin_version(const weft_pin *p)
{
    return p ? p->buffer->version : (weft_epoch_step){0};
}

int weft_pin_data(const weft_pin *p, size_t i, const void **data, int64_t *bytes)
{
    if (!p || !data || i >= p->subscriber->mine->n)
        return error_set(WEFT_EINVAL, "weft_pin_data: %s",
                         !p      ? "the pin is NULL"
                         : !data ? "data is NULL"
                                 : "there is no such tensor");
    const struct schema_place *at = &p->subscriber->part.v[i];
    const weft_subscriber *s = p->subscriber;
    *data = !at->bytes ? NULL : s->into ? s->into[i] : subscribe_place(s, p->buffer, i);
    if (bytes)
        *bytes = subscribe_bytes(s, i);
    return 0;
}

int weft_pin_meta(const weft_pin *p, char *buf, size_t cap, size_t *len)
{
    if (!p || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_pin_meta: %s is NULL", !p ? "the pin" : !len ? "len" : "buf");
    struct text t = text_start(buf, cap);
    text_put(&t, p->buffer->meta ? p->buffer->meta : "");
    *len = t.len;
    return 0;
}

/* ---- explain ---- */

int weft_subscriber_explain(weft_subscriber *s, bool json, char *buf, size_t cap, size_t *len)
{
    if (!s || !len || (cap && !buf))
        return error_set(WEFT_EINVAL, "weft_subscriber_explain: %s is NULL",
                         !s     ? "the subscriber"
                         : !len ? "len"
                                : "buf");
    struct text t = text_start(buf, cap);
    int err = subscribe_idle(s, "weft_subscriber_explain");
    if (err)
        return err;
    if (json) {
        text_put(&t, "{\"set\": ");
        text_json(&t, s->set);
        text_printf(
            &t,
            ", \"rank\": %d, \"tensors\": %zu, \"staged_bytes\": %lld, \"epoch\": %lld, \"step\": %lld, \"sources\": [",
            s->rank, s->mine->n, (long long)s->part.bytes, (long long)s->found.epoch, (long long)s->found.step);
    } else if (!s->theirs)
        text_printf(&t, "set %s: no version was found yet\n", s->set);
    else
        text_printf(&t, "set %s, version %lld.%lld: rank %d reads %lld bytes in %zu pieces for %zu tensors\n", s->set,
                    (long long)s->found.epoch, (long long)s->found.step, s->rank, (long long)s->plan.bytes, s->plan.n,
                    s->mine->n);
    for (size_t i = 0; i < s->nsources; i++) {
        const struct subscribe_source *o = &s->sources[i];
        if (json) {
            text_printf(&t, "%s{\"rank\": %d, \"job\": ", i ? ", " : "", o->rank);
            text_json(&t, o->job);
            text_printf(&t, ", \"way\": \"%s\", \"pieces\": %zu, \"bytes\": %lld}", o->way, o->pieces,
                        (long long)o->bytes);
        } else
            text_printf(&t, "  rank %d of publisher %s (%s): %lld bytes in %zu pieces\n", o->rank, o->job, o->way,
                        (long long)o->bytes, o->pieces);
    }
    if (json)
        text_put(&t, "]}");
    *len = t.len;
    return 0;
}
