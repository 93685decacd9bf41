#define _GNU_SOURCE
#include "version/copy_threads.h"

#include <sched.h>

#include "base/error.h"
#include "base/math.h"
#include "base/thread.h"

#define PARTS 4 /* for each thread */

int copy_threads_usual(int ranks)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    int each = cores / (ranks > 1 ? ranks : 1);
    return each < 1 ? 1 : each > COPY_THREADS_USUAL ? COPY_THREADS_USUAL : each;
}

int copy_threads_choose(const char *call, int64_t wanted, const weft_comm *comm, int ranks, int *out)
{
    weft_machine m = WEFT_MACHINE_INIT;
    if (wanted < 0 || wanted > COPY_THREADS_MOST)
        return error_set(WEFT_EINVAL, "%s: threads is %lld: it must be 0 to %d", call, (long long)wanted,
                         COPY_THREADS_MOST);
    int err = comm ? weft_comm_machine(comm, &m) : 0;
    if (err)
        return err;
    if (comm) {
        int here = weft_comm_rank(comm), each = m.ranks_per_host;
        ranks = 0;
        for (int r = 0; r < weft_comm_size(comm); r++)
            ranks += m.host ? m.host[r] == m.host[here] : !each || r / each == here / each;
    }
    *out = wanted ? (int)wanted : copy_threads_usual(ranks);
    return 0;
}

int copy_threads_parts(const struct copy_threads *t, int64_t n)
{
    return t->wanted > 1 ? (int)max64(1, min64(n / t->least, PARTS * (int64_t)t->wanted)) : 1;
}

void copy_threads_begin(struct copy_threads *t, int wanted, int64_t least)
{
    *t = (struct copy_threads){.wanted = wanted, .least = least};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
}

/* Claims need no order among each other: what parts read was written before the copy began, with the lock. */
static void work(struct copy_threads *t)
{
    for (int i; (i = atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed)) < t->parts;)
        t->part(t->arg, i);
}

static void *run(void *arg)
{
    struct copy_threads *t = arg;
    pthread_mutex_lock(&t->lock);
    for (unsigned long seen = 0;;) {
        while (t->turn == seen && !t->ends)
            pthread_cond_wait(&t->changed, &t->lock);
        if (t->turn == seen)
            break;
        seen = t->turn;
        if (!t->open) /* it has woken up too late for this copy */
            continue;
        t->busy++;
        pthread_mutex_unlock(&t->lock);
        work(t);
        pthread_mutex_lock(&t->lock);
        if (!--t->busy)
            pthread_cond_broadcast(&t->changed);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* Where there are no more threads, fewer do. */
static void make(struct copy_threads *t)
{
    while (t->made + 1 < t->wanted && !thread_start(&t->thread[t->made], run, t))
        t->made++;
    t->wanted = t->made + 1;
}

void copy_threads_run(struct copy_threads *t, int parts, void (*part)(void *arg, int i), void *arg)
{
    if (parts > 1 && t->wanted > 1 && !t->made)
        make(t);
    if (parts <= 1 || !t->made) {
        for (int i = 0; i < parts; i++)
            part(arg, i);
        return;
    }
    pthread_mutex_lock(&t->lock);
    t->part = part;
    t->arg = arg;
    t->parts = parts;
    t->open = true;
    atomic_store_explicit(&t->next, 0, memory_order_relaxed);
    t->turn++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    work(t);
    pthread_mutex_lock(&t->lock);
    t->open = false; /* threads that come now are not waited for */
    while (t->busy)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void copy_threads_end(struct copy_threads *t)
{
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->made; i++)
        pthread_join(t->thread[i], NULL);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}
