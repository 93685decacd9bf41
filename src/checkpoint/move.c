/* Moving all parts: threads that take slab after slab, in the order of the input's files, so that reads and writes go
 * through the files from front to back. Each thread has its own buffers. A part is prepared when its first slab is
 * taken and freed after its last one, so memory does not grow with the checkpoint. The caller's thread waits and calls
 * the progress callback, which may ask to stop. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/error.h"
#include "base/thread.h"
#include "checkpoint/slab.h"

#define MEMORY (INT64_C(256) << 20)
#define MEMORY_LEAST (INT64_C(1) << 20)
#define THREADS 4
#define THREADS_MOST 64
#define BEAT_NS 50000000 /* between two calls of the progress callback */

/* A part that some threads work on. */
struct work {
    struct slab_cut part;
    int64_t next; /* slab to take */
    int users;
};

struct mover {
    struct checkpoint *c;
    size_t size; /* of a buffer */
    pthread_mutex_t lock;
    pthread_cond_t beat;
    /* guarded by the lock: */
    struct work *work;
    size_t next; /* part to begin */
    int threads; /* threads that are at work */
    int64_t read, written;
    int rc; /* the first error, and its text */
    char why[1024];
};

/* The lock is held. Keeps the first error. */
static void fail(struct mover *m, int rc)
{
    if (!rc || m->rc)
        return;
    m->rc = rc;
    struct text t = text_start(m->why, sizeof m->why);
    text_put(&t, weft_errmsg());
}

/* The lock is held. */
static void leave(struct work *w)
{
    if (w && --w->users == 0) {
        slab_cut_free(&w->part);
        free(w);
    }
}

/* The next slab, or NULL. The lock is held. */
static struct work *take(struct mover *m, int64_t *slab)
{
    while (!m->rc && (!m->work || m->work->next == m->work->part.slabs)) {
        leave(m->work);
        m->work = NULL;
        if (m->next == m->c->parts.n)
            return NULL;
        struct work *w = malloc(sizeof *w);
        int rc = w ? slab_cut_make(m->c, m->c->parts.v[m->next++], m->size, &w->part) : error_nomem();
        if (rc) {
            free(w);
            fail(m, rc);
            return NULL;
        }
        w->next = 0;
        w->users = 1;
        m->work = w;
    }
    if (m->rc)
        return NULL;
    *slab = m->work->next++;
    m->work->users++;
    return m->work;
}

/* The system allocates pages when they are first used, so a small checkpoint does not take all of the memory. */
static unsigned char *map_buffer(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void *run(void *arg)
{
    struct mover *m = arg;
    struct slab_buffers b = {.read = map_buffer(m->size), .write = map_buffer(m->size), .size = m->size};
    int64_t slab;
    pthread_mutex_lock(&m->lock);
    if (!b.read || !b.write)
        fail(m, error_nomem());
    for (struct work *w; (w = take(m, &slab));) {
        int64_t read = 0, written = 0;
        pthread_mutex_unlock(&m->lock);
        int rc = slab_move(&w->part, slab, &b, &read, &written);
        pthread_mutex_lock(&m->lock);
        fail(m, rc);
        m->read += read;
        m->written += written;
        leave(w);
    }
    m->threads--;
    pthread_cond_signal(&m->beat);
    pthread_mutex_unlock(&m->lock);
    arena_free(&b.arena);
    if (b.read)
        munmap(b.read, m->size);
    if (b.write)
        munmap(b.write, m->size);
    return NULL;
}

/* Waits until all threads are done. The caller holds the lock, which is released during the progress callback. */
static void watch(struct mover *m, int64_t total)
{
    const weft_checkpoint_opts *o = m->c->opts;
    while (m->threads) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += BEAT_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&m->beat, &m->lock, &until);
        int64_t done = m->written;
        if (!o->progress)
            continue;
        pthread_mutex_unlock(&m->lock);
        int rc = o->progress(o->arg, done, total);
        pthread_mutex_lock(&m->lock);
        if (rc && !m->rc)
            fail(m, error_set(rc < 0 ? rc : WEFT_EINVAL, "stopped by the caller"));
    }
}

static int64_t total_bytes(const struct checkpoint *c)
{
    int64_t n = 0;
    for (size_t f = 0; f < c->dst.files.n; f++)
        for (size_t i = 0; i < c->dst.files.v[f].header.ntensors; i++)
            n += c->dst.files.v[f].header.tensors[i].bytes;
    return n;
}

static int64_t memory_of(const weft_checkpoint_opts *o)
{
    return o->memory ? o->memory : MEMORY;
}

static int threads_of(const weft_checkpoint_opts *o)
{
    return o->threads ? o->threads : THREADS;
}

int checkpoint_move_check(const weft_checkpoint_opts *o)
{
    if (memory_of(o) < MEMORY_LEAST || memory_of(o) > INT64_MAX / 2)
        return error_set(WEFT_EINVAL, "memory is %lld bytes: it must be at least %lld", (long long)o->memory,
                         (long long)MEMORY_LEAST);
    if (threads_of(o) < 1 || threads_of(o) > THREADS_MOST)
        return error_set(WEFT_EINVAL, "threads is %d: it must be 1 to %d", o->threads, THREADS_MOST);
    return 0;
}

static void begin(struct mover *m, int threads)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->beat, &attr);
    pthread_condattr_destroy(&attr);
    m->size = (size_t)(memory_of(m->c->opts) / (2 * threads)) & ~(size_t)4095;
}

int checkpoint_move(struct checkpoint *c, weft_checkpoint_info *info)
{
    struct mover m = {.c = c};
    pthread_t thread[THREADS_MOST];
    int threads = threads_of(c->opts), n = 0, err = 0;
    begin(&m, threads);
    pthread_mutex_lock(&m.lock);
    while (n < threads && !(err = thread_start(&thread[n], run, &m)))
        n++;
    m.threads = n;
    if (!n)
        fail(&m, error_set(WEFT_EIO, "no thread can be started: %s", strerror(err)));
    watch(&m, total_bytes(c));
    pthread_mutex_unlock(&m.lock);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    leave(m.work);
    pthread_cond_destroy(&m.beat);
    pthread_mutex_destroy(&m.lock);
    info->bytes_in = m.read;
    info->bytes_out = m.written;
    return m.rc ? error_set(m.rc, "%s", m.why) : 0;
}
