/* Ranks as threads for tests: each runs one function with a comm of its own; what goes wrong is
 * noted and told by the main thread, since cmocka's asserts work there only. */
#ifndef WEFT_TESTS_RANKS_H
#define WEFT_TESTS_RANKS_H
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "weft.h"

#define RANKS_MAX 16

/* Where the ranks run; conformance.h goes through all of them. They are threads of this process on every transport. */
static const char *ranks_on = "threads";

static inline void ranks_url(char *url, size_t cap, int n, int job, weft_comm_opts *opts)
{
    if (!strcmp(ranks_on, "threads")) {
        snprintf(url, cap, "threads:%d/test-%d", n, job);
        return;
    }
    snprintf(url, cap, "%s:test-%ld-%d", ranks_on, (long)getpid(), job);
    opts->ranks = n;
}

/* A meeting of all ranks outside weft; a rank that has failed does not come, and nobody waits for it. */
struct ranks_meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, here, generation;
    bool broken;
};

struct ranks_rank {
    int rank, size;
    weft_comm *comm;
    void *arg;
    struct ranks_meeting *meet;
    void (*body)(struct ranks_rank *r);
    const char *url;
    weft_comm_opts opts;
    char text[1200]; /* for bodies that hand an error text over */
    int code;
    bool keep; /* the body closes the comm itself */
    char failed[1600];
};

/* Notes the first failure of a rank; the body should then return. */
static inline void ranks_note(struct ranks_rank *r, const char *file, int line, const char *fmt, ...)
{
    if (r->failed[0])
        return;
    int n = snprintf(r->failed, sizeof r->failed, "%s:%d: rank %d: ", file, line, r->rank);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->failed + n, sizeof r->failed - (size_t)n, fmt, ap);
    va_end(ap);
}

#define RANKS_CHECK(r, condition)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ranks_note((r), __FILE__, __LINE__, "%s (last error: %s)", #condition, weft_errmsg()); \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define RANKS_OK(r, call) RANKS_CHECK(r, (call) == WEFT_OK)

static inline void ranks_meet(struct ranks_rank *r)
{
    struct ranks_meeting *m = r->meet;
    pthread_mutex_lock(&m->lock);
    int generation = m->generation;
    if (++m->here == m->size) {
        m->here = 0;
        m->generation++;
        pthread_cond_broadcast(&m->changed);
    }
    while (m->generation == generation && !m->broken)
        pthread_cond_wait(&m->changed, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

static inline void ranks_break(struct ranks_rank *r)
{
    pthread_mutex_lock(&r->meet->lock);
    r->meet->broken = true;
    pthread_cond_broadcast(&r->meet->changed);
    pthread_mutex_unlock(&r->meet->lock);
}

static inline void *ranks_main(void *arg)
{
    struct ranks_rank *r = arg;
    int err = weft_comm_open(r->url, &r->opts, &r->comm);
    if (err) {
        ranks_note(r, __FILE__, __LINE__, "open: %s", weft_errmsg());
        ranks_break(r);
        return NULL;
    }
    r->body(r);
    if (r->failed[0])
        ranks_break(r);
    if (!r->keep)
        weft_comm_close(r->comm);
    return NULL;
}

/* Runs body on n ranks; out (may be NULL) gets what they left. Fails the test if a rank noted something. */
static inline void ranks_run(int n, const weft_comm_opts *opts, void (*body)(struct ranks_rank *), void *arg,
                             struct ranks_rank *out)
{
    static atomic_int job;
    struct ranks_rank *r = calloc((size_t)n, sizeof *r);
    pthread_t threads[RANKS_MAX];
    struct ranks_meeting meet = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .size = n};
    char url[64];
    assert_non_null(r);
    weft_comm_opts where = {.ranks = 0};
    ranks_url(url, sizeof url, n, atomic_fetch_add(&job, 1), &where);
    for (int i = 0; i < n; i++) {
        r[i] = (struct ranks_rank){.rank = i, .size = n, .arg = arg, .meet = &meet, .body = body, .url = url};
        if (opts)
            r[i].opts = *opts;
        r[i].opts.size = sizeof r[i].opts;
        r[i].opts.rank = i;
        r[i].opts.ranks = where.ranks;
        assert_int_equal(pthread_create(&threads[i], NULL, ranks_main, &r[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    char failed[1600] = "";
    for (int i = n - 1; i >= 0; i--)
        if (r[i].failed[0])
            memcpy(failed, r[i].failed, sizeof failed);
    if (out)
        memcpy(out, r, (size_t)n * sizeof *r);
    free(r);
    if (failed[0])
        fail_msg("%s", failed);
}
#endif
