/* Threads that wait for work; see worker_threads.h. */
#include "tool/worker_threads.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft.h"

struct member {
    struct worker_threads *all;
    pthread_t thread;
    int rank, err;
    char text[1024];
};

struct worker_threads {
    pthread_mutex_t lock;
    pthread_cond_t go, done;
    int ranks, started, busy;
    uint64_t turn; /* number of the current work */
    bool over;
    worker_work *work;
    void *arg;
    struct member member[];
};

static void *serve(void *arg)
{
    struct member *m = arg;
    struct worker_threads *t = m->all;
    uint64_t turn = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->turn == turn && !t->over)
            pthread_cond_wait(&t->go, &t->lock);
        if (t->over)
            break;
        turn = t->turn;
        pthread_mutex_unlock(&t->lock);
        m->err = t->work(t->arg, m->rank);
        if (m->err)
            snprintf(m->text, sizeof m->text, "%s", weft_errmsg());
        pthread_mutex_lock(&t->lock);
        if (--t->busy == 0)
            pthread_cond_signal(&t->done);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

int worker_threads_open(int ranks, struct worker_threads **out, struct failure *why)
{
    struct worker_threads *t = calloc(1, sizeof *t + (size_t)ranks * sizeof t->member[0]);
    if (!t)
        return failure_set(why, CLI_WRONG, "no memory for %d threads", ranks);
    t->ranks = ranks;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->go, NULL);
    pthread_cond_init(&t->done, NULL);
    for (; t->started < ranks; t->started++) {
        struct member *m = &t->member[t->started];
        m->all = t;
        m->rank = t->started;
        int err = pthread_create(&m->thread, NULL, serve, m);
        if (err) {
            failure_set(why, CLI_WRONG, "thread %d of %d could not be started: %s", t->started, ranks, strerror(err));
            worker_threads_close(t);
            return CLI_WRONG;
        }
    }
    *out = t;
    return CLI_OK;
}

int worker_threads_do(struct worker_threads *t, worker_work *work, void *arg, struct failure *why)
{
    pthread_mutex_lock(&t->lock);
    t->work = work;
    t->arg = arg;
    t->busy = t->ranks;
    t->turn++;
    pthread_cond_broadcast(&t->go);
    while (t->busy)
        pthread_cond_wait(&t->done, &t->lock);
    pthread_mutex_unlock(&t->lock);
    for (int r = 0; r < t->ranks; r++) {
        const struct member *m = &t->member[r];
        if (!m->err)
            continue;
        const char *text = m->text[0] ? m->text : weft_strerror(m->err);
        if (strstr(text, "rank "))
            failure_set(why, CLI_WRONG, "%s", text);
        else
            failure_set(why, CLI_WRONG, "rank %d: %s", r, text);
        return m->err;
    }
    return 0;
}

void worker_threads_close(struct worker_threads *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->over = true;
    pthread_cond_broadcast(&t->go);
    pthread_mutex_unlock(&t->lock);
    for (int r = 0; r < t->started; r++)
        pthread_join(t->member[r].thread, NULL);
    pthread_mutex_destroy(&t->lock);
    pthread_cond_destroy(&t->go);
    pthread_cond_destroy(&t->done);
    free(t);
}
